//! Exceptions of AArch64: signals of programs, and the syndrome registers (DDI 0487, D24.2.40
//! ESR_EL1, D24.2.44 FAR_EL1).

use super::memory_map::what;
use super::{DataAddress, Fault, Halted, Note, Relation, StatusRegister, access, signal};
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::Location;

/// The registers of an exception level.
struct Level {
    number: u64,
    esr: &'static str,
    far: &'static str,
    elr: &'static str,
    spsr: &'static str,
    vbar: &'static str,
}

const LEVELS: [Level; 3] = [
    Level {
        number: 1,
        esr: "ESR_EL1",
        far: "FAR_EL1",
        elr: "ELR_EL1",
        spsr: "SPSR_EL1",
        vbar: "VBAR_EL1",
    },
    Level {
        number: 2,
        esr: "ESR_EL2",
        far: "FAR_EL2",
        elr: "ELR_EL2",
        spsr: "SPSR_EL2",
        vbar: "VBAR_EL2",
    },
    Level {
        number: 3,
        esr: "ESR_EL3",
        far: "FAR_EL3",
        elr: "ELR_EL3",
        spsr: "SPSR_EL3",
        vbar: "VBAR_EL3",
    },
];

/// The size of a vector table.
const VECTORS: u64 = 0x800;
/// The distance of its entries.
const VECTOR: u64 = 0x80;

/// The slots of synchronous exceptions and of SError in each group of four.
const SYNCHRONOUS: u64 = 0;
const SERROR: u64 = 3;

/// Reads the fault.
pub(super) fn fault(core: &Halted<'_>) -> Option<Fault> {
    if let Some(signal) = core.signal {
        return Some(signal::fault(core, signal, Isa::A64, |location| {
            register(core, location)
        }));
    }
    let cpsr = core.registers.value("cpsr");
    let current = cpsr.or_else(|| core.registers.value("CurrentEL"));
    let current = current.map_or(1, |state| state >> 2 & 3).max(1);
    let level = LEVELS.iter().find(|level| level.number == current)?;
    let esr = core.registers.value(level.esr)?;
    let syndrome = Syndrome(esr);
    let elr = core.registers.value(level.elr);
    // After a reset, ESR and ELR have no defined value; zero is the most common.
    if esr == 0 && elr.unwrap_or(0) == 0 {
        return None;
    }
    let vectors = core.registers.value(level.vbar);
    let pc = core.registers.pc();
    // The slots of interrupts leave ESR and FAR as they were, but change ELR.
    let slot = |vbar: u64| {
        let offset = pc?.wrapping_sub(vbar);
        (offset < VECTORS).then_some(offset >> 7 & 3)
    };
    let active = match vectors.and_then(slot) {
        Some(SYNCHRONOUS) => !syndrome.is_serror(),
        Some(SERROR) => syndrome.is_serror(),
        _ => false,
    };
    let far = core
        .registers
        .value(level.far)
        .filter(|_| syndrome.has_address());
    let at = far.map_or_else(String::new, |far| format!(" at {far:#x}"));
    let summary = format!(
        "last exception taken to EL{}: {}{at}",
        level.number,
        syndrome.words()
    );
    let mut fault = Fault::new(summary, active);
    if !active {
        fault.notes.push(Note::PerhapsOver {
            register: level.esr,
        });
    }
    fault.instruction = elr.map(|elr| {
        let is_a64 = core
            .registers
            .value(level.spsr)
            .is_none_or(|spsr| spsr >> 4 & 1 == 0);
        let thumb = core.registers.value(level.spsr).unwrap_or(0) >> 5 & 1 == 1;
        let isa = match (is_a64, thumb) {
            (true, _) => Isa::A64,
            (false, false) => Isa::A32,
            (false, true) => Isa::T32,
        };
        // Later it may be that of an interrupt.
        let relation = match active {
            true => syndrome.relation(),
            false => Relation::Interrupted,
        };
        core.instruction(elr, isa, relation)
    });
    // At the entry of a vector no register was changed yet.
    let at_entry = active && pc.is_some_and(|pc| pc % VECTOR == 0);
    let from = match (far, elr) {
        (Some(far), Some(elr)) if at_entry && syndrome.is_data() => {
            bases(core, elr, far, |location| register(core, location))
        }
        _ => Vec::new(),
    };
    fault.address = far
        .filter(|_| syndrome.is_data())
        .map(|address| DataAddress {
            address,
            what: what(core, address),
            from,
            computed: false,
        });
    for (name, meaning) in [
        (
            level.esr,
            format!("EC {:#04x}, ISS {:#x}", syndrome.class(), esr & 0x1FF_FFFF),
        ),
        (level.far, String::new()),
        (level.elr, String::new()),
        (level.spsr, String::new()),
    ] {
        let value = core.registers.value(name);
        let value = value.filter(|_| name != level.far || syndrome.has_address());
        fault.status.extend(value.map(|value| StatusRegister {
            name,
            value,
            bits: if value >> 32 == 0 && name == level.esr {
                32
            } else {
                64
            },
            meaning,
        }));
    }
    Some(fault)
}

/// A general register of the halted state.
fn register(core: &Halted<'_>, location: Location) -> Option<u64> {
    match location.index() {
        31 => core.registers.value("sp"),
        number => core.registers.value(&format!("x{number}")),
    }
}

/// The registers from which the instruction at `pc` computed an address.
fn bases(
    core: &Halted<'_>,
    pc: u64,
    address: u64,
    value: impl Fn(Location) -> Option<u64>,
) -> Vec<(String, u64)> {
    let accesses = access::of(core, pc, Isa::A64, &value);
    let Some(accesses) = accesses.filter(|accesses| accesses.touches(address)) else {
        return Vec::new();
    };
    let registers = accesses.registers.iter().filter_map(|number| {
        let value = value(Location::general(*number))?;
        Some((format!("x{number}"), value))
    });
    registers.collect()
}

/// An exception syndrome.
struct Syndrome(u64);

impl Syndrome {
    /// The exception class.
    fn class(&self) -> u64 {
        self.0 >> 26 & 0x3F
    }

    fn bit(&self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    fn is_serror(&self) -> bool {
        self.class() == 0x2F
    }

    /// A data abort or a watchpoint.
    fn is_data(&self) -> bool {
        matches!(self.class(), 0x24 | 0x25 | 0x34 | 0x35)
    }

    /// Whether FAR has an address: not if FnV says that it has none.
    fn has_address(&self) -> bool {
        match self.class() {
            0x20 | 0x21 | 0x24 | 0x25 => !self.bit(10) || self.0 & 0x3F != 0x10,
            0x22 => true,
            0x34 | 0x35 => !self.bit(10),
            _ => false,
        }
    }

    /// How ELR is related to the exception: it is the instruction, except after a call to a higher
    /// level.
    fn relation(&self) -> Relation {
        match self.class() {
            0x20..=0x22 => Relation::NotFetched,
            0x11..=0x13 | 0x15..=0x17 => Relation::After,
            0x2F | 0x32 | 0x33 => Relation::Interrupted,
            _ => Relation::Faulted,
        }
    }

    fn words(&self) -> String {
        let from = |lower: u64| match self.class() == lower {
            true => " from a lower exception level",
            false => "",
        };
        match self.class() {
            0x00 => "unknown reason, mostly an undefined instruction".to_owned(),
            0x01 => "WFI or WFE trapped".to_owned(),
            0x03..=0x06 | 0x08 | 0x0C => {
                "access to a System register of AArch32 trapped".to_owned()
            }
            0x07 => "access to SVE, Advanced SIMD or floating-point trapped".to_owned(),
            0x09 => "pointer authentication instruction trapped".to_owned(),
            0x0A => "LD64B, ST64B or another instruction trapped".to_owned(),
            0x0D => "branch target exception: the target has no BTI instruction".to_owned(),
            0x0E => "illegal execution state".to_owned(),
            0x11 | 0x15 => format!("SVC #{}", self.0 & 0xFFFF),
            0x12 | 0x16 => format!("HVC #{}", self.0 & 0xFFFF),
            0x13 | 0x17 => format!("SMC #{}", self.0 & 0xFFFF),
            0x14 | 0x18 => "MSR, MRS or System instruction trapped".to_owned(),
            0x19 => "access to SVE trapped".to_owned(),
            0x1A => "ERET trapped".to_owned(),
            0x1C => "pointer authentication failure".to_owned(),
            0x1D => "access to SME trapped".to_owned(),
            0x1E => "granule protection check".to_owned(),
            0x20 | 0x21 => format!(
                "instruction abort{}: {}",
                from(0x20),
                fault_status(self.0 & 0x3F)
            ),
            0x22 => "PC alignment fault".to_owned(),
            0x24 | 0x25 => {
                let what = match (self.bit(8), self.bit(6)) {
                    (true, _) => "cache maintenance",
                    (_, true) => "write",
                    (_, false) => "read",
                };
                format!(
                    "data abort{}: {} on {what}",
                    from(0x24),
                    fault_status(self.0 & 0x3F)
                )
            }
            0x26 => "SP alignment fault".to_owned(),
            0x27 => "memory copy or set instruction".to_owned(),
            0x28 | 0x2C => format!("floating-point exception{}", self.floating_point()),
            0x2D => "Guarded Control Stack exception".to_owned(),
            0x2F => "SError interrupt".to_owned(),
            0x30 | 0x31 => "hardware breakpoint".to_owned(),
            0x32 | 0x33 => "software step".to_owned(),
            0x34 | 0x35 => "watchpoint".to_owned(),
            0x38 => "BKPT instruction".to_owned(),
            0x3C => format!("BRK #{:#x}", self.0 & 0xFFFF),
            class => format!("reserved exception class {class:#04x}"),
        }
    }

    /// The floating-point exceptions, if the syndrome has them (TFV).
    fn floating_point(&self) -> String {
        if !self.bit(23) {
            return String::new();
        }
        let names = [
            (0, "invalid operation"),
            (1, "division by zero"),
            (2, "overflow"),
            (3, "underflow"),
            (4, "inexact"),
            (7, "input denormal"),
        ];
        let set = names.into_iter().filter(|(bit, _)| self.bit(*bit));
        let set: Vec<&str> = set.map(|(_, name)| name).collect();
        format!(": {}", set.join(", "))
    }
}

/// A fault status code of the long-descriptor format (DDI 0487, ESR_ELx, ISS of a data abort).
pub(super) fn fault_status(code: u64) -> String {
    let level = code & 3;
    match code {
        0x00..=0x03 => format!("address size fault, level {level}"),
        0x04..=0x07 => format!("translation fault, level {level}"),
        0x08..=0x0B => format!("access flag fault, level {level}"),
        0x0C..=0x0F => format!("permission fault, level {level}"),
        0x10 => "synchronous external abort".to_owned(),
        0x11 => "tag check fault".to_owned(),
        0x13 => "synchronous external abort on a translation table walk, level -1".to_owned(),
        0x14..=0x17 => {
            format!("synchronous external abort on a translation table walk, level {level}")
        }
        0x18 => "parity or ECC error".to_owned(),
        0x1B => "parity or ECC error on a translation table walk, level -1".to_owned(),
        0x1C..=0x1F => format!("parity or ECC error on a translation table walk, level {level}"),
        0x21 => "alignment fault".to_owned(),
        0x23 => "granule protection fault on a translation table walk, level -1".to_owned(),
        0x24..=0x27 => {
            format!("granule protection fault on a translation table walk, level {level}")
        }
        0x28 => "granule protection fault".to_owned(),
        0x29 => "address size fault, level -1".to_owned(),
        0x2B => "translation fault, level -1".to_owned(),
        0x30 => "TLB conflict abort".to_owned(),
        0x31 => "unsupported atomic hardware update".to_owned(),
        0x34 => "implementation defined fault (lockdown)".to_owned(),
        0x35 => "implementation defined fault (exclusive or atomic access)".to_owned(),
        code => format!("reserved fault status {code:#04x}"),
    }
}
