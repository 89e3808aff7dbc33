//! The instructions encountered, each decoded once.

use super::blocks::Blocks;
use super::template::{Floats, Op, Template, half, is_direct};
use crate::recover::facts::microcontroller::Microcontroller;
use crate::recover::kernel::signals;
use crate::timeline::History;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::{
    Control, Location, Operand, Operation, Relation, Semantics, Width, a32, a64, m_profile, t32,
};
use armsnap_snapshot::program::go::GoCode;
use armsnap_trace::flow::View;
use std::collections::{HashMap, HashSet};
use t32::ItState;

/// What an instruction is decoded from; the last part is [`Template::untaken`].
type Key = (u64, Isa, View, Option<ItState>, bool);

/// All instructions encountered so far, and their operations.
#[derive(Debug)]
pub(in crate::recover) struct Templates {
    pub all: Vec<Template>,
    pub ops: Vec<Op>,
    known: HashMap<Key, u32>,
    /// By instruction, the same one after the return from a handler.
    resumed: HashMap<u32, u32>,
    /// By instruction, the same one as the first with floating point ([`m_profile::first_float`]).
    first_floats: HashMap<u32, u32>,
    /// The addresses after calls.
    pub return_sites: HashSet<u64>,
    /// The architecture of the core.
    pub architecture: Architecture,
    /// Whether the core's instructions are not modelled.
    pub without_model: bool,
    /// What is known of an M-profile core.
    pub microcontroller: Microcontroller,
    /// Code whose functions preserve nothing.
    pub go: GoCode,
    /// What the kernel does when a signal is delivered, and when its handler returns.
    pub delivery: Template,
    pub sigreturn: Template,
    /// What an M-profile core does when it takes an exception, and when it returns from one.
    pub entry: Template,
    pub exit: Template,
    /// What it does before the first floating-point instruction after these.
    pub first_float: Template,
}

impl Default for Templates {
    fn default() -> Self {
        let own = Op {
            operation: Operation::Copy,
            destination: Location::NOWHERE,
            operands: [Operand::ZERO; 3],
            displacement: 0,
            direct: false,
            narrow: false,
        };
        let unknown = Op {
            operation: Operation::Unknown,
            ..own
        };
        let mut ops = vec![own, unknown, own, unknown, unknown, unknown];
        let [delivery, sigreturn] = [signals::delivery(), signals::sigreturn()].map(|semantics| {
            let template = put(&mut ops, 0, Isa::A64, &semantics);
            // Handlers also reach the frame through a pointer.
            let own = &mut ops[template.first as usize..];
            own.iter_mut().for_each(|op| op.direct = false);
            template
        });
        let handlers = [
            m_profile::exception_entry(false),
            m_profile::exception_return(false),
            m_profile::first_float(),
        ];
        let handlers = handlers.map(|semantics| put(&mut ops, 0, Isa::T32, &semantics));
        let [entry, exit, first_float] = handlers;
        Self {
            all: Vec::new(),
            ops,
            known: HashMap::new(),
            resumed: HashMap::new(),
            first_floats: HashMap::new(),
            return_sites: HashSet::new(),
            architecture: Architecture::AArch64,
            without_model: false,
            microcontroller: Microcontroller::default(),
            go: GoCode::default(),
            delivery,
            sigreturn,
            entry,
            exit,
            first_float,
        }
    }
}

impl Templates {
    /// Sets what is known of an M-profile core, before instructions are decoded.
    pub fn model(&mut self, microcontroller: Option<Microcontroller>) {
        let Some(microcontroller) = microcontroller else {
            return;
        };
        self.microcontroller = microcontroller;
        if microcontroller.extensions.floating_point {
            let handlers = [
                m_profile::exception_entry(true),
                m_profile::exception_return(true),
            ];
            [self.entry, self.exit] =
                handlers.map(|semantics| put(&mut self.ops, 0, Isa::T32, &semantics));
        }
    }

    /// Whether the core's registers have 32 bits.
    pub fn is_narrow(&self) -> bool {
        self.architecture != Architecture::AArch64
    }

    /// Whether exceptions and the returns from them are modelled, as on M-profile cores.
    pub fn has_handlers(&self) -> bool {
        self.architecture == Architecture::MProfile && !self.without_model
    }

    pub fn op(&self, number: u32) -> &Op {
        &self.ops[number as usize]
    }

    /// Instructions in a straight line, decoded from the history's code. `blocks` is the state of
    /// IT blocks before them, and becomes the state after them. `untaken` is whether the last one
    /// is a branch that was not taken.
    pub fn instructions(
        &mut self,
        history: &History,
        view: View,
        addresses: Vec<(Address, Isa)>,
        blocks: &mut Blocks,
        untaken: bool,
    ) -> Vec<u32> {
        let count = addresses.len();
        let mut numbers = Vec::with_capacity(count);
        for (address, isa) in addresses {
            let untaken = untaken && numbers.len() + 1 == count;
            let block = match isa {
                Isa::T32 if !self.without_model => blocks.before(history, view, address),
                _ => Some(ItState::OUTSIDE),
            };
            let number = self.at(history, (address.0, isa, view, block, untaken));
            if self.without_model {
                numbers.push(number);
                continue;
            }
            let template = &self.all[number as usize];
            blocks.pass(template, history.code(view, address), block);
            numbers.push(number);
        }
        let next = numbers.last().map(|&last| self.all[last as usize].end());
        let next = next.map_or(&[][..], |end| history.code(view, Address(end)));
        let next = next.first_chunk().map(|word| u32::from_le_bytes(*word));
        self.find_unwinder(&numbers, next);
        numbers
    }

    /// Detects the end of a function of GCC's unwinder in a straight line of A64, or in the
    /// instruction after it, which newer versions branch over. The frame of the function holds
    /// registers that it saved; through pointers, the unwinder overwrites them with those of the
    /// frame in which it continues.
    pub fn find_unwinder(&mut self, line: &[u32], next: Option<u32>) {
        // `add sp, sp, xN`.
        let leaves_frames = |word: u32| word & 0xffe0_ffff == 0x8b20_63ff;
        let is_a64 = |number: &u32| self.all[*number as usize].isa == Isa::A64;
        let ops = |number: u32| {
            let template = &self.all[number as usize];
            template.first as usize..template.first as usize + usize::from(template.count)
        };
        let leaves = |number: &u32| self.ops[ops(*number)].iter().any(Op::leaves_frames);
        let end = match line.iter().rposition(leaves) {
            Some(end) => end,
            None if line.last().is_some_and(is_a64) && next.is_some_and(leaves_frames) => {
                line.len()
            }
            None => return,
        };
        for ops in line[..end]
            .iter()
            .map(|number| ops(*number))
            .collect::<Vec<_>>()
        {
            let loads = self.ops[ops].iter_mut().filter(|op| !op.is_store());
            loads.for_each(|op| op.direct = false);
        }
    }

    /// The instruction at an address, given the state of IT blocks.
    fn at(&mut self, history: &History, key: Key) -> u32 {
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let (address, isa, view, block, untaken) = key;
        let (bytes, count) = history.instruction_code(view, Address(address));
        let code = &bytes[..count];
        let semantics = block.and_then(|block| self.decode(code, address, isa, block));
        let number = match semantics {
            Some(semantics) => self.add(address, isa, &semantics),
            None => self.add_unknown(address, isa, code),
        };
        let before = history.code(view, Address(address.wrapping_sub(4)));
        let selects = before.first_chunk() == Some(&signals::MOV_X8_SIGRETURN.to_le_bytes());
        let template = &mut self.all[number as usize];
        template.untaken = untaken;
        if self.architecture == Architecture::MProfile
            && let (Some(first), Some(second)) = (half(code), code.get(2..).and_then(half))
            && m_profile::is_float(first, second)
        {
            template.floats = match block {
                Some(ItState::OUTSIDE) => Floats::Uses,
                _ => Floats::MayUse,
            };
        }
        template.sigreturn = isa == Isa::A64 && template.control == Control::SystemCall && selects;
        self.known.insert(key, number);
        number
    }

    /// The instruction that an exception interrupts, outside of IT blocks: what it loads and stores
    /// does not depend on them.
    pub fn interrupted(&mut self, history: &History, view: View, address: u64) -> u32 {
        let block = Some(ItState::OUTSIDE);
        self.at(history, (address, Isa::T32, view, block, false))
    }

    /// An instruction as the first one after the return from a handler.
    pub fn resumed(&mut self, number: u32) -> u32 {
        let template = self.all[number as usize];
        if !self.is_interruptible(&template) {
            return number;
        }
        *self.resumed.entry(number).or_insert_with(|| {
            self.all.push(Template {
                resumed: true,
                ..template
            });
            self.all.len() as u32 - 1
        })
    }

    /// An instruction as the first one with floating point.
    pub fn first_float(&mut self, number: u32) -> u32 {
        *self.first_floats.entry(number).or_insert_with(|| {
            let template = self.all[number as usize];
            self.all.push(Template {
                is_first_float: true,
                ..template
            });
            self.all.len() as u32 - 1
        })
    }

    /// Whether an exception may interrupt an instruction after a part of its effects.
    pub fn is_interruptible(&self, template: &Template) -> bool {
        let ops = self.ops_of(template);
        let bytes = ops.iter().filter_map(Op::access);
        bytes.map(u32::from).sum::<u32>() > 4
    }

    /// The operations of an instruction.
    pub fn ops_of(&self, template: &Template) -> &[Op] {
        &self.ops[template.first as usize..][..template.count.into()]
    }

    /// What an instruction does; `None` if it is unknown.
    fn decode(&self, code: &[u8], address: u64, isa: Isa, block: ItState) -> Option<Semantics> {
        let word = || {
            code.first_chunk::<4>()
                .map(|word| u32::from_le_bytes(*word))
        };
        if self.without_model {
            return None;
        }
        match (self.architecture, isa) {
            (Architecture::AArch64, Isa::A64) => Some(a64::decode(word()?, address)),
            (Architecture::AArch32, Isa::A32) => {
                let word = word()?;
                // The old Linux ABI encodes the number of a system call in the instruction.
                let is_old_call = word & 0x0f00_0000 == 0x0f00_0000 && word & 0xff_ffff != 0;
                (!is_old_call).then(|| a32::decode(word, address))
            }
            (Architecture::AArch32 | Architecture::MProfile, Isa::T32) => {
                let first = half(code)?;
                let second = if t32::is_wide(first) {
                    half(&code[2..])?
                } else {
                    0
                };
                Some(match self.architecture {
                    Architecture::MProfile if m_profile::changes_security(first, second) => {
                        return None;
                    }
                    Architecture::MProfile => m_profile::decode(first, second, address, block),
                    _ => t32::decode(first, second, address, block),
                })
            }
            _ => None,
        }
    }

    /// Adds an instruction whose code is unknown.
    fn add_unknown(&mut self, pc: u64, isa: Isa, code: &[u8]) -> u32 {
        let is_short = isa == Isa::T32 && !half(code).is_some_and(t32::is_wide);
        let semantics = Semantics {
            relations: Vec::new(),
            control: Control::Next,
            size: if is_short { 2 } else { 4 },
            may_store_anywhere: true,
            clears_block: None,
            changes_space: false,
        };
        let number = self.add(pc, isa, &semantics);
        let template = &mut self.all[number as usize];
        (template.opaque, template.floats) = (true, Floats::Forgets);
        number
    }

    /// Adds an instruction.
    pub fn add(&mut self, pc: u64, isa: Isa, semantics: &Semantics) -> u32 {
        let mut template = put(&mut self.ops, pc, isa, semantics);
        template.go = self.go.contains(pc);
        if template.calls {
            self.return_sites.insert(template.end());
        }
        self.all.push(template);
        self.all.len() as u32 - 1
    }
}

/// Appends the operations of an instruction to others.
fn put(ops: &mut Vec<Op>, pc: u64, isa: Isa, semantics: &Semantics) -> Template {
    let narrow = isa != Isa::A64;
    let first = ops.len() as u32;
    let mut calls = false;
    let mut floats = Floats::Keeps;
    for (index, relation) in semantics.relations.iter().enumerate() {
        let mut op = Op {
            operation: relation.operation,
            destination: relation.destination,
            operands: [relation.a, relation.b, relation.c],
            displacement: 0,
            direct: false,
            narrow,
        };
        if op.access().is_some() {
            let before = &semantics.relations[..index];
            let (base, displacement) = base(before, relation.a, narrow);
            op.operands[0] = base;
            op.displacement = displacement;
            op.direct = is_direct(base, narrow);
        }
        if relation.destination == Location::FLOATS {
            floats = Floats::Forgets;
        }
        calls |= is_link(relation, pc.wrapping_add(semantics.size.into()), narrow);
        ops.push(op);
    }
    Template {
        pc,
        isa,
        size: semantics.size,
        control: semantics.control,
        first,
        count: semantics.relations.len() as u16,
        stores_anywhere: semantics.may_store_anywhere,
        clears_block: semantics.clears_block,
        changes_space: semantics.changes_space,
        opaque: false,
        calls: calls
            && matches!(
                semantics.control,
                Control::Jump(_) | Control::Indirect { .. }
            ),
        untaken: false,
        sigreturn: false,
        go: false,
        resumed: false,
        floats,
        is_first_float: false,
    }
}

/// Whether a relation leaves the address after a call in the link register.
fn is_link(relation: &Relation, end: u64, narrow: bool) -> bool {
    let link = Location::general(if narrow { 14 } else { 30 });
    let thumb = u64::from(narrow);
    relation.destination == link
        && relation.operation == Operation::Copy
        && matches!(relation.a, Operand::Constant(value) if value == end || value == end | thumb)
}

/// The base and displacement of an address: a location that still holds the same value, and what
/// was added to it. Found backward through the relations before the access.
fn base(before: &[Relation], address: Operand, narrow: bool) -> (Operand, u64) {
    let fits = |width| narrow || width == Width::W64;
    let (mut base, mut displacement) = (address, 0_u64);
    let mut end = before.len();
    while let Operand::Location(location) = base {
        let Some(at) = before[..end]
            .iter()
            .rposition(|r| r.destination == location)
        else {
            break;
        };
        let relation = &before[at];
        let (next, more) = match (relation.operation, relation.a, relation.b) {
            (Operation::Copy, a, _) => (a, 0),
            (Operation::Add(width), a, Operand::Constant(b)) if fits(width) => (a, b),
            (Operation::Subtract(width), a, Operand::Constant(b)) if fits(width) => {
                (a, b.wrapping_neg())
            }
            _ => break,
        };
        if let Operand::Location(source) = next {
            // The source may have been written since, even by the relation itself.
            if before[at..].iter().any(|r| r.destination == source) {
                break;
            }
        }
        (base, displacement) = (next, displacement.wrapping_add(more));
        end = at;
    }
    (base, displacement)
}
