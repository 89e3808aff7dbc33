//! The states of a function at each of its instructions, along all paths from its entry.

use super::state::State;
use armsnap_arch::arch::a64;
use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::Address;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of times that a function is followed, each time assuming more calls that do
/// not return.
const TRIES: usize = 64;

/// The states of a function.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// The state before each instruction; `None` if no path reaches it.
    pub states: Vec<Option<State>>,
    /// The exits that are neither calls nor returns.
    pub exits: Vec<Exit>,
}

/// A way out of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub target: u64,
    pub state: State,
    /// Whether the exit is certain: it is not reached through a call or padding at the function's
    /// end.
    pub sure: bool,
}

const NOP: u32 = 0xd503_201f;

impl Paths {
    /// Follows the code at `start` from these instructions.
    ///
    /// It is unknown which calls return. Code after a call that does not return is reached from
    /// elsewhere, or belongs to another function. The paths after calls are therefore followed
    /// last. If another path contradicts the state after a call, the function is followed again
    /// without the path after that call.
    pub(super) fn of(start: u64, code: &[u32], entries: &[(usize, State)]) -> Self {
        let mut final_calls = BTreeSet::new();
        for _ in 0..TRIES {
            match Walk::new(start, code).run(entries, &final_calls) {
                Ok(paths) => return paths,
                Err(after) => final_calls.insert(after),
            };
        }
        Self {
            states: vec![None; code.len()],
            exits: Vec::new(),
        }
    }
}

struct Walk<'a> {
    start: u64,
    code: &'a [u32],
    paths: Paths,
    /// The instructions whose states come from the preceding call.
    after_calls: BTreeSet<usize>,
    /// Targets of branches, to be followed.
    branches: Vec<(usize, State)>,
    /// Instructions after calls, to be followed last.
    calls: BTreeMap<usize, State>,
    /// The branches of `switch` statements, whose targets are in tables.
    switches: Option<Switches>,
    /// Whether the code being followed is only assumed to be reached by these branches, because no
    /// other path reaches it.
    inferred: bool,
    /// The first instruction that may be [unreached](Self::unreached): states are never forgotten, so
    /// the search continues where the last one ended.
    searched: usize,
}

/// The states at branches of `switch` statements.
struct Switches {
    first: State,
    merged: State,
    /// Whether any state conflicts with the first.
    conflict: bool,
}

impl<'a> Walk<'a> {
    fn new(start: u64, code: &'a [u32]) -> Self {
        Self {
            start,
            code,
            paths: Paths {
                states: vec![None; code.len()],
                exits: Vec::new(),
            },
            after_calls: BTreeSet::new(),
            branches: Vec::new(),
            calls: BTreeMap::new(),
            switches: None,
            inferred: false,
            searched: 1,
        }
    }

    /// Follows all paths. Fails with the instruction after a call that does not return.
    fn run(
        mut self,
        entries: &[(usize, State)],
        final_calls: &BTreeSet<usize>,
    ) -> Result<Paths, usize> {
        self.branches.extend(entries.iter().copied());
        loop {
            if let Some((at, state)) = self.branches.pop() {
                self.follow(at, state)?;
            } else if let Some((at, state)) = self.calls.pop_first() {
                let known = self.paths.states[at];
                let elsewhere = !self.after_calls.contains(&at)
                    && known.is_some_and(|known| known.conflicts(&state));
                if !elsewhere && !final_calls.contains(&at) {
                    self.after_calls.extend(known.is_none().then_some(at));
                    self.merge(at, state);
                }
            } else if let Some(state) = self.switched()
                && let Some(at) = self.unreached()
            {
                self.inferred = true;
                self.merge(at, state);
            } else {
                return Ok(self.paths);
            }
        }
    }

    /// Returns the first instruction that no path reaches although it is code, after an instruction
    /// that does not continue to it.
    fn unreached(&mut self) -> Option<usize> {
        let is_code = |word: u32| word != NOP && word >> 16 != 0;
        let mut places = self.searched..self.code.len();
        let found = places.find(|&at| {
            let before = a64::decode(Address(0), self.code[at - 1]);
            let leaves = matches!(before.kind, Kind::Branch { .. } | Kind::Indirect);
            let unknown = self.paths.states[at].is_none() && is_code(self.code[at]);
            unknown && leaves && !before.conditional
        });
        self.searched = found.unwrap_or(self.code.len());
        found
    }

    /// Returns the state after the branches of `switch` statements, if they do not conflict.
    fn switched(&self) -> Option<State> {
        let switches = self.switches.as_ref()?;
        (!switches.conflict).then_some(switches.merged)
    }

    fn add_switch(&mut self, state: State) {
        let switches = self.switches.get_or_insert(Switches {
            first: state,
            merged: state,
            conflict: false,
        });
        switches.conflict |= switches.first.conflicts(&state);
        switches.merged = switches.merged.merge(&state);
    }

    /// Returns whether an indirect branch belongs to a `switch` statement: its address is a sum
    /// (ADD of registers).
    fn is_switch(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).map(|before| self.code[before]) else {
            return false;
        };
        let is_add = matches!(before & 0xff20_0000, 0x8b00_0000 | 0x8b20_0000);
        is_add && before & 0x1f == self.code[at] >> 5 & 0x1f
    }

    /// Records a state, and follows it if it is new.
    fn merge(&mut self, at: usize, state: State) {
        let known = self.paths.states[at];
        if self.contradicts(known, &state) {
            return;
        }
        let merged = known.map_or(state, |known| known.merge(&state));
        if known != Some(merged) {
            self.paths.states[at] = Some(merged);
            self.straight(at, merged);
        }
    }

    /// Returns whether an inferred state contradicts the known paths.
    fn contradicts(&self, known: Option<State>, state: &State) -> bool {
        self.inferred && known.is_some_and(|known| known.conflicts(state))
    }

    fn follow(&mut self, at: usize, state: State) -> Result<(), usize> {
        let known = self.paths.states[at];
        let conflicts = known.is_some_and(|known| known.conflicts(&state));
        if conflicts && !self.inferred && self.after_calls.contains(&at) {
            return Err(at);
        }
        self.merge(at, state);
        Ok(())
    }

    /// Follows the straight line from an instruction whose state is recorded.
    fn straight(&mut self, mut at: usize, mut state: State) {
        loop {
            let word = self.code[at];
            let address = self.start + 4 * at as u64;
            let instruction = a64::decode(Address(address), word);
            state.execute(word);
            match instruction.kind {
                Kind::Branch { .. } | Kind::Indirect if instruction.link => {
                    state.called();
                    self.after_call(at + 1, state);
                    return;
                }
                Kind::Branch { target, .. } => {
                    self.branch(target.0, state);
                    if !instruction.conditional {
                        return;
                    }
                }
                Kind::Indirect => {
                    if self.is_switch(at) {
                        self.add_switch(state);
                    }
                    return;
                }
                // UDF: padding
                _ if word >> 16 == 0 => return,
                // BRK: of a warning, or without return
                _ if word & 0xffe0_001f == 0xd420_0000 => {
                    self.after_call(at + 1, state);
                    return;
                }
                _ => {}
            }
            at += 1;
            if at == self.code.len() {
                self.leave(address + 4, state, word != NOP);
                return;
            }
            if self.after_calls.contains(&at) {
                // This path may show that the preceding call does not return.
                self.branches.push((at, state));
                return;
            }
            let known = self.paths.states[at];
            let merged = known.map_or(state, |known| known.merge(&state));
            if known == Some(merged) || self.contradicts(known, &state) {
                return;
            }
            self.paths.states[at] = Some(merged);
            state = merged;
        }
    }

    fn branch(&mut self, target: u64, state: State) {
        let offset = target.wrapping_sub(self.start);
        match usize::try_from(offset / 4) {
            Ok(index) if index < self.code.len() && offset.is_multiple_of(4) => {
                self.branches.push((index, state));
            }
            _ => self.leave(target, state, true),
        }
    }

    /// Records the path that continues after a call.
    fn after_call(&mut self, at: usize, state: State) {
        if at < self.code.len() {
            self.calls.insert(at, state);
        } else {
            self.leave(self.start + 4 * at as u64, state, false);
        }
    }

    fn leave(&mut self, target: u64, state: State, sure: bool) {
        self.paths.exits.push(Exit {
            target,
            state,
            sure: sure && !self.inferred,
        });
    }
}
