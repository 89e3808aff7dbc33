//! Instructions in a straight line, decoded one by one.

use super::code::{CodeImage, View, fetch};
use super::range::{InstructionKind, LastInstruction, Range};
pub(super) use armsnap_arch::arch::branch::{self, Instruction, ItBlock, Kind};
use armsnap_arch::quantity::{Address, Isa};

/// The longest straight line that is walked for one element, in instructions.
pub(super) const LONGEST: u32 = 0x4000;

/// The instructions that the trace unit generates atoms for, besides branches, ISB and TSTART.
///
/// TSTART has an atom regardless of TRCIDR0.COMMTRANS, which selects the element that follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waypoints {
    /// DSB and DMB (PTM, ETMCCER bit 24).
    pub barriers: bool,
    /// WFI and WFE (ETMv4 and ETE, TRCIDR2.WFXMODE).
    pub waits: bool,
}

impl Waypoints {
    pub(crate) fn contain(self, kind: Kind) -> bool {
        match kind {
            Kind::Other => false,
            Kind::Branch { .. } | Kind::Indirect | Kind::Isb | Kind::Transaction => true,
            Kind::Barrier => self.barriers,
            Kind::Wait => self.waits,
        }
    }
}

/// Why a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Memory is missing at the current address.
    Missing,
    /// The instruction set is not followed.
    NotFollowed,
}

/// A walk along a straight line.
pub(super) struct Walk<'a, C> {
    code: &'a C,
    view: View,
    isa: Isa,
    start: Address,
    /// The memory from `here` to the end of its piece.
    bytes: &'a [u8],
    here: Address,
    instructions: u32,
    it_block: ItBlock,
    last: Option<Instruction>,
}

impl<'a, C: CodeImage> Walk<'a, C> {
    pub(super) fn new(code: &'a C, view: View, isa: Isa, start: Address) -> Self {
        Self {
            code,
            view,
            isa,
            start,
            bytes: code.slice(view, start),
            here: start,
            instructions: 0,
            it_block: ItBlock::default(),
            last: None,
        }
    }

    /// Returns the address of the next instruction.
    pub(super) fn here(&self) -> Address {
        self.here
    }

    pub(super) fn instructions(&self) -> u32 {
        self.instructions
    }

    /// Decodes the next instruction and steps over it.
    #[inline]
    pub(super) fn step(&mut self) -> Result<Instruction, Stop> {
        let (word, count) = if let Some(&word) = self.bytes.first_chunk::<4>() {
            (word, 4)
        } else {
            fetch(self.code, self.view, self.here)
        };
        let Some(mut instruction) = branch::decode(self.isa, self.here, u32::from_le_bytes(word))
        else {
            return Err(Stop::NotFollowed);
        };
        let size = usize::from(instruction.bytes);
        if count < size {
            if self.isa == Isa::T32 || !self.code.is_straight(self.view, self.here) {
                return Err(Stop::Missing);
            }
            instruction = Instruction::other(4);
        }
        self.here = self.here.after(size as u64, self.isa);
        self.bytes = match self.bytes.get(size..) {
            Some(rest) if !rest.is_empty() && self.here.0 != 0 => rest,
            _ => self.code.slice(self.view, self.here),
        };
        self.it_block.step(&mut instruction);
        self.instructions += 1;
        self.last = Some(instruction);
        Ok(instruction)
    }

    /// Returns the instructions walked so far.
    pub(super) fn range(&self, waypoints: Waypoints, taken: bool) -> Range {
        Range {
            start: self.start,
            end: self.here,
            isa: self.isa,
            instructions: self.instructions,
            last: last(self.last, waypoints, taken),
        }
    }
}

fn last(last: Option<Instruction>, waypoints: Waypoints, taken: bool) -> LastInstruction {
    let Some(last) = last else {
        return LastInstruction::default();
    };
    LastInstruction {
        kind: match last.kind {
            kind if !waypoints.contain(kind) => InstructionKind::Other,
            Kind::Other => InstructionKind::Other,
            Kind::Branch { .. } => InstructionKind::Branch,
            Kind::Indirect => InstructionKind::Indirect,
            Kind::Isb => InstructionKind::Isb,
            Kind::Barrier => InstructionKind::Barrier,
            Kind::Wait => InstructionKind::Wfi,
            Kind::Transaction => InstructionKind::Transaction,
        },
        taken,
        link: last.link,
        returns: last.returns,
        conditional: last.conditional,
    }
}
