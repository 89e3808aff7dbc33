//! Where stores with unknown addresses may have gone, by the rules of the second layer.
//!
//! A store goes where its instruction was seen to go. It does not go to stack slots that are only
//! reached by the stack or frame pointer and a constant.

use super::cells::{Cell, Cells, Kind};
use super::graph::{Graph, NONE};
use super::solver::{Access, AccessKind, Place};
use super::template::Templates;
use crate::semantics::{Location, Operand};
use std::collections::HashMap;

/// A class of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Any cell: for what is proved.
    Anything,
    /// Stack slots that only the stack and frame pointers reach.
    Protected,
    /// Other slots of the stack.
    Stack,
    /// All other memory.
    Other,
}

/// Number of classes.
pub(super) const CLASSES: usize = 4;

/// Times that an instruction must have been seen to store before it is known where it stores to.
const ENOUGH: u32 = 4;

impl Class {
    pub const PROVED: [Self; 1] = [Self::Anything];
    pub const INFERRED: [Self; 3] = [Self::Protected, Self::Stack, Self::Other];
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Granules from the lowest to the highest that the stack pointer reached.
    stack: Option<(u64, u64)>,
    /// By operation: known stores to each class.
    seen: HashMap<u32, [u32; CLASSES]>,
}

impl Regions {
    /// Counts where accesses went.
    pub fn count(&mut self, accesses: &[Access], cells: &Cells, graph: &Graph) {
        self.seen.clear();
        for event in &cells.events {
            if event.kind != Kind::Store {
                continue;
            }
            let access = &accesses[event.access as usize];
            let op = graph.relations[access.relation as usize].op;
            let class = self.class(&cells.all[event.cell as usize]);
            let seen = self.seen.entry(op).or_default();
            seen[class as usize] += 1;
        }
    }

    /// Finds the stack: what accesses by the stack pointer reached.
    pub fn find_stack(
        &mut self,
        accesses: &[Access],
        cells: &Cells,
        graph: &Graph,
        templates: &Templates,
    ) {
        /// Callers' frames beyond what was reached, in granules.
        const BEYOND: u64 = 1 << 13;
        let mut range: Option<(u64, u64)> = None;
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
                let (low, high) = range.unwrap_or((granule, granule));
                range = Some((low.min(granule), high.max(granule)));
            }
        }
        self.stack = range.map(|(low, high)| (low, high.saturating_add(BEYOND)));
    }

    /// The class of a cell.
    pub fn class(&self, cell: &Cell) -> Class {
        self.class_of(cell.granule, cell.indirect)
    }

    /// The class of a granule, by whether computed addresses reach it.
    pub fn class_of(&self, granule: u64, indirect: bool) -> Class {
        let inside = |(low, high)| (low..=high).contains(&granule);
        match (self.stack.is_some_and(inside), indirect) {
            (true, false) => Class::Protected,
            (true, true) => Class::Stack,
            (false, _) => Class::Other,
        }
    }

    /// Whether an access with unknown address may have written a class of cells.
    pub fn may_write(&self, access: &Access, op: u32, class: Class, templates: &Templates) -> bool {
        match access.kind {
            AccessKind::Load => false,
            AccessKind::Lost => true,
            AccessKind::Unmodelled | AccessKind::SystemCall => class != Class::Protected,
            AccessKind::Store if op == NONE => true,
            AccessKind::Store if templates.op(op).direct => true,
            AccessKind::Store => match self.seen.get(&op) {
                Some(seen) if seen.iter().sum::<u32>() >= ENOUGH => seen[class as usize] > 0,
                _ => class != Class::Protected,
            },
        }
    }
}
