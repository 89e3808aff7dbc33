//! When a program stops, and why it ends there.

use super::{Error, Request, Session, Watch, failed};
use crate::encode::Place;
use crate::quantity::{Address, Isa};
use crate::record::plugin::tell;
use crate::record::process;
use crate::record::remote::{self, Stop};
use crate::record::signals;
use crate::record::sites::Program;
use crate::record::stream::{Command, CoreState, Stopped, StoppedCore};
use crate::record::tracing::Told;
use crate::record::traps::{self, Call};
use crate::snapshot::map;
use crate::snapshot::model::{Register, RegisterValue};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;

/// Instructions that are stepped through before the number asked for is reached: more than two
/// blocks of the emulator have.
pub(super) const STEPS: u64 = 1100;

/// Why a recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The program was about to exit with this status.
    Exit(u64),
    /// It reached the place that was asked for.
    Until(String),
    /// A signal (Linux' number) was about to end it.
    Signal(u32),
    /// The machine shut down, or was about to be reset.
    ShutDown,
    /// It executed as many instructions as were asked for.
    Instructions(u64),
    /// The user stopped it.
    Interrupted,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "about to exit with status {}", status & 0xff),
            Self::Until(place) => write!(f, "at {place}"),
            Self::Signal(number) => write!(f, "{}", signals::name(*number)),
            Self::ShutDown => write!(f, "shut down"),
            Self::Instructions(count) => write!(f, "after {count} instructions"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

/// Where a recording ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub reason: Reason,
    /// The thread that ended it.
    pub thread: u32,
    pub cores: Vec<StoppedCore>,
}

/// Where a core is frozen, of which the emulator does not tell.
pub(super) fn frozen_pc(core: &StoppedCore) -> Option<u64> {
    match core.state {
        CoreState::Frozen(pc) => Some(pc),
        CoreState::Running | CoreState::SystemCall => None,
    }
}

/// Gives the program counter another value.
pub(super) fn set_pc(registers: &mut [Register], pc: u64) {
    if let Some(register) = registers.iter_mut().find(|register| register.name == "PC") {
        let bytes = pc.to_le_bytes().to_vec();
        register.value = RegisterValue(bytes).canonical(Some(register.size.unwrap_or(32)));
    }
}

/// Where a core stands.
pub(super) fn place(registers: &[Register], is_64bit: bool) -> Option<Place> {
    let value = |name: &str| {
        let register = registers.iter().find(|register| register.name == name)?;
        register.value.as_u64()
    };
    Some(Place {
        address: Address(value("PC")?),
        isa: isa(is_64bit, value("CPSR")?),
    })
}

/// The instruction set that CPSR tells (bit 5 in AArch32 state: T).
fn isa(is_64bit: bool, cpsr: u64) -> Isa {
    match (is_64bit, cpsr >> 5 & 1) {
        (true, _) => Isa::A64,
        (false, 1) => Isa::T32,
        (false, _) => Isa::A32,
    }
}

/// Why a trap is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The program begins here, and its libraries are loaded.
    Entry,
    /// The place that was asked for.
    Until,
    /// A system call that may end it.
    Call(Call),
}

/// What a signal does to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Handled,
    Ends,
}

#[derive(Clone, Debug)]
struct Trap {
    why: Why,
    isa: Isa,
    /// What it stands in the place of; nothing if it is a breakpoint of the emulator.
    original: Option<Vec<u8>>,
}

/// A program that is run to its end.
#[derive(Debug)]
pub(super) struct Run {
    traps: BTreeMap<u64, Trap>,
    until: Option<(String, Place)>,
    instructions: Option<u64>,
    /// What handles signals: an address, 0 (default) or 1 (ignored), and flags.
    handlers: BTreeMap<u32, (u64, u64)>,
    /// Signals that threads were given and that are blocked while they are handled.
    blocked: BTreeSet<(u32, u32)>,
    /// Threads at once, as the plugin told last.
    cores: usize,
}

/// How often the state of things is looked at while the program runs.
const GLANCE: Duration = Duration::from_millis(100);

/// How long the plugin and its stream may take to come to rest.
const REST: Duration = Duration::from_secs(120);

/// How long other threads may take to be frozen.
const FREEZE_MS: u32 = 2000;

impl Run {
    /// Before the first instruction.
    pub fn new(session: &mut Session, request: &Request) -> Result<Self, Error> {
        let entry = session.entry()?;
        session.moved = entry.wrapping_sub(session.program.entry & !1);
        session.base = session.find_base(request)?;
        let until = match &request.until {
            Some(text) => Some((text.clone(), session.until(text)?)),
            None => None,
        };
        let mut run = Self {
            traps: BTreeMap::new(),
            until,
            instructions: request.instructions,
            handlers: BTreeMap::new(),
            blocked: BTreeSet::new(),
            cores: 1,
        };
        run.trap_calls(session)?;
        if session.program.interpreter.is_some() {
            let isa = match (session.program.is_64bit, session.program.entry & 1) {
                (true, _) => Isa::A64,
                (false, 1) => Isa::T32,
                (false, _) => Isa::A32,
            };
            let place = Place {
                address: Address(entry),
                isa,
            };
            run.set(session, place, Why::Entry)?;
        }
        if let Some((text, place)) = run.until.clone() {
            let here = session.here()?;
            if place != here && !run.set(session, place, Why::Until)? && run.is_static(session) {
                return Err(not_there(&text));
            }
        }
        Ok(run)
    }

    fn is_static(&self, session: &Session) -> bool {
        session.program.interpreter.is_none()
    }

    /// Puts a trap to a place; false if there is no memory.
    fn set(&mut self, session: &mut Session, place: Place, why: Why) -> Result<bool, Error> {
        let address = place.address.0;
        if let Some(there) = self.traps.get_mut(&address) {
            // What was asked for is more than what we look for by ourselves.
            if why == Why::Until {
                there.why = why;
            }
            return Ok(true);
        }
        let code = traps::trap(place.isa);
        let original = match &session.memory {
            Some(memory) => {
                let mut bytes = vec![0; code.len()];
                let at = address.wrapping_add(session.base);
                if memory.read(at, &mut bytes) < bytes.len() || memory.write(at, code).is_err() {
                    return Ok(false);
                }
                Some(bytes)
            }
            None => {
                let set = session.remote.insert_breakpoint(address, code.len() as u8);
                match set {
                    Ok(()) => None,
                    Err(remote::Error::Odd { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let isa = place.isa;
        self.traps.insert(address, Trap { why, isa, original });
        Ok(true)
    }

    fn remove(&mut self, session: &mut Session, address: u64) -> Result<Option<Trap>, Error> {
        let Some(trap) = self.traps.remove(&address) else {
            return Ok(None);
        };
        match (&trap.original, &session.memory) {
            (Some(bytes), Some(memory)) => {
                memory.write(address.wrapping_add(session.base), bytes)?;
            }
            _ => {
                let length = traps::trap(trap.isa).len() as u8;
                session.remote.remove_breakpoint(address, length)?;
            }
        }
        Ok(Some(trap))
    }

    /// Traps at the calls of the program and of the libraries that are loaded.
    fn trap_calls(&mut self, session: &mut Session) -> Result<(), Error> {
        let mut files = BTreeSet::new();
        let mut sites = Vec::new();
        for mapping in process::mappings(session.child.id())? {
            let Some(file) = mapping.file else { continue };
            let new = files.insert(file.clone());
            let Some(bytes) = new.then(|| map::map(&file).ok()).flatten() else {
                continue;
            };
            let Ok(found) = Program::read(&bytes) else {
                continue;
            };
            let start = mapping.start.wrapping_sub(session.base);
            let moved = found.moved(mapping.offset, start);
            let (true, Some(moved)) = (found.is_64bit == session.program.is_64bit, moved) else {
                continue;
            };
            sites.extend(found.calls().into_iter().map(|(address, isa, call)| {
                let address = Address(address.wrapping_add(moved));
                (Place { address, isa }, call)
            }));
        }
        for (place, call) in sites {
            self.set(session, place, Why::Call(call))?;
        }
        Ok(())
    }

    /// Runs it until something ends the recording.
    pub fn complete(
        &mut self,
        session: &mut Session,
        watch: &mut Watch<'_>,
    ) -> Result<Ended, Error> {
        if let Some((text, place)) = self.until.clone()
            && session.here()? == place
        {
            let thread = session.thread(None)?;
            return self.end(session, thread, Reason::Until(text));
        }
        if self.instructions.is_some_and(|limit| limit <= STEPS) {
            let thread = session.thread(None)?;
            if let Some(ended) = self.step_to_limit(session, thread, 0, watch)? {
                return Ok(ended);
            }
        } else {
            session.remote.resume()?;
        }
        loop {
            let (signal, thread) = match session.wait(watch)? {
                Stop::Signal { signal, thread } => (signal, session.thread(thread)?),
                Stop::Exited(status) => return Err(session.gone(&format!("exit status {status}"))),
                Stop::Ended(signal) => return Err(session.gone(&format!("signal {signal}"))),
            };
            if let Some(ended) = self.stopped(session, signal, thread, watch)? {
                return Ok(ended);
            }
        }
    }

    /// The program stopped. Lets it run on unless this is the end.
    fn stopped(
        &mut self,
        session: &mut Session,
        signal: u8,
        thread: u32,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Ended>, Error> {
        const TRAP: u8 = 5;
        const INTERRUPT: u8 = 2;
        let here = session.here()?;
        if signal == TRAP
            && let Some(trap) = self.traps.get(&here.address.0).cloned()
        {
            return self.trapped(session, thread, here, &trap, watch);
        }
        if signal == INTERRUPT && watch.interrupted.load(Ordering::Relaxed) {
            return self.end(session, thread, Reason::Interrupted).map(Some);
        }
        let (stopped, instructions) = self.freeze(session, thread)?;
        if signal == INTERRUPT
            && let Some(limit) = self.instructions
            && instructions >= limit.saturating_sub(STEPS)
        {
            tell(&session.plugin, &Command::Resume)?;
            if stopped.cores.len() > 1 {
                return self
                    .end(session, thread, Reason::Instructions(instructions))
                    .map(Some);
            }
            return self.step_to_limit(session, thread, instructions, watch);
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
                    tell(&session.plugin, &note)?;
                }
            }
        }
        tell(&session.plugin, &Command::Resume)?;
        session.remote.resume_with(signal)?;
        Ok(None)
    }

    /// What a signal that a thread is about to take does. One that a fault makes while it is
    /// blocked, as in its own handler, ends the program.
    fn effect(&mut self, number: u32, thread: u32) -> Effect {
        const NO_DEFER: u64 = 0x4000_0000;
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
                Effect::Handled
            }
        }
    }

    fn trapped(
        &mut self,
        session: &mut Session,
        thread: u32,
        here: Place,
        trap: &Trap,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Ended>, Error> {
        let address = here.address.0;
        match trap.why {
            Why::Until => {
                let text = self.until.as_ref().map(|until| until.0.clone());
                let reason = Reason::Until(text.unwrap_or_default());
                return self.end(session, thread, reason).map(Some);
            }
            Why::Entry => {
                self.remove(session, address)?;
                self.trap_calls(session)?;
                if let Some((text, place)) = self.until.clone() {
                    if place == here {
                        return self.end(session, thread, Reason::Until(text)).map(Some);
                    }
                    if !self.set(session, place, Why::Until)? {
                        return Err(not_there(&text));
                    }
                }
                session.remote.resume()?;
            }
            Why::Call(_) => {
                let (call, first) = session.call(here.isa)?;
                let alone = call == Some(Call::Exit) && {
                    let (stopped, _) = self.freeze(session, thread)?;
                    tell(&session.plugin, &Command::Resume)?;
                    stopped.cores.len() == 1
                };
                if call == Some(Call::ExitGroup) || alone {
                    return self.end(session, thread, Reason::Exit(first)).map(Some);
                }
                self.remove(session, address)?;
                if call == Some(Call::Exit) {
                    // The thread does not come back from there, and nobody could set it again.
                    session.remote.resume()?;
                    return Ok(None);
                }
                session.remote.step(&format!("{thread:x}"))?;
                let stop = session.wait(watch)?;
                self.set(session, here, trap.why)?;
                match stop {
                    Stop::Signal { signal: 5, .. } => session.remote.resume()?,
                    Stop::Signal { signal, thread } => {
                        let thread = session.thread(thread)?;
                        return self.stopped(session, signal, thread, watch);
                    }
                    other => return Err(session.gone(&format!("{other:?}"))),
                }
            }
        }
        Ok(None)
    }

    /// One instruction after the other, until as many were executed as were asked for.
    fn step_to_limit(
        &mut self,
        session: &mut Session,
        thread: u32,
        executed: u64,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Ended>, Error> {
        let limit = self.instructions.unwrap_or(executed);
        for _ in executed..limit {
            let before = session.here()?;
            if let Some(trap) = self.traps.get(&before.address.0).cloned() {
                match trap.why {
                    // These are passed over here.
                    Why::Entry => {
                        self.remove(session, before.address.0)?;
                        self.trap_calls(session)?;
                    }
                    Why::Call(_) if session.call(before.isa)?.0.is_none() => {
                        self.remove(session, before.address.0)?;
                    }
                    _ => return self.trapped(session, thread, before, &trap, watch),
                }
                session.remote.step(&format!("{thread:x}"))?;
                let stop = session.wait(watch)?;
                if let Why::Call(_) = trap.why {
                    self.set(session, before, trap.why)?;
                }
                if !matches!(stop, Stop::Signal { signal: 5, .. }) {
                    return Err(session.gone(&format!("{stop:?}")));
                }
                continue;
            }
            session.remote.step(&format!("{thread:x}"))?;
            match session.wait(watch)? {
                Stop::Signal { signal: 5, .. } => {}
                Stop::Signal { signal, thread } => {
                    let thread = session.thread(thread)?;
                    return self.stopped(session, signal, thread, watch);
                }
                other => return Err(session.gone(&format!("{other:?}"))),
            }
        }
        let executed = executed.max(limit);
        self.end(session, thread, Reason::Instructions(executed))
            .map(Some)
    }

    /// Holds all threads; what was executed is told up to here.
    fn freeze(&mut self, session: &mut Session, thread: u32) -> Result<(Stopped, u64), Error> {
        let freeze = Command::Freeze {
            thread,
            wait_ms: FREEZE_MS,
        };
        tell(&session.plugin, &freeze)?;
        loop {
            match session.told.recv_timeout(REST) {
                Ok(Told::Handler {
                    signal,
                    address,
                    flags,
                }) => {
                    self.handlers.insert(signal, (address, flags));
                }
                Ok(Told::Limit | Told::Waits | Told::Settled) => {}
                Ok(Told::Mask(of)) => self.blocked.retain(|blocked| blocked.0 != of),
                Ok(Told::Stopped {
                    stopped,
                    instructions,
                }) => {
                    self.cores = stopped.cores.len();
                    return Ok((stopped, instructions));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::Failed(
                        "the emulator's plugin does not answer".to_owned(),
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(session.unread());
                }
            }
        }
    }

    fn end(&mut self, session: &mut Session, thread: u32, reason: Reason) -> Result<Ended, Error> {
        let (stopped, _) = self.freeze(session, thread)?;
        if !stopped.still {
            session.notes.push(
                "not all threads could be held: their registers may be of another moment"
                    .to_owned(),
            );
        }
        let addresses: Vec<u64> = self.traps.keys().copied().collect();
        for address in addresses {
            // Code that is not mapped any more needs no care.
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

fn not_there(text: &str) -> Error {
    Error::Usage(format!(
        "--until {text}: no memory is there when the program begins"
    ))
}

impl Session {
    /// Waits until the program stops.
    fn wait(&mut self, watch: &mut Watch<'_>) -> Result<Stop, Error> {
        let mut asked = false;
        loop {
            if let Some(stop) = self.remote.wait(GLANCE)? {
                return Ok(stop);
            }
            (watch.progress)(self.progress.load(Ordering::Relaxed));
            if watch.interrupted.load(Ordering::Relaxed) && !asked {
                asked = true;
                self.interrupt()?;
            }
        }
    }

    /// The program is stopped as by the user. A terminal may have done so already.
    fn interrupt(&self) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok();
        match pid.and_then(rustix::process::Pid::from_raw) {
            Some(pid) => Ok(rustix::process::kill_process(
                pid,
                rustix::process::Signal::INT,
            )?),
            None => Ok(()),
        }
    }

    fn gone(&self, how: &str) -> Error {
        Error::Failed(format!(
            "the program ended ({how}) before its registers and memory could be read: nothing is \
             written"
        ))
    }

    /// The stream has ended before the program.
    fn unread(&mut self) -> Error {
        let reader = self.reader.take().map(JoinHandle::join);
        match reader {
            Some(Ok(Err(error))) => error.into(),
            _ => self.gone("the emulator's plugin is gone"),
        }
    }

    /// The thread that stopped; selects it.
    fn thread(&mut self, told: Option<String>) -> Result<u32, Error> {
        let thread = match told {
            Some(thread) => thread,
            None => self
                .remote
                .threads()?
                .into_iter()
                .next()
                .unwrap_or_default(),
        };
        self.remote.select(&thread)?;
        u32::from_str_radix(&thread, 16)
            .map_err(|_| Error::Failed(format!("the emulator names a thread {thread:?}")))
    }

    /// Where the selected thread stands.
    fn here(&mut self) -> Result<Place, Error> {
        let pc = self.remote.value("pc")?;
        let cpsr = self.remote.value("cpsr")?.unwrap_or(0);
        Ok(Place {
            address: Address(pc.unwrap_or(0)),
            isa: isa(self.program.is_64bit, cpsr),
        })
    }

    /// What the system call that the thread stands at will do, and its first argument.
    fn call(&mut self, isa: Isa) -> Result<(Option<Call>, u64), Error> {
        let (number, first) = if isa == Isa::A64 {
            ("x8", "x0")
        } else {
            ("r7", "r0")
        };
        let number = self.remote.value(number)?;
        let first = self.remote.value(first)?.unwrap_or(0);
        Ok((number.and_then(|number| traps::call_of(isa, number)), first))
    }

    /// The address of the program's first instruction (getauxval(3), AT_ENTRY).
    fn entry(&mut self) -> Result<u64, Error> {
        const ENTRY: u64 = 9;
        let reply = self.remote.ask("qXfer:auxv:read::0,1000")?;
        let size = if self.program.is_64bit { 8 } else { 4 };
        let word = |bytes: &[u8]| {
            let fold = |value, byte: &u8| value << 8 | u64::from(*byte);
            bytes.iter().rev().fold(0, fold)
        };
        let vector = reply.get(1..).unwrap_or_default();
        let mut pairs = vector.chunks_exact(2 * size);
        let entry = pairs
            .find(|pair| word(&pair[..size]) == ENTRY)
            .map(|pair| word(&pair[size..]) & !u64::from(!self.program.is_64bit));
        match entry {
            Some(entry) => Ok(entry),
            None if self.program.fixed => Ok(self.program.entry & !1),
            None => Err(Error::Failed(
                "the emulator does not tell where the program was loaded".to_owned(),
            )),
        }
    }

    /// What is added to an address to find it in the emulator's memory: seen from where the
    /// program's file is mapped.
    fn find_base(&self, request: &Request) -> Result<u64, Error> {
        let path = &request.program;
        let path = path.canonicalize().map_err(|error| failed(path, error))?;
        let mappings = process::mappings(self.child.id())?;
        let base = mappings.iter().find_map(|mapping| {
            let file = mapping.file.as_ref().filter(|file| **file == path);
            let whole = file.and_then(|_| self.program.moved(mapping.offset, mapping.start))?;
            Some(whole.wrapping_sub(self.moved))
        });
        base.ok_or_else(|| failed(&path, "the emulator did not map it"))
    }

    /// The place that the user means.
    fn until(&self, text: &str) -> Result<Place, Error> {
        let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let address = match number {
            Some(address) => address,
            None => {
                let symbol = self.program.symbol(text).ok_or_else(|| {
                    Error::Usage(format!(
                        "--until {text}: expected an address or a function of the program: it has \
                         no symbol of this name"
                    ))
                })?;
                symbol.wrapping_add(self.moved)
            }
        };
        let isa = match self.program.isa((address & !1).wrapping_sub(self.moved)) {
            _ if self.program.is_64bit => Isa::A64,
            _ if address & 1 == 1 => Isa::T32,
            Some(isa) => isa,
            None => Isa::A32,
        };
        let address = Address(if self.program.is_64bit {
            address
        } else {
            address & !1
        });
        Ok(Place { address, isa })
    }
}
