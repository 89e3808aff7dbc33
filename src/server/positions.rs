//! The positions of the cores in their histories, and the registers known there.
//!
//! Each client has its own histories, so clients do not wait for each other. They are opened on
//! first use. Independent of packets.

use std::sync::Arc;
use std::time::Duration;

use gdbstub::common::Tid;

use super::cores::Core;
use super::endpoint::{Endpoint, HistoryMode};
use armsnap_arch::arch::RegisterDescription;
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_history::timeline::{
    Direction, History, HistoryPoint, PointKind, Position, Timeline, TracedCore,
};
use armsnap_snapshot::snapshot::memory::Moment;
use armsnap_snapshot::snapshot::model::Note;
use armsnap_snapshot::stop::{Cancel, Unwind};

/// Time limit for work that the client did not request: GDB waits two seconds for most replies.
const RESTING_LIMIT: Duration = Duration::from_millis(800);
/// Maximum number of consecutive gaps passed to find where execution continues.
pub(super) const GAPS: usize = 1000;

/// A past position of a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// The point in the history.
    pub place: HistoryPoint,
    /// The address of the instruction that is shown: at a gap, the one that execution reached, if
    /// known; otherwise the one where it continues.
    pub pc: Option<Address>,
    /// The number of the position, see [`History::number`].
    number: u64,
}

/// The positions of a client's cores.
pub(super) struct Positions {
    endpoint: Arc<Endpoint>,
    timeline: Option<Timeline>,
    /// By core; `None` is the halted state.
    past: Vec<Option<Past>>,
    /// By core: the end of the trace and its instruction set, if the core stays there.
    ends: Vec<Option<(Address, Option<Isa>)>>,
    /// Whether all of `ends` are known.
    rested: bool,
    /// What ends work on the histories.
    unwind: Unwind,
}

impl Positions {
    /// Creates the positions with all cores at the halted state.
    pub fn new(endpoint: Arc<Endpoint>, unwind: Unwind) -> Self {
        Self {
            past: vec![None; endpoint.cores.len()],
            ends: vec![None; endpoint.cores.len()],
            rested: !endpoint.cores.iter().any(|core| core.rests),
            timeline: None,
            unwind,
            endpoint,
        }
    }

    fn timeline(&mut self) -> &mut Timeline {
        let endpoint = &self.endpoint;
        self.timeline.get_or_insert_with(|| {
            let cores: Vec<TracedCore> = match endpoint.history {
                HistoryMode::None => Vec::new(),
                HistoryMode::Replay | HistoryMode::Btrace => {
                    endpoint.cores.iter().map(Core::traced).collect()
                }
            };
            let (loaded, options) = (&endpoint.loaded, &endpoint.timeline);
            let cache = endpoint.cache.as_ref();
            Timeline::unwinding(loaded, &cores, options, cache, &self.unwind)
        })
    }

    /// Returns the positions of the cores, to restore them later.
    pub fn places(&self) -> Vec<Option<Past>> {
        self.past.clone()
    }

    /// Restores positions after an interrupted request, and discards what the request decoded.
    pub fn come_back(&mut self, past: Vec<Option<Past>>) {
        self.past = past;
        self.timeline = None;
    }

    /// Finds the end of the trace for cores that stay there. If decoding takes long, it is
    /// continued at the next call.
    pub fn rest(&mut self) {
        if self.rested {
            return;
        }
        let cancel = Cancel::after(RESTING_LIMIT);
        let mut rested = true;
        for number in 0..self.ends.len() {
            let core = &self.endpoint.cores[number];
            let (rests, device) = (core.rests, core.device);
            if !rests || self.ends[number].is_some() {
                continue;
            }
            let Some(history) = self.timeline().history(device) else {
                continue;
            };
            if history.reach_end(&cancel) {
                self.ends[number] = history.trace_end();
            } else {
                rested = false;
            }
        }
        self.rested = rested;
    }

    /// Returns where the trace of a core without halted state ends.
    pub fn end_of_trace(&self, thread: Tid) -> Option<Address> {
        self.ends.get(thread.get() - 1)?.map(|(pc, _)| pc)
    }

    /// Returns whether a core has a trace but no halted state.
    pub fn rests(&self, thread: Tid) -> bool {
        let core = self.endpoint.cores.get(thread.get() - 1);
        core.is_some_and(|core| core.rests)
    }

    /// Returns a number that identifies the core's position; 0 at the halted state.
    pub fn number(&self, thread: Tid) -> u64 {
        /// The number of the end of a trace without a halted state: greater than the number of any
        /// position.
        const RESTING: u64 = (1 << 60) + 1;
        match self.past(thread) {
            Some(past) => past.number + 1,
            None if self.rests(thread) => RESTING,
            None => 0,
        }
    }

    /// Returns the notes on the histories.
    pub fn notes(&mut self) -> &[Note] {
        self.timeline().notes()
    }

    /// Returns whether any core has a history.
    pub fn has_history(&mut self) -> bool {
        self.timeline().cores().next().is_some()
    }

    /// Returns the history of a thread's core; `None` if its trace cannot be followed.
    pub fn history(&mut self, thread: Tid) -> Option<&mut History> {
        let device = self.endpoint.cores.get(thread.get() - 1)?.device;
        self.timeline().history(device)
    }

    /// Decodes the trace to its end, which is required before a core can move. Returns whether that is
    /// done; `false` if cancelled.
    pub fn reach_end(&mut self, thread: Tid, cancel: &Cancel) -> bool {
        self.history(thread)
            .is_none_or(|history| history.reach_end(cancel))
    }

    /// Returns the position of a core, unless it is the halted state.
    pub fn past(&self, thread: Tid) -> Option<&Past> {
        self.past.get(thread.get() - 1)?.as_ref()
    }

    /// Returns the version of changed code that the core runs at a past position.
    pub fn version(&self, thread: Tid) -> Option<u32> {
        self.moment(thread).version
    }

    /// Returns what the position of a core selects in memory; the default at the halted state.
    pub fn moment(&self, thread: Tid) -> Moment {
        let core = self.endpoint.cores.get(thread.get() - 1);
        let (Some(past), Some(core)) = (self.past(thread), core) else {
            return Moment::default();
        };
        let context = past.place.context.unwrap_or_default();
        core.memory
            .moment(context.el, context.context_id, context.vmid)
    }

    /// Returns the position of a core; `None` without a history.
    pub fn position(&mut self, thread: Tid) -> Option<Position> {
        match self.past(thread) {
            Some(past) => Some(past.place.position),
            None => self.history(thread).map(History::end),
        }
    }

    /// Returns the last timestamp before the position of a core; `None` at the halted state.
    pub fn time(&self, thread: Tid) -> Option<u64> {
        self.past(thread).and_then(|past| past.place.time)
    }

    /// Returns the instruction set at the position of a core, if known.
    pub fn isa(&self, thread: Tid) -> Option<Isa> {
        let core = self.endpoint.thread(thread)?;
        let Some(past) = self.past(thread) else {
            if core.rests {
                return self.ends.get(thread.get() - 1)?.and_then(|(_, isa)| isa);
            }
            return core.isa();
        };
        match past.place.kind {
            PointKind::Instruction { isa, .. } => Some(isa),
            PointKind::Gap(_) | PointKind::Halted => past.place.context.map(|context| context.isa),
        }
    }

    /// Moves a core to a position. Returns whether the position exists.
    pub fn set(&mut self, thread: Tid, position: Position) -> bool {
        let Some(history) = self.history(thread) else {
            return false;
        };
        let Some(place) = history.place(position) else {
            return false;
        };
        let after = |history| next_reached(history, position, Direction::Forward);
        let pc = place.reached().or_else(|| after(history));
        // Clients need a program counter at every gap.
        let halted = || self.endpoint.cores.get(thread.get() - 1)?.registers.pc();
        let pc = pc.or_else(|| halted().map(Address));
        let pc = pc.or_else(|| self.end_of_trace(thread)).or_else(|| {
            let history = self.history(thread)?;
            next_reached(history, position, Direction::Backward)
        });
        let number = self.history(thread).map_or(0, |h| h.number(position));
        let past = Past { place, pc, number };
        let past = (place.kind != PointKind::Halted).then_some(past);
        if let Some(at) = self.past.get_mut(thread.get() - 1) {
            *at = past;
        }
        true
    }

    /// Returns the position of another core at the time of a core, according to timestamps.
    pub fn at_same_time(&mut self, thread: Tid, other: Tid) -> Option<Position> {
        let device = |thread: Tid| Some(self.endpoint.cores.get(thread.get() - 1)?.device);
        let (from, to) = (device(thread)?, device(other)?);
        let position = self.position(thread)?;
        self.timeline().at_same_time(from, position, to)
    }

    /// Returns whether the trace of a core has timestamps.
    fn is_timed(&mut self, thread: Tid) -> bool {
        let Some(history) = self.history(thread) else {
            return false;
        };
        let end = history.end();
        history.place(end).is_some_and(|place| place.time.is_some())
    }

    /// Returns the other cores whose positions timestamps relate to a core.
    pub fn tied(&mut self, thread: Tid) -> Vec<Tid> {
        if !self.is_timed(thread) {
            return Vec::new();
        }
        let others: Vec<Tid> = self.endpoint.threads().filter(|t| *t != thread).collect();
        let others = others.into_iter();
        others.filter(|other| self.is_timed(*other)).collect()
    }

    /// Returns the other cores with their positions at the time of a core, where timestamps
    /// determine it.
    pub fn others(&mut self, thread: Tid) -> Vec<(Tid, Position)> {
        let tied = self.tied(thread).into_iter();
        tied.filter_map(|other| Some((other, self.at_same_time(thread, other)?)))
            .collect()
    }

    /// Moves the other cores to the time of a core, where timestamps determine it. In a backward move, cores
    /// whose first timestamp is later go to the starts of their histories; if the core is before its own
    /// first timestamp, all of them do.
    pub fn along(&mut self, thread: Tid, direction: Direction) {
        for other in self.tied(thread) {
            let at = self.at_same_time(thread, other).or_else(|| {
                let is_back = direction == Direction::Backward;
                is_back.then(|| self.history(other).map(|history| history.begin()))?
            });
            if let Some(at) = at {
                self.set(other, at);
            }
        }
    }

    /// Moves all cores that timestamps relate to a core, and the core itself, to the starts of their
    /// histories.
    pub fn begin(&mut self, thread: Tid) {
        let all = self.tied(thread).into_iter().chain([thread]);
        for core in all.collect::<Vec<_>>() {
            if let Some(begin) = self.history(core).map(|history| history.begin()) {
                self.set(core, begin);
            }
        }
    }

    /// Returns the other cores that have a history but no timestamps in common with a core: they do not
    /// move with it.
    pub fn untied(&mut self, thread: Tid) -> Vec<Tid> {
        let tied = self.tied(thread);
        let all: Vec<Tid> = self.endpoint.threads().collect();
        all.into_iter()
            .filter(|other| *other != thread && !tied.contains(other))
            .filter(|other| self.history(*other).is_some())
            .collect()
    }

    /// Returns a register at the position of a core, with `None` for unknown bytes. At past
    /// positions only the program counter is known.
    pub fn register(&self, thread: Tid, register: &RegisterDescription) -> Option<Bytes> {
        let core = self.endpoint.thread(thread)?;
        let pc = match self.past(thread) {
            Some(past) => past.pc,
            // Clients require a program counter even before the end of the trace is known.
            None if core.rests && register.name == "pc" => match self.end_of_trace(thread) {
                Some(end) => Some(end),
                None => return Some(core.register(register)),
            },
            None if core.rests => None,
            None => return Some(core.register(register)),
        };
        Some(match pc.filter(|_| register.name == "pc") {
            Some(pc) => {
                let bytes = pc.0.to_le_bytes().into_iter();
                let bytes = bytes.chain(std::iter::repeat(0)).map(Some);
                bytes.take(register.bytes()).collect()
            }
            None => vec![None; register.bytes()],
        })
    }
}

/// Returns the next address that execution reached in a direction.
fn next_reached(history: &mut History, from: Position, direction: Direction) -> Option<Address> {
    let mut at = from;
    for _ in 0..GAPS {
        at = history.step(at, direction)?;
        let place = history.place(at)?;
        if place.reached().is_some() || place.kind == PointKind::Halted {
            return place.reached();
        }
    }
    None
}
