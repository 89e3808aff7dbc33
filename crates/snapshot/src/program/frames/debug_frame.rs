//! Writes `.debug_frame`, call frame information (DWARF version 4, 6.4).

use super::effects::{FP, LR, SP};
use super::exception::{PC, Saved};
use super::state::{FIRST, Rule, State};
use gimli::write::{
    Address, CallFrameInstruction as Instruction, CommonInformationEntry, EndianVec, Expression,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{AArch64, Encoding, Format, LittleEndian, Register, constants};

/// The number of entries that are converted and written at once: the forms of [`gimli::write`] take
/// several times the memory of an [`Entry`].
const AT_ONCE: usize = 1 << 12;

/// The common information entries.
#[derive(Clone, Copy, Debug)]
enum Common {
    /// That of functions.
    Plain,
    /// That of functions whose caller is on another stack.
    Switches,
    /// That of exceptions.
    Exceptions,
}

/// The entry of a function.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    common: Common,
    start: u64,
    /// The number of instructions.
    instructions: usize,
    /// What changes, and from which instruction on.
    changes: Vec<(u32, Change)>,
}

/// A change of the rules for finding the caller.
#[derive(Clone, Copy, Debug)]
enum Change {
    CallerStack(u8, i32),
    /// The rule of a register.
    Rule(u8, Rule),
    /// The rule that a register has in the common entry.
    Restore(u8),
    /// The program counter's place.
    Pc(i32),
}

impl Change {
    fn instruction(self, signed: bool) -> Instruction {
        match self {
            Self::CallerStack(base, offset) => Instruction::Cfa(register(base), offset),
            Self::Rule(number, now) => rule(number, now, signed),
            Self::Restore(number) => Instruction::Restore(register(number)),
            Self::Pc(at) => Instruction::Offset(AArch64::PC, at),
        }
    }
}

/// The rules for finding the caller that apply from a certain instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    caller_stack: (u8, i32),
    rules: [Rule; (LR - FIRST) as usize + 1],
}

impl Row {
    /// The row of code without a caller.
    const NONE: Self = Self {
        caller_stack: (SP, 0),
        rules: [Rule::Unknown; (LR - FIRST) as usize + 1],
    };

    /// The row of the common entry of functions.
    const INITIAL: Self = Self {
        caller_stack: (SP, 0),
        rules: [Rule::Same; (LR - FIRST) as usize + 1],
    };

    fn of(state: Option<&State>) -> Self {
        let known = state.and_then(|state| Some((state, state.caller_stack()?)));
        let Some((state, caller_stack)) = known else {
            return Self::NONE;
        };
        let mut rules = Self::NONE.rules;
        for (rule, register) in rules.iter_mut().zip(FIRST..) {
            *rule = match state.rule(register) {
                Rule::At(at) if at >= 0 || at % 8 != 0 => Rule::Unknown,
                rule => rule,
            };
        }
        match rules.last() {
            Some(Rule::Unknown) => Self::NONE,
            _ => Self {
                caller_stack,
                rules,
            },
        }
    }
}

/// Returns the common entry of code whose caller's pc is in `return_address`. `signal` tells that the
/// caller's frame may be at a lower address, and that the caller was interrupted.
fn common(
    return_address: Register,
    signal: bool,
    initial: impl IntoIterator<Item = Instruction>,
) -> CommonInformationEntry {
    let encoding = Encoding {
        format: Format::Dwarf32,
        version: 1,
        address_size: 8,
    };
    let mut entry = CommonInformationEntry::new(encoding, 4, -8, return_address);
    entry.signal_trampoline = signal;
    entry.add_instruction(Instruction::Cfa(AArch64::SP, 0));
    // x0 to x18 are not preserved (AAPCS64 6.1.1).
    let lost = (0..FIRST).map(|number| Instruction::Undefined(register(number)));
    lost.chain(initial)
        .for_each(|instruction| entry.add_instruction(instruction));
    entry
}

/// Returns DWARF's register for one of x0 to x30 and SP.
fn register(number: u8) -> Register {
    Register(number.into())
}

impl Entry {
    /// Returns the entry of a function. `switches` tells whether its caller is on another stack.
    pub(super) fn of_function(start: u64, states: &[Option<State>], switches: bool) -> Self {
        let mut changes = Vec::new();
        let mut before = Row::INITIAL;
        for (at, state) in states.iter().enumerate() {
            let row = Row::of(state.as_ref());
            if row != before {
                change(&before, &row, |change| changes.push((at as u32, change)));
                before = row;
            }
        }
        changes.shrink_to_fit();
        Self {
            common: if switches {
                Common::Switches
            } else {
                Common::Plain
            },
            start,
            instructions: states.len(),
            changes,
        }
    }

    /// Returns the entry of code whose caller is not known.
    pub(super) fn unknown(start: u64, instructions: usize) -> Self {
        Self {
            common: Common::Plain,
            start,
            instructions,
            changes: vec![(0, Change::Rule(LR, Rule::Unknown))],
        }
    }

    /// Returns the entry of code that takes exceptions.
    pub(super) fn of_exception(start: u64, instructions: usize, saved: Saved) -> Self {
        let Saved { from, record } = saved;
        let saved = (0..=SP).map(|number| {
            let place = 8 * i32::from(number);
            Change::Rule(number, Rule::At(place - record - 16))
        });
        // The address after the frame record, to which x29 points.
        let changes = std::iter::once(Change::CallerStack(FP, 16))
            .chain(saved)
            .chain([Change::Pc(PC - record - 16)]);
        Self {
            common: Common::Exceptions,
            start,
            instructions,
            changes: changes.map(|change| (from as u32, change)).collect(),
        }
    }
}

/// Returns the section with these entries. `signed` tells whether return addresses in memory and registers
/// may have an authentication code.
pub(super) fn section(entries: &[Entry], signed: bool) -> Vec<u8> {
    let mut section = gimli::write::DebugFrame::from(EndianVec::new(LittleEndian));
    let preserved = || (FIRST..=LR).map(|number| rule(number, Rule::Same, signed));
    let plain = common(AArch64::X30, false, preserved());
    let switches = common(AArch64::X30, true, preserved());
    let pc = [Instruction::Undefined(AArch64::PC)];
    let exceptions = common(AArch64::PC, true, pc);
    for entries in entries.chunks(AT_ONCE) {
        let mut table = FrameTable::default();
        let [plain, switches, exceptions] =
            [&plain, &switches, &exceptions].map(|common| table.add_cie(common.clone()));
        for entry in entries {
            let common = match entry.common {
                Common::Plain => plain,
                Common::Switches => switches,
                Common::Exceptions => exceptions,
            };
            let size = 4 * entry.instructions as u32;
            let mut out = FrameDescriptionEntry::new(Address::Constant(entry.start), size);
            for &(at, change) in &entry.changes {
                // The return address of code that takes exceptions is not that in x30.
                let signed = signed && !matches!(entry.common, Common::Exceptions);
                out.add_instruction(4 * at, change.instruction(signed));
            }
            table.add_fde(common, out);
        }
        let written = table.write_debug_frame(&mut section);
        written.expect("all addresses are constants, and all offsets multiples of eight");
    }
    section.0.into_vec()
}

/// Passes on what changes from a row to the next one.
fn change(before: &Row, row: &Row, mut add: impl FnMut(Change)) {
    if row.caller_stack != before.caller_stack {
        let (base, offset) = row.caller_stack;
        add(Change::CallerStack(base, offset));
    }
    for ((now, before), number) in row.rules.iter().zip(&before.rules).zip(FIRST..) {
        if now != before {
            add(match now {
                Rule::Same => Change::Restore(number),
                &now => Change::Rule(number, now),
            });
        }
    }
}

/// Returns the location of the caller's value of a register. A return address of the kernel has its
/// upper 16 bits set, some of which an authentication code may replace (Arm ARM DDI 0487, D8.10).
fn rule(number: u8, rule: Rule, signed: bool) -> Instruction {
    let register = register(number);
    if signed && number == LR && rule != Rule::Unknown {
        let mut value = Expression::new();
        match rule {
            Rule::At(at) => {
                value.op_consts(at.into());
                value.op(constants::DW_OP_plus);
                value.op_deref();
            }
            // The address of the caller's frame, which is on DWARF's stack, is not used.
            _ => value.op_breg(register, 0),
        }
        value.op_constu(0xffff << 48);
        value.op(constants::DW_OP_or);
        return Instruction::ValExpression(register, value);
    }
    match rule {
        Rule::Same => Instruction::SameValue(register),
        Rule::At(at) => Instruction::Offset(register, at),
        Rule::Unknown => Instruction::Undefined(register),
    }
}
