//! What `export` and `report` share: their arguments, and one pass over the trace.

use super::progress::Progress;
use super::{Failure, SnapshotArguments, number, print_notes, shards};
use armsnap::capture::{Capture, CaptureBuffer, Selection};
use armsnap::decode::{ProgramOptions, Programs, Totals, silence};
use armsnap::profile::shards::{JoinError, Plan, join};
use armsnap::profile::{self, Bound, Listener, Profile, Track, Window};
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::model::{DeviceClass, Severity};
use armsnap::timeline::{Direction, Entry, PointKind, Position, Timeline, TracedCore};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::cell::RefCell;
use std::fmt::Display;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments that select trace.
#[derive(Args)]
pub struct AnalysisArguments {
    #[command(flatten)]
    pub snapshot: SnapshotArguments,

    /// Only this core, or this trace source without a core (repeatable)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub core: Vec<String>,

    /// Only the core that GDB shows as this thread (repeatable)
    #[arg(long, value_name = "N")]
    pub thread: Vec<NonZero<usize>>,

    /// Start at this function, address (*0x8000), timestamp (time:N), number of executed
    /// instructions (instruction:N), or position of one core (0+71)
    #[arg(long, value_name = "PLACE", value_parser = NonEmptyStringValueParser::new())]
    pub from: Option<String>,

    /// End where this place, in the same forms, is first reached after the start
    #[arg(long, value_name = "PLACE", value_parser = NonEmptyStringValueParser::new())]
    pub to: Option<String>,

    /// A program that the cores run (repeatable). Default: an ELF file in the snapshot's directory
    /// that matches the dumps
    #[arg(long, value_name = "FILE")]
    pub elf: Vec<PathBuf>,

    /// Do not read code from the program where dumps lack it
    #[arg(long)]
    pub no_elf_memory: bool,

    /// Number of processor cores to use (default: all)
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,
}

/// A snapshot whose trace can be analysed.
pub struct Analysis {
    /// The snapshot.
    pub loaded: OpenSnapshot,
    /// Its trace.
    pub capture: Capture,
    /// The programs of its cores.
    pub programs: Programs,
    /// What is selected of each track; `None` to leave the track out.
    wanted: Vec<(Track, Option<Window>)>,
    jobs: usize,
    /// The directories of shards to join instead of decoding the trace.
    pub shards: Vec<PathBuf>,
    /// Whether a part of the trace cannot be decoded.
    pub faulty: bool,
    /// The notes printed so far.
    notes: RefCell<Vec<String>>,
}

/// Prints notes, and keeps them as text.
fn keep(kept: &mut Vec<String>, notes: &[impl Display]) {
    print_notes(notes);
    kept.extend(notes.iter().map(ToString::to_string));
}

impl AnalysisArguments {
    /// Selects everything.
    pub fn of(snapshot: SnapshotArguments) -> Self {
        Self {
            snapshot,
            core: Vec::new(),
            thread: Vec::new(),
            from: None,
            to: None,
            elf: Vec::new(),
            no_elf_memory: false,
            jobs: None,
        }
    }

    /// Returns whether everything is selected.
    pub fn is_whole(&self) -> bool {
        self.core.is_empty() && self.thread.is_empty() && self.from.is_none() && self.to.is_none()
    }

    /// Opens the snapshot, its trace and its programs; prints notes.
    pub fn open(&self) -> Result<Analysis, Failure> {
        let (loaded, named) = self.snapshot.open_with(&self.elf)?;
        let selected = Capture::select(&loaded, &Selection::default());
        let (capture, notes) = selected.map_err(|error| Failure::Input(error.to_string()))?;
        let faulty = notes.iter().any(|note| note.severity == Severity::Error);
        let mut kept: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        keep(&mut kept, &notes);
        let options = ProgramOptions {
            named: &named,
            as_memory: !self.no_elf_memory,
            symbols: true,
        };
        let (programs, notes) = Programs::of(&loaded, &capture, &options)
            .map_err(|error| Failure::Input(error.to_string()))?;
        keep(&mut kept, &notes);
        keep(&mut kept, &super::decode::without_core(&loaded, &capture));
        let tracks = profile::tracks(&loaded, &capture);
        let selected = self.selected(&loaded, &tracks)?;
        let mut wanted = Vec::new();
        let places = Places {
            loaded: &loaded,
            programs: &programs,
            cores: tracks
                .iter()
                .zip(&selected)
                .filter(|(track, selected)| **selected && track.core.is_some())
                .count(),
        };
        for (track, selected) in tracks.into_iter().zip(selected) {
            let window = match selected {
                true => Some(self.window(&track, &places)?),
                false => None,
            };
            wanted.push((track, window));
        }
        let every = std::thread::available_parallelism();
        Ok(Analysis {
            jobs: self.jobs.or(every.ok()).map_or(1, NonZero::get),
            loaded,
            capture,
            programs,
            wanted,
            shards: Vec::new(),
            faulty,
            notes: RefCell::new(kept),
        })
    }

    /// Returns which tracks are selected.
    fn selected(&self, loaded: &OpenSnapshot, tracks: &[Track]) -> Result<Vec<bool>, Failure> {
        if self.core.is_empty() && self.thread.is_empty() {
            return Ok(vec![true; tracks.len()]);
        }
        let mut selected = vec![false; tracks.len()];
        let mut select = |chosen: &dyn Fn(&Track) -> bool| {
            let mut any = false;
            for (track, selected) in tracks.iter().zip(&mut selected) {
                *selected |= chosen(track);
                any |= chosen(track);
            }
            any
        };
        for name in &self.core {
            let core = |track: &Track| {
                let core = track.core.map(|core| &loaded.snapshot.devices[core]);
                core.is_some_and(|core| core.name == *name)
            };
            if !select(&|track| track.name == *name || track.source_name == *name || core(track)) {
                let known: Vec<&str> = tracks.iter().map(|track| &*track.name).collect();
                return Err(Failure::Usage(format!(
                    "--core {name}: nothing of that name is traced; there are: {}",
                    known.join(", ")
                )));
            }
        }
        let devices = loaded.snapshot.devices.iter().enumerate();
        let cores: Vec<usize> = devices
            .filter(|(_, device)| device.class == DeviceClass::Core)
            .map(|(index, _)| index)
            .collect();
        for number in &self.thread {
            let core = cores.get(number.get() - 1).copied();
            if !select(&|track| core.is_some() && track.core == core) {
                return Err(Failure::Usage(format!(
                    "--thread {number}: no thread of that number is traced; `armsnap gdb` lists them"
                )));
            }
        }
        Ok(selected)
    }

    fn window(&self, track: &Track, places: &Places<'_>) -> Result<Window, Failure> {
        let bound = |option: &str, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| places.bound(option, text, track))
                .transpose()
        };
        let window = Window {
            from: bound("--from", &self.from)?,
            to: bound("--to", &self.to)?,
        };
        if let (Some(from), Some(to)) = (&self.from, &self.to)
            && window.is_reversed()
        {
            return Err(Failure::Usage(format!("--from {from} is after --to {to}")));
        }
        Ok(window)
    }
}

/// The data needed to look up locations.
struct Places<'a> {
    loaded: &'a OpenSnapshot,
    programs: &'a Programs,
    /// The number of selected cores.
    cores: usize,
}

impl Places<'_> {
    /// Parses a location.
    fn bound(&self, option: &str, text: &str, track: &Track) -> Result<Bound, Failure> {
        let wrong =
            |expected: &str| Failure::Usage(format!("{option} {text}: expected {expected}"));

        if let Some(rest) = text.strip_prefix("instruction:") {
            let parsed = number(rest).ok_or_else(|| wrong("a number after instruction:"))?;
            return Ok(Bound::Instructions(parsed));
        }
        if let Some(rest) = text.strip_prefix("time:") {
            let parsed = number(rest).ok_or_else(|| wrong("a timestamp after time:"))?;
            return Ok(Bound::Time(parsed));
        }
        if let Some(rest) = text.strip_prefix('*') {
            let parsed = number(rest).ok_or_else(|| wrong("an address after *"))?;
            return Ok(Bound::Code([parsed].into()));
        }
        // A source without a core has no positions and no functions.
        let Some(core) = track.core else {
            return Ok(Bound::Code([].into()));
        };
        if let Ok(position) = text.parse() {
            if self.cores > 1 {
                return Err(Failure::Usage(format!(
                    "{option} {text}: a position belongs to one core; --core or --thread chooses it"
                )));
            }
            return self.at(position, core).ok_or_else(|| {
                Failure::Usage(format!("{option} {text}: {} was never there", track.name))
            });
        }
        let symbols = self.programs.symbols(core);
        let addresses = symbols.map(|symbols| symbols.addresses(text));
        match addresses.filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => Ok(Bound::Code(addresses)),
            None => Err(Failure::Usage(format!(
                "{option} {text}: {} has no function of that name: give its address (*0x8000), or its \
                 program with --elf",
                track.name
            ))),
        }
    }

    /// Returns the location of a position in the core's trace: its packet, and the number of the
    /// packet's instructions that are executed before it.
    fn at(&self, position: Position, core: usize) -> Option<Bound> {
        let memory = self.programs.shared_memory(core)?;
        let device = core;
        let mut timeline = Timeline::open(self.loaded, &[TracedCore { device, memory }]);
        let history = timeline.history(core)?;
        let place = history.place(position)?;
        let mut skip = match place.kind {
            PointKind::Instruction { number, .. } => number.into(),
            PointKind::Gap(_) | PointKind::Halted => 0,
        };
        let before = history.entries(position, Direction::Backward).skip(1);
        for event in before.take_while(|event| event.offset == place.offset) {
            if let Entry::Run { range, .. } = event.entry {
                skip += u64::from(range.instructions);
            }
        }
        Some(Bound::Offset {
            buffer: position.buffer(),
            at: place.offset,
            skip,
        })
    }
}

impl Analysis {
    /// Returns the exit code of the command: a failure if the snapshot has errors.
    pub fn exit_code(&self) -> ExitCode {
        match self.faulty {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }

    /// Returns the notes on the snapshot, its programs and its trace, all of which have been
    /// printed.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Cuts the trace into shards.
    pub fn plan(&self, shards: u32) -> Plan<'_> {
        Plan::new(&self.loaded, &self.capture, &self.programs, shards)
    }

    /// Decodes the trace, or joins its shards, with a listener for each track. Prints notes and progress.
    pub fn run<L: Listener + Send>(
        &self,
        listener: impl FnMut(&Track) -> L,
    ) -> Result<Vec<(Track, Profile, L)>, Failure> {
        let window = |track: &Track| {
            let wanted = self.wanted.iter().find(|(known, _)| known == track);
            wanted.and_then(|(_, window)| window.clone())
        };
        let options = profile::Options {
            jobs: self.jobs,
            window: &window,
        };
        let total = self.capture.buffers.iter().map(CaptureBuffer::bytes).sum();
        let mut bar = Progress::new(total);
        let mut notes = Vec::new();
        let whole = self.wanted.iter().all(|(_, window)| window.is_some());
        let (loaded, capture, programs) = (&self.loaded, &self.capture, &self.programs);
        let progress = |bytes| bar.at(bytes);
        let finished = |index: usize, totals: Option<&Totals>| {
            if whole {
                notes.extend(silence(loaded, &capture.buffers[index], totals));
            }
        };
        let profiles = if self.shards.is_empty() {
            profile::profile(
                loaded, capture, programs, &options, listener, progress, finished,
            )?
        } else {
            let (paths, mut files) = shards::open(&self.shards)?;
            let joined = join(
                loaded, capture, programs, &mut files, listener, progress, finished,
            );
            joined.map_err(|error| match error {
                JoinError::Io(error) => Failure::Io(error),
                JoinError::File { number, error } => {
                    Failure::Input(format!("{}: {error}", paths[number - 1].display()))
                }
                error => Failure::Input(format!("--join: {error}")),
            })?
        };
        drop(bar);
        let mut kept = self.notes.borrow_mut();
        keep(&mut kept, &notes);
        keep(&mut kept, &self.programs.taken_from_others());
        for (track, profile, _) in &profiles {
            let notes = profile.notes().into_iter();
            let notes: Vec<_> = notes
                .map(|note| format!("{}: {note}", track.name))
                .collect();
            keep(&mut kept, &notes);
        }
        Ok(profiles)
    }
}
