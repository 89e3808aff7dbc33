//! Where the instructions that store have been seen to store: what the second layer infers of
//! stores with unknown addresses.
//!
//! The addresses of the stack and of static data follow from SP and from constants, and are known
//! early; those of allocated memory come from memory. So a store with an unknown address is assumed
//! to miss the stack and static data. If it then turns out that a store of the same instruction
//! went there, or if none became known, everything is inferred again without this assumption. The
//! opposite is not inferred.

use super::inference::Inference;
use super::{Given, Solver};
use crate::recover::memory::access::{Access, AccessKind, Place};
use crate::recover::memory::regions::Class;

/// How often an instruction must have been seen.
const ENOUGH: u32 = 1;

/// Where an instruction was seen to store.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    times: u32,
    /// A bit for each class.
    classes: u8,
}

impl Solver<Inference> {
    /// Infers which classes of memory the stores with unknown addresses miss. Returns whether there
    /// are more such stores than before, in which case facts must be passed on.
    pub fn infer_sites(&mut self, given: &Given<'_>) -> bool {
        let seen = self.seen(given);
        self.layer.missed.resize(seen.len(), 0);
        self.lessons.hit.resize(seen.len(), 0);
        self.lessons.rare.resize(seen.len(), false);
        for (hit, seen) in self.lessons.hit.iter_mut().zip(&seen) {
            *hit |= seen.classes;
        }
        let mut spared = Vec::new();
        for number in 1..self.built.accesses.len() as u32 {
            let Some(op) = self.store(number) else {
                continue;
            };
            if self.built.accesses[number as usize].place != Place::Open
                || self.lessons.rare[op as usize]
            {
                continue;
            }
            let mut missed = 0;
            for class in Class::EARLY {
                if self.lessons.hit[op as usize] & bit(class) == 0
                    && self.layer.barriers[class.of_inferred()].contains(number)
                {
                    self.layer.barriers[class.of_inferred()].remove(number);
                    missed |= bit(class);
                }
            }
            if missed != 0 {
                self.layer.missed[op as usize] |= missed;
                spared.push(number);
            }
        }
        if !spared.is_empty() {
            self.settle();
            self.find_barred();
        }
        // Only after all barriers are removed: otherwise, what waits would go from each to the
        // next.
        for &number in &spared {
            self.wake(number, given);
        }
        !spared.is_empty()
    }

    /// Whether an instruction was seen to store to what it was assumed to miss, or was not seen
    /// often enough: then everything must be inferred again.
    pub fn sites_are_refuted(&mut self, given: &Given<'_>) -> bool {
        let seen = self.seen(given);
        let mut refuted = false;
        for (op, missed) in self.layer.missed.iter().enumerate() {
            let Seen { times, classes } = seen[op];
            let rare = *missed != 0 && times < ENOUGH;
            refuted |= rare || missed & classes != 0;
            self.lessons.rare[op] |= rare;
            self.lessons.hit[op] |= classes;
        }
        refuted
    }

    /// By operation: where its stores with known addresses went.
    fn seen(&self, given: &Given<'_>) -> Vec<Seen> {
        let mut all = vec![Seen::default(); given.templates.ops.len()];
        for number in 1..self.built.accesses.len() as u32 {
            let Some(op) = self.store(number) else {
                continue;
            };
            let seen = &mut all[op as usize];
            match self.built.accesses[number as usize].place {
                Place::Open => {}
                // Memory there may be of any class.
                Place::Elsewhere => seen.classes = !0,
                Place::Cells(event, _) => {
                    let cell = self.cells.events[event as usize].cell;
                    let granule = self.cells.all[cell as usize].granule;
                    seen.times += 1;
                    seen.classes |= bit(self.layer.regions.class_of(granule));
                }
            }
        }
        all
    }

    /// The operation of a store.
    fn store(&self, number: u32) -> Option<u32> {
        let Access { kind, relation, .. } = self.built.accesses[number as usize];
        (kind == AccessKind::Store).then(|| self.built.graph.relations[relation as usize].op)
    }
}

const fn bit(class: Class) -> u8 {
    1 << class as u8
}
