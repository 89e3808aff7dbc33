//! The states of a function at each of its instructions, along all paths from its entry.

use super::state::State;
use crate::arch::a64;
use crate::arch::branch::Kind;
use crate::quantity::Address;
use std::collections::{BTreeMap, BTreeSet};

/// How often a function is tried again, without calls that do not return.
const TRIES: usize = 64;

/// The states of a function.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Before each instruction; `None` where no path leads.
    pub states: Vec<Option<State>>,
    /// Where it leaves other than by calls and returns.
    pub exits: Vec<Exit>,
}

/// A way out of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub target: u64,
    pub state: State,
    /// Whether it is taken for sure, not behind a call, or padding, at the function's end.
    pub sure: bool,
}

const NOP: u32 = 0xd503_201f;

impl Paths {
    /// Follows the code at `start` from these instructions.
    ///
    /// Whether a call returns is not known: what follows a call that does not is reached from
    /// elsewhere, or is another function's. So the paths behind calls are followed last, and where
    /// another path shows that such a state is wrong, again without that one.
    pub fn of(start: u64, code: &[u32], entries: &[(usize, State)]) -> Self {
        let mut final_calls = BTreeSet::new();
        for _ in 0..TRIES {
            match Walk::new(start, code).run(entries, &final_calls) {
                Ok(paths) => return paths,
                Err(behind) => final_calls.insert(behind),
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
    /// The instructions whose states come from the call before.
    behind_calls: BTreeSet<usize>,
    /// The paths to follow: branches, and, by place, what is behind calls.
    branches: Vec<(usize, State)>,
    calls: BTreeMap<usize, State>,
    /// The states at branches of `switch` statements, whose targets are in tables.
    switches: Vec<State>,
    /// What is followed now is reached by these branches, as it is reached by no other path.
    inferred: bool,
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
            behind_calls: BTreeSet::new(),
            branches: Vec::new(),
            calls: BTreeMap::new(),
            switches: Vec::new(),
            inferred: false,
        }
    }

    /// Fails with the instruction behind a call that does not return.
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
                let elsewhere = !self.behind_calls.contains(&at)
                    && known.is_some_and(|known| known.conflicts(&state));
                if !elsewhere && !final_calls.contains(&at) {
                    self.behind_calls.extend(known.is_none().then_some(at));
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

    /// The first instruction that no path reaches, behind one that does not go on there.
    fn unreached(&self) -> Option<usize> {
        let is_code = |word: u32| word != NOP && word >> 16 != 0;
        let mut places = 1..self.code.len();
        places.find(|&at| {
            let before = a64::decode(Address(0), self.code[at - 1]);
            let leaves = matches!(before.kind, Kind::Branch { .. } | Kind::Indirect);
            let unknown = self.paths.states[at].is_none() && is_code(self.code[at]);
            unknown && leaves && !before.conditional
        })
    }

    /// The state behind the branches of `switch` statements, if it is one.
    fn switched(&self) -> Option<State> {
        let (first, others) = self.switches.split_first()?;
        let same = others.iter().all(|other| !first.conflicts(other));
        let merged = others.iter().fold(*first, |all, other| all.merge(other));
        same.then_some(merged)
    }

    /// Whether the branch to a register at an instruction is that of a `switch` statement: the
    /// address is a sum (ADD of registers).
    fn is_switch(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).map(|before| self.code[before]) else {
            return false;
        };
        let is_add = matches!(before & 0xff20_0000, 0x8b00_0000 | 0x8b20_0000);
        is_add && before & 0x1f == self.code[at] >> 5 & 0x1f
    }

    /// Notes a state, and follows it if it is new.
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

    /// Whether an inferred state is not that of the known paths.
    fn contradicts(&self, known: Option<State>, state: &State) -> bool {
        self.inferred && known.is_some_and(|known| known.conflicts(state))
    }

    fn follow(&mut self, at: usize, state: State) -> Result<(), usize> {
        let known = self.paths.states[at];
        let conflicts = known.is_some_and(|known| known.conflicts(&state));
        if conflicts && !self.inferred && self.behind_calls.contains(&at) {
            return Err(at);
        }
        self.merge(at, state);
        Ok(())
    }

    /// Follows the straight line from an instruction whose state is noted.
    fn straight(&mut self, mut at: usize, mut state: State) {
        loop {
            let word = self.code[at];
            let address = self.start + 4 * at as u64;
            let instruction = a64::decode(Address(address), word);
            state.execute(word);
            match instruction.kind {
                Kind::Branch { .. } | Kind::Indirect if instruction.link => {
                    state.called();
                    self.behind(at + 1, state);
                    return;
                }
                Kind::Branch { target, .. } => {
                    self.branch(target.0, state);
                    if !instruction.conditional {
                        return;
                    }
                }
                Kind::Indirect => {
                    self.switches.extend(self.is_switch(at).then_some(state));
                    return;
                }
                // UDF: padding
                _ if word >> 16 == 0 => return,
                // BRK: of a warning, or final
                _ if word & 0xffe0_001f == 0xd420_0000 => {
                    self.behind(at + 1, state);
                    return;
                }
                _ => {}
            }
            at += 1;
            if at == self.code.len() {
                self.leave(address + 4, state, word != NOP);
                return;
            }
            if self.behind_calls.contains(&at) {
                // May show that the call before it does not return.
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

    /// Notes what is behind a call.
    fn behind(&mut self, at: usize, state: State) {
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
