//! Faults of M-profile cores, from the fault registers in the system control space (DDI 0403,
//! B3.2.15 to B3.2.19; DDI 0553, D1.2).

use super::m_frame::Frame;
use super::memory_map::what;
use super::{DataAddress, Fault, Halted, Interrupted, Note, Relation, StatusRegister, access};
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::Location;

/// A field of one bit: number, name, and what it says.
type Bit = (u32, &'static str, &'static str);

/// Configurable Fault Status Register.
const CFSR: [Bit; 19] = [
    (
        0,
        "IACCVIOL",
        "the MPU or the memory map forbids execution there",
    ),
    (1, "DACCVIOL", "the MPU forbids the data access"),
    (
        3,
        "MUNSTKERR",
        "the MPU forbids unstacking at an exception return",
    ),
    (
        4,
        "MSTKERR",
        "the MPU forbids stacking at an exception entry",
    ),
    (5, "MLSPERR", "the MPU forbids saving floating-point state"),
    (8, "IBUSERR", "bus error of an instruction fetch"),
    (9, "PRECISERR", "bus error of a data access"),
    (10, "IMPRECISERR", "bus error of an earlier data access"),
    (
        11,
        "UNSTKERR",
        "bus error of unstacking at an exception return",
    ),
    (12, "STKERR", "bus error of stacking at an exception entry"),
    (13, "LSPERR", "bus error of saving floating-point state"),
    (16, "UNDEFINSTR", "undefined instruction"),
    (
        17,
        "INVSTATE",
        "execution with the T bit clear (a branch to an even address) or an invalid EPSR",
    ),
    (
        18,
        "INVPC",
        "invalid EXC_RETURN or exception frame at an exception return",
    ),
    (
        19,
        "NOCP",
        "coprocessor or floating-point instruction without access",
    ),
    (
        20,
        "STKOF",
        "stack overflow: the stack pointer went below its limit",
    ),
    (24, "UNALIGNED", "unaligned data access"),
    (25, "DIVBYZERO", "integer division by zero"),
    (7, "MMARVALID", ""),
];
/// Bits of CFSR that say that a fault address register is valid.
const MMARVALID: u32 = 1 << 7;
const BFARVALID: u32 = 1 << 15;
/// Bits of CFSR of the three faults.
const MEM_MANAGE: u32 = 0xFF;
const BUS_FAULT: u32 = 0xFF00;
const USAGE_FAULT: u32 = 0xFFFF_0000;
/// The exception frame may not have been written: MSTKERR, STKERR, STKOF.
const NOT_STACKED: u32 = 1 << 4 | 1 << 12 | 1 << 20;
/// Faults whose return address is the target of a branch: IACCVIOL, IBUSERR, INVSTATE.
const AT_TARGET: u32 = 1 << 0 | 1 << 8 | 1 << 17;
/// IMPRECISERR.
const LATE: u32 = 1 << 10;
/// Faults whose return address is their instruction: DACCVIOL, PRECISERR, UNDEFINSTR, NOCP,
/// UNALIGNED, DIVBYZERO.
const AT_INSTRUCTION: u32 = 1 << 1 | 1 << 9 | 1 << 16 | 1 << 19 | 1 << 24 | 1 << 25;

/// HardFault Status Register.
const HFSR: [Bit; 3] = [
    (1, "VECTTBL", "a vector could not be read"),
    (30, "FORCED", "another fault was escalated"),
    (
        31,
        "DEBUGEVT",
        "a debug event (such as BKPT) without a debugger",
    ),
];
/// Debug Fault Status Register.
const DFSR: [Bit; 6] = [
    (0, "HALTED", "halted by a debugger or a step"),
    (1, "BKPT", "breakpoint"),
    (2, "DWTTRAP", "watchpoint"),
    (3, "VCATCH", "vector catch"),
    (4, "EXTERNAL", "external debug request"),
    (5, "PMU", "performance counter overflow"),
];
/// Secure Fault Status Register.
const SFSR: [Bit; 7] = [
    (
        0,
        "INVEP",
        "non-secure code entered secure code not at an SG instruction",
    ),
    (
        1,
        "INVIS",
        "invalid integrity signature in an exception frame",
    ),
    (
        2,
        "INVER",
        "invalid exception return between security states",
    ),
    (3, "AUVIOL", "non-secure access to secure memory"),
    (
        4,
        "INVTRAN",
        "branch from secure to non-secure code without BXNS or BLXNS",
    ),
    (5, "LSPERR", "saving floating-point state violates security"),
    (7, "LSERR", "error of lazy floating-point state"),
];
const SFARVALID: u32 = 1 << 6;

/// The address from which a core in lockup seems to execute (DDI 0403, B1.5.15; DDI 0553, B3.33).
const LOCKUP: [u64; 2] = [0xEFFF_FFFE, 0xFFFF_FFFE];

/// Reads the fault.
pub(super) fn fault(core: &Halted<'_>) -> Option<Fault> {
    let status = Status::read(core);
    let ipsr = core.registers.value("xpsr").map(|xpsr| xpsr as u32 & 0x1FF);
    let in_fault = ipsr.is_some_and(|ipsr| (2..=7).contains(&ipsr) || ipsr == 12);
    let recorded = status.cfsr.unwrap_or(0) & !(MMARVALID | BFARVALID) != 0
        || status.hfsr.unwrap_or(0) != 0
        || status.sfsr.unwrap_or(0) & !SFARVALID != 0;
    let is_locked_up = core.registers.pc().is_some_and(|pc| LOCKUP.contains(&pc));
    if !in_fault && !recorded && !is_locked_up {
        return None;
    }
    let mut fault = Fault::new(String::new(), in_fault || is_locked_up);
    // Registers keep bits of other faults until software clears them.
    let current = match ipsr.filter(|_| in_fault && !is_locked_up) {
        Some(ipsr) => status.of(ipsr),
        None => status,
    };
    let (cause, groups) = (after(&current.cause()), current.groups().join(" and "));
    fault.summary = match ipsr.filter(|_| in_fault).and_then(exception) {
        _ if is_locked_up => format!("lockup: a fault in a fault handler{cause}"),
        Some("HardFault") if current.is_forced() && current.cfsr.is_none() && groups.is_empty() => {
            format!("HardFault, escalated{cause}")
        }
        Some("HardFault") if current.is_forced() && groups.is_empty() => format!(
            "HardFault, escalated: an exception such as SVC or BKPT could not be taken, or \
             software cleared the cause{cause}"
        ),
        Some("HardFault") if current.is_forced() => {
            format!("HardFault, escalated from {groups}{cause}")
        }
        Some(name) => format!("{name}{cause}"),
        None => {
            let groups = if groups.is_empty() {
                "HardFault"
            } else {
                &groups
            };
            let state = match ipsr {
                Some(_) => "not in a fault handler; ",
                None => "",
            };
            format!("{state}recorded: {groups}{cause}")
        }
    };
    if fault.active {
        frame(core, &current, &mut fault);
    } else {
        fault.notes.push(Note::Kept);
        if let Some(address) = status.address() {
            fault.address = Some(DataAddress {
                address,
                what: what(core, address),
                from: Vec::new(),
                computed: false,
            });
        }
    }
    if status.cfsr.is_none() {
        fault.notes.push(Note::NoFaultRegisters);
    }
    fault.status = status.registers();
    Some(fault)
}

/// Adds what the exception frame tells.
fn frame(core: &Halted<'_>, status: &Status, fault: &mut Fault) {
    let cfsr = status.cfsr.unwrap_or(0);
    let reported = status.address();
    let mut from = Vec::new();
    let mut computed = None;
    match Frame::find(core, cfsr & AT_TARGET != 0) {
        Some(_) if cfsr & NOT_STACKED != 0 => fault.notes.push(Note::NotStacked),
        None => fault.notes.push(Note::NoFrame),
        Some(frame) => {
            let has = |bits: u32| cfsr & bits != 0;
            // Of several faults, only one is that of the return address.
            let relation = match (has(AT_TARGET), has(AT_INSTRUCTION), has(LATE)) {
                (true, false, false) => Relation::NotFetched,
                (false, true, false) => Relation::Faulted,
                (false, false, true) => Relation::After,
                _ => Relation::Interrupted,
            };
            let pc = u64::from(frame.pc());
            fault.instruction = Some(core.instruction(pc, Isa::T32, relation));
            fault.interrupted = interrupted(&frame);
            let value = |location: Location| match location.index() {
                number @ 0..=3 => Some(u64::from(frame.words[number])),
                12 => Some(u64::from(frame.words[4])),
                13 => Some(u64::from(frame.stack_pointer)),
                14 => Some(u64::from(frame.words[5])),
                _ => None,
            };
            // Without status registers, the instruction that was interrupted may be any.
            if relation == Relation::Faulted
                && let Some(accesses) = access::of(core, pc, Isa::T32, value)
            {
                computed = accesses.ranges.first().map(|(address, _)| *address);
                if reported.is_none_or(|address| accesses.touches(address)) {
                    from = accesses
                        .registers
                        .iter()
                        .filter_map(|number| {
                            let value = value(Location::general(*number))?;
                            Some((NAMES[usize::from(*number)].to_owned(), value))
                        })
                        .collect();
                }
            }
            if frame.searched {
                fault.notes.push(Note::ExcReturnOnStack(frame.exc_return));
            }
            fault.notes.push(Note::ExcReturn {
                value: frame.exc_return,
                mode: frame.mode(),
                stack: frame.stack(),
            });
        }
    }
    // UNALIGNED has no address register.
    let unaligned = cfsr >> 24 & 1 == 1 && cfsr & (MEM_MANAGE | BUS_FAULT) == 0;
    let address = reported.or(computed.filter(|_| unaligned));
    fault.address = address.map(|address| DataAddress {
        address,
        what: what(core, address),
        from,
        computed: reported.is_none(),
    });
}

const NAMES: [&str; 15] = [
    "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "sp", "lr",
];

fn interrupted(frame: &Frame) -> Vec<Interrupted> {
    let names = ["r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr"];
    let stacked = names.into_iter().zip(frame.words);
    let mut registers: Vec<Interrupted> = stacked
        .map(|(name, value)| Interrupted {
            name,
            value: u64::from(value),
        })
        .collect();
    registers.push(Interrupted {
        name: "sp",
        value: u64::from(frame.stack_pointer),
    });
    registers
}

/// Puts a cause after a name.
fn after(cause: &str) -> String {
    match cause {
        "" => String::new(),
        cause => format!(": {cause}"),
    }
}

/// The name of a fault by its exception number.
fn exception(number: u32) -> Option<&'static str> {
    Some(match number {
        2 => "NMI",
        3 => "HardFault",
        4 => "MemManage fault",
        5 => "BusFault",
        6 => "UsageFault",
        7 => "SecureFault",
        12 => "DebugMonitor exception",
        _ => return None,
    })
}

/// The fault registers.
#[derive(Clone, Copy)]
struct Status {
    cfsr: Option<u32>,
    hfsr: Option<u32>,
    dfsr: Option<u32>,
    mmfar: Option<u32>,
    bfar: Option<u32>,
    afsr: Option<u32>,
    sfsr: Option<u32>,
    sfar: Option<u32>,
}

impl Status {
    /// Reads them by name, or from the system control space.
    fn read(core: &Halted<'_>) -> Self {
        let register = |names: &[&str], address: u64| {
            let named = core.register(names);
            named.map_or_else(|| core.word(address), |value| u32::try_from(value).ok())
        };
        let parts = || {
            let mem_manage = core.register(&["mmfsr"])? as u32 & 0xFF;
            let bus_fault = core.register(&["bfsr"])? as u32 & 0xFF;
            let usage_fault = core.register(&["ufsr"])? as u32 & 0xFFFF;
            Some(usage_fault << 16 | bus_fault << 8 | mem_manage)
        };
        Self {
            cfsr: register(&["cfsr"], 0xE000_ED28).or_else(parts),
            hfsr: register(&["hfsr"], 0xE000_ED2C),
            dfsr: register(&["dfsr"], 0xE000_ED30),
            mmfar: register(&["mmfar"], 0xE000_ED34),
            bfar: register(&["bfar"], 0xE000_ED38),
            afsr: register(&["afsr"], 0xE000_ED3C).filter(|value| *value != 0),
            sfsr: register(&["sfsr"], 0xE000_EDE4).filter(|value| *value != 0),
            sfar: register(&["sfar"], 0xE000_EDE8),
        }
    }

    /// Those of an exception: its own bits, or all of an escalated fault.
    fn of(mut self, exception: u32) -> Self {
        let mask = match exception {
            3 if self.is_forced() => u32::MAX,
            4 => MEM_MANAGE,
            5 => BUS_FAULT,
            6 => USAGE_FAULT,
            _ => 0,
        };
        self.cfsr = self.cfsr.map(|cfsr| cfsr & mask);
        if exception != 3 {
            self.hfsr = None;
        }
        if exception != 7 && mask != u32::MAX {
            self.sfsr = None;
        }
        self
    }

    fn is_forced(&self) -> bool {
        self.hfsr.unwrap_or(0) >> 30 & 1 == 1
    }

    /// The faults that CFSR and SFSR record.
    fn groups(&self) -> Vec<&'static str> {
        let cfsr = self.cfsr.unwrap_or(0) & !(MMARVALID | BFARVALID);
        let sfsr = self.sfsr.unwrap_or(0) & !SFARVALID;
        let all = [
            (cfsr & MEM_MANAGE, "MemManage fault"),
            (cfsr & BUS_FAULT, "BusFault"),
            (cfsr & USAGE_FAULT, "UsageFault"),
            (sfsr, "SecureFault"),
        ];
        let recorded = all.into_iter().filter(|(bits, _)| *bits != 0);
        recorded.map(|(_, name)| name).collect()
    }

    /// The causes in words, with the address.
    fn cause(&self) -> String {
        let mut words: Vec<&str> = said(&CFSR, self.cfsr).collect();
        words.extend(said(&SFSR, self.sfsr));
        // FORCED says only that the cause is in the others.
        words.extend(said(&HFSR, self.hfsr.map(|hfsr| hfsr & !(1 << 30))));
        let mut text = words.join("; ");
        if let Some(address) = self.address() {
            text.push_str(&format!(" at {address:#x}"));
        }
        text
    }

    /// The address that a valid fault address register has.
    fn address(&self) -> Option<u64> {
        let cfsr = self.cfsr.unwrap_or(0);
        let sfsr = self.sfsr.unwrap_or(0);
        let address = match () {
            () if cfsr & MMARVALID != 0 => self.mmfar,
            () if cfsr & BFARVALID != 0 => self.bfar,
            () if sfsr & SFARVALID != 0 => self.sfar,
            () => None,
        };
        address.map(u64::from)
    }

    /// The known registers with their fields; an address register only if it is valid.
    fn registers(&self) -> Vec<StatusRegister> {
        let cfsr = self.cfsr.unwrap_or(0);
        let sfsr = self.sfsr.unwrap_or(0);
        let fields = [
            (
                "CFSR",
                self.cfsr,
                names(&CFSR, self.cfsr, &[(15, "BFARVALID")]),
            ),
            ("HFSR", self.hfsr, names(&HFSR, self.hfsr, &[])),
            ("DFSR", self.dfsr, names(&DFSR, self.dfsr, &[])),
            (
                "MMFAR",
                self.mmfar.filter(|_| cfsr & MMARVALID != 0),
                String::new(),
            ),
            (
                "BFAR",
                self.bfar.filter(|_| cfsr & BFARVALID != 0),
                String::new(),
            ),
            ("AFSR", self.afsr, String::new()),
            (
                "SFSR",
                self.sfsr,
                names(&SFSR, self.sfsr, &[(6, "SFARVALID")]),
            ),
            (
                "SFAR",
                self.sfar.filter(|_| sfsr & SFARVALID != 0),
                String::new(),
            ),
        ];
        let known = fields.into_iter().filter_map(|(name, value, meaning)| {
            Some(StatusRegister {
                name,
                value: u64::from(value?),
                bits: 32,
                meaning,
            })
        });
        known.collect()
    }
}

/// What the set bits of a register say.
fn said(bits: &'static [Bit], value: Option<u32>) -> impl Iterator<Item = &'static str> {
    let value = value.unwrap_or(0);
    let set = bits.iter().filter(move |bit| value >> bit.0 & 1 == 1);
    set.map(|bit| bit.2).filter(|said| !said.is_empty())
}

/// The names of the set bits of a register, the lowest first.
fn names(bits: &'static [Bit], value: Option<u32>, further: &[(u32, &'static str)]) -> String {
    let value = value.unwrap_or(0);
    let bits = bits.iter().map(|bit| (bit.0, bit.1));
    let mut set: Vec<_> = bits.chain(further.iter().copied()).collect();
    set.retain(|bit| value >> bit.0 & 1 == 1);
    set.sort_unstable();
    let names: Vec<&str> = set.into_iter().map(|bit| bit.1).collect();
    names.join(", ")
}
