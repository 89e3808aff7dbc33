//! Linux programs under qemu-user: started, stopped, and their state read.
//!
//! The emulator's GDB server tells of each signal before it is delivered. At the exit the process
//! is gone before anybody could ask, so that traps stand at the calls that may end it.

mod memory;
mod run;
mod session;
mod steps;
mod stop;
mod traps;

use super::blocks::Sets;
use super::layout::{Core, Layout};
use super::plugin::{self, Plugin};
use super::process;
use super::protocol::{Protocol, TraceOptions};
use super::remote::{self, Endpoint, Remote};
use super::sites::Program;
use super::store::Store;
use super::stream;
use super::tracing::{self, Exceptions, Recording, Settings, Summary, Told};
use super::{state, witness};
use crate::element::Context;
use crate::encode::Place;
use crate::quantity::{ExceptionLevel, Isa, Security};
use crate::snapshot::map::{self, Mapped};
use crate::snapshot::write::WriteError;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

pub use stop::Reason;

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// The program, or the emulator, is at fault.
    #[error("{0}")]
    Failed(String),
    /// The emulator's plugin.
    #[error(transparent)]
    Plugin(#[from] plugin::Error),
    /// The emulator's GDB server.
    #[error(transparent)]
    Remote(#[from] remote::Error),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Files and sockets.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A recording to be made.
#[derive(Debug)]
pub struct Request {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where the dynamic linker and libraries are; found by itself if not given.
    pub sysroot: Option<PathBuf>,
    /// What is traced.
    pub trace: TraceOptions,
    /// Stop at this function or address.
    pub until: Option<String>,
    /// Stop after so many instructions.
    pub instructions: Option<u64>,
    /// Where the witness goes.
    pub witness: Option<File>,
    /// Where registers and stores of each instruction go; it makes the program slow.
    pub registers: Option<File>,
    /// The most bytes of memory that are kept.
    pub memory: u64,
}

/// What is told while the program runs.
pub struct Watch<'a> {
    /// Called now and then with the number of instructions executed.
    pub progress: &'a mut dyn FnMut(u64),
    /// Set when the recording should end where it is.
    pub interrupted: &'a AtomicBool,
}

/// A recording that was made.
#[derive(Debug)]
pub struct Recorded {
    /// The snapshot's files, by path.
    pub files: BTreeMap<String, Mapped>,
    /// Why it ended.
    pub reason: Reason,
    /// Where the core stands that ended it.
    pub at: Place,
    /// What was recorded.
    pub summary: Summary,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Holds what `files` are mapped from.
    pub(super) _directory: TempDir,
}

/// How long the emulator may take to start.
const START: Duration = Duration::from_secs(60);

/// A program in the emulator.
struct Session {
    child: Child,
    remote: Remote,
    plugin: UnixStream,
    told: Receiver<Told>,
    reader: Option<JoinHandle<io::Result<Box<dyn Recording>>>>,
    progress: Arc<AtomicU64>,
    /// Writes to it go past the protection of pages.
    memory: Option<process::Memory>,
    program: Program,
    /// How far the program was moved.
    moved: u64,
    /// What is added to an address to find it in the emulator's memory.
    base: u64,
    directory: TempDir,
    notes: Vec<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            // What it read does not matter any more.
            drop(reader.join());
        }
    }
}

/// Records a program.
pub fn record(mut request: Request, watch: &mut Watch<'_>) -> Result<Recorded, Error> {
    let (mut session, program) = start(&mut request)?;
    let mut run = run::Run::new(&mut session, &mut request)?;
    let stopped = run.complete(&mut session, watch)?;
    run.finish()?;
    finish(session, &request, program, &stopped)
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("{}: {error}", path.display()))
}

fn start(request: &mut Request) -> Result<(Session, Mapped), Error> {
    let path = &request.program;
    let bytes = map::map(path).map_err(|error| failed(path, error))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(failed(path, "expected an ELF file"));
    }
    let program = Program::read(&bytes).map_err(|error| failed(path, error))?;
    let legacy = request.trace.protocol != Protocol::Etmv4;
    if program.is_64bit && legacy {
        return Err(Error::Usage(format!(
            "--protocol {}: it traces AArch32, and {} is for AArch64: use etmv4",
            request.trace.protocol.name(),
            path.display()
        )));
    }
    let directory = tempfile::Builder::new().prefix("armsnap-").tempdir()?;
    let plugin = Plugin::new(directory.path())?;
    let gdb = directory.path().join("gdb.socket");
    let emulator = if program.is_64bit {
        "qemu-aarch64"
    } else {
        "qemu-arm"
    };
    let mut command = Command::new(emulator);
    command.arg("-g").arg(&gdb);
    // A few steps remain, so that the end is met exactly.
    let limit = request
        .instructions
        .map(|n| n.saturating_sub(run::STEPS).max(1));
    let [option, mut value] = plugin.arguments(limit.filter(|_| request.registers.is_none()));
    if request.registers.is_some() {
        value.push(",stores=on");
    }
    command.arg(option).arg(value);
    if let Some(sysroot) = sysroot(request, &program)? {
        command.arg("-L").arg(sysroot);
    }
    if path.components().count() == 1 {
        command.arg(Path::new(".").join(path));
    } else {
        command.arg(path);
    }
    command.args(&request.arguments);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Failed(format!(
            "{emulator} is not installed: install the package qemu-user (apt install qemu-user)"
        )),
        _ => Error::Failed(format!("{emulator} cannot be started: {error}")),
    })?;
    let connected = plugin.connect(&mut child, START);
    let connected = connected.map_err(Error::from).and_then(|plugin| {
        let remote = Remote::connect(&Endpoint::Unix(gdb), START)?;
        Ok((plugin, remote))
    });
    let (plugin, remote) = connected.inspect_err(|_| {
        // It is of no use any more.
        let _ = child.kill();
        let _ = child.wait();
    })?;
    let (tell, told) = mpsc::channel();
    let progress = Arc::new(AtomicU64::new(0));
    let mut session = Session {
        memory: process::Memory::open(child.id()).ok(),
        child,
        remote,
        plugin,
        told,
        reader: None,
        progress: Arc::clone(&progress),
        program,
        moved: 0,
        base: 0,
        directory,
        notes: Vec::new(),
    };
    let settings = settings(&session.program, request.trace);
    let store = Store::create(
        &session.directory.path().join("trace.bin"),
        request.trace.last,
    )?;
    let witness = request
        .witness
        .take()
        .map(|file| witness::Writer::new(Box::new(BufWriter::new(file))));
    let mut recording = tracing::recording(settings, store, witness, tell, progress);
    let input = session.plugin.try_clone()?;
    session.reader = Some(std::thread::spawn(move || {
        stream::read(input, &mut *recording).map(|()| recording)
    }));
    Ok((session, bytes))
}

fn settings(program: &Program, trace: TraceOptions) -> Settings {
    let (sets, isa) = if program.is_64bit {
        (Sets::A64, Isa::A64)
    } else {
        (Sets::A32AndT32, Isa::A32)
    };
    Settings {
        sets,
        context: Context {
            isa,
            el: Some(ExceptionLevel(0)),
            security: Some(Security::NonSecure),
            is_64bit: Some(program.is_64bit),
            ..Context::default()
        },
        exceptions: Exceptions::Signals,
        trace,
    }
}

/// Where the libraries of a program are that wants a dynamic linker.
fn sysroot(request: &Request, program: &Program) -> Result<Option<PathBuf>, Error> {
    if request.sysroot.is_some() {
        return Ok(request.sysroot.clone());
    }
    let Some(interpreter) = &program.interpreter else {
        return Ok(None);
    };
    let relative = interpreter.trim_start_matches('/');
    let (root, package) = if program.is_64bit {
        ("/usr/aarch64-linux-gnu", "libc6-arm64-cross")
    } else if interpreter.contains("armhf") {
        ("/usr/arm-linux-gnueabihf", "libc6-armhf-cross")
    } else {
        ("/usr/arm-linux-gnueabi", "libc6-armel-cross")
    };
    let root = Path::new(root);
    if root.join(relative).exists() {
        return Ok(Some(root.to_owned()));
    }
    // The dynamic linker of a foreign architecture of this system.
    if Path::new(interpreter).exists() {
        return Ok(None);
    }
    Err(Error::Failed(format!(
        "{}: needs {interpreter}: install the package {package} (apt install {package}), or name \
         the directory that has it with --sysroot",
        request.program.display()
    )))
}

/// Reads the state, and puts everything together.
fn finish(
    mut session: Session,
    request: &Request,
    program: Mapped,
    stopped: &stop::Ended,
) -> Result<Recorded, Error> {
    let architecture = if session.program.is_64bit {
        "AArch64"
    } else {
        "AArch32"
    };
    let kind = match (session.program.is_64bit, request.trace.protocol) {
        // One with pointer authentication: other decoders know its branches by the core's type.
        (true, _) => "Cortex-A76",
        (false, Protocol::Etmv4) => "Cortex-A32",
        (false, Protocol::Ptm) => "Cortex-A15",
        (false, Protocol::Etmv3) => "Cortex-A7",
    };
    let mut layout = Layout {
        description: format!(
            "{} in {architecture} state under QEMU, recorded by armsnap {}",
            request.program.display(),
            env!("CARGO_PKG_VERSION")
        ),
        ..Layout::default()
    };
    let mut next = BTreeMap::new();
    let mut at = None;
    for thread in session.remote.threads()? {
        let Ok(id) = u32::from_str_radix(&thread, 16) else {
            continue;
        };
        session.remote.select(&thread)?;
        let mut registers = state::registers(&mut session.remote)?;
        let core = stopped.cores.iter().find(|core| core.thread == id);
        if let Some(pc) = core.and_then(stop::frozen_pc) {
            // The emulator brings it up to date at jumps only.
            stop::set_pc(&mut registers, pc);
        }
        let place = stop::place(&registers, session.program.is_64bit);
        if let (Some(core), Some(place)) = (core, place) {
            next.insert(core.core, place);
        }
        let core = Core {
            name: format!("thread_{id}"),
            kind: kind.to_owned(),
            registers,
            number: core.map(|core| core.core),
        };
        if id == stopped.thread {
            at = place;
            layout.cores.insert(0, core);
        } else {
            layout.cores.push(core);
        }
    }
    for (index, core) in layout.cores.iter_mut().enumerate() {
        core.name = format!("cpu_{index}");
    }
    let at = at.ok_or_else(|| {
        Error::Failed("the emulator does not tell where the program stands".to_owned())
    })?;
    layout.memory = memory::read(&mut session, request.memory)?;
    // Nothing more is asked of it.
    let _ = session.child.kill();
    let _ = session.child.wait();
    let reader = session.reader.take();
    let recording = reader
        .map(JoinHandle::join)
        .ok_or_else(|| Error::Failed("the recording was read twice".to_owned()))?
        .map_err(|_| Error::Failed("the recording could not be read".to_owned()))??;
    let summary = recording.finish(&next)?;
    for (core, last) in &summary.ended {
        // Those beyond the trace IDs have nothing to show.
        if summary.cores.iter().any(|traced| traced.0 == *core) {
            layout.cores.push(Core {
                name: format!("cpu_{}", layout.cores.len()),
                kind: kind.to_owned(),
                registers: vec![stop::pc_alone(*last)],
                number: Some(*core),
            });
        }
    }
    layout.trace = Some(map::map(&session.directory.path().join("trace.bin"))?);
    let name = request.program.file_name().unwrap_or_default();
    layout.program = Some((name.to_string_lossy().into_owned(), program, session.moved));
    let etm = tracing::core_of(if session.program.is_64bit {
        Sets::A64
    } else {
        Sets::A32AndT32
    });
    let files = layout.files(&request.trace, etm, &summary)?;
    let mut notes = std::mem::take(&mut session.notes);
    notes.extend(summary_notes(&summary, &layout));
    // The directory outlives the session.
    let directory = std::mem::replace(
        &mut session.directory,
        tempfile::Builder::new().prefix("armsnap-").tempdir()?,
    );
    Ok(Recorded {
        files,
        reason: stopped.reason.clone(),
        at,
        summary,
        notes,
        _directory: directory,
    })
}

fn summary_notes(summary: &Summary, layout: &Layout) -> Vec<String> {
    let mut notes = Vec::new();
    let kept = |number: u32| layout.cores.iter().any(|core| core.number == Some(number));
    let ended = summary.ended.iter().filter(|core| kept(core.0)).count();
    if ended > 0 {
        notes.push(format!(
            "{ended} threads ended before: of their registers only PC is known, at their last \
             instruction"
        ));
    }
    if summary.untraced > 0 {
        notes.push(format!(
            "{} threads were not traced: there is no trace ID for more than {}",
            summary.untraced,
            super::protocol::MOST_CORES
        ));
    }
    if summary.changed > 0 {
        notes.push(format!(
            "code changed {} times while the program ran: decoded with the code that is there at \
             the end, the trace of what was there before is wrong",
            summary.changed
        ));
    }
    notes
}
