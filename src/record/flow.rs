//! Events of the stream → straight runs of instructions that were executed, and what came
//! between them.
//!
//! The emulator says that an instruction began before it takes effect. Whether the last one of a
//! block did is seen from where execution went on. Knows no protocol of trace.

use super::blocks::{Block, BlockTable};
use super::stream::{Event, bad};
use crate::arch::branch::Kind;
use crate::encode::Place;
use crate::quantity::{Address, Isa};
use std::io;

/// Takes the flow of all cores.
pub trait Steps {
    /// The first `count` instructions of the block were executed, one at least.
    fn ran(&mut self, core: u32, block: &Block, count: usize) -> io::Result<()>;

    /// An exception was taken: its number as it was noted; execution would have gone on at
    /// `return_to`.
    fn exception(&mut self, core: u32, number: u32, return_to: Place) -> io::Result<()>;

    /// What follows does not follow from the last instruction, and no exception was noted. It
    /// would have gone on at `instead`, if that is known.
    fn broken(&mut self, core: u32, instead: Option<Place>) -> io::Result<()>;
}

/// A block whose last instructions may not have been executed.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u32,
    /// How many instructions began; `None`: all.
    begun: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    pending: Option<Pending>,
}

/// The flow of all cores.
#[derive(Debug, Default)]
pub struct Flow {
    cores: Vec<Core>,
}

/// How a block ended, seen from where execution went on.
struct Outcome {
    executed: usize,
    /// Where it would have gone on, if it did not.
    broken: Option<Option<Place>>,
}

/// The most cores that are followed.
const MOST_CORES: u32 = 1 << 20;

impl Flow {
    /// A core begins.
    pub fn begin(&mut self, core: u32) -> io::Result<()> {
        if core >= MOST_CORES {
            return Err(bad("too many cores"));
        }
        let count = self.cores.len().max(core as usize + 1);
        self.cores.resize(count, Core::default());
        Ok(())
    }

    /// What a core did.
    pub fn event(
        &mut self,
        core: u32,
        event: Event,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        let state = self
            .cores
            .get_mut(core as usize)
            .ok_or_else(|| bad("a core that did not begin"))?;
        match event {
            Event::Block(id) => {
                let next = blocks
                    .get(id)
                    .ok_or_else(|| bad("a block that was not translated"))?;
                if let Some(pending) = state.pending {
                    settle(core, pending, blocks, Some(next.start), steps)?;
                }
                state.pending = Some(Pending { id, begun: None });
            }
            Event::Left(begun) => {
                if let Some(pending) = &mut state.pending {
                    pending.begun = Some(begun);
                }
            }
            Event::Exception { number, address } => {
                let mut return_to = Place {
                    address: Address(address & !1),
                    isa: if address & 1 == 1 { Isa::T32 } else { Isa::A32 },
                };
                if let Some(pending) = state.pending.take() {
                    if let Some(block) = blocks.get(pending.id)
                        && block.start.isa == Isa::A64
                    {
                        return_to = Place {
                            address: Address(address),
                            isa: Isa::A64,
                        };
                    }
                    settle(core, pending, blocks, Some(return_to), steps)?;
                }
                steps.exception(core, number, return_to)?;
            }
        }
        Ok(())
    }

    /// The core is about to execute the instruction at `next`, if that is known, and will not:
    /// its flow ends here.
    pub fn end(
        &mut self,
        core: u32,
        next: Option<Place>,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        let state = self.cores.get_mut(core as usize);
        match state.and_then(|state| state.pending.take()) {
            Some(pending) => settle(core, pending, blocks, next, steps),
            None => Ok(()),
        }
    }

    /// The instruction set of what a core executed last.
    pub fn isa(&self, core: u32, blocks: &BlockTable) -> Option<Isa> {
        let pending = self.cores.get(core as usize)?.pending?;
        Some(blocks.get(pending.id)?.start.isa)
    }
}

#[inline]
fn settle(
    core: u32,
    pending: Pending,
    blocks: &BlockTable,
    next: Option<Place>,
    steps: &mut impl Steps,
) -> io::Result<()> {
    let Some(block) = blocks.get(pending.id) else {
        return Ok(());
    };
    let outcome = outcome(block, pending.begun, next);
    if outcome.executed > 0 {
        steps.ran(core, block, outcome.executed)?;
    }
    match outcome.broken {
        Some(instead) => steps.broken(core, instead),
        None => Ok(()),
    }
}

fn outcome(block: &Block, begun: Option<u32>, next: Option<Place>) -> Outcome {
    let count = block.instructions.len();
    let at = |address| Place {
        address,
        isa: block.start.isa,
    };
    let connected = |executed| Outcome {
        executed,
        broken: None,
    };
    if let Some(begun) = begun
        && (begun as usize) < count
    {
        // Nothing but a fault of its own, or an order to try it again, leaves it there.
        let executed = (begun as usize).saturating_sub(1);
        let here = at(block.address(executed));
        let goes_on = next.is_none_or(|next| next == here);
        return Outcome {
            executed,
            broken: (!goes_on).then_some(Some(here)),
        };
    }
    let Some(next) = next else {
        return connected(count);
    };
    let last = block.last();
    let again = || next == at(block.address(count - 1));
    match last.kind {
        Kind::Indirect if block.start.isa == Isa::A64 || !again() => connected(count),
        // A load of PC that faulted.
        Kind::Indirect => connected(count - 1),
        Kind::Branch { target, isa } => {
            let taken = Place {
                address: target,
                isa,
            };
            if next == taken || last.conditional && next == at(block.end()) {
                connected(count)
            } else {
                Outcome {
                    executed: count,
                    broken: Some((!last.conditional).then_some(taken)),
                }
            }
        }
        _ if next == at(block.end()) => connected(count),
        _ if again() => connected(count - 1),
        _ => Outcome {
            executed: count,
            broken: Some(Some(at(block.end()))),
        },
    }
}
