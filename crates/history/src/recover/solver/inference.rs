//! The two layers, and how the second begins, starts again and ends.

use super::{Given, Solver};
use crate::recover::bits::{Bits, low, untagged};
use crate::recover::execution::template::{
    SAME_BY_CONVENTION, SIGNAL_ARGUMENTS, SIGNAL_FRAME, SYSTEM_CALL,
};
use crate::recover::graph::nodes::NONE;
use crate::recover::kernel::signals::Frames;
use crate::recover::memory::access::Place;
use crate::recover::memory::barriers::Barriers;
use crate::recover::memory::cells::{Connection, Link};
use crate::recover::memory::lifetimes::{Lifetimes, Reached};
use crate::recover::memory::regions::{Class, Regions};
use armsnap_arch::hash::NumberSet;

/// A layer: the rules in use, with what they found.
pub(in crate::recover) trait Layer {
    /// What the second layer found, if its rules are in use.
    fn inference(&self) -> Option<&Inference>;

    /// The same, to be changed.
    fn inference_mut(&mut self) -> Option<&mut Inference>;
}

/// The first layer: only what is proved. Its results are in the [`Solver`], where the second layer
/// reads them.
#[derive(Debug, Default)]
pub(in crate::recover) struct Proof;

impl Layer for Proof {
    fn inference(&self) -> Option<&Inference> {
        None
    }

    fn inference_mut(&mut self) -> Option<&mut Inference> {
        None
    }
}

/// The second layer: what also follows from the calling convention and from rules on where stores go.
#[derive(Debug, Default)]
pub(in crate::recover) struct Inference {
    /// What was proved.
    pub(super) proved: Saved,
    pub(super) regions: Regions,
    /// The barriers of each class of [`Class::INFERRED`].
    pub(super) barriers: [Barriers; Class::INFERRED.len()],
    /// Set once everything that can be known of the stack pointer without memory is known.
    pub(super) lifetimes: Option<Lifetimes>,
    /// Whether a link was found to cross a store that may have written its cell.
    pub(super) overtaken: bool,
    /// Whether no word of the stack is assumed to be a slot, after attempts ended in
    /// contradictions.
    pub(super) without_slots: bool,
    /// Accesses found to be outside memory.
    pub(super) elsewhere: Vec<u32>,
    /// By operation: the classes that its stores with unknown addresses were assumed to miss.
    pub(super) missed: Vec<u8>,
    /// Stores whose bound is known, and whose waiting events were connected again.
    pub(super) bounded: NumberSet<u32>,
    /// The state before inferring where instructions store.
    fixed_point: Option<FixedPoint>,
}

impl Layer for Inference {
    fn inference(&self) -> Option<&Inference> {
        Some(self)
    }

    fn inference_mut(&mut self) -> Option<&mut Inference> {
        Some(self)
    }
}

impl Inference {
    /// Approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.barriers.iter().map(Barriers::bytes).sum::<usize>()
            + self.proved.masks.capacity() * size_of::<u64>()
            + self.proved.connections.capacity() * size_of::<Connection>()
            + self.lifetimes.as_ref().map_or(0, Lifetimes::bytes)
    }

    /// The bits of a node that are proved.
    pub(super) fn proved(&self, node: u32) -> u64 {
        self.proved.masks.get(node as usize).copied().unwrap_or(0)
    }

    /// Whether the first layer joined two neighbours.
    pub(super) fn is_joined_by_proof(&self, event: u32, older: u32) -> bool {
        let proved = &self.proved.connections;
        (event.max(older) as usize) < proved.len() && proved[event as usize].2 == Link::Joined
    }

    /// How many words of the stack computed addresses are known to reach.
    fn reached(&self) -> usize {
        self.lifetimes.as_ref().map_or(0, |l| l.reached.len())
    }
}

/// What is known of nodes and events at one time.
#[derive(Debug, Default)]
pub(super) struct Saved {
    /// By node: its known bits.
    masks: Vec<u64>,
    /// By event: how it is connected.
    pub(super) connections: Vec<Connection>,
}

/// What the second layer knew when it had nothing left to pass on.
#[derive(Debug)]
struct FixedPoint {
    saved: Saved,
    elsewhere: usize,
    /// How many words of the stack computed addresses were known to reach.
    reached: usize,
}

/// What the attempts at the second layer revealed of its assumptions. It outlives them.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    /// Nodes that are left open, because the second layer contradicted itself there.
    pub cut: Vec<u32>,
    /// Computed addresses known from earlier attempts.
    pub reached: Reached,
    /// By operation: the classes that its stores may hit.
    pub hit: Vec<u8>,
    /// By operation: whether its stores were not seen often enough, with what is known now.
    pub rare: Vec<bool>,
    /// The signal frames in the final memory, once one is searched for.
    pub frames: Option<Frames>,
}

impl Solver<Proof> {
    /// Forgets which instructions were not seen often enough, because more is known now.
    pub fn forget_rare(&mut self) {
        self.lessons.rare.clear();
    }

    /// Begins the second layer, once nothing is left to prove.
    pub fn infer(self, given: &Given<'_>) -> Solver<Inference> {
        let proved = self.saved();
        let mut solver = self.with(Inference {
            proved,
            ..Inference::default()
        });
        solver.begin(given);
        solver
    }
}

impl Solver<Inference> {
    /// Returns to what is proved.
    pub fn back_to_proof(mut self) -> Solver<Proof> {
        self.forget_inferred();
        self.with(Proof)
    }

    /// Begins the second layer again, with what was learned from the last attempt.
    pub fn infer_again(&mut self, given: &Given<'_>) {
        self.forget_inferred();
        self.begin(given);
    }

    /// Forgets everything that is not proved, except what was learned from it.
    fn forget_inferred(&mut self) {
        if let Some(lifetimes) = self.layer.lifetimes.take() {
            self.lessons.reached = lifetimes.reached;
        }
        self.layer.fixed_point = None;
        self.layer.overtaken = false;
        let proved = std::mem::take(&mut self.layer.proved);
        self.go_back(&proved, 0);
        self.layer.proved = proved;
    }

    fn begin(&mut self, given: &Given<'_>) {
        self.find_regions(given);
        self.class_barriers(given);
        self.relink_blocked(given);
        let rests_on_rules = [
            SAME_BY_CONVENTION,
            SYSTEM_CALL,
            SIGNAL_FRAME,
            SIGNAL_ARGUMENTS,
        ];
        self.ask_again(|op| rests_on_rules.contains(&op));
        for at in 0..self.built.hinted.len() {
            let (node, value) = self.built.hinted[at];
            if node != NONE {
                self.learn(node, Bits::known(value), NONE);
            }
        }
        for at in 0..self.built.inferred.len() {
            let (node, bits) = self.built.inferred[at];
            self.learn(node, bits, NONE);
        }
        for at in 0..self.built.tagged.len() {
            let node = self.built.tagged[at];
            let bits = self.built.graph.bits(node);
            if bits.mask >> 55 & 1 == 1 {
                let top = Bits::new(!low(56), untagged(bits.value));
                self.learn(node, top, NONE);
            }
        }
    }

    /// Saves what is known, unless earlier knowledge is saved.
    pub(super) fn settle(&mut self) {
        if self.layer.fixed_point.is_none() {
            self.layer.fixed_point = Some(FixedPoint {
                saved: self.saved(),
                elsewhere: self.layer.elsewhere.len(),
                reached: self.layer.reached(),
            });
        }
    }

    /// Returns to what [`Self::settle`] saved. Returns whether there is any.
    pub fn go_back_to_fixed_point(&mut self, given: &Given<'_>) -> bool {
        let reached = self.layer.reached();
        // Otherwise it rests on assumed slots that are none.
        let fixed_point = self.layer.fixed_point.take();
        let Some(fixed_point) = fixed_point.filter(|point| point.reached == reached) else {
            return false;
        };
        self.go_back(&fixed_point.saved, fixed_point.elsewhere);
        self.layer.fixed_point = Some(fixed_point);
        self.class_barriers(given);
        self.find_barred();
        // That a system call writes nothing is recorded only in the barriers.
        self.ask_again(|op| op == SYSTEM_CALL);
        true
    }

    /// Everything is solved: from here, only a return to what is proved is possible.
    pub fn forget_fixed_point(&mut self) {
        self.layer.fixed_point = None;
    }

    /// Forgets what was found since something was saved.
    fn go_back(&mut self, saved: &Saved, elsewhere: usize) {
        self.layer.missed.clear();
        self.layer.bounded.clear();
        self.built.graph.restore(&saved.masks);
        let events = saved.connections.len();
        for access in &mut self.built.accesses {
            if matches!(access.place, Place::Cells(event, _) if event as usize >= events) {
                access.place = Place::Open;
            }
        }
        for number in self.layer.elsewhere.drain(elsewhere..) {
            self.built.accesses[number as usize].place = Place::Open;
        }
        self.cells.restore(&saved.connections);
        self.watch_again();
    }

    fn find_regions(&mut self, given: &Given<'_>) {
        let regions = &mut self.layer.regions;
        regions.find_statics(given.memory);
        let cells = (&self.cells, &self.built.graph);
        let last = given.stack.filter(|_| given.is_final);
        let stack = (&self.built.hinted[..], last);
        regions.find_stack(&self.built.accesses, cells, given.templates, stack);
        if let Some(frame) = given.frame.filter(|_| given.is_final) {
            regions.find_records(frame, given.memory);
        }
    }

    /// Finds the barriers of each class of cells.
    fn class_barriers(&mut self, given: &Given<'_>) {
        self.layer.barriers = Default::default();
        for number in 0..self.built.accesses.len() {
            let access = self.built.accesses[number];
            let open = access.place == Place::Open && self.barriers.contains(number as u32);
            let direct = access.relation != NONE && {
                let relation = &self.built.graph.relations[access.relation as usize];
                given.templates.op(relation.op).direct
            };
            for (barriers, class) in self.layer.barriers.iter_mut().zip(Class::INFERRED) {
                barriers.push(open && Regions::may_write(&access, direct, class));
            }
        }
    }

    /// The class of a granule.
    pub fn class_of(&self, granule: u64) -> Class {
        self.layer.regions.class_of(granule)
    }

    /// The bits of a node that are proved.
    pub fn proved(&self, node: u32) -> u64 {
        self.layer.proved(node)
    }

    /// Whether only the second layer knows where an access went.
    pub fn is_placed_by_inference(&self, access: u32) -> bool {
        match self.built.accesses[access as usize].place {
            Place::Cells(event, _) => event as usize >= self.layer.proved.connections.len(),
            Place::Open | Place::Elsewhere => false,
        }
    }

    /// Whether a link was found to cross a store that may have written its cell.
    pub fn is_overtaken(&self) -> bool {
        self.layer.overtaken
    }

    /// Whether words of the stack are assumed to be slots.
    pub fn assumes_slots(&self) -> bool {
        !self.layer.without_slots
    }

    /// Assumes no word of the stack to be a slot from the next attempt on.
    pub fn assume_no_slots(&mut self) {
        self.layer.without_slots = true;
    }

    /// Whether nodes were left open.
    #[cfg(test)]
    pub fn has_cut(&self) -> bool {
        !self.lessons.cut.is_empty()
    }

    /// Leaves open the nodes where facts contradicted each other in this layer. Returns whether
    /// there are new ones.
    pub fn cut_conflicts(&mut self) -> bool {
        let cut = &mut self.lessons.cut;
        let before = cut.len();
        let conflicts = self.built.graph.conflicts.iter().copied();
        cut.extend(conflicts.filter(|&node| node != NONE));
        cut.sort_unstable();
        cut.dedup();
        cut.len() > before
    }
}

impl<L> Solver<L> {
    /// Continues in another layer.
    fn with<M>(self, layer: M) -> Solver<M> {
        Solver {
            built: self.built,
            cells: self.cells,
            barriers: self.barriers,
            watchers: self.watchers,
            pending: self.pending,
            kept: self.kept,
            unaligned: self.unaligned,
            sharing: self.sharing,
            lessons: self.lessons,
            layer,
        }
    }

    /// What is known now.
    fn saved(&self) -> Saved {
        Saved {
            masks: self.built.graph.masks(),
            connections: self.cells.connections(),
        }
    }
}
