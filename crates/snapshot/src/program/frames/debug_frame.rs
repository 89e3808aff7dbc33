//! Writes `.debug_frame`, call frame information (DWARF version 4, 6.4).

use super::effects::{FP, LR, SP};
use super::exception::{PC, Saved};
use super::state::{FIRST, Rule, State};

/// The DWARF number of pc (DWARF for the Arm 64-bit Architecture, 4.1).
const PC_NUMBER: u8 = 32;

const ADVANCE: u8 = 0x40;
const ADVANCE_4: u8 = 0x04;
const OFFSET: u8 = 0x80;
const RESTORE: u8 = 0xc0;
const UNDEFINED: u8 = 0x07;
const SAME_VALUE: u8 = 0x08;
const DEFINE_CFA: u8 = 0x0c;
const VALUE_EXPRESSION: u8 = 0x16;

/// The section, with its common information entries.
#[derive(Debug)]
pub(super) struct DebugFrame {
    bytes: Vec<u8>,
    /// Whether return addresses in memory and registers may have an authentication code.
    signed: bool,
    /// The offset of the common entry for functions whose caller is on another stack.
    switches: u32,
    /// The offset of the common entry for exceptions.
    exceptions: u32,
}

/// The rules for finding the caller that apply from a certain instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    caller_stack: (u8, u32),
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

fn uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn sleb(out: &mut Vec<u8>, mut value: i64) {
    while !(-0x40..0x40).contains(&value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}

/// Appends an entry: its length, then what `contents` writes, padded to a multiple of 8 bytes.
fn entry(bytes: &mut Vec<u8>, contents: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend([0; 4]);
    contents(bytes);
    // 0 is DW_CFA_nop.
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let length = (bytes.len() - start - 4) as u32;
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn common(bytes: &mut Vec<u8>, augmentation: &[u8], return_address: u8, initial: &[u8]) {
    entry(bytes, |out| {
        out.extend(u32::MAX.to_le_bytes());
        // Version; code in units of 4 bytes, data in units of -8.
        out.push(1);
        out.extend(augmentation);
        out.extend([4, 0x78, return_address]);
        if augmentation[0] == b'z' {
            out.push(0);
        }
        out.extend([DEFINE_CFA, SP, 0]);
        // x0 to x18 are not preserved (AAPCS64 6.1.1).
        (0..FIRST).for_each(|register| out.extend([UNDEFINED, register]));
        out.extend(initial);
    });
}

impl DebugFrame {
    /// Creates the section without functions. `signed` tells whether return addresses may have
    /// authentication codes.
    pub fn new(signed: bool) -> Self {
        let mut bytes = Vec::new();
        let mut initial = Vec::new();
        (FIRST..LR).for_each(|register| initial.extend([SAME_VALUE, register]));
        rule(&mut initial, LR, Rule::Same, signed);
        common(&mut bytes, b"\0", LR, &initial);
        let switches = bytes.len() as u32;
        common(&mut bytes, b"zS\0", LR, &initial);
        let exceptions = bytes.len() as u32;
        common(&mut bytes, b"zS\0", PC_NUMBER, &[UNDEFINED, PC_NUMBER]);
        Self {
            bytes,
            signed,
            switches,
            exceptions,
        }
    }

    /// Returns the entry of a function. `switches` tells whether its caller is on another stack.
    pub fn function(&self, start: u64, states: &[Option<State>], switches: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry(&mut bytes, |out| {
            head(
                out,
                if switches { self.switches } else { 0 },
                start,
                states.len(),
            );
            out.extend(switches.then_some(0));
            let mut before = Row::INITIAL;
            let mut last = 0;
            for (at, state) in states.iter().enumerate() {
                let row = Row::of(state.as_ref());
                if row != before {
                    advance(out, at - last);
                    change(out, &before, &row, self.signed);
                    (before, last) = (row, at);
                }
            }
        });
        bytes
    }

    /// Returns the entry of code whose caller is not known.
    pub fn unknown(&self, start: u64, instructions: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry(&mut bytes, |out| {
            head(out, 0, start, instructions);
            out.extend([UNDEFINED, LR]);
        });
        bytes
    }

    /// Returns the entry of code that takes exceptions.
    pub fn exception(&self, start: u64, instructions: usize, saved: Saved) -> Vec<u8> {
        let Saved { from, record } = saved;
        let mut bytes = Vec::new();
        entry(&mut bytes, |out| {
            head(out, self.exceptions, start, instructions);
            out.push(0);
            advance(out, from);
            // The address after the frame record, to which x29 points.
            out.extend([DEFINE_CFA, FP, 16]);
            for register in (0..=SP).chain([PC_NUMBER]) {
                let place = match register {
                    PC_NUMBER => PC,
                    register => 8 * i32::from(register),
                };
                out.push(OFFSET | register);
                uleb(out, u64::from((record + 16 - place).unsigned_abs() / 8));
            }
        });
        bytes
    }

    /// Returns the section with these entries.
    pub fn finish(mut self, entries: &[Vec<u8>]) -> Vec<u8> {
        entries.iter().for_each(|entry| self.bytes.extend(entry));
        self.bytes
    }
}

fn head(out: &mut Vec<u8>, common: u32, start: u64, instructions: usize) {
    out.extend(common.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend((4 * instructions as u64).to_le_bytes());
}

fn advance(out: &mut Vec<u8>, instructions: usize) {
    match instructions {
        0 => {}
        1..0x40 => out.push(ADVANCE | instructions as u8),
        _ => {
            out.push(ADVANCE_4);
            out.extend((instructions as u32).to_le_bytes());
        }
    }
}

fn change(out: &mut Vec<u8>, before: &Row, row: &Row, signed: bool) {
    if row.caller_stack != before.caller_stack {
        out.extend([DEFINE_CFA, row.caller_stack.0]);
        uleb(out, row.caller_stack.1.into());
    }
    for ((now, before), register) in row.rules.iter().zip(&before.rules).zip(FIRST..) {
        if now != before {
            match now {
                Rule::Same => out.push(RESTORE | register),
                &now => rule(out, register, now, signed),
            }
        }
    }
}

/// Writes the location of the caller's value of a register. A return address of the kernel has its
/// upper 16 bits set, some of which an authentication code may replace (Arm ARM DDI 0487, D8.10).
fn rule(out: &mut Vec<u8>, register: u8, rule: Rule, signed: bool) {
    const BREG0: u8 = 0x70;
    const CONSTS: u8 = 0x11;
    const CONST8U: u8 = 0x0e;
    const PLUS: u8 = 0x22;
    const DEREF: u8 = 0x06;
    const OR: u8 = 0x21;
    if signed && register == LR && rule != Rule::Unknown {
        let mut expression = Vec::new();
        match rule {
            Rule::At(at) => {
                expression.push(CONSTS);
                sleb(&mut expression, at.into());
                expression.extend([PLUS, DEREF]);
            }
            // The address of the caller's frame, which is on DWARF's stack, is not used.
            _ => expression.extend([BREG0 + LR, 0]),
        }
        expression.push(CONST8U);
        expression.extend((0xffff_u64 << 48).to_le_bytes());
        expression.push(OR);
        out.extend([VALUE_EXPRESSION, register]);
        uleb(out, expression.len() as u64);
        out.extend(expression);
        return;
    }
    match rule {
        Rule::Same => out.extend([SAME_VALUE, register]),
        Rule::At(at) => {
            out.push(OFFSET | register);
            uleb(out, u64::from(at.unsigned_abs() / 8));
        }
        Rule::Unknown => out.extend([UNDEFINED, register]),
    }
}
