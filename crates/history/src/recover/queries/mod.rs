//! Questions to a solved window.

pub(super) mod executed;
pub(super) mod origin;
pub(super) mod values;
pub(super) mod writes;

use crate::recover::execution::steps::Steps;
use crate::recover::execution::templates::Templates;
use crate::recover::facts::final_state::FinalState;
use crate::recover::graph::walk::Walks;
use crate::recover::solver::Solver;
use crate::recover::solver::inference::Inference;
use values::Nearby;

/// A window in which everything was inferred.
pub(super) struct Solved<'w> {
    pub facts: &'w FinalState,
    pub walks: Walks<'w>,
    pub solver: &'w mut Solver<Inference>,
    pub nearby: &'w mut Nearby,
    /// Whether the trace ends at the final state.
    pub ends: bool,
}

impl<'w> Solved<'w> {
    /// The steps that were solved.
    pub fn steps(&self) -> &'w Steps {
        self.walks.through.steps
    }

    fn templates(&self) -> &'w Templates {
        self.walks.through.templates
    }

    /// The first access before a step in time: accesses of the step and after it have smaller
    /// numbers.
    pub fn access_before(&self, step: u32) -> u32 {
        let accesses = &self.solver.built.accesses;
        accesses.partition_point(|access| access.step <= step) as u32
    }
}
