//! Where a value came from, and what became of it.

use super::bits::Bits;
use super::build::{Builder, Sink};
use super::cells::{Kind, byte_bits, untagged};
use super::final_state::FinalState;
use super::graph::{NONE, RESULT};
use super::solver::{AccessKind, BASE, DATA, Place, free_place};
use super::status::{Known, Level};
use super::template::{SAME_BY_CONVENTION, SYSTEM_CALL};
use super::window::{INTERVAL, Window};
use crate::semantics::{Location, Operation};
use crate::timeline::Position;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A value that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// That of a location.
    Location(Location),
    /// That of the byte at an address.
    Byte(u64),
}

/// How an instruction is part of the way of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It computed a value from others.
    Computed,
    /// It is a constant of the instruction.
    Constant,
    /// It loaded the value; the address, if known.
    Loaded(Option<u64>),
    /// It stored the value.
    Stored(Option<u64>),
    /// The kernel returned it.
    SystemCall,
    /// Nobody knows what it left.
    Unknown,
}

/// An instruction on the way of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The instruction.
    pub position: Position,
    /// What it did.
    pub cause: Cause,
    /// What it left, if that is known.
    pub value: Option<Known<u64>>,
}

/// Why the way of a value is followed no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it came from constants, read-only memory or the kernel.
    Reached,
    /// Something at the position may have written the memory that it was loaded from.
    Overwritten(Position),
    /// The address that it was loaded from is not known at the position.
    AddressUnknown(Position),
    /// It is older than what was looked at, or than history.
    Older,
    /// The list is long enough.
    Long,
}

/// Where a value came from, or what became of it: instructions from the nearest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The instructions.
    pub links: Vec<Link>,
    /// Why there are no more.
    pub end: End,
}

impl Way {
    /// Of a value that is out of reach.
    pub(super) fn nowhere() -> Self {
        Self {
            links: Vec::new(),
            end: End::Older,
        }
    }
}

/// Watches a walk for the instructions that leave some nodes.
#[derive(Default)]
struct Definitions {
    nodes: u32,
    accesses: u32,
    wanted: HashSet<u32>,
    /// Of the step built last: what was left, the operation's nodes, and the access.
    found: Vec<(u32, u32, Option<[u32; 4]>, u32)>,
    location: Option<(usize, u32)>,
}

impl Sink for Definitions {
    fn node(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    fn fact(&mut self, _: u32, _: Bits) {}

    fn relation(&mut self, op: u32, nodes: [u32; 4]) {
        if self.wanted.contains(&nodes[RESULT]) {
            self.found.push((nodes[RESULT], op, Some(nodes), NONE));
        }
    }

    fn access(&mut self, op: u32, nodes: [u32; 4], _: u32) {
        let number = self.accesses;
        self.accesses += 1;
        if self.wanted.contains(&nodes[RESULT]) {
            self.found.push((nodes[RESULT], op, Some(nodes), number));
        }
    }

    fn barrier(&mut self, _: u32, _: bool) {
        self.accesses += 1;
    }

    fn found(&mut self, location: usize, node: u32) {
        if let Some((wanted, found)) = &mut self.location
            && *wanted == location
            && *found == NONE
        {
            *found = node;
        }
    }

    fn left(&mut self, node: u32, op: u32) {
        if self.wanted.contains(&node) {
            self.found.push((node, op, None, NONE));
        }
    }
}

impl Window {
    /// Where a value before a step came from, as at most `most` instructions.
    pub fn origin(
        &mut self,
        facts: &FinalState,
        step: u32,
        what: What,
        level: Level,
        most: usize,
    ) -> Way {
        let mut way = Way {
            links: Vec::new(),
            end: End::Reached,
        };
        let Some(checkpoint) = self.checkpoints.get((step / INTERVAL) as usize) else {
            way.end = End::Older;
            return way;
        };
        let mut builder = Builder::again(checkpoint);
        let mut walk = Definitions {
            nodes: checkpoint.nodes,
            accesses: checkpoint.accesses.max(1),
            ..Definitions::default()
        };
        let first = checkpoint.step;
        for step in first..=step {
            builder.step(&self.through(facts), step, &mut walk);
        }
        // Stores that a value was loaded from, by step: their address and data.
        let mut stores: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        match what {
            What::Location(location) => match builder.current().get(location.index()) {
                Some(&NONE) => walk.location = Some((location.index(), NONE)),
                Some(&node) => {
                    walk.wanted.insert(node);
                }
                None => {}
            },
            What::Byte(address) => {
                let access = self.access_before(step);
                self.stored(
                    facts,
                    untagged(address),
                    access,
                    level,
                    &mut stores,
                    &mut way,
                );
            }
        }
        for step in step + 1..self.course.len() {
            let waits = walk.location.is_some() || !walk.wanted.is_empty() || !stores.is_empty();
            if !waits {
                return way;
            }
            if way.links.len() >= most {
                way.end = End::Long;
                return way;
            }
            if let Some((address, node)) = stores.remove(&step) {
                let value = self.solver.known(node);
                self.link(&mut way, step, Cause::Stored(Some(address)), value, level);
                if node != NONE {
                    walk.wanted.insert(node);
                }
            }
            builder.step(&self.through(facts), step, &mut walk);
            if let Some((_, node)) = walk.location
                && node != NONE
            {
                walk.location = None;
                walk.wanted.insert(node);
            }
            for (node, op, nodes, access) in std::mem::take(&mut walk.found) {
                if !walk.wanted.remove(&node) {
                    continue;
                }
                let value = self.solver.known(node);
                let Some(nodes) = nodes else {
                    let constant = self.templates.op(op).operation != Operation::Unknown;
                    let cause = if constant {
                        Cause::Constant
                    } else {
                        Cause::Unknown
                    };
                    self.link(&mut way, step, cause, value, level);
                    continue;
                };
                if op == SYSTEM_CALL {
                    self.link(&mut way, step, Cause::SystemCall, value, level);
                } else if access == NONE {
                    self.link(&mut way, step, Cause::Computed, value, level);
                    let operands = nodes[1..].iter().copied().filter(|&node| node != NONE);
                    walk.wanted.extend(operands);
                } else {
                    let relation = self.solver.accesses[access as usize].relation;
                    let address = self.solver.address(relation, self.templates.op(op));
                    self.link(&mut way, step, Cause::Loaded(address), value, level);
                    match address {
                        Some(address) => {
                            self.stored(facts, address, access + 1, level, &mut stores, &mut way);
                        }
                        None => {
                            if let Some(position) = self.course.position(step) {
                                way.end = End::AddressUnknown(position);
                            }
                            walk.wanted
                                .extend([nodes[BASE]].into_iter().filter(|&n| n != NONE));
                        }
                    }
                }
            }
        }
        if way.end == End::Reached {
            way.end = End::Older;
        }
        way
    }

    fn link(
        &self,
        way: &mut Way,
        step: u32,
        cause: Cause,
        value: Option<Known<u64>>,
        level: Level,
    ) {
        if let Some(position) = self.course.position(step) {
            way.links.push(Link {
                position,
                cause,
                value: value.filter(|known| level.shows(known.status)),
            });
        }
    }

    /// Finds the store that left the byte at an address before an access.
    fn stored(
        &mut self,
        facts: &FinalState,
        address: u64,
        access: u32,
        level: Level,
        stores: &mut BTreeMap<u32, (u64, u32)>,
        way: &mut Way,
    ) {
        if facts.memory.is_constant(address) {
            return;
        }
        let class = self.solver.class_at(address >> 3, level);
        let by = 8 * (address & 7);
        let mut found = None;
        if let Some(cell) = self.solver.cells.find(address >> 3) {
            let order = &self.solver.cells.all[cell as usize].events;
            let events = &self.solver.cells.events;
            let older = order.partition_point(|&event| events[event as usize].access < access);
            found = order[older..]
                .iter()
                .map(|&event| events[event as usize])
                .find(|event| {
                    matches!(event.kind, Kind::Store | Kind::MayStore)
                        && byte_bits(event.bytes) >> by & 1 == 1
                });
        }
        let end = found.map_or(self.solver.accesses.len() as u32, |event| event.access);
        if let Some(barrier) = self.solver.first_barrier(class, access)
            && barrier < end
        {
            let step = self.solver.accesses[barrier as usize].step;
            if let Some(position) = self.course.position(step) {
                way.end = End::Overwritten(position);
            }
            return;
        }
        match found {
            Some(event) if event.kind == Kind::Store => {
                let access = self.solver.accesses[event.access as usize];
                let node = self.solver.graph.relations[access.relation as usize].nodes[DATA];
                stores.insert(access.step, (address, node));
            }
            Some(event) => {
                let step = self.solver.accesses[event.access as usize].step;
                if let Some(position) = self.course.position(step) {
                    way.end = End::Overwritten(position);
                }
            }
            None => way.end = End::Older,
        }
    }

    /// What became of a value before a step: at most `most` instructions that used it, and what
    /// was computed from it.
    pub fn uses(
        &mut self,
        facts: &FinalState,
        step: u32,
        location: Location,
        level: Level,
        most: usize,
    ) -> Way {
        let mut way = Way {
            links: Vec::new(),
            end: End::Reached,
        };
        let Some(node) = self.node_at(facts, step, location) else {
            return way;
        };
        // Relations by number: the smallest is the last in time.
        let (mut nodes, mut seen) = (vec![node], HashSet::from([node]));
        let mut relations = BTreeSet::new();
        while let Some(node) = nodes.pop() {
            if relations.len() > most * 4 {
                way.end = End::Long;
                break;
            }
            let places: Vec<(u32, usize)> = self.solver.graph.places(node).collect();
            for (relation, place) in places {
                let what = self.solver.graph.relations[relation as usize];
                if place == RESULT || what.op == SAME_BY_CONVENTION {
                    continue;
                }
                relations.insert(relation);
                let next = if self.templates.op(what.op).is_store() {
                    self.loads_of(relation)
                } else {
                    vec![what.nodes[RESULT]]
                };
                nodes.extend(next.into_iter().filter(|&n| n != NONE && seen.insert(n)));
            }
        }
        for relation in relations.into_iter().rev() {
            let Some(at) = self.step_of(facts, relation) else {
                continue;
            };
            if at > step {
                continue;
            }
            if way.links.len() == most {
                way.end = End::Long;
                break;
            }
            let what = self.solver.graph.relations[relation as usize];
            let op = self.templates.op(what.op);
            let address = op.access().and_then(|_| self.solver.address(relation, op));
            let (cause, node) = match (op.access(), op.is_store()) {
                (Some(_), true) => (Cause::Stored(address), what.nodes[DATA]),
                (Some(_), false) => (Cause::Loaded(address), what.nodes[RESULT]),
                _ if what.op == SYSTEM_CALL => (Cause::SystemCall, what.nodes[RESULT]),
                _ => (Cause::Computed, what.nodes[RESULT]),
            };
            let value = self.solver.known(node);
            self.link(&mut way, at, cause, value, level);
        }
        way
    }

    /// The data of the loads that read what a store wrote.
    fn loads_of(&self, relation: u32) -> Vec<u32> {
        let number = self.solver.graph.tag(relation, RESULT);
        let Place::Cells(first, count) = self.solver.accesses[number as usize].place else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for event in first..first + u32::from(count) {
            let event = self.solver.cells.events[event as usize];
            let order = &self.solver.cells.all[event.cell as usize].events;
            let events = &self.solver.cells.events;
            let at = order.partition_point(|&other| events[other as usize].access < event.access);
            let mut open = event.bytes;
            for &newer in order[..at].iter().rev() {
                let newer = events[newer as usize];
                match newer.kind {
                    Kind::Load if newer.bytes & open != 0 => {
                        let relation = self.solver.accesses[newer.access as usize].relation;
                        found.push(self.solver.graph.relations[relation as usize].nodes[RESULT]);
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

    /// The node of a location before a step.
    fn node_at(&self, facts: &FinalState, step: u32, location: Location) -> Option<u32> {
        let checkpoint = self.checkpoints.get((step / INTERVAL) as usize)?;
        let mut builder = Builder::again(checkpoint);
        let mut walk = Definitions {
            nodes: checkpoint.nodes,
            ..Definitions::default()
        };
        for step in checkpoint.step..=step {
            builder.step(&self.through(facts), step, &mut walk);
        }
        let node = *builder.current().get(location.index())?;
        (node != NONE).then_some(node)
    }

    /// The step that a relation was built at.
    fn step_of(&self, facts: &FinalState, relation: u32) -> Option<u32> {
        /// Counts relations.
        struct Count(u32, u32);
        impl Sink for Count {
            fn node(&mut self) -> u32 {
                self.1 += 1;
                self.1 - 1
            }
            fn fact(&mut self, _: u32, _: Bits) {}
            fn relation(&mut self, op: u32, _: [u32; 4]) {
                self.0 += u32::from(op != SAME_BY_CONVENTION);
            }
            fn access(&mut self, _: u32, _: [u32; 4], _: u32) {
                self.0 += 1;
            }
            fn barrier(&mut self, _: u32, _: bool) {}
        }
        // Accesses have their step.
        let what = self.solver.graph.relations[relation as usize];
        let op = self.templates.op(what.op);
        if op.access().is_some() || what.op == SYSTEM_CALL {
            let kind = match (what.op, op.is_store()) {
                (SYSTEM_CALL, _) => AccessKind::SystemCall,
                (_, true) => AccessKind::Store,
                (_, false) => AccessKind::Load,
            };
            let tag = self.solver.graph.tag(relation, free_place(kind));
            return Some(self.solver.accesses[tag as usize].step);
        }
        let found = self
            .checkpoints
            .partition_point(|c| c.relations <= relation);
        let checkpoint = self.checkpoints.get(found.checked_sub(1)?)?;
        let target = self.count_own(checkpoint.relations..relation);
        let mut builder = Builder::again(checkpoint);
        let mut count = Count(0, checkpoint.nodes);
        for step in checkpoint.step..self.course.len().min(checkpoint.step + INTERVAL) {
            builder.step(&self.through(facts), step, &mut count);
            if count.0 > target {
                return Some(step);
            }
        }
        None
    }

    /// How many of some relations a walk builds again: not those of calls.
    fn count_own(&self, relations: std::ops::Range<u32>) -> u32 {
        let all = &self.solver.graph.relations[relations.start as usize..relations.end as usize];
        let own = all.iter().filter(|r| r.op != SAME_BY_CONVENTION);
        own.count() as u32
    }
}
