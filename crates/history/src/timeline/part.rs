//! A decoded part of a segment: runs, gaps, exceptions and marks in order, indexed by place.
//!
//! An entry takes 16 bytes; a straight line is stored once, however often it ran.

use super::entry::{Entry, Gap};
use super::stretch::HistorySink;
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{Context, Exception, Mark, TraceOnReason};
use armsnap_trace::flow::{
    BlockId, Blocks, FlowSink, Gap as FlowGap, InstructionKind, QRange, Range,
};
use serde::{Deserialize, Serialize};

/// The state carried by the trace at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TraceState {
    pub context: Option<Context>,
    pub time: Option<u64>,
    /// Since the start of the segment.
    pub cycles: Option<u64>,
    /// Whether the last place is a gap that absorbs a further loss of trace.
    pub open: bool,
    /// The exception taken after the last place. A state with one is not stored.
    #[serde(skip)]
    pub exception: Option<Exception>,
    /// Whether a program is traced without its kernel.
    pub alone: bool,
}

/// The number of the exception with which a core enters debug state, in ETMv4, PTM and ETMv3 of
/// A-profile cores (IHI 0064H 6.4.8 "Exception packet"; IHI 0035B 4.5.4; IHI 0014Q 7.3.5).
const DEBUG_HALT: u16 = 1;

impl TraceState {
    /// Whether tracing restarts after the kernel returned to the program: no trace of the program
    /// is lost there.
    fn is_back(&self) -> bool {
        let taken = self.exception.filter(|_| self.alone && !self.open);
        taken.is_some_and(|exception| exception.number != DEBUG_HALT)
    }

    /// Applies a mark. Returns the gap if the mark is a gap of its own.
    pub fn mark(&mut self, mark: &Mark) -> Option<Gap> {
        match mark {
            Mark::Cycles(cycles) => self.count(*cycles),
            Mark::Timestamp(time) => self.time = Some(*time),
            Mark::Context(context) => self.context = Some(*context),
            Mark::NoSync(reason) => return self.lose(Gap::NoSync(*reason)),
            Mark::TraceOn(TraceOnReason::BeginOrFilter) if self.is_back() => {}
            Mark::TraceOn(reason) => return self.lose(Gap::TraceOff(*reason)),
            Mark::ExceptionReturn
            | Mark::Event(_)
            | Mark::Trigger
            | Mark::Marker(_)
            | Mark::Transaction(_)
            | Mark::Instrumentation { .. }
            | Mark::Data { .. }
            | Mark::Stm(_)
            | Mark::Itm(_)
            | Mark::End => {}
        }
        None
    }

    /// Passes a place; `open` if it is a gap that absorbs a further loss.
    pub fn pass(&mut self, open: bool) {
        self.open = open;
        self.exception = None;
    }

    /// Fills missing values from the state before. Some values are traced only when they change.
    pub fn complete(&mut self, before: &Self) {
        self.time = self.time.or(before.time);
        let context = self.context.take();
        self.context = context.map(|context| context.completed(before.context.as_ref()));
    }

    /// Returns whether no value is missing.
    pub fn is_complete(&self) -> bool {
        let has_ids = |context: &Context| context.vmid.is_some() && context.context_id.is_some();
        self.time.is_some() && self.context.as_ref().is_some_and(has_ids)
    }

    pub fn count(&mut self, cycles: u32) {
        let before = self.cycles.unwrap_or(0);
        self.cycles = Some(before.saturating_add(cycles.into()));
    }

    /// One loss of trace is one gap, however many marks report it.
    fn lose(&mut self, gap: Gap) -> Option<Gap> {
        if self.open {
            return None;
        }
        self.pass(true);
        Some(gap)
    }
}

#[derive(Clone, Copy, Debug)]
enum StoredKind {
    Run(u32),
    Gap(u32),
    Exception(u32),
    Mark(u32),
}

/// Largest index of an entry; entries beyond it are not distinguished.
const MOST: u32 = (1 << 30) - 1;

impl StoredKind {
    fn pack(self) -> u32 {
        match self {
            Self::Run(number) => number,
            Self::Gap(number) => 1 << 30 | number,
            Self::Exception(number) => 2 << 30 | number,
            Self::Mark(number) => 3 << 30 | number,
        }
    }

    fn unpack(packed: u32) -> Self {
        let number = packed & MOST;
        match packed >> 30 {
            0 => Self::Run(number),
            1 => Self::Gap(number),
            2 => Self::Exception(number),
            _ => Self::Mark(number),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    /// Number of places of the part before it.
    index: u64,
    /// Offset in the buffer, relative to the first entry.
    at: u32,
    kind: u32,
}

/// A decoded part of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentPart {
    /// The state before its first entry.
    before: TraceState,
    stored: Vec<Stored>,
    base: u64,
    places: u64,
    ranges: Vec<Range>,
    gaps: Vec<Gap>,
    exceptions: Vec<Exception>,
    marks: Vec<Mark>,
    /// By entry index: the context, time, and cycle count of the segment from that entry on.
    contexts: Vec<(u32, Context)>,
    times: Vec<(u32, u64)>,
    cycles: Vec<(u32, u64)>,
    /// By entry index: the cycles of a run.
    run_cycles: Vec<(u32, u32)>,
}

impl SegmentPart {
    /// Returns the number of places.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Returns its approximate size in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.stored)
            + size_of_val(&*self.ranges)
            + size_of_val(&*self.gaps)
            + size_of_val(&*self.exceptions)
            + size_of_val(&*self.marks)
            + size_of_val(&*self.contexts)
            + size_of_val(&*self.times)
            + size_of_val(&*self.cycles)
            + size_of_val(&*self.run_cycles)
    }

    fn shrink(&mut self) {
        self.stored.shrink_to_fit();
        self.ranges.shrink_to_fit();
        self.marks.shrink_to_fit();
        self.cycles.shrink_to_fit();
        self.run_cycles.shrink_to_fit();
    }

    /// Returns an entry by index.
    pub fn entry(&self, number: usize) -> Entry {
        let key = number as u32;
        match StoredKind::unpack(self.stored[number].kind) {
            StoredKind::Run(run) => Entry::Run {
                range: self.ranges[run as usize],
                cycles: self
                    .run_cycles
                    .binary_search_by_key(&key, |&(number, _)| number)
                    .ok()
                    .map(|found| self.run_cycles[found].1),
            },
            StoredKind::Gap(gap) => Entry::Gap(self.gaps[gap as usize]),
            StoredKind::Exception(number) => Entry::Exception(self.exceptions[number as usize]),
            StoredKind::Mark(number) => Entry::Mark(self.marks[number as usize]),
        }
    }

    /// Returns the number of places before an entry.
    pub fn index(&self, number: usize) -> u64 {
        self.stored[number].index
    }

    /// Returns the offset of the packet of an entry.
    pub fn offset(&self, number: usize) -> BufferOffset {
        // Delayed entries may have a lower offset than the first one.
        let distance = self.stored[number].at as i32;
        BufferOffset(self.base.wrapping_add_signed(distance.into()))
    }

    /// Returns the index of the entry that contains a place.
    pub fn at(&self, index: u64) -> Option<usize> {
        if index >= self.places {
            return None;
        }
        let mut number = self.stored.partition_point(|entry| entry.index <= index);
        loop {
            number = number.checked_sub(1)?;
            match StoredKind::unpack(self.stored[number].kind) {
                StoredKind::Run(_) | StoredKind::Gap(_) => return Some(number),
                StoredKind::Exception(_) | StoredKind::Mark(_) => {}
            }
        }
    }

    /// Returns the first timestamp known in the part.
    pub fn first_time(&self) -> Option<u64> {
        self.before
            .time
            .or(self.times.first().map(|&(_, time)| time))
    }

    /// Returns the first place at or after `time`, which may be the one after the part.
    pub fn time_reached(&self, time: u64) -> Option<u64> {
        if self.before.time.is_some_and(|before| before >= time) {
            return Some(0);
        }
        let (number, _) = self.times.iter().find(|&&(_, at)| at >= time)?;
        Some(self.index(*number as usize))
    }

    /// Returns the first place with at least `cycles` cycles of the segment before it, which may
    /// be the one after the part.
    pub fn cycles_reached(&self, cycles: u64) -> Option<u64> {
        if self.before.cycles.unwrap_or(0) >= cycles {
            return Some(0);
        }
        let (number, _) = self.cycles.iter().find(|&&(_, count)| count >= cycles)?;
        let after = *number as usize + 1;
        Some(if after < self.len() {
            self.index(after)
        } else {
            self.places
        })
    }

    /// Returns the state at an entry; at the end of the part for `number == len()`.
    pub fn known(&self, number: usize) -> TraceState {
        fn last<T: Copy>(all: &[(u32, T)], number: usize) -> Option<T> {
            let passed = all.partition_point(|&(after, _)| (after as usize) < number);
            passed.checked_sub(1).map(|last| all[last].1)
        }
        TraceState {
            context: last(&self.contexts, number).or(self.before.context),
            time: last(&self.times, number).or(self.before.time),
            cycles: last(&self.cycles, number).or(self.before.cycles),
            open: false,
            exception: None,
            alone: self.before.alone,
        }
    }

    /// Returns the exception between an entry and the place before it.
    pub fn exception_before(&self, number: usize) -> Option<Exception> {
        match self.up_to_place((0..number).rev()) {
            Between::Exception(exception) => Some(exception),
            Between::Nothing => None,
            Between::OtherPart => self.before.exception,
        }
    }

    /// Returns what is between an entry and the place after it.
    pub fn exception_after(&self, number: usize) -> Between {
        self.up_to_place(number + 1..self.stored.len())
    }

    /// Returns the exception before the first place.
    pub fn exception_first(&self) -> Option<Exception> {
        match self.up_to_place(0..self.stored.len()) {
            Between::Exception(exception) => Some(exception),
            Between::Nothing | Between::OtherPart => self.before.exception,
        }
    }

    /// Returns the first exception or place among some entries.
    fn up_to_place(&self, mut numbers: impl Iterator<Item = usize>) -> Between {
        let found = numbers.find_map(
            |number| match StoredKind::unpack(self.stored[number].kind) {
                StoredKind::Run(_) | StoredKind::Gap(_) => Some(Between::Nothing),
                StoredKind::Exception(number) => {
                    Some(Between::Exception(self.exceptions[number as usize]))
                }
                StoredKind::Mark(_) => None,
            },
        );
        found.unwrap_or(Between::OtherPart)
    }
}

/// What is between an entry and the place next to it, except marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    Nothing,
    Exception(Exception),
    /// The place is in another part.
    OtherPart,
}

/// Records the output of the flow as a [`SegmentPart`].
#[derive(Debug)]
pub(super) struct Recorder {
    known: TraceState,
    part: SegmentPart,
    /// The state before the first entry.
    begun: Option<TraceState>,
    /// By block: the indices plus 1 of its range, not taken and taken; 0 if not stored yet.
    interned: Vec<[u32; 2]>,
    /// Whether the last range belongs to the last entry alone and may grow.
    grows: bool,
    /// Number of places of the segment before the part.
    first: u64,
}

impl Recorder {
    /// Starts at place `first` of the segment.
    pub fn new(known: TraceState, first: u64) -> Self {
        Self {
            known,
            part: SegmentPart::default(),
            begun: None,
            interned: Vec::new(),
            grows: false,
            first,
        }
    }

    /// Returns the part recorded so far and starts another one.
    pub fn cut(&mut self) -> SegmentPart {
        let mut part = std::mem::take(&mut self.part);
        part.before = self.begun.take().unwrap_or(self.known);
        part.shrink();
        self.interned.clear();
        self.grows = false;
        self.first = self.first.saturating_add(part.places);
        part
    }

    /// Adds the gap at the start of a further buffer, which has no element.
    pub fn start_buffer(&mut self, at: BufferOffset) {
        self.known.pass(true);
        self.push_gap(at, Gap::Buffer);
    }

    /// Notes the state if the next entry is the first one.
    fn begin(&mut self) {
        if self.part.stored.is_empty() && self.begun.is_none() {
            self.begun = Some(self.known);
        }
    }

    fn push(&mut self, at: BufferOffset, kind: StoredKind, places: u64) {
        self.begin();
        let part = &mut self.part;
        if part.stored.is_empty() {
            part.base = at.0;
        }
        part.stored.push(Stored {
            index: part.places,
            at: at.0.wrapping_sub(part.base) as u32,
            kind: kind.pack(),
        });
        part.places = part.places.saturating_add(places);
        self.grows = false;
    }

    fn push_gap(&mut self, at: BufferOffset, gap: Gap) {
        let number = self.part.gaps.len() as u32;
        self.part.gaps.push(gap);
        self.push(at, StoredKind::Gap(number.min(MOST)), 1);
    }

    /// Returns the index of the next entry.
    fn number(&self) -> u32 {
        self.part.stored.len() as u32
    }

    fn count(&mut self, cycles: u32) {
        self.known.count(cycles);
        let total = self.known.cycles.unwrap_or(0);
        let after = self.number().saturating_sub(1);
        self.part.cycles.push((after, total));
    }

    /// Extends the last run by `range` if nothing ended it (ETMv3: one atom per instruction).
    fn grow(&mut self, range: &Range) -> bool {
        let Some(last) = self.part.stored.last() else {
            return false;
        };
        let StoredKind::Run(number) = StoredKind::unpack(last.kind) else {
            return false;
        };
        let before = self.part.ranges[number as usize];
        let continues = before.last.kind == InstructionKind::Other
            && before.last.taken
            && before.end == range.start
            && before.isa == range.isa;
        let Some(instructions) = before
            .instructions
            .checked_add(range.instructions)
            .filter(|_| continues)
        else {
            return false;
        };
        let grown = Range {
            end: range.end,
            instructions,
            last: range.last,
            ..before
        };
        if self.grows {
            self.part.ranges[number as usize] = grown;
        } else {
            let number = self.part.ranges.len() as u32;
            self.part.ranges.push(grown);
            if let Some(last) = self.part.stored.last_mut() {
                last.kind = StoredKind::Run(number.min(MOST)).pack();
            }
            self.grows = true;
        }
        self.part.places = self.part.places.saturating_add(range.instructions.into());
        true
    }
}

impl FlowSink for Recorder {
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        self.begin();
        self.known.pass(false);
        let instructions = blocks.instructions(id);
        if instructions == 1 && cycles.is_none() && self.grow(&blocks.range(id, taken)) {
            return;
        }
        if self.interned.len() <= id.index() {
            self.interned
                .resize(blocks.len().max(id.index() + 1), [0; 2]);
        }
        let interned = &mut self.interned[id.index()][usize::from(taken)];
        if *interned == 0 {
            self.part.ranges.push(blocks.range(id, taken));
            *interned = self.part.ranges.len() as u32;
        }
        let number = *interned - 1;
        if let Some(cycles) = cycles {
            self.part.run_cycles.push((self.number(), cycles));
        }
        self.push(at, StoredKind::Run(number.min(MOST)), instructions.into());
        if let Some(cycles) = cycles {
            self.count(cycles);
        }
    }

    fn range(&mut self, at: BufferOffset, range: &Range, _: Option<u32>) {
        if range.instructions == 0 {
            return;
        }
        self.begin();
        self.known.pass(false);
        let number = self.part.ranges.len() as u32;
        self.part.ranges.push(*range);
        self.push(
            at,
            StoredKind::Run(number.min(MOST)),
            range.instructions.into(),
        );
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.begin();
        self.known.pass(false);
        self.push_gap(at, Gap::UnknownPath(*range));
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.begin();
        self.known.exception = Some(*exception);
        let number = self.part.exceptions.len() as u32;
        self.part.exceptions.push(*exception);
        self.push(at, StoredKind::Exception(number.min(MOST)), 0);
    }

    fn gap(&mut self, at: BufferOffset, gap: FlowGap) {
        self.begin();
        self.known.pass(true);
        self.push_gap(at, Gap::Flow(gap));
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.begin();
        if let Some(gap) = self.known.mark(mark) {
            self.push_gap(at, gap);
        }
        if *mark == Mark::End {
            return;
        }
        let number = self.part.marks.len() as u32;
        let entry = self.number();
        self.part.marks.push(*mark);
        match mark {
            Mark::Context(context) => self.part.contexts.push((entry, *context)),
            Mark::Timestamp(time) => self.part.times.push((entry, *time)),
            Mark::Cycles(_) => {
                let total = self.known.cycles.unwrap_or(0);
                self.part.cycles.push((entry, total));
            }
            _ => {}
        }
        self.push(at, StoredKind::Mark(number.min(MOST)), 0);
    }

    fn forget(&mut self, _: &Blocks) {
        self.interned.clear();
    }
}

impl HistorySink for Recorder {
    fn places(&self) -> u64 {
        self.first.saturating_add(self.part.places)
    }

    fn known(&mut self) -> &mut TraceState {
        &mut self.known
    }
}
