//! When a machine stops, and why.

use super::image::Image;
use super::{Request, Session};
use crate::arch::Architecture;
use crate::record::plugin::tell;
use crate::record::remote::{Stop, number_of};
use crate::record::stream::{Command, StoppedCore};
use crate::record::tracing::Told;
use crate::record::{Error, Reason, Watch};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Where a recording ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub reason: Reason,
    /// The core that ended it, as the GDB server names it.
    pub thread: String,
    pub cores: Vec<StoppedCore>,
    /// Where breakpoints stand that were asked for.
    until: Vec<u64>,
    /// An exception has not returned, and the return would tell where it was taken.
    pub waits: bool,
}

/// How long a handler may take to return once the recording has ended.
const RETURN: Duration = Duration::from_secs(2);

/// Runs on, without recording, until exceptions have returned of which nothing else tells where
/// they were taken.
pub(super) fn learn(session: &mut Session, image: &Image, ended: &Ended) -> Result<(), Error> {
    if !ended.waits {
        return Ok(());
    }
    for &address in ended
        .until
        .iter()
        .chain(image.calls().iter().map(|call| &call.0))
    {
        let kind = image.breakpoint_kind(address);
        // One address may have been asked for twice.
        let _ = session.emulator.remote.remove_breakpoint(address, kind);
    }
    session.emulator.remote.resume()?;
    let begun = Instant::now();
    while let Some(left) = RETURN.checked_sub(begun.elapsed()) {
        match session.emulator.told.recv_timeout(left) {
            Ok(Told::Settled) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// How often the state of things is looked at while the machine runs.
const GLANCE: Duration = Duration::from_millis(50);

/// How long the plugin and its stream may take to come to rest.
const REST: Duration = Duration::from_secs(120);

/// Between the order to stop and the moment at which the emulator was told: the core that waits
/// meanwhile goes on to the end of its block, and if this is too short, a little further.
const TELL: Duration = Duration::from_millis(20);

/// Runs it until something ends the recording.
pub(super) fn to_the_end(
    session: &mut Session,
    request: &Request,
    image: &Image,
    watch: &mut Watch<'_>,
) -> Result<Ended, Error> {
    let mut until = Vec::new();
    if let Some(wanted) = &request.options.until {
        until = image
            .until(wanted)
            .map_err(|error| Error::Usage(format!("--until {error}")))?;
        if until.is_empty() {
            return Err(Error::Usage(format!(
                "--until {}: {} has no such function and no code of such a line, and it is no \
                 address",
                wanted.text,
                request.image.display()
            )));
        }
    }
    let mut places = BTreeSet::from_iter(until.iter().copied());
    places.extend(image.calls().iter().map(|call| call.0));
    for &address in &places {
        let kind = image.breakpoint_kind(address);
        session.emulator.remote.insert_breakpoint(address, kind)?;
    }
    let mut reached = 0;
    let mut asked = None;
    session.emulator.remote.resume()?;
    loop {
        let stop = session.emulator.remote.wait(GLANCE)?;
        (watch.progress)(session.emulator.progress.load(Ordering::Relaxed));
        let Some(stop) = stop else {
            let limit = matches!(session.emulator.told.try_recv(), Ok(Told::Limit));
            if asked.is_none() && (limit || watch.interrupted.load(Ordering::Relaxed)) {
                asked = Some(match request.options.instructions.filter(|_| limit) {
                    Some(count) => Reason::Instructions(count),
                    None => Reason::Interrupted,
                });
                session.emulator.remote.interrupt()?;
                if limit {
                    std::thread::sleep(TELL);
                    tell(&session.emulator.plugin, &Command::Resume)?;
                }
            }
            continue;
        };
        let (signal, thread) = match stop {
            Stop::Signal { signal, thread } => (signal, thread),
            Stop::Exited(status) => {
                return Err(Error::Failed(format!(
                    "the machine ended with status {status} by itself, where nobody could stop \
                     it: --until a function before that"
                )));
            }
            Stop::Ended(signal) => {
                return Err(Error::Failed(format!(
                    "the emulator was ended by signal {signal}"
                )));
            }
        };
        let thread = session.emulator.stopped_thread(thread)?;
        let reason = match (signal, asked.take()) {
            // GDB's numbers: SIGINT, SIGTRAP; SIGQUIT for a machine that shut down.
            (5, asked) => match place(session, image, request, &until, &mut reached, &thread)? {
                Some(reason) => Some(reason),
                None => {
                    // A call that is no exit, or a place that was not reached often enough, is
                    // executed, then all goes on.
                    session.emulator.remote.step(&thread)?;
                    session.emulator.remote.wait(REST)?;
                    if asked.is_none() {
                        session.emulator.remote.resume()?;
                    }
                    asked
                }
            },
            (2, asked) => Some(asked.unwrap_or(Reason::Interrupted)),
            (_, _) => Some(Reason::ShutDown),
        };
        if let Some(reason) = reason {
            let (cores, waits) = rest(session)?;
            return Ok(Ended {
                reason,
                thread,
                cores,
                until,
                waits,
            });
        }
    }
}

/// Why the recording ends where this core stands, if it does. `reached`: how often a core came to
/// where it should stop.
fn place(
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
        return Ok(Some(Reason::Interrupted));
    }
    exit_status(session).map(|status| status.map(Reason::Exit))
}

/// The status of a semihosting call that exits (Semihosting for AArch32 and AArch64, SYS_EXIT,
/// SYS_EXIT_EXTENDED).
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

/// Everything executed is told; the cores, and [`Ended::waits`].
fn rest(session: &mut Session) -> Result<(Vec<StoppedCore>, bool), Error> {
    tell(&session.emulator.plugin, &Command::Flush)?;
    let mut waits = false;
    loop {
        match session.emulator.told.recv_timeout(REST) {
            Ok(Told::Stopped { stopped, .. }) => return Ok((stopped.cores, waits)),
            Ok(Told::Waits) => waits = true,
            Ok(_) => {}
            Err(_) => {
                return Err(Error::Failed(
                    "the emulator's plugin does not tell what was executed".to_owned(),
                ));
            }
        }
    }
}
