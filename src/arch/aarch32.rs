//! The AArch32 and M-profile registers as GDB expects them: `org.gnu.gdb.arm.core`, `.m-profile`,
//! `.m-system`, `.secext`, `.m-profile-mve` and `.vfp`.

use super::description::{Feature, RegisterDescription};
use super::registers::RegisterFile;

/// Number of the first VFP register; GDB's own set ends at 25 with the status register.
const FIRST_VFP: u32 = 26;
/// Number of the first M-profile stack pointer.
const FIRST_STACK_POINTER: u32 = 64;

fn feature(name: &str, registers: Vec<RegisterDescription>) -> Feature {
    Feature {
        name: format!("org.gnu.gdb.arm.{name}"),
        types: String::new(),
        registers,
    }
}

/// R0-R12, SP, LR, PC and the status register.
fn general(status: &str) -> Vec<RegisterDescription> {
    let register = RegisterDescription::core;
    let mut registers: Vec<_> = (0..13)
        .map(|n| register(n, &format!("r{n}"), 32, "uint32"))
        .collect();
    registers.push(register(13, "sp", 32, "data_ptr"));
    registers.push(register(14, "lr", 32, "int"));
    registers.push(register(15, "pc", 32, "code_ptr"));
    registers.push(register(25, status, 32, "int"));
    registers
}

fn vfp(count: u32) -> Feature {
    let register = RegisterDescription::core;
    let mut registers: Vec<_> = (0..count)
        .map(|n| register(FIRST_VFP + n, &format!("d{n}"), 64, "ieee_double"))
        .collect();
    let mut status = register(FIRST_VFP + 32, "fpscr", 32, "int");
    status.group = Some("float");
    registers.push(status);
    feature("vfp", registers)
}

fn any_known(cores: &[&RegisterFile], mut names: impl Iterator<Item = String>) -> bool {
    names.any(|name| cores.iter().any(|core| core.core(&name).is_some()))
}

/// The features of A- and R-profile cores in AArch32 state.
pub(super) fn a_profile(kinds: &[&str], cores: &[&RegisterFile]) -> Vec<Feature> {
    let mut features = vec![feature("core", general("cpsr"))];
    let is_cortex_a = kinds
        .iter()
        .any(|kind| kind.to_ascii_lowercase().contains("cortex-a"));
    let upper = any_known(cores, (16..32).map(|n| format!("d{n}")));
    let lower = any_known(cores, (0..16).map(|n| format!("d{n}")))
        || cores.iter().any(|core| core.core("fpscr").is_some());
    if upper || is_cortex_a {
        features.push(vfp(32));
    } else if lower {
        features.push(vfp(16));
    }
    features
}

/// The features of M-profile cores.
pub(super) fn m_profile(cores: &[&RegisterFile]) -> Vec<Feature> {
    let known = |name: &str| cores.iter().any(|core| core.core(name).is_some());
    let stack_pointer = |n: u32, name: &str| {
        RegisterDescription::core(FIRST_STACK_POINTER + n, name, 32, "data_ptr")
    };
    let mut features = vec![feature("m-profile", general("xpsr"))];
    if known("msp") || known("psp") {
        features.push(feature(
            "m-system",
            vec![stack_pointer(0, "msp"), stack_pointer(1, "psp")],
        ));
    }
    let banked = ["msp_ns", "psp_ns", "msp_s", "psp_s"];
    if banked.iter().any(|name| known(name)) {
        let registers = banked.iter().zip(2..);
        let registers = registers.map(|(name, n)| stack_pointer(n, name)).collect();
        features.push(feature("secext", registers));
    }
    let doubles = any_known(cores, (0..16).map(|n| format!("d{n}")));
    if doubles || known("fpscr") {
        features.push(vfp(16));
    }
    if known("vpr") {
        let register = RegisterDescription::core(FIRST_STACK_POINTER + 6, "vpr", 32, "int");
        features.push(feature("m-profile-mve", vec![register]));
    }
    features
}
