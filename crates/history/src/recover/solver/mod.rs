//! Facts passed between nodes and memory until nothing changes.
//!
//! There are two layers. The first contains only what is proved: an access with an unknown address
//! may have gone anywhere. The second adds what follows by the rules of the calling convention and
//! of [`crate::recover::memory::regions`]. What the second layer finds never reaches the first.

mod bounds;
mod connections;
pub(super) mod kept_frames;
mod kernel;
mod may_write;
pub(super) mod refine;
mod sites;

use crate::recover::bits::{Bits, low};
use crate::recover::execution::template::{
    ARGUMENTS, CLEARS_BLOCK, Op, SAME_BY_CONVENTION, SIGNAL_ARGUMENTS, SIGNAL_FRAME, SYSTEM_CALL,
    Templates,
};
use crate::recover::facts::final_state::FinalMemory;
use crate::recover::graph::nodes::{Graph, NONE, RESULT};
use crate::recover::kernel::signals::Frames;
use crate::recover::memory::barriers::{Barriers, Watchers};
use crate::recover::memory::cells::{
    Cells, Connection, Event, GranuleHasher, Kind, Link, untagged,
};
use crate::recover::memory::lifetimes::{Lifetimes, Reached};
use crate::recover::memory::regions::{CLASSES, Class, Regions};
use armsnap_arch::semantics::Operand;
use armsnap_snapshot::stop::Cancel;
use bounds::Bounds;
use kept_frames::KeptFrames;
use refine::{Values, is_set, refine};
use sites::Sites;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::ops::Range;

/// The base of the address, and the data of a store or the number of a system call, among the nodes
/// of accesses.
pub(in crate::recover) const BASE: usize = 1;
pub(in crate::recover) const DATA: usize = 2;
const PREDICATE: usize = 3;

/// What is known of where an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Place {
    /// Nothing yet.
    Open,
    /// This many events, from the first on.
    Cells(u32, u8),
    /// Memory that the final state does not have.
    Elsewhere,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum AccessKind {
    Load,
    Store,
    /// Clears a block of memory around an address.
    ClearBlock,
    SystemCall,
    /// What the kernel writes for a signal beyond what is modelled.
    Signal,
    /// An instruction without a model.
    Unmodelled,
    /// What was before is unrelated to what is after.
    Lost,
}

impl AccessKind {
    /// The kind of an operation, if it is an access.
    pub fn of(number: u32, op: &Op) -> Option<Self> {
        match number {
            SYSTEM_CALL => Some(Self::SystemCall),
            CLEARS_BLOCK => Some(Self::ClearBlock),
            _ if op.is_store() => Some(Self::Store),
            _ => op.access().map(|_| Self::Load),
        }
    }
}

/// A load, a store, or something else that may write memory; numbered backward in time.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Access {
    pub relation: u32,
    pub step: u32,
    pub kind: AccessKind,
    pub place: Place,
}

/// The rules in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Layer {
    Proved,
    Inferred,
}

/// What the solver reads.
pub(in crate::recover) struct Known<'a> {
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

/// What the second layer knew when it had nothing left to pass on.
#[derive(Debug)]
pub(in crate::recover) struct Settled {
    masks: Vec<u64>,
    connections: Vec<Connection>,
    elsewhere: usize,
    /// How many words of the stack computed addresses were known to reach.
    reached: usize,
}

/// The state of the search for values.
#[derive(Debug, Default)]
pub(in crate::recover) struct Solver {
    pub graph: Graph,
    pub cells: Cells,
    /// The first stands for the final contents.
    pub accesses: Vec<Access>,
    pub barriers: [Barriers; CLASSES],
    pub watchers: Watchers,
    /// Events that may be connected now: more is known of their cells.
    pub pending: Vec<u32>,
    pub kept_frames: KeptFrames,
    /// Operations of stores that were seen at addresses that are not multiples of their sizes.
    pub unaligned: HashSet<u32, BuildHasherDefault<GranuleHasher>>,
    pub regions: Regions,
    /// The signal frames in the final memory, once one is searched for.
    pub frames: Option<Frames>,
    pub sites: Sites,
    pub bounds: Bounds,
    /// Nodes of the stack pointer, each with the next access after the instruction that left it.
    pub stack_pointers: Vec<(u32, u32)>,
    /// Set once the stack pointer is known as far as the second layer knows it without memory.
    pub lifetimes: Option<Lifetimes>,
    /// Computed addresses known from earlier attempts.
    pub reached: Reached,
    /// Whether a link was found to cross a store that may have written its cell.
    pub overtaken: bool,
    /// Whether no word of the stack is assumed to be a slot, after attempts ended in
    /// contradictions.
    pub without_slots: bool,
    /// Whether the stack pointer is set in other ways than to allocate and free in a function.
    pub switches_stack: bool,
    pub layer: Option<Layer>,
    /// By node: the bits known when everything proved was known.
    pub proved: Vec<u64>,
    pub proved_events: usize,
    /// How these events were connected then.
    pub proved_connections: Vec<Connection>,
    /// Accesses that only the second layer found to be outside memory.
    pub elsewhere: Vec<u32>,
    /// The state of the second layer before inferring where instructions store.
    pub settled: Option<Settled>,
    /// Whether memory was also written by others: values computed in two ways differed.
    pub memory_contradicts: bool,
    /// Mappings of the program that may be at several addresses, empty if the address is unknown:
    /// nothing in memory is proved, and nothing in them is inferred.
    pub shared_mappings: Vec<Range<u64>>,
    /// Further ones that were found.
    pub found_shared: Vec<Range<u64>>,
    /// The earliest step from which on nobody else writes memory, if others do before.
    pub alone_from: u32,
    /// Nodes that the second layer leaves open, because it contradicted itself there.
    pub cut: Vec<u32>,
    /// Recorded addresses, by access.
    pub recorded: Vec<(u32, u64)>,
    /// Nodes of the stack pointer with values that are inferred in another way.
    pub hinted: Vec<(u32, u64)>,
    /// Nodes whose bits 63:56 may be a tag as far as is proved; in the second layer they are not.
    pub tagged: Vec<u32>,
}

impl Solver {
    pub fn bytes(&self) -> usize {
        self.graph.bytes()
            + self.cells.bytes()
            + self.accesses.capacity() * (size_of::<Access>() + size_of::<u32>())
            + self.barriers.iter().map(Barriers::bytes).sum::<usize>()
            + self.proved.capacity() * size_of::<u64>()
            + self.proved_connections.capacity() * size_of::<Connection>()
            + self.watchers.bytes()
            + self.stack_pointers.capacity() * size_of::<(u32, u32)>()
            + self.lifetimes.as_ref().map_or(0, Lifetimes::bytes)
    }

    /// Adds an access; relations that come with it are queued.
    pub fn add_access(&mut self, kind: AccessKind, op: u32, nodes: [u32; 4], step: u32) {
        if self.accesses.is_empty() {
            self.push_access(Access {
                relation: NONE,
                step: 0,
                kind: AccessKind::Load,
                place: Place::Elsewhere,
            });
        }
        let relation = match kind {
            AccessKind::Unmodelled | AccessKind::Lost => NONE,
            AccessKind::Signal => {
                // The relation built just before.
                let relation = self.graph.relations.len() as u32 - 1;
                let number = self.accesses.len() as u32;
                self.graph.set_tag(relation, free_place(kind), number);
                relation
            }
            _ => {
                let relation = self.graph.add_relation(op, nodes);
                let number = self.accesses.len() as u32;
                self.graph.set_tag(relation, free_place(kind), number);
                relation
            }
        };
        self.push_access(Access {
            relation,
            step,
            kind,
            place: Place::Open,
        });
    }

    fn push_access(&mut self, access: Access) {
        let writes = access.kind != AccessKind::Load;
        self.accesses.push(access);
        self.barriers[Class::Anything as usize].push(writes);
        self.watchers.grow(self.accesses.len());
    }

    /// Starts a layer, and forgets what was found in the second one.
    pub fn begin(&mut self, layer: Layer, known: &Known<'_>) {
        self.settled = None;
        self.reached = match self.lifetimes.take() {
            Some(lifetimes) => lifetimes.reached,
            None => std::mem::take(&mut self.reached),
        };
        self.overtaken = false;
        self.without_slots &= layer == Layer::Inferred;
        if self.layer == Some(Layer::Inferred) {
            let (masks, connections) = (
                std::mem::take(&mut self.proved),
                std::mem::take(&mut self.proved_connections),
            );
            self.go_back(&masks, &connections, 0);
            (self.proved, self.proved_connections) = (masks, connections);
        } else if layer == Layer::Inferred {
            self.proved = self.graph.masks();
            self.proved_events = self.cells.events.len();
            self.proved_connections = self.cells.connections();
        }
        self.layer = Some(layer);
        if layer == Layer::Proved {
            return;
        }
        self.find_regions(known);
        self.class_barriers(known);
        self.relink_blocked(known);
        let rests_on_rules = [
            SAME_BY_CONVENTION,
            SYSTEM_CALL,
            SIGNAL_FRAME,
            SIGNAL_ARGUMENTS,
        ];
        self.ask_again(|op| rests_on_rules.contains(&op));
        for at in 0..self.hinted.len() {
            let (node, value) = self.hinted[at];
            if node != NONE {
                self.learn(node, Bits::known(value), NONE);
            }
        }
        for at in 0..self.tagged.len() {
            let node = self.tagged[at];
            let bits = self.graph.bits(node);
            if bits.mask >> 55 & 1 == 1 {
                let top = Bits::new(!low(56), untagged(bits.value));
                self.learn(node, top, NONE);
            }
        }
    }

    /// Saves what the second layer knows, unless earlier knowledge is saved.
    pub fn settle(&mut self) {
        self.settled.get_or_insert_with(|| Settled {
            masks: self.graph.masks(),
            connections: self.cells.connections(),
            elsewhere: self.elsewhere.len(),
            reached: self.lifetimes.as_ref().map_or(0, |l| l.reached.len()),
        });
    }

    /// Returns to what [`Self::settle`] saved. Returns whether there is any.
    pub fn go_back_to_settled(&mut self, known: &Known<'_>) -> bool {
        let reached = self.lifetimes.as_ref().map_or(0, |l| l.reached.len());
        // Otherwise it rests on assumed slots that are none.
        let Some(settled) = self.settled.take().filter(|s| s.reached == reached) else {
            return false;
        };
        self.go_back(&settled.masks, &settled.connections, settled.elsewhere);
        self.settled = Some(settled);
        self.class_barriers(known);
        self.find_barred();
        // That a system call writes nothing is recorded only in the barriers.
        self.ask_again(|op| op == SYSTEM_CALL);
        true
    }

    /// Everything is solved: from here, only a return to what is proved is possible.
    pub fn forget_settled(&mut self) {
        self.settled = None;
    }

    /// Queues the relations of some operations.
    fn ask_again(&mut self, is_wanted: impl Fn(u32) -> bool) {
        for relation in 0..self.graph.relations.len() as u32 {
            if is_wanted(self.graph.relations[relation as usize].op) {
                self.graph.enqueue(relation);
            }
        }
    }

    /// Forgets what was found since nodes had these bits and events had these connections.
    fn go_back(&mut self, masks: &[u64], connections: &[Connection], elsewhere: usize) {
        self.sites.forget_inferred();
        self.bounds.forget_inferred();
        self.graph.restore(masks);
        for access in &mut self.accesses {
            if matches!(access.place, Place::Cells(event, _) if event as usize >= connections.len())
            {
                access.place = Place::Open;
            }
        }
        for number in self.elsewhere.drain(elsewhere..) {
            self.accesses[number as usize].place = Place::Open;
        }
        self.cells.restore(connections);
        self.watch_again();
    }

    fn find_regions(&mut self, known: &Known<'_>) {
        self.regions.find_statics(known.memory);
        let (cells, hinted) = ((&self.cells, &self.graph), &self.hinted);
        let last = known.stack.filter(|_| known.is_final);
        self.regions
            .find_stack(&self.accesses, cells, known.templates, (hinted, last));
        if let Some(frame) = known.frame.filter(|_| known.is_final) {
            self.regions.find_records(frame, known.memory);
        }
    }

    /// Finds the barriers of the second layer, by class of the cells that they may have written.
    fn class_barriers(&mut self, known: &Known<'_>) {
        for class in Class::INFERRED {
            self.barriers[class as usize] = Barriers::default();
        }
        for number in 0..self.accesses.len() {
            let access = self.accesses[number];
            let open = access.place == Place::Open
                && self.barriers[Class::Anything as usize].contains(number as u32);
            let direct = access.relation != NONE && {
                let relation = &self.graph.relations[access.relation as usize];
                known.templates.op(relation.op).direct
            };
            for class in Class::INFERRED {
                let writes = open && Regions::may_write(&access, direct, class);
                self.barriers[class as usize].push(writes);
            }
        }
    }

    /// Passes facts on until nothing changes; `None` if it was cancelled, in which case the next
    /// call continues.
    pub fn run(&mut self, known: &Known<'_>, cancel: &Cancel) -> Option<()> {
        let mut count = 0_u32;
        loop {
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) && cancel.is_requested() {
                return None;
            }
            if let Some(relation) = self.graph.next() {
                self.visit(relation, known);
            } else if let Some(event) = self.pending.pop() {
                self.relink(event, known);
            } else if !self.pass_kept_frames() {
                return Some(());
            }
        }
    }

    fn visit(&mut self, number: u32, known: &Known<'_>) {
        let relation = self.graph.relations[number as usize];
        let op = match relation.op {
            SAME_BY_CONVENTION if self.layer == Some(Layer::Proved) => return,
            SYSTEM_CALL => return self.system_call(number, known),
            SIGNAL_FRAME => return self.signal_frame(number, known),
            SIGNAL_ARGUMENTS => return self.signal_arguments(number, known),
            ARGUMENTS => {
                let call = self.graph.relations.get(number as usize + 1);
                if call.is_some_and(|call| call.op == SYSTEM_CALL) {
                    self.system_call(number + 1, known);
                }
                return;
            }
            CLEARS_BLOCK => {
                // More is known of its address.
                let cleared = self.graph.tag(number, free_place(AccessKind::ClearBlock));
                return self.wake(cleared, known);
            }
            op => known.templates.op(op),
        };
        if op.access().is_some() {
            return self.access(number, op, known);
        }
        let value = |place: usize, operand: Operand| match relation.nodes[place] {
            NONE => match operand {
                Operand::Constant(value) => Bits::known(value),
                Operand::Location(_) => Bits::UNKNOWN,
            },
            node => self.graph.bits(node),
        };
        let mut values = Values {
            d: self.graph.bits(relation.nodes[RESULT]),
            a: value(1, op.operands[0]),
            b: value(2, op.operands[1]),
            c: value(3, op.operands[2]),
        };
        let before = values;
        if refine(op.operation, &mut values).is_err() {
            self.graph.conflict(relation.nodes[RESULT]);
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
                    self.graph.conflict(relation.nodes[RESULT]);
                } else {
                    self.learn(node, new, number);
                }
            }
        }
    }

    pub(in crate::recover) fn learn(&mut self, node: u32, bits: Bits, but: u32) {
        if self.cut.binary_search(&node).is_err() {
            self.graph.learn(node, bits, but);
        }
    }

    /// Updates an access whose address or data may be better known now.
    fn access(&mut self, relation: u32, op: &Op, known: &Known<'_>) {
        let kind = if op.is_store() {
            AccessKind::Store
        } else {
            AccessKind::Load
        };
        let number = self.graph.tag(relation, free_place(kind));
        if self.accesses[number as usize].place == Place::Open {
            match self.address(relation, op) {
                Some(address) => self.place(number, address, op, known),
                // More is known of it: it may have missed the cells that wait for it.
                None => self.wake(number, known),
            }
            return;
        }
        if let Place::Cells(first, count) = self.accesses[number as usize].place {
            let kind = self.kind(relation, op);
            for event in first..first + u32::from(count) {
                if self.cells.events[event as usize].kind != kind {
                    self.cells.events[event as usize].kind = kind;
                    self.reconnect(event, known);
                } else {
                    self.spread(event, known);
                }
            }
        }
    }

    /// The address of an access, if it is known.
    pub fn address(&self, relation: u32, op: &Op) -> Option<u64> {
        if !self.recorded.is_empty() {
            let kind = if op.is_store() {
                AccessKind::Store
            } else {
                AccessKind::Load
            };
            let number = self.graph.tag(relation, free_place(kind));
            let found = self
                .recorded
                .binary_search_by_key(&number, |(access, _)| *access);
            if let Ok(found) = found {
                return Some(self.recorded[found].1);
            }
        }
        let base = match op.operands[0] {
            Operand::Constant(base) => base,
            Operand::Location(_) => {
                // Bits 63:56 may be a tag, which is not part of the address.
                let wanted = low(if op.narrow { 64 } else { 56 });
                let node = self.graph.relations[relation as usize].nodes[BASE];
                let bits = self.graph.bits(node);
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
                let node = self.graph.relations[relation as usize].nodes[PREDICATE];
                is_set(self.graph.bits(node))
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
    fn place(&mut self, number: u32, address: u64, op: &Op, known: &Known<'_>) {
        let size = u32::from(op.access().unwrap_or(0));
        let begin = (address & 7) as u32;
        let granules = [address >> 3, address.wrapping_add(u64::from(size) - 1) >> 3];
        let count = if granules[0] == granules[1] { 1 } else { 2 };
        let cells = granules.map(|granule| self.cells.at(granule, known.memory, known.is_final));
        let relation = self.accesses[number as usize].relation;
        let kind = self.kind(relation, op);
        if op.is_store() && address & u64::from(size - 1) != 0 {
            self.unaligned
                .insert(self.graph.relations[relation as usize].op);
        }
        let cells = &cells[..count];
        if cells.iter().all(Option::is_none) {
            self.accesses[number as usize].place = Place::Elsewhere;
            if self.layer == Some(Layer::Inferred) {
                self.elsewhere.push(number);
            }
        } else if cells.iter().any(Option::is_none) {
            // Only part of it is in memory: its effect there is left open.
            return;
        } else {
            let first = self.cells.events.len() as u32;
            let covered = low(size) << begin;
            let data = if op.is_store() { DATA } else { RESULT };
            let node = self.graph.relations[relation as usize].nodes[data];
            self.accesses[number as usize].place = Place::Cells(first, count as u8);
            for (index, cell) in cells.iter().flatten().enumerate() {
                if !op.direct {
                    self.reached_by_computed(number, *cell, known);
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
        let place = self.accesses[number as usize].place;
        self.resolved(number, known);
        if let Place::Cells(first, count) = place {
            for event in first..first + u32::from(count) {
                self.reconnect(event, known);
            }
        }
    }

    /// Whether only the second layer knows where an access went.
    pub fn is_placed_by_inference(&self, access: u32) -> bool {
        match self.accesses[access as usize].place {
            Place::Cells(event, _) => event as usize >= self.proved_events,
            Place::Open | Place::Elsewhere => false,
        }
    }

    /// Makes the second layer leave open the nodes where facts contradicted each other in it.
    /// Returns whether there are new ones.
    pub fn cut_conflicts(&mut self) -> bool {
        let before = self.cut.len();
        let conflicts = self.graph.conflicts.iter().copied();
        self.cut.extend(conflicts.filter(|&node| node != NONE));
        self.cut.sort_unstable();
        self.cut.dedup();
        self.cut.len() > before
    }
}

/// The index of an unused node of an access, where the number of the access is kept.
pub(in crate::recover) const fn free_place(kind: AccessKind) -> usize {
    match kind {
        AccessKind::Load | AccessKind::Signal => DATA,
        AccessKind::SystemCall => PREDICATE,
        _ => RESULT,
    }
}
