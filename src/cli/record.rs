//! `armsnap record`: runs a program in an emulator and writes a snapshot with trace.

use super::Failure;
use super::output::{exists, not_any_of, not_input};
use super::progress::Counter;
use super::signals;
use armsnap::mapped;
use armsnap::record::protocol::{Protocol, Timestamps, TraceOptions};
use armsnap::record::until::Until;
use armsnap::record::{Error, Options, Reason, Recorded, Watch, system, user};
use armsnap::snapshot::write::{self, WriteError};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::NamedTempFile;

/// Run a program in an emulator and save a snapshot with trace where it stops
#[derive(Args)]
pub struct Arguments {
    /// A Linux program for AArch64 or Arm, as a path or a name in PATH, and its arguments; with
    /// --system, a bare-metal image (ELF) or an arm64 Linux kernel (Image, Image.gz, EFI zboot).
    /// Options come before it
    #[arg(
        trailing_var_arg = true,
        required = true,
        value_name = "PROGRAM [ARGUMENTS]"
    )]
    program: Vec<OsString>,

    /// The snapshot's directory [default: PROGRAM.snapshot]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Replace an existing snapshot or witness
    #[arg(long)]
    force: bool,

    /// The protocol of the trace; ptm and etmv3 for AArch32 programs only
    #[arg(long, value_enum, default_value = "etmv4")]
    protocol: ProtocolName,

    /// Trace the target of every taken branch
    #[arg(long)]
    branch_broadcast: bool,

    /// Omit the targets of returns from traced calls
    #[arg(long)]
    return_stack: bool,

    /// Trace cycle counts: one cycle per instruction
    #[arg(long)]
    cycles: bool,

    /// Trace timestamps, which count executed instructions. By default, Linux programs have them
    /// once they start a second thread
    #[arg(long)]
    timestamps: bool,

    /// Trace no timestamps, even with several threads
    #[arg(long, conflicts_with = "timestamps")]
    no_timestamps: bool,

    /// Bytes of trace between synchronisation points; 0: no periodic ones
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    sync: usize,

    /// Keep only the last N bytes of each core's trace, starting at a synchronisation point
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    last: Option<u64>,

    /// Stop at this function of the program or its libraries, source line, or address; with a
    /// kernel, at one of its functions (panic) or at its reset
    #[arg(long, value_name = "FUNCTION|FILE:LINE|ADDRESS")]
    until: Option<String>,

    /// With --until: stop at the N-th visit
    #[arg(long, value_name = "N", requires = "until", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Stop after N instructions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    instructions: Option<u64>,

    /// Write all executed instructions, as the emulator reports them, to FILE
    #[arg(long, value_name = "FILE")]
    witness: Option<PathBuf>,

    /// Write the registers and stores of each instruction to FILE: single-threaded programs only, a
    /// few thousand instructions per second
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    witness_registers: Option<PathBuf>,

    /// Write the address of each load and store to the snapshot, so that more past values can be
    /// determined
    #[arg(long)]
    data_addresses: bool,

    /// Run an image on this machine of QEMU (virt, mps2-an386…)
    #[arg(long, value_name = "MACHINE")]
    system: Option<String>,

    /// The type of the cores, as in QEMU (cortex-a57…). By default, AArch64 programs run on a core
    /// without SVE, whose past values can be determined
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,

    /// With --system: the number of cores
    #[arg(long, value_name = "N", requires = "system", value_parser = clap::value_parser!(u32).range(1..))]
    smp: Option<u32>,

    /// With --system: the size of the machine's memory, as in QEMU (64M)
    #[arg(long, value_name = "SIZE", requires = "system")]
    ram: Option<String>,

    /// With a Linux kernel: its command line
    #[arg(
        long,
        value_name = "TEXT",
        requires = "system",
        allow_hyphen_values = true
    )]
    append: Option<String>,

    /// With a Linux kernel: its initial RAM disk
    #[arg(long, value_name = "FILE", requires = "system")]
    initrd: Option<PathBuf>,

    /// With --system: start tracing at this function or address
    #[arg(long, value_name = "FUNCTION|ADDRESS", requires = "system")]
    from: Option<String>,

    /// With --system: a further argument for QEMU (repeatable)
    #[arg(
        long,
        value_name = "ARGUMENT",
        requires = "system",
        allow_hyphen_values = true
    )]
    qemu: Vec<String>,

    /// The directory with the dynamic linker and libraries
    #[arg(long, value_name = "DIR", conflicts_with = "system")]
    sysroot: Option<PathBuf>,

    /// Exit with 0 whatever the program's exit status is, and with 1 or 2 for errors, like other commands
    #[arg(long)]
    exit_zero: bool,

    /// The maximum number of bytes of memory to save
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    Etmv4,
    Ptm,
    Etmv3,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(text) => Self::Usage(text),
            Error::Write(exists @ (WriteError::Exists(_) | WriteError::InTheWay(_))) => {
                Self::Usage(exists.to_string())
            }
            // Not `Io`: a pipe to the emulator is not the output's pipe.
            error => Self::Input(error.to_string()),
        }
    }
}

impl Arguments {
    fn trace(&self) -> TraceOptions {
        let sync = match self.last {
            // This ensures a synchronisation point in the trace that is kept.
            Some(last) => {
                let most = usize::try_from(last / 4).unwrap_or(usize::MAX).max(64);
                if self.sync == 0 {
                    most
                } else {
                    self.sync.min(most)
                }
            }
            None => self.sync,
        };
        TraceOptions {
            protocol: match self.protocol {
                ProtocolName::Etmv4 => Protocol::Etmv4,
                ProtocolName::Ptm => Protocol::Ptm,
                ProtocolName::Etmv3 => Protocol::Etmv3,
            },
            branch_broadcast: self.branch_broadcast,
            return_stack: self.return_stack,
            cycles: self.cycles,
            timestamps: match (self.timestamps, self.no_timestamps) {
                (true, _) => Timestamps::Always,
                (false, true) => Timestamps::Never,
                (false, false) => Timestamps::default(),
            },
            sync,
            last: self.last,
        }
    }

    fn options(&self, witness: Option<std::fs::File>) -> Options {
        Options {
            trace: self.trace(),
            until: self.until.clone().map(|text| Until {
                text,
                count: self.count,
            }),
            instructions: self.instructions,
            witness,
            data_addresses: self.data_addresses,
            memory: self.memory,
        }
    }

    /// Returns the snapshot's directory.
    fn output(&self, program: &Path) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let mut name = program.file_name().unwrap_or_default().to_owned();
            name.push(".snapshot");
            name.into()
        })
    }
}

/// Resolves the program: as named; from PATH if it has no directory and does not exist here.
fn resolve(program: &Path) -> PathBuf {
    let alone = program.components().count() == 1 && !program.exists();
    let path = std::env::var_os("PATH")
        .filter(|_| alone)
        .unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(program));
    let place = places.find(|place| place.is_file());
    place.unwrap_or_else(|| program.to_owned())
}

/// The exit status for a failure of `record` itself, as used by other commands that run a program.
const FAILED: u8 = 125;

/// Returns the exit status for a command line (without armsnap's name) that cannot be parsed: [`FAILED`]
/// for a `record` command that passes on the program's exit status.
pub fn usage_status(mut arguments: impl Iterator<Item = OsString>) -> Option<i32> {
    let is_own = arguments.next().is_some_and(|command| command == "record");
    let mut options = arguments.take_while(|argument| argument != "--");
    let passes = is_own && options.all(|option| option != "--exit-zero");
    passes.then_some(FAILED.into())
}

/// Records a program. Returns the program's exit status; errors of `record` itself have their own.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Results read from a file that shrank meanwhile are invalid.
    match record(arguments).and_then(|done| Ok(mapped::whole().map(|()| done)?)) {
        Ok((kept, program)) => Ok(match (arguments.exit_zero, kept) {
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::FAILURE,
            (false, true) => ExitCode::from(program),
            (false, false) => ExitCode::from(FAILED),
        }),
        Err(failure) if !arguments.exit_zero => {
            super::say(failure);
            Ok(ExitCode::from(FAILED))
        }
        Err(failure) => Err(failure),
    }
}

/// Records a program. Returns whether the recording is complete in its output, and the program's
/// exit status.
fn record(arguments: &Arguments) -> Result<(bool, u8), Failure> {
    let Some((program, rest)) = arguments.program.split_first() else {
        return Err(Failure::Usage("expected a program".to_owned()));
    };
    let program = resolve(Path::new(program));
    let output = arguments.output(&program);
    // This fails before the program runs, not after.
    write::may_write(&output, arguments.force).map_err(Error::from)?;
    let beside = [&arguments.witness, &arguments.witness_registers];
    for path in beside.into_iter().flatten() {
        not_input(path)?;
        let inputs = arguments.initrd.iter().chain([&program]);
        not_any_of(path, inputs.map(|input| &**input))?;
    }
    let witness = PendingFile::of(arguments.witness.as_deref(), arguments.force)?;
    let registers = PendingFile::of(arguments.witness_registers.as_deref(), arguments.force)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in signals::not_ignored([SIGINT, SIGTERM, SIGHUP]) {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut counter = Counter::new("instructions");
    let mut watch = Watch {
        progress: &mut |count| counter.at(count),
        interrupted: &interrupted,
    };
    let recorded = match &arguments.system {
        Some(machine) => {
            if !rest.is_empty() {
                let text =
                    "--system: an image has no arguments; a kernel's are given with --append";
                return Err(Failure::Usage(text.to_owned()));
            }
            let request = system::Request {
                image: program,
                machine: machine.clone(),
                cpu: arguments.cpu.clone(),
                cores: arguments.smp,
                ram: arguments.ram.clone(),
                append: arguments.append.clone(),
                initrd: arguments.initrd.clone(),
                from: arguments.from.clone().map(|text| Until { text, count: 1 }),
                arguments: arguments.qemu.clone(),
                options: arguments.options(PendingFile::file(&witness)?),
            };
            system::record(request, &mut watch)?
        }
        None => {
            let request = user::Request {
                program,
                arguments: rest.to_vec(),
                cpu: arguments.cpu.clone(),
                sysroot: arguments.sysroot.clone(),
                options: arguments.options(PendingFile::file(&witness)?),
                registers: PendingFile::file(&registers)?,
            };
            user::record(request, &mut watch)?
        }
    };
    drop(counter);
    super::print_notes(&recorded.notes);
    let kept = keep(&recorded, &output, arguments.force)?;
    let cut = recorded.summary.cut.is_some();
    for file in witness.into_iter().chain(registers).filter(|_| !cut) {
        file.persist(arguments.force)?;
    }
    print_summary(&recorded, &kept);
    let whole = kept == output && recorded.reason != Reason::Lost && !cut;
    Ok((whole, recorded.reason.status()))
}

/// Writes the snapshot. If that fails, for example because the output was free before the program ran and no
/// longer is, the snapshot is kept under another name: beside the output, or else in the temporary
/// directory. Returns its path.
fn keep(recorded: &Recorded, output: &Path, force: bool) -> Result<PathBuf, Failure> {
    const TRIES: u32 = 100;
    let write =
        |path: &Path, force| write::write_files(&recorded.files, path, force, &mut |_, _| ());
    let error = match write(output, force) {
        Ok(()) => return Ok(output.to_owned()),
        Err(error) => error,
    };
    // This finds the name of the current directory, too.
    let named = match output.file_name() {
        Some(_) => output.to_owned(),
        None => output.canonicalize().unwrap_or_else(|_| output.to_owned()),
    };
    let name = named.file_name().unwrap_or("recording".as_ref());
    for directory in [named.with_file_name(""), std::env::temp_dir()] {
        let free = (1..TRIES).map(|number| {
            let mut name = name.to_owned();
            name.push(format!(".{number}"));
            directory.join(name)
        });
        let free = { free }.find(|path| path.symlink_metadata().is_err());
        if let Some(path) = free
            && write(&path, false).is_ok()
        {
            let shown = path.display();
            super::say(format_args!("{error}: the recording is kept as {shown}"));
            return Ok(path);
        }
    }
    Err(Error::from(error).into())
}

fn print_summary(recorded: &Recorded, output: &Path) {
    let summary = &recorded.summary;
    let threads = match summary.cores.len() {
        1 => String::new(),
        count => format!(" of {count} {}", recorded.unit),
    };
    let stopped = match &recorded.reason {
        Reason::Signal(_) => "stopped by",
        _ => "stopped",
    };
    super::say(format_args!(
        "{}: {} instructions{threads}, {stopped} {}, PC {}",
        output.display(),
        summary.instructions,
        recorded.reason,
        recorded.at.address
    ));
}

/// A file that appears under its name only when it is complete.
struct PendingFile<'a> {
    file: NamedTempFile,
    path: &'a Path,
}

impl<'a> PendingFile<'a> {
    /// Creates the file if a path is given.
    fn of(path: Option<&'a Path>, force: bool) -> Result<Option<Self>, Failure> {
        let Some(path) = path else {
            return Ok(None);
        };
        if !force && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let file = NamedTempFile::new_in(parent.unwrap_or(Path::new("."))).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            Failure::Io(std::io::Error::new(error.kind(), text))
        })?;
        Ok(Some(Self { file, path }))
    }

    /// Returns a handle for writing.
    fn file(pending: &Option<Self>) -> std::io::Result<Option<std::fs::File>> {
        let file = pending.as_ref().map(|pending| pending.file.as_file());
        file.map(std::fs::File::try_clone).transpose()
    }

    fn persist(self, force: bool) -> Result<(), Failure> {
        if force {
            self.file.persist(self.path).map_err(|error| error.error)?;
            return Ok(());
        }
        match self.file.persist_noclobber(self.path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(exists(self.path))
            }
            Err(error) => Err(Failure::Io(error.error)),
        }
    }
}
