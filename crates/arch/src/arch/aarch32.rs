//! The AArch32 and M-profile registers as GDB expects them: `org.gnu.gdb.arm.core`, `.m-profile`,
//! `.m-system`, `.secext`, `.m-profile-mve` and `.vfp`.

use super::description::{Feature, RegisterDescription};
use super::registers::RegisterFile;

/// Number of the first VFP register; GDB's own set ends at 25, the status register.
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

/// The stack pointers of M-profile cores: the current ones, and those of each security state.
const STACK_POINTERS: [&str; 6] = ["msp", "psp", "msp_ns", "psp_ns", "msp_s", "psp_s"];

/// The features of M-profile cores.
pub(super) fn m_profile(cores: &[&RegisterFile]) -> Vec<Feature> {
    let known = |name: &str| cores.iter().any(|core| core.core(name).is_some());
    let pointers: Vec<_> = STACK_POINTERS
        .iter()
        .zip(FIRST_STACK_POINTER..)
        .map(|(name, number)| RegisterDescription::core(number, name, 32, "data_ptr"))
        .collect();
    let (in_use, by_state) = pointers.split_at(2);
    let mut features = vec![feature("m-profile", general("xpsr"))];
    // GDB reads all registers of these features before it unwinds anything. If one of them is
    // missing, it finds no frame; if `m-system` is missing, `secext` makes it abort.
    let mut own = Vec::new();
    match cores.iter().all(|core| core.selects_stack()) {
        true => features.push(feature("m-system", in_use.to_vec())),
        false => own.extend_from_slice(in_use),
    }
    match cores.iter().all(|core| selects_security_state(core)) {
        true => features.push(feature("secext", by_state.to_vec())),
        false => own.extend_from_slice(by_state),
    }
    own.retain(|register| known(&register.name));
    for register in &mut own {
        register.group = Some("banked");
        register.general = false;
    }
    if !own.is_empty() {
        features.push(Feature {
            name: "org.armsnap.stacks".to_owned(),
            types: String::new(),
            registers: own,
        });
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

/// Whether the two stack pointers of the core are those of its security states.
fn selects_security_state(core: &RegisterFile) -> bool {
    let values = STACK_POINTERS.map(|name| core.value(name));
    let [msp, psp, msp_ns, psp_ns, msp_s, psp_s] = values;
    core.selects_stack()
        && values.iter().all(Option::is_some)
        && (msp == msp_s || msp == msp_ns)
        && (psp == psp_s || psp == psp_ns)
}
