//! Runs a program until something ends the recording.

use super::checkpoints::Checkpoints;
use super::steps::StepLog;
use super::traps::{Trap, TrapReason};
use super::{Error, Session, Watch};
use crate::record::note::Note;
use crate::record::plugin::send;
use crate::record::remote::{self, Stop};
use crate::record::stop::Reason;
use crate::record::stream::{Command, Exit, Stopped, StoppedCore};
use crate::record::tracing::TraceEvent;
use crate::record::until::Until;
use armsnap_arch::quantity::Isa;
use armsnap_snapshot::snapshot::signals;
use armsnap_trace::encode::CodeAddress;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// The number of instructions stepped before the requested number is reached: more than two blocks
/// of the emulator.
pub(super) const STEPS: u64 = 1100;

/// How and where a recording ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub reason: Reason,
    /// The thread that ended the recording.
    pub thread: u32,
    pub cores: Vec<StoppedCore>,
}

/// The effect of a signal on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Handled,
    Ends,
}
/// The state of a running program.
#[derive(Debug)]
pub(super) struct RunningProgram {
    pub(super) traps: BTreeMap<u64, Trap>,
    /// Set once the program is about to exit.
    pub(super) exit: Option<Exit>,
    /// When it was allowed to continue to its exit.
    pub(super) leaves: Option<Instant>,
    /// The number of processes that the program started.
    pub(super) children: u64,
    /// The register log, for which the program is stepped through.
    pub(super) steps: Option<StepLog>,
    /// The trap whose instruction is being executed.
    pub(super) passing: Option<(CodeAddress, TrapReason)>,
    /// Addresses of removed traps.
    pub(super) removed: BTreeSet<u64>,
    pub(super) until: Option<Until>,
    /// How often `until` was reached.
    pub(super) reached: u64,
    pub(super) instructions: Option<u64>,
    /// Whether the plugin has asked to step through the last of `instructions`; SIGINT follows.
    pub(super) limit_reached: bool,
    /// The checkpoints of the program, if they are taken.
    pub(super) checkpoints: Option<Checkpoints>,
    /// Whether the plugin has asked for one; SIGINT follows.
    pub(super) checkpoint_asked: bool,
    /// Whether the program is stepped through.
    pub(super) stepping: bool,
    /// The number of instructions executed, if the program is stepped through.
    pub(super) executed: u64,
    /// Signal handlers: address, 0 (default) or 1 (ignored), and flags.
    pub(super) handlers: BTreeMap<u32, (u64, u64)>,
    /// Signals that are blocked while a thread handles them.
    pub(super) blocked: BTreeSet<(u32, u32)>,
}
/// GDB's number of SIGTRAP: a trap or a step.
const TRAP: u8 = 5;

/// The polling interval while the program runs.
const POLL: Duration = Duration::from_millis(20);

/// The timeout for a program to stop after it was interrupted, or when it is about to exit.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for the plugin's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// The timeout for other threads to freeze.
const FREEZE_MS: u32 = 2000;
impl RunningProgram {
    /// Runs the program until something ends the recording.
    pub fn complete(
        &mut self,
        session: &mut Session,
        watch: &mut Watch<'_>,
    ) -> Result<Ended, Error> {
        let thread = session.thread(None)?;
        let here = session.here()?;
        let few = self.instructions.is_some_and(|limit| limit <= STEPS);
        self.stepping = few || self.steps.is_some();
        if self.stepping {
            self.checkpoints = None;
        }
        if let Some(ended) = self.proceed(session, thread, here)? {
            return Ok(ended);
        }
        loop {
            let (signal, thread) = match self.wait(session, watch)? {
                Stop::Signal { signal, thread } => (signal, session.thread(thread)?),
                Stop::Exited(status) => return Err(session.gone(&format!("exit status {status}"))),
                Stop::Ended(signal) => return Err(session.gone(&format!("signal {signal}"))),
            };
            if signal == TRAP {
                self.stepped(session)?;
                if self.stepping && watch.interrupted.load(Ordering::Relaxed) {
                    return self.end(session, thread, Reason::Interrupted);
                }
            }
            if let Some(ended) = self.stopped(session, signal, thread, watch)? {
                return Ok(ended);
            }
        }
    }

    /// Waits until the program stops.
    fn wait(&mut self, session: &mut Session, watch: &mut Watch<'_>) -> Result<Stop, Error> {
        let mut asked: Option<Instant> = None;
        loop {
            match session.emulator.remote.wait(POLL) {
                // The emulator reports the exit before the call, which is then retried.
                Ok(Some(Stop::Exited(_))) if self.exit.is_some() => {}
                Ok(Some(stop)) => return Ok(stop),
                Ok(None) => {}
                Err(remote::Error::Lost(_)) if self.exit.is_some() => {
                    return Err(session.gone("it could not be stopped at its exit"));
                }
                Err(error) => return Err(error.into()),
            }
            loop {
                match session.emulator.events.try_recv() {
                    Ok(event) => drop(self.handle(session, event)?),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err(session.unread()),
                }
            }
            let left = self.leaves.map(|since| since.elapsed());
            if left.is_some_and(|time| time > INTERRUPT_TIMEOUT) {
                return Err(session.gone("it does not stop at its exit"));
            }
            (watch.progress)(session.emulator.progress.load(Ordering::Relaxed));
            if watch.interrupted.load(Ordering::Relaxed) {
                match asked {
                    None => {
                        asked = Some(Instant::now());
                        session.interrupt()?;
                    }
                    Some(asked) if asked.elapsed() > INTERRUPT_TIMEOUT => {
                        return Err(Error::Lost(
                            "interrupted, but the program does not take the signal".to_owned(),
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Handles an event. Returns the reply to a command, if the event is one.
    fn handle(
        &mut self,
        session: &mut Session,
        event: TraceEvent,
    ) -> Result<Option<(Stopped, u64)>, Error> {
        match event {
            TraceEvent::Handler {
                signal,
                address,
                flags,
            } => {
                self.handlers.insert(signal, (address, flags));
            }
            TraceEvent::Limit => self.limit_reached = true,
            TraceEvent::Checkpoint => self.checkpoint_asked = true,
            TraceEvent::Place(_) | TraceEvent::ReturnPending | TraceEvent::ReturnsKnown => {}
            TraceEvent::Store { address, bytes } => {
                if let Some(steps) = &mut self.steps {
                    steps.stored(address, bytes);
                }
            }
            TraceEvent::Mask(of) => self.blocked.retain(|blocked| blocked.0 != of),
            TraceEvent::Threads => {
                self.checkpoints = None;
                if self.steps.is_some() {
                    return Err(Error::Failed(
                        "--witness-registers: the program has several threads: only a program with \
                         one thread can be stepped through"
                            .to_owned(),
                    ));
                }
            }
            TraceEvent::Exit(exit) => {
                self.exit = Some(exit);
                self.trap_exit(session, exit)?;
                send(&session.emulator.plugin, &Command::Leave)?;
                self.leaves = Some(Instant::now());
            }
            TraceEvent::Child => self.children += 1,
            TraceEvent::Stopped {
                stopped,
                instructions,
            } => return Ok(Some((stopped, instructions))),
        }
        Ok(None)
    }

    /// Handles a stop of the program. Resumes it unless the recording ends here.
    fn stopped(
        &mut self,
        session: &mut Session,
        signal: u8,
        thread: u32,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Ended>, Error> {
        const INTERRUPT: u8 = 2;
        let here = session.here()?;
        let passed = self.passing.take();
        if let Some((place, reason)) = passed
            && reason != TrapReason::Entry
        {
            self.set(session, place, reason)?;
        }
        if let Some(exit) = self.exit
            && (exit.thread, exit.address) == (thread, here.address.0)
        {
            let reason = Reason::Exit(exit.status.into());
            return self.end(session, thread, reason).map(Some);
        }
        let trapped = self.traps.contains_key(&here.address.0);
        if signal == TRAP && (trapped || passed.is_some() || self.stepping) {
            return self.proceed(session, thread, here);
        }
        if signal == TRAP && self.removed.contains(&here.address.0) {
            // The thread hit a trap while it was being removed.
            self.go(session, thread)?;
            return Ok(None);
        }
        if signal == INTERRUPT && watch.interrupted.load(Ordering::Relaxed) {
            return self.end(session, thread, Reason::Interrupted).map(Some);
        }
        let since = Instant::now();
        if let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| signal == INTERRUPT) {
            checkpoints.stops_at(here);
        }
        let (stopped, instructions) = self.freeze(session, thread)?;
        let checkpoint = signal == INTERRUPT && std::mem::take(&mut self.checkpoint_asked);
        if signal == INTERRUPT && std::mem::take(&mut self.limit_reached) {
            send(&session.emulator.plugin, &Command::Resume)?;
            if stopped.cores.len() > 1 {
                return self
                    .end(session, thread, Reason::Instructions(instructions))
                    .map(Some);
            }
            self.stepping = true;
            self.checkpoints = None;
            self.executed = instructions;
            return self.proceed(session, thread, here);
        }
        if checkpoint {
            self.checkpoint(session, here, (since, instructions))?;
            send(&session.emulator.plugin, &Command::Resume)?;
            self.go(session, thread)?;
            return Ok(None);
        }
        if let Some(number) = signals::from_gdb(signal) {
            match self.effect(number, thread) {
                Effect::Ends => {
                    return self.end(session, thread, Reason::Signal(number)).map(Some);
                }
                Effect::None => {}
                Effect::Handled => {
                    let thumb = u64::from(here.isa == Isa::T32);
                    let note = Command::Note {
                        thread,
                        number,
                        address: here.address.0 | thumb,
                    };
                    send(&session.emulator.plugin, &note)?;
                    // A replay ends at a signal.
                    if let Some(checkpoints) = &self.checkpoints {
                        let after = checkpoints.due();
                        send(&session.emulator.plugin, &Command::Checkpoint { after })?;
                    }
                }
            }
        }
        send(&session.emulator.plugin, &Command::Resume)?;
        if self.stepping {
            session
                .emulator
                .remote
                .step_with(&format!("{thread:x}"), signal)?;
        } else {
            session.emulator.remote.resume_with(signal)?;
        }
        Ok(None)
    }

    /// Takes a checkpoint of the stopped program, and asks for the next one.
    fn checkpoint(
        &mut self,
        session: &mut Session,
        here: CodeAddress,
        when: (Instant, u64),
    ) -> Result<(), Error> {
        let Some(checkpoints) = &mut self.checkpoints else {
            return Ok(());
        };
        match checkpoints.take(session, &self.traps, here, when)? {
            Some(after) => send(&session.emulator.plugin, &Command::Checkpoint { after })?,
            None => self.checkpoints = None,
        }
        Ok(())
    }

    /// Continues at an instruction whose trap has not been handled yet, unless the recording ends
    /// there.
    fn proceed(
        &mut self,
        session: &mut Session,
        thread: u32,
        here: CodeAddress,
    ) -> Result<Option<Ended>, Error> {
        let limit = self.instructions.filter(|_| self.stepping);
        if limit.is_some_and(|limit| self.executed >= limit) {
            let reason = Reason::Instructions(self.executed);
            return self.end(session, thread, reason).map(Some);
        }
        match self.traps.get(&here.address.0).map(|trap| trap.reason) {
            // The exit of the program is handled in `stopped`.
            None | Some(TrapReason::Exit) => self.go(session, thread)?,
            Some(TrapReason::Entry) => self.pass(session, thread, here, TrapReason::Entry)?,
            Some(TrapReason::Until) => {
                if let Some(reason) = self.reached_until() {
                    return self.end(session, thread, reason).map(Some);
                }
                self.pass(session, thread, here, TrapReason::Until)?;
            }
        }
        Ok(None)
    }

    /// Resumes the program, by one instruction if it is stepped through.
    fn go(&mut self, session: &mut Session, thread: u32) -> Result<(), Error> {
        match self.stepping {
            false => session.emulator.remote.resume()?,
            true => session.emulator.remote.step(&format!("{thread:x}"))?,
        }
        Ok(())
    }

    /// Counts stepped instructions, and logs the registers after them. The step of a system call also
    /// executes the next instruction.
    fn stepped(&mut self, session: &mut Session) -> Result<(), Error> {
        if !self.stepping {
            return Ok(());
        }
        send(&session.emulator.plugin, &Command::Flush)?;
        self.executed = self.reply(session)?.1;
        match &mut self.steps {
            Some(steps) => steps.step(session),
            None => Ok(()),
        }
    }

    /// Finishes the register log.
    pub fn finish(&mut self) -> Result<(), Error> {
        match self.steps.take() {
            Some(steps) => steps.finish(),
            None => Ok(()),
        }
    }

    /// Returns the effect of a signal that a thread is about to take. A fault whose signal is
    /// blocked, as in its own handler, ends the program.
    fn effect(&mut self, number: u32, thread: u32) -> Effect {
        const NO_DEFER: u64 = 0x4000_0000;
        const RESET_HANDLER: u64 = 0x8000_0000;
        let by_fault = matches!(number, 4 | 5 | 7 | 8 | 11);
        let (handler, flags) = self.handlers.get(&number).copied().unwrap_or((0, 0));
        let blocked = self.blocked.contains(&(thread, number));
        if by_fault && (handler == 1 || blocked) {
            return Effect::Ends;
        }
        match handler {
            0 if signals::ends_program(number) => Effect::Ends,
            0 | 1 => Effect::None,
            _ => {
                if flags & NO_DEFER == 0 {
                    self.blocked.insert((thread, number));
                }
                if flags & RESET_HANDLER != 0 {
                    self.handlers.remove(&number);
                }
                Effect::Handled
            }
        }
    }

    /// Counts a visit of `until`. Returns the reason to stop once there were enough visits.
    fn reached_until(&mut self) -> Option<Reason> {
        self.reached += 1;
        let until = self.until.as_ref()?;
        (self.reached >= until.count).then(|| Reason::Until(until.to_string()))
    }

    /// Executes the instruction that a trap replaces; `stopped` inserts the trap again. At the program's
    /// entry its libraries have been loaded, and `until` is resolved in them.
    fn pass(
        &mut self,
        session: &mut Session,
        thread: u32,
        here: CodeAddress,
        reason: TrapReason,
    ) -> Result<(), Error> {
        self.remove(session, here.address.0)?;
        if reason == TrapReason::Entry {
            self.set_until(session, true)?;
            self.remove(session, here.address.0)?;
        }
        self.passing = Some((here, reason));
        session.emulator.remote.step(&format!("{thread:x}"))?;
        Ok(())
    }

    /// Freezes all threads and flushes their events.
    fn freeze(&mut self, session: &mut Session, thread: u32) -> Result<(Stopped, u64), Error> {
        let freeze = Command::Freeze {
            thread,
            wait_ms: FREEZE_MS,
        };
        send(&session.emulator.plugin, &freeze)?;
        self.reply(session)
    }

    /// Waits for the reply to a command.
    fn reply(&mut self, session: &mut Session) -> Result<(Stopped, u64), Error> {
        loop {
            match session.emulator.events.recv_timeout(REPLY_TIMEOUT) {
                Ok(event) => {
                    if let Some(reply) = self.handle(session, event)? {
                        return Ok(reply);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::Lost(
                        "the emulator's plugin does not reply".to_owned(),
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(session.unread()),
            }
        }
    }

    fn end(&mut self, session: &mut Session, thread: u32, reason: Reason) -> Result<Ended, Error> {
        let (stopped, _) = self.freeze(session, thread)?;
        if !stopped.still {
            session.emulator.notes.push(Note::NotAllStopped);
        }
        if self.children > 0 {
            let count = self.children;
            session.emulator.notes.push(Note::Children { count });
        }
        let addresses: Vec<u64> = self.traps.keys().copied().collect();
        for address in addresses {
            // Code that was unmapped meanwhile needs no restoring.
            match self.remove(session, address) {
                Ok(_) | Err(Error::Io(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Ended {
            reason,
            thread,
            cores: stopped.cores,
        })
    }
}
