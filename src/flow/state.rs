//! The saved state of a flow, to resume later or in another flow over the same code.
//!
//! It contains no block numbers, because they are valid in one table of blocks only.

use super::blocks::{AWAIT, NOWHERE, Space};
use super::code::{CodeImage, ContextKey};
use super::follow::Flow;
use super::lines::PendingQ;
use super::output::{Held, LostAt};
use super::return_stack::ReturnStack;
use crate::quantity::{Address, Isa};

/// The state of a flow without its blocks.
#[derive(Clone, Debug)]
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
}

/// Identifies a block in any table of blocks.
#[derive(Clone, Copy, Debug)]
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
            held: self.held.map(|held| (held, key(held.block))),
            q: self.q.map(|q| (q, key(q.from))),
            lost: self.lost,
            stack: self.stack.clone().drain().into_iter().map(key).collect(),
        }
    }

    /// Continues from the state of a flow with the same configuration and code.
    pub fn resume(&mut self, state: &FlowState) {
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
        for &key in &state.stack {
            let caller = self.find_key(key);
            self.stack.push(caller);
        }
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
        self.arrived = (NOWHERE, Address(0));
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
