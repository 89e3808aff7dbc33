//! Resumption: the move is noted, and the session carries it out when gdbstub waits for its end.

use std::borrow::Cow;

use gdbstub::common::{Signal, Tid};
use gdbstub::target::ext::base::multithread as multi;
use gdbstub::target::ext::base::reverse_exec::{
    ReverseCont, ReverseContOps, ReverseStep, ReverseStepOps,
};

use super::NoSuchCore;
use crate::server::endpoint::HistoryMode;
use crate::server::resume::{Actions, Extent, Resume, in_actions};
use crate::server::target::SnapshotTarget;
use armsnap_history::timeline::Direction;

/// `c`, `C`, `s`, `S`.
pub(in crate::server) fn legacy<'a>(
    target: &mut SnapshotTarget,
    packet: &'a [u8],
) -> Option<Cow<'a, [u8]>> {
    let actions = in_actions(packet, target.selection.user(), target.alone);
    Some(Cow::Owned(actions.into_bytes()))
}

/// `vCont`: a step without a thread is one of the user's thread.
pub(in crate::server) fn default_step<'a>(
    target: &mut SnapshotTarget,
    packet: &'a [u8],
) -> Option<Cow<'a, [u8]>> {
    let actions = packet.strip_prefix(b"vCont;")?;
    let is_step = matches!(actions, [b's' | b'S' | b'r', ..]);
    if !is_step || actions.iter().any(|byte| matches!(byte, b':' | b';')) {
        return Some(Cow::Borrowed(packet));
    }
    let mut packet = packet.to_vec();
    packet.extend_from_slice(format!(":{:x};c", target.selection.user()).as_bytes());
    Some(Cow::Owned(packet))
}

impl SnapshotTarget {
    fn start(&mut self, resume: Option<Resume>) -> Result<(), NoSuchCore> {
        let resume = resume.filter(|resume| self.core(resume.thread).is_some());
        self.resume = Some(resume.ok_or(NoSuchCore)?);
        // Moves apply to the cores, not to the trace frames.
        self.trace.frame = None;
        Ok(())
    }

    /// Moves back the thread of `Hc`, or the one that the user selected.
    fn start_back(&mut self, extent: Extent) -> Result<(), NoSuchCore> {
        self.start(Some(Resume {
            thread: self.alone.unwrap_or(self.selection.user()),
            alone: self.alone.is_some(),
            direction: Direction::Backward,
            extent,
        }))
    }
}

impl multi::MultiThreadResume for SnapshotTarget {
    fn resume(&mut self) -> Result<(), NoSuchCore> {
        self.start(self.actions.resume(self.selection.user()))
    }

    fn clear_resume_actions(&mut self) -> Result<(), NoSuchCore> {
        self.actions = Actions::default();
        Ok(())
    }

    fn set_resume_action_continue(
        &mut self,
        tid: Tid,
        _signal: Option<Signal>,
    ) -> Result<(), NoSuchCore> {
        self.actions.add(tid, Extent::Continue);
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<multi::MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_range_step(&mut self) -> Option<multi::MultiThreadRangeSteppingOps<'_, Self>> {
        Some(self)
    }

    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        match self.endpoint.history {
            HistoryMode::Replay => Some(self),
            HistoryMode::Btrace | HistoryMode::None => None,
        }
    }

    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        match self.endpoint.history {
            HistoryMode::Replay => Some(self),
            HistoryMode::Btrace | HistoryMode::None => None,
        }
    }

    fn support_scheduler_locking(
        &mut self,
    ) -> Option<multi::MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl multi::MultiThreadSingleStep for SnapshotTarget {
    fn set_resume_action_step(
        &mut self,
        tid: Tid,
        _signal: Option<Signal>,
    ) -> Result<(), NoSuchCore> {
        self.actions.add(tid, Extent::Step);
        Ok(())
    }
}

impl multi::MultiThreadRangeStepping for SnapshotTarget {
    fn set_resume_action_range_step(
        &mut self,
        tid: Tid,
        start: u64,
        end: u64,
    ) -> Result<(), NoSuchCore> {
        self.actions.add(tid, Extent::Within(start, end));
        Ok(())
    }
}

impl multi::MultiThreadSchedulerLocking for SnapshotTarget {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), NoSuchCore> {
        self.actions.lock();
        Ok(())
    }
}

impl ReverseStep<Tid> for SnapshotTarget {
    // gdbstub's thread is the last that stopped.
    fn reverse_step(&mut self, _tid: Tid) -> Result<(), NoSuchCore> {
        self.start_back(Extent::Step)
    }
}

impl ReverseCont<Tid> for SnapshotTarget {
    fn reverse_cont(&mut self) -> Result<(), NoSuchCore> {
        self.start_back(Extent::Continue)
    }
}
