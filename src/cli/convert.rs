//! `armsnap convert`: snapshot → trace file, trace file → snapshot.

use super::arch::Arch;
use super::output::{Output, not_named};
use super::progress::Progress;
use super::{Failure, SnapshotArguments, number, say};
use armsnap::convert::chosen::ChosenArchitecture;
use armsnap::convert::definitions::Definitions;
use armsnap::convert::executed::FrameSelection;
use armsnap::convert::kept::Bound;
use armsnap::convert::trace_file::{self, Options};
use armsnap::convert::{self, core_file, perf_data, snapshot, with_trace};
use armsnap::decode;
use armsnap::program::elf::Elf;
use armsnap::quantity::{Address, BufferOffset};
use armsnap::recover::Level;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::write::WriteError;
use armsnap::text;
use armsnap::tfile::MAGIC;
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Convert a snapshot into a GDB trace file, or a trace file into a snapshot
#[derive(Args)]
pub struct Arguments {
    /// A snapshot (a directory, or its snapshot.ini) or a trace file
    input: PathBuf,

    /// The trace file or the snapshot directory to write; a core file if the name ends with .core,
    /// a perf.data file if it ends with perf.data. Several cores get a file each: NAME.tf becomes
    /// NAME.CORE.tf
    output: PathBuf,

    /// Overwrite existing output
    #[arg(long)]
    force: bool,

    /// Snapshot to trace file: only this core
    #[arg(long, value_name = "NAME")]
    core: Option<String>,

    /// Snapshot to trace file: which executed instructions become trace frames
    /// [default: waypoints]
    #[arg(long, value_enum, value_name = "KIND")]
    frames: Option<Frames>,

    /// Snapshot to trace file: for what a tracepoint is defined; GDB prints two lines for each
    /// when it opens the file [default: addresses]
    #[arg(long, value_enum, value_name = "KIND")]
    tracepoints: Option<Tracepoints>,

    /// Snapshot to trace file: the last N trace frames
    #[arg(long, value_name = "N")]
    last: Option<usize>,

    /// Snapshot to trace file: start at the first frame at ADDRESS, or at @OFFSET in the trace
    /// buffer
    #[arg(long, value_name = "ADDRESS|@OFFSET", value_parser = bound)]
    from: Option<Bound>,

    /// Snapshot to trace file: end with the next frame at ADDRESS, or at @OFFSET in the trace
    /// buffer
    #[arg(long, value_name = "ADDRESS|@OFFSET", value_parser = bound)]
    to: Option<Bound>,

    /// Snapshot to trace file: the halted state without the trace. With --frames, trace frames
    /// are written, but not the trace they are made from
    #[arg(long)]
    state_only: bool,

    /// Snapshot to trace file: add the registers and stack memory that are known at each trace
    /// frame: with =proved, those that are proved; otherwise also inferred ones
    #[arg(
        long,
        value_enum,
        value_name = "STATUS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "inferred"
    )]
    values: Option<Values>,

    /// A program, for code missing from dumps and trace frames, and for function names; also
    /// gives the architecture of a trace file without a target description (repeatable)
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,

    /// Trace file to snapshot: the architecture of a file that has no target description
    #[arg(long, value_enum)]
    arch: Option<Arch>,

    /// Snapshot to trace file: follow paths that leave the snapshot's directory
    #[arg(long)]
    allow_outside: bool,

    /// Snapshot to trace file: do not use code of another core of the same architecture where a
    /// core has neither dump nor program
    #[arg(long)]
    no_shared_memory: bool,

    /// Trace file to snapshot: registers and memory of trace frame N [default: the whole snapshot
    /// that the file contains, or else the last frame]
    #[arg(long, value_name = "N")]
    frame: Option<usize>,

    /// Trace file to snapshot: add memory of earlier frames
    #[arg(long)]
    merge: bool,

    /// Trace file to snapshot: turn the trace frames into ETMv4 trace
    #[arg(long)]
    trace: bool,

    /// Snapshot to perf.data: the version of the description of the trace units, 1 or 2; perf 6.1
    /// reads 1 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    perf_version: Option<u8>,

    #[command(flatten)]
    import: super::import::ImportArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Frames {
    /// The last instruction of each straight line, such as a branch, taken or not
    Waypoints,
    /// The first instruction of each called function
    Functions,
    /// All executed instructions
    Instructions,
    /// Where exceptions were taken
    Exceptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tracepoints {
    /// Each function with trace frames; $address is the address of a frame
    Functions,
    /// Each address with trace frames, so that GDB knows $pc in all of them
    Addresses,
    /// Only the halted state; $address is the address of a frame
    One,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Values {
    /// Values that follow from the trace, the code and the final state
    Proved,
    /// Also values that follow from calling conventions
    Inferred,
}

/// `0x8000`, `32768` or `@0x40`.
fn bound(text: &str) -> Result<Bound, String> {
    let number =
        |text| number(text).ok_or_else(|| "expected an address, or @ and an offset".to_owned());
    match text.strip_prefix('@') {
        Some(offset) => Ok(Bound::Offset(BufferOffset(number(offset)?))),
        None => Ok(Bound::Address(Address(number(text)?))),
    }
}

impl From<convert::Error> for Failure {
    fn from(error: convert::Error) -> Self {
        match error {
            convert::Error::Usage(text) => Self::Usage(text),
            convert::Error::Io(error) => Self::Io(error),
            error => Self::Input(error.to_string()),
        }
    }
}

/// What is converted into what: the contents of the input and the name of the output decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From a snapshot to a GDB trace file.
    TraceFile,
    /// From a snapshot to a core file: `*.core`.
    CoreFile,
    /// From a snapshot to `perf.data` or `*.perf.data`.
    PerfData,
    /// From a GDB trace file to a snapshot.
    Snapshot,
}

use Direction::{CoreFile, PerfData, Snapshot, TraceFile};

/// The directions from a snapshot.
const FROM_SNAPSHOT: &[Direction] = &[TraceFile, CoreFile, PerfData];

impl Direction {
    fn of(input: &Path, output: &Path) -> Result<Self, Failure> {
        if is_trace_file(input)? {
            return Ok(Snapshot);
        }
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        Ok(if name == "perf.data" || name.ends_with(".perf.data") {
            PerfData
        } else if name == "core" || name.ends_with(".core") {
            CoreFile
        } else {
            TraceFile
        })
    }

    /// Says why an option for other directions does not apply to this one.
    fn refusal(self, option: &str, others: &[Self]) -> String {
        let other_output = others.iter().any(|other| FROM_SNAPSHOT.contains(other));
        match self {
            Snapshot => format!("{option}: the input is a trace file"),
            TraceFile if other_output => format!("{option}: the output is a trace file"),
            CoreFile if other_output => format!("{option}: the output is a core file"),
            PerfData if other_output => format!("{option}: the output is a perf.data file"),
            TraceFile | CoreFile | PerfData => format!("{option}: the input is a snapshot"),
        }
    }
}

impl Arguments {
    /// The options that only some directions have: whether each was given, its name, and the
    /// directions.
    fn options(&self) -> [(bool, &'static str, &'static [Direction]); 17] {
        // A new option has to be placed.
        let Self {
            input: _,
            output: _,
            force: _,
            core,
            frames,
            tracepoints,
            last,
            from,
            to,
            state_only,
            values,
            elf,
            arch,
            allow_outside,
            no_shared_memory,
            frame,
            merge,
            trace,
            perf_version,
            import,
        } = self;
        let import = import.given();
        [
            (core.is_some(), "--core", &[TraceFile]),
            (frames.is_some(), "--frames", &[TraceFile]),
            (tracepoints.is_some(), "--tracepoints", &[TraceFile]),
            (last.is_some(), "--last", &[TraceFile]),
            (from.is_some(), "--from", &[TraceFile]),
            (to.is_some(), "--to", &[TraceFile]),
            (*state_only, "--state-only", &[TraceFile]),
            (values.is_some(), "--values", &[TraceFile]),
            (!elf.is_empty(), "--elf", &[TraceFile, Snapshot]),
            (*allow_outside, "--allow-outside", FROM_SNAPSHOT),
            (*no_shared_memory, "--no-shared-memory", FROM_SNAPSHOT),
            (import.is_some(), import.unwrap_or_default(), FROM_SNAPSHOT),
            (perf_version.is_some(), "--perf-version", &[PerfData]),
            (frame.is_some(), "--frame", &[Snapshot]),
            (*merge, "--merge", &[Snapshot]),
            (*trace, "--trace", &[Snapshot]),
            (arch.is_some(), "--arch", &[Snapshot]),
        ]
    }

    /// Fails if an option was given that the direction does not have.
    fn check_options(&self, direction: Direction) -> Result<(), Failure> {
        for (given, option, directions) in self.options() {
            if given && !directions.contains(&direction) {
                return Err(Failure::Usage(direction.refusal(option, directions)));
            }
        }
        Ok(())
    }
}

/// Converts in the direction given by the input and the name of the output.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let direction = Direction::of(&arguments.input, &arguments.output)?;
    arguments.check_options(direction)?;
    match direction {
        TraceFile => to_trace_file(arguments)?,
        CoreFile => to_other(arguments, core_file::write)?,
        PerfData => {
            let version = arguments.perf_version.unwrap_or(1).into();
            to_other(arguments, |loaded, out| {
                perf_data::write(loaded, version, out)
            })?;
        }
        Snapshot => to_snapshot(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the snapshot.
fn open(arguments: &Arguments) -> Result<OpenSnapshot, Failure> {
    let snapshot = SnapshotArguments {
        snapshot: arguments.input.clone(),
        allow_outside: arguments.allow_outside,
        no_shared_memory: arguments.no_shared_memory,
        import: arguments.import.clone(),
    };
    Ok(snapshot.open_with(&[])?.0)
}

/// Writes a core file or a perf.data file.
fn to_other(
    arguments: &Arguments,
    write: impl FnOnce(
        &OpenSnapshot,
        &mut BufWriter<Output>,
    ) -> Result<Vec<convert::Note>, convert::Error>,
) -> Result<(), Failure> {
    let loaded = open(arguments)?;
    not_named(&arguments.output, &loaded)?;
    let output = Output::new(Some(&arguments.output), arguments.force)?;
    let mut out = BufWriter::with_capacity(1 << 20, output);
    let notes = write(&loaded, &mut out)?;
    print_notes(&notes);
    let output = out.into_inner().map_err(|error| error.into_error())?;
    output.finish()
}

/// Returns whether the input is a trace file, not a snapshot.
pub(super) fn is_trace_file(input: &Path) -> Result<bool, Failure> {
    if input.is_dir() || armsnap::import::recognise(input).is_some() {
        return Ok(false);
    }
    let cannot = |error: std::io::Error| Failure::Input(format!("{}: {error}", input.display()));
    let (head, _) = armsnap::import::unpacked_head(input, MAGIC.len() as u64).map_err(cannot)?;
    // A trace file that is cut or damaged in its first line is reported as a trace file; ELF files
    // start with the same byte.
    let first = &head[..head.len().min(2)];
    Ok(!first.is_empty() && MAGIC.starts_with(first))
}

/// Prints each note once; several cores may have equal notes.
fn print_notes(notes: &[impl std::fmt::Display]) {
    let mut printed = BTreeSet::new();
    for note in notes.iter().map(ToString::to_string) {
        if printed.insert(note.clone()) {
            say(text::one_line(&note));
        }
    }
}

fn to_trace_file(arguments: &Arguments) -> Result<(), Failure> {
    let loaded = open(arguments)?;
    let elfs: Result<_, _> = arguments.elf.iter().map(|path| Elf::open(path)).collect();
    let options = Options {
        core: arguments.core.clone(),
        frames: match arguments.frames {
            None | Some(Frames::Waypoints) => FrameSelection::Waypoints,
            Some(Frames::Functions) => FrameSelection::Functions,
            Some(Frames::Instructions) => FrameSelection::Instructions,
            Some(Frames::Exceptions) => FrameSelection::Exceptions,
        },
        tracepoints: match arguments.tracepoints {
            None | Some(Tracepoints::Addresses) => Definitions::Addresses,
            Some(Tracepoints::Functions) => Definitions::Functions,
            Some(Tracepoints::One) => Definitions::One,
        },
        from: arguments.from,
        to: arguments.to,
        last: arguments.last,
        state_only: arguments.state_only,
        frames_nevertheless: arguments.frames.is_some(),
        values: arguments.values.map(|values| match values {
            Values::Proved => Level::Proved,
            Values::Inferred => Level::Inferred,
        }),
        elfs: elfs.map_err(|error| Failure::Input(error.to_string()))?,
    };
    let runs = trace_file::core_runs(&loaded, &options)?;
    let mut outputs: Vec<(_, PathBuf, _)> = Vec::new();
    for core_run in &runs {
        let path = match core_run.core.filter(|_| runs.len() > 1) {
            Some(core) => {
                let name = &loaded.snapshot.devices[core].name;
                let path = with_core(&arguments.output, name);
                // Names may be equal; indices in the device list differ.
                if outputs.iter().any(|(_, other, _)| *other == path) {
                    with_core(&arguments.output, &format!("{name}.{core}"))
                } else {
                    path
                }
            }
            None => arguments.output.clone(),
        };
        not_named(&path, &loaded)?;
        let output = Output::new(Some(&path), arguments.force)?;
        outputs.push((*core_run, path, output));
    }
    let mut notes = match arguments.state_only {
        true => Vec::new(),
        false => {
            let look = decode::first_look(&loaded).into_iter();
            look.map(convert::Note::Decode).collect()
        }
    };
    let mut written = Vec::new();
    let mut progress = Progress::new(0);
    for (core_run, path, output) in outputs {
        let out = BufWriter::with_capacity(1 << 20, output);
        let mut out = trace_file::write(
            &loaded,
            core_run,
            &options,
            out,
            &mut notes,
            &mut |done, total| {
                progress.of(done, total);
            },
        )?;
        out.flush()?;
        let output = out.into_inner().map_err(|error| error.into_error())?;
        written.push((path, output));
    }
    drop(progress);
    print_notes(&notes);
    // No file appears before all of them are complete.
    for (path, output) in written {
        output.finish()?;
        if runs.len() > 1 {
            say(text::one_line(&path.display().to_string()));
        }
    }
    Ok(())
}

/// `out.tf` → `out.cpu_0.tf`.
fn with_core(path: &Path, core: &str) -> PathBuf {
    let safe = |c: char| {
        if c.is_alphanumeric() || "-_+.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let core: String = core.chars().map(safe).collect();
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{core}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn to_snapshot(arguments: &Arguments) -> Result<(), Failure> {
    let input = arguments.input.display();
    let fault = |text: String| Failure::Input(format!("{input}: {text}"));
    let bytes =
        convert::map_trace_file(&arguments.input).map_err(|error| fault(error.to_string()))?;
    let elfs: Result<Vec<Elf>, _> = arguments.elf.iter().map(|path| Elf::open(path)).collect();
    let elfs = elfs.map_err(|error| Failure::Input(error.to_string()))?;
    let options = snapshot::Options {
        frame: arguments.frame,
        merge: arguments.merge,
        chosen: ChosenArchitecture::of(arguments.arch.map(Arch::architecture), &elfs)
            .map_err(|error| Failure::Input(error.to_string()))?,
    };
    let mut notes = Vec::new();
    let name = arguments.input.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let done = if arguments.trace {
        let mut progress = Progress::new(0);
        let mut report = |done, total| progress.of(done, total);
        with_trace::read(&bytes, &name, &options, &elfs, &mut notes, &mut report)
    } else {
        snapshot::read(&bytes, &name, &options, &mut notes)
    };
    let notes: Vec<String> = notes
        .iter()
        .map(|note| format!("{input}: {note}"))
        .collect();
    print_notes(&notes);
    let found = done.map_err(|error| match error {
        convert::Error::Usage(text) => Failure::Usage(format!("{input}: {text}")),
        error => fault(error.to_string()),
    })?;
    if arguments.output.is_file() || arguments.output.is_symlink() {
        return Err(Failure::Usage(format!(
            "{} exists and is not a snapshot; name another directory",
            arguments.output.display()
        )));
    }
    let mut progress = Progress::new(0);
    let mut report = |done, total| progress.of(done, total);
    found
        .write(&arguments.output, arguments.force, &mut report)
        .map_err(|error| match error {
            convert::Error::Write(exists @ (WriteError::Exists(_) | WriteError::InTheWay(_))) => {
                Failure::Usage(exists.to_string())
            }
            error => error.into(),
        })
}
