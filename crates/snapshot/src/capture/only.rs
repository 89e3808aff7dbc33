//! Restricts a source that traces several threads or machines to one of them.
//!
//! Context packets show which context runs, or timestamps show when the wanted one ran. Trace of
//! other contexts is left out, as if the trace unit had been off meanwhile.

use super::saved::{OtherDecoder, Saved, SavedState};
use crate::snapshot::model::Device;
use crate::snapshot::registers::parse_u64;
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{Element, ElementSink, Mark, TraceOnReason};
use armsnap_trace::protocol::ElementDecoder;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The context that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlyContext {
    /// This context ID (CONTEXTIDR).
    ContextId(u32),
    /// This virtual context (VMID, or CONTEXTIDR_EL2 instead of it).
    Vmid(u32),
    /// The trace from a timestamp in one of these ordered ranges up to the first timestamp outside.
    Timestamps(Arc<[Range<u64>]>),
}

impl OnlyContext {
    /// The keys of contexts in the device of a source.
    const CONTEXT_ID: &str = "only_context_id";
    const VMID: &str = "only_vmid";
    const TIMESTAMPS: &str = "only_timestamps";

    /// Reads the wanted context from the device of a source; `None` if all contexts are wanted.
    pub fn of(device: &Device) -> Option<Self> {
        device.other.iter().find_map(|(key, value)| {
            let number = || u32::try_from(parse_u64(value)?).ok();
            match key.as_str() {
                Self::CONTEXT_ID => Some(Self::ContextId(number()?)),
                Self::VMID => Some(Self::Vmid(number()?)),
                Self::TIMESTAMPS => {
                    let mut ranges = Vec::new();
                    for range in value.split_whitespace() {
                        let (start, end) = range.split_once('-')?;
                        ranges.push(parse_u64(start)?..parse_u64(end)?);
                    }
                    ranges.sort_by_key(|range| range.start);
                    Some(Self::Timestamps(ranges.into()))
                }
                _ => None,
            }
        })
    }

    /// Returns its key and value in the device of a source.
    pub fn entry(&self) -> (String, String) {
        let (key, value) = match self {
            Self::ContextId(value) => (Self::CONTEXT_ID, format!("{value:#x}")),
            Self::Vmid(value) => (Self::VMID, format!("{value:#x}")),
            Self::Timestamps(ranges) => {
                let ranges = ranges.iter();
                let ranges = ranges.map(|range| format!("{:#x}-{:#x}", range.start, range.end));
                (Self::TIMESTAMPS, ranges.collect::<Vec<_>>().join(" "))
            }
        };
        (key.to_owned(), value)
    }

    /// Whether this context runs after a mark; `None` if the mark does not determine it.
    fn runs(&self, mark: Mark) -> Option<bool> {
        match (self, mark) {
            (Self::ContextId(value), Mark::Context(context)) => {
                Some(context.context_id == Some(*value))
            }
            (Self::Vmid(value), Mark::Context(context)) => Some(context.vmid == Some(*value)),
            (Self::Timestamps(ranges), Mark::Timestamp(time)) => {
                let next = ranges.partition_point(|range| range.start <= time);
                let last = next.checked_sub(1).map(|last| &ranges[last]);
                Some(last.is_some_and(|range| time < range.end))
            }
            _ => None,
        }
    }

    /// The state after a loss of synchronisation. The next synchronisation is always followed by a
    /// context, but not always by a timestamp.
    const fn initial(&self) -> ContextMatch {
        match self {
            Self::ContextId(_) | Self::Vmid(_) => ContextMatch::Unknown,
            Self::Timestamps(_) => ContextMatch::Outside,
        }
    }
}

/// Whether the trace belongs to the wanted context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextMatch {
    /// No context has been traced yet.
    Unknown,
    /// The trace belongs to the wanted context.
    Inside,
    /// The trace belongs to another context.
    Outside,
}

/// An element decoder that emits only the trace of the wanted context.
#[derive(Clone, Debug)]
pub struct Only<E> {
    inner: E,
    only: Option<(OnlyContext, ContextMatch)>,
}

impl<E> Only<E> {
    /// Creates a decoder; without a wanted context it emits everything.
    pub fn new(inner: E, only: Option<OnlyContext>) -> Self {
        Self {
            inner,
            only: only.map(|only| {
                let initial = only.initial();
                (only, initial)
            }),
        }
    }
}

/// Not inlined, because usually all contexts are wanted.
#[cold]
#[inline(never)]
fn sifted<E>(
    inner: &mut E,
    (only, place): &mut (OnlyContext, ContextMatch),
    out: &mut dyn ElementSink,
    run: impl FnOnce(&mut E, &mut Sifted<'_>),
) {
    run(inner, &mut Sifted { only, place, out });
}

impl<E: ElementDecoder> ElementDecoder for Only<E> {
    type Packet = E::Packet;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, out: &mut impl ElementSink) {
        let Self { inner, only } = self;
        match only {
            None => inner.packet(at, packet, out),
            Some(only) => {
                // A copy, so that the packet itself stays in registers.
                let packet = *packet;
                sifted(inner, only, out, |inner, out| {
                    inner.packet(at, &packet, out);
                });
            }
        }
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        let Self { inner, only } = self;
        match only {
            None => inner.lost(at, out),
            Some(only) => sifted(inner, only, out, |inner, out| inner.lost(at, out)),
        }
    }

    fn is_settled(&self) -> bool {
        self.inner.is_settled()
    }

    #[inline(always)]
    fn passes_atoms(&self) -> bool {
        self.only.is_none() && self.inner.passes_atoms()
    }

    #[inline(always)]
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
        out: &mut impl ElementSink,
    ) -> (usize, usize) {
        match self.only {
            None => self.inner.targets(bytes, locate, out),
            Some(_) => (0, 0),
        }
    }

    fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        let Self { inner, only } = self;
        match only {
            None => inner.end(at, out),
            Some(only) => sifted(inner, only, out, |inner, out| inner.end(at, out)),
        }
    }
}

/// The wanted context is part of the configuration, not of the state.
impl<E: Saved> Saved for Only<E> {
    fn state(&self) -> SavedState {
        let inner = self.inner.state();
        match self.only {
            None => inner,
            Some((_, place)) => inner.in_context(place),
        }
    }

    fn restore(&mut self, state: &SavedState) -> Result<(), OtherDecoder> {
        match (&mut self.only, state.context()) {
            (Some((_, own)), Some(place)) => *own = place,
            (None, None) => {}
            _ => return Err(OtherDecoder),
        }
        self.inner.restore(state)
    }
}

/// Passes on the elements that belong to the wanted context.
struct Sifted<'a> {
    only: &'a OnlyContext,
    place: &'a mut ContextMatch,
    out: &'a mut dyn ElementSink,
}

impl ElementSink for Sifted<'_> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        let Element::Mark(mark) = element else {
            if *self.place != ContextMatch::Outside {
                self.out.element(at, element);
            }
            return;
        };
        let by_time = matches!(self.only, OnlyContext::Timestamps(_));
        let before = *self.place;
        match self.only.runs(mark) {
            Some(true) => *self.place = ContextMatch::Inside,
            Some(false) => *self.place = ContextMatch::Outside,
            None => {}
        }
        if matches!(mark, Mark::NoSync(_)) {
            // The context is not known until the next synchronisation or timestamp.
            *self.place = self.only.initial();
        }
        let passes = match mark {
            Mark::NoSync(_) | Mark::End => true,
            // Other threads change the core's context too, and it is not repeated afterwards.
            Mark::Context(_) if by_time => true,
            _ => *self.place != ContextMatch::Outside,
        };
        let is_left = before == ContextMatch::Inside && *self.place == ContextMatch::Outside;
        if is_left && !matches!(mark, Mark::NoSync(_)) {
            // Execution before this point is not connected with execution after it.
            self.out
                .mark(at, Mark::TraceOn(TraceOnReason::BeginOrFilter));
        }
        if passes {
            self.out.element(at, element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_trace::element::{Atoms, Context, NoSyncReason};
    use armsnap_trace::protocol::ElementDecoder;

    /// A decoder whose packets are the elements that it emits.
    #[derive(Clone)]
    struct Given;

    impl ElementDecoder for Given {
        type Packet = Element;

        fn packet(&mut self, at: BufferOffset, packet: &Element, out: &mut impl ElementSink) {
            out.element(at, *packet);
        }

        fn passes_atoms(&self) -> bool {
            true
        }

        fn targets(
            &mut self,
            bytes: &[u8],
            _: impl FnMut(usize) -> BufferOffset,
            _: &mut impl ElementSink,
        ) -> (usize, usize) {
            (bytes.len(), bytes.len())
        }

        fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
            out.mark(at, Mark::End);
        }
    }

    #[test]
    fn atoms_of_all_contexts_take_the_short_way() {
        assert!(Only::new(Given, None).passes_atoms());
        assert!(!Only::new(Given, Some(OnlyContext::Vmid(1))).passes_atoms());
        let bytes = [0; 8];
        let mut out: Vec<(BufferOffset, Element)> = Vec::new();
        let at = |index| BufferOffset(index as u64);
        let mut targets = |only| Only::new(Given, only).targets(&bytes, at, &mut out);
        assert_eq!(targets(None), (8, 8));
        assert_eq!(targets(Some(OnlyContext::Vmid(1))), (0, 0));
    }

    fn context(id: u32) -> Element {
        Element::Mark(Mark::Context(Context {
            context_id: Some(id),
            ..Context::default()
        }))
    }

    #[test]
    fn other_contexts_are_left_out() {
        let atoms = |count| Element::WaypointAtoms(Atoms { bits: 1, count });
        let no_sync = Element::Mark(Mark::NoSync(NoSyncReason::Start));
        let on = Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
        let given = [
            no_sync,
            on,
            context(1),
            atoms(1),
            context(2),
            atoms(2),
            on,
            context(3),
            atoms(3),
            context(1),
            atoms(4),
            context(2),
        ];
        let sift = |only| {
            let mut decoder = Only::new(Given, only);
            let mut out: Vec<(BufferOffset, Element)> = Vec::new();
            for element in &given {
                decoder.packet(BufferOffset(0), element, &mut out);
            }
            decoder.end(BufferOffset(0), &mut out);
            out.into_iter()
                .map(|(_, element)| element)
                .collect::<Vec<_>>()
        };
        let end = Element::Mark(Mark::End);
        assert_eq!(sift(None), [&given[..], &[end]].concat());
        let first = [
            no_sync,
            on,
            context(1),
            atoms(1),
            on,
            context(1),
            atoms(4),
            on,
            end,
        ];
        assert_eq!(sift(Some(OnlyContext::ContextId(1))), first);
        assert_eq!(
            sift(Some(OnlyContext::ContextId(3))),
            [no_sync, on, context(3), atoms(3), on, end]
        );
        assert_eq!(sift(Some(OnlyContext::Vmid(1))), [no_sync, on, end]);
    }

    #[test]
    fn timestamps_select_what_follows_them() {
        let atoms = |count| Element::WaypointAtoms(Atoms { bits: 1, count });
        let time = |time| Element::Mark(Mark::Timestamp(time));
        let no_sync = Element::Mark(Mark::NoSync(NoSyncReason::Overflow));
        let on = Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
        let given = [
            context(7),
            atoms(1),
            time(10),
            atoms(2),
            time(15),
            atoms(3),
            time(20),
            atoms(4),
            context(8),
            time(30),
            atoms(5),
            no_sync,
            atoms(6),
            time(35),
            atoms(7),
        ];
        let only = OnlyContext::Timestamps([10..20, 30..40].into());
        let (key, value) = only.entry();
        let device = Device {
            other: vec![(key, value)],
            ..Device::default()
        };
        assert_eq!(OnlyContext::of(&device), Some(only.clone()));
        let mut decoder = Only::new(Given, Some(only));
        let mut out: Vec<(BufferOffset, Element)> = Vec::new();
        for element in &given {
            decoder.packet(BufferOffset(0), element, &mut out);
        }
        let found: Vec<Element> = out.into_iter().map(|(_, element)| element).collect();
        let wanted = [
            context(7),
            time(10),
            atoms(2),
            time(15),
            atoms(3),
            on,
            context(8),
            time(30),
            atoms(5),
            no_sync,
            time(35),
            atoms(7),
        ];
        assert_eq!(found, wanted);
    }
}
