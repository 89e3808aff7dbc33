//! Where stores with unknown addresses may have gone, by the rules of the second layer.
//!
//! A store does not go to stack slots that are only reached by the stack or frame pointer plus a
//! constant, unless it uses these itself.

use super::access::{Access, AccessKind, Place};
use super::cells::Cells;
use crate::recover::execution::templates::Templates;
use crate::recover::facts::final_state::FinalMemory;
use crate::recover::graph::nodes::Graph;
use armsnap_arch::semantics::{Location, Operand};
use std::collections::HashSet;
use std::ops::Range;

/// A class of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Class {
    /// Any cell: for what is proved.
    Anything,
    /// The stack, while only the stack and frame pointers reach a slot.
    Protected,
    /// The stack at other times.
    Stack,
    /// Writable segments of the program.
    Program,
    /// Writable segments of its libraries.
    Libraries,
    /// All other memory, which was allocated.
    Other,
}

impl Class {
    /// Whether it belongs to the stack.
    pub fn is_stack(self) -> bool {
        matches!(self, Self::Protected | Self::Stack)
    }

    /// All classes that the second layer distinguishes.
    pub const INFERRED: [Self; 5] = [
        Self::Protected,
        Self::Stack,
        Self::Program,
        Self::Libraries,
        Self::Other,
    ];

    /// The index in [`Self::INFERRED`].
    pub const fn of_inferred(self) -> usize {
        self as usize - Self::Protected as usize
    }

    /// Classes whose addresses are known early: if an instruction stores to others, and never to
    /// one of these as far as is known, it is inferred not to.
    pub const EARLY: [Self; 3] = [Self::Stack, Self::Program, Self::Libraries];
}

/// The extent of frames beyond those that were reached, in granules.
const BEYOND: u64 = 1 << 13;

/// What has been seen so far.
#[derive(Debug, Default)]
pub(in crate::recover) struct Regions {
    /// The granules from the lowest to the highest that the stack pointer reached, for each stack:
    /// the handler of a signal may have its own.
    stacks: Vec<(u64, u64)>,
    /// Granules of the frame records of the calls that are open at the end.
    records: HashSet<u64>,
    /// Granules of the writable segments of the program, and of its libraries, by address.
    statics: [Vec<Range<u64>>; 2],
}

impl Regions {
    /// Takes the writable segments of programs.
    pub fn find_statics(&mut self, memory: &dyn FinalMemory) {
        self.statics = memory.statics().map(|ranges| {
            let granules = |range: &Range<u64>| range.start >> 3..range.end.div_ceil(8);
            ranges.iter().map(granules).collect()
        });
    }

    /// Finds the stack: what accesses through the stack pointer reached, what is below the stack
    /// pointers of some nodes, whose accesses are not known yet, and where it was at the end.
    pub fn find_stack(
        &mut self,
        accesses: &[Access],
        (cells, graph): (&Cells, &Graph),
        templates: &Templates,
        (hinted, last): (&[(u32, u64)], Option<u64>),
    ) {
        /// Stacks are at least this far apart, in granules.
        const APART: u64 = 1 << 17;
        /// The most stacks that are distinguished; further ones are treated as other memory.
        const MOST: usize = 64;
        let near = |(low, high): (u64, u64), granule: u64| {
            (low.saturating_sub(APART)..=high.saturating_add(APART)).contains(&granule)
        };
        let mut stacks: Vec<(u64, u64)> = Vec::new();
        let mut reach = |granule: u64| {
            if let Some((low, high)) = stacks.iter_mut().find(|stack| near(**stack, granule)) {
                (*low, *high) = ((*low).min(granule), (*high).max(granule));
            } else if stacks.len() < MOST {
                stacks.push((granule, granule));
            }
        };
        if let Some(last) = last {
            reach(last >> 3);
        }
        for (_, stack_pointer) in hinted {
            reach(stack_pointer >> 3);
            reach((stack_pointer >> 3).saturating_sub(BEYOND));
        }
        for access in accesses {
            let Place::Cells(event, _) = access.place else {
                continue;
            };
            let op = templates.op(graph.relations[access.relation as usize].op);
            let stack = [
                Operand::Location(Location::SP),
                Operand::Location(Location::general(13)),
            ];
            if op.operands[0] == stack[usize::from(op.narrow)] {
                let cell = cells.events[event as usize].cell;
                let granule = cells.all[cell as usize].granule;
                reach(granule);
            }
        }
        stacks.sort_unstable();
        self.stacks.clear();
        for (low, high) in stacks {
            match self.stacks.last_mut() {
                Some(last) if near(*last, low) => last.1 = last.1.max(high),
                _ => self.stacks.push((low, high)),
            }
        }
        // Memory beyond the stack of a handler may be anything.
        if let [only] = &mut self.stacks[..] {
            only.1 = only.1.saturating_add(BEYOND);
        }
    }

    /// Finds the frame records of A64 (AAPCS64 6.4.6) from the last one on: their contents are
    /// written when a function is entered, and not through pointers. The stack extends up to them.
    pub fn find_records(&mut self, last: u64, memory: &dyn FinalMemory) {
        /// The most records that are followed.
        const MOST: usize = 1 << 12;
        self.records.clear();
        let mut record = last;
        while self.records.len() < 2 * MOST {
            let mut next = [0; 8];
            if record & 7 != 0 || !self.reach(record >> 3) || memory.read(record, &mut next) < 8 {
                return;
            }
            self.records.extend([record >> 3, (record >> 3) + 1]);
            let next = u64::from_le_bytes(next);
            // Callers have higher addresses.
            if next <= record {
                return;
            }
            record = next;
        }
    }

    /// Extends a stack up to a frame record that is not far above it. Returns whether the record
    /// then belongs to a stack.
    fn reach(&mut self, granule: u64) -> bool {
        let mut stacks = self.stacks.iter_mut().rev();
        let below =
            stacks.find(|(low, high)| *low <= granule && granule - BEYOND.min(granule) <= *high);
        if let Some((_, high)) = below {
            *high = (*high).max(granule + 1);
            return true;
        }
        false
    }

    /// Whether a granule belongs to a stack.
    pub fn is_stack(&self, granule: u64) -> bool {
        let mut stacks = self.stacks.iter();
        stacks.any(|(low, high)| (low..=high).contains(&&granule))
    }

    /// Whether there is only one stack, so that memory at or above the stack pointer is in use, and
    /// memory below it is not.
    pub fn has_one_stack(&self) -> bool {
        self.stacks.len() == 1
    }

    /// Whether a granule holds a part of a frame record that is open at the end.
    pub fn is_record(&self, granule: u64) -> bool {
        self.records.contains(&granule)
    }

    /// The class of a granule. Whether it is a slot of the stack depends on the time.
    pub fn class_of(&self, granule: u64) -> Class {
        if self.is_stack(granule) {
            return Class::Stack;
        }
        self.static_class(granule).unwrap_or(Class::Other)
    }

    fn static_class(&self, granule: u64) -> Option<Class> {
        let is_in = |ranges: &[Range<u64>]| {
            let next = ranges.partition_point(|range| range.start <= granule);
            next.checked_sub(1)
                .is_some_and(|last| granule < ranges[last].end)
        };
        let classes = [Class::Program, Class::Libraries];
        let found = self.statics.iter().zip(classes);
        found
            .into_iter()
            .find_map(|(ranges, class)| is_in(ranges).then_some(class))
    }

    /// Whether an access with unknown address may have written a class of cells. That an
    /// instruction was seen to store to one class says little: copies of memory store to all.
    pub fn may_write(access: &Access, direct: bool, class: Class) -> bool {
        match access.kind {
            // The frame is below the stack pointer.
            AccessKind::Load | AccessKind::Signal => false,
            AccessKind::Lost => true,
            AccessKind::Store if direct => true,
            // Where it is known to write is examined each time.
            AccessKind::ClearBlock | AccessKind::SystemCall => true,
            AccessKind::Store | AccessKind::Unmodelled => class != Class::Protected,
        }
    }
}
