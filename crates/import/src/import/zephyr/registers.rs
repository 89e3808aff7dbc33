//! Blocks of registers, in the layouts of each version of Zephyr's `arch/*/core/coredump.c`.

use crate::import::fields::Fields;
use armsnap_snapshot::snapshot::model::{Register, RegisterValue};

/// The kind of core whose registers a block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// A Cortex-M.
    MProfile,
    /// A Cortex-A or Cortex-R in AArch32.
    AProfile,
    /// A core in AArch64.
    AArch64,
}

impl Core {
    /// The type of its device.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::MProfile => "ARMv7-M",
            Self::AProfile => "ARMv7-A",
            Self::AArch64 => "ARMv8-A",
        }
    }
}

/// The registers in the block of a Cortex-M, Cortex-A or Cortex-R (for the latter two, the status
/// register is CPSR); the last eight exist since version 2.
const AARCH32: [&str; 17] = [
    "R0", "R1", "R2", "R3", "R12", "LR", "PC", "xPSR", "SP", "R4", "R5", "R6", "R7", "R8", "R9",
    "R10", "R11",
];
/// The index of the first register that the kernel may not have saved.
const CALLEE_SAVED: usize = 9;

/// A register from its bytes in memory.
pub fn register(name: &str, bytes: &[u8]) -> Register {
    Register {
        name: name.to_owned(),
        size: Some(8 * bytes.len() as u32),
        value: RegisterValue(bytes.to_vec()),
        ..Register::default()
    }
}

fn is_zero(register: &Register) -> bool {
    register.value.0.iter().all(|byte| *byte == 0)
}

/// Reads the block at the fault; `None` if its version is not known, or its length does not match
/// the version.
pub fn of_fault(core: Core, version: u16, block: &[u8]) -> Option<Vec<Register>> {
    match core {
        Core::AArch64 => aarch64(version, block),
        Core::MProfile | Core::AProfile => aarch32(core, version, block),
    }
}

/// Reads the block of another CPU, whose version follows from its length. The kernel does not fill
/// in callee-saved registers there.
pub fn of_cpu(core: Core, block: &[u8]) -> Option<Vec<Register>> {
    let versions: &[u16] = match core {
        Core::AArch64 => &[2, 3, 1],
        Core::MProfile | Core::AProfile => &[3, 2, 1],
    };
    let mut found = versions
        .iter()
        .find_map(|version| of_fault(core, *version, block))?;
    let saved = |register: &Register| {
        let number = register.name.strip_prefix('X');
        let number = number.and_then(|number| number.parse::<u8>().ok());
        number.is_some_and(|number| (19..=28).contains(&number))
    };
    if found.iter().filter(|register| saved(register)).all(is_zero) {
        found.retain(|register| !saved(register));
    }
    Some(found)
}

fn aarch32(core: Core, version: u16, block: &[u8]) -> Option<Vec<Register>> {
    let words = match version {
        1 => CALLEE_SAVED,
        2 => AARCH32.len(),
        // Followed by whether the callee-saved registers are valid, and their offset in a thread.
        3 => AARCH32.len() + 2,
        _ => return None,
    };
    if block.len() != 4 * words {
        return None;
    }
    let mut fields = Fields::new(block, false);
    let mut out = Vec::new();
    for name in AARCH32.iter().take(words) {
        let name = match (core, *name) {
            (Core::AProfile, "xPSR") => "CPSR",
            (_, name) => name,
        };
        out.push(register(name, fields.bytes(4)?));
    }
    let saved = out.get(CALLEE_SAVED..).unwrap_or(&[]);
    // The kernel leaves zeros for registers that it did not save.
    let is_saved = match fields.u32() {
        Some(valid) if core == Core::MProfile => valid != 0,
        _ => !saved.iter().all(is_zero),
    };
    if !is_saved {
        out.truncate(CALLEE_SAVED);
    }
    Some(out)
}

/// The offset of the callee-saved registers in a thread of a Cortex-M, if the block contains it.
pub fn callee_saved(version: u16, block: &[u8]) -> Option<u64> {
    let mut fields = Fields::new(block.get(4 * AARCH32.len()..)?, false);
    let (valid, offset) = (fields.u32()?, fields.u32()?);
    (version == 3 && valid != 0).then_some(offset.into())
}

/// Reads X0 to X18, since version 3 X19 to X28, then X30, SPSR, ELR, and since version 2 X29 and
/// SP.
fn aarch64(version: u16, block: &[u8]) -> Option<Vec<Register>> {
    let (general, frame) = match version {
        1 => (19, false),
        2 => (19, true),
        3 => (29, true),
        _ => return None,
    };
    let mut names: Vec<String> = (0..general).map(|number| format!("X{number}")).collect();
    names.extend(["X30", "CPSR", "PC"].map(str::to_owned));
    if frame {
        names.extend(["X29", "SP"].map(str::to_owned));
    }
    if block.len() != 8 * names.len() {
        return None;
    }
    let mut fields = Fields::new(block, false);
    let mut out = Vec::new();
    for name in names {
        let bytes = fields.bytes(8)?;
        let bytes = if name == "CPSR" { &bytes[..4] } else { bytes };
        let read = register(&name, bytes);
        // 0 without CONFIG_FRAME_POINTER.
        if name != "X29" || !is_zero(&read) {
            out.push(read);
        }
    }
    Some(out)
}

/// Removes SP if the fault was at EL0: it is SP_EL1, or SP_EL0 with
/// CONFIG_ARM64_SAFE_EXCEPTION_STACK. Returns whether it was removed.
pub fn forget_user_stack(registers: &mut Vec<Register>) -> bool {
    let status = registers.iter().find(|register| register.name == "CPSR");
    let status = status.and_then(|register| register.value.as_u64());
    let count = registers.len();
    // Zephyr runs EL0 threads only in AArch64 (M[4:0] of SPSR_EL1, Arm ARM DDI 0487, C5.2.19).
    if status.is_some_and(|status| status & 0x1f == 0) {
        registers.retain(|register| register.name != "SP");
    }
    registers.len() < count
}

/// Whether a value is a possible CPSR of a Cortex-A or Cortex-R (Arm ARM DDI 0406, B1.3.1, Table
/// B1-1).
pub fn is_mode(status: u64) -> bool {
    matches!(
        status & 0x1f,
        0x10..=0x13 | 0x16 | 0x17 | 0x1a | 0x1b | 0x1f
    )
}
