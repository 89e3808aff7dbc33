//! Bare-metal images on machines of `qemu-system`: started, stopped, and their state read.
//!
//! All cores run on one thread of the host, so that what they did has an order. Exceptions come
//! from the emulator's log. A program that exits by semihosting takes the emulator with it, so
//! that breakpoints stand at its semihosting calls.

mod image;
pub mod join;
pub mod log;
mod memory;
pub mod numbers;
mod run;

use super::blocks::Sets;
use super::layout::{Core, Layout};
use super::plugin::Plugin;
use super::protocol::{Protocol, TraceOptions};
use super::remote::{Endpoint, Remote};
use super::store::Store;
use super::tracing::{self, Exceptions, Recording, Settings, Told};
use super::user::{Error, Recorded, Watch};
use super::{state, stream, witness};
use crate::arch::Architecture;
use crate::element::Context;
use crate::encode::Place;
use crate::quantity::{Address, ExceptionLevel, Isa, Security};
use crate::snapshot::map;
use crate::snapshot::model::{Device, Register};
use crate::{decode, etmv4};
use image::Image;
use numbers::Numbers;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// What decides how a system's exceptions are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// Their numbers.
    pub numbers: Numbers,
    /// The cores, as far as an ETMv4 knows them.
    pub core: etmv4::Core,
}

/// A recording to be made.
#[derive(Debug)]
pub struct Request {
    /// The image, an ELF file.
    pub image: PathBuf,
    /// QEMU's machine (`-M`).
    pub machine: String,
    /// Its cores (`-cpu`), if not those that it has by itself.
    pub cpu: Option<String>,
    /// How many (`-smp`).
    pub cores: Option<u32>,
    /// Memory (`-m`).
    pub ram: Option<String>,
    /// Further arguments of the emulator.
    pub arguments: Vec<String>,
    /// What is traced.
    pub trace: TraceOptions,
    /// Stop at this function or address.
    pub until: Option<String>,
    /// Stop after so many instructions.
    pub instructions: Option<u64>,
    /// Where the witness goes.
    pub witness: Option<File>,
}

/// How long the emulator may take to start.
const START: Duration = Duration::from_secs(60);

/// A machine in the emulator.
struct Session {
    child: Child,
    remote: Remote,
    plugin: UnixStream,
    told: Receiver<Told>,
    reader: Option<JoinHandle<io::Result<Box<dyn Recording>>>>,
    progress: Arc<AtomicU64>,
    directory: TempDir,
    architecture: Architecture,
    /// The type of the cores (`Cortex-A57`).
    kind: String,
    core: etmv4::Core,
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

/// Records an image.
pub fn record(mut request: Request, watch: &mut Watch<'_>) -> Result<Recorded, Error> {
    let image = Image::read(&request.image)?;
    let mut session = start(&mut request, &image)?;
    let ended = run::to_the_end(&mut session, &request, &image, watch)?;
    finish(session, &request, image, ended)
}

fn command(request: &Request, image: &Image, gdb: &std::path::Path) -> Command {
    let mut command = Command::new(image.emulator());
    command.arg("-M").arg(&request.machine);
    // The cores of `virt` are 32-bit ones unless others are named.
    let default = (image.is_64bit() && request.machine == "virt").then(|| "cortex-a57".to_owned());
    if let Some(cpu) = request.cpu.clone().or(default) {
        command.arg("-cpu").arg(cpu);
    }
    if let Some(cores) = request.cores {
        command.arg("-smp").arg(cores.to_string());
    }
    if let Some(ram) = &request.ram {
        command.arg("-m").arg(ram);
    }
    let given = |option: &str| request.arguments.iter().any(|argument| argument == option);
    if !given("-serial") {
        command.args(["-serial", "stdio"]);
    }
    if !given("-monitor") {
        command.args(["-monitor", "none"]);
    }
    if !given("-icount") {
        // Time passes with the instructions that are executed, so that a run can be repeated, and
        // timers do not go faster than a program that is watched.
        command.args(["-icount", "shift=4"]);
    }
    let mut endpoint = std::ffi::OsString::from("unix:");
    endpoint.push(gdb);
    endpoint.push(",server=on,wait=off");
    command.args(["-display", "none", "-no-shutdown", "-no-reboot", "-S"]);
    command.args(["-semihosting-config", "enable=on,target=native"]);
    command.args(["-accel", "tcg,thread=single", "-d", "int,mmu"]);
    command.arg("-gdb").arg(endpoint);
    command.arg("-kernel").arg(&request.image);
    command.args(&request.arguments);
    command.stdin(Stdio::null());
    // The user's Ctrl-C ends the recording, not the emulator.
    command.process_group(0);
    command
}

fn start(request: &mut Request, image: &Image) -> Result<Session, Error> {
    let directory = tempfile::Builder::new().prefix("armsnap-").tempdir()?;
    let plugin = Plugin::new(directory.path())?;
    let gdb = directory.path().join("gdb.socket");
    let log = directory.path().join("log");
    let mut command = command(request, image, &gdb);
    let [option, mut value] = plugin.arguments(request.instructions);
    value.push(",log=");
    value.push(&log);
    command.arg(option).arg(value).arg("-D").arg(&log);
    let emulator = image.emulator();
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Failed(format!(
            "{emulator} is not installed: install the package qemu-system-arm (apt install \
             qemu-system-arm)"
        )),
        _ => Error::Failed(format!("{emulator} cannot be started: {error}")),
    })?;
    let connected = plugin.connect(&mut child, START);
    let connected = connected.map_err(Error::from).and_then(|plugin| {
        let remote = Remote::connect(&Endpoint::Unix(gdb), START)?;
        Ok((plugin, remote))
    });
    let (plugin, mut remote) = connected.inspect_err(|_| {
        // It is of no use any more.
        let _ = child.kill();
        let _ = child.wait();
    })?;
    let architecture = remote.target().architecture;
    let (tell, told) = mpsc::channel();
    let progress = Arc::new(AtomicU64::new(0));
    let kind = kind(
        &remote.monitor("info qom-tree").unwrap_or_default(),
        architecture,
    );
    let mut session = Session {
        core: decode::Core::of(&Device {
            kind: kind.clone(),
            ..Device::default()
        })
        .into(),
        kind,
        architecture,
        child,
        remote,
        plugin,
        told,
        reader: None,
        progress: Arc::clone(&progress),
        directory,
        notes: Vec::new(),
    };
    fits(request.trace.protocol, &session)?;
    let settings = settings(&mut session, request.trace)?;
    let buffer = session.directory.path().join("trace.bin");
    let store = Store::create(&buffer, request.trace.last)?;
    let witness = request
        .witness
        .take()
        .map(|file| witness::Writer::new(Box::new(BufWriter::new(file))));
    let mut recording = tracing::recording(settings, store, witness, tell, progress);
    let input = session.plugin.try_clone()?;
    session.reader = Some(std::thread::spawn(move || {
        stream::read(input, &mut *recording).map(|()| recording)
    }));
    Ok(session)
}

/// Whether there is such a trace unit for such cores.
fn fits(protocol: Protocol, session: &Session) -> Result<(), Error> {
    let name = protocol.name();
    let reason = match (protocol, session.architecture) {
        (Protocol::Ptm | Protocol::Etmv3, Architecture::AArch64) => "it traces AArch32: use etmv4",
        (Protocol::Ptm, Architecture::MProfile) => "there is none for Cortex-M: use etmv3 or etmv4",
        _ => return Ok(()),
    };
    Err(Error::Usage(format!(
        "--protocol {name}: the machine's cores are {}, and {reason}",
        session.kind
    )))
}

/// The type of the first core in QEMU's tree of objects: `cortex-a57-arm-cpu`.
fn kind(tree: &str, architecture: Architecture) -> String {
    let names = tree.lines().filter_map(|line| {
        let (_, name) = line
            .trim_end()
            .strip_suffix("-arm-cpu)")?
            .rsplit_once('(')?;
        Some(name)
    });
    let mut known = names.filter(|name| {
        let product = ["cortex-", "neoverse-"];
        product.iter().any(|prefix| name.starts_with(prefix))
    });
    match known.next() {
        Some(name) => name
            .split('-')
            .map(|part| {
                let (first, rest) = part.split_at(part.len().min(1));
                first.to_ascii_uppercase() + rest
            })
            .collect::<Vec<_>>()
            .join("-"),
        None => match architecture {
            Architecture::AArch64 => "ARM-AA64",
            Architecture::AArch32 => "ARM-AA32",
            Architecture::MProfile => "ARMv7-M",
        }
        .to_owned(),
    }
}

fn settings(session: &mut Session, trace: TraceOptions) -> Result<Settings, Error> {
    let (sets, isa) = match session.architecture {
        Architecture::AArch64 => (Sets::A64, Isa::A64),
        Architecture::AArch32 => (Sets::A32AndT32, Isa::A32),
        Architecture::MProfile => (Sets::T32, Isa::T32),
    };
    let level = match (session.architecture, session.remote.value("cpsr")?) {
        (Architecture::AArch64, Some(cpsr)) => Some(ExceptionLevel((cpsr >> 2) as u8 & 3)),
        (Architecture::AArch32, Some(cpsr)) => Some(ExceptionLevel(match cpsr & 0x1f {
            0x10 => 0,
            0x1a => 2,
            0x16 => 3,
            _ => 1,
        })),
        _ => None,
    };
    // Only a machine with EL3 is secure when it starts, and a Cortex-M of Armv8-M.
    let secure = level == Some(ExceptionLevel(3))
        || session.architecture == Architecture::MProfile && session.core.architecture >= 8;
    Ok(Settings {
        sets,
        context: Context {
            isa,
            el: level,
            security: Some(if secure {
                Security::Secure
            } else {
                Security::NonSecure
            }),
            is_64bit: Some(isa == Isa::A64),
            ..Context::default()
        },
        exceptions: Exceptions::System(System {
            numbers: Numbers {
                protocol: trace.protocol,
                microcontroller: session.architecture == Architecture::MProfile,
            },
            core: session.core,
        }),
        trace,
    })
}

/// Where a core stands.
fn place(registers: &[Register], architecture: Architecture) -> Option<Place> {
    let value = |name: &str| {
        let register = registers.iter().find(|register| register.name == name)?;
        register.value.as_u64()
    };
    let isa = match architecture {
        Architecture::AArch64 => Isa::A64,
        Architecture::MProfile => Isa::T32,
        // CPSR.T
        Architecture::AArch32 if value("CPSR")? >> 5 & 1 == 1 => Isa::T32,
        Architecture::AArch32 => Isa::A32,
    };
    Some(Place {
        address: Address(value("PC")?),
        isa,
    })
}

/// Reads the state, and puts everything together.
fn finish(
    mut session: Session,
    request: &Request,
    image: Image,
    ended: run::Ended,
) -> Result<Recorded, Error> {
    let mut layout = Layout {
        description: format!(
            "{} on QEMU's {}, recorded by armsnap {}",
            request.image.display(),
            request.machine,
            env!("CARGO_PKG_VERSION")
        ),
        ..Layout::default()
    };
    let mut next = BTreeMap::new();
    let (mut at, mut stacks) = (None, Vec::new());
    for (index, thread) in session.remote.threads()?.into_iter().enumerate() {
        session.remote.select(&thread)?;
        let registers = state::registers(&mut session.remote)?;
        let number = ended.cores.iter().find(|core| core.index as usize == index);
        let number = number.map(|core| core.core);
        let place = place(&registers, session.architecture);
        if let (Some(number), Some(place)) = (number, place) {
            next.insert(number, place);
        }
        if thread == ended.thread {
            at = place;
        }
        let stack = registers.iter().find(|register| register.name == "SP");
        stacks.extend(stack.and_then(|stack| stack.value.as_u64()));
        layout.cores.push(Core {
            name: format!("{}_{index}", session.kind),
            kind: session.kind.clone(),
            registers,
            number,
        });
    }
    let at = at.ok_or_else(|| {
        Error::Failed("the emulator does not tell where the program stands".to_owned())
    })?;
    session.remote.select(&ended.thread)?;
    layout.memory = memory::read(&mut session, &image, &stacks)?;
    run::learn(&mut session, &image, &ended)?;
    // Nothing more is asked of it.
    let _ = session.child.kill();
    let _ = session.child.wait();
    let reader = session.reader.take();
    let recording = reader
        .map(JoinHandle::join)
        .ok_or_else(|| Error::Failed("the recording was read twice".to_owned()))?
        .map_err(|_| Error::Failed("the recording could not be read".to_owned()))??;
    let summary = recording.finish(&next)?;
    layout.trace = Some(map::map(&session.directory.path().join("trace.bin"))?);
    let name = request.image.file_name().unwrap_or_default();
    layout.program = Some((name.to_string_lossy().into_owned(), image.bytes, 0));
    let files = layout.files(&request.trace, session.core, &summary)?;
    let mut notes = std::mem::take(&mut session.notes);
    if summary.changed > 0 {
        notes.push(format!(
            "code changed {} times while the program ran: decoded with the code that is there at \
             the end, the trace of what was there before is wrong",
            summary.changed
        ));
    }
    // The directory outlives the session.
    let directory = std::mem::replace(
        &mut session.directory,
        tempfile::Builder::new().prefix("armsnap-").tempdir()?,
    );
    Ok(Recorded {
        files,
        reason: ended.reason,
        at,
        summary,
        notes,
        _directory: directory,
    })
}
