//! Writes `.debug_frame`, call frame information (DWARF version 4, 6.4).

use super::effects::{FP, LR, SP};
use super::exception::{PC, Saved};
use super::state::{FIRST, Rule, State};
use gimli::write::{
    Address, CallFrameInstruction as Instruction, CieId, CommonInformationEntry, EndianVec,
    Expression, FrameDescriptionEntry, FrameTable,
};
use gimli::{AArch64, Encoding, Format, LittleEndian, Register, constants};

/// The section, with its common information entries.
#[derive(Debug)]
pub(super) struct DebugFrame {
    table: FrameTable,
    /// Whether return addresses in memory and registers may have an authentication code.
    signed: bool,
    /// The common entry for functions.
    plain: CieId,
    /// The common entry for functions whose caller is on another stack.
    switches: CieId,
    /// The common entry for exceptions.
    exceptions: CieId,
}

/// The entry of a function.
pub(super) type Entry = (CieId, FrameDescriptionEntry);

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

    /// The row of [`DebugFrame`]'s common entry.
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

impl DebugFrame {
    /// Creates the section without functions. `signed` tells whether return addresses may have
    /// authentication codes.
    pub fn new(signed: bool) -> Self {
        let mut table = FrameTable::default();
        let preserved = || (FIRST..=LR).map(|number| rule(number, Rule::Same, signed));
        let pc = [Instruction::Undefined(AArch64::PC)];
        Self {
            signed,
            plain: table.add_cie(common(AArch64::X30, false, preserved())),
            switches: table.add_cie(common(AArch64::X30, true, preserved())),
            exceptions: table.add_cie(common(AArch64::PC, true, pc)),
            table,
        }
    }

    /// Returns the entry of a function. `switches` tells whether its caller is on another stack.
    pub fn function(&self, start: u64, states: &[Option<State>], switches: bool) -> Entry {
        let mut entry = entry(start, states.len());
        let mut before = Row::INITIAL;
        for (at, state) in states.iter().enumerate() {
            let row = Row::of(state.as_ref());
            if row != before {
                change(&before, &row, self.signed, |instruction| {
                    entry.add_instruction(4 * at as u32, instruction);
                });
                before = row;
            }
        }
        let common = if switches { self.switches } else { self.plain };
        (common, entry)
    }

    /// Returns the entry of code whose caller is not known.
    pub fn unknown(&self, start: u64, instructions: usize) -> Entry {
        let mut entry = entry(start, instructions);
        entry.add_instruction(0, Instruction::Undefined(AArch64::X30));
        (self.plain, entry)
    }

    /// Returns the entry of code that takes exceptions.
    pub fn exception(&self, start: u64, instructions: usize, saved: Saved) -> Entry {
        let Saved { from, record } = saved;
        let mut entry = entry(start, instructions);
        let mut add = |instruction| entry.add_instruction(4 * from as u32, instruction);
        // The address after the frame record, to which x29 points.
        add(Instruction::Cfa(register(FP), 16));
        for number in 0..=SP {
            let place = 8 * i32::from(number);
            add(Instruction::Offset(register(number), place - record - 16));
        }
        add(Instruction::Offset(AArch64::PC, PC - record - 16));
        (self.exceptions, entry)
    }

    /// Returns the section with these entries.
    pub fn finish(mut self, entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
        for (common, entry) in entries {
            self.table.add_fde(common, entry);
        }
        let mut section = gimli::write::DebugFrame::from(EndianVec::new(LittleEndian));
        let written = self.table.write_debug_frame(&mut section);
        debug_assert_eq!(written, Ok(()));
        section.0.into_vec()
    }
}

fn entry(start: u64, instructions: usize) -> FrameDescriptionEntry {
    FrameDescriptionEntry::new(Address::Constant(start), 4 * instructions as u32)
}

/// Passes on what changes from a row to the next one.
fn change(before: &Row, row: &Row, signed: bool, mut add: impl FnMut(Instruction)) {
    if row.caller_stack != before.caller_stack {
        let (base, offset) = row.caller_stack;
        add(Instruction::Cfa(register(base), offset));
    }
    for ((now, before), number) in row.rules.iter().zip(&before.rules).zip(FIRST..) {
        if now != before {
            add(match now {
                Rule::Same => Instruction::Restore(register(number)),
                &now => rule(number, now, signed),
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
