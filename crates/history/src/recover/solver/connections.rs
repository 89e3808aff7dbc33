//! Passes facts along the accesses of a cell where nothing between them may have written it.

use super::inference::Layer;
use super::{Given, Solver};
use crate::recover::bits::{Bits, low};
use crate::recover::graph::nodes::{BASE, DATA, NONE};
use crate::recover::memory::access::AccessKind;
use crate::recover::memory::cells::{Event, Kind, Link, byte_bits, moved};
use crate::recover::memory::regions::Class;
use armsnap_arch::semantics::Operand;
use std::ops::Range;

/// The most events of a cell across which facts are passed at once.
const MAX_PASSED: usize = 64;
/// The most stores that are compared with a cell at once.
const MAX_MISSED: usize = 256;

impl<L: Layer> Solver<L> {
    /// Connects events that proof left unconnected, where this is possible now that fewer accesses
    /// are in the way.
    pub(in crate::recover) fn relink_blocked(&mut self, given: &Given<'_>) {
        self.watchers.clear();
        self.pending.clear();
        for cell in 0..self.cells.all.len() {
            for at in 0..self.cells.all[cell].events.len() {
                let number = self.cells.all[cell].events[at];
                let event = &mut self.cells.events[number as usize];
                if event.link == Link::Joined {
                    continue;
                }
                // It now waits for another one, or for none.
                let from = match std::mem::replace(&mut event.barrier, NONE) {
                    NONE => event.access + 1,
                    barrier => barrier,
                };
                self.relink_from(number, from, given);
            }
        }
    }

    /// Makes all blocked events wait for their barriers again.
    pub(in crate::recover) fn watch_again(&mut self) {
        self.watchers.clear();
        self.pending.clear();
        for (number, event) in (0..).zip(&self.cells.events) {
            if event.link == Link::Blocked && event.barrier != NONE {
                self.watchers.add(event.barrier, number);
            }
        }
    }

    /// The address of an access became known: what waited for it may be connected now.
    pub(in crate::recover) fn resolved(&mut self, number: u32, given: &Given<'_>) {
        match self.layer.inference_mut() {
            None => self.barriers.remove(number),
            Some(inference) => {
                let barriers = inference.barriers.iter_mut();
                barriers.for_each(|barriers| barriers.remove(number));
            }
        }
        self.wake(number, given);
    }

    /// More is known of an access: what waits for it may be connected now.
    pub(in crate::recover) fn wake(&mut self, number: u32, given: &Given<'_>) {
        for event in self.watchers.take(number) {
            // Accesses between them are known to have missed it.
            let waiting = &mut self.cells.events[event as usize];
            if waiting.barrier == number && waiting.link == Link::Blocked {
                waiting.barrier = NONE;
                self.relink_from(event, number, given);
            }
        }
    }

    /// Checks again that nothing was written between two connected events of a slot.
    fn check_again(&mut self, granule: u64, (number, older): (u32, u32), given: &Given<'_>) {
        let inference = self.layer.inference();
        if inference.is_some_and(|i| !i.overtaken && !i.is_joined_by_proof(number, older)) {
            let from = self.cells.events[number as usize].access + 1;
            let older = self.cells.events[older as usize].access;
            let narrow = given.templates.is_narrow();
            let is_overtaken = self.is_barred((Class::Stack, granule), narrow, from..older);
            if let Some(inference) = self.layer.inference_mut() {
                inference.overtaken = is_overtaken;
            }
        }
    }

    /// More is known of what a system call fills: slots there may have been assumed unchanged.
    pub(in crate::recover) fn filled_by_kernel(
        &mut self,
        call: u32,
        filled: Range<u64>,
        given: &Given<'_>,
    ) {
        if self.lifetimes().is_none() || filled.is_empty() {
            return;
        }
        for (granule, cell) in self.cells.within(filled.start >> 3..=(filled.end - 1) >> 3) {
            let order = &self.cells.all[cell as usize].events;
            let place = order.place(call);
            let newer = place.checked_sub(1).and_then(|newer| order.get(newer));
            if let (Some(newer), Some(older)) = (newer, order.get(place))
                && self.cells.events[newer as usize].link == Link::Joined
                && self.is_stack(granule)
            {
                self.check_again(granule, (newer, older), given);
            }
        }
    }

    /// A computed address reached a cell. If the cell was assumed to be a stack slot that no
    /// computed address reaches, other stores with unknown addresses may have written it, too.
    pub(in crate::recover) fn reached_by_computed(
        &mut self,
        access: u32,
        cell: u32,
        given: &Given<'_>,
    ) {
        let cell = cell as usize;
        let granule = self.cells.all[cell].granule;
        let Some(inference) = self.layer.inference_mut() else {
            return;
        };
        let Some(lifetimes) = &mut inference.lifetimes else {
            return;
        };
        if !inference.regions.is_stack(granule) {
            return;
        }
        let Some(lifetime) = lifetimes.reach(granule, access) else {
            return;
        };
        // Includes the event connected with the first one of that lifetime.
        let first = self.cells.all[cell].events.place(lifetime.start);
        for at in first.saturating_sub(1)..self.cells.all[cell].events.len() {
            let order = &self.cells.all[cell].events;
            let (Some(number), older) = (order.get(at), order.get(at + 1)) else {
                return;
            };
            let event = self.cells.events[number as usize];
            if event.access >= lifetime.end {
                return;
            }
            match (event.link, older) {
                (Link::Joined, Some(older)) => self.check_again(granule, (number, older), given),
                (Link::Blocked, _) if event.barrier != NONE => {
                    self.cells.events[number as usize].barrier = NONE;
                    self.pending.push(number);
                }
                _ => {}
            }
        }
    }

    /// Connects an event with both neighbours, and passes on what is known of each.
    pub(in crate::recover) fn reconnect(&mut self, event: u32, given: &Given<'_>) {
        let at = self.cells.place(event);
        let cell = self.cells.events[event as usize].cell as usize;
        if at > 0 {
            let newer = self.cells.all[cell].events[at - 1];
            self.cells.events[newer as usize].link = Link::Blocked;
            self.relink(newer, given);
        }
        self.cells.events[event as usize].link = Link::Blocked;
        self.relink(event, given);
    }

    /// Connects an event with the one before it in time, if nothing between them may have written
    /// the cell.
    pub(in crate::recover) fn relink(&mut self, number: u32, given: &Given<'_>) {
        let event = &self.cells.events[number as usize];
        let from = match event.barrier {
            NONE => event.access + 1,
            barrier => barrier,
        };
        self.relink_from(number, from, given);
    }

    /// As [`Self::relink`], where accesses before `from` are known to have missed the cell.
    fn relink_from(&mut self, number: u32, from: u32, given: &Given<'_>) {
        let event = self.cells.events[number as usize];
        let at = self.cells.place(number);
        let cell = &self.cells.all[event.cell as usize];
        let Some(before) = cell.events.get(at + 1) else {
            return;
        };
        if event.link == Link::Joined {
            return;
        }
        let before_access = self.cells.events[before as usize].access;
        if !cell.constant {
            let granule = cell.granule;
            let inference = self.layer.inference();
            let class = inference.map_or(Class::Anything, |i| i.regions.class_of(granule));
            let step = self.built.accesses[before_access as usize].step;
            if self.is_shared((class, granule), step, given.others) {
                return;
            }
            let mut from = from;
            let mut missed = 0;
            let mut contents = None;
            let narrow = given.templates.is_narrow();
            let between = event.access + 1..before_access;
            let mut search = self.search((class, granule), narrow, &between);
            while let Some(barrier) = self.next_barrier(&mut search, from) {
                let contents = *contents
                    .get_or_insert_with(|| self.collect_newer(event.cell as usize, at, given));
                missed += 1;
                if contents.mask == 0
                    || missed > MAX_MISSED
                    || !self.misses(barrier, Bits::known(granule << 3), contents, given)
                {
                    if event.barrier != barrier {
                        self.watchers.add(barrier, number);
                        self.cells.events[number as usize].barrier = barrier;
                    }
                    return;
                }
                from = barrier + 1;
            }
        }
        self.cells.events[number as usize].link = Link::Joined;
        let cell = event.cell as usize;
        let newer = self.collect_newer(cell, at, given);
        self.spread_older(cell, at + 1, newer, given);
        let older = self.collect_older(cell, at + 1, given);
        self.spread_newer(cell, at, older, given);
    }

    /// Whether a store, whose address may be partly known, did not write a cell: either the cell
    /// would hold other bytes after it, or the address is known to differ. Inferred: stores are
    /// aligned, unless the instruction has been seen to make unaligned ones.
    pub(in crate::recover) fn misses(
        &self,
        number: u32,
        cell: Bits,
        contents: Bits,
        given: &Given<'_>,
    ) -> bool {
        let access = &self.built.accesses[number as usize];
        if access.kind != AccessKind::Store {
            return false;
        }
        let relation = &self.built.graph.relations[access.relation as usize];
        let op = given.templates.op(relation.op);
        let bits = |node: u32, operand| match (node, operand) {
            (NONE, Operand::Constant(value)) => Bits::known(value),
            (NONE, Operand::Location(_)) => Bits::UNKNOWN,
            (node, _) => self.built.graph.bits(node),
        };
        let data = bits(relation.nodes[DATA], op.operands[1]);
        let base = bits(relation.nodes[BASE], op.operands[0]);
        let address = base.add(Bits::known(op.displacement), Bits::known(0));
        // Bits 63:56 may be a tag.
        let address = address.only(if op.narrow { low(32) } else { low(56) });
        let size = op.access().unwrap_or(8).cast_signed();
        let aligned = self.layer.inference().is_some() && !self.unaligned.contains(&relation.op);
        (1 - size..8).all(|shift| {
            if aligned && shift.rem_euclid(size) != 0 {
                return true;
            }
            let here = cell.value.wrapping_add_signed(shift.into());
            let mask = address.mask & cell.mask;
            let covered = byte_bits((low(size.cast_unsigned().into()) << 8 >> (8 - shift)) as u8);
            address.join(Bits::new(mask, here)).is_err()
                || moved(data, shift).only(covered).join(contents).is_err()
        })
    }

    /// What an event tells of its cell.
    fn data(&self, event: &Event, given: &Given<'_>) -> Bits {
        if event.kind == Kind::Final {
            return self.cells.all[event.cell as usize].last;
        }
        let bits = match (event.kind, event.node) {
            (Kind::Load | Kind::Store, NONE) => match self.constant(event, given) {
                Some(value) if event.kind == Kind::Store => Bits::known(value),
                _ => return Bits::UNKNOWN,
            },
            (Kind::Load | Kind::Store, node) => self.built.graph.bits(node),
            _ => return Bits::UNKNOWN,
        };
        event.to_cell(bits)
    }

    /// The data of an access, if it is a constant.
    fn constant(&self, event: &Event, given: &Given<'_>) -> Option<u64> {
        let relation = self.built.accesses[event.access as usize].relation;
        let op = self.built.graph.relations[relation as usize].op;
        match given.templates.op(op).operands[1] {
            Operand::Constant(value) => Some(value),
            Operand::Location(_) => None,
        }
    }

    /// What was known of the cell at the end of a link, collected from the newer side.
    fn collect_newer(&self, cell: usize, from: usize, given: &Given<'_>) -> Bits {
        let mut open = !0_u64;
        let mut found = Bits::UNKNOWN;
        let order = &self.cells.all[cell].events;
        let mut at = from;
        for _ in 0..MAX_PASSED {
            let event = &self.cells.events[order[at] as usize];
            let covered = byte_bits(event.bytes);
            match event.kind {
                Kind::Final | Kind::Load => {
                    let bits = self.data(event, given).only(open);
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

    fn collect_older(&self, cell: usize, from: usize, given: &Given<'_>) -> Bits {
        let mut open = !0_u64;
        let mut found = Bits::UNKNOWN;
        let order = &self.cells.all[cell].events;
        for number in order.from(from).take(MAX_PASSED) {
            let event = &self.cells.events[number as usize];
            let covered = byte_bits(event.bytes);
            match event.kind {
                Kind::Load | Kind::Store | Kind::Final => {
                    let bits = self.data(event, given).only(open);
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

    /// Passes on what an event tells of its cell.
    pub(in crate::recover) fn spread(&mut self, number: u32, given: &Given<'_>) {
        let event = self.cells.events[number as usize];
        if !matches!(event.kind, Kind::Load | Kind::Store) {
            return;
        }
        let bits = self.data(&event, given);
        if bits.mask == 0 {
            return;
        }
        let (cell, at) = (event.cell as usize, self.cells.place(number));
        let newer = self.cells.all[cell].events[at - 1];
        if self.cells.events[newer as usize].link == Link::Joined {
            self.spread_newer(cell, at - 1, bits, given);
        }
        if event.kind == Kind::Load {
            match event.link {
                Link::Joined => self.spread_older(cell, at + 1, bits, given),
                Link::Blocked => self.try_later(number),
            }
        }
    }

    fn spread_older(&mut self, cell: usize, from: usize, bits: Bits, given: &Given<'_>) {
        let mut bits = bits;
        for at in from..self.cells.all[cell].events.len().min(from + MAX_PASSED) {
            let number = self.cells.all[cell].events[at];
            let event = self.cells.events[number as usize];
            match event.kind {
                Kind::Load | Kind::Store => {
                    self.push(&event, bits, given);
                    bits = bits.only(!byte_bits(event.bytes));
                }
                Kind::MayStore => bits = bits.only(!byte_bits(event.bytes)),
                Kind::Final | Kind::Nothing => {}
            }
            if bits.mask != 0 && event.link == Link::Blocked {
                self.try_later(number);
            }
            if bits.mask == 0 || event.link == Link::Blocked {
                return;
            }
        }
    }

    /// More is known of the cell of a waiting event: what it waits for may have missed the cell.
    fn try_later(&mut self, event: u32) {
        if self.cells.events[event as usize].barrier != NONE && self.pending.last() != Some(&event)
        {
            self.pending.push(event);
        }
    }

    fn spread_newer(&mut self, cell: usize, from: usize, bits: Bits, given: &Given<'_>) {
        let mut bits = bits;
        let mut at = from;
        for _ in 0..MAX_PASSED {
            let number = self.cells.all[cell].events[at];
            let event = self.cells.events[number as usize];
            match event.kind {
                Kind::Load => self.push(&event, bits, given),
                Kind::Final => {
                    if self.cells.all[cell].last.join(bits).is_err() {
                        self.built.graph.conflict(NONE);
                    }
                }
                Kind::Store | Kind::MayStore | Kind::Nothing => {}
            }
            if event.kind != Kind::Nothing {
                bits = bits.only(!byte_bits(event.bytes));
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
    fn push(&mut self, event: &Event, bits: Bits, given: &Given<'_>) {
        let data = event.to_data(bits);
        if data.mask == 0 {
            return;
        }
        if event.node != NONE {
            self.learn(event.node, data, NONE);
        } else if event.kind == Kind::Store
            && let Some(value) = self.constant(event, given)
            && Bits::known(value).join(data).is_err()
        {
            self.built.graph.conflict(NONE);
        }
    }
}
