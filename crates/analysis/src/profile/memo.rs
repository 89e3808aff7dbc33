//! Remembers the effect of a run of blocks on the open calls, so that a recurring run costs one
//! lookup and one count.
//!
//! The effect of a run depends on the function that it starts in, on the branch before it, and on
//! its blocks: these three are the key. Anything else it may depend on is checked by
//! [`Course`](super::course::Course), or prevents the run from being remembered. So a function that
//! is called through many chains of callers has its runs only once.

use super::code::EdgeKind;
use super::functions::FunctionId;
use super::stack::CallKind;
use super::tree::LineKey;
use armsnap_arch::hash::NumberMap;
use armsnap_arch::quantity::Address;
use armsnap_trace::flow::Range;

/// The maximum number of entries. When it is exceeded, all are forgotten.
const MOST: usize = 1 << 19;
/// The maximum number of effects: some 130 MB in all, with as many entries as fit, their plans and
/// changes.
const MAX_EFFECTS: usize = 2 * MOST;
/// Keys seen once recently.
const SEEN: usize = 1 << 13;
/// Marks the step of an empty slot.
const EMPTY: u32 = u32::MAX;
/// Bit of a step: a single block, not a run.
const SINGLE: u32 = 1 << 31;
/// The branch before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tail(u32);

impl Tail {
    /// None: execution continued within a function.
    pub const NONE: Self = Self(0);
    /// Something other than a branch: an exception, a gap, the start of the trace.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// The branch at the end of the block with an index.
    pub fn of(block: usize, returns: bool) -> Self {
        Self((block as u32 + 1) << 1 | u32::from(returns))
    }

    /// Whether it is a branch.
    #[inline]
    pub fn is_branch(self) -> bool {
        self != Self::NONE && self != Self::UNKNOWN
    }

    /// Whether it returns from a function.
    #[inline]
    pub fn returns(self) -> bool {
        self.0 & 1 == 1
    }
}

/// What is executed: a run, or a block with the atom of its last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(u32);

impl Step {
    #[inline]
    pub fn run(number: usize) -> Self {
        Self(number as u32)
    }

    #[inline]
    pub fn block(index: usize, taken: bool) -> Self {
        Self(SINGLE | (index as u32) << 1 | u32::from(taken))
    }

    /// Returns the number of a run, or the index of a block with its atom.
    pub fn split(self) -> Result<usize, (usize, bool)> {
        match self.0 & SINGLE {
            0 => Ok(self.0 as usize),
            _ => Err(((self.0 & !SINGLE) as usize >> 1, self.0 & 1 == 1)),
        }
    }
}

/// The key that determines the effect of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The function of the innermost call in which the run starts; after a return, that of the
    /// caller. If straight lines are counted by calling context, the node of that call instead.
    pub place: u32,
    pub tail: Tail,
    pub step: Step,
}

impl Key {
    #[inline]
    fn mixed(self) -> u64 {
        let both = u64::from(self.place) << 32 | u64::from(self.step.0);
        (both ^ u64::from(self.tail.0) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// An entry of the memo. Read each time its run is executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    key: Key,
    /// The branch at its end.
    pub tail: Tail,
    /// How often it recurred.
    pub count: u64,
    /// The index of its plan; `None` if the effect of the run varies.
    plan: Option<u32>,
    /// Whether it leaves the open calls unchanged.
    pub stays: bool,
}

/// A change to the open calls made by a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Instructions and blocks of the run before the change.
    pub instructions: u32,
    pub blocks: u32,
    pub function: FunctionId,
    pub kind: CallKind,
    /// The return address of a call. A function that replaces another one takes over its return
    /// address.
    pub returns_to: Option<Address>,
}

/// What a run adds to sums. (Additions to nodes of the tree depend on the calling context.)
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// It calls a function.
    Calls(FunctionId),
    /// It executes a straight line.
    Line(LineKey),
}

/// The effect of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    /// Its first instruction.
    pub start: Address,
    /// Whether it replaces the innermost call, in which it starts, with another one.
    pub replaces: bool,
    /// The branch before it, if it has an edge of its own.
    edge: Option<(Address, EdgeKind)>,
    /// The indices of the changes to the open calls: the first, and the one after the last.
    pub changes: (u32, u32),
    effects: (u32, u32),
}

/// The last straight line before a run, and its edge.
pub(super) type Exit = (Range, Option<(Address, EdgeKind)>);

/// Observations while a run was executed.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Whether a run is being watched.
    pub active: bool,
    /// Whether its effect was the same in every execution so far.
    pub repeats: bool,
    /// Instructions before the run, and its blocks so far.
    pub before: u64,
    pub blocks: u32,
    /// Whether the innermost call returned.
    pub returned: bool,
    pub replaces: bool,
    pub changes: Vec<Change>,
    pub effects: Vec<Effect>,
}

impl Draft {
    /// Starts watching a run.
    pub fn start(&mut self, before: u64) {
        self.changes.clear();
        self.effects.clear();
        *self = Self {
            active: true,
            repeats: true,
            before,
            changes: std::mem::take(&mut self.changes),
            effects: std::mem::take(&mut self.effects),
            ..Self::default()
        };
    }

    /// Records a call of a function.
    pub fn calls(&mut self, function: FunctionId) {
        if self.active {
            self.effects.push(Effect::Calls(function));
        }
    }

    /// Records a straight line executed in a node.
    pub fn line(&mut self, line: LineKey) {
        if self.active {
            self.effects.push(Effect::Line(line));
        }
    }

    /// Notes that the effect may vary.
    pub fn varies(&mut self) {
        self.repeats = false;
    }
}

/// The runs that occurred several times.
#[derive(Debug)]
pub(super) struct Memo {
    /// A hash table with open addressing, at most half full.
    slots: Vec<Entry>,
    used: Vec<u32>,
    seen: Vec<u32>,
    plans: Vec<Plan>,
    changes: Vec<Change>,
    effects: Vec<Effect>,
    exits: NumberMap<u32, Exit>,
}

const FREE: Entry = Entry {
    key: Key {
        place: 0,
        tail: Tail::NONE,
        step: Step(EMPTY),
    },
    tail: Tail::NONE,
    count: 0,
    plan: None,
    stays: false,
};

impl Default for Memo {
    fn default() -> Self {
        Self {
            slots: vec![FREE; 1 << 12],
            used: Vec::new(),
            seen: vec![0; SEEN],
            plans: Vec::new(),
            changes: Vec::new(),
            effects: Vec::new(),
            exits: NumberMap::default(),
        }
    }
}

impl Memo {
    /// Returns an entry.
    #[inline]
    pub fn get_mut(&mut self, slot: usize) -> &mut Entry {
        &mut self.slots[slot]
    }

    /// Returns the slot of a key.
    #[inline]
    pub fn find(&self, key: Key) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = (key.mixed() >> 32) as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.key == key {
                return Some(at);
            }
            if slot.key.step.0 == EMPTY {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the effect of an entry's run.
    #[inline]
    pub fn plan(&self, entry: &Entry) -> Option<Plan> {
        Some(self.plans[entry.plan? as usize])
    }

    /// Returns a change of a plan, by its index.
    #[inline]
    pub fn change(&self, index: u32) -> Change {
        self.changes[index as usize]
    }

    /// Returns whether a key was seen before, recently: most keys seen once do not recur.
    pub fn came(&mut self, key: Key) -> bool {
        let mixed = key.mixed();
        let tag = (mixed >> 16) as u32 | 1;
        std::mem::replace(&mut self.seen[(mixed >> 51) as usize % SEEN], tag) == tag
    }

    /// Returns whether the memo is full.
    pub fn is_full(&self) -> bool {
        self.used.len() >= MOST || self.effects.len() >= MAX_EFFECTS
    }

    /// Remembers a run.
    pub fn learn(
        &mut self,
        key: Key,
        start: Address,
        edge: Option<(Address, EdgeKind)>,
        draft: &Draft,
        tail: Tail,
    ) {
        if (self.used.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let plan = (draft.repeats && tail != Tail::UNKNOWN).then(|| {
            let (changes, effects) = (self.changes.len() as u32, self.effects.len() as u32);
            self.changes.extend(&draft.changes);
            self.effects.extend(&draft.effects);
            self.plans.push(Plan {
                start,
                replaces: draft.replaces,
                edge,
                changes: (changes, self.changes.len() as u32),
                effects: (effects, self.effects.len() as u32),
            });
            self.plans.len() as u32 - 1
        });
        let at = self.vacant(key);
        self.slots[at] = Entry {
            key,
            tail,
            count: 0,
            plan,
            stays: plan.is_some() && draft.changes.is_empty() && !key.tail.returns(),
        };
        self.used.push(at as u32);
    }

    fn vacant(&self, key: Key) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.mixed() >> 32) as usize & mask;
        while self.slots[at].key.step.0 != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![FREE; size]);
        self.used.clear();
        for entry in old.into_iter().filter(|entry| entry.key.step.0 != EMPTY) {
            let at = self.vacant(entry.key);
            self.slots[at] = entry;
            self.used.push(at as u32);
        }
    }

    /// Returns the end of a block with the branch at its end.
    pub fn exit(&self, tail: Tail) -> Option<&Exit> {
        self.exits.get(&tail.0)
    }

    /// Remembers the end of a block that leaves its function.
    pub fn learn_exit(&mut self, tail: Tail, exit: Exit) {
        self.exits.insert(tail.0, exit);
    }

    /// Forgets the ends of blocks.
    pub fn forget_exits(&mut self) {
        self.exits.clear();
    }

    /// Passes on the recurrences, and forgets all runs.
    pub fn drain(
        &mut self,
        mut add: impl FnMut(Step, u64, Option<(Address, Address, EdgeKind)>, &[Effect]),
    ) {
        for at in self.used.drain(..) {
            let entry = std::mem::replace(&mut self.slots[at as usize], FREE);
            if let Some(plan) = entry.plan.filter(|_| entry.count > 0) {
                let plan = &self.plans[plan as usize];
                let (first, after) = plan.effects;
                let effects = &self.effects[first as usize..after as usize];
                let edge = plan.edge.map(|(from, kind)| (from, plan.start, kind));
                add(entry.key.step, entry.count, edge, effects);
            }
        }
        self.plans.clear();
        self.changes.clear();
        self.effects.clear();
    }

    /// Returns how often runs recurred since the last [`Self::drain`]: those that leave the open
    /// calls unchanged, and those that change them.
    #[cfg(test)]
    pub fn times(&self) -> [u64; 2] {
        let mut times = [0; 2];
        for entry in &self.slots {
            if let Some(plan) = self.plan(entry) {
                let changes = plan.changes.0 < plan.changes.1 || entry.key.tail.returns();
                times[usize::from(changes)] += entry.count;
            }
        }
        times
    }
}
