//! Aborts of AArch32: signals of programs, and the fault status registers (DDI 0406, B3.13 and
//! B5.5).

use super::a64::fault_status;
use super::memory_map::what;
use super::{DataAddress, Fault, Halted, Note, Relation, StatusRegister, signal};
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::Location;

/// Modes of CPSR.
const ABORT: u64 = 0x17;
const UNDEFINED: u64 = 0x1B;
/// Offsets in the vector table.
const UNDEFINED_VECTOR: u64 = 0x4;
const PREFETCH_VECTOR: u64 = 0xC;
const DATA_VECTOR: u64 = 0x10;

/// Reads the fault.
pub(super) fn fault(core: &Halted<'_>) -> Option<Fault> {
    let cpsr = core.registers.value("cpsr");
    let thumb = |status: u64| match status >> 5 & 1 {
        0 => Isa::A32,
        _ => Isa::T32,
    };
    if let Some(signal) = core.signal {
        let isa = cpsr.map_or(Isa::A32, thumb);
        return Some(signal::fault(core, signal, isa, |location| {
            register(core, location)
        }));
    }
    let dfsr = core.register(&["DFSR", "CP15_DFSR"]);
    let ifsr = core.register(&["IFSR", "CP15_IFSR"]);
    let dfar = core.register(&["DFAR", "CP15_DFAR"]);
    let ifar = core.register(&["IFAR", "CP15_IFAR"]);
    let mode = cpsr.map(|cpsr| cpsr & 0x1F);
    let is_recorded = |status: Option<u64>, address: Option<u64>| {
        status.is_some_and(|status| status != 0 || address.unwrap_or(0) != 0)
    };
    let data = is_recorded(dfsr, dfar);
    let instruction = is_recorded(ifsr, ifar);
    let active = matches!(mode, Some(ABORT | UNDEFINED));
    if !data && !instruction && !active {
        return None;
    }
    // Only at a vector is the link register still that of the exception.
    let vector = core.registers.pc().map(|pc| pc & 0x1F).filter(|_| active);
    let base = core.register(&["VBAR"]).unwrap_or(0);
    let vector = vector.filter(|offset| {
        let pc = core.registers.pc().unwrap_or(0);
        pc - offset == base || pc - offset == 0xFFFF_0000
    });
    let is_data = vector != Some(PREFETCH_VECTOR) && mode != Some(UNDEFINED);
    let is_fetch = vector != Some(DATA_VECTOR) && mode != Some(UNDEFINED);
    let mut causes = Vec::new();
    if data && is_data {
        let status = dfsr.unwrap_or(0);
        let access = if status >> 11 & 1 == 1 {
            "write"
        } else {
            "read"
        };
        let asynchronous = is_asynchronous(status);
        let at = dfar.filter(|_| !asynchronous);
        let at = at.map_or_else(String::new, |address| format!(" at {address:#x}"));
        causes.push(format!("data abort: {} on {access}{at}", words(status)));
    }
    if instruction && is_fetch {
        let at = ifar.map_or_else(String::new, |address| format!(" at {address:#x}"));
        causes.push(format!("prefetch abort: {}{at}", words(ifsr.unwrap_or(0))));
    }
    if mode == Some(UNDEFINED) {
        causes.push("undefined instruction".to_owned());
    }
    let causes = match causes.is_empty() {
        true => "the fault status registers say nothing".to_owned(),
        false => causes.join("; "),
    };
    let summary = match mode {
        Some(ABORT) => format!("in Abort mode; {causes}"),
        Some(UNDEFINED) => format!("in Undefined mode; {causes}"),
        _ => format!("not in Abort mode; recorded: {causes}"),
    };
    let mut fault = Fault::new(summary, active);
    if is_data && data && !is_asynchronous(dfsr.unwrap_or(0)) {
        fault.address = dfar.map(|address| DataAddress {
            address,
            what: what(core, address),
            from: Vec::new(),
            computed: false,
        });
    }
    let spsr = core.register(&["SPSR", "SPSR_abt"]);
    let link = core.registers.value("lr");
    if let (Some(offset), Some(link), Some(spsr)) = (vector, link, spsr) {
        let isa = thumb(spsr);
        let (back, relation) = match (offset, isa) {
            (DATA_VECTOR, _) => (8, Relation::Faulted),
            (PREFETCH_VECTOR, _) => (4, Relation::NotFetched),
            (UNDEFINED_VECTOR, Isa::T32) => (2, Relation::Faulted),
            (UNDEFINED_VECTOR, _) => (4, Relation::Faulted),
            _ => (0, Relation::Interrupted),
        };
        fault.instruction = Some(core.instruction(link.wrapping_sub(back), isa, relation));
    } else if active {
        fault.notes.push(Note::LinkRegisterMayHaveChanged);
    } else {
        fault.notes.push(Note::Kept);
    }
    let registers = [
        ("DFSR", dfsr),
        ("DFAR", dfar),
        ("IFSR", ifsr),
        ("IFAR", ifar),
    ];
    let known = registers.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some(StatusRegister {
            name,
            value,
            bits: 32,
            meaning: if name.ends_with("SR") {
                words(value)
            } else {
                String::new()
            },
        })
    });
    fault.status = known.collect();
    Some(fault)
}

fn register(core: &Halted<'_>, location: Location) -> Option<u64> {
    match location.index() {
        13 => core.registers.value("sp"),
        14 => core.registers.value("lr"),
        number => core.registers.value(&format!("r{number}")),
    }
}

/// Bit 9 (LPAE): the status has the long-descriptor format.
fn is_long(status: u64) -> bool {
    status >> 9 & 1 == 1
}

/// FS, bits 10 and 3 to 0 of the short-descriptor format.
fn short(status: u64) -> u64 {
    status >> 6 & 0x10 | status & 0xF
}

fn is_asynchronous(status: u64) -> bool {
    match is_long(status) {
        true => matches!(status & 0x3F, 0x11 | 0x19),
        false => matches!(short(status), 0x16 | 0x18),
    }
}

/// A fault status in words (DDI 0406, tables B3-23, B3-24 and B5-5).
fn words(status: u64) -> String {
    if is_long(status) {
        return match status & 0x3F {
            0x11 => "asynchronous external abort".to_owned(),
            0x19 => "asynchronous parity error".to_owned(),
            0x22 => "debug event".to_owned(),
            code => fault_status(code),
        };
    }
    let text = match short(status) {
        0x00 => "background fault (no MPU region), or none",
        0x01 => "alignment fault",
        0x02 => "debug event",
        0x03 => "access flag fault, level 1",
        0x04 => "instruction cache maintenance fault",
        0x05 => "translation fault, level 1",
        0x06 => "access flag fault, level 2",
        0x07 => "translation fault, level 2",
        0x08 => "synchronous external abort",
        0x09 => "domain fault, level 1",
        0x0B => "domain fault, level 2",
        0x0C => "synchronous external abort on a translation table walk, level 1",
        0x0D => "permission fault, level 1",
        0x0E => "synchronous external abort on a translation table walk, level 2",
        0x0F => "permission fault, level 2",
        0x10 => "TLB conflict abort",
        0x14 => "implementation defined fault (lockdown)",
        0x16 => "asynchronous external abort",
        0x18 => "asynchronous parity error",
        0x19 => "synchronous parity error",
        0x1A => "implementation defined fault (coprocessor)",
        0x1C => "synchronous parity error on a translation table walk, level 1",
        0x1E => "synchronous parity error on a translation table walk, level 2",
        code => return format!("reserved fault status {code:#04x}"),
    };
    text.to_owned()
}
