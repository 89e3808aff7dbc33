//! The trace of a recording, cut where the kernel started and stopped it.

use super::file::SampleId;
use super::recording::{AuxRecord, Recording, Stored, aux_flags};
use crate::import::note::{PerfNote, TraceOf};
use armsnap_snapshot::budget::Budget;
use std::collections::BTreeMap;
use std::ops::Range;

/// The average number of extents that are examined for each record, and the minimum for all
/// records.
const EXTENTS_PER_RECORD: u64 = 16;
const LEAST_EXTENTS: u64 = 1 << 16;

/// The size of a formatter frame in bytes (ARM IHI 0029, "Formatter").
const FRAME: u64 = 16;

/// The buffer of a CPU or of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Queue {
    Cpu(u32),
    Thread(u32),
}

impl Queue {
    const fn of(stored: &Stored) -> Self {
        match stored.cpu {
            Some(cpu) => Self::Cpu(cpu),
            None => Self::Thread(stored.tid),
        }
    }
}

/// The trace of one AUX record, without gaps, from a start of the trace unit to its stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxTrace {
    /// The CPU of its buffer, or the CPU on which it ended.
    pub cpu: Option<u32>,
    /// Whether its buffer is that of a CPU.
    pub of_cpu: bool,
    /// The thread at its end.
    pub tid: Option<u32>,
    /// The process image at its end.
    pub image: Option<usize>,
    /// The time of its end.
    pub time: Option<u64>,
    /// The ranges of its bytes in the file.
    pub parts: Vec<Range<usize>>,
    /// Whether it contains the bytes of one trace unit without formatter frames.
    pub raw: bool,
}

impl AuxTrace {
    /// Its number of bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// How often flags and faults occurred in AUX records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flagged {
    truncated: u64,
    partial: u64,
    collision: u64,
    format: u64,
    empty: u64,
    lost_bytes: u64,
    lost_records: u64,
    overwritten: u64,
    doubled: u64,
}

/// The pieces in order of time, and notes.
pub fn aux_traces(recording: &Recording) -> (Vec<AuxTrace>, Vec<PerfNote>) {
    let queues = queues(&recording.stored);
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let mut flagged = Flagged::default();
    // The end of the used part of each queue: the offsets of AUX records only increase.
    let mut used: BTreeMap<Queue, u64> = BTreeMap::new();
    let mut used_bytes: u64 = 0;
    // Small extents may contain no start of a frame, so that each record could pass over all of
    // them.
    let work = Budget::of(
        recording.stored.len() + recording.aux.len(),
        EXTENTS_PER_RECORD,
        LEAST_EXTENTS,
    );
    for aux in &recording.aux {
        flagged.count(aux);
        if aux.size == 0 {
            continue;
        }
        let found = queue_of(&queues, &aux.sample);
        let Some((&queue, extents)) = found.or_else(|| saved_next(&queues, recording, aux)) else {
            flagged.lost_bytes = flagged.lost_bytes.saturating_add(aux.size);
            flagged.lost_records += 1;
            continue;
        };
        // In snapshot mode, the offset is that of the end, and only the newest trace is kept.
        let is_newest = aux.flags & aux_flags::OVERWRITE != 0;
        let begin = match is_newest {
            true => aux.offset.saturating_sub(aux.size),
            false => aux.offset,
        };
        let end = begin.saturating_add(aux.size);
        let raw = aux.flags & aux_flags::FORMAT == aux_flags::FORMAT_RAW;
        let frames = Frames {
            begin,
            size: if raw { 1 } else { FRAME },
        };
        let free = used.entry(queue).or_default();
        flagged.doubled += u64::from(begin < *free);
        let begin = begin.max(*free);
        let parts = parts(extents, begin, end, frames, &work);
        // For a record without a thread, use the thread of its buffer.
        let (tid, image) = match (queue, aux.sample.tid) {
            (Queue::Thread(tid), None) => {
                let image = recording.processes.of_thread(tid, aux.sample.time);
                (Some(tid), image)
            }
            (_, tid) => (tid, aux.image),
        };
        let piece = AuxTrace {
            cpu: match queue {
                Queue::Cpu(cpu) => Some(cpu),
                Queue::Thread(_) => aux.sample.cpu,
            },
            of_cpu: matches!(queue, Queue::Cpu(_)),
            tid,
            image,
            time: aux.sample.time,
            parts,
            raw,
        };
        let missing = end.saturating_sub(begin).saturating_sub(piece.bytes());
        let counted = match is_newest {
            true => &mut flagged.overwritten,
            false => &mut flagged.lost_bytes,
        };
        *counted = counted.saturating_add(missing);
        flagged.lost_records += u64::from(missing > 0 && !is_newest);
        if piece.bytes() > 0 {
            *free = end.max(*free);
            used_bytes += piece.bytes();
            out.push(piece);
        }
    }
    notes.extend(flagged.notes());
    let mut undescribed = 0;
    for (queue, extents) in &queues {
        let bytes: u64 = extents.iter().map(|extent| extent.bytes.len() as u64).sum();
        if used.contains_key(queue) {
            undescribed += bytes;
            continue;
        }
        let (cpu, tid) = match queue {
            Queue::Cpu(cpu) => (Some(*cpu), None),
            Queue::Thread(tid) => (None, Some(*tid)),
        };
        let of = match queue {
            Queue::Cpu(cpu) => TraceOf::Cpu(*cpu),
            Queue::Thread(tid) => TraceOf::Thread(*tid),
        };
        notes.push(PerfNote::UndescribedBuffer { of, bytes });
        out.push(AuxTrace {
            cpu,
            of_cpu: cpu.is_some(),
            tid,
            image: tid.and_then(|tid| recording.processes.of_thread(tid, None)),
            time: None,
            parts: extents.iter().map(|extent| extent.bytes.clone()).collect(),
            raw: false,
        });
    }
    // Each record is padded to a multiple of 8 bytes.
    let padding = 7 * recording.stored.len() as u64;
    if undescribed > used_bytes + padding {
        let bytes = undescribed - used_bytes;
        notes.push(PerfNote::Undescribed { bytes });
    }
    (out, notes)
}

/// Bytes of a buffer that are in the file.
#[derive(Debug)]
struct FileRange {
    /// The offset of the first byte in the buffer.
    offset: u64,
    bytes: Range<usize>,
}

impl FileRange {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }
}

/// The bytes of each buffer by offset, without overlaps: if two records overlap, the one with the
/// lower offset takes precedence.
fn queues(stored: &[Stored]) -> BTreeMap<Queue, Vec<FileRange>> {
    let mut stored: Vec<&Stored> = stored.iter().collect();
    stored.sort_by_key(|stored| stored.offset);
    let mut out: BTreeMap<Queue, Vec<FileRange>> = BTreeMap::new();
    for stored in stored {
        let queue = out.entry(Queue::of(stored)).or_default();
        let free = queue.last().map_or(0, FileRange::end);
        let known = usize::try_from(free.saturating_sub(stored.offset)).unwrap_or(usize::MAX);
        let begin = stored.bytes.start.saturating_add(known);
        if begin < stored.bytes.end {
            queue.push(FileRange {
                offset: stored.offset.max(free),
                bytes: begin..stored.bytes.end,
            });
        }
    }
    out.retain(|_, extents| !extents.is_empty());
    out
}

/// The buffer to which an AUX record belongs.
fn queue_of<'q>(
    queues: &'q BTreeMap<Queue, Vec<FileRange>>,
    sample: &SampleId,
) -> Option<(&'q Queue, &'q Vec<FileRange>)> {
    let by = |queue: Queue| queues.get_key_value(&queue);
    let by_cpu = sample.cpu.and_then(|cpu| by(Queue::Cpu(cpu)));
    let by_tid = || sample.tid.and_then(|tid| by(Queue::Thread(tid)));
    // In a file with a single buffer, records need not say where they come from.
    let only = || {
        queues
            .iter()
            .next()
            .filter(|_| queues.len() == 1 && sample.cpu.is_none())
    };
    by_cpu.or_else(by_tid).or_else(only)
}

/// The maximum number of AUXTRACE records that are examined for an AUX record: more than any
/// recording has buffers.
const MAX_LOOKED_AT: usize = 1024;

/// The buffer of a record that names neither a thread nor a CPU: perf saves the bytes of a buffer
/// after its records.
fn saved_next<'q>(
    queues: &'q BTreeMap<Queue, Vec<FileRange>>,
    recording: &Recording,
    aux: &AuxRecord,
) -> Option<(&'q Queue, &'q Vec<FileRange>)> {
    if aux.sample.tid.is_some() || aux.sample.cpu.is_some() {
        return None;
    }
    let stored = &recording.stored;
    let after = stored.partition_point(|stored| stored.bytes.start <= aux.at);
    let last = match aux.flags & aux_flags::OVERWRITE != 0 {
        true => aux.offset.saturating_sub(1),
        false => aux.offset,
    };
    let mut next = stored[after..].iter().take(MAX_LOOKED_AT);
    let found = next.find(|stored| {
        let inside = last.checked_sub(stored.offset);
        inside.is_some_and(|inside| inside < stored.bytes.len() as u64)
    })?;
    queues.get_key_value(&Queue::of(found))
}

/// The division of the bytes of an AUX record into frames.
#[derive(Clone, Copy, Debug)]
struct Frames {
    /// The offset of the first frame in the buffer.
    begin: u64,
    size: u64,
}

impl Frames {
    /// The first start of a frame at or after an offset.
    const fn next(self, offset: u64) -> u64 {
        let within = offset.saturating_sub(self.begin) % self.size;
        match within {
            0 => offset,
            _ => offset.saturating_add(self.size - within),
        }
    }
}

/// The ranges in the file of the offsets `begin..end` of a buffer, from the first frame up to the
/// first hole: bytes after a hole would be decoded as if they followed the bytes before it.
fn parts(
    extents: &[FileRange],
    begin: u64,
    end: u64,
    frames: Frames,
    work: &Budget,
) -> Vec<Range<usize>> {
    let (mut out, mut at) = (Vec::new(), begin);
    let first = extents.partition_point(|extent| extent.end() <= begin);
    for extent in &extents[first..] {
        if extent.offset > at && !out.is_empty() || !work.take(1) {
            break;
        }
        let mut from = at.max(extent.offset);
        if out.is_empty() {
            from = frames.next(from);
        }
        let to = end.min(extent.end());
        if from < to {
            let start = extent.bytes.start + (from - extent.offset) as usize;
            out.push(start..start + (to - from) as usize);
            at = to;
        }
        if extent.end() >= end {
            break;
        }
    }
    out
}

/// A number of records, and the note on them.
type Counted = (u64, fn(u64) -> PerfNote);

impl Flagged {
    fn count(&mut self, aux: &AuxRecord) {
        let has = |flag| u64::from(aux.flags & flag != 0);
        self.truncated += has(aux_flags::TRUNCATED);
        self.partial += has(aux_flags::PARTIAL);
        self.collision += has(aux_flags::COLLISION);
        self.format += u64::from(aux.flags & aux_flags::FORMAT > aux_flags::FORMAT_RAW);
        self.empty += u64::from(aux.size == 0);
    }

    fn notes(&self) -> impl Iterator<Item = PerfNote> {
        let bytes = self.lost_bytes;
        let all: [Counted; 6] = [
            (self.truncated, |count| PerfNote::AuxTruncated { count }),
            (self.partial, |count| PerfNote::AuxPartial { count }),
            (self.collision, |count| PerfNote::AuxCollision { count }),
            (self.format, |count| PerfNote::AuxFormat { count }),
            (self.empty, |count| PerfNote::AuxEmpty { count }),
            (self.doubled, |count| PerfNote::AuxRepeated { count }),
        ];
        let flagged = all.into_iter().filter(|(count, _)| *count > 0);
        let flagged = flagged.map(|(count, note)| note(count));
        let (count, overwritten) = (self.lost_records, self.overwritten);
        let lost = (count > 0).then_some(PerfNote::AuxLost { count, bytes });
        let overwritten = (overwritten > 0).then_some(PerfNote::Overwritten { bytes: overwritten });
        flagged.chain(lost).chain(overwritten)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use super::*;

    fn stored(offset: u64, bytes: Range<usize>) -> Stored {
        Stored {
            offset,
            cpu: Some(0),
            tid: 0,
            bytes,
        }
    }

    fn aux(offset: u64, size: u64, flags: u64) -> AuxRecord {
        let sample = SampleId {
            cpu: Some(0),
            tid: Some(5),
            ..SampleId::default()
        };
        AuxRecord {
            offset,
            size,
            flags,
            sample,
            image: None,
            at: 0,
        }
    }

    fn of(stored: Vec<Stored>, aux: Vec<AuxRecord>) -> (Vec<Vec<Range<usize>>>, Vec<PerfNote>) {
        let recording = Recording {
            stored,
            aux,
            ..Recording::default()
        };
        let (aux_traces, notes) = aux_traces(&recording);
        (
            aux_traces.into_iter().map(|piece| piece.parts).collect(),
            notes,
        )
    }

    #[test]
    fn a_piece_may_span_records_and_a_record_may_hold_pieces() {
        let both = vec![stored(0, 100..148), stored(48, 200..296)];
        let (aux_traces, notes) = of(both, vec![aux(0, 16, 0), aux(16, 48, 1), aux(64, 80, 0)]);
        assert_eq!(aux_traces[0], [100..116]);
        assert_eq!(aux_traces[1], [116..148, 200..216]);
        assert_eq!(aux_traces[2], [216..296]);
        assert_eq!(notes, [PerfNote::AuxTruncated { count: 1 }]);
    }

    #[test]
    fn missing_and_doubled_trace_is_reported() {
        let (aux_traces, notes) = of(vec![stored(0, 0..32)], vec![aux(0, 64, 0), aux(16, 16, 0)]);
        assert_eq!(aux_traces, [vec![0..32]]);
        let (count, bytes) = (1, 32);
        let repeated = PerfNote::AuxRepeated { count };
        assert_eq!(notes, [repeated, PerfNote::AuxLost { count, bytes }]);
        assert!(notes[1].to_string().contains("with 32 bytes"));
        let (aux_traces, _) = of(vec![stored(0x100, 0..32)], vec![aux(0x120, 32, 2)]);
        assert_eq!(
            aux_traces,
            [vec![0..32]],
            "in snapshot mode the offset is that of the end"
        );
    }

    #[test]
    fn overlaps_and_holes_of_a_buffer() {
        let overlapping = vec![stored(0, 0..32), stored(16, 100..132), stored(20, 200..204)];
        let (aux_traces, _) = of(overlapping, vec![aux(0, 48, 0)]);
        assert_eq!(
            aux_traces,
            [vec![0..32, 116..132]],
            "bytes of an offset are used once"
        );
        let hole = vec![stored(0, 0..32), stored(48, 100..132), stored(80, 200..232)];
        let (aux_traces, notes) = of(hole, vec![aux(0, 80, 0), aux(80, 32, 0)]);
        assert_eq!(aux_traces, [vec![0..32], vec![200..232]]);
        let text = notes[0].to_string();
        assert!(text.contains("with 48 bytes"), "{text}");
        let within = vec![aux(0, 64, 0), aux(16, 16, 0), aux(64, 16, 0)];
        let (aux_traces, _) = of(vec![stored(0, 0..80)], within);
        assert_eq!(aux_traces, [vec![0..64], vec![64..80]]);
        let empty = vec![stored(0, 7..7), stored(0, 100..116)];
        assert_eq!(of(empty, vec![aux(0, 16, 0)]).0, [vec![100..116]]);
    }

    #[test]
    fn a_snapshot_begins_with_a_whole_frame() {
        let overwrite = |offset, size, format| aux(offset, size, aux_flags::OVERWRITE | format);
        // Nothing is left of the first record, and some bytes of the second one, whose frames begin
        // at 8.
        let records = |format| vec![overwrite(8, 8, format), overwrite(88, 80, format)];
        let (aux_traces, notes) = of(vec![stored(32, 100..172)], records(0));
        assert_eq!(aux_traces, [vec![108..156]]);
        assert_eq!(notes[0], PerfNote::Overwritten { bytes: 40 });
        let (aux_traces, _) = of(vec![stored(32, 100..172)], records(aux_flags::FORMAT_RAW));
        assert_eq!(aux_traces, [vec![100..156]]);
        let small = vec![stored(32, 100..104), stored(36, 200..252)];
        assert_eq!(of(small, records(0)).0, [vec![204..252]]);
    }

    /// Extents smaller than a frame, and records that span all of them.
    #[test]
    fn small_extents_are_not_looked_at_for_each_record() {
        let count = 40_000_u64;
        let small = (0..count).map(|number| {
            let begin = 8 * number as usize;
            stored(8 + 16 * number, begin..begin + 8)
        });
        let records = (0..count).map(|_| aux(0, 1 << 62, 0)).collect();
        let start = std::time::Instant::now();
        let (aux_traces, notes) = of(small.collect(), records);
        assert!(aux_traces.is_empty() && !notes.is_empty());
        assert!(start.elapsed().as_secs() < 10);
    }

    #[test]
    fn without_aux_records_a_buffer_is_one_piece() {
        let (aux_traces, notes) = of(vec![stored(0, 0..32), stored(32, 64..80)], Vec::new());
        assert_eq!(aux_traces, [vec![0..32, 64..80]]);
        let (of, bytes) = (TraceOf::Cpu(0), 48);
        assert_eq!(notes, [PerfNote::UndescribedBuffer { of, bytes }]);
    }
}
