//! The history of one core: its tracks in order, with steps and searches across them.

use super::code::Code;
use super::entries::Entries;
use super::entry::{AddressSet, EndAgrees, Entry, Found, Gaps, HistoryPoint, PointKind};
use super::part::{Between, SegmentPart};
use super::position::{Direction, Position};
use super::scan::{Hit, Query};
use super::signal_return;
use super::track::{Cancelled, PartKey, Placed, Start, Track};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};
pub use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Context;
use armsnap_trace::flow::{CodeImage, InstructionKind, Range, View, fetch};

/// Maximum number of places at the end of a trace searched for its last instruction.
const LAST_PLACES: usize = 1000;

/// The trace of a core in one buffer.
pub(super) struct Session {
    /// Index of the buffer in the snapshot's metadata.
    pub buffer: usize,
    /// The number of 64 KiB pieces, including incomplete ones, in the buffers of earlier sessions.
    pub pieces_before: u64,
    pub track: Box<dyn Track>,
}

/// The execution history of one core, decoded from its trace.
///
/// Decodes on demand; hence the exclusive borrows.
pub struct History {
    device: usize,
    source: String,
    pub(super) sessions: Vec<Session>,
    code: Code,
    state: FinalState,
}

/// What is known of the state after the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinalState {
    /// The halted pc.
    pub halted: Option<Address>,
    /// Whether it belongs to a thread that ended.
    pub ended: bool,
    /// Whether it belongs to a Linux program that was traced without the kernel.
    pub linux_program: bool,
}

/// A part of one of the tracks.
#[derive(Clone, Debug)]
pub(super) struct Here {
    pub session: usize,
    pub placed: Placed,
}

impl Here {
    pub fn part(&self) -> &SegmentPart {
        &self.placed.part
    }

    /// Returns the position of a place of the part.
    pub fn position(&self, index: u64) -> Position {
        Position {
            session: self.session as u32,
            segment: self.placed.key.segment,
            index: self.placed.first.saturating_add(index),
        }
    }

    fn last(&self) -> Position {
        self.position(self.part().places().saturating_sub(1))
    }
}

impl History {
    /// `sessions` is not empty.
    pub(super) fn new(
        device: usize,
        source: String,
        sessions: Vec<Session>,
        code: Code,
        state: FinalState,
    ) -> Self {
        Self {
            device,
            source,
            sessions,
            code,
            state,
        }
    }

    /// Returns the index of the core in the snapshot's devices.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Returns the name of the trace source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns a 60-bit number that orders the core's positions. It is unique unless a segment has
    /// 2^34 places or all buffers together have 4 TiB.
    pub fn number(&self, position: Position) -> u64 {
        const INDEX: u32 = 34;
        const PIECE: u32 = 26;
        let field = |value: u64, bits: u32| value.min((1 << bits) - 1);
        let session = self.sessions.get(position.buffer());
        let before = session.map_or(0, |session| session.pieces_before);
        // Segments start at least 64 KiB apart.
        let piece = before.saturating_add(position.segment >> 16);
        field(piece, PIECE) << INDEX | field(position.index, INDEX)
    }

    /// Returns the first position.
    pub fn begin(&mut self) -> Position {
        let first = Here {
            session: 0,
            placed: self.sessions[0].track.first(),
        };
        match self.with_places(first, Direction::Forward) {
            Some(here) => here.position(0),
            None => self.end(),
        }
    }

    /// Decodes the trace after the last synchronisation point, which determines the last position,
    /// unless cancelled; returns whether this is done.
    pub fn reach_end(&mut self, cancel: &Cancel) -> bool {
        let last = self.sessions.last_mut();
        last.is_none_or(|session| session.track.reach_end(cancel))
    }

    /// Returns the last position: the halted state.
    pub fn end(&mut self) -> Position {
        let here = self.last_part();
        here.position(here.part().places())
    }

    fn last_part(&mut self) -> Here {
        let session = self.sessions.len() - 1;
        Here {
            session,
            placed: self.sessions[session].track.last(),
        }
    }

    /// Returns where execution continues after the trace, with the instruction set if known. If the
    /// trace does not contain it, returns the last instruction traced.
    pub fn trace_end(&mut self) -> Option<(Address, Option<Isa>)> {
        if let Some(next) = self.continues_at() {
            return Some(next);
        }
        let mut at = self.end();
        for _ in 0..LAST_PLACES {
            at = self.step(at, Direction::Backward)?;
            if let PointKind::Instruction { pc, isa, .. } = self.place(at)?.kind {
                return Some((pc, Some(isa)));
            }
        }
        None
    }

    /// Returns where execution continues after the trace, if the trace contains it.
    pub(crate) fn continues_at(&mut self) -> Option<(Address, Option<Isa>)> {
        let session = self.sessions.len() - 1;
        let ended = self.sessions[session].track.end();
        let next = ended.ahead.map(|range| (range.start, Some(range.isa)));
        next.or_else(|| Some((ended.returns_to?, None)))
    }

    /// Returns the straight line after the end of the trace if the halted pc is inside it: the code
    /// before that pc was executed too.
    pub fn rest(&mut self) -> Option<Range> {
        let halted = self.state.halted?;
        let session = self.sessions.len() - 1;
        let ahead = self.sessions[session].track.end().ahead?;
        (ahead.start < halted && halted < ahead.end).then_some(ahead)
    }

    /// Returns whether the end of the trace agrees with the halted state.
    pub fn end_agrees(&mut self) -> EndAgrees {
        let session = self.sessions.len() - 1;
        if self.state.ended {
            return EndAgrees::Ended;
        }
        let agrees = self.sessions[session].track.end().agrees(self.state.halted);
        match agrees {
            // The program continues where the signal interrupted it.
            EndAgrees::No { .. } if self.returns_from_signal() == Some(true) => EndAgrees::Yes,
            _ => agrees,
        }
    }

    /// Returns whether the trace ends with the return of a signal handler to a Linux program whose
    /// kernel was not traced: if the handler does not resolve a fault, the program ends at the
    /// instruction that faulted.
    fn returns_from_signal(&mut self) -> Option<bool> {
        if !self.state.linux_program {
            return None;
        }
        let end = self.end();
        let last = self.step(end, Direction::Backward)?;
        let place = self.place(last)?;
        let PointKind::Instruction { pc, isa, .. } = place.kind else {
            return None;
        };
        let view = self.view(place.context.as_ref());
        let size = if isa == Isa::T32 { 2 } else { 4 };
        let code = self.code(view, Address(pc.0.checked_sub(size)?));
        Some(signal_return::is_call(isa, code))
    }

    /// Returns the part after or before another one; it may have no places.
    pub(super) fn beside(
        &mut self,
        session: usize,
        key: PartKey,
        direction: Direction,
    ) -> Option<Here> {
        let track = &mut self.sessions[session].track;
        let (session, placed) = match direction {
            Direction::Forward => match track.next(key) {
                Some(placed) => (session, placed),
                None => {
                    let next = self.sessions.get_mut(session + 1)?;
                    (session + 1, next.track.first())
                }
            },
            Direction::Backward => match track.previous(key) {
                Some(placed) => (session, placed),
                None => {
                    let before = session.checked_sub(1)?;
                    (before, self.sessions[before].track.last())
                }
            },
        };
        Some(Here { session, placed })
    }

    /// Returns the part itself, or the next one with places.
    fn with_places(&mut self, mut here: Here, direction: Direction) -> Option<Here> {
        while here.part().places() == 0 {
            here = self.beside(here.session, here.placed.key, direction)?;
        }
        Some(here)
    }

    /// Returns the part of a position and the index of the place in it; for the end, the index
    /// after the last.
    pub(super) fn find(&mut self, position: Position) -> Option<(Here, u64)> {
        let session = position.session as usize;
        let track = &mut self.sessions.get_mut(session)?.track;
        let placed = track.at(position.segment, position.index)?;
        let index = position.index.checked_sub(placed.first)?;
        let here = Here { session, placed };
        if index >= here.part().places() && position != self.end() {
            return None;
        }
        Some((here, index))
    }

    /// Returns whether the position exists.
    pub fn contains(&mut self, position: Position) -> bool {
        self.find(position).is_some()
    }

    /// Returns what is at a position; `None` if the position does not exist.
    pub fn place(&mut self, position: Position) -> Option<HistoryPoint> {
        let (here, index) = self.find(position)?;
        let part = here.part();
        let buffer = self.sessions[here.session].buffer;
        let number = part.at(index);
        let mut known = part.known(number.unwrap_or(part.len()));
        if !known.is_complete() {
            let track = &mut self.sessions[here.session].track;
            if let Some(before) = track.known_before(here.placed.key.segment) {
                known.complete(&before);
            }
        }
        let Some(number) = number else {
            return Some(HistoryPoint {
                position,
                kind: PointKind::Halted,
                context: known.context,
                time: known.time,
                segment_cycles: known.cycles,
                exception_before: part.exception_before(part.len()),
                exception_after: None,
                buffer,
                offset: BufferOffset(self.sessions[here.session].track.bytes()),
            });
        };
        let within = index - part.index(number);
        let entry = part.entry(number);
        let kind = match entry {
            Entry::Run { range, .. } => {
                let view = self.code.seen(known.context.as_ref());
                PointKind::Instruction {
                    pc: self.code.instruction(view, &range, within),
                    isa: range.isa,
                    range,
                    number: within as u32,
                }
            }
            Entry::Gap(gap) => PointKind::Gap(gap),
            Entry::Exception(_) | Entry::Mark(_) | Entry::Halted => return None,
        };
        let first = within == 0;
        let exception_after = if within + 1 < entry.places() {
            None
        } else {
            match part.exception_after(number) {
                Between::Exception(exception) => Some(exception),
                Between::Nothing => None,
                Between::OtherPart => {
                    let next = self.beside(here.session, here.placed.key, Direction::Forward);
                    next.and_then(|next| next.part().exception_first())
                        .or(part.exception_before(part.len()))
                }
            }
        };
        Some(HistoryPoint {
            position,
            kind,
            context: known.context,
            time: known.time,
            segment_cycles: known.cycles,
            exception_before: part.exception_before(number).filter(|_| first),
            exception_after,
            buffer,
            offset: part.offset(number),
        })
    }

    /// Returns the position after or before a position. `None` at the ends of history, and if the
    /// position does not exist.
    pub fn step(&mut self, position: Position, direction: Direction) -> Option<Position> {
        let (here, index) = self.find(position)?;
        match direction {
            Direction::Forward if index + 1 < here.part().places() => {
                Some(here.position(index + 1))
            }
            Direction::Forward if index >= here.part().places() => None,
            Direction::Forward => Some(self.first_after(&here)),
            Direction::Backward if index > 0 => Some(here.position(index - 1)),
            Direction::Backward => {
                let before = self.beside(here.session, here.placed.key, direction)?;
                let before = self.with_places(before, direction)?;
                Some(before.last())
            }
        }
    }

    /// Returns the first position after a part.
    pub(super) fn first_after(&mut self, here: &Here) -> Position {
        let next = self
            .beside(here.session, here.placed.key, Direction::Forward)
            .and_then(|next| self.with_places(next, Direction::Forward));
        match next {
            Some(next) => next.position(0),
            None => self.end(),
        }
    }

    /// Returns the first position that was decoded from packets at or after an offset of the core's
    /// first trace buffer; `None` if no position is there.
    pub(crate) fn at_offset(&mut self, offset: u64) -> Option<Position> {
        let segment = self.sessions.first_mut()?.track.before_offset(offset);
        let from = Position {
            session: 0,
            segment,
            index: 0,
        };
        let mut entries = self.entries(from, Direction::Forward);
        let first = entries.find(|event| event.entry.places() > 0 && event.offset.0 >= offset)?;
        Some(first.position)
    }

    /// Iterates over the entries from a position in a direction: first the run or gap that
    /// contains the position (or the halted state), then all others to the end of history.
    pub fn entries(&mut self, from: Position, direction: Direction) -> Entries<'_> {
        Entries::new(self, from, direction)
    }

    /// Searches for the next visit of any of some addresses after or before `from`. Caches
    /// nothing that it passes; searches long stretches on up to
    /// [`Options::jobs`](super::Options::jobs) threads.
    pub fn search(
        &mut self,
        from: Position,
        direction: Direction,
        addresses: &AddressSet,
        gaps: Gaps,
    ) -> Found {
        let found = self.search_unless(from, direction, addresses, gaps, &Cancel::default());
        found.unwrap_or(Found::End(from))
    }

    /// Same as [`Self::search`]; `None` if it was cancelled.
    pub fn search_unless(
        &mut self,
        from: Position,
        direction: Direction,
        addresses: &AddressSet,
        gaps: Gaps,
        cancel: &Cancel,
    ) -> Option<Found> {
        if !self.contains(from) {
            return Some(Found::End(from));
        }
        let query = Query {
            addresses: addresses.clone(),
            gaps,
            direction,
        };
        let mut start = Start::At {
            segment: from.segment,
            index: from.index,
        };
        let mut session = from.session as usize;
        loop {
            let track = &mut self.sessions[session].track;
            if let Some((segment, hit)) = track.search(start, &query, cancel).ok()? {
                let position = |index| Position {
                    session: session as u32,
                    segment,
                    index,
                };
                return Some(match hit {
                    Hit::At(index) => Found::At(position(index)),
                    Hit::Gap(index) => Found::Gap(position(index)),
                });
            }
            start = Start::Outside;
            let next = match direction {
                Direction::Forward => Some(session + 1).filter(|&next| next < self.sessions.len()),
                Direction::Backward => session.checked_sub(1),
            };
            match next {
                Some(next) => session = next,
                None => {
                    return Some(Found::End(match direction {
                        Direction::Forward => self.end(),
                        Direction::Backward => self.begin(),
                    }));
                }
            }
        }
    }

    /// Searches for the next waypoint instruction after or before a position: a branch, taken or
    /// not, or another instruction that the trace unit emits atoms for. Stops at a gap or an end
    /// of history.
    pub fn waypoint(&mut self, from: Position, direction: Direction) -> Found {
        let mut end = None;
        for event in self.entries(from, direction) {
            let at = event.position;
            match event.entry {
                Entry::Run { range, .. } => {
                    let last = Position {
                        index: at.index + u64::from(range.instructions).saturating_sub(1),
                        ..at
                    };
                    let beyond = match direction {
                        Direction::Forward => last > from,
                        Direction::Backward => last < from,
                    };
                    if beyond && range.last.kind != InstructionKind::Other {
                        return Found::At(last);
                    }
                    end = Some(at);
                }
                Entry::Gap(_) if at != from => return Found::Gap(at),
                Entry::Halted | Entry::Gap(_) => end = Some(at),
                Entry::Exception(_) | Entry::Mark(_) => {}
            }
        }
        Found::End(end.unwrap_or(from))
    }

    /// Finds the next exception after or before a position. Returns the position after it and the
    /// exception.
    pub fn exception(
        &mut self,
        from: Position,
        direction: Direction,
    ) -> Option<(Position, armsnap_trace::element::Exception)> {
        self.entries(from, direction).find_map(|event| {
            let beyond = match direction {
                Direction::Forward => event.position > from,
                Direction::Backward => event.position < from,
            };
            match event.entry {
                Entry::Exception(exception) if beyond => Some((event.position, exception)),
                _ => None,
            }
        })
    }

    /// Returns the first position at or after a time; `None` if the trace has no such timestamp.
    pub fn seek_time(&mut self, time: u64) -> Option<Position> {
        for session in 0..self.sessions.len() {
            let track = &mut self.sessions[session].track;
            if !track.is_timed() {
                continue;
            }
            let (segment, place) = track.before_time(time);
            let from = track.at(segment, place)?;
            let mut here = Some(Here {
                session,
                placed: from,
            });
            while let Some(part) = here.filter(|here| here.session == session) {
                if let Some(index) = part.part().time_reached(time) {
                    return Some(self.place_or_next(&part, index));
                }
                here = self.beside(session, part.placed.key, Direction::Forward);
            }
        }
        None
    }

    /// Returns whether the last segments of the trace contain timestamps.
    pub fn is_timed(&mut self) -> bool {
        let mut sessions = self.sessions.iter_mut();
        sessions.any(|session| session.track.is_timed())
    }

    /// Returns the last position before any timestamp later than `time`. `None` if the trace has
    /// no timestamp up to `time`.
    pub fn at_time(&mut self, time: u64) -> Option<Position> {
        let begin = self.begin();
        let later = time.checked_add(1).and_then(|later| self.seek_time(later));
        let at = match later {
            Some(later) => self.step(later, Direction::Backward).unwrap_or(begin),
            None => self.end(),
        };
        self.place(at)?.time.map(|_| at)
    }

    /// Returns the first position with at least `cycles` cycles between the start of history and
    /// it; `None` if the trace counts fewer. Decodes all trace before it the first time.
    pub fn seek_cycle(&mut self, cycles: u64) -> Option<Position> {
        self.seek_cycle_unless(cycles, &Cancel::default())
            .ok()
            .flatten()
    }

    /// Same as [`Self::seek_cycle`], unless it is cancelled.
    ///
    /// # Errors
    ///
    /// If it was cancelled.
    pub fn seek_cycle_unless(
        &mut self,
        cycles: u64,
        cancel: &Cancel,
    ) -> Result<Option<Position>, Cancelled> {
        if cycles == 0 {
            return Ok(Some(self.begin()));
        }
        let mut passed = 0_u64;
        for session in 0..self.sessions.len() {
            let track = &mut self.sessions[session].track;
            let left = cycles.saturating_sub(passed);
            let found = track.before_cycle(left, cancel)?;
            let Some((segment, place, skipped)) = found else {
                let counted = track.cycles_before(u64::MAX, cancel)?;
                passed = passed.saturating_add(counted);
                continue;
            };
            let placed = track.at(segment, place);
            let mut here = placed.map(|placed| Here { session, placed });
            while let Some(part) = here.filter(|here| here.placed.key.segment == segment) {
                if let Some(index) = part.part().cycles_reached(left.saturating_sub(skipped)) {
                    return Ok(Some(self.place_or_next(&part, index)));
                }
                here = self.beside(session, part.placed.key, Direction::Forward);
            }
        }
        Ok(None)
    }

    /// Returns the position at an index of a part, or the first one after the part.
    fn place_or_next(&mut self, here: &Here, index: u64) -> Position {
        if index < here.part().places() {
            here.position(index)
        } else {
            self.first_after(here)
        }
    }

    /// Returns the cycles counted from the start of history to a position; `None` if the trace
    /// counts none up to it. Decodes all trace before it the first time.
    pub fn cycles(&mut self, position: Position) -> Option<u64> {
        self.cycles_unless(position, &Cancel::default())
            .ok()
            .flatten()
    }

    /// Same as [`Self::cycles`], unless it is cancelled.
    ///
    /// # Errors
    ///
    /// If it was cancelled before a further segment. What was counted until then is not counted
    /// again.
    pub fn cycles_unless(
        &mut self,
        position: Position,
        cancel: &Cancel,
    ) -> Result<Option<u64>, Cancelled> {
        let Some(place) = self.place(position) else {
            return Ok(None);
        };
        let session = position.session as usize;
        let mut total = 0_u64;
        for before in &mut self.sessions[..session] {
            let counted = before.track.cycles_before(u64::MAX, cancel)?;
            total = total.saturating_add(counted);
        }
        let track = &mut self.sessions[session].track;
        total = total.saturating_add(track.cycles_before(position.segment, cancel)?);
        Ok(match place.segment_cycles {
            Some(cycles) => Some(total.saturating_add(cycles)),
            None => Some(total).filter(|&total| total > 0),
        })
    }

    /// Returns the pc of the halted state, if it is known.
    pub fn halted(&self) -> Option<Address> {
        self.state.halted
    }

    /// Returns the view of memory in a context; without one, the widest view.
    pub fn view(&self, context: Option<&Context>) -> View {
        self.code.seen(context)
    }

    /// Returns which field of a context identifies the version of changed code that ran; `None` if
    /// no code is known to have changed.
    pub(crate) fn code_versions(&self) -> Option<Carrier> {
        let changed = self.code.0.changed();
        (!changed.is_empty()).then(|| changed.carrier())
    }

    /// Returns the contiguous code bytes starting at an address; empty if the address has no code
    /// or the code that ran there is unknown.
    pub fn code(&self, view: View, address: Address) -> &[u8] {
        self.code.slice(view, address)
    }

    /// Returns the bytes of the instruction at an address, including those of changed code, and how
    /// many of the four are known.
    pub(crate) fn instruction_code(&self, view: View, address: Address) -> ([u8; 4], usize) {
        fetch(&self.code, view, address)
    }

    /// Returns the address and instruction set of every instruction of a range.
    pub fn range_instructions(&self, view: View, range: &Range) -> Vec<(Address, Isa)> {
        self.code.addresses(view, range)
    }

    /// Returns the address and instruction set of every instruction of a run.
    pub fn instructions(&mut self, run: Position) -> Vec<(Address, Isa)> {
        let Some((here, index)) = self.find(run) else {
            return Vec::new();
        };
        let part = here.part();
        let Some(number) = part.at(index) else {
            return Vec::new();
        };
        let Entry::Run { range, .. } = part.entry(number) else {
            return Vec::new();
        };
        let view = self.code.seen(part.known(number).context.as_ref());
        self.code.addresses(view, &range)
    }
}
