//! Recording of Linux programs under qemu-user.
//!
//! The emulator's GDB server stops before each signal is delivered. When the program exits, the
//! process would disappear before its state could be read, so the plugin holds it at that system
//! call.

mod checkpoints;
mod memory;
mod run;
mod session;
mod steps;
mod traps;

use super::blocks::Sets;
use super::constants::ZeroBlock;
use super::emulator::{Emulator, Ending, Error, Halted, Launch, Options, Recorded, Watch};
use super::guest_program::Program;
use super::note::Note;
use super::process;
use super::protocol::{Protocol, TraceOptions};
use super::replay_file::{CallFile, SharedCalls, Start};
use super::settings::{self, Exceptions, Settings};
use super::snapshot_files::{Contents, read_only};
use super::stop::Reason;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{ExceptionLevel, Isa, Security};
use armsnap_history::recover::{KernelBuffer, kernel_buffers};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_snapshot::snapshot::model::{Register, RegisterValue};
use armsnap_snapshot::snapshot::recording::Recording;
use armsnap_trace::element::Context;
use armsnap_trace::encode::CodeAddress;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A request to record a program.
#[derive(Debug)]
pub struct Request {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The type of the processor, as in QEMU. If `None`, AArch64 programs run on one without SVE.
    pub cpu: Option<String>,
    /// The directory of the dynamic linker and libraries; if `None`, it is searched for.
    pub sysroot: Option<PathBuf>,
    /// What to record.
    pub options: Options,
    /// The file for the register log; stepping makes the program slow.
    pub registers: Option<File>,
}

/// Linux's number of the signal.
const SIGILL: u32 = 4;

/// The processor of AArch64 programs. QEMU's own choice has SVE, with which C libraries copy memory: its
/// accesses are not reported, and no past values are known across its instructions.
const NO_SVE: &str = "max,sve=off";

/// A program running in the emulator.
struct Session {
    emulator: Emulator,
    /// The emulator's memory; writes ignore page protection.
    memory: Option<process::Memory>,
    program: Program,
    /// The program's load bias.
    moved: u64,
    /// The offset from guest addresses to addresses of the emulator.
    base: u64,
    /// The state before the first instruction.
    start: Start,
    /// The file of system calls, if the program can be replayed.
    calls: Option<SharedCalls>,
}

/// Records a program until it stops, and returns the snapshot.
///
/// # Errors
///
/// If the program or a requested location cannot be used, or the emulator fails.
pub fn record(mut request: Request, watch: &mut Watch<'_>) -> Result<Recorded, Error> {
    let (mut session, program) = start(&mut request)?;
    let mut run = run::RunningProgram::new(&mut session, &mut request)?;
    let ended = run.complete(&mut session, watch);
    run.finish()?;
    let lost = match ended.and_then(|ended| state(&mut session, &request, &program, ended)) {
        Ok(state) => return finish(session, &request, state),
        Err(error) if error.is_loss() => error,
        Err(error) => return Err(error),
    };
    salvage(session, &request, &program, lost)
}

/// Assembles a snapshot of what was traced before the emulator failed.
fn salvage(
    mut session: Session,
    request: &Request,
    bytes: &Mapped,
    lost: Error,
) -> Result<Recorded, Error> {
    let lost = session.emulator.cause(lost);
    let reason = lost.to_string();
    session.emulator.notes.push(Note::Lost { reason });
    let libraries = libraries(&session, request).unwrap_or_default();
    let contents = Contents {
        memory: read_only(bytes, session.moved),
        names_only: true,
        ..contents(&session, request, bytes, libraries)
    };
    let state = State {
        reason: Reason::Lost,
        at: None,
        cores: Vec::new(),
        contents,
    };
    finish(session, request, state).map_err(|_| lost)
}

fn start(request: &mut Request) -> Result<(Session, Mapped), Error> {
    let path = &request.program;
    let (program, bytes) = Program::open(path).map_err(|error| Error::of_file(path, error))?;
    // Otherwise the emulator would end without a message.
    let mode = path
        .metadata()
        .map_or(0o111, |found| found.permissions().mode());
    if mode & 0o111 == 0 {
        let reason = "it is not executable: chmod +x makes it so";
        return Err(Error::of_file(path, reason));
    }
    let options = &mut request.options;
    if program.is_64bit && options.trace.protocol != Protocol::Etmv4 {
        return Err(Error::Usage(format!(
            "--protocol {}: it traces AArch32 only, and {} is for AArch64: use etmv4",
            options.trace.protocol.name(),
            path.display()
        )));
    }
    let launch = Launch::new()?;
    let mut command = Command::new(if program.is_64bit {
        "qemu-aarch64"
    } else {
        "qemu-arm"
    });
    command.arg("-g").arg(launch.gdb());
    if let Some(cpu) = processor(request.cpu.as_deref(), &program) {
        command.args(["-cpu", cpu]);
    }
    let mut plugin = match (options.instructions, &request.registers) {
        (_, Some(_)) => vec![("stores", "on".into())],
        // The last instructions are single-stepped, to stop exactly at the limit.
        (Some(count), None) if count > run::STEPS => {
            vec![("limit", (count - run::STEPS).to_string().into())]
        }
        (_, None) => Vec::new(),
    };
    // Without the start of the trace, the program cannot be replayed.
    let replays = options.trace.last.is_none();
    if replays {
        plugin.push(("inputs", rules(&program).into()));
        if request.registers.is_none() && options.trace.sync > 0 {
            let events = checkpoints::EVENTS.to_string();
            plugin.push(("checkpoints", events.into()));
        }
    }
    if options.data_addresses {
        plugin.push(("accesses", "on".into()));
    }
    command.args(launch.plugin(&plugin));
    launch.preload(&mut command);
    if let Some(sysroot) = sysroot(request.sysroot.as_deref(), path, &program)? {
        command.arg("-L").arg(sysroot);
    }
    if path.components().count() == 1 {
        command.arg(Path::new(".").join(path));
    } else {
        command.arg(path);
    }
    command.args(&request.arguments);
    let name = command.get_program().to_owned();
    let mut emulator = launch.start(command, "qemu-user")?;
    let addresses = emulator.address_directory(options);
    let mut settings = settings(&program, options.trace, addresses);
    let calls = || Arc::new(Mutex::new(CallFile::new(emulator.directory.path())));
    let calls = replays.then(calls);
    settings.calls = calls.clone();
    emulator.record(settings, options.witness.take())?;
    let cpu = processor(request.cpu.as_deref(), &program);
    let asked = replays && program.is_64bit;
    let zero_block = asked.then(|| ZeroBlock::ask(&name, cpu, emulator.directory.path()));
    let zero_block = zero_block.and_then(Result::ok).and_then(ZeroBlock::value);
    let session = Session {
        memory: process::Memory::open(emulator.pid()).ok(),
        emulator,
        program,
        moved: 0,
        base: 0,
        start: Start {
            registers: zero_block.map(constant).into_iter().collect(),
            ..Start::default()
        },
        calls,
    };
    Ok((session, bytes))
}

/// Returns the processor to specify to the emulator; without one, it uses $QEMU_CPU or its own
/// choice.
fn processor<'r>(named: Option<&'r str>, program: &Program) -> Option<&'r str> {
    let chosen = program.is_64bit && std::env::var_os("QEMU_CPU").is_none();
    named.or(chosen.then_some(NO_SVE))
}

/// The register DCZID_EL0.
fn constant(value: u64) -> Register {
    Register {
        name: "DCZID_EL0".to_owned(),
        size: Some(64),
        value: RegisterValue(value.to_le_bytes().into()),
        ..Register::default()
    }
}

/// Returns the plugin's rules on what system calls write.
fn rules(program: &Program) -> String {
    let architecture = match program.is_64bit {
        true => Architecture::AArch64,
        false => Architecture::AArch32,
    };
    let rule = |buffer: KernelBuffer| {
        let size = buffer.size.code();
        format!("{:03x}{:x}{size:04x}", buffer.number, buffer.argument)
    };
    kernel_buffers(architecture).map(rule).collect()
}

fn settings(program: &Program, trace: TraceOptions, data_addresses: Option<PathBuf>) -> Settings {
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
        carrier: Carrier::ContextId,
        late: false,
        data_addresses,
        calls: None,
    }
}

/// Returns the sysroot of a program with a dynamic linker.
fn sysroot(given: Option<&Path>, path: &Path, program: &Program) -> Result<Option<PathBuf>, Error> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
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
    // The foreign architecture's dynamic linker is installed on this system.
    if Path::new(interpreter).exists() {
        return Ok(None);
    }
    Err(Error::Failed(format!(
        "{}: needs {interpreter}: install the package {package} (apt install {package}), or name \
         the directory that has it with --sysroot",
        path.display()
    )))
}

/// Returns the type of the recorded cores.
const fn kind(is_64bit: bool, protocol: Protocol) -> &'static str {
    match (is_64bit, protocol) {
        // A core with pointer authentication: other decoders infer from the type which branches it
        // has.
        (true, _) => "Cortex-A76",
        (false, Protocol::Etmv4) => "Cortex-A32",
        (false, Protocol::Ptm) => "Cortex-A15",
        (false, Protocol::Etmv3) => "Cortex-A7",
    }
}

/// The state of a program at the end of the recording.
struct State {
    reason: Reason,
    at: Option<CodeAddress>,
    cores: Vec<Halted>,
    contents: Contents,
}

/// Reads the final state.
fn state(
    session: &mut Session,
    request: &Request,
    bytes: &Mapped,
    ended: run::Ended,
) -> Result<State, Error> {
    let kind = kind(session.program.is_64bit, request.options.trace.protocol);
    let number = |thread: &str| u32::from_str_radix(thread, 16).ok();
    let mut cores = session.emulator.halted(kind, |_, thread| {
        let number = number(thread)?;
        ended.cores.iter().find(|core| core.thread == number)
    })?;
    // The core that ended the recording comes first.
    let first = cores
        .iter()
        .position(|core| number(&core.thread) == Some(ended.thread));
    if let Some(first) = first {
        cores[..=first].rotate_right(1);
    }
    let libraries = libraries(session, request)?;
    let memory = memory::read(session, request.options.memory, memory::Moment::End)?;
    let contents = Contents {
        memory,
        ..contents(session, request, bytes, libraries)
    };
    if matches!(ended.reason, Reason::Signal(SIGILL))
        && processor(request.cpu.as_deref(), &session.program) == Some(NO_SVE)
    {
        session.emulator.notes.push(Note::NoSve);
    }
    Ok(State {
        reason: ended.reason,
        at: first.and_then(|_| cores[0].place),
        cores,
        contents,
    })
}

/// Returns the libraries that the program has loaded: name and contents.
fn libraries(session: &Session, request: &Request) -> Result<Vec<(String, Mapped)>, Error> {
    let own = request.program.canonicalize()?;
    let libraries = session.images()?.into_iter();
    let libraries = libraries.filter(|image| image.path != own).map(|image| {
        let name = image.path.file_name().unwrap_or_default();
        let name = image
            .program
            .soname
            .unwrap_or_else(|| name.to_string_lossy().into_owned());
        (name, image.bytes)
    });
    Ok(libraries.collect())
}

/// Returns the contents of the snapshot, without memory.
fn contents(
    session: &Session,
    request: &Request,
    bytes: &Mapped,
    libraries: Vec<(String, Mapped)>,
) -> Contents {
    let name = request.program.file_name().unwrap_or_default();
    let state = match session.program.is_64bit {
        true => "AArch64",
        false => "AArch32",
    };
    Contents {
        description: format!(
            "{} in {state} state under QEMU, recorded by armsnap {}",
            request.program.display(),
            env!("CARGO_PKG_VERSION")
        ),
        libraries,
        program: Some((
            name.to_string_lossy().into_owned(),
            bytes.clone(),
            session.moved,
        )),
        recording: Recording {
            linux_program: true,
            ..Recording::default()
        },
        ..Contents::default()
    }
}

/// Assembles the snapshot.
fn finish(session: Session, request: &Request, state: State) -> Result<Recorded, Error> {
    let (is_64bit, trace) = (session.program.is_64bit, request.options.trace);
    session.emulator.finish(Ending {
        reason: state.reason,
        at: state.at,
        stopped: None,
        cores: state.cores,
        kind: kind(is_64bit, trace.protocol),
        name: "cpu",
        unit: "threads",
        trace,
        etm: settings::core_of(match is_64bit {
            true => Sets::A64,
            false => Sets::A32AndT32,
        }),
        contents: Contents {
            start: session.start,
            ..state.contents
        },
    })
}
