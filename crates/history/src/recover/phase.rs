//! The phases of a window: built, proved, inferred, solved.
//!
//! Each has the solver in the type of its layer, so what a phase has not computed yet does not exist.
//! When a window grows, it returns to the first phase with everything that was proved.

use super::memory::cells::Cells;
use super::queries::values::Nearby;
use super::solver::inference::{Inference, Proof};
use super::solver::{Given, Sharing, Solver};
use armsnap_snapshot::stop::Cancel;

/// How often the second layer is tried again without what contradicted itself.
const TRIES: u32 = 8;

/// How far the explored steps have been processed.
#[derive(Debug)]
pub(super) enum Phase {
    /// There may be steps that were not built.
    Build(Box<Solver<Proof>>),
    /// Everything is built.
    Prove(Box<Solver<Proof>>),
    /// Everything is proved; the second layer infers the rest, for the n-th time.
    Infer(Box<Solver<Inference>>, u32),
    /// Everything is inferred; the second part is what queries of registers found.
    Solved(Box<Solver<Inference>>, Box<Nearby>),
}

/// What comes after a phase.
pub(super) enum Next {
    Phase(Phase),
    /// The work was cancelled; the phase continues with the next call.
    Cancelled(Phase),
    /// Some assumptions were wrong: everything is built again, with what is known of shared memory.
    Again(Sharing),
    /// What was proved contradicts itself.
    Doubt(Sharing),
}

impl Default for Phase {
    fn default() -> Self {
        Self::Build(Box::default())
    }
}

impl Phase {
    /// Starts with nothing built.
    pub fn again(sharing: Sharing) -> Self {
        Self::Build(Box::new(Solver::new(sharing)))
    }

    /// There are more steps to build.
    pub fn grown(self) -> Self {
        match self {
            Self::Build(solver) | Self::Prove(solver) => Self::Build(solver),
            Self::Infer(solver, _) | Self::Solved(solver, _) => {
                Self::Build(Box::new(solver.back_to_proof()))
            }
        }
    }

    /// Proves what follows from what was built.
    pub fn prove(mut solver: Box<Solver<Proof>>, given: &Given<'_>, cancel: &Cancel) -> Next {
        if solver.run(given, cancel).is_none() {
            return Next::Cancelled(Self::Prove(solver));
        }
        if solver.sharing.sets_apart() {
            Next::Again(solver.sharing)
        } else if !solver.built.graph.conflicts.is_empty() {
            Next::Doubt(solver.sharing)
        } else if solver.find_kept_frames(given) {
            Next::Phase(Self::Prove(solver))
        } else {
            Next::Phase(Self::Infer(Box::new(solver.infer(given)), 0))
        }
    }

    /// Infers what follows by the rules of the second layer.
    pub fn infer(
        mut solver: Box<Solver<Inference>>,
        tries: u32,
        given: &Given<'_>,
        cancel: &Cancel,
    ) -> Next {
        let runs = |solver: &mut Solver<Inference>| solver.run(given, cancel).is_some();
        if !runs(&mut solver) || solver.find_lifetimes(given) && !runs(&mut solver) {
            return Next::Cancelled(Self::Infer(solver, tries));
        }
        if solver.sharing.sets_apart() {
            return Next::Again(solver.sharing);
        }
        let overtaken = solver.is_overtaken();
        let (cut, refuted) = match tries < TRIES {
            true => (
                solver.cut_conflicts() | overtaken,
                solver.sites_are_refuted(given),
            ),
            false => (overtaken && solver.assumes_slots(), false),
        };
        // The last attempt assumes no slots, the most frequent cause of contradictions.
        if cut && tries + 1 >= TRIES {
            solver.assume_no_slots();
        }
        if cut || refuted && !solver.go_back_to_fixed_point(given) {
            solver.infer_again(given);
        }
        let more = |solver: &mut Solver<Inference>| {
            tries < TRIES && (solver.use_bounds(given) || solver.infer_sites(given))
        };
        Next::Phase(if cut || refuted {
            Self::Infer(solver, tries + 1)
        } else if more(&mut solver) {
            Self::Infer(solver, tries)
        } else {
            solver.forget_fixed_point();
            Self::Solved(solver, Box::default())
        })
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Build(solver) | Self::Prove(solver) => solver.bytes(),
            Self::Infer(solver, _) | Self::Solved(solver, _) => solver.bytes(),
        }
    }

    /// Which accesses are known to have hit which words so far.
    pub fn cells(&self) -> &Cells {
        match self {
            Self::Build(solver) | Self::Prove(solver) => &solver.cells,
            Self::Infer(solver, _) | Self::Solved(solver, _) => &solver.cells,
        }
    }

    /// Who else may have written memory.
    pub fn sharing(&self) -> &Sharing {
        match self {
            Self::Build(solver) | Self::Prove(solver) => &solver.sharing,
            Self::Infer(solver, _) | Self::Solved(solver, _) => &solver.sharing,
        }
    }
}
