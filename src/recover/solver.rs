//! Facts passed between nodes and memory until nothing changes.
//!
//! Two layers. First only what is proved: an access whose address is not known may have gone
//! anywhere. Then, on top, what follows with the rules of the calling convention and of
//! [`super::regions`]. What the second layer finds never reaches the first.

use super::barriers::{Barriers, Watchers};
use super::bits::Bits;
use super::cells::{Cells, Event, Kind, Link, untagged};
use super::final_state::FinalMemory;
use super::graph::{Graph, NONE, RESULT};
use super::refine::{Values, is_set, refine};
use super::regions::{CLASSES, Class, Regions};
use super::status::Level;
use super::system_calls::{self, Effect};
use super::template::{Op, SAME_BY_CONVENTION, SYSTEM_CALL, Templates};
use crate::semantics::Operand;
use crate::stop::Cancel;

/// Base of the address, and data of a store or number of a system call, among the nodes of accesses.
pub(super) const BASE: usize = 1;
pub(super) const DATA: usize = 2;
const PREDICATE: usize = 3;

/// What is known of where an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing yet.
    Open,
    /// So many events, from the first on.
    Cells(u32, u8),
    /// To memory that the final state does not have.
    Elsewhere,
}

/// What an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    Load,
    Store,
    SystemCall,
    /// An instruction without a model.
    Unmodelled,
    /// What was before is not connected with what is behind.
    Lost,
}

/// A load, a store, or something else that may write memory; numbered backward in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub relation: u32,
    pub step: u32,
    pub kind: AccessKind,
    pub place: Place,
}

/// Which rules are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Proved,
    Inferred,
}

/// What the solver reads.
pub(super) struct Known<'a> {
    pub templates: &'a Templates,
    pub memory: &'a dyn FinalMemory,
    /// The memory is that at the end of the trace.
    pub is_final: bool,
    /// Others may write memory.
    pub other_writers: bool,
}

/// The state of the search for values.
#[derive(Debug, Default)]
pub(super) struct Solver {
    pub graph: Graph,
    pub cells: Cells,
    /// The first stands for the final contents.
    pub accesses: Vec<Access>,
    pub barriers: [Barriers; CLASSES],
    pub watchers: Watchers,
    pub regions: Regions,
    pub layer: Option<Layer>,
    /// By node: what was known when everything proved was.
    pub proved: Vec<u64>,
    pub proved_events: usize,
    /// Memory was also written by others: what was computed in two ways differed.
    pub memory_contradicts: bool,
    /// Nodes of which the second layer says nothing, because it contradicted itself there.
    pub cut: Vec<u32>,
    /// Recorded addresses, by access.
    pub recorded: Vec<(u32, u64)>,
    /// Nodes whose bits 63:56 may be a tag as far as is proved: in the second layer they are not.
    pub tagged: Vec<u32>,
}

impl Solver {
    pub fn bytes(&self) -> usize {
        self.graph.bytes()
            + self.cells.bytes()
            + self.accesses.capacity() * (size_of::<Access>() + size_of::<u32>())
            + self.barriers.iter().map(Barriers::bytes).sum::<usize>()
            + self.proved.capacity() * size_of::<u64>()
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

    /// Starts a layer: what was found in the second one is forgotten.
    pub fn begin(&mut self, layer: Layer, known: &Known<'_>) {
        if self.layer == Some(Layer::Inferred) {
            self.forget_inferred();
        }
        if layer == Layer::Inferred {
            self.proved = self.graph.masks();
            self.proved_events = self.cells.events.len();
            self.class_barriers(known);
        }
        self.layer = Some(layer);
        self.relink_all(known);
        if layer == Layer::Inferred {
            for relation in 0..self.graph.relations.len() as u32 {
                if self.graph.relations[relation as usize].op == SAME_BY_CONVENTION {
                    self.graph.enqueue(relation);
                }
            }
            for at in 0..self.tagged.len() {
                let node = self.tagged[at];
                let bits = self.graph.bits(node);
                if bits.mask >> 55 & 1 == 1 {
                    let top = Bits::new(!super::bits::low(56), untagged(bits.value));
                    self.learn(node, top, NONE);
                }
            }
        }
    }

    fn forget_inferred(&mut self) {
        self.graph.restore(&self.proved);
        let proved = self.proved_events;
        for access in &mut self.accesses {
            if matches!(access.place, Place::Cells(event, _) if event as usize >= proved) {
                access.place = Place::Open;
            }
        }
        self.cells.truncate(proved);
    }

    /// The barriers of the second layer: by class of the cells that they may have written.
    fn class_barriers(&mut self, known: &Known<'_>) {
        self.regions
            .find_stack(&self.accesses, &self.cells, &self.graph, known.templates);
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

    fn relink_all(&mut self, known: &Known<'_>) {
        self.watchers.clear();
        for event in &mut self.cells.events {
            event.link = Link::Blocked;
            event.barrier = NONE;
        }
        for cell in 0..self.cells.all.len() {
            for at in 0..self.cells.all[cell].events.len() {
                let event = self.cells.all[cell].events[at];
                self.relink(event, known);
            }
        }
    }

    /// Passes facts on until nothing changes; `None` if it was cancelled: then the next call goes
    /// on with the rest.
    pub fn run(&mut self, known: &Known<'_>, cancel: &Cancel) -> Option<()> {
        let mut count = 0_u32;
        while let Some(relation) = self.graph.next() {
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) && cancel.is_requested() {
                self.graph.enqueue(relation);
                return None;
            }
            self.visit(relation, known);
        }
        Some(())
    }

    fn visit(&mut self, number: u32, known: &Known<'_>) {
        let relation = self.graph.relations[number as usize];
        let op = match relation.op {
            SAME_BY_CONVENTION if self.layer == Some(Layer::Proved) => return,
            SYSTEM_CALL => return self.system_call(number, known),
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
        // Learning may reach this relation again by another place of the same node.
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

    fn learn(&mut self, node: u32, bits: Bits, but: u32) {
        if self.cut.binary_search(&node).is_err() {
            self.graph.learn(node, bits, but);
        }
    }

    /// An access whose address or data may be known better now.
    fn access(&mut self, relation: u32, op: &Op, known: &Known<'_>) {
        let kind = if op.is_store() {
            AccessKind::Store
        } else {
            AccessKind::Load
        };
        let number = self.graph.tag(relation, free_place(kind));
        if self.accesses[number as usize].place == Place::Open {
            if let Some(address) = self.address(relation, op) {
                self.place(number, address, op, known);
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
                let node = self.graph.relations[relation as usize].nodes[BASE];
                self.graph.bits(node).whole()?
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
        let cells = &cells[..count];
        if cells.iter().all(Option::is_none) {
            self.accesses[number as usize].place = Place::Elsewhere;
        } else if cells.iter().any(Option::is_none) {
            // Partly in memory: what it did there is left open.
            return;
        } else {
            let first = self.cells.events.len() as u32;
            let covered = super::bits::low(size) << begin;
            self.accesses[number as usize].place = Place::Cells(first, count as u8);
            for (index, cell) in cells.iter().flatten().enumerate() {
                let shift = begin as i8 - 8 * index as i8;
                let at = self.cells.insert(Event {
                    access: number,
                    cell: *cell,
                    barrier: NONE,
                    waits: NONE,
                    bytes: (covered >> (8 * index)) as u8,
                    shift,
                    kind,
                    link: Link::Blocked,
                });
                debug_assert!(at > 0, "the final contents come first");
                self.cells.all[*cell as usize].indirect |= !op.direct;
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

    /// It is known where an access went: what waited for it may be connected now.
    fn resolved(&mut self, number: u32, known: &Known<'_>) {
        let proved = self.layer == Some(Layer::Proved);
        let classes = if proved {
            &Class::PROVED[..]
        } else {
            &Class::INFERRED[..]
        };
        for class in classes {
            self.barriers[*class as usize].remove(number);
        }
        self.wake(number, known);
    }

    fn wake(&mut self, number: u32, known: &Known<'_>) {
        let mut event = self.watchers.take(number);
        while event != NONE {
            let waiting = &mut self.cells.events[event as usize];
            let next = std::mem::replace(&mut waiting.waits, NONE);
            waiting.barrier = NONE;
            self.relink(event, known);
            event = next;
        }
    }

    /// Connects an event with both neighbours, and passes on what they know.
    fn reconnect(&mut self, event: u32, known: &Known<'_>) {
        let at = self.cells.place(event);
        let cell = self.cells.events[event as usize].cell as usize;
        if at > 0 {
            let newer = self.cells.all[cell].events[at - 1];
            self.cells.events[newer as usize].link = Link::Blocked;
            self.relink(newer, known);
        }
        self.cells.events[event as usize].link = Link::Blocked;
        self.relink(event, known);
    }

    /// Connects an event with the one before it in time, if nothing between them may have written.
    fn relink(&mut self, number: u32, known: &Known<'_>) {
        let event = self.cells.events[number as usize];
        let at = self.cells.place(number);
        let cell = &self.cells.all[event.cell as usize];
        let Some(&before) = cell.events.get(at + 1) else {
            return;
        };
        if event.link == Link::Joined {
            return;
        }
        let before_access = self.cells.events[before as usize].access;
        if !cell.constant {
            let class = match self.layer {
                Some(Layer::Inferred) => self.regions.class(cell),
                _ => Class::Anything,
            };
            let shared = known.other_writers || self.memory_contradicts;
            let private = class == Class::Protected || class == Class::Stack;
            if shared && !private {
                return;
            }
            let barrier = self.barriers[class as usize].first(event.access + 1);
            if let Some(barrier) = barrier.filter(|&barrier| barrier < before_access) {
                if event.barrier != barrier {
                    let next = self.watchers.add(barrier, number);
                    let event = &mut self.cells.events[number as usize];
                    (event.barrier, event.waits) = (barrier, next);
                }
                return;
            }
        }
        self.cells.events[number as usize].link = Link::Joined;
        let cell = event.cell as usize;
        let newer = self.collect_newer(cell, at, known);
        self.spread_older(cell, at + 1, newer, known);
        let older = self.collect_older(cell, at + 1, known);
        self.spread_newer(cell, at, older, known);
    }

    /// What an event says of its cell.
    fn data(&self, event: &Event, known: &Known<'_>) -> Bits {
        if event.kind == Kind::Final {
            return self.cells.all[event.cell as usize].last;
        }
        let relation = self.accesses[event.access as usize].relation;
        let relation = &self.graph.relations[relation as usize];
        let node = match event.kind {
            Kind::Load => relation.nodes[RESULT],
            Kind::Store => relation.nodes[DATA],
            _ => return Bits::UNKNOWN,
        };
        let bits = match (node, known.templates.op(relation.op).operands[1]) {
            (NONE, Operand::Constant(value)) if event.kind == Kind::Store => Bits::known(value),
            (NONE, _) => Bits::UNKNOWN,
            (node, _) => self.graph.bits(node),
        };
        event.to_cell(bits)
    }

    /// What was known of the cell at the end of a link, from its newer side.
    fn collect_newer(&self, cell: usize, from: usize, known: &Known<'_>) -> Bits {
        let mut open = !0_u64;
        let mut found = Bits::UNKNOWN;
        let order = &self.cells.all[cell].events;
        let mut at = from;
        for _ in 0..MOST_PASSED {
            let event = &self.cells.events[order[at] as usize];
            let covered = super::cells::byte_bits(event.bytes);
            match event.kind {
                Kind::Final | Kind::Load => {
                    let bits = self.data(event, known).only(open);
                    found = Bits::new(found.mask | bits.mask, found.value | bits.value);
                    open &= !covered;
                }
                Kind::Store | Kind::MayStore => open &= !covered,
                Kind::Nothing => {}
            }
            if open == 0 || at == 0 {
                break;
            }
            at -= 1;
            if self.cells.events[order[at] as usize].link == Link::Blocked {
                break;
            }
        }
        found
    }

    fn collect_older(&self, cell: usize, from: usize, known: &Known<'_>) -> Bits {
        let mut open = !0_u64;
        let mut found = Bits::UNKNOWN;
        let order = &self.cells.all[cell].events;
        for &number in order[from..].iter().take(MOST_PASSED) {
            let event = &self.cells.events[number as usize];
            let covered = super::cells::byte_bits(event.bytes);
            match event.kind {
                Kind::Load | Kind::Store | Kind::Final => {
                    let bits = self.data(event, known).only(open);
                    found = Bits::new(found.mask | bits.mask, found.value | bits.value);
                    open &= !covered;
                }
                Kind::MayStore => open &= !covered,
                Kind::Nothing => {}
            }
            if open == 0 || event.link == Link::Blocked {
                break;
            }
        }
        found
    }

    /// Passes on what an event says of its cell.
    fn spread(&mut self, number: u32, known: &Known<'_>) {
        let event = self.cells.events[number as usize];
        if !matches!(event.kind, Kind::Load | Kind::Store) {
            return;
        }
        let bits = self.data(&event, known);
        if bits.mask == 0 {
            return;
        }
        let (cell, at) = (event.cell as usize, self.cells.place(number));
        let newer = self.cells.all[cell].events[at - 1];
        if self.cells.events[newer as usize].link == Link::Joined {
            self.spread_newer(cell, at - 1, bits, known);
        }
        if event.kind == Kind::Load && event.link == Link::Joined {
            self.spread_older(cell, at + 1, bits, known);
        }
    }

    fn spread_older(&mut self, cell: usize, from: usize, bits: Bits, known: &Known<'_>) {
        let mut bits = bits;
        for at in from..self.cells.all[cell].events.len().min(from + MOST_PASSED) {
            let number = self.cells.all[cell].events[at];
            let event = self.cells.events[number as usize];
            match event.kind {
                Kind::Load | Kind::Store => {
                    self.push(&event, bits, known);
                    bits = bits.only(!super::cells::byte_bits(event.bytes));
                }
                Kind::MayStore => bits = bits.only(!super::cells::byte_bits(event.bytes)),
                Kind::Final | Kind::Nothing => {}
            }
            if bits.mask == 0 || event.link == Link::Blocked {
                return;
            }
        }
    }

    fn spread_newer(&mut self, cell: usize, from: usize, bits: Bits, known: &Known<'_>) {
        let mut bits = bits;
        let mut at = from;
        for _ in 0..MOST_PASSED {
            let number = self.cells.all[cell].events[at];
            let event = self.cells.events[number as usize];
            match event.kind {
                Kind::Load => self.push(&event, bits, known),
                Kind::Final => {
                    if self.cells.all[cell].last.join(bits).is_err() {
                        self.graph.conflict(NONE);
                    }
                }
                Kind::Store | Kind::MayStore | Kind::Nothing => {}
            }
            if event.kind != Kind::Nothing {
                bits = bits.only(!super::cells::byte_bits(event.bytes));
            }
            if bits.mask == 0 || at == 0 {
                return;
            }
            at -= 1;
            let next = self.cells.all[cell].events[at];
            if self.cells.events[next as usize].link == Link::Blocked {
                return;
            }
        }
    }

    /// Adds what is known of a cell to the data of an access.
    fn push(&mut self, event: &Event, bits: Bits, known: &Known<'_>) {
        let data = event.to_data(bits);
        if data.mask == 0 {
            return;
        }
        let number = self.accesses[event.access as usize].relation;
        let relation = self.graph.relations[number as usize];
        let place = if event.kind == Kind::Load {
            RESULT
        } else {
            DATA
        };
        match relation.nodes[place] {
            NONE => {
                let constant = known.templates.op(relation.op).operands[1];
                if let (Kind::Store, Operand::Constant(value)) = (event.kind, constant)
                    && Bits::known(value).join(data).is_err()
                {
                    self.graph.conflict(NONE);
                }
            }
            node => self.learn(node, data, NONE),
        }
    }

    /// A system call whose number may be known now.
    fn system_call(&mut self, relation: u32, known: &Known<'_>) {
        let number = self.graph.tag(relation, free_place(AccessKind::SystemCall));
        if self.accesses[number as usize].place != Place::Open {
            return;
        }
        let call = self.graph.relations[relation as usize].nodes[BASE];
        let Some(call) = self.graph.bits(call).whole() else {
            return;
        };
        let gone = match system_calls::of_a64(call) {
            Effect::Nothing => true,
            Effect::Layout => self.layer == Some(Layer::Inferred),
            Effect::Unknown => false,
        };
        if gone {
            if self.layer == Some(Layer::Proved) {
                self.accesses[number as usize].place = Place::Elsewhere;
            }
            self.resolved(number, known);
        }
    }

    /// Whether accesses from one up to another may have written a class of cells.
    pub fn is_barred(&mut self, class: Class, from: u32, to: u32) -> bool {
        let first = self.barriers[class as usize].first(from);
        first.is_some_and(|first| first < to)
    }

    /// The first access from one on, towards the past, that may have written a class of cells.
    pub fn first_barrier(&mut self, class: Class, from: u32) -> Option<u32> {
        self.barriers[class as usize].first(from)
    }

    /// The class of a granule at a level.
    pub fn class_at(&self, granule: u64, level: Level) -> Class {
        match (level, self.cells.find(granule)) {
            (Level::Inferred, Some(cell)) => self.regions.class(&self.cells.all[cell as usize]),
            (Level::Inferred, None) => self.regions.class_of(granule, true),
            (Level::Proved | Level::Off, _) => Class::Anything,
        }
    }

    /// Whether only the second layer knows where an access went.
    pub fn is_placed_by_inference(&self, access: u32) -> bool {
        match self.accesses[access as usize].place {
            Place::Cells(event, _) => event as usize >= self.proved_events,
            Place::Open | Place::Elsewhere => false,
        }
    }

    /// Where facts contradicted each other in the second layer, it says nothing next time. Returns
    /// whether there is such a node.
    pub fn cut_conflicts(&mut self) -> bool {
        let before = self.cut.len();
        let conflicts = self.graph.conflicts.iter().copied();
        self.cut.extend(conflicts.filter(|&node| node != NONE));
        self.cut.sort_unstable();
        self.cut.dedup();
        self.cut.len() > before
    }
}

/// Events of a cell that facts are passed across at once.
const MOST_PASSED: usize = 64;

/// The place among the nodes of an access that has none: its number is kept there.
pub(super) const fn free_place(kind: AccessKind) -> usize {
    match kind {
        AccessKind::Load => DATA,
        AccessKind::SystemCall => PREDICATE,
        _ => RESULT,
    }
}
