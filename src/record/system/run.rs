//! Runs a machine until something ends the recording.

use super::image::Image;
use super::kernel::Kernel;
use super::places::Places;
use super::{Request, Session};
use crate::record::plugin::send;
use crate::record::remote::{Stop, number_of};
use crate::record::stream::{Command, StoppedCore};
use crate::record::tracing::TraceEvent;
use crate::record::{Error, Reason, Watch};
use armsnap_arch::arch::Architecture;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// How and where a recording ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub reason: Reason,
    /// The core that ended the recording, as the GDB server's thread ID.
    pub thread: String,
    pub cores: Vec<StoppedCore>,
    /// The breakpoints of `--until`.
    until: Vec<u64>,
    /// Whether the return address of an exception is unknown until its handler returns.
    pub return_pending: bool,
}

/// The timeout for handlers to return after the end of the recording.
const RETURN: Duration = Duration::from_secs(2);

/// Continues without recording until the handlers of exceptions with unknown return addresses
/// return.
pub(super) fn await_returns(
    session: &mut Session,
    image: &Image,
    ended: &Ended,
) -> Result<(), Error> {
    if !ended.return_pending {
        return Ok(());
    }
    for &address in ended
        .until
        .iter()
        .chain(image.calls().iter().map(|call| &call.0))
    {
        let kind = image.breakpoint_kind(address);
        // Duplicate addresses have one breakpoint.
        let _ = session.emulator.remote.remove_breakpoint(address, kind);
    }
    session.emulator.remote.resume()?;
    let start = Instant::now();
    while let Some(left) = RETURN.checked_sub(start.elapsed()) {
        match session.emulator.events.recv_timeout(left) {
            Ok(TraceEvent::ReturnsKnown) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The polling interval while the machine runs.
const POLL: Duration = Duration::from_millis(50);

/// The timeout for the plugin's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// The delay between the interrupt and resuming the core that waits at the limit, to let the
/// emulator see the interrupt. If it is too short, the core runs past its block.
const INTERRUPT_DELAY: Duration = Duration::from_millis(20);

/// Runs the machine until something ends the recording.
pub(super) fn to_the_end(
    session: &mut Session,
    request: &Request,
    image: &Image,
    watch: &mut Watch<'_>,
) -> Result<Ended, Error> {
    let path = &request.image;
    let wanted = request.options.until.as_ref();
    let mut until = Places::find(image, path, "--until", wanted)?;
    let mut from = Places::find(image, path, "--from", request.from.as_ref())?;
    let mut places = BTreeSet::from_iter(until.addresses.iter().copied());
    places.extend(image.calls().iter().map(|call| call.0));
    places.extend(&from.addresses);
    for &address in &places {
        let kind = image.breakpoint_kind(address);
        session.emulator.remote.insert_breakpoint(address, kind)?;
    }
    let mut begun = request.from.is_none();
    let mut reached = 0;
    let mut asked = None;
    session.emulator.remote.resume()?;
    loop {
        let stop = session.emulator.remote.wait(POLL)?;
        (watch.progress)(session.emulator.progress.load(Ordering::Relaxed));
        let Some(stop) = stop else {
            let mut limit = false;
            loop {
                match session.emulator.events.try_recv() {
                    Ok(TraceEvent::Place(address)) => {
                        let first = image.kernel.as_ref().and_then(Kernel::first);
                        session.text = first.map(|(_, offset)| address.wrapping_sub(offset.into()));
                        if until.is_open() || from.is_open() {
                            session.emulator.remote.interrupt()?;
                            std::thread::sleep(INTERRUPT_DELAY);
                        }
                        send(&session.emulator.plugin, &Command::Resume)?;
                    }
                    Ok(TraceEvent::Limit) => limit = true,
                    Ok(_) => {}
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err(unread(session)),
                }
            }
            if asked.is_none() && (limit || watch.interrupted.load(Ordering::Relaxed)) {
                asked = Some(match request.options.instructions.filter(|_| limit) {
                    Some(count) => Reason::Instructions(count),
                    None => Reason::Interrupted,
                });
                session.emulator.remote.interrupt()?;
            }
            if limit {
                std::thread::sleep(INTERRUPT_DELAY);
                send(&session.emulator.plugin, &Command::Resume)?;
            }
            continue;
        };
        let (signal, thread) = match stop {
            Stop::Signal { signal, thread } => (signal, thread),
            Stop::Exited(status) => {
                return Err(Error::Lost(format!(
                    "the machine ended with status {status} before it could be stopped: use \
                     --until with a function executed earlier"
                )));
            }
            Stop::Ended(signal) => {
                return Err(Error::Lost(format!(
                    "the emulator was ended by signal {signal}"
                )));
            }
        };
        let thread = session.emulator.stopped_thread(thread)?;
        if let Some(text) = session.text
            && (until.is_open() || from.is_open())
        {
            let found = until.close(text).into_iter().chain(from.close(text));
            for address in BTreeSet::from_iter(found) {
                session.emulator.remote.insert_breakpoint(address, 4)?;
            }
            if signal == 2 && asked.is_none() {
                session.emulator.remote.resume()?;
                continue;
            }
        }
        if !begun && signal == 5 {
            begun = begins(session, &mut from, &until, image, &thread)?;
        }
        let reason = match (signal, asked.take()) {
            // GDB's numbers: SIGINT, SIGTRAP; SIGQUIT for a machine that shut down.
            (5, asked) => {
                match stop_reason(
                    session,
                    image,
                    request,
                    &until.addresses,
                    &mut reached,
                    &thread,
                )? {
                    Some(reason) => Some(reason),
                    None => {
                        // A call that does not exit, or a location not visited often enough, is
                        // executed, and the machine continues.
                        session.emulator.remote.step(&thread)?;
                        session.emulator.remote.wait(REPLY_TIMEOUT)?;
                        if asked.is_none() {
                            session.emulator.remote.resume()?;
                        }
                        asked
                    }
                }
            }
            (2, asked) => Some(asked.unwrap_or(Reason::Interrupted)),
            (_, _) => Some(Reason::ShutDown),
        };
        if let Some(reason) = reason {
            if let Some(from) = request.from.as_ref().filter(|_| !begun) {
                return Err(Error::Failed(format!(
                    "--from {}: not reached, so nothing was traced; the machine stopped: {reason}",
                    from.text
                )));
            }
            let (cores, return_pending) = flush(session)?;
            return Ok(Ended {
                reason,
                thread,
                cores,
                until: until.addresses,
                return_pending,
            });
        }
    }
}

/// Starts tracing if the core stopped at one of these locations. Returns whether it did.
fn begins(
    session: &mut Session,
    from: &mut Places,
    until: &Places,
    image: &Image,
    thread: &str,
) -> Result<bool, Error> {
    session.emulator.remote.select(thread)?;
    let pc = session.emulator.remote.value("pc")?.unwrap_or_default();
    if !from.addresses.contains(&pc) {
        return Ok(false);
    }
    // The first flush begins the trace.
    flush(session)?;
    for address in std::mem::take(&mut from.addresses) {
        let is_call = image.calls().iter().any(|call| call.0 == address);
        if !is_call && !until.addresses.contains(&address) {
            let kind = image.breakpoint_kind(address);
            session.emulator.remote.remove_breakpoint(address, kind)?;
        }
    }
    Ok(true)
}

/// Returns the reason to end the recording where this core stopped, if there is one. `reached`
/// counts the visits of `--until`.
fn stop_reason(
    session: &mut Session,
    image: &Image,
    request: &Request,
    until: &[u64],
    reached: &mut u64,
    thread: &str,
) -> Result<Option<Reason>, Error> {
    session.emulator.remote.select(thread)?;
    let pc = session.emulator.remote.value("pc")?.unwrap_or_default();
    if let Some(wanted) = request
        .options
        .until
        .as_ref()
        .filter(|_| until.contains(&pc))
    {
        *reached += 1;
        if *reached >= wanted.count {
            return Ok(Some(Reason::Until(wanted.to_string())));
        }
        if image.calls().iter().all(|call| call.0 != pc) {
            return Ok(None);
        }
    }
    if image.calls().iter().all(|call| call.0 != pc) {
        // A breakpoint of `--from`, or one that was removed.
        let other = request.from.is_none();
        return Ok(other.then_some(Reason::Interrupted));
    }
    exit_status(session).map(|status| status.map(Reason::Exit))
}

/// Returns the status of a semihosting call that exits (Semihosting for AArch32 and AArch64,
/// SYS_EXIT, SYS_EXIT_EXTENDED).
fn exit_status(session: &mut Session) -> Result<Option<u64>, Error> {
    const SYS_EXIT: u64 = 0x18;
    const SYS_EXIT_EXTENDED: u64 = 0x20;
    /// ADP_Stopped_ApplicationExit.
    const APPLICATION_EXIT: u64 = 0x2_0026;
    let wide = session.architecture == Architecture::AArch64;
    let mut register = |name: [&str; 2]| {
        let name = name[usize::from(!wide)];
        Ok::<u64, Error>(session.emulator.remote.value(name)?.unwrap_or_default())
    };
    let operation = register(["x0", "r0"])? & 0xffff_ffff;
    let argument = register(["x1", "r1"])?;
    if operation != SYS_EXIT && operation != SYS_EXIT_EXTENDED {
        return Ok(None);
    }
    if operation == SYS_EXIT && !wide {
        return Ok(Some(u64::from(argument != APPLICATION_EXIT)));
    }
    let size = if wide { 8 } else { 4 };
    let block = session.emulator.remote.memory(argument, 2 * size)?;
    let field = |index: usize| block.get(index * size..(index + 1) * size).map(number_of);
    Ok(Some(match (field(0), field(1)) {
        (Some(APPLICATION_EXIT), Some(status)) => status,
        _ => 1,
    }))
}

/// Flushes all events. Returns the cores and [`Ended::return_pending`].
fn flush(session: &mut Session) -> Result<(Vec<StoppedCore>, bool), Error> {
    send(&session.emulator.plugin, &Command::Flush)?;
    let mut return_pending = false;
    loop {
        match session.emulator.events.recv_timeout(REPLY_TIMEOUT) {
            Ok(TraceEvent::Stopped { stopped, .. }) => return Ok((stopped.cores, return_pending)),
            Ok(TraceEvent::ReturnPending) => return_pending = true,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return Err(silent()),
            Err(RecvTimeoutError::Disconnected) => return Err(unread(session)),
        }
    }
}

/// Returns the error for a stream that ended before the machine.
fn unread(session: &mut Session) -> Error {
    session.emulator.unread("the emulator ended")
}

fn silent() -> Error {
    Error::Lost("the emulator's plugin does not reply".to_owned())
}
