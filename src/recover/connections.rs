//! Facts passed along the accesses of a cell, as far as nothing between them may have written it.

use super::bits::Bits;
use super::cells::{Event, Kind, Link};
use super::graph::{NONE, RESULT};
use super::regions::Class;
use super::solver::{DATA, Known, Layer, Solver};
use crate::semantics::Operand;

/// Events of a cell that facts are passed across at once.
const MOST_PASSED: usize = 64;

impl Solver {
    pub(super) fn relink_all(&mut self, known: &Known<'_>) {
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

    /// It is known where an access went: what waited for it may be connected now.
    pub(super) fn resolved(&mut self, number: u32, known: &Known<'_>) {
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
    pub(super) fn reconnect(&mut self, event: u32, known: &Known<'_>) {
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
    pub(super) fn spread(&mut self, number: u32, known: &Known<'_>) {
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
}
