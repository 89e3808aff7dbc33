//! What may have written a granule between two accesses.

use super::inference::{Inference, Layer};
use super::{Given, Solver};
use crate::recover::bits::untagged;
use crate::recover::graph::nodes::BASE;
use crate::recover::kernel::system_calls::{self, Effect};
use crate::recover::memory::access::{Access, AccessKind};
use crate::recover::memory::barriers::Barriers;
use crate::recover::memory::lifetimes::Lifetimes;
use crate::recover::memory::regions::Class;
use crate::recover::status::Level;
use std::ops::Range;

/// A search for what may have written a granule.
#[derive(Debug)]
pub(in crate::recover) struct WriterSearch {
    class: Class,
    granule: u64,
    /// The class of the granule, by interval: each with the access at which the interval ends.
    parts: [(Class, u32); 3],
    /// The access at which the search ends.
    end: u32,
    narrow: bool,
    /// The stores below the granule that were passed.
    below: usize,
    /// The number of accesses known to have written elsewhere that were passed.
    spared: usize,
}

/// The most stores below a cell of the stack that are passed at once.
const MAX_BELOW: usize = 1024;
/// The most system calls and cleared blocks that a search passes.
const MAX_SPARED: usize = 4096;

impl Solver<Inference> {
    /// Finds when words of the stack were part of it, once nothing else is left to pass on. Returns
    /// whether more may be passed on now.
    pub(in crate::recover) fn find_lifetimes(&mut self, given: &Given<'_>) -> bool {
        if self.layer.lifetimes.is_some() {
            return false;
        }
        let mut found = Lifetimes::find(&self.built.graph, &self.built.stack_pointers);
        for (granule, access) in std::mem::take(&mut self.lessons.reached) {
            found.reach(granule, access);
        }
        let is_stack = |granule| self.layer.regions.is_stack(granule);
        found.find_reached(&self.cells, is_stack, |access| {
            let relation = self.built.accesses[access as usize].relation;
            let op = self.built.graph.relations[relation as usize].op;
            given.templates.op(op).direct
        });
        self.layer.lifetimes = Some(found);
        self.find_barred();
        self.relink_blocked(given);
        true
    }

    /// Finds the times at which there are barriers of the stack.
    pub(in crate::recover) fn find_barred(&mut self) {
        if let Some(lifetimes) = &mut self.layer.lifetimes {
            lifetimes.find_barred(&mut self.layer.barriers[Class::Stack.of_inferred()]);
        }
    }

    /// The class of a granule at a level.
    pub(in crate::recover) fn class_at(&self, granule: u64, level: Level) -> Class {
        match level {
            Level::Inferred => self.class_of(granule),
            Level::Proved | Level::Off => Class::Anything,
        }
    }
}

impl<L: Layer> Solver<L> {
    /// When words of the stack were part of it, if that is known yet.
    pub(super) fn lifetimes(&self) -> Option<&Lifetimes> {
        self.layer.inference()?.lifetimes.as_ref()
    }

    /// Whether a granule is inferred to belong to a stack.
    pub(super) fn is_stack(&self, granule: u64) -> bool {
        let inference = self.layer.inference();
        inference.is_some_and(|inference| inference.regions.is_stack(granule))
    }

    /// The accesses that may have written cells of a class.
    fn barriers(&mut self, class: Class) -> &mut Barriers {
        match self.layer.inference_mut() {
            Some(inference) if class != Class::Anything => {
                &mut inference.barriers[class.of_inferred()]
            }
            _ => &mut self.barriers,
        }
    }

    /// Whether others may have written a granule of a class between a step and the end, or it may
    /// have been written at another address. That the others have ended is not proof: the kernel
    /// may write for them afterwards.
    pub(in crate::recover) fn is_shared(
        &self,
        (class, granule): (Class, u64),
        step: u32,
        others: bool,
    ) -> bool {
        let private = class == Class::Protected || class == Class::Stack;
        let alone = class != Class::Anything && step <= self.sharing.alone_from;
        let mut mapped = self.sharing.mappings.iter();
        let aliased =
            mapped.any(|range| class == Class::Anything || range.contains(&(granule << 3)));
        aliased || !private && (self.sharing.contradicts || others && !alone)
    }

    /// Whether accesses in a range may have written a granule of a class.
    pub(in crate::recover) fn is_barred(
        &mut self,
        (class, granule): (Class, u64),
        narrow: bool,
        accesses: Range<u32>,
    ) -> bool {
        self.first_barrier((class, granule), narrow, accesses)
            .is_some()
    }

    /// The first access in a range, towards the past, that may have written a granule of a class.
    pub(in crate::recover) fn first_barrier(
        &mut self,
        (class, granule): (Class, u64),
        narrow: bool,
        accesses: Range<u32>,
    ) -> Option<u32> {
        let mut search = self.search((class, granule), narrow, &accesses);
        self.next_barrier(&mut search, accesses.start)
    }

    /// Starts a search for what may have written a granule of a class, within a range of accesses.
    pub(in crate::recover) fn search(
        &self,
        (class, granule): (Class, u64),
        narrow: bool,
        accesses: &Range<u32>,
    ) -> WriterSearch {
        WriterSearch {
            class,
            granule,
            parts: self.parts((class, granule), accesses),
            end: accesses.end,
            narrow,
            below: 0,
            spared: 0,
        }
    }

    /// The class of a granule, by interval.
    fn parts(&self, (class, granule): (Class, u64), accesses: &Range<u32>) -> [(Class, u32); 3] {
        let inference = self.layer.inference().filter(|_| class == Class::Stack);
        let stack =
            inference.and_then(|inference| Some((inference, inference.lifetimes.as_ref()?)));
        let Some((inference, lifetimes)) = stack else {
            return [(class, u32::MAX); 3];
        };
        let class = |lifetime: &Range<u32>| {
            if self.is_slot((inference, lifetimes), granule, lifetime) {
                Class::Protected
            } else {
                Class::Stack
            }
        };
        let newer = lifetimes.of(granule, accesses.start.saturating_sub(1));
        if newer.contains(&accesses.end) {
            return [(class(&newer), u32::MAX); 3];
        }
        let older = lifetimes.of(granule, accesses.end);
        [
            (class(&newer), newer.end),
            (Class::Stack, older.start),
            (class(&older), u32::MAX),
        ]
    }

    /// Whether only the stack and frame pointers are known to reach a granule in a lifetime.
    fn is_slot(
        &self,
        (inference, lifetimes): (&Inference, &Lifetimes),
        granule: u64,
        lifetime: &Range<u32>,
    ) -> bool {
        let cell = self.cells.find(granule);
        let is_accessed = cell.is_some_and(|cell| {
            let events = &self.cells.all[cell as usize].events;
            let event = events.get(events.place(lifetime.start.max(1)));
            event.is_some_and(|event| self.cells.events[event as usize].access < lifetime.end)
        });
        let is_record = || lifetime.start == 0 && inference.regions.is_record(granule);
        !inference.without_slots
            && (is_accessed || is_record())
            && !lifetimes.is_reached(granule, lifetime)
    }

    /// The next access from a given one on, towards the past, that may have written the granule,
    /// whatever it stored.
    pub(in crate::recover) fn next_barrier(
        &mut self,
        search: &mut WriterSearch,
        from: u32,
    ) -> Option<u32> {
        let mut from = from;
        loop {
            let (barrier, class) = self.next_in_parts(&search.parts, from)?;
            if barrier >= search.end {
                return None;
            }
            from = if let Some(next) = self.next_in_stack(search, barrier) {
                next
            } else if search.spared < MAX_SPARED && self.spared(search, barrier, class) {
                search.spared += 1;
                barrier + 1
            } else if search.class.is_stack()
                && search.below < MAX_BELOW
                && self.is_below(barrier, search.granule)
            {
                search.below += 1;
                barrier + 1
            } else {
                return Some(barrier);
            };
        }
    }

    /// All accesses in a range that may write unknown memory.
    pub(in crate::recover) fn unresolved_writes(&mut self, accesses: Range<u32>) -> Vec<u32> {
        let mut found = Vec::new();
        let mut from = accesses.start;
        while let Some((next, _)) = self.next_in_parts(&[(Class::Anything, accesses.end)], from) {
            found.push(next);
            from = next + 1;
        }
        found
    }

    fn next_in_parts(&mut self, parts: &[(Class, u32)], mut from: u32) -> Option<(u32, Class)> {
        for &(class, end) in parts {
            if from < end {
                let next = self.barriers(class).first(from);
                if let Some(next) = next.filter(|next| *next < end) {
                    return Some((next, class));
                }
                from = end;
            }
        }
        None
    }

    /// If the granule was not part of the stack at a barrier: the next access at which it may have
    /// been, or that may write any slot.
    fn next_in_stack(&mut self, search: &WriterSearch, barrier: u32) -> Option<u32> {
        let inference = self.layer.inference_mut();
        let inference = inference.filter(|_| search.class.is_stack())?;
        let lifetimes = inference.lifetimes.as_ref()?;
        if self.built.switches_stack || !inference.regions.has_one_stack() {
            return None;
        }
        let next = lifetimes.outside(search.granule, barrier)?;
        // The kernel writes no more of the stack than the program does.
        let kind = self.built.accesses[barrier as usize].kind;
        let of_kernel = matches!(kind, AccessKind::SystemCall | AccessKind::ClearBlock);
        let slots = &mut inference.barriers[Class::Protected.of_inferred()];
        let any = slots.first(barrier + u32::from(of_kernel));
        let any = any.unwrap_or(u32::MAX);
        (any > barrier).then_some(next.min(any))
    }

    /// Whether a barrier that is not a store is passed: only what is known to write a slot writes
    /// it.
    fn spared(&self, search: &WriterSearch, barrier: u32, class: Class) -> bool {
        let granule = search.granule;
        match self.built.accesses[barrier as usize].kind {
            AccessKind::SystemCall | AccessKind::ClearBlock if class == Class::Protected => {
                !self.is_known_to_write(barrier, granule, search.narrow)
            }
            _ => self.spares(barrier, (search.class, granule), search.narrow),
        }
    }

    /// Whether a system call, or an instruction that clears a block, writes a granule, as far as
    /// its arguments are known: what they do not reach is assumed to stay.
    fn is_known_to_write(&self, number: u32, granule: u64, narrow: bool) -> bool {
        let Access { kind, relation, .. } = self.built.accesses[number as usize];
        let spares = self.spares(number, (Class::Stack, granule), narrow);
        match kind {
            AccessKind::ClearBlock => {
                !spares && self.known_value(relation, BASE, Class::Stack).is_some()
            }
            _ => match self.effect(relation, narrow, Class::Stack) {
                Effect::Fills(buffer) => {
                    !spares && buffer.is_known(self.arguments(relation, Class::Stack))
                }
                Effect::Unknown => {
                    let call = self.known_value(relation, BASE, Class::Stack);
                    call.is_some_and(|call| {
                        let arguments = self.arguments(relation, Class::Stack);
                        system_calls::may_fill(call, narrow, arguments, granule << 3)
                    })
                }
                Effect::Nothing | Effect::Layout(_) => false,
            },
        }
    }

    /// The value of a node of a relation, if it is known in the layer that a class belongs to.
    pub(in crate::recover) fn known_value(
        &self,
        relation: u32,
        place: usize,
        class: Class,
    ) -> Option<u64> {
        self.value_in(
            self.built.graph.relations[relation as usize].nodes[place],
            class,
        )
    }

    /// The value of a node, if it is known in the layer that a class belongs to.
    pub(in crate::recover) fn value_in(&self, node: u32, class: Class) -> Option<u64> {
        let inference = self.layer.inference().filter(|_| class == Class::Anything);
        let is_proved = |inference: &Inference| inference.proved(node) == !0;
        let value = self.built.graph.bits(node).whole();
        value.filter(|_| inference.is_none_or(is_proved))
    }

    /// Whether a system call, or an instruction that clears a block, kept the contents of a
    /// granule. For a call that changes the memory layout, this is also inferred while its
    /// arguments are unknown, because few calls remove memory that is used again.
    pub(in crate::recover) fn spares(
        &self,
        number: u32,
        (class, granule): (Class, u64),
        narrow: bool,
    ) -> bool {
        let Access { kind, relation, .. } = self.built.accesses[number as usize];
        match kind {
            AccessKind::SystemCall => {}
            AccessKind::ClearBlock => return self.is_outside_block(relation, (class, granule)),
            AccessKind::Signal => return self.is_outside_frame(relation, (class, granule)),
            _ => return false,
        }
        let arguments = || self.arguments(relation, class);
        let change = match self.effect(relation, narrow, class) {
            Effect::Layout(change) => change,
            Effect::Fills(buffer) => return buffer.spares(arguments(), granule << 3),
            Effect::Nothing | Effect::Unknown => return false,
        };
        let inferred = self.layer.inference().is_some() && class != Class::Anything;
        match change.takes(arguments(), granule << 3) {
            Some(takes) => !takes,
            None => inferred,
        }
    }

    /// Whether a granule is outside all blocks that an instruction may have cleared.
    fn is_outside_block(&self, relation: u32, (class, granule): (Class, u64)) -> bool {
        /// The largest block (DDI 0487, DCZID_EL0), in granules.
        const LARGEST: u64 = 2048 / 8;
        let base = self.known_value(relation, BASE, class);
        base.is_some_and(|base| untagged(base) >> 3 & !(LARGEST - 1) != granule & !(LARGEST - 1))
    }
}
