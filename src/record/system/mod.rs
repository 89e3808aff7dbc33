//! Recording of bare-metal images and Linux kernels on machines of `qemu-system`.
//!
//! All cores run on one host thread, which orders their execution. Exceptions are read from the
//! emulator's log. A program that exits by semihosting ends the emulator, so breakpoints are
//! inserted at its semihosting calls.

mod fetches;
mod image;
pub(crate) mod join;
mod kernel;
mod log;
mod memory;
pub(crate) mod numbers;
mod places;
mod run;

use super::blocks::Sets;
use super::emulator::{Emulator, Ending, Error, Halted, Launch, Options, Recorded, Watch};
use super::protocol::{Protocol, TraceOptions};
use super::settings::{Exceptions, Settings, System};
use super::snapshot_files::{Contents, Ram, RecordedCore, read_only};
use super::stop::Reason;
use super::until::Until;
use crate::record::note::Note;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{ExceptionLevel, Isa, Security};
use armsnap_snapshot::capture;
use armsnap_snapshot::leftovers::in_private;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_snapshot::snapshot::model::Device;
use armsnap_trace::element::Context;
use armsnap_trace::protocol;
use image::Image;
use kernel::Kernel;
use numbers::Numbers;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A request to record an image.
#[derive(Debug)]
pub struct Request {
    /// The image: an ELF file, or a Linux kernel.
    pub image: PathBuf,
    /// The command line of a kernel.
    pub append: Option<String>,
    /// The initial RAM disk of a kernel.
    pub initrd: Option<PathBuf>,
    /// Where tracing starts; at the beginning if `None`.
    pub from: Option<Until>,
    /// QEMU's machine (`-M`).
    pub machine: String,
    /// The type of its cores (`-cpu`), unless it is the machine's default.
    pub cpu: Option<String>,
    /// The number of cores (`-smp`).
    pub cores: Option<u32>,
    /// The size of the memory (`-m`).
    pub ram: Option<String>,
    /// Further arguments for the emulator.
    pub arguments: Vec<String>,
    /// What to record.
    pub options: Options,
}

/// A machine running in the emulator.
struct Session {
    emulator: Emulator,
    architecture: Architecture,
    /// The type of the cores (`Cortex-A57`).
    kind: String,
    core: protocol::Core,
    /// Where the kernel runs, once that is known.
    text: Option<u64>,
}

/// Records an image until it stops, and returns the snapshot.
///
/// # Errors
///
/// If the image or a requested location cannot be used, or the emulator fails.
pub fn record(mut request: Request, watch: &mut Watch<'_>) -> Result<Recorded, Error> {
    let image = Image::read(&request.image)?;
    let mut session = start(&mut request, &image)?;
    let ended = run::to_the_end(&mut session, &request, &image, watch);
    let lost = match ended.and_then(|ended| state(&mut session, &request, &image, &ended)) {
        Ok(state) => return finish(session, &request, state),
        Err(error) if error.is_loss() => error,
        Err(error) => return Err(error),
    };
    salvage(session, &request, &image, lost)
}

/// Assembles a snapshot of what was traced before the emulator failed.
fn salvage(
    mut session: Session,
    request: &Request,
    image: &Image,
    lost: Error,
) -> Result<Recorded, Error> {
    let lost = session.emulator.cause(lost);
    let reason = lost.to_string();
    session.emulator.notes.push(Note::Lost { reason });
    let name = request.image.file_name().unwrap_or_default();
    let contents = Contents {
        description: description(request),
        memory: match &image.kernel {
            None => read_only(&image.bytes, 0),
            Some(_) => Vec::new(),
        },
        program: match &image.kernel {
            None => Some((name.to_string_lossy().into_owned(), image.bytes.clone(), 0)),
            Some(kernel) => kernel_symbols(&mut session, kernel, true),
        },
        names_only: true,
        kernel: session.text,
        ..Contents::default()
    };
    let state = State {
        cores: Vec::new(),
        contents,
        reason: Reason::Lost,
        thread: String::new(),
    };
    finish(session, request, state).map_err(|_| lost)
}

fn description(request: &Request) -> String {
    format!(
        "{} on QEMU's {}, recorded by armsnap {}",
        request.image.display(),
        request.machine,
        env!("CARGO_PKG_VERSION")
    )
}

fn command(request: &Request, image: &Image, file: &Path, gdb: &Path) -> Command {
    let mut command = Command::new(image.emulator());
    command.arg("-M").arg(&request.machine);
    // The default cores of `virt` are 32-bit.
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
        // Time is counted in executed instructions: this makes runs repeatable, and timers do not
        // outrun a program slowed down by the plugin.
        command.args(["-icount", "shift=4"]);
    }
    // A recording needs no network card, drive or display; some of them need firmware files that
    // a minimal installation of QEMU lacks. `--qemu` can add devices.
    command.arg("-nodefaults");
    let mut endpoint = OsString::from("unix:");
    endpoint.push(gdb);
    endpoint.push(",server=on,wait=off");
    command.args(["-display", "none", "-no-shutdown", "-no-reboot", "-S"]);
    if image.kernel.is_none() {
        command.args(["-semihosting-config", "enable=on,target=native"]);
    }
    command.args(["-accel", "tcg,thread=single", "-d", "int,mmu"]);
    command.arg("-gdb").arg(endpoint);
    command.arg("-kernel").arg(file);
    if let Some(append) = &request.append {
        command.arg("-append").arg(append);
    }
    if let Some(initrd) = &request.initrd {
        command.arg("-initrd").arg(initrd);
    }
    command.args(&request.arguments);
    command.stdin(Stdio::null());
    // Ctrl-C ends the recording, not the emulator.
    command.process_group(0);
    command
}

fn start(request: &mut Request, image: &Image) -> Result<Session, Error> {
    let launch = Launch::new()?;
    let log = launch.path_of("log");
    if image.kernel.is_none() && (request.append.is_some() || request.initrd.is_some()) {
        let text = "--append and --initrd are for a Linux kernel, and the image is an ELF file";
        return Err(Error::Usage(text.to_owned()));
    }
    if let Some(initrd) = &request.initrd {
        mapped::open(initrd).map_err(|error| Error::of_file(initrd, error))?;
    }
    let unpacked = image.kernel.as_ref().filter(|kernel| kernel.packed);
    let file = match unpacked {
        Some(kernel) => {
            let path = launch.file("Image");
            let written = std::fs::write(&path, &*kernel.image);
            written.map_err(|error| in_private(&path, &error))?;
            path
        }
        None => request.image.clone(),
    };
    let mut command = command(request, image, &file, &launch.gdb());
    let options = &mut request.options;
    let mut plugin = vec![("log", log.clone().into())];
    plugin.extend(
        options
            .instructions
            .map(|n| ("limit", n.to_string().into())),
    );
    if options.data_addresses {
        plugin.push(("accesses", "on".into()));
    }
    if image.is_64bit() {
        plugin.push(("state", "on".into()));
    }
    let first = image.kernel.as_ref().and_then(Kernel::first);
    plugin.extend(first.map(|(start, offset)| {
        // The plugin compares the bytes as a little-endian number.
        let start = start.swap_bytes();
        ("place", format!("{start:x}/{offset:x}").into())
    }));
    command.args(launch.plugin(&plugin)).arg("-D").arg(&log);
    let mut emulator = launch.start(command, "qemu-system-arm")?;
    let architecture = emulator.remote.target().architecture;
    let tree = emulator.remote.monitor("info qom-tree");
    let kind = kind(&tree.unwrap_or_default(), architecture);
    let mut session = Session {
        core: capture::traced_core(&Device {
            kind: kind.clone(),
            ..Device::default()
        }),
        kind,
        architecture,
        emulator,
        text: None,
    };
    fits(options.trace.protocol, &session)?;
    let addresses = session.emulator.address_directory(options);
    let settings = Settings {
        data_addresses: addresses,
        late: request.from.is_some(),
        ..settings(&mut session, options.trace)?
    };
    session.emulator.record(settings, options.witness.take())?;
    Ok(session)
}

/// Checks that the cores can have a trace unit of this protocol.
fn fits(protocol: Protocol, session: &Session) -> Result<(), Error> {
    let name = protocol.name();
    let reason = match (protocol, session.architecture) {
        (Protocol::Ptm | Protocol::Etmv3, Architecture::AArch64) => {
            "it traces AArch32 only: use etmv4"
        }
        (Protocol::Ptm, Architecture::MProfile) => "Cortex-M has no PTM: use etmv3 or etmv4",
        _ => return Ok(()),
    };
    Err(Error::Usage(format!(
        "--protocol {name}: the machine's cores are {}, and {reason}",
        session.kind
    )))
}

/// Returns the type of the first core in QEMU's object tree: `cortex-a57-arm-cpu`.
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
    let level = match (session.architecture, session.emulator.remote.value("cpsr")?) {
        (Architecture::AArch64, Some(cpsr)) => Some(ExceptionLevel((cpsr >> 2) as u8 & 3)),
        (Architecture::AArch32, Some(cpsr)) => Some(ExceptionLevel(match cpsr & 0x1f {
            0x10 => 0,
            0x1a => 2,
            0x16 => 3,
            _ => 1,
        })),
        _ => None,
    };
    // Only a machine with EL3, or an Armv8-M core, starts in secure state.
    let secure = level == Some(ExceptionLevel(3))
        || session.architecture == Architecture::MProfile && session.core.version >= 8;
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
        data_addresses: None,
        calls: None,
        late: false,
        // The context ID is the core's own.
        carrier: match session.architecture {
            Architecture::AArch64 => Carrier::Vmid,
            _ => Carrier::ContextId,
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

/// Returns an ELF file with the kernel's symbols at the addresses where it ran, and adds a note on
/// them. `signed`: return addresses have authentication codes.
fn kernel_symbols(
    session: &mut Session,
    kernel: &Kernel,
    signed: bool,
) -> Option<(String, Mapped, u64)> {
    let mut note = |note| session.emulator.notes.push(note);
    let Some(symbols) = &kernel.symbols else {
        note(Note::NoKernelSymbols);
        return None;
    };
    let Some(text) = session.text else {
        note(Note::KernelNotStarted);
        return None;
    };
    let linked = kernel.linked_at().unwrap_or(text);
    note(Note::Kernel {
        text,
        moved: text.wrapping_sub(linked),
        symbols: symbols.symbols().len(),
    });
    let file = kernel.symbol_file(text, signed)?;
    Some(("kernel-symbols".to_owned(), file.into(), 0))
}

/// Returns an ELF file with the names of the kernel's modules at the end, and adds a note on them.
fn module_names(session: &mut Session, kernel: &Kernel, ram: &Ram, signed: bool) -> Option<Mapped> {
    let names = kernel.module_names(ram, session.text?, signed)?;
    let mut note = |note| session.emulator.notes.push(note);
    match names {
        Ok(names) => {
            if names.file.is_some() {
                note(Note::ModuleNames {
                    modules: names.modules,
                    functions: names.functions,
                });
            }
            if let Some(reason) = names.broken {
                note(Note::NoModules { reason });
            }
            names.file.map(Mapped::from)
        }
        Err(reason) => {
            let reason = reason.to_string();
            note(Note::NoModules { reason });
            None
        }
    }
}

/// The state of a machine at the end of the recording.
struct State {
    cores: Vec<Halted>,
    contents: Contents,
    reason: Reason,
    /// The core that ended the recording, as the GDB server's thread ID.
    thread: String,
}

/// Reads the final state.
fn state(
    session: &mut Session,
    request: &Request,
    image: &Image,
    ended: &run::Ended,
) -> Result<State, Error> {
    let cores = session.emulator.halted(&session.kind, |index, _| {
        ended.cores.iter().find(|core| core.index as usize == index)
    })?;
    let stacks: Vec<u64> = cores
        .iter()
        .filter_map(|halted| {
            let mut registers = halted.core.registers.iter();
            registers
                .find(|register| register.name == "SP")?
                .value
                .as_u64()
        })
        .collect();
    // SCTLR_EL1.EnIA: return addresses are signed.
    let control = cores.iter().map(|halted| {
        let mut registers = halted.core.registers.iter();
        let found = registers.find(|register| register.name == "SCTLR_EL1");
        found.and_then(|register| register.value.as_u64())
    });
    let signed = { control }.any(|value| value.is_none_or(|value| value >> 31 & 1 == 1));
    session.emulator.remote.select(&ended.thread)?;
    let mut contents = Contents::default();
    match &image.kernel {
        None => {
            let most = request.options.memory;
            contents.memory = memory::read(session, image, &stacks, most)?;
        }
        Some(_) => contents.ram = memory::physical(session, request.options.memory)?,
    }
    run::await_returns(session, image, ended)?;
    if let (Some(kernel), Some(ram)) = (&image.kernel, &contents.ram) {
        contents.module_names = module_names(session, kernel, ram, signed);
    }
    let name = request.image.file_name().unwrap_or_default();
    let contents = Contents {
        description: description(request),
        program: match &image.kernel {
            None => Some((name.to_string_lossy().into_owned(), image.bytes.clone(), 0)),
            Some(kernel) => kernel_symbols(session, kernel, signed),
        },
        names_only: image.kernel.is_some(),
        kernel: session.text,
        ..contents
    };
    Ok(State {
        cores,
        contents,
        reason: ended.reason.clone(),
        thread: ended.thread.clone(),
    })
}

/// Assembles the snapshot.
fn finish(session: Session, request: &Request, state: State) -> Result<Recorded, Error> {
    let State {
        cores,
        contents,
        reason,
        thread,
    } = state;
    let named = cores.iter().position(|halted| halted.thread == thread);
    let known = match reason {
        Reason::ShutDown => cores.iter().position(|halted| ends_machine(&halted.core)),
        Reason::Instructions(_) | Reason::Interrupted | Reason::Lost => None,
        Reason::Exit(_) | Reason::Until(_) | Reason::Signal(_) => named,
    };
    session.emulator.finish(Ending {
        reason,
        at: known.or(named).and_then(|index| cores[index].place),
        stopped: known.filter(|index| *index > 0),
        cores,
        kind: &session.kind,
        name: &session.kind,
        unit: "cores",
        trace: request.options.trace,
        etm: session.core,
        contents,
    })
}

/// Returns whether a core called the firmware to end the machine with a call that does not return: PSCI
/// SYSTEM_OFF, SYSTEM_RESET or SYSTEM_RESET2 (ARM DEN 0022, 5.1). When a machine shuts down, the
/// emulator reports an arbitrary core.
fn ends_machine(core: &RecordedCore) -> bool {
    let mut registers = core.registers.iter();
    let function = registers.find(|register| ["X0", "R0"].contains(&&*register.name));
    let function = function.and_then(|register| register.value.as_u64());
    let is_call = |call| matches!(call, 0x8400_0008 | 0x8400_0009 | 0x8400_0012 | 0xC400_0012);
    function.is_some_and(|function| is_call(function & 0xFFFF_FFFF))
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_snapshot::snapshot::model::{Register, RegisterValue};

    #[test]
    fn the_core_that_called_the_firmware_ended_the_machine() {
        let core = |name: &str, value: u64| RecordedCore {
            registers: vec![Register {
                name: name.to_owned(),
                value: RegisterValue(value.to_le_bytes().to_vec()),
                ..Register::default()
            }],
            ..RecordedCore::default()
        };
        // The upper half of a 32-bit argument is ignored (DEN 0028, 2.5).
        for value in [0x8400_0008, 0x8400_0009, 0xC400_0012, 0xFFFF_FFFF_8400_0009] {
            assert!(ends_machine(&core("X0", value)), "{value:#x}");
        }
        assert!(ends_machine(&core("R0", 0x8400_0009)));
        assert!(!ends_machine(&core("X1", 0x8400_0009)));
        // CPU_OFF ends one core only.
        assert!(!ends_machine(&core("X0", 0x8400_0002)));
        assert!(!ends_machine(&RecordedCore::default()));
    }
}
