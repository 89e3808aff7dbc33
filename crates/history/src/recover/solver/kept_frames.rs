//! Signal frames at unknown addresses: what the handler did not write in a frame is the same after
//! its return as before the signal.
//!
//! The kernel stores the registers at the stack pointer with which the handler starts, and loads
//! them from the one with which it returns. If the instructions in between only add constants to
//! it, both are the same, and stores relative to it are known to be below the frame. Any other
//! store is known to have missed a word that holds bytes other than those it stored.

use super::inference::{Layer, Proof};
use super::{Given, Solver};
use crate::recover::bits::{Bits, low};
use crate::recover::graph::nodes::{BASE, DATA, NONE, RESULT};
use crate::recover::kernel::signals::STACK_POINTER;
use crate::recover::memory::access::{AccessKind, Place};
use crate::recover::memory::cells::moved;
use crate::recover::memory::regions::Class;
use std::collections::HashMap;
use std::ops::Range;

/// The most stores to unknown addresses that each word of a frame is compared with.
const MAX_STORES: usize = 1 << 12;
/// The largest offset of an access relative to the stack pointer, in bytes.
const FAR: i64 = 1 << 40;

/// The number of equal bytes of two nodes, then the node after a signal and the one before it.
pub(super) type Same = (u8, u32, u32);

/// A signal whose handler returned.
#[derive(Clone, Debug)]
pub(in crate::recover) struct Handled {
    /// The stack pointers with which the handler started, and with which it returned.
    pub started: u32,
    pub returned: u32,
    /// The accesses from the loads of its return to the stores of the signal.
    pub accesses: Range<u32>,
    /// The relations in the same interval.
    pub relations: Range<u32>,
}

impl<L: Layer> Solver<L> {
    /// Passes on what is known of equal values. Returns whether something follows from it.
    pub(in crate::recover) fn pass_kept_frames(&mut self) -> bool {
        for at in 0..self.kept.len() {
            let (size, after, before) = self.kept[at];
            let both = low(8 * u32::from(size));
            self.learn(before, self.built.graph.bits(after).only(both), NONE);
            self.learn(after, self.built.graph.bits(before).only(both), NONE);
        }
        self.built.graph.has_work()
    }
}

impl Solver<Proof> {
    /// Examines the frames of signals once nothing else is left to prove, each when the stack
    /// pointer after it is known. Returns whether more may be proved now.
    pub(in crate::recover) fn find_kept_frames(&mut self, given: &Given<'_>) -> bool {
        let open = std::mem::take(&mut self.built.handled);
        let mut found = Vec::new();
        for handled in open {
            match self.kept_in(&handled, given) {
                Some(same) => found.extend(same),
                None => self.built.handled.push(handled),
            }
        }
        self.kept.extend(&found);
        self.pass_kept_frames()
    }

    /// The nodes that the frame of a signal kept; `None` while the stack pointer after it is
    /// unknown.
    fn kept_in(&self, handled: &Handled, given: &Given<'_>) -> Option<Vec<Same>> {
        let offsets = self.offsets(handled, given);
        if offsets.get(&handled.started) != Some(&0)
            || self.is_shared((Class::Anything, 0), 0, given.others)
        {
            return Some(Vec::new());
        }
        let delivery = &given.templates.delivery;
        let delivery = delivery.first..delivery.first + u32::from(delivery.count);
        // What the return loads, and what the handler wrote, both in the frame and at unknown
        // addresses.
        let mut loads = HashMap::new();
        let mut written: Vec<Range<i64>> = Vec::new();
        let mut others = Vec::new();
        let mut same = Vec::new();
        for number in handled.accesses.clone() {
            let access = self.built.accesses[number as usize];
            match access.kind {
                AccessKind::Load | AccessKind::Store => {}
                AccessKind::SystemCall if access.place == Place::Elsewhere => continue,
                _ => return Some(Vec::new()),
            }
            let relation = self.built.graph.relations[access.relation as usize];
            let op = given.templates.op(relation.op);
            let size = op.access().unwrap_or(0);
            let base = offsets.get(&relation.nodes[BASE]);
            let place = base.map(|base| base.wrapping_add(op.displacement.cast_signed()));
            match (access.kind, place.filter(|place| place.abs() < FAR)) {
                (AccessKind::Load, Some(place)) => {
                    loads.entry(place).or_insert((size, relation.nodes[RESULT]));
                }
                (AccessKind::Store, Some(place)) if delivery.contains(&relation.op) => {
                    let load = loads.get(&place).filter(|(loaded, _)| *loaded == size);
                    same.extend(load.map(|(_, node)| (place, size, *node, relation.nodes[DATA])));
                }
                (AccessKind::Store, Some(place)) => written.push(place..place + i64::from(size)),
                (AccessKind::Store, None) => others.push(number),
                _ => {}
            }
        }
        same.retain(|&(place, size, after, before)| {
            let end = place + i64::from(size);
            let is_written = |range: &Range<i64>| range.start < end && place < range.end;
            after != NONE && before != NONE && !written.iter().any(is_written)
        });
        if others.is_empty() {
            return Some(
                same.into_iter()
                    .map(|(_, size, a, b)| (size, a, b))
                    .collect(),
            );
        }
        let mut stack_pointers = same
            .iter()
            .filter(|(place, ..)| *place == STACK_POINTER.cast_signed());
        if stack_pointers.all(|(_, _, after, _)| self.built.graph.bits(*after).whole().is_none()) {
            return None;
        }
        same.retain(|&(place, size, after, _)| {
            let loaded = self.built.graph.bits(after).only(low(8 * u32::from(size)));
            let contents = moved(loaded, (place & 7) as i8);
            let is_missed = |&other: &u32| self.misses(other, Bits::new(7, 0), contents, given);
            others.len() <= MAX_STORES && others.iter().all(is_missed)
        });
        Some(
            same.into_iter()
                .map(|(_, size, a, b)| (size, a, b))
                .collect(),
        )
    }

    /// By node: its offset from the stack pointer with which a handler returns.
    fn offsets(&self, handled: &Handled, given: &Given<'_>) -> HashMap<u32, i64> {
        let mut offsets = HashMap::from([(handled.returned, 0_i64)]);
        for number in handled.relations.clone() {
            let relation = self.built.graph.relations[number as usize];
            let [sum, of, ..] = relation.nodes;
            let Some(more) = given.templates.op(relation.op).added() else {
                continue;
            };
            let more = more.cast_signed();
            if let Some(&offset) = offsets.get(&sum) {
                offsets.entry(of).or_insert(offset.wrapping_sub(more));
            } else if let Some(&offset) = offsets.get(&of) {
                offsets.insert(sum, offset.wrapping_add(more));
            }
        }
        offsets
    }
}
