//! Assigns pieces of trace to threads or CPUs, and cuts them by thread.
//!
//! In a recording of a program, the AUX record names the thread of its piece. In a recording of
//! whole CPUs, or if trace of several CPUs is in one buffer, the thread is, in this order: the one
//! whose context is traced; the only one that ran in the time of the AUX record, according to the
//! kernel's records of switches; between two timestamps, the only one that ran between them.
//! Otherwise the piece belongs to the history of its CPU.

use super::aux_traces::AuxTrace;
use super::bytes::Bytes;
use super::contexts::{self, Contents, ThreadRegister};
use super::etm_info::Unit;
use super::recording::Recording;
use super::trace_ids::TraceIds;
use super::units::{Units, VIRTUAL, source_device};
use crate::import::note::PerfNote;
use armsnap_snapshot::capture::OnlyContext;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The maximum number of timestamp ranges of all threads together.
const MAX_RANGES: usize = 1 << 14;
/// The maximum number of threads whose contexts are traced.
const MAX_THREADS: usize = 1 << 16;

/// The trace of a thread, or of a CPU, in a piece.
#[derive(Clone)]
pub struct Slice<'p> {
    /// The piece.
    pub piece: &'p AuxTrace,
    /// The trace unit.
    pub unit: &'p Unit,
    /// Its trace ID.
    pub id: u8,
    /// The thread; `None` for the CPU.
    pub tid: Option<u32>,
    /// The process image.
    pub image: Option<usize>,
    /// The context of the thread, if the piece also contains other threads.
    pub only: Option<OnlyContext>,
}

/// The units in each piece, with their trace IDs.
type UnitsOf<'a> = Vec<Vec<(&'a Unit, u8)>>;

/// The trace of each thread, or of each CPU if `by_cpu`, in each piece, and notes.
pub fn slices<'p>(
    recording: &'p Recording,
    bytes: &'p Bytes,
    units_of: &Units<'p>,
    all: &'p [AuxTrace],
    by_cpu: bool,
) -> (Vec<Slice<'p>>, Vec<PerfNote>) {
    let mut looked = TraceIds::default();
    let units = all.iter();
    let units = units.map(|piece| units_of.of_piece(piece, bytes, &mut looked));
    let units: UnitsOf<'_> = units.collect();
    let context = Context { recording, bytes };
    if by_cpu || !context.is_needed(all, &units) {
        let slices = all.iter().zip(units).flat_map(|(piece, units)| {
            units.into_iter().map(move |(unit, id)| Slice {
                piece,
                unit,
                id,
                tid: piece.tid.filter(|_| !by_cpu),
                image: piece.image,
                only: None,
            })
        });
        return (slices.collect(), Vec::new());
    }
    let mut threads = Threads::new(context);
    threads.add_all(all, units);
    threads.end()
}

/// The recording whose trace is examined.
#[derive(Clone, Copy)]
struct Context<'p> {
    recording: &'p Recording,
    bytes: &'p Bytes,
}

impl Context<'_> {
    fn contents(
        &self,
        piece: &AuxTrace,
        (unit, id): (&Unit, u8),
        what: contexts::ContextQuery,
    ) -> Contents {
        let device = source_device(unit, id);
        contexts::contents((unit, &device), id, piece, self.bytes, what)
    }

    /// Whether a piece may contain trace of several threads: if the recording is of whole CPUs, if
    /// trace of several CPUs is in one buffer, or if the records name other threads than the trace.
    fn is_needed(&self, all: &[AuxTrace], units: &UnitsOf<'_>) -> bool {
        if self.recording.cpu_wide {
            return true;
        }
        all.iter().zip(units).any(|(piece, units)| {
            if units.len() > 1 || piece.tid.is_none() {
                return true;
            }
            let Some(&unit) = units.first() else {
                return false;
            };
            let first = self.contents(piece, unit, contexts::ContextQuery::First);
            // Thread numbers inside a container differ from those that the kernel writes.
            let known = |tid: u32| self.recording.processes.of_thread(tid, None).is_some();
            let mut threads = first.threads.into_iter();
            threads.any(|tid| Some(tid) != piece.tid && known(tid))
        })
    }
}

/// Cuts pieces by thread.
struct Threads<'p> {
    context: Context<'p>,
    out: Vec<Slice<'p>>,
    notes: Vec<PerfNote>,
    /// The timestamp ranges by CPU, trace ID and thread.
    ranges: BTreeMap<(u32, u8, u32), Vec<Range<u64>>>,
    ranges_left: usize,
    /// The CPUs with trace that is not cut.
    whole: BTreeSet<u32>,
    /// The threads whose contexts are traced.
    traced: BTreeSet<u32>,
    /// Whether there are more than the maximum number of them.
    too_many: bool,
}

impl<'p> Threads<'p> {
    const fn new(context: Context<'p>) -> Self {
        Self {
            context,
            out: Vec::new(),
            notes: Vec::new(),
            ranges: BTreeMap::new(),
            ranges_left: MAX_RANGES,
            whole: BTreeSet::new(),
            traced: BTreeSet::new(),
            too_many: false,
        }
    }

    fn add_all(&mut self, all: &'p [AuxTrace], units: UnitsOf<'p>) {
        let context = self.context;
        let contents: Vec<Vec<Contents>> = all
            .iter()
            .zip(&units)
            .map(|(piece, units)| {
                let units = units.iter();
                let contents = units
                    .map(|unit| context.contents(piece, *unit, contexts::ContextQuery::Threads));
                contents.collect()
            })
            .collect();
        // 0 is the idle thread, or the value of the register in all threads.
        let mut found = contents.iter().flatten().flat_map(|one| &one.threads);
        let numbered = found.any(|&tid| tid != 0);
        if !numbered {
            self.notes.push(PerfNote::NoThreadNumbers);
        }
        let mut previous: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for ((piece, units), contents) in all.iter().zip(units).zip(contents) {
            let since = piece.time.and_then(|time| previous.insert(piece.cpu, time));
            let is_alone = units.len() == 1;
            for ((unit, id), contents) in units.into_iter().zip(contents) {
                let register = ThreadRegister::of(unit).filter(|_| numbered);
                let slice = Slice {
                    piece,
                    unit,
                    id,
                    tid: None,
                    image: piece.image,
                    only: None,
                };
                match register {
                    Some(register) if !contents.threads.is_empty() => {
                        let threads = contents.threads.into_iter();
                        let threads: Vec<u32> = threads.filter(|tid| self.admits(*tid)).collect();
                        let threads = threads.into_iter();
                        let slices = threads.map(|tid| Slice {
                            only: Some(register.only(tid)),
                            ..self.of_thread(&slice, tid)
                        });
                        let slices: Vec<_> = slices.collect();
                        self.out.extend(slices);
                    }
                    Some(_) if !contents.executed => {}
                    _ => self.add(slice, since, is_alone),
                }
            }
        }
    }

    /// Whether the trace of a thread is used.
    fn admits(&mut self, tid: u32) -> bool {
        let room = self.traced.len() < MAX_THREADS;
        let is_used = self.traced.contains(&tid) || room && self.traced.insert(tid);
        self.too_many |= !is_used;
        is_used
    }

    fn of_thread(&self, slice: &Slice<'p>, tid: u32) -> Slice<'p> {
        let processes = &self.context.recording.processes;
        Slice {
            tid: Some(tid),
            image: processes.of_thread(tid, slice.piece.time),
            ..slice.clone()
        }
    }

    /// Adds trace without contexts; `since` is the time of the preceding AUX record.
    fn add(&mut self, slice: Slice<'p>, since: Option<u64>, is_alone: bool) {
        let recording = self.context.recording;
        let (piece, cpu) = (slice.piece, slice.unit.cpu);
        let switches = &recording.switches;
        if let Some(time) = piece.time
            && let Some(tid) = switches.only_thread(cpu, since, time)
        {
            let slice = self.of_thread(&slice, tid);
            self.out.push(slice);
            return;
        }
        let is_own = is_alone || piece.cpu == Some(cpu);
        if !recording.cpu_wide && is_own && piece.tid.is_some() {
            self.out.push(Slice {
                tid: piece.tid,
                ..slice
            });
            return;
        }
        let ranges = self.timed(&slice);
        if ranges.is_empty() {
            self.whole.insert(cpu);
            self.out.push(slice);
            return;
        }
        for (tid, ranges) in ranges {
            let all = self.ranges.entry((cpu, slice.id, tid)).or_default();
            all.extend(ranges);
            let of_thread = self.of_thread(&slice, tid);
            self.out.push(Slice {
                // The ranges of all pieces of the thread are set at the end.
                only: Some(OnlyContext::Timestamps([].into())),
                ..of_thread
            });
        }
    }

    /// The timestamp ranges in which only one thread ran, by thread.
    fn timed(&mut self, slice: &Slice<'p>) -> BTreeMap<u32, Vec<Range<u64>>> {
        let mut out: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
        let recording = self.context.recording;
        let cpu = slice.unit.cpu;
        let clock = recording.clock;
        let clock = clock.filter(|_| slice.unit.clock == Some(VIRTUAL));
        let Some(clock) = clock.filter(|_| recording.switches.are_known(cpu)) else {
            return out;
        };
        let unit = (slice.unit, slice.id);
        let times = contexts::ContextQuery::Timestamps;
        let found = self.context.contents(slice.piece, unit, times);
        let mut count = 0;
        for pair in found.timestamps.windows(2) {
            let &[Some(start), Some(end)] = pair else {
                continue;
            };
            if start >= end {
                continue;
            }
            let time = |tick| clock.nanoseconds(tick);
            let only = recording
                .switches
                .only_thread(cpu, Some(time(start)), time(end));
            let Some(tid) = only else {
                continue;
            };
            let ranges = out.entry(tid).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => {
                    count += 1;
                    ranges.push(start..end);
                }
            }
        }
        if count > self.ranges_left {
            return BTreeMap::new();
        }
        self.ranges_left -= count;
        out
    }

    fn end(mut self) -> (Vec<Slice<'p>>, Vec<PerfNote>) {
        for slice in &mut self.out {
            if let (Some(tid), Some(OnlyContext::Timestamps(only))) = (slice.tid, &mut slice.only)
                && let Some(ranges) = self.ranges.get(&(slice.unit.cpu, slice.id, tid))
            {
                *only = ranges.as_slice().into();
            }
        }
        if !self.ranges.is_empty() {
            let cpus = self.ranges.keys().map(|(cpu, ..)| *cpu).collect();
            self.notes.push(PerfNote::DividedByTime { cpus });
        }
        if self.too_many {
            let limit = MAX_THREADS;
            self.notes.push(PerfNote::ManyThreads { limit });
        }
        if !self.whole.is_empty() {
            self.notes.push(PerfNote::NotDivided { cpus: self.whole });
        }
        (self.out, self.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_all_pieces_together_are_limited() {
        let (recording, bytes) = (Recording::default(), Bytes::default());
        let mut threads = Threads::new(Context {
            recording: &recording,
            bytes: &bytes,
        });
        let most = MAX_THREADS as u32;
        assert!((0..most).all(|tid| threads.admits(tid)));
        assert!(!threads.too_many && !threads.admits(most) && threads.admits(5));
        let limit = MAX_THREADS;
        assert_eq!(threads.end().1, [PerfNote::ManyThreads { limit }]);
    }
}
