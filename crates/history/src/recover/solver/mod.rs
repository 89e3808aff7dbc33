//! Facts passed between nodes and memory until nothing changes.
//!
//! There are two layers. The first contains only what is proved: an access with an unknown address
//! may have gone anywhere. The second adds what follows by the rules of the calling convention and
//! of [`crate::recover::memory::regions`]. What the second layer finds never reaches the first.

mod bounds;
pub(super) mod built;
mod connections;
pub(super) mod inference;
pub(super) mod kept_frames;
mod kernel;
mod may_write;
pub(super) mod refine;
mod sites;

use crate::recover::bits::{Bits, low, untagged};
use crate::recover::execution::template::{
    ARGUMENTS, CLEARS_BLOCK, Op, SAME_BY_CONVENTION, SIGNAL_ARGUMENTS, SIGNAL_FRAME, SYSTEM_CALL,
};
use crate::recover::execution::templates::Templates;
use crate::recover::facts::final_state::FinalMemory;
use crate::recover::graph::nodes::{BASE, DATA, NONE, PREDICATE, RESULT};
use crate::recover::memory::access::{AccessKind, Place, free_place};
use crate::recover::memory::barriers::{Barriers, Watchers};
use crate::recover::memory::cells::{Cells, Event, Kind, Link};
use armsnap_arch::hash::NumberSet;
use armsnap_arch::semantics::Operand;
use armsnap_snapshot::stop::Cancel;
use built::Built;
use inference::{Inference, Layer, Lessons, Proof};
use kept_frames::Same;
use refine::{Values, is_set, refine};
use std::ops::Range;

/// What the solver reads.
pub(in crate::recover) struct Given<'a> {
    pub templates: &'a Templates,
    pub memory: &'a dyn FinalMemory,
    /// Whether the memory is that at the end of the trace.
    pub is_final: bool,
    /// Whether others may write memory before the latest steps.
    pub others: bool,
    /// The frame pointer at the end, if it is one by the calling convention.
    pub frame: Option<u64>,
    /// The stack pointer at the end.
    pub stack: Option<u64>,
}

/// Who else may have written memory.
#[derive(Debug, Default)]
pub(in crate::recover) struct Sharing {
    /// Whether memory was also written by others: values computed in two ways differed.
    pub contradicts: bool,
    /// Mappings of the program that may be at several addresses, empty if the address is unknown:
    /// nothing in memory is proved, and nothing in them is inferred.
    pub mappings: Vec<Range<u64>>,
    /// Further ones that were found.
    found: Vec<Range<u64>>,
    /// The earliest step from which on nobody else writes memory, if others do before.
    pub alone_from: u32,
}

impl Sharing {
    /// The same, if memory contradicts what was proved.
    pub fn contradicted(self) -> Self {
        Self {
            contradicts: true,
            ..self
        }
    }
}

/// The search for values in one layer.
#[derive(Debug, Default)]
pub(in crate::recover) struct Solver<L> {
    pub built: Built,
    pub cells: Cells,
    /// Accesses that are not proved to have missed a cell.
    barriers: Barriers,
    watchers: Watchers,
    /// Events that may be connected now: more is known of their cells.
    pending: Vec<u32>,
    /// Values before signals that are the same after them.
    kept: Vec<Same>,
    /// Operations of stores that were seen at addresses that are not multiples of their sizes.
    unaligned: NumberSet<u32>,
    pub sharing: Sharing,
    lessons: Lessons,
    layer: L,
}

impl Solver<Proof> {
    /// Starts with nothing built.
    pub fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            ..Self::default()
        }
    }

    /// Takes note of the accesses that were built since.
    pub fn take_accesses(&mut self) {
        for number in self.barriers.len()..self.built.accesses.len() {
            let writes = self.built.accesses[number].kind != AccessKind::Load;
            self.barriers.push(writes);
            self.watchers.grow(number + 1);
        }
    }
}

impl<L: Layer> Solver<L> {
    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.built.bytes()
            + self.cells.bytes()
            + self.barriers.bytes()
            + self.watchers.bytes()
            + self.layer.inference().map_or(0, Inference::bytes)
    }

    /// Queues the relations of some operations.
    fn ask_again(&mut self, is_wanted: impl Fn(u32) -> bool) {
        for relation in 0..self.built.graph.relations.len() as u32 {
            if is_wanted(self.built.graph.relations[relation as usize].op) {
                self.built.graph.enqueue(relation);
            }
        }
    }

    /// Passes facts on until nothing changes; `None` if it was cancelled, in which case the next
    /// call continues.
    pub fn run(&mut self, given: &Given<'_>, cancel: &Cancel) -> Option<()> {
        let mut count = 0_u32;
        loop {
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) && cancel.is_requested() {
                return None;
            }
            if let Some(relation) = self.built.graph.next() {
                self.visit(relation, given);
            } else if let Some(event) = self.pending.pop() {
                self.relink(event, given);
            } else if !self.pass_kept_frames() {
                return Some(());
            }
        }
    }

    fn visit(&mut self, number: u32, given: &Given<'_>) {
        let relation = self.built.graph.relations[number as usize];
        let op = match relation.op {
            SAME_BY_CONVENTION if self.layer.inference().is_none() => return,
            SYSTEM_CALL => return self.system_call(number, given),
            SIGNAL_FRAME => return self.signal_frame(number, given),
            SIGNAL_ARGUMENTS => return self.signal_arguments(number, given),
            ARGUMENTS => {
                let call = self.built.graph.relations.get(number as usize + 1);
                if call.is_some_and(|call| call.op == SYSTEM_CALL) {
                    self.system_call(number + 1, given);
                }
                return;
            }
            CLEARS_BLOCK => {
                // More is known of its address.
                let cleared = self
                    .built
                    .graph
                    .tag(number, free_place(AccessKind::ClearBlock));
                return self.wake(cleared, given);
            }
            op => given.templates.op(op),
        };
        if op.access().is_some() {
            return self.access(number, op, given);
        }
        let value = |place: usize, operand: Operand| match relation.nodes[place] {
            NONE => match operand {
                Operand::Constant(value) => Bits::known(value),
                Operand::Location(_) => Bits::UNKNOWN,
            },
            node => self.built.graph.bits(node),
        };
        let mut values = Values {
            d: self.built.graph.bits(relation.nodes[RESULT]),
            a: value(1, op.operands[0]),
            b: value(2, op.operands[1]),
            c: value(3, op.operands[2]),
        };
        let before = values;
        if refine(op.operation, &mut values).is_err() {
            self.built.graph.conflict(relation.nodes[RESULT]);
            return;
        }
        // Learning may reach this relation again through another occurrence of the same node.
        for (node, old, new) in [
            (relation.nodes[0], before.d, values.d),
            (relation.nodes[1], before.a, values.a),
            (relation.nodes[2], before.b, values.b),
            (relation.nodes[3], before.c, values.c),
        ] {
            if old != new {
                if node == NONE {
                    self.built.graph.conflict(relation.nodes[RESULT]);
                } else {
                    self.learn(node, new, number);
                }
            }
        }
    }

    pub(in crate::recover) fn learn(&mut self, node: u32, bits: Bits, but: u32) {
        if self.lessons.cut.binary_search(&node).is_err() {
            self.built.graph.learn(node, bits, but);
        }
    }

    /// Updates an access whose address or data may be better known now.
    fn access(&mut self, relation: u32, op: &Op, given: &Given<'_>) {
        let kind = if op.is_store() {
            AccessKind::Store
        } else {
            AccessKind::Load
        };
        let number = self.built.graph.tag(relation, free_place(kind));
        if self.built.accesses[number as usize].place == Place::Open {
            let address = self.address(relation, op);
            // A store that changes memory elsewhere is like one to an unknown address.
            let known = |at: &u64| !(op.is_store() && given.memory.is_alias(*at));
            match address.filter(known) {
                Some(address) => self.place(number, address, op, given),
                // More is known of it: it may have missed the cells that wait for it.
                None => self.wake(number, given),
            }
            return;
        }
        if let Place::Cells(first, count) = self.built.accesses[number as usize].place {
            let kind = self.kind(relation, op);
            for event in first..first + u32::from(count) {
                if self.cells.events[event as usize].kind != kind {
                    self.cells.events[event as usize].kind = kind;
                    self.reconnect(event, given);
                } else {
                    self.spread(event, given);
                }
            }
        }
    }

    /// The address of an access, if it is known.
    pub fn address(&self, relation: u32, op: &Op) -> Option<u64> {
        let access = || {
            let kind = if op.is_store() {
                AccessKind::Store
            } else {
                AccessKind::Load
            };
            self.built.graph.tag(relation, free_place(kind))
        };
        if let Some(found) = self.built.recorded(access) {
            return Some(found);
        }
        let base = match op.operands[0] {
            Operand::Constant(base) => base,
            Operand::Location(_) => {
                // Bits 63:56 may be a tag, which is not part of the address.
                let wanted = low(if op.narrow { 64 } else { 56 });
                let node = self.built.graph.relations[relation as usize].nodes[BASE];
                let bits = self.built.graph.bits(node);
                (bits.mask & wanted == wanted).then_some(bits.value)?
            }
        };
        let address = base.wrapping_add(op.displacement);
        Some(if op.narrow {
            address & u64::from(u32::MAX)
        } else {
            untagged(address)
        })
    }

    fn kind(&self, relation: u32, op: &Op) -> Kind {
        let predicate = match op.operands[2] {
            Operand::Constant(value) => Some(value != 0),
            Operand::Location(_) => {
                let node = self.built.graph.relations[relation as usize].nodes[PREDICATE];
                is_set(self.built.graph.bits(node))
            }
        };
        match (predicate, op.is_store()) {
            (Some(true), true) => Kind::Store,
            (None, true) => Kind::MayStore,
            (Some(true), false) => Kind::Load,
            (Some(false), _) | (None, false) => Kind::Nothing,
        }
    }

    /// Puts an access into its cells.
    fn place(&mut self, number: u32, address: u64, op: &Op, given: &Given<'_>) {
        let size = u32::from(op.access().unwrap_or(0));
        let begin = (address & 7) as u32;
        let granules = [address >> 3, address.wrapping_add(u64::from(size) - 1) >> 3];
        let count = if granules[0] == granules[1] { 1 } else { 2 };
        let cells = granules.map(|granule| self.cells.at(granule, given.memory, given.is_final));
        let relation = self.built.accesses[number as usize].relation;
        let kind = self.kind(relation, op);
        if op.is_store() && address & u64::from(size - 1) != 0 {
            self.unaligned
                .insert(self.built.graph.relations[relation as usize].op);
        }
        let cells = &cells[..count];
        if cells.iter().all(Option::is_none) {
            self.built.accesses[number as usize].place = Place::Elsewhere;
            if let Some(inference) = self.layer.inference_mut() {
                inference.elsewhere.push(number);
            }
        } else if cells.iter().any(Option::is_none) {
            // Only part of it is in memory: its effect there is left open.
            return;
        } else {
            let first = self.cells.events.len() as u32;
            let covered = low(size) << begin;
            let data = if op.is_store() { DATA } else { RESULT };
            let node = self.built.graph.relations[relation as usize].nodes[data];
            self.built.accesses[number as usize].place = Place::Cells(first, count as u8);
            for (index, cell) in cells.iter().flatten().enumerate() {
                if !op.direct {
                    self.reached_by_computed(number, *cell, given);
                }
                let shift = begin as i8 - 8 * index as i8;
                let at = self.cells.insert(Event {
                    access: number,
                    cell: *cell,
                    node,
                    barrier: NONE,
                    bytes: (covered >> (8 * index)) as u8,
                    shift,
                    kind,
                    link: Link::Blocked,
                });
                debug_assert!(at > 0, "the final contents come first");
            }
        }
        let place = self.built.accesses[number as usize].place;
        self.resolved(number, given);
        if let Place::Cells(first, count) = place {
            for event in first..first + u32::from(count) {
                self.reconnect(event, given);
            }
        }
    }
}
