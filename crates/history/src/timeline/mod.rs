//! Execution histories: positions, steps and searches in both directions.
//!
//! Built on the decoders and the flow. Independent of debuggers: breakpoints, threads and replies
//! belong to the server.
//!
//! ```
//! use armsnap_snapshot::snapshot::{OpenOptions, model::Snapshot};
//! use armsnap_snapshot::snapshot::memory::CoreMemory;
//! use armsnap_history::timeline::{Direction, Timeline, TracedCore};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! # fn walk(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
//! let loaded = Snapshot::open(directory, &OpenOptions::default())?;
//! let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
//! let core = TracedCore { device: 0, memory: Arc::new(memory) };
//! let mut timeline = Timeline::open(&loaded, &[core]);
//! if let Some(history) = timeline.history(0) {
//!     let mut here = history.end();
//!     while let Some(before) = history.step(here, Direction::Backward) {
//!         println!("{before}: {:?}", history.place(before).and_then(|place| place.pc()));
//!         here = before;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod code;
mod entries;
mod entry;
mod history;
mod index;
mod kept;
mod numbers;
mod parallel;
mod part;
mod position;
mod saved;
mod scan;
mod search;
mod segments;
mod signal_return;
mod stretch;
mod trace;
mod track;
mod worker;

#[cfg(test)]
mod tests;

pub use entries::Entries;
pub use entry::{AddressSet, EndAgrees, Entry, Event, Found, Gap, Gaps, HistoryPoint, PointKind};
pub use history::History;
pub use numbers::Numbers;
pub use position::{Direction, NoPosition, Position};
pub use track::Cancelled;

use armsnap_arch::arch::{Architecture, RegisterFile};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::cache::Cache;
use armsnap_snapshot::capture::{Capture, CaptureSource};
use armsnap_snapshot::check;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::Note;
use armsnap_snapshot::snapshot::recording::Recording;
use armsnap_snapshot::stop::Unwind;
use code::Code;
use history::{FinalState, Session};
use index::Store;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use trace::{Chunks, Trace};
use track::{Limits, OpenTrack};

/// A segment with fewer parts is decoded faster than its index is read.
const LEAST_PARTS: usize = if cfg!(test) { 3 } else { 32 };

/// A core to open a history for.
#[derive(Clone, Debug)]
pub struct TracedCore {
    /// Index in the snapshot's devices.
    pub device: usize,
    /// The code that it executed: its dumps, completed by programs.
    pub memory: Arc<CoreMemory>,
}

/// Sizes of the units in which a history is decoded, and of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Chunk size in bytes: a power of two, at least 512. At most one synchronisation point per
    /// chunk starts a segment. Positions count from these points, so their names depend on it.
    pub chunk_bytes: u64,
    /// Bytes of a trace buffer after which the decoder state is saved if there is no
    /// synchronisation point.
    pub part_bytes: u64,
    /// Instructions after which the decoder state is saved.
    pub part_instructions: u64,
    /// Cache size in bytes for decoded history, shared by all cores.
    pub cache_bytes: usize,
    /// Number of threads of a search. The result does not depend on it.
    pub jobs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            chunk_bytes: 64 << 10,
            part_bytes: 64 << 10,
            part_instructions: 1 << 20,
            cache_bytes: 64 << 20,
            jobs: std::thread::available_parallelism().map_or(1, NonZero::get),
        }
    }
}

/// The histories of a snapshot's cores.
pub struct Timeline {
    histories: Vec<History>,
    notes: Vec<Note>,
    /// By core: the last timestamp looked up, and the position found for it.
    at_times: HashMap<usize, (u64, Option<Position>)>,
}

impl Timeline {
    /// Opens the histories of all `cores` with trace. Decodes nothing yet.
    pub fn open(loaded: &OpenSnapshot, cores: &[TracedCore]) -> Self {
        Self::with(loaded, cores, &Options::default())
    }

    /// Same as [`Self::open`] with explicit sizes.
    pub fn with(loaded: &OpenSnapshot, cores: &[TracedCore], options: &Options) -> Self {
        Self::unwinding(loaded, cores, options, None, &Unwind::default())
    }

    /// Same as [`Self::with`], but caches, for the next time, what can only be found by decoding a
    /// long trace without synchronisation points. The histories are the same.
    pub fn cached(
        loaded: &OpenSnapshot,
        cores: &[TracedCore],
        options: &Options,
        cache: &Arc<Cache>,
    ) -> Self {
        Self::unwinding(loaded, cores, options, Some(cache), &Unwind::default())
    }

    /// Same as [`Self::cached`] or, without a cache, as [`Self::with`]; `unwind` ends long work. A
    /// timeline whose work was unwound must not be used again.
    pub fn unwinding(
        loaded: &OpenSnapshot,
        cores: &[TracedCore],
        options: &Options,
        cache: Option<&Arc<Cache>>,
        unwind: &Unwind,
    ) -> Self {
        let store = cache.map(|cache| {
            let mut store = Store::new(Arc::clone(cache), LEAST_PARTS);
            // Views of memory depend on the registers and tables of all cores.
            store.add(&loaded.snapshot.devices);
            store
        });
        let store = store.as_ref();
        let mut out = Self {
            histories: Vec::new(),
            notes: Vec::new(),
            at_times: HashMap::new(),
        };
        let (capture, notes) = Capture::open(loaded);
        out.notes.extend(notes);
        // By buffer: a recording may have one for each of many thousands of runs of its trace unit.
        let chunks: HashMap<usize, Arc<Chunks>> = capture
            .buffers
            .iter()
            .map(|buffer| {
                let chunks = Chunks::new(buffer, options.chunk_bytes);
                (buffer.index, Arc::new(chunks))
            })
            .collect();
        let traced: Vec<_> = cores
            .iter()
            .map(|core| (core, capture.following(&loaded.snapshot, core.device)))
            .collect();
        let tracks = traced.iter().map(|(_, (sources, _))| sources.len()).sum();
        for (core, (sources, notes)) in traced {
            out.notes.extend(notes);
            let sources = sources.into_iter().filter_map(|(buffer, source)| {
                let chunks = chunks.get(&buffer.index)?;
                Some((Arc::clone(chunks), buffer.index, source))
            });
            let sources = sources.collect();
            let history = open_core(loaded, core, sources, (options, store, unwind), tracks);
            out.histories.extend(history);
        }
        out
    }

    /// Assumptions and omissions, one line each.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The cores that have a history, by their index in the snapshot's devices.
    pub fn cores(&self) -> impl Iterator<Item = usize> + '_ {
        self.histories.iter().map(History::device)
    }

    /// The history of a core, by its index in the snapshot's devices.
    pub fn history(&mut self, device: usize) -> Option<&mut History> {
        let mut histories = self.histories.iter_mut();
        histories.find(|history| history.device() == device)
    }

    /// The histories of these devices, in this order.
    pub fn into_histories(self, devices: &[Option<usize>]) -> Vec<Option<History>> {
        let mut all: HashMap<usize, History> = self
            .histories
            .into_iter()
            .map(|history| (history.device(), history))
            .collect();
        let found = devices.iter().map(|device| all.remove(&(*device)?));
        found.collect()
    }

    /// Finds the last position of core `to` at the time of a position of core `from`, with the
    /// resolution of the timestamps: the order between two timestamps is unknown. Returns `None`
    /// if either trace has no timestamps there. The halted state of one core corresponds to the
    /// halted state of the other.
    pub fn at_same_time(&mut self, from: usize, position: Position, to: usize) -> Option<Position> {
        let history = self.history(from)?;
        let place = history.place(position)?;
        let halted = place.kind == PointKind::Halted;
        if halted {
            return Some(self.history(to)?.end());
        }
        let time = place.time?;
        // Many steps may lie between two timestamps.
        if let Some(&(known, position)) = self.at_times.get(&to)
            && known == time
        {
            return position;
        }
        let position = self.history(to)?.at_time(time);
        self.at_times.insert(to, (time, position));
        position
    }
}

/// Opens the history of a core. `sources` are its trace sources, each with the chunks and index of
/// its buffer. The cache is divided among `tracks`.
fn open_core(
    loaded: &OpenSnapshot,
    core: &TracedCore,
    sources: Vec<(Arc<Chunks>, usize, &CaptureSource)>,
    (options, store, unwind): (&Options, Option<&Store>, &Unwind),
    tracks: usize,
) -> Option<History> {
    let device = loaded.snapshot.devices.get(core.device)?;
    let recording = Recording::of(&loaded.snapshot);
    let code = Code(Arc::clone(&core.memory));
    let mut sessions = Vec::new();
    let mut pieces = 0;
    let mut name = None;
    for (chunks, buffer, source) in sources {
        let Some(synchronisation) = source.config.synchronisation() else {
            continue;
        };
        let alone = recording.linux_program;
        let store = store.map(|store| {
            let mut store = store.clone();
            store.add(&(core.device, buffer, alone, sessions.is_empty()));
            store.add(source);
            store
        });
        let pieces_before = pieces;
        pieces += (chunks.len() >> 16) + 1;
        let track = source.visit(OpenTrack {
            trace: Trace::new(chunks, source.trace_id, synchronisation, unwind.clone()),
            code: code.clone(),
            is_first: sessions.is_empty(),
            counts_cycles: source.config.counts_cycles(),
            alone,
            limits: Limits {
                part_bytes: options.part_bytes.max(1),
                part_places: options.part_instructions.max(1),
                cache_bytes: options.cache_bytes / tracks.max(1),
                jobs: options.jobs,
            },
            store,
        });
        if let Some(track) = track {
            name.get_or_insert_with(|| source.name.clone());
            sessions.push(Session {
                buffer,
                pieces_before,
                track,
            });
        }
    }
    let registers = RegisterFile::read(device, Architecture::detect(device).architecture);
    // Placeholder registers contain no halted state.
    let real = check::placeholder(loaded, core.device).is_none();
    let halted = registers.pc().filter(|_| real).map(Address);
    let state = FinalState {
        halted,
        ended: recording.has_ended(&device.name),
        linux_program: recording.linux_program,
    };
    Some(History::new(core.device, name?, sessions, code, state))
}
