//! An emulator with our plugin: started, its stream recorded, and the state at its end saved.
//!
//! What Linux programs and machines have in common. How either is started, and what ends a
//! recording, is not known here.

use super::layout::{Core, Layout};
use super::plugin::{self, Plugin};
use super::protocol::{MOST_CORES, TraceOptions};
use super::remote::{self, Endpoint, Remote};
use super::stop::{self, Reason};
use super::store::Store;
use super::stream::{self, CoreState, StoppedCore};
use super::tracing::{self, Recording, Settings, Summary, Told};
use super::until::Until;
use super::{state, witness};
use crate::encode::Place;
use crate::leftovers::Private;
use crate::mapped::{self, Mapped};
use crate::snapshot::changed::Changed;
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
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

impl Error {
    pub(super) fn of_file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }
}

/// What is recorded, and when it ends.
#[derive(Debug, Default)]
pub struct Options {
    /// What is traced.
    pub trace: TraceOptions,
    /// Stop there.
    pub until: Option<Until>,
    /// Stop after so many instructions.
    pub instructions: Option<u64>,
    /// Where the witness goes.
    pub witness: Option<File>,
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
    /// What cores are called: `cores`, `threads`.
    pub unit: &'static str,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Holds what `files` are mapped from.
    _directory: Private,
}

/// How long the emulator may take to start.
const START: Duration = Duration::from_secs(60);

/// How often it is looked whether it has.
const PAUSE: Duration = Duration::from_millis(2);

/// An emulator that is to be started.
pub(super) struct Launch {
    directory: Private,
    plugin: Plugin,
}

impl Launch {
    pub fn new() -> Result<Self, Error> {
        let directory = Private::new()?;
        let plugin = Plugin::new(directory.path())?;
        Ok(Self { directory, plugin })
    }

    /// A file of the recording's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The socket at which the emulator's GDB server is to listen.
    pub fn gdb(&self) -> PathBuf {
        self.file("gdb.socket")
    }

    /// The emulator's arguments that load the plugin.
    pub fn plugin(&self, options: &[(&str, OsString)]) -> [OsString; 2] {
        self.plugin.arguments(options)
    }

    /// Starts it; `package` has it.
    pub fn start(self, mut command: Command, package: &str) -> Result<Emulator, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Failed(format!(
                "{name} is not installed: install the package {package} (apt install {package})"
            )),
            _ => Error::Failed(format!("{name} cannot be started: {error}")),
        })?;
        let gdb = self.gdb();
        let mut process = Process {
            child,
            reader: None,
        };
        let plugin = self.plugin.connect(&mut process.child, START)?;
        let began = Instant::now();
        while !gdb.exists() && began.elapsed() < START {
            if let Some(status) = process.child.try_wait()? {
                return Err(plugin::Error::Ended(status).into());
            }
            std::thread::sleep(PAUSE);
        }
        let remote = Remote::connect(&Endpoint::Unix(gdb), START)?;
        let (tell, told) = mpsc::channel();
        Ok(Emulator {
            process,
            remote,
            plugin,
            told,
            tell: Some(tell),
            progress: Arc::default(),
            notes: Vec::new(),
            directory: self.directory,
        })
    }
}

/// What must come to an end.
struct Process {
    child: Child,
    reader: Option<JoinHandle<io::Result<Box<dyn Recording>>>>,
}

impl Drop for Process {
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

/// An emulator that runs.
pub(super) struct Emulator {
    process: Process,
    pub remote: Remote,
    pub plugin: UnixStream,
    pub told: Receiver<Told>,
    tell: Option<Sender<Told>>,
    pub progress: Arc<AtomicU64>,
    pub notes: Vec<String>,
    pub directory: Private,
}

/// A core as it stands at the end.
pub(super) struct Halted {
    /// As the GDB server names it.
    pub thread: String,
    pub core: Core,
    pub place: Option<Place>,
}

/// A recording that has ended, and its state.
pub(super) struct Ending<'a> {
    pub reason: Reason,
    /// Where the core stands that ended it.
    pub at: Option<Place>,
    /// All cores, in their order.
    pub cores: Vec<Halted>,
    /// Their type.
    pub kind: &'a str,
    /// They are `NAME_0` and so on.
    pub name: &'a str,
    /// What cores are called: `cores`, `threads`.
    pub unit: &'static str,
    pub trace: TraceOptions,
    pub etm: crate::protocol::Core,
    /// Description, memory, and program.
    pub layout: Layout,
}

impl Emulator {
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Begins to record what it executes.
    pub fn record(&mut self, settings: Settings, witness: Option<File>) -> Result<(), Error> {
        let buffer = self.directory.path().join("trace.bin");
        let store = Store::create(&buffer, settings.trace.last)?;
        let witness = witness.map(|file| witness::Writer::new(Box::new(BufWriter::new(file))));
        let tell = self
            .tell
            .take()
            .ok_or_else(|| Error::Failed("the recording was begun twice".to_owned()))?;
        let progress = Arc::clone(&self.progress);
        let mut recording = tracing::recording(settings, store, witness, tell, progress);
        let input = self.plugin.try_clone()?;
        self.process.reader = Some(std::thread::spawn(move || {
            stream::read(input, &mut *recording).map(|()| recording)
        }));
        Ok(())
    }

    /// The recording, once the emulator has ended.
    pub fn recording(&mut self) -> Result<Box<dyn Recording>, Error> {
        let reader = self.process.reader.take();
        let recording = reader
            .map(JoinHandle::join)
            .ok_or_else(|| Error::Failed("the recording was read twice".to_owned()))?
            .map_err(|_| Error::Failed("the recording could not be read".to_owned()))??;
        Ok(recording)
    }

    /// The thread that stopped: the one that was told, or the first.
    pub fn stopped_thread(&mut self, told: Option<String>) -> Result<String, Error> {
        Ok(match told {
            Some(thread) => thread,
            None => self
                .remote
                .threads()?
                .into_iter()
                .next()
                .unwrap_or_default(),
        })
    }

    /// The cores as they stand: `find` gives what the plugin tells of one, by its index and its
    /// name in the GDB server.
    pub fn halted<'a>(
        &mut self,
        kind: &str,
        find: impl Fn(usize, &str) -> Option<&'a StoppedCore>,
    ) -> Result<Vec<Halted>, Error> {
        let mut cores = Vec::new();
        let mut cut = 0;
        for (index, thread) in self.remote.threads()?.into_iter().enumerate() {
            self.remote.select(&thread)?;
            let mut registers = state::registers(&mut self.remote)?;
            let told = find(index, &thread);
            if let Some(pc) = told.and_then(stop::frozen_pc) {
                // The emulator brings it up to date at jumps only.
                stop::set_pc(&mut registers, pc);
            }
            let place = stop::place(&registers, self.remote.target().architecture);
            if let (Some(CoreState::Cut(_)), Some(place)) = (told.map(|told| told.state), place) {
                // What they hold now is not what they held there.
                registers = vec![stop::pc_alone(place)];
                cut += 1;
            }
            cores.push(Halted {
                place,
                thread,
                core: Core {
                    name: String::new(),
                    kind: kind.to_owned(),
                    registers,
                    number: told.map(|told| told.core),
                },
            });
        }
        if cut > 0 {
            self.notes.push(format!(
                "{cut} threads were running while the program exited: of their registers only PC \
                 is known"
            ));
        }
        Ok(cores)
    }

    /// Ends it, and puts everything together.
    pub fn finish(mut self, ending: Ending<'_>) -> Result<Recorded, Error> {
        let at = ending.at.ok_or_else(|| {
            Error::Failed("the emulator does not tell where the program stands".to_owned())
        })?;
        // Nothing more is asked of it.
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        let next = ending.cores.iter();
        let next = next.filter_map(|halted| Some((halted.core.number?, halted.place?)));
        let summary = self.recording()?.finish(&next.collect())?;
        let mut layout = ending.layout;
        layout.cores = ending.cores.into_iter().map(|halted| halted.core).collect();
        let before = layout.cores.len();
        for (number, last) in &summary.ended {
            // Those beyond the trace IDs have nothing to show.
            if summary.cores.iter().any(|traced| traced.0 == *number) {
                layout.cores.push(Core {
                    name: String::new(),
                    kind: ending.kind.to_owned(),
                    registers: vec![stop::pc_alone(*last)],
                    number: Some(*number),
                });
            }
        }
        let ended = layout.cores.len() - before;
        for (index, core) in layout.cores.iter_mut().enumerate() {
            core.name = format!("{}_{index}", ending.name);
        }
        let names = layout.cores[before..].iter().map(|core| core.name.clone());
        layout.recording.ended = names.collect();
        layout.trace = Some(mapped::map(&self.directory.path().join("trace.bin"))?);
        layout.changed = summary.versions.changed(layout.halves());
        let files = layout.files(&ending.trace, ending.etm, &summary)?;
        self.notes
            .extend(notes(&summary, ended, ending.unit, &layout.changed));
        Ok(Recorded {
            files,
            reason: ending.reason,
            at,
            summary,
            unit: ending.unit,
            notes: self.notes,
            _directory: self.directory,
        })
    }
}

fn notes(summary: &Summary, ended: usize, unit: &str, changed: &Changed) -> Vec<String> {
    let mut notes = Vec::new();
    if ended > 0 {
        notes.push(format!(
            "{ended} {unit} ended before: of their registers only PC is known, at their last \
             instruction"
        ));
    }
    if summary.untraced > 0 {
        notes.push(format!(
            "{} {unit} were not traced: there is no trace ID for more than {MOST_CORES}",
            summary.untraced,
        ));
    }
    notes.extend(changed.describe());
    notes
}
