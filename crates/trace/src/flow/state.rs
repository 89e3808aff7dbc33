//! The saved state of a flow, to resume later or in another flow over the same code.
//!
//! It contains no block numbers, because they are valid in one table of blocks only.

use super::blocks::{AWAIT, NOWHERE, Space};
use super::code::{CodeImage, ContextKey};
use super::follow::{Arrival, Flow};
use super::lines::PendingQ;
use super::output::{Held, LostAt};
use super::return_stack::{DEPTH, ReturnStack};
use armsnap_arch::quantity::{Address, Isa};

/// The state of a flow without its blocks.
///
/// In a part of a trace that is decoded on its own, callers from before the part are unknown. The
/// state of such a flow is [completed](Self::over) with the callers of the flow that it
/// [continues](Self::below).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FlowState {
    space: Space,
    current: BlockKey,
    left: BlockKey,
    linking: Option<BlockKey>,
    held: Option<(Held, BlockKey)>,
    q: Option<(PendingQ, BlockKey)>,
    lost: Option<LostAt>,
    /// Oldest first.
    stack: Box<[BlockKey]>,
    /// The number of unknown callers that there may be below these.
    room: usize,
}

/// Callers below those that a flow knows, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Below(Box<[BlockKey]>);

impl FlowState {
    /// Returns the same state, but above callers that are not known.
    #[must_use]
    pub fn with_unknown_callers(self) -> Self {
        Self {
            room: DEPTH.saturating_sub(self.stack.len()),
            ..self
        }
    }

    /// Compares this state, in which all callers are known, with that of a flow that may not know the
    /// oldest ones. If both flows continue in the same way, returns the callers that the other one
    /// does not know.
    #[must_use]
    pub fn below(&self, other: &Self) -> Option<Below> {
        let (below, top) = self
            .stack
            .split_at(self.stack.len().checked_sub(other.stack.len())?);
        let completed = Self {
            room: other.room,
            stack: top.into(),
            ..self.clone()
        };
        (below.len() <= other.room && self.room == 0 && completed == *other)
            .then(|| Below(below.into()))
    }

    /// Returns the state in which the callers below the known ones are known too.
    #[must_use]
    pub fn over(&self, below: &Below) -> Self {
        // The oldest were dropped if the stack became full.
        let dropped = below.0.len().saturating_sub(self.room);
        Self {
            room: 0,
            stack: [&below.0[dropped..], &self.stack].concat().into(),
            ..self.clone()
        }
    }
}

/// Identifies a block in any table of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum BlockKey {
    Nowhere,
    Await,
    Block {
        space: Space,
        isa: Isa,
        start: Address,
    },
}

impl<C: CodeImage> Flow<C> {
    /// Returns the current state.
    pub fn state(&self) -> FlowState {
        let key = |block: u32| self.key(block);
        FlowState {
            space: self.space,
            current: key(self.current),
            left: key(self.left),
            linking: self.linking.map(key),
            held: self.held.map(|mut held| {
                let block = std::mem::replace(&mut held.block, NOWHERE);
                (held, key(block))
            }),
            q: self.q.map(|mut q| {
                let from = std::mem::replace(&mut q.from, NOWHERE);
                (q, key(from))
            }),
            lost: self.lost,
            stack: self.stack.clone().drain().into_iter().map(key).collect(),
            room: self.stack.room(),
        }
    }

    /// Continues from the state of a flow with the same configuration and code.
    pub fn resume(&mut self, state: &FlowState) {
        let missed = self.stack.take_missed();
        self.restart();
        self.space = state.space;
        self.current = self.find_key(state.current);
        self.left = self.find_key(state.left);
        self.linking = state.linking.map(|key| self.find_key(key));
        if let Some((mut held, key)) = state.held {
            held.block = self.find_key(key);
            self.held = Some(held);
        }
        if let Some((mut q, key)) = state.q {
            q.from = self.find_key(key);
            self.q = Some(q);
        }
        self.lost = state.lost;
        let callers = state.stack.iter().map(|&key| self.find_key(key));
        let callers: Vec<u32> = callers.collect();
        self.stack = ReturnStack::with_callers(&callers, state.room);
        self.stack.set_missed(missed);
    }

    /// Returns whether, since the last call, the target of a return was a caller that is not known
    /// here. What was emitted since may then be wrong.
    pub fn take_missed(&mut self) -> bool {
        self.stack.take_missed()
    }

    /// Resets the state to the start of a trace; keeps the blocks.
    pub fn restart(&mut self) {
        self.space = Space::of(self.code.view(&ContextKey::default()));
        self.current = NOWHERE;
        self.left = NOWHERE;
        self.stack = ReturnStack::default();
        self.linking = None;
        self.held = None;
        self.q = None;
        self.arrived = Arrival::default();
        self.lost = None;
    }

    /// Returns whether the current address is known and nothing is pending. Then the following
    /// output depends on earlier trace only through the return stack.
    pub fn is_located(&self) -> bool {
        self.current > AWAIT && self.held.is_none() && self.q.is_none() && self.linking.is_none()
    }

    fn key(&self, block: u32) -> BlockKey {
        match block {
            NOWHERE => BlockKey::Nowhere,
            AWAIT => BlockKey::Await,
            block => {
                let cold = &self.blocks.cold[block as usize];
                BlockKey::Block {
                    space: cold.space,
                    isa: cold.isa,
                    start: cold.start,
                }
            }
        }
    }

    fn find_key(&mut self, key: BlockKey) -> u32 {
        match key {
            BlockKey::Nowhere => NOWHERE,
            BlockKey::Await => AWAIT,
            BlockKey::Block { space, isa, start } => self.find(space, isa, start),
        }
    }
}
