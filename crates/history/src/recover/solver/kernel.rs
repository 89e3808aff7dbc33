//! What the kernel is known to do in system calls and when signals are delivered.

use super::inference::{Inference, Layer};
use super::{Given, Sharing, Solver};
use crate::recover::bits::{Bits, low, untagged};
use crate::recover::execution::template::ARGUMENTS;
use crate::recover::graph::nodes::{BASE, NONE};
use crate::recover::kernel::signals::{self, Frames};
use crate::recover::kernel::system_calls::{self, Arguments, Change, Effect};
use crate::recover::memory::access::{AccessKind, Place, free_place};
use crate::recover::memory::regions::Class;
use std::ops::Range;

/// The most shared mappings that are distinguished.
const MAX_SHARED: usize = 16;

impl Sharing {
    /// Whether mappings were found that may be at several addresses: then everything is solved
    /// again, with these set apart.
    pub fn sets_apart(&mut self) -> bool {
        let is_new = !self.found.is_empty();
        self.mappings.append(&mut self.found);
        is_new
    }
}

impl<L: Layer> Solver<L> {
    /// Resolves a system call whose number may be known now.
    pub(in crate::recover) fn system_call(&mut self, relation: u32, given: &Given<'_>) {
        let number = self
            .built
            .graph
            .tag(relation, free_place(AccessKind::SystemCall));
        if self.built.accesses[number as usize].place != Place::Open {
            return;
        }
        let effect = self.effect(relation, given.templates.is_narrow(), Class::Other);
        let arguments = self.arguments(relation, Class::Other);
        if effect == Effect::Layout(Change::Map) {
            let found = arguments.shared_mapping();
            let sharing = &mut self.sharing;
            let known = [&sharing.mappings, &sharing.found];
            let is_new = |range: &Range<u64>| !known.iter().any(|known| known.contains(range));
            let new = found.filter(|range| sharing.mappings.len() < MAX_SHARED && is_new(range));
            sharing.found.extend(new);
        }
        for filled in system_calls::filled(effect, arguments) {
            self.filled_by_kernel(number, filled, given);
        }
        match effect {
            Effect::Nothing => {
                if self.layer.inference().is_none() {
                    self.built.accesses[number as usize].place = Place::Elsewhere;
                }
                self.resolved(number, given);
            }
            // More is known of the memory that it affects.
            Effect::Layout(_) | Effect::Fills(_) => self.wake(number, given),
            Effect::Unknown => {}
        }
    }

    /// What a system call may write of a class of cells.
    pub(in crate::recover) fn effect(&self, relation: u32, narrow: bool, class: Class) -> Effect {
        let arguments = || self.arguments(relation, class);
        match (self.known_value(relation, BASE, class), narrow) {
            (None, _) => Effect::Unknown,
            (Some(call), true) => system_calls::of_arm(call, arguments()),
            (Some(call), false) => system_calls::of_a64(call, arguments()),
        }
    }

    pub(in crate::recover) fn arguments(&self, relation: u32, class: Class) -> Arguments {
        let bits = |node: u32| self.value_in(node, class);
        let [result, _, second, _] = self.built.graph.relations[relation as usize].nodes;
        // The relation built just before.
        let before = relation.checked_sub(1);
        let before = before.map(|before| self.built.graph.relations[before as usize]);
        let [_, first, third, fourth] = match before.filter(|before| before.op == ARGUMENTS) {
            Some(before) => before.nodes,
            None => [NONE; 4],
        };
        Arguments {
            first: bits(first),
            second: bits(second),
            third: bits(third),
            fourth: bits(fourth),
            result: bits(result),
        }
    }

    /// Resolves a signal: its frame is where memory still holds it, on the same stack or another
    /// (sigaltstack).
    pub(in crate::recover) fn signal_frame(&mut self, relation: u32, given: &Given<'_>) {
        // More is known of where the kernel wrote.
        let signal = self
            .built
            .graph
            .tag(relation, free_place(AccessKind::Signal));
        if signal != NONE {
            self.wake(signal, given);
        }
        let [handler, before, ..] = self.built.graph.relations[relation as usize].nodes;
        let is_open = self.built.graph.bits(handler).whole().is_none();
        if self.layer.inference().is_some()
            && given.is_final
            && is_open
            && let Some(stack_pointer) = self.built.graph.bits(before).whole()
            && let Some(frame) = signals::frame_below(stack_pointer, given.memory).or_else(|| {
                let frames = &mut self.lessons.frames;
                let frames = frames.get_or_insert_with(|| Frames::find(given.memory));
                frames.with(stack_pointer)
            })
        {
            self.learn(handler, Bits::known(frame), relation);
        }
    }

    /// Whether a granule is known to be outside the frame of a signal.
    pub(in crate::recover) fn is_outside_frame(
        &self,
        relation: u32,
        (class, granule): (Class, u64),
    ) -> bool {
        let [handler, before, ..] = self.built.graph.relations[relation as usize].nodes;
        let Some(frame) = self.address_in(handler, class) else {
            return false;
        };
        // A frame on the same stack ends where the program's part begins.
        let end = frame.saturating_add(signals::MAX_SIZE);
        let before = self.address_in(before, class);
        let end = before
            .filter(|before| *before > frame)
            .map_or(end, |before| end.min(before));
        let address = granule << 3;
        address >= end || address.saturating_add(8) <= frame
    }

    /// The address in a node, if it is known in the layer that a class belongs to. Bits 63:56 may be a tag.
    fn address_in(&self, node: u32, class: Class) -> Option<u64> {
        let is_known = |mask: u64| mask & low(56) == low(56);
        let inference = self.layer.inference().filter(|_| class == Class::Anything);
        let is_proved = |inference: &Inference| is_known(inference.proved(node));
        let bits = self.built.graph.bits(node);
        let known = is_known(bits.mask) && inference.is_none_or(is_proved);
        known.then(|| untagged(bits.value))
    }

    /// Adds what the kernel passes to a handler, if the frame still describes a signal. This may be
    /// an earlier one: a handler without SA_SIGINFO receives no description, and does not read it
    /// either.
    pub(in crate::recover) fn signal_arguments(&mut self, relation: u32, given: &Given<'_>) {
        let [registers @ .., handler] = self.built.graph.relations[relation as usize].nodes;
        let is_base = |&(relation, index): &(u32, usize)| {
            let op = self.built.graph.relations[relation as usize].op;
            index == BASE && given.templates.op(op).access().is_some()
        };
        let reads =
            |node: u32| node != NONE && self.built.graph.places(node).any(|at| is_base(&at));
        if self.layer.inference().is_some()
            && given.is_final
            && reads(registers[1])
            && let Some(frame) = self.built.graph.bits(handler).whole()
            && let Some(arguments) = signals::arguments(frame, given.memory)
        {
            for (node, value) in registers.into_iter().zip(arguments) {
                self.learn(node, Bits::known(value), relation);
            }
        }
    }
}
