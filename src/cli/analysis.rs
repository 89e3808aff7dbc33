//! What `export` and `report` share: their arguments, and one pass over the trace.

use super::progress::Progress;
use super::{Failure, SnapshotArguments, print_notes};
use armsnap::capture::{Capture, CaptureBuffer, Selection};
use armsnap::decode::{ProgramOptions, Programs, silence};
use armsnap::profile::{self, Bound, Listener, Profile, Track, Window};
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::model::{DeviceClass, Severity};
use clap::Args;
use std::cell::RefCell;
use std::fmt::Display;
use std::num::NonZero;
use std::path::PathBuf;

/// The arguments that select trace.
#[derive(Args)]
pub struct AnalysisArguments {
    #[command(flatten)]
    pub snapshot: SnapshotArguments,

    /// This core only, or this trace source without a core (repeatable)
    #[arg(long, value_name = "NAME")]
    pub core: Vec<String>,

    /// The core that GDB shows as this thread (repeatable)
    #[arg(long, value_name = "N")]
    pub thread: Vec<NonZero<usize>>,

    /// Start here: a function, an address (*0x8000), a timestamp (time:N), or a number of executed
    /// instructions (instruction:N)
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,

    /// End here, in the same forms, when it is reached first after the start
    #[arg(long, value_name = "PLACE")]
    pub to: Option<String>,

    /// A program of the cores (repeatable). Default: an ELF file of the snapshot's directory
    /// whose contents match the dumps
    #[arg(long, value_name = "FILE")]
    pub elf: Vec<PathBuf>,

    /// Do not take code from the program where there is no dump
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
    /// What is wanted of each track; `None` to leave it out.
    wanted: Vec<(Track, Option<Window>)>,
    jobs: usize,
    /// Whether a part of the trace cannot be decoded.
    pub faulty: bool,
    /// The notes printed so far.
    notes: RefCell<Vec<String>>,
}

/// Prints notes, and keeps them.
fn keep(kept: &mut Vec<String>, notes: &[impl Display]) {
    print_notes(notes);
    kept.extend(notes.iter().map(ToString::to_string));
}

impl AnalysisArguments {
    /// Opens the snapshot, its trace and its programs; prints notes.
    pub fn open(&self) -> Result<Analysis, Failure> {
        let loaded = self.snapshot.open()?;
        let selected = Capture::select(&loaded, &Selection::default());
        let (capture, notes) = selected.map_err(|error| Failure::Input(error.to_string()))?;
        let faulty = notes.iter().any(|note| note.severity == Severity::Error);
        let mut kept: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        keep(&mut kept, &notes);
        let options = ProgramOptions {
            named: &self.elf,
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
        for (track, selected) in tracks.into_iter().zip(selected) {
            let window = match selected {
                true => Some(self.window(&track, &programs)?),
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
            faulty,
            notes: RefCell::new(kept),
        })
    }

    /// Which tracks are wanted.
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
            if !select(&|track| track.name == *name || track.source_name == *name) {
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

    fn window(&self, track: &Track, programs: &Programs) -> Result<Window, Failure> {
        let bound = |option: &str, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| bound(option, text, track, programs))
                .transpose()
        };
        Ok(Window {
            from: bound("--from", &self.from)?,
            to: bound("--to", &self.to)?,
        })
    }
}

/// Reads a place.
fn bound(option: &str, text: &str, track: &Track, programs: &Programs) -> Result<Bound, Failure> {
    let wrong = |expected: &str| Failure::Usage(format!("{option} {text}: expected {expected}"));
    let number = |digits: &str| match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    };
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
    let symbols = track.core.and_then(|core| programs.symbols(core));
    let addresses = symbols.map(|symbols| symbols.addresses(text));
    match addresses.filter(|addresses| !addresses.is_empty()) {
        Some(addresses) => Ok(Bound::Code(addresses)),
        // A source without a core has no functions.
        None if track.core.is_none() => Ok(Bound::Code([].into())),
        None => Err(Failure::Usage(format!(
            "{option} {text}: {} has no function of that name",
            track.name
        ))),
    }
}

impl Analysis {
    /// The notes on the snapshot, its programs and its trace, all of which were printed.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Decodes the trace, with a listener for each track. Prints notes, and progress.
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
        let profiles = profile::profile(
            &self.loaded,
            &self.capture,
            &self.programs,
            &options,
            listener,
            |bytes| bar.at(bytes),
            |index, totals| {
                if whole {
                    let buffer = &self.capture.buffers[index];
                    notes.extend(silence(&self.loaded, buffer, totals));
                }
            },
        )?;
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
