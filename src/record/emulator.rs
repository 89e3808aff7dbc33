//! An emulator with the plugin: start it, record its stream, and save its final state.
//!
//! Shared by Linux programs and machines, which differ in how they start and what ends them.

use super::address_files::AddressFiles;
use super::note::Note;
use super::plugin::{self, Plugin};
use super::protocol::{MAX_CORES, TraceOptions};
use super::remote::{self, Remote};
use super::replay_file;
use super::settings::Settings;
use super::snapshot_files::{Contents, RecordedCore};
use super::stop::{self, Reason};
use super::stream::{self, CoreState, StoppedCore};
use super::trace_store::TraceStore;
use super::tracing::{self, Recording, Summary, TraceEvent};
use super::until::Until;
use super::{device_state, witness};
use armsnap_snapshot::leftovers::Private;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::snapshot::changed::Changed;
use armsnap_snapshot::snapshot::write::WriteError;
use armsnap_trace::encode::CodeAddress;
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

/// Errors of a recording.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options do not fit the program.
    #[error("{0}")]
    Usage(String),
    /// The program or the emulator failed.
    #[error("{0}")]
    Failed(String),
    /// The emulator failed, or ended, while the program ran.
    #[error("{0}")]
    Lost(String),
    /// The emulator's plugin failed.
    #[error(transparent)]
    Plugin(#[from] plugin::Error),
    /// The emulator's GDB server failed.
    #[error(transparent)]
    Remote(#[from] remote::Error),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file or socket could not be used.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    pub(super) fn of_file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }

    /// Returns whether what was traced before the error can still be saved.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Remote(_) | Self::Io(_))
    }
}

/// What to record, and when to stop.
#[derive(Debug, Default)]
pub struct Options {
    /// The trace options.
    pub trace: TraceOptions,
    /// Stop at this location.
    pub until: Option<Until>,
    /// Stop after this many instructions.
    pub instructions: Option<u64>,
    /// The file for the witness.
    pub witness: Option<File>,
    /// Whether to record the address of each load and store.
    pub data_addresses: bool,
    /// The maximum number of bytes of memory to save.
    pub memory: u64,
}

/// Progress and interruption of a recording.
pub struct Watch<'a> {
    /// Called at intervals with the number of instructions executed.
    pub progress: &'a mut dyn FnMut(u64),
    /// Set to end the recording at the current position.
    pub interrupted: &'a AtomicBool,
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// The snapshot's files, by path.
    pub files: BTreeMap<String, Mapped>,
    /// Why the recording ended.
    pub reason: Reason,
    /// Where the core that ended the recording is stopped.
    pub at: CodeAddress,
    /// A summary of what was recorded.
    pub summary: Summary,
    /// The name for cores in messages: `cores` or `threads`.
    pub unit: &'static str,
    /// What was left out of the recording.
    pub notes: Vec<Note>,
    /// The directory that `files` are mapped from.
    _directory: Private,
}

/// The timeout for the emulator to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The polling interval during the start.
const PAUSE: Duration = Duration::from_millis(2);

/// An emulator to be started.
pub(super) struct Launch {
    directory: Private,
    /// The directory of the files whose paths are passed to the emulator.
    plain: Private,
    plugin: Plugin,
}

impl Launch {
    pub fn new() -> Result<Self, Error> {
        let directory = Private::new()?;
        let plain = Private::with_plain_path()?;
        let plugin = Plugin::new(plain.path())?;
        Ok(Self {
            directory,
            plain,
            plugin,
        })
    }

    /// Returns the path of a private file of the recording.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path of a private file that is an argument of the emulator.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.plain.path().join(name)
    }

    /// Returns the socket for the emulator's GDB server.
    pub fn gdb(&self) -> PathBuf {
        self.path_of("gdb.socket")
    }

    /// Makes the emulator of a Linux program preload the plugin.
    pub fn preload(&self, command: &mut Command) {
        self.plugin.preload(command);
    }

    /// Returns the emulator's arguments that load the plugin.
    pub fn plugin(&self, options: &[(&str, OsString)]) -> [OsString; 2] {
        self.plugin.arguments(options)
    }

    /// Starts the emulator; `package` is the Debian package that contains it.
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
        let plugin = self.plugin.connect(&mut process.child, START_TIMEOUT)?;
        let start = Instant::now();
        while !gdb.exists() && start.elapsed() < START_TIMEOUT {
            if let Some(status) = process.child.try_wait()? {
                return Err(plugin::Error::Ended(status).into());
            }
            std::thread::sleep(PAUSE);
        }
        let remote = Remote::connect(&gdb, START_TIMEOUT)?;
        let (event_sender, events) = mpsc::channel();
        Ok(Emulator {
            process,
            remote,
            plugin,
            events,
            event_sender: Some(event_sender),
            read: None,
            progress: Arc::default(),
            notes: Vec::new(),
            directory: self.directory,
            _plain: self.plain,
        })
    }
}

/// The recording, and whether its stream was read to the end.
type ReadStream = (Box<dyn Recording>, io::Result<()>);

/// The emulator's process and the thread that reads its stream; both end when this is dropped.
struct Process {
    child: Child,
    reader: Option<JoinHandle<ReadStream>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            // The result is no longer needed.
            drop(reader.join());
        }
    }
}

/// A running emulator.
pub(super) struct Emulator {
    process: Process,
    pub remote: Remote,
    pub plugin: UnixStream,
    pub events: Receiver<TraceEvent>,
    event_sender: Option<Sender<TraceEvent>>,
    /// The recording, if its stream has been read to the end.
    read: Option<Box<dyn Recording>>,
    pub progress: Arc<AtomicU64>,
    pub notes: Vec<Note>,
    pub directory: Private,
    _plain: Private,
}

/// The state of a core at the end of the recording.
pub(super) struct Halted {
    /// The thread ID of the GDB server.
    pub thread: String,
    pub core: RecordedCore,
    pub place: Option<CodeAddress>,
}

/// The final state of a recording.
pub(super) struct Ending<'a> {
    pub reason: Reason,
    /// Where the core that ended the recording is stopped.
    pub at: Option<CodeAddress>,
    /// The index of that core in `cores`, if it is not the first one.
    pub stopped: Option<usize>,
    /// All cores, in order.
    pub cores: Vec<Halted>,
    /// The cores' type.
    pub kind: &'a str,
    /// The prefix of the cores' names: `NAME_0` and so on.
    pub name: &'a str,
    /// The name for cores in messages: `cores` or `threads`.
    pub unit: &'static str,
    pub trace: TraceOptions,
    pub etm: armsnap_trace::protocol::Core,
    /// The description, memory, and program.
    pub contents: Contents,
}

impl Emulator {
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Starts recording the emulator's stream.
    pub fn record(&mut self, settings: Settings, witness: Option<File>) -> Result<(), Error> {
        let buffer = self.directory.path().join("trace.bin");
        let store = TraceStore::create(&buffer, settings.trace.last)?;
        let witness = witness.map(|file| witness::Writer::new(Box::new(BufWriter::new(file))));
        let sender = self
            .event_sender
            .take()
            .ok_or_else(|| Error::Failed("the recording was started twice".to_owned()))?;
        let progress = Arc::clone(&self.progress);
        let mut recording = tracing::recording(settings, store, witness, sender, progress);
        let input = self.plugin.try_clone()?;
        self.process.reader = Some(std::thread::spawn(move || {
            let read = stream::read(input, &mut *recording);
            if read.is_err() {
                recording.abandon();
            }
            (recording, read)
        }));
        Ok(())
    }

    /// Returns the directory for files of data addresses, if they are recorded.
    pub fn address_directory(&self, options: &Options) -> Option<PathBuf> {
        let directory = || self.directory.path().to_owned();
        options.data_addresses.then(directory)
    }

    /// Returns the recorded data addresses: the name of each core, and its file.
    fn data_addresses(
        &self,
        contents: &Contents,
        summary: &Summary,
    ) -> Result<Vec<(String, Mapped)>, Error> {
        let mut out = Vec::new();
        for core in &contents.cores {
            let traced = summary.cores.iter();
            let mut traced = traced.filter(|traced| Some(traced.0) == core.number);
            let path = traced
                .next()
                .map(|(number, _)| AddressFiles::path(self.directory.path(), *number));
            if let Some(path) = path.filter(|path| path.exists()) {
                out.push((core.name.clone(), mapped::map(&path)?));
            }
        }
        Ok(out)
    }

    /// Ends the emulator after an error. Returns the first error: that of the stream, if it could not be
    /// read.
    pub fn cause(&mut self, lost: Error) -> Error {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        match self.recording() {
            Ok(recording) => {
                self.read = Some(recording);
                lost
            }
            Err(error) => error,
        }
    }

    /// Returns the recording, once the emulator has ended. If its stream could not be read to the end, the first
    /// call returns that error.
    pub fn recording(&mut self) -> Result<Box<dyn Recording>, Error> {
        if let Some(recording) = self.read.take() {
            return Ok(recording);
        }
        let reader = self.process.reader.take();
        let (recording, read) = reader
            .map(JoinHandle::join)
            .ok_or_else(|| Error::Failed("the recording was read twice".to_owned()))?
            .map_err(|_| Error::Failed("the recording could not be read".to_owned()))?;
        match read {
            Ok(()) => Ok(recording),
            Err(error) => {
                self.read = Some(recording);
                Err(Error::Lost(error.to_string()))
            }
        }
    }

    /// Returns the error for a stream that ended before the program: the error of reading it, if
    /// reading failed. Otherwise the recording is kept for [`Self::recording`].
    pub fn unread(&mut self, ended: &str) -> Error {
        match self.recording() {
            Ok(recording) => {
                self.read = Some(recording);
                Error::Lost(ended.to_owned())
            }
            Err(error) => error,
        }
    }

    /// Returns the thread that stopped: the one named in the stop reply, or the first one.
    pub fn stopped_thread(&mut self, reported: Option<String>) -> Result<String, Error> {
        Ok(match reported {
            Some(thread) => thread,
            None => self
                .remote
                .threads()?
                .into_iter()
                .next()
                .unwrap_or_default(),
        })
    }

    /// Reads the state of all cores. `find` returns the plugin's report on a core, by index and
    /// thread ID of the GDB server.
    pub fn halted<'a>(
        &mut self,
        kind: &str,
        find: impl Fn(usize, &str) -> Option<&'a StoppedCore>,
    ) -> Result<Vec<Halted>, Error> {
        let mut cores = Vec::new();
        let mut cut = 0;
        for (index, thread) in self.remote.threads()?.into_iter().enumerate() {
            match self.remote.select(&thread) {
                Ok(()) => {}
                // The thread ended after it was listed.
                Err(remote::Error::Unexpected { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut registers = device_state::registers(&mut self.remote)?;
            let reported = find(index, &thread);
            if let Some(pc) = reported.and_then(stop::frozen_pc) {
                // The emulator updates PC at branches only.
                stop::set_pc(&mut registers, pc);
            }
            let place = stop::place(&registers, self.remote.target().architecture);
            if let (Some(CoreState::Cut(_)), Some(place)) = (reported.map(|core| core.state), place)
            {
                // The other registers have changed since the cut.
                registers = vec![stop::pc_alone(place)];
                cut += 1;
            }
            cores.push(Halted {
                place,
                thread,
                core: RecordedCore {
                    name: String::new(),
                    kind: kind.to_owned(),
                    registers,
                    number: reported.map(|core| core.core),
                    signal: None,
                },
            });
        }
        if cut > 0 {
            self.notes.push(Note::RunningThreads { threads: cut });
        }
        Ok(cores)
    }

    /// Ends the emulator and assembles the snapshot.
    pub fn finish(mut self, ending: Ending<'_>) -> Result<Recorded, Error> {
        // The state is complete: the emulator is no longer needed.
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        let next = ending.cores.iter();
        let next = next.filter_map(|halted| Some((halted.core.number?, halted.place?)));
        let summary = self.recording()?.finish(&next.collect())?;
        let lost = ending.reason == Reason::Lost;
        let last = summary.ended.first().filter(|_| lost);
        let at = ending.at.or(last.map(|core| core.1)).ok_or_else(|| {
            Error::Failed("the emulator does not report where the program is stopped".to_owned())
        })?;
        let mut contents = ending.contents;
        contents.cores = ending.cores.into_iter().map(|halted| halted.core).collect();
        if let Reason::Signal(number) = ending.reason
            && let Some(core) = contents.cores.get_mut(ending.stopped.unwrap_or(0))
        {
            core.signal = Some(number);
        }
        let before = contents.cores.len();
        let mut times = Vec::new();
        for (number, last, time) in &summary.ended {
            // Cores without a trace ID have no trace to show.
            if summary.cores.iter().any(|traced| traced.0 == *number) {
                times.push(*time);
                contents.cores.push(RecordedCore {
                    name: String::new(),
                    kind: ending.kind.to_owned(),
                    registers: vec![stop::pc_alone(*last)],
                    number: Some(*number),
                    signal: None,
                });
            }
        }
        let ended = contents.cores.len() - before;
        for (index, core) in contents.cores.iter_mut().enumerate() {
            core.name = format!("{}_{index}", ending.name);
        }
        let names = contents.cores[before..]
            .iter()
            .map(|core| core.name.clone());
        contents.recording.ended = names.collect();
        let stopped = ending.stopped.and_then(|index| contents.cores.get(index));
        contents.recording.stopped = stopped.map(|core| core.name.clone());
        contents.recording.ended_at = times;
        contents.data_addresses = self.data_addresses(&contents, &summary)?;
        let mut numbered: Vec<(u32, String)> = (contents.cores.iter())
            .filter_map(|core| Some((core.number?, core.name.clone())))
            .collect();
        numbered.sort();
        if numbered.first().is_some_and(|(number, _)| *number == 0) {
            // Threads are numbered by their place in the section from here on.
            let place = |number| numbered.binary_search_by_key(&number, |core| core.0);
            let mut turns = summary.turns.clone();
            for turn in &mut turns {
                turn.core = place(turn.core).map_or(u32::MAX, |place| place as u32);
            }
            let places = replay_file::Places {
                offsets: &summary.checkpoints,
                turns: &turns,
                of_calls: &summary.turns_of_calls,
            };
            let (directory, start) = (self.directory.path(), &contents.start);
            let replay = replay_file::join(directory, start, &places, &contents.memory);
            let names: Vec<String> = numbered.into_iter().map(|core| core.1).collect();
            // Without space for it, the rest is saved.
            contents.replay = replay.unwrap_or_default().map(|bytes| (names, bytes));
        }
        contents.trace = Some(mapped::map(&self.directory.path().join("trace.bin"))?);
        let changed = summary.versions.changed(contents.halves());
        let changed = changed.carried_by(summary.carrier);
        contents.changed = match &contents.ram {
            None => changed,
            Some(_) => changed.keeping_all(),
        };
        let files = contents.files(&ending.trace, ending.etm, &summary)?;
        if let Some(reason) = summary.cut.clone().filter(|_| !lost) {
            self.notes.push(Note::Cut { reason });
        }
        if lost {
            // The note on the loss says what is known.
            self.notes
                .extend(notes(&summary, 0, ending.unit, &Changed::default()));
        } else {
            self.notes
                .extend(notes(&summary, ended, ending.unit, &contents.changed));
        }
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

fn notes(summary: &Summary, ended: usize, unit: &'static str, changed: &Changed) -> Vec<Note> {
    let mut notes = Vec::new();
    if ended > 0 {
        notes.push(Note::Ended { count: ended, unit });
    }
    if summary.untraced > 0 {
        notes.push(Note::Untraced {
            count: summary.untraced,
            unit,
            limit: MAX_CORES,
        });
    }
    notes.extend(changed.note().map(Note::ChangedCode));
    notes
}
