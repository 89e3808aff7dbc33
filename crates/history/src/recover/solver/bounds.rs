//! Upper bounds of the stack pointer where its value is not known.
//!
//! Where a function frees what it allocated (`mov sp, x29`), or frames are left (by longjmp or the
//! unwinder), the stack pointer was not above its new value before. Earlier stores through the
//! stack pointer then miss everything above.

use super::inference::{Inference, Layer};
use super::{Given, Solver};
use crate::recover::graph::nodes::{BASE, NONE};
use crate::recover::memory::access::Place;
use armsnap_arch::hash::NumberMap;

/// The most bytes above a bound that are assumed to belong to the same stack.
const NEAR: u64 = 1 << 20;

/// Values of the stack pointer, relative to their upper bounds.
#[derive(Debug, Default)]
pub(in crate::recover) struct Bounds {
    /// By node: the node of its bound, and the offset that is added to the bound.
    all: NumberMap<u32, (u32, u64)>,
    /// By store through the stack or frame pointer: the offset of its end from its base.
    stores: NumberMap<u32, u64>,
}

impl Bounds {
    /// Records that a value is not above another.
    pub fn begin(&mut self, node: u32, bound: u32) {
        self.all.insert(node, (bound, 0));
    }

    /// Records a store through the stack or frame pointer, with the offset of its end from its
    /// base.
    pub fn store(&mut self, access: u32, end: u64) {
        if !self.all.is_empty() {
            self.stores.insert(access, end);
        }
    }

    /// Records that a value is the sum of another and a constant.
    pub fn add(&mut self, sum: u32, of: u32, more: u64) {
        if self.all.is_empty() || sum == NONE || of == NONE {
            return;
        }
        if let Some(&(bound, offset)) = self.all.get(&sum) {
            let offset = offset.wrapping_sub(more);
            self.all.entry(of).or_insert((bound, offset));
        } else if let Some(&(bound, offset)) = self.all.get(&of) {
            self.all.insert(sum, (bound, offset.wrapping_add(more)));
        }
    }
}

impl<L: Layer> Solver<L> {
    /// Whether a store through an unknown stack pointer went below a granule.
    pub(in crate::recover) fn is_below(&self, number: u32, granule: u64) -> bool {
        let Some(end) = self.built.bounds.stores.get(&number) else {
            return false;
        };
        let Some(bound) = self.bound(number) else {
            return false;
        };
        (granule << 3).wrapping_sub(bound.wrapping_add(*end)) < NEAR
    }

    /// The upper bound of the base of a store, if it is known.
    fn bound(&self, number: u32) -> Option<u64> {
        let relation = self.built.accesses[number as usize].relation;
        let base = self.built.graph.relations[relation as usize].nodes[BASE];
        let (bound, offset) = self.built.bounds.all.get(&base)?;
        Some(self.built.graph.bits(*bound).whole()?.wrapping_add(*offset))
    }
}

impl Solver<Inference> {
    /// Connects the events waiting for stores whose bounds became known. Returns whether there are
    /// any such stores.
    pub(in crate::recover) fn use_bounds(&mut self, given: &Given<'_>) -> bool {
        let new = |number: &u32| {
            self.built.accesses[*number as usize].place == Place::Open
                && !self.layer.bounded.contains(number)
                && self.bound(*number).is_some()
        };
        let mut stores: Vec<u32> = self
            .built
            .bounds
            .stores
            .keys()
            .copied()
            .filter(new)
            .collect();
        stores.sort_unstable();
        self.layer.bounded.extend(&stores);
        for &number in &stores {
            self.wake(number, given);
        }
        !stores.is_empty()
    }
}
