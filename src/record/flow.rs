//! Events of the stream → executed straight runs of instructions, and the exceptions and gaps
//! between them.
//!
//! The emulator reports the start of an instruction before it takes effect. Whether the last
//! instruction of a block took effect follows from where execution continues.

use super::blocks::{Block, BlockTable};
use super::stream::{Event, bad};
use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
use armsnap_trace::data_addresses::Access;
use armsnap_trace::encode::{CodeAddress, TAIL_CHAIN};
use std::io;

/// Receives the flow of all cores.
pub trait FlowSink {
    /// The first `count` instructions of the block were executed; `count` is at least 1. `accesses`
    /// are their loads and stores, each with the index of its instruction, if the stream reports
    /// them.
    fn ran(
        &mut self,
        core: u32,
        block: &Block,
        count: usize,
        accesses: &[(u32, Access)],
    ) -> io::Result<()>;

    /// An exception was taken. `number` is as in the event; `return_to` is where execution would
    /// have continued.
    fn exception(&mut self, core: u32, number: u32, return_to: CodeAddress) -> io::Result<()>;

    /// Execution did not continue where the last instruction leads to, and no exception was noted.
    /// `instead` is where it would have continued, if known.
    fn broken(&mut self, core: u32, instead: Option<CodeAddress>) -> io::Result<()>;

    /// The last instruction returned from an exception, which its encoding does not show
    /// (M-profile).
    fn exception_return(&mut self, _core: u32) {}

    /// The last instruction started a return from an exception, and this exception was taken before
    /// the return completed (M-profile, tail-chaining).
    fn tail_chain(&mut self, core: u32, number: u32) -> io::Result<()> {
        self.exception(core, number, TAIL_CHAIN)
    }

    /// The following blocks were executed at this time, on a clock shared by all threads.
    fn time(&mut self, _core: u32, _time: u64) {}

    /// The core executes the following blocks in the turn with this number.
    fn turn(&mut self, _core: u32, _turn: u64) {}

    /// The core is at this exception level from here on.
    fn level(&mut self, _core: u32, _level: ExceptionLevel) {}

    /// The core is in this security state from here on.
    fn security(&mut self, _core: u32, _security: Security) {}

    /// The core has this context ID from here on.
    fn context_id(&mut self, _core: u32, _id: u32) {}
}

/// Where a core would continue, as far as the executed instructions determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// At this instruction.
    At(CodeAddress),
    /// At one of two instructions: a conditional branch.
    Either(CodeAddress, CodeAddress),
    /// Not known: after an indirect branch, or before the first instruction.
    Unknown,
}

/// A block whose last instruction may not have been executed.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u32,
    /// The number of instructions started; `None` for all.
    started: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Core {
    pending: Option<Pending>,
    /// The loads and stores of the pending block, each with the index of its instruction.
    accesses: Vec<(u32, Access)>,
    /// The context ID from the next block on, if it changes there.
    context_id: Option<u32>,
    /// The turns that begin with the next block: the earlier ones ended before any.
    turns: Vec<u64>,
    /// Where execution would continue after a block that is not in the stream, if nothing is pending.
    after: Option<CodeAddress>,
}

/// The flow of all cores.
#[derive(Debug, Default)]
pub struct Flow {
    cores: Vec<Core>,
}

/// The outcome of a block, given where execution continued.
struct Outcome {
    executed: usize,
    end: BlockEnd,
}

/// How execution continued after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// Where its last instruction may lead.
    Connected,
    /// Elsewhere: not there, if only one place was possible.
    Broken { instead: Option<CodeAddress> },
}

/// The maximum number of cores.
const MAX_CORES: u32 = 1 << 20;

impl Flow {
    /// Adds a core.
    ///
    /// # Errors
    ///
    /// If there are too many cores.
    pub fn begin(&mut self, core: u32) -> io::Result<()> {
        if core >= MAX_CORES {
            return Err(bad("too many cores"));
        }
        let count = self.cores.len().max(core as usize + 1);
        self.cores.resize_with(count, Core::default);
        Ok(())
    }

    /// Handles an event of a core.
    ///
    /// # Errors
    ///
    /// If the core or a block is not known, or the sink fails.
    pub fn event(
        &mut self,
        core: u32,
        event: Event,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        let state = self
            .cores
            .get_mut(core as usize)
            .ok_or_else(|| bad("a core that was not started"))?;
        match event {
            Event::Block(id) => {
                let next = blocks
                    .get(id)
                    .ok_or_else(|| bad("a block that was not translated"))?;
                if let Some(pending) = state.pending {
                    let accesses = &mut state.accesses;
                    settle(core, pending, accesses, blocks, Some(next.start), sink)?;
                }
                if let Some(id) = state.context_id.take() {
                    sink.context_id(core, id);
                }
                for turn in state.turns.drain(..) {
                    sink.turn(core, turn);
                }
                state.pending = Some(Pending { id, started: None });
            }
            Event::Left(started) => {
                if let Some(pending) = &mut state.pending {
                    pending.started = Some(started);
                }
            }
            Event::Access {
                instruction,
                access,
            } => {
                /// Maximum number of accesses of a block.
                const MOST: usize = 1 << 16;
                if state.accesses.len() >= MOST {
                    return Err(bad("a block with too many accesses to memory"));
                }
                state.accesses.push((instruction.into(), access));
            }
            Event::Turn(turn) => state.turns.push(turn),
            Event::Time(time) => sink.time(core, time),
            Event::Context(id) => state.context_id = Some(id),
            Event::Exception { number, address } => {
                let mut return_to = CodeAddress {
                    address: Address(address & !1),
                    isa: if address & 1 == 1 { Isa::T32 } else { Isa::A32 },
                };
                let block = state.pending.and_then(|pending| blocks.get(pending.id));
                if block.is_some_and(|block| block.start.isa == Isa::A64) {
                    return_to = CodeAddress {
                        address: Address(address),
                        isa: Isa::A64,
                    };
                }
                self.exception(core, number, return_to, blocks, sink)?;
            }
        }
        Ok(())
    }

    /// Returns the block that a core entered last, unless more is known about it, which
    /// [`continue_at`](Self::continue_at) would lose.
    #[inline]
    pub fn entered(&self, core: u32) -> Option<u32> {
        let core = self.cores.get(core as usize)?;
        let pending = core.pending.filter(|pending| pending.started.is_none())?;
        let alone = core.accesses.is_empty() && core.context_id.is_none() && core.turns.is_empty();
        alone.then_some(pending.id)
    }

    /// Returns whether the block that a core entered last was executed completely, and its last instruction, a
    /// branch, led to `next`.
    pub fn branched_to(&self, core: u32, next: CodeAddress, blocks: &BlockTable) -> bool {
        let core = self.cores.get(core as usize);
        let pending = core.and_then(|core| core.pending);
        let pending = pending.filter(|pending| pending.started.is_none());
        let block = pending.and_then(|pending| blocks.get(pending.id));
        block.is_some_and(|block| {
            let branches = matches!(block.last().kind, Kind::Branch { .. } | Kind::Indirect);
            branches && leads(block, next)
        })
    }

    /// Sets the block that a core entered last; the caller has reported the blocks before it.
    pub fn continue_at(&mut self, core: u32, id: u32) {
        if let Some(core) = self.cores.get_mut(core as usize) {
            core.pending = Some(Pending { id, started: None });
        }
    }

    /// Returns where a core would continue. `faulted`: the last instruction did not take effect.
    pub fn onward(&self, core: u32, faulted: bool, blocks: &BlockTable) -> Onward {
        let pending = self.cores.get(core as usize).and_then(|core| core.pending);
        let found = pending.and_then(|pending| Some((pending, blocks.get(pending.id)?)));
        let Some((pending, block)) = found else {
            let after = self.cores.get(core as usize).and_then(|core| core.after);
            return after.map_or(Onward::Unknown, Onward::At);
        };
        let count = block.instructions.len();
        let started = pending
            .started
            .map_or(count, |started| count.min(started as usize));
        let at = |address| CodeAddress {
            address,
            isa: block.start.isa,
        };
        if faulted || started < count {
            let executed = started.saturating_sub(usize::from(faulted));
            return Onward::At(at(block.address(executed)));
        }
        let last = block.last();
        let (end, inside) = (at(block.end()), block.start.isa == Isa::T32);
        match last.kind {
            Kind::Indirect => Onward::Unknown,
            Kind::Branch { target, isa } => {
                let target = CodeAddress {
                    address: target,
                    isa,
                };
                // In T32 an IT block may make the branch conditional.
                if last.conditional || inside && !last.link {
                    Onward::Either(target, end)
                } else {
                    Onward::At(target)
                }
            }
            _ => Onward::At(end),
        }
    }

    /// Handles an exception; execution would have continued at `return_to`.
    ///
    /// # Errors
    ///
    /// If the sink fails.
    pub fn exception(
        &mut self,
        core: u32,
        number: u32,
        return_to: CodeAddress,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        self.end(core, Some(return_to), blocks, sink)?;
        sink.exception(core, number, return_to)
    }

    /// Ends the flow of a core before it executes the instruction at `next`, if that is known.
    ///
    /// # Errors
    ///
    /// If the sink fails.
    pub fn end(
        &mut self,
        core: u32,
        next: Option<CodeAddress>,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        let Some(state) = self.cores.get_mut(core as usize) else {
            return Ok(());
        };
        state.after = None;
        if let Some(pending) = state.pending.take() {
            settle(core, pending, &mut state.accesses, blocks, next, sink)?;
        }
        for turn in state.turns.drain(..) {
            sink.turn(core, turn);
        }
        Ok(())
    }

    /// Handles the execution of a block that is not in the stream.
    ///
    /// # Errors
    ///
    /// If the sink fails.
    pub fn unreported(
        &mut self,
        core: u32,
        block: &Block,
        blocks: &BlockTable,
        sink: &mut impl FlowSink,
    ) -> io::Result<()> {
        self.end(core, Some(block.start), blocks, sink)?;
        sink.ran(core, block, block.instructions.len(), &[])?;
        if let Some(state) = self.cores.get_mut(core as usize) {
            state.after = Some(CodeAddress {
                address: block.end(),
                isa: block.start.isa,
            });
        }
        Ok(())
    }

    /// Returns the last instruction that a core started, and the address after it.
    pub fn last(&self, core: u32, blocks: &BlockTable) -> Option<(CodeAddress, CodeAddress)> {
        let pending = self.cores.get(core as usize)?.pending?;
        let block = blocks.get(pending.id)?;
        let count = block.instructions.len();
        let started = pending
            .started
            .map_or(count, |started| count.min(started as usize));
        let isa = block.start.isa;
        let place = |address| CodeAddress { address, isa };
        let last = started.checked_sub(1)?;
        Some((place(block.address(last)), place(block.address(started))))
    }

    /// Returns the number of started instructions in the last block of all cores.
    pub fn pending(&self, blocks: &BlockTable) -> u64 {
        let pending = self.cores.iter().filter_map(|core| core.pending);
        let started = pending.map(|pending| match pending.started {
            Some(started) => started.into(),
            None => blocks
                .get(pending.id)
                .map_or(0, |block| block.instructions.len() as u64),
        });
        started.sum()
    }
}

/// Reports the instructions of a core's last block that were executed.
#[inline]
fn settle(
    core: u32,
    pending: Pending,
    accesses: &mut Vec<(u32, Access)>,
    blocks: &BlockTable,
    next: Option<CodeAddress>,
    sink: &mut impl FlowSink,
) -> io::Result<()> {
    let Some(block) = blocks.get(pending.id) else {
        accesses.clear();
        return Ok(());
    };
    let outcome = outcome(block, pending.started, next);
    if outcome.executed > 0 {
        // An instruction that faulted may have made some of its accesses.
        let count = accesses.partition_point(|access| (access.0 as usize) < outcome.executed);
        sink.ran(core, block, outcome.executed, &accesses[..count])?;
    }
    accesses.clear();
    match outcome.end {
        BlockEnd::Broken { instead } => sink.broken(core, instead),
        BlockEnd::Connected => Ok(()),
    }
}

/// Returns whether a block that was executed completely leads to `next`.
pub fn leads(block: &Block, next: CodeAddress) -> bool {
    let outcome = outcome(block, None, Some(next));
    outcome.end == BlockEnd::Connected && outcome.executed == block.instructions.len()
}

fn outcome(block: &Block, started: Option<u32>, next: Option<CodeAddress>) -> Outcome {
    let count = block.instructions.len();
    let at = |address| CodeAddress {
        address,
        isa: block.start.isa,
    };
    let connected = |executed| Outcome {
        executed,
        end: BlockEnd::Connected,
    };
    let broken = |executed, instead| Outcome {
        executed,
        end: BlockEnd::Broken { instead },
    };
    if count == 0 {
        return broken(0, Some(block.start));
    }
    if let Some(started) = started
        && (started as usize) < count
    {
        // A block is left early only if an instruction faults or is retried.
        let executed = (started as usize).saturating_sub(1);
        let here = at(block.address(executed));
        // With -icount the emulator retries an access to a device without
        // notifying the plugin.
        if started > 0 && next == Some(at(block.address(started as usize))) {
            return connected(started as usize);
        }
        let resumes = next.is_none_or(|next| next == here);
        return match resumes {
            true => connected(executed),
            false => broken(executed, Some(here)),
        };
    }
    let Some(next) = next else {
        return connected(count);
    };
    let last = block.last();
    let again = || next == at(block.address(count - 1));
    match last.kind {
        Kind::Indirect if block.start.isa == Isa::A64 || !again() => connected(count),
        // A load to PC that faulted.
        Kind::Indirect => connected(count - 1),
        Kind::Branch { target, isa } => {
            let taken = CodeAddress {
                address: target,
                isa,
            };
            // In T32 an IT block may make it conditional.
            let may_not = last.conditional || block.start.isa == Isa::T32 && !last.link;
            if next == taken || may_not && next == at(block.end()) {
                connected(count)
            } else {
                broken(count, (!last.conditional).then_some(taken))
            }
        }
        _ if next == at(block.end()) => connected(count),
        // The instruction faulted or is retried. A system call counts as executed in any case.
        _ if again() && !block.calls => connected(count - 1),
        _ => broken(count, Some(at(block.end()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::blocks::Sets;

    #[derive(Default)]
    struct Turns(Vec<u64>);

    impl FlowSink for Turns {
        fn ran(&mut self, _: u32, _: &Block, _: usize, _: &[(u32, Access)]) -> io::Result<()> {
            Ok(())
        }
        fn exception(&mut self, _: u32, _: u32, _: CodeAddress) -> io::Result<()> {
            Ok(())
        }
        fn broken(&mut self, _: u32, _: Option<CodeAddress>) -> io::Result<()> {
            Ok(())
        }
        fn turn(&mut self, _: u32, turn: u64) {
            self.0.push(turn);
        }
    }

    #[test]
    fn turns_without_instructions_are_kept() {
        let (mut flow, blocks) = (Flow::default(), BlockTable::new(Sets::A64));
        let mut turns = Turns::default();
        flow.begin(0).unwrap();
        for turn in [3, 5] {
            flow.event(0, Event::Turn(turn), &blocks, &mut turns)
                .unwrap();
        }
        flow.end(0, None, &blocks, &mut turns).unwrap();
        assert_eq!(turns.0, [3, 5]);
    }
}
