//! Where a value came from, and what became of it.

use super::Solved;
use crate::recover::bits::untagged;
use crate::recover::execution::template::{SAME_BY_CONVENTION, SYSTEM_CALL};
use crate::recover::graph::build::Sink;
use crate::recover::graph::nodes::{BASE, DATA, NONE, RESULT};
use crate::recover::graph::walk::INTERVAL;
use crate::recover::memory::access::{AccessKind, Place, free_place};
use crate::recover::memory::cells::{Kind, byte_bits};
use crate::recover::status::{Known, Level};
use crate::timeline::Position;
use armsnap_arch::semantics::{Control, Location, Operation};
use armsnap_snapshot::stop::Cancel;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// A requested value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The value of a location.
    Location(Location),
    /// The byte at an address.
    Byte(u64),
}

/// How an instruction contributes to the path of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It computed a value from others.
    Computed,
    /// It is a constant of the instruction.
    Constant,
    /// It loaded the value; the address, if known.
    Loaded(Option<u64>),
    /// It stored the value; the address, if known.
    Stored(Option<u64>),
    /// The kernel returned it.
    SystemCall,
    /// What it left is unknown.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Computed => f.write_str("computed"),
            Self::Constant => f.write_str("constant"),
            Self::Loaded(Some(address)) => write!(f, "loaded from {address:#x}"),
            Self::Loaded(None) => f.write_str("loaded"),
            Self::Stored(Some(address)) => write!(f, "stored to {address:#x}"),
            Self::Stored(None) => f.write_str("stored"),
            Self::SystemCall => f.write_str("returned by the kernel"),
            Self::Unknown => f.write_str("left by an instruction without a model"),
        }
    }
}

impl Cause {
    /// Whether it only details how an instruction obtained a result that `other` already describes.
    fn is_within(self, other: Self) -> bool {
        let computed = |cause| matches!(cause, Self::Computed | Self::Constant);
        computed(self) && (computed(other) || matches!(other, Self::Loaded(_)))
    }
}

/// An instruction on the path of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// The instruction.
    pub position: Position,
    /// What it did.
    pub cause: Cause,
    /// The value that it left, if known.
    pub value: Option<Known<u64>>,
}

/// Why the path of a value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole value came from constants, read-only memory or the kernel.
    Reached,
    /// Something at the position may have written the memory that it was loaded from.
    Overwritten(Position),
    /// The address that it was loaded from is unknown at the position.
    AddressUnknown(Position),
    /// The contents before the instruction at the position are unrelated to the value: a gap or an
    /// exception comes before that instruction, or it has no model.
    Lost(Position),
    /// It is older than the explored part of the history, or than the history.
    Older,
    /// The list has reached its maximum length.
    Long,
    /// It is the stack pointer, which functions only moved by constants, as far back as it was
    /// followed.
    Stack,
}

/// Where a value came from, or what became of it: instructions, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The instructions.
    pub instructions: Vec<Contribution>,
    /// The number of instructions between them that only moved the stack pointer by a constant,
    /// saved a register in a frame, or restored it.
    pub frames: usize,
    /// Why there are no more.
    pub end: End,
}

/// What is older than the explored part of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::recover) struct Rest {
    /// The values before it that lead on.
    pub values: Vec<What>,
    /// Whether they are only the stack and frame pointers, moved by constants.
    pub is_stack: bool,
}

impl Way {
    /// A path without instructions.
    pub(in crate::recover) fn new() -> Self {
        Self {
            end: End::Reached,
            ..Self::nowhere()
        }
    }

    /// The path of a value that is out of reach.
    pub(in crate::recover) fn nowhere() -> Self {
        Self {
            instructions: Vec::new(),
            frames: 0,
            end: End::Older,
        }
    }
}

/// Collects what a step builds, in the order in which it is built: backward.
#[derive(Default)]
struct StepLog {
    operations: Vec<Operated>,
    /// Locations unrelated to their contents before the step, and their nodes.
    lost: Vec<(usize, u32)>,
    /// The location whose node is wanted and not found yet.
    location: Option<usize>,
    /// Its node.
    found: Option<u32>,
}

/// An operation that left a node.
struct Operated {
    op: u32,
    /// Its result and operands.
    nodes: [u32; 4],
    /// Its access, if it is one.
    access: Option<u32>,
}

impl Sink for StepLog {
    fn relation(&mut self, op: u32, nodes: [u32; 4]) {
        self.operations.push(Operated {
            op,
            nodes,
            access: None,
        });
    }

    fn access(&mut self, op: u32, nodes: [u32; 4], _: u32, access: u32) {
        self.operations.push(Operated {
            op,
            nodes,
            access: Some(access),
        });
    }

    fn found(&mut self, location: usize, node: u32) {
        if self.location == Some(location) {
            (self.location, self.found) = (None, Some(node));
        }
    }

    fn left(&mut self, node: u32, op: u32) {
        self.relation(op, [node, NONE, NONE, NONE]);
    }

    fn lost(&mut self, location: usize, node: u32) {
        self.lost.push((location, node));
    }
}

/// The most steps for which only the stack and frame pointers are followed.
const MOST_OF_STACK: u32 = 1 << 14;

/// A store that a value was loaded from: its address, the node of its data, and its operation.
#[derive(Clone, Copy)]
struct Stored {
    address: u64,
    node: u32,
    op: u32,
    /// Whether it saved the register that was loaded.
    saves: bool,
}

/// What is searched for, going back.
#[derive(Default)]
struct OriginSearch {
    nodes: HashSet<u32>,
    /// Stores that a value was loaded from, by step.
    stores: BTreeMap<u32, Stored>,
    /// Nodes of the stack and frame pointers that are followed.
    stack: HashSet<u32>,
    /// Steps since anything else was followed.
    only_stack: u32,
    /// Bytes that were not stored since the first step.
    older: Vec<u64>,
}

impl OriginSearch {
    fn add(&mut self, nodes: &[u32]) {
        self.nodes
            .extend(nodes.iter().filter(|&&node| node != NONE));
    }

    /// Whether only the stack and frame pointers have been followed for long.
    fn follows_only_stack(&mut self) -> bool {
        let only = self.is_stack();
        self.only_stack = if only { self.only_stack + 1 } else { 0 };
        self.only_stack > MOST_OF_STACK
    }

    /// Whether only the stack and frame pointers are followed.
    fn is_stack(&self) -> bool {
        let mut stores = self.stores.values();
        self.nodes.is_subset(&self.stack) && stores.all(|store| self.stack.contains(&store.node))
    }
}

impl Solved<'_> {
    /// Finds where a value before a step came from, in at most `most` instructions, which are added to
    /// those of a way. Also returns what is older. `None` if it was cancelled.
    pub fn origin(
        &mut self,
        step: u32,
        what: What,
        (level, most): (Level, usize),
        mut way: Way,
        cancel: &Cancel,
    ) -> Option<(Way, Rest)> {
        way.end = End::Reached;
        let walks = self.walks;
        let mut built = StepLog::default();
        let mut search = OriginSearch::default();
        let Some(mut walk) = self.walks.to(step, &mut built) else {
            way.end = End::Older;
            return Some((way, Rest::default()));
        };
        built = StepLog::default();
        match what {
            What::Location(location) => match walk.builder.current().get(location.index()) {
                Some(&NONE) => built.location = Some(location.index()),
                Some(&node) => search.add(&[node]),
                None => {}
            },
            What::Byte(address) => {
                let access = self.access_before(step);
                let address = untagged(address);
                self.stored(address, access, level, &mut search, &mut way);
            }
        }
        loop {
            if built.location.is_none() && search.nodes.is_empty() && search.stores.is_empty() {
                let values = search.older.into_iter().map(What::Byte).collect();
                return Some((
                    way,
                    Rest {
                        values,
                        is_stack: false,
                    },
                ));
            }
            if way.instructions.len() >= most {
                way.end = End::Long;
                return Some((way, Rest::default()));
            }
            if built.location.is_none() && search.follows_only_stack() {
                way.end = End::Stack;
                return Some((way, Rest::default()));
            }
            if walk.next.is_multiple_of(INTERVAL) && cancel.is_requested() {
                return None;
            }
            let wanted = built.location;
            let Some(step) = walks.on(&mut walk, &mut built) else {
                break;
            };
            if let Some(store) = search.stores.remove(&step) {
                let value = self.solver.known(store.node);
                let cause = Cause::Stored(Some(store.address));
                match store.saves {
                    true => way.frames += 1,
                    false => self.contribute(&mut way, step, cause, value, level),
                }
                search.add(&[store.node]);
            }
            for (location, node) in built.lost.drain(..) {
                let unread = built.found.is_none() && wanted == Some(location);
                if unread {
                    built.location = None;
                }
                if unread || search.nodes.remove(&node) {
                    self.lost(&mut way, step, location, level);
                }
            }
            search.add(built.found.take().as_slice());
            for operated in std::mem::take(&mut built.operations) {
                if search.nodes.remove(&operated.nodes[RESULT]) {
                    self.operated(step, &operated, level, &mut search, &mut way);
                }
            }
        }
        if way.end == End::Reached {
            way.end = End::Older;
        }
        let current = walk.builder.current().iter().enumerate();
        let locations = current
            .filter(|(index, node)| built.location == Some(*index) || search.nodes.contains(node));
        let locations = locations.map(|(index, _)| What::Location(Location::kept_at(index)));
        let older = search.older.iter().map(|&address| What::Byte(address));
        let values = locations.chain(older).collect();
        let is_stack = search.older.is_empty() && built.location.is_none() && search.is_stack();
        Some((way, Rest { values, is_stack }))
    }

    /// Follows a value to the operation that left it.
    fn operated(
        &mut self,
        step: u32,
        operated: &Operated,
        level: Level,
        search: &mut OriginSearch,
        way: &mut Way,
    ) {
        let [result, operands @ ..] = operated.nodes;
        let value = self.solver.known(result);
        let op = *self.templates().op(operated.op);
        let mut moves = op.moves_frame();
        let cause = match operated.access {
            _ if operated.op == SYSTEM_CALL => Cause::SystemCall,
            Some(access) => {
                let relation = self.solver.built.accesses[access as usize].relation;
                let address = self.solver.address(relation, &op);
                match address {
                    Some(address) => {
                        let from = self.stored(address, access + 1, level, search, way);
                        if let Some(store) = from
                            && op.restores(self.templates().op(store.op))
                        {
                            moves = true;
                            store.saves = true;
                            let node = store.node;
                            if op.is_frame_pointer() {
                                search.stack.insert(node);
                            }
                        }
                    }
                    None => {
                        if let Some(position) = self.steps().position(step) {
                            way.end = End::AddressUnknown(position);
                        }
                        search.add(&[operated.nodes[BASE]]);
                    }
                }
                Cause::Loaded(address)
            }
            None if op.operation == Operation::Unknown => Cause::Unknown,
            None => {
                search.add(&operands);
                match operands {
                    [NONE, NONE, NONE] => Cause::Constant,
                    _ => Cause::Computed,
                }
            }
        };
        if operated.access.is_none() && moves {
            search.stack.extend(operands);
        }
        // The first one is what was requested.
        if moves && !way.instructions.is_empty() {
            way.frames += 1;
            return;
        }
        self.contribute(way, step, cause, value, level);
    }

    /// Follows a value to a step before which the location is unrelated to it.
    fn lost(&self, way: &mut Way, step: u32, location: usize, level: Level) {
        let template = self.steps().template(self.templates(), step);
        if template.is_some_and(|template| template.control == Control::SystemCall) && location == 0
        {
            self.contribute(way, step, Cause::SystemCall, None, level);
        } else if let Some(position) = self.steps().position(step) {
            way.end = End::Lost(position);
        }
    }

    fn contribute(
        &self,
        way: &mut Way,
        step: u32,
        cause: Cause,
        value: Option<Known<u64>>,
        level: Level,
    ) {
        if let Some(position) = self.steps().position(step) {
            // Intermediate results of an instruction belong to its result.
            let last = way.instructions.last();
            if last.is_some_and(|last| last.position == position && cause.is_within(last.cause)) {
                return;
            }
            way.instructions.push(Contribution {
                position,
                cause,
                value: value.filter(|known| level.shows(known.status)),
            });
        }
    }

    /// Finds the store that left the byte at an address before an access.
    fn stored<'s>(
        &mut self,
        address: u64,
        access: u32,
        level: Level,
        search: &'s mut OriginSearch,
        way: &mut Way,
    ) -> Option<&'s mut Stored> {
        if self.facts.memory.is_constant(address) {
            return None;
        }
        let class = self.solver.class_at(address >> 3, level);
        let by = 8 * (address & 7);
        let mut found = None;
        if let Some(cell) = self.solver.cells.find(address >> 3) {
            let order = &self.solver.cells.all[cell as usize].events;
            let events = &self.solver.cells.events;
            let older = order.place(access);
            found = order
                .from(older)
                .map(|event| events[event as usize])
                .find(|event| {
                    matches!(event.kind, Kind::Store | Kind::MayStore)
                        && byte_bits(event.bytes) >> by & 1 == 1
                });
        }
        let end = found.map_or(self.solver.built.accesses.len() as u32, |event| {
            event.access
        });
        let (narrow, between) = (self.templates().is_narrow(), access..end);
        if let Some(barrier) = self
            .solver
            .first_barrier((class, address >> 3), narrow, between)
        {
            let step = self.solver.built.accesses[barrier as usize].step;
            if let Some(position) = self.steps().position(step) {
                way.end = End::Overwritten(position);
            }
            return None;
        }
        match found {
            Some(event) if event.kind == Kind::Store => {
                let access = self.solver.built.accesses[event.access as usize];
                let relation = self.solver.built.graph.relations[access.relation as usize];
                let store = Stored {
                    address,
                    node: relation.nodes[DATA],
                    op: relation.op,
                    saves: false,
                };
                search.stores.insert(access.step, store);
                return search.stores.get_mut(&access.step);
            }
            Some(event) => {
                let step = self.solver.built.accesses[event.access as usize].step;
                if let Some(position) = self.steps().position(step) {
                    way.end = End::Overwritten(position);
                }
            }
            None => {
                way.end = End::Older;
                search.older.push(address);
            }
        }
        None
    }

    /// Finds what became of a value before a step: at most `most` instructions that used it, or
    /// what was computed from it. `None` if it was cancelled.
    pub fn uses(
        &mut self,
        step: u32,
        location: Location,
        (level, most): (Level, usize),
        cancel: &Cancel,
    ) -> Option<Way> {
        let mut way = Way {
            instructions: Vec::new(),
            frames: 0,
            end: End::Reached,
        };
        let walk = self.walks.to(step, &mut StepLog::default());
        let node = walk.and_then(|walk| walk.builder.current().get(location.index()).copied());
        let Some(node) = node.filter(|&node| node != NONE) else {
            return Some(way);
        };
        // Relations by number, the earliest in time last.
        let (mut nodes, mut seen) = (vec![node], HashSet::from([node]));
        let mut relations = BTreeSet::new();
        'nodes: while let Some(node) = nodes.pop() {
            for (relation, place) in self.solver.built.graph.places(node) {
                if relations.len() > most * 4 {
                    way.end = End::Long;
                    break 'nodes;
                }
                if cancel.is_requested() {
                    return None;
                }
                let what = self.solver.built.graph.relations[relation as usize];
                if place == RESULT || what.op == SAME_BY_CONVENTION {
                    continue;
                }
                relations.insert(relation);
                let next = if self.templates().op(what.op).is_store() {
                    self.loads_of(relation, most * 4)
                } else {
                    vec![what.nodes[RESULT]]
                };
                nodes.extend(next.into_iter().filter(|&n| n != NONE && seen.insert(n)));
            }
        }
        for relation in relations.into_iter().rev() {
            if cancel.is_requested() {
                return None;
            }
            let Some(at) = self.step_of(relation).filter(|&at| at <= step) else {
                continue;
            };
            if way.instructions.len() == most {
                way.end = End::Long;
                break;
            }
            let what = self.solver.built.graph.relations[relation as usize];
            let op = self.templates().op(what.op);
            let address = op.access().and_then(|_| self.solver.address(relation, op));
            let (cause, node) = match AccessKind::of(what.op, op) {
                Some(AccessKind::Store) => (Cause::Stored(address), what.nodes[DATA]),
                Some(AccessKind::ClearBlock) => (Cause::Stored(None), NONE),
                Some(AccessKind::Load) => (Cause::Loaded(address), what.nodes[RESULT]),
                Some(AccessKind::SystemCall) => (Cause::SystemCall, what.nodes[RESULT]),
                _ => (Cause::Computed, what.nodes[RESULT]),
            };
            let value = self.solver.known(node);
            self.contribute(&mut way, at, cause, value, level);
        }
        Some(way)
    }

    /// Returns the data of the next loads of what a store wrote, at most `most` for each cell.
    fn loads_of(&self, relation: u32, most: usize) -> Vec<u32> {
        let number = self.solver.built.graph.tag(relation, RESULT);
        let Place::Cells(first, count) = self.solver.built.accesses[number as usize].place else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for event in first..first + u32::from(count) {
            let event = self.solver.cells.events[event as usize];
            let order = &self.solver.cells.all[event.cell as usize].events;
            let events = &self.solver.cells.events;
            let at = order.place(event.access);
            let mut open = event.bytes;
            for newer in order.back_from(at).take(most) {
                let newer = events[newer as usize];
                match newer.kind {
                    Kind::Load if newer.bytes & open != 0 => {
                        let relation = self.solver.built.accesses[newer.access as usize].relation;
                        found.push(
                            self.solver.built.graph.relations[relation as usize].nodes[RESULT],
                        );
                    }
                    Kind::Store => open &= !newer.bytes,
                    _ => {}
                }
                if open == 0 {
                    break;
                }
            }
        }
        found
    }

    /// The step at which a relation was built.
    fn step_of(&self, relation: u32) -> Option<u32> {
        // Accesses have their step.
        let what = self.solver.built.graph.relations[relation as usize];
        let op = self.templates().op(what.op);
        if let Some(kind) = AccessKind::of(what.op, op) {
            let tag = self.solver.built.graph.tag(relation, free_place(kind));
            return Some(self.solver.built.accesses[tag as usize].step);
        }
        let walks = self.walks;
        let checkpoints = &walks.first.checkpoints;
        let found = checkpoints.partition_point(|c| c.relations <= relation);
        let interval = found.checked_sub(1)?;
        let checkpoint = &checkpoints[interval];
        let before = checkpoint.relations as usize..relation as usize;
        let own = self.solver.built.graph.relations[before]
            .iter()
            .filter(|r| r.op != SAME_BY_CONVENTION);
        let target = checkpoint.counts.relations + own.count() as u32;
        let mut walk = walks.from(interval as u32)?;
        while walk.builder.counts.relations <= target {
            walks.on(&mut walk, &mut StepLog::default())?;
        }
        walk.next.checked_sub(1)
    }
}
