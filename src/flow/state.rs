//! A flow's place in its trace, to go on from later or in another flow over the same code.
//!
//! Holds no number of a block: the table of blocks may be another one by then.

use super::blocks::{AWAIT, NOWHERE, Space};
use super::code::{CodeImage, ContextKey};
use super::follow::Flow;
use super::lines::PendingQ;
use super::output::{Held, Stuck};
use super::return_stack::ReturnStack;
use crate::quantity::{Address, Isa};

/// What a flow remembers, but for its blocks.
#[derive(Clone, Debug)]
pub struct FlowState {
    space: Space,
    current: Spot,
    left: Spot,
    linking: Option<Spot>,
    held: Option<(Held, Spot)>,
    q: Option<(PendingQ, Spot)>,
    stuck: Option<Stuck>,
    /// Oldest first.
    stack: Box<[Spot]>,
}

/// A block, by what it is made from.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Nowhere,
    Await,
    Block {
        space: Space,
        isa: Isa,
        start: Address,
    },
}

impl<C: CodeImage> Flow<C> {
    /// What it remembers.
    pub fn state(&self) -> FlowState {
        let spot = |block: u32| self.spot(block);
        FlowState {
            space: self.space,
            current: spot(self.current),
            left: spot(self.left),
            linking: self.linking.map(spot),
            held: self.held.map(|held| (held, spot(held.block))),
            q: self.q.map(|q| (q, spot(q.from))),
            stuck: self.stuck,
            stack: self.stack.clone().drain().into_iter().map(spot).collect(),
        }
    }

    /// Goes on where a flow with the same configuration and code was.
    pub fn resume(&mut self, state: &FlowState) {
        self.restart();
        self.space = state.space;
        self.current = self.block(state.current);
        self.left = self.block(state.left);
        self.linking = state.linking.map(|spot| self.block(spot));
        if let Some((mut held, spot)) = state.held {
            held.block = self.block(spot);
            self.held = Some(held);
        }
        if let Some((mut q, spot)) = state.q {
            q.from = self.block(spot);
            self.q = Some(q);
        }
        self.stuck = state.stuck;
        for &spot in &state.stack {
            let caller = self.block(spot);
            self.stack.push(caller);
        }
    }

    /// Forgets all but the blocks: nothing is known, as at the begin of a trace.
    pub fn restart(&mut self) {
        self.space = Space::of(self.code.view(&ContextKey::default()));
        self.current = NOWHERE;
        self.left = NOWHERE;
        self.stack = ReturnStack::default();
        self.linking = None;
        self.held = None;
        self.q = None;
        self.arrived = (NOWHERE, Address(0));
        self.stuck = None;
    }

    /// Whether execution is at an address that the trace told of, and nothing waits: what comes
    /// next does not depend on what was before the last address, but for the return stack.
    pub fn is_located(&self) -> bool {
        self.current > AWAIT && self.held.is_none() && self.q.is_none() && self.linking.is_none()
    }

    fn spot(&self, block: u32) -> Spot {
        match block {
            NOWHERE => Spot::Nowhere,
            AWAIT => Spot::Await,
            block => {
                let cold = &self.blocks.cold[block as usize];
                Spot::Block {
                    space: cold.space,
                    isa: cold.isa,
                    start: cold.start,
                }
            }
        }
    }

    fn block(&mut self, spot: Spot) -> u32 {
        match spot {
            Spot::Nowhere => NOWHERE,
            Spot::Await => AWAIT,
            Spot::Block { space, isa, start } => self.find(space, isa, start),
        }
    }
}
