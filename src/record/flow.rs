//! Events of the stream → straight runs of instructions that were executed, and what came
//! between them.
//!
//! The emulator says that an instruction began before it takes effect. Whether the last one of a
//! block did is seen from where execution went on. Knows no protocol of trace.

use super::blocks::{Block, BlockTable};
use super::stream::{Event, bad};
use crate::arch::branch::Kind;
use crate::encode::{Place, TAIL_CHAIN};
use crate::quantity::{Address, ExceptionLevel, Isa};
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

    /// What was executed last returned from an exception, although its encoding does not say so
    /// (M-profile).
    fn exception_return(&mut self, _core: u32) {}

    /// What was executed last began to return from an exception, and this one was taken instead
    /// (M-profile).
    fn tail_chain(&mut self, core: u32, number: u32) -> io::Result<()> {
        self.exception(core, number, TAIL_CHAIN)
    }

    /// What follows was executed at this time, by a clock that all threads share.
    fn time(&mut self, _core: u32, _time: u64) {}

    /// The core is in this exception level from here on.
    fn level(&mut self, _core: u32, _level: ExceptionLevel) {}
}

/// Where a core would go on, as far as what it executed tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// Here.
    At(Place),
    /// At one of the two: a branch under a condition.
    Either(Place, Place),
    /// Wherever an indirect branch led, or no instruction was executed.
    Unknown,
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
            Event::Time(time) => steps.time(core, time),
            Event::Exception { number, address } => {
                let mut return_to = Place {
                    address: Address(address & !1),
                    isa: if address & 1 == 1 { Isa::T32 } else { Isa::A32 },
                };
                let block = state.pending.and_then(|pending| blocks.get(pending.id));
                if block.is_some_and(|block| block.start.isa == Isa::A64) {
                    return_to = Place {
                        address: Address(address),
                        isa: Isa::A64,
                    };
                }
                self.exception(core, number, return_to, blocks, steps)?;
            }
        }
        Ok(())
    }

    /// Where a core would go on. `faulted`: the last instruction did not take effect.
    pub fn onward(&self, core: u32, faulted: bool, blocks: &BlockTable) -> Onward {
        let pending = self.cores.get(core as usize).and_then(|core| core.pending);
        let found = pending.and_then(|pending| Some((pending, blocks.get(pending.id)?)));
        let Some((pending, block)) = found else {
            return Onward::Unknown;
        };
        let count = block.instructions.len();
        let begun = pending
            .begun
            .map_or(count, |begun| count.min(begun as usize));
        let at = |address| Place {
            address,
            isa: block.start.isa,
        };
        if faulted || begun < count {
            let executed = begun.saturating_sub(usize::from(faulted));
            return Onward::At(at(block.address(executed)));
        }
        let last = block.last();
        let (end, inside) = (at(block.end()), block.start.isa == Isa::T32);
        match last.kind {
            Kind::Indirect => Onward::Unknown,
            Kind::Branch { target, isa } => {
                let target = Place {
                    address: target,
                    isa,
                };
                // In T32 an IT block may make it conditional.
                if last.conditional || inside && !last.link {
                    Onward::Either(target, end)
                } else {
                    Onward::At(target)
                }
            }
            _ => Onward::At(end),
        }
    }

    /// An exception was taken; execution would have gone on at `return_to`.
    pub fn exception(
        &mut self,
        core: u32,
        number: u32,
        return_to: Place,
        blocks: &BlockTable,
        steps: &mut impl Steps,
    ) -> io::Result<()> {
        self.end(core, Some(return_to), blocks, steps)?;
        steps.exception(core, number, return_to)
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

    /// The last instruction that a core began, and the place behind it.
    pub fn last(&self, core: u32, blocks: &BlockTable) -> Option<(Place, Place)> {
        let pending = self.cores.get(core as usize)?.pending?;
        let block = blocks.get(pending.id)?;
        let count = block.instructions.len();
        let begun = pending
            .begun
            .map_or(count, |begun| count.min(begun as usize));
        let isa = block.start.isa;
        let place = |address| Place { address, isa };
        let last = begun.checked_sub(1)?;
        Some((place(block.address(last)), place(block.address(begun))))
    }

    /// Instructions that began and are not told yet: those of the last block of each core.
    pub fn pending(&self, blocks: &BlockTable) -> u64 {
        let pending = self.cores.iter().filter_map(|core| core.pending);
        let begun = pending.map(|pending| match pending.begun {
            Some(begun) => begun.into(),
            None => blocks
                .get(pending.id)
                .map_or(0, |block| block.instructions.len() as u64),
        });
        begun.sum()
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
    if count == 0 {
        return Outcome {
            executed: 0,
            broken: Some(Some(block.start)),
        };
    }
    if let Some(begun) = begun
        && (begun as usize) < count
    {
        // Nothing but a fault of its own, or an order to try it again, leaves it there.
        let executed = (begun as usize).saturating_sub(1);
        let here = at(block.address(executed));
        // With -icount the emulator tries an access to a device again, and tells the plugin
        // nothing of that.
        if begun > 0 && next == Some(at(block.address(begun as usize))) {
            return connected(begun as usize);
        }
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
            // In T32 an IT block may make it conditional.
            let may_not = last.conditional || block.start.isa == Isa::T32 && !last.link;
            if next == taken || may_not && next == at(block.end()) {
                connected(count)
            } else {
                Outcome {
                    executed: count,
                    broken: Some((!last.conditional).then_some(taken)),
                }
            }
        }
        _ if next == at(block.end()) => connected(count),
        // It faulted, or is tried again. A call is executed even where it will be made again.
        _ if again() && !block.calls => connected(count - 1),
        _ => Outcome {
            executed: count,
            broken: Some(Some(at(block.end()))),
        },
    }
}
