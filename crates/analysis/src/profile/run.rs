//! Decodes the trace of a snapshot once, for all its cores.

use super::code::ExecutedCode;
use super::course::{Counted, Course};
use super::functions::Functions;
use super::latency::Exceptions;
use super::note::Note;
use super::parts::{sizes, sum};
use super::sink;
use super::stack::Listener;
use super::tree::{self, Tree};
use super::window::Window;
#[cfg(test)]
use super::{FunctionId, PartCount};
#[cfg(test)]
use armsnap_arch::quantity::Address;
use armsnap_arch::quantity::TraceId;
use armsnap_history::decode::{Decoding, Image, Programs, Totals as BufferTotals, decode_buffer};
use armsnap_snapshot::capture::{Capture, CaptureBuffer, CaptureSource};
use armsnap_snapshot::mapped;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::recording::Recording;
#[cfg(test)]
use armsnap_trace::flow::{LastInstruction, Range};
use std::collections::BTreeMap;
use std::io;

/// The number of bytes of trace decoded at once.
const PIECE: usize = 256 << 10;

/// The trace of one core, or of a source without a core, such as an STM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// The name of the core or of the source; both, if several sources trace the core.
    pub name: String,
    /// Index of the core in the snapshot.
    pub core: Option<usize>,
    /// Index of the source's device in the snapshot.
    pub source: usize,
    /// The source's name.
    pub source_name: String,
    /// Whether its trace follows a program.
    pub follows: bool,
}

/// Options for decoding a profile.
pub struct Options<'a> {
    /// Number of threads.
    pub jobs: usize,
    /// The wanted part of each track; `None` leaves the track out.
    pub window: &'a (dyn Fn(&Track) -> Option<Window> + 'a),
}

/// Sums over a track. If all of it is wanted, they equal those of `armsnap decode --stats`, except
/// that bytes without synchronisation count as one packet in each piece decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of its buffers, of all sources in them.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Straight lines executed.
    pub ranges: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// The number of instructions whose addresses are unknown (ETMv4 Q elements).
    pub unknown_path: u64,
    /// Elements, including straight lines.
    pub elements: u64,
    /// Cycles counted, if the trace counts any.
    pub cycles: Option<u64>,
    /// The last timestamp.
    pub last_time: Option<u64>,
    /// Events, and messages of ITM and STM.
    pub events: u64,
}

/// The profile of one core.
#[derive(Debug, Default)]
pub struct Profile {
    /// Sums.
    pub totals: Totals,
    /// The functions.
    pub functions: Functions,
    /// Executions by chains of callers.
    pub tree: Tree,
    /// How often code was executed.
    pub code: ExecutedCode,
    /// How long exceptions took.
    pub exceptions: Exceptions,
    /// The number of gaps of each kind.
    pub gaps: BTreeMap<&'static str, u64>,
    /// Whether execution did not reach the start of the window.
    pub unreached: bool,
    /// Whether code of EL1 and above was executed, and code of EL0; both false if levels are not
    /// traced.
    pub kernel_and_user: [bool; 2],
}

impl Profile {
    fn new(counted: Counted, bytes: u64, packets: u64) -> Self {
        let totals = Totals {
            bytes,
            packets,
            ranges: counted.ranges,
            instructions: counted.instructions,
            unknown_path: counted.unknown_path,
            elements: counted.elements + counted.ranges,
            cycles: counted.cycles,
            last_time: counted.last_time,
            events: counted.events,
        };
        Self {
            totals,
            functions: counted.functions,
            tree: counted.tree,
            code: counted.code,
            exceptions: counted.exceptions,
            gaps: counted.gaps,
            unreached: counted.unreached,
            kernel_and_user: counted.kernel_and_user,
        }
    }

    /// Returns the instructions and cycles that each function executed itself, according to the
    /// open calls, since code without a symbol may belong to several functions. If there were too
    /// many chains of callers, instructions are assigned by address instead.
    pub fn own(&self) -> Vec<(u64, u64)> {
        let mut own = self.tree.own(self.functions.iter().len());
        if self.tree.is_full() {
            own.iter_mut().for_each(|sum| sum.0 = 0);
            for (function, instructions) in self.code.by_function() {
                own[function.index()].0 = instructions;
            }
        }
        own
    }

    /// Returns notes on what is missing: everything, if the window was not reached; calls, if there
    /// were too many chains of callers.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.unreached {
            notes.push(Note::Unreached);
        }
        if self.tree.is_full() {
            notes.push(Note::ManyChains { limit: tree::MOST });
        }
        notes
    }
}

#[cfg(test)]
impl Profile {
    /// A profile with more chains of callers than are kept, and with code that none of them
    /// executed: four instructions, three times.
    pub(crate) fn crowded() -> Self {
        let mut profile = Self::default();
        for _ in 0..=tree::MOST {
            profile.tree.root(FunctionId::UNKNOWN);
        }
        let range = Range::a64(0x1000, 0x1010, LastInstruction::RETURN);
        let part = PartCount {
            range,
            last_at: Address(0x100c),
            function: FunctionId::UNKNOWN,
            count: 3,
        };
        profile.code.parts.insert((0x1000, 0x1010, 0), part);
        profile
    }
}

/// Returns the tracks of a capture, in the order of its buffers.
pub fn tracks(loaded: &OpenSnapshot, capture: &Capture) -> Vec<Track> {
    let mut tracks: Vec<Track> = Vec::new();
    for source in capture.buffers.iter().flat_map(|buffer| &buffer.sources) {
        if tracks.iter().any(|track| track.source == source.device) {
            continue;
        }
        let follows = source.protocol.needs_core();
        let core = source.core.filter(|_| follows);
        let name = match core {
            Some(core) => loaded.snapshot.devices[core].name.clone(),
            None => source.name.clone(),
        };
        tracks.push(Track {
            name,
            core,
            source: source.device,
            source_name: source.name.clone(),
            follows,
        });
    }
    distinguish(&mut tracks);
    tracks
}

/// Adds the source to the names of cores that several sources trace.
fn distinguish(tracks: &mut [Track]) {
    let names: Vec<String> = tracks.iter().map(|track| track.name.clone()).collect();
    for track in tracks {
        if names.iter().filter(|name| **name == track.name).count() > 1 {
            track.name = format!("{} ({})", track.name, track.source_name);
        }
    }
}

/// A track while it is being decoded.
pub(super) struct Running<'a, L> {
    pub track: Track,
    pub course: Course<'a, L>,
    pub buffers: usize,
    pub bytes: u64,
    pub packets: u64,
}

impl<'a, L: Listener> Running<'a, L> {
    /// Starts the tracks that are wanted.
    pub(super) fn all(
        loaded: &OpenSnapshot,
        capture: &Capture,
        programs: &'a Programs,
        window: &dyn Fn(&Track) -> Option<Window>,
        mut listener: impl FnMut(&Track) -> L,
    ) -> Vec<Self> {
        let alone = Recording::of(&loaded.snapshot).linux_program;
        let tracks = tracks(loaded, capture).into_iter();
        let wanted = tracks.filter_map(|track| Some((window(&track)?, track)));
        wanted
            .map(|(window, track)| {
                let image = Image(track.core.and_then(|core| programs.memory(core)));
                let symbols = track.core.and_then(|core| programs.symbols(core));
                let listener = listener(&track);
                Self {
                    course: Course::new(image, symbols, window, alone, listener),
                    track,
                    buffers: 0,
                    bytes: 0,
                    packets: 0,
                }
            })
            .collect()
    }

    /// A buffer starts.
    pub(super) fn start_buffer(&mut self, buffer: &CaptureBuffer) {
        self.course.start_buffer(self.buffers);
        self.buffers += 1;
        self.bytes += buffer.bytes();
    }

    /// Ends the trace.
    pub(super) fn finish(self) -> (Track, Profile, L) {
        let (listener, counted) = self.course.finish();
        let profile = Profile::new(counted, self.bytes, self.packets);
        (self.track, profile, listener)
    }
}

/// Decodes a capture. `listener` creates a listener for each wanted track; `progress` receives the
/// number of bytes done, and `finished`, at the end of a buffer, the buffer's index with the bytes
/// of each source.
///
/// # Errors
///
/// If a file was truncated while being read.
pub fn profile<L: Listener + Send>(
    loaded: &OpenSnapshot,
    capture: &Capture,
    programs: &Programs,
    options: &Options<'_>,
    listener: impl FnMut(&Track) -> L,
    mut progress: impl FnMut(u64) + Send,
    mut finished: impl FnMut(usize, Option<&BufferTotals>),
) -> io::Result<Vec<(Track, Profile, L)>> {
    let mut running = Running::all(loaded, capture, programs, options.window, listener);
    let mut done = 0;
    for (index, buffer) in capture.buffers.iter().enumerate() {
        let mut in_buffer: Vec<(&CaptureSource, &mut Running<'_, L>)> = Vec::new();
        for one in &mut running {
            let mut sources = buffer.sources.iter();
            if let Some(source) = sources.find(|source| source.device == one.track.source) {
                in_buffer.push((source, one));
            }
        }
        let jobs = options.jobs;
        let mut progress = |bytes| progress(done + bytes);
        let whole = |(_, one): &(_, &mut Running<'_, L>)| one.course.is_whole();
        let totals = match &mut *in_buffer {
            [] => None,
            sources if L::SUMS && buffer.bytes() > 0 && sources.iter().all(whole) => {
                let threads = (jobs, sizes(buffer.bytes(), jobs));
                Some(sum(buffer, sources, programs, threads, &mut progress)?)
            }
            sources => Some(decode(buffer, sources, programs, jobs, &mut progress)?),
        };
        finished(index, totals.as_ref());
        for part in &buffer.parts {
            part.release(0..part.len());
        }
        done += buffer.bytes();
    }
    Ok(running.into_iter().map(Running::finish).collect())
}

/// Decodes a buffer on several threads, each with some of its sources.
pub(super) fn decode<L: Listener + Send>(
    buffer: &CaptureBuffer,
    sources: &mut [(&CaptureSource, &mut Running<'_, L>)],
    programs: &Programs,
    jobs: usize,
    progress: &mut (dyn FnMut(u64) + Send),
) -> io::Result<BufferTotals> {
    let size = sources.len().div_ceil(jobs.max(1));
    let mut groups = sources.chunks_mut(size);
    let first = groups.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let others: Vec<_> = groups
            .map(|group| scope.spawn(move || decode_group(buffer, group, programs, &mut |_| {})))
            .collect();
        let mut all = decode_group(buffer, first, programs, progress);
        for other in others {
            let result = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all = all.and_then(|totals| result.map(|_| totals));
        }
        all
    })
}

fn decode_group<L: Listener>(
    buffer: &CaptureBuffer,
    sources: &mut [(&CaptureSource, &mut Running<'_, L>)],
    programs: &Programs,
    progress: &mut dyn FnMut(u64),
) -> io::Result<BufferTotals> {
    let mut packets = Vec::new();
    let totals = {
        let mut decoders: Vec<(TraceId, Box<dyn Decoding<()> + '_>)> = Vec::new();
        for (source, running) in &mut *sources {
            running.start_buffer(buffer);
            let image = Image(running.track.core.and_then(|core| programs.memory(core)));
            decoders.push((
                source.trace_id,
                sink::decoder(source, image, &mut running.course),
            ));
        }
        let mut done = 0;
        let totals = decode_buffer(buffer, &mut decoders, PIECE, |index, ()| {
            if mapped::is_cut() {
                mapped::whole()?;
            }
            if index == 0 {
                done += PIECE as u64;
                progress(done.min(buffer.bytes()));
            }
            Ok::<_, io::Error>(())
        })?;
        packets.extend(decoders.iter().map(|(_, decoder)| decoder.packets()));
        totals
    };
    for ((_, running), packets) in sources.iter_mut().zip(packets) {
        running.packets += packets;
    }
    Ok(totals)
}
