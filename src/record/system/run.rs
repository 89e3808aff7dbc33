//! When a machine stops, and why.

use super::image::Image;
use super::{Request, Session};
use crate::arch::Architecture;
use crate::record::plugin::tell;
use crate::record::remote::{Stop, number_of};
use crate::record::stream::{Command, StoppedCore};
use crate::record::tracing::Told;
use crate::record::{Error, Reason, Watch};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Where a recording ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub reason: Reason,
    /// The core that ended it, as the GDB server names it.
    pub thread: String,
    pub cores: Vec<StoppedCore>,
    /// Where a breakpoint stands that was asked for.
    until: Option<u64>,
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
    let until = ended.until.iter();
    for &address in until.chain(image.calls().iter().map(|call| &call.0)) {
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
    let until = match &request.options.until {
        None => None,
        Some(text) => {
            let address = image.address(text);
            let address = address.ok_or_else(|| {
                Error::Usage(format!(
                    "--until {text}: {} has no such function, and it is no address",
                    request.image.display()
                ))
            })?;
            session
                .emulator
                .remote
                .insert_breakpoint(address, image.breakpoint_kind(address))?;
            Some((text.clone(), address))
        }
    };
    for (address, _) in image.calls() {
        if until.as_ref().is_none_or(|until| until.1 != *address) {
            session
                .emulator
                .remote
                .insert_breakpoint(*address, image.breakpoint_kind(*address))?;
        }
    }
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
            (5, asked) => match place(session, image, &until, &thread)? {
                Some(reason) => Some(reason),
                None => {
                    // A call that is no exit is executed, then all goes on.
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
                until: until.map(|until| until.1),
                waits,
            });
        }
    }
}

/// Why the recording ends where this core stands, if it does.
fn place(
    session: &mut Session,
    image: &Image,
    until: &Option<(String, u64)>,
    thread: &str,
) -> Result<Option<Reason>, Error> {
    session.emulator.remote.select(thread)?;
    let pc = session.emulator.remote.value("pc")?.unwrap_or_default();
    if let Some((text, address)) = until
        && *address == pc
    {
        return Ok(Some(Reason::Until(text.clone())));
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
