//! A source whose trace is that of several threads or machines, of which one is wanted.
//!
//! The core's context is traced with its changes. What was traced in other contexts is left out, as
//! if the trace unit had been off meanwhile.

use crate::element::{Context, Element, ElementSink, Mark, TraceOnReason};
use crate::protocol::ElementDecoder;
use crate::quantity::BufferOffset;
use crate::snapshot::model::Device;
use crate::snapshot::registers::parse_u64;

/// The context that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlyContext {
    /// This context ID (CONTEXTIDR).
    ContextId(u32),
    /// This virtual context (VMID, or CONTEXTIDR_EL2 in its place).
    Vmid(u32),
}

impl OnlyContext {
    /// The keys of a source's device for it.
    const CONTEXT_ID: &str = "only_context_id";
    const VMID: &str = "only_vmid";

    /// Reads it from the device of a source; `None` if all contexts are wanted.
    pub fn of(device: &Device) -> Option<Self> {
        device.other.iter().find_map(|(key, value)| {
            let value = || u32::try_from(parse_u64(value)?).ok();
            match key.as_str() {
                Self::CONTEXT_ID => Some(Self::ContextId(value()?)),
                Self::VMID => Some(Self::Vmid(value()?)),
                _ => None,
            }
        })
    }

    /// Its key and value in the device of a source.
    pub fn entry(self) -> (String, String) {
        let (key, value) = match self {
            Self::ContextId(value) => (Self::CONTEXT_ID, value),
            Self::Vmid(value) => (Self::VMID, value),
        };
        (key.to_owned(), format!("{value:#x}"))
    }

    fn is(self, context: &Context) -> bool {
        match self {
            Self::ContextId(value) => context.context_id == Some(value),
            Self::Vmid(value) => context.vmid == Some(value),
        }
    }
}

/// Where the trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// No context was traced yet.
    Unknown,
    /// In the wanted context.
    Inside,
    /// In another one.
    Outside,
}

/// An element decoder that emits what was traced in the wanted context.
#[derive(Clone, Debug)]
pub struct Only<E> {
    inner: E,
    only: Option<OnlyContext>,
    place: Place,
}

impl<E> Only<E> {
    /// Without a wanted context everything is emitted.
    pub const fn new(inner: E, only: Option<OnlyContext>) -> Self {
        Self {
            inner,
            only,
            place: Place::Unknown,
        }
    }
}

impl<E: ElementDecoder> Only<E> {
    /// Out of line: most traces are wanted whole.
    #[cold]
    #[inline(never)]
    fn sifted<S: ElementSink>(
        &mut self,
        only: OnlyContext,
        out: &mut S,
        run: impl FnOnce(&mut E, &mut Sifted<'_, S>),
    ) {
        let place = &mut self.place;
        run(&mut self.inner, &mut Sifted { only, place, out });
    }
}

impl<E: ElementDecoder> ElementDecoder for Only<E> {
    type Packet = E::Packet;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, out: &mut impl ElementSink) {
        match self.only {
            None => self.inner.packet(at, packet, out),
            Some(only) => self.sifted(only, out, |inner, out| inner.packet(at, packet, out)),
        }
    }

    fn lost(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
        match self.only {
            None => self.inner.lost(at, out),
            Some(only) => self.sifted(only, out, |inner, out| inner.lost(at, out)),
        }
    }

    fn is_settled(&self) -> bool {
        self.inner.is_settled()
    }

    #[inline(always)]
    fn passes_atoms(&self) -> bool {
        self.only.is_none() && self.inner.passes_atoms()
    }

    fn end(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
        match self.only {
            None => self.inner.end(at, out),
            Some(only) => self.sifted(only, out, |inner, out| inner.end(at, out)),
        }
    }
}

/// Passes on what belongs to the wanted context.
struct Sifted<'a, S> {
    only: OnlyContext,
    place: &'a mut Place,
    out: &'a mut S,
}

impl<S: ElementSink> ElementSink for Sifted<'_, S> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        match element {
            Element::Mark(Mark::Context(context)) if self.only.is(&context) => {
                *self.place = Place::Inside;
            }
            Element::Mark(Mark::Context(_)) => {
                let before = std::mem::replace(self.place, Place::Outside);
                if before == Place::Inside {
                    // Execution before and after is not connected.
                    self.out
                        .mark(at, Mark::TraceOn(TraceOnReason::BeginOrFilter));
                }
            }
            // The next context follows the next synchronisation.
            Element::Mark(Mark::NoSync(_)) => *self.place = Place::Unknown,
            _ => {}
        }
        let end = element == Element::Mark(Mark::End);
        if end || *self.place != Place::Outside {
            self.out.element(at, element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Atoms, NoSyncReason};
    use crate::protocol::ElementDecoder;

    /// Emits the elements that are its packets.
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

        fn end(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
            out.mark(at, Mark::End);
        }
    }

    #[test]
    fn atoms_of_all_contexts_take_the_short_way() {
        assert!(Only::new(Given, None).passes_atoms());
        assert!(!Only::new(Given, Some(OnlyContext::Vmid(1))).passes_atoms());
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
}
