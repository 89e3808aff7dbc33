//! The state of a source's decoders between two pieces of its stream: saved, compared, restored.
//!
//! Equal states decode the same bytes to the same output. A state knows nothing of the decoders that
//! it was saved by, so it can be restored in another thread or, serialised, on another machine.

use super::source::{Decoding, ElementStage, Source, SourceSinks};
use armsnap_arch::quantity::BufferOffset;
use armsnap_snapshot::capture::{OtherDecoder, Saved, SavedState};
use armsnap_trace::element::{AtomSink, Context, Element};
use armsnap_trace::flow::{Below, CodeImage, FlowDriver, FlowState, View};
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder, PacketSink};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The most bytes saved of elements that are held back. Only hostile traces hold back so much.
const MOST: usize = 64 << 10;

/// A decoder state cannot be saved, or belongs to other decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of a decoder cannot be saved or restored")]
pub struct Unsaved;

impl From<OtherDecoder> for Unsaved {
    fn from(_: OtherDecoder) -> Self {
        Self
    }
}

/// The state of all stages of a source. It is valid for decoders with the same configuration, code
/// and form of output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageStates {
    packets: SavedState,
    /// `None` if the packets are not decoded further.
    elements: Option<SavedState>,
    /// `None` if no code is followed.
    flow: Option<FlowState>,
    /// The state of the last stage.
    pub sink: SinkState,
}

/// The state of the last stage of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum SinkState {
    /// Its output depends on nothing before.
    #[default]
    None,
    /// It has seen this context.
    Context(Option<Context>),
    /// It reads memory through this view.
    View(View),
    /// It waits for a count of cycles.
    Cycles {
        /// Whether the trace has counted any, or its unit was set to.
        counting: bool,
        /// The elements that wait, with their offsets.
        held: Vec<(BufferOffset, Element)>,
    },
}

impl StageStates {
    /// Returns the state of decoders whose elements a flow follows, and whose last stage has none.
    pub(crate) fn of(packets: &impl Saved, elements: &impl Saved, flow: FlowState) -> Self {
        Self {
            packets: packets.state(),
            elements: Some(elements.state()),
            flow: Some(flow),
            sink: SinkState::None,
        }
    }

    /// Restores the state of the decoders of packets and elements.
    ///
    /// # Errors
    ///
    /// If it was saved by others.
    pub(crate) fn restore_elements(
        &self,
        packets: &mut impl Saved,
        elements: &mut impl Saved,
    ) -> Result<(), OtherDecoder> {
        packets.restore(&self.packets)?;
        elements.restore(self.elements.as_ref().ok_or(OtherDecoder)?)
    }

    /// Returns the state of the flow.
    pub(crate) fn flow(&self) -> Option<&FlowState> {
        self.flow.as_ref()
    }

    /// Returns the same state for the middle of a trace, where callers from before are unknown.
    #[must_use]
    pub fn with_unknown_callers(self) -> Self {
        Self {
            flow: self.flow.map(FlowState::with_unknown_callers),
            ..self
        }
    }

    /// Compares this state, in which everything is known, with that of decoders that may not know
    /// the oldest callers. If both continue in the same way, returns the callers that the other
    /// does not know; none without a flow.
    #[must_use]
    pub fn below(&self, other: &Self) -> Option<Below> {
        if (&self.packets, &self.elements, &self.sink)
            != (&other.packets, &other.elements, &other.sink)
        {
            return None;
        }
        match (&self.flow, &other.flow) {
            (None, None) => Some(Below::default()),
            (Some(flow), Some(other)) => flow.below(other),
            _ => None,
        }
    }

    /// Returns the state with the callers below the known ones filled in.
    #[must_use]
    pub fn over(&self, below: &Below) -> Self {
        Self {
            flow: self.flow.as_ref().map(|flow| flow.over(below)),
            ..self.clone()
        }
    }

    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let elements = self.elements.as_ref().map_or(0, SavedState::bytes);
        self.packets.bytes() + elements + size_of::<Self>()
    }
}

/// A sink of packets, elements or flow whose state can be saved. The default is for a sink whose
/// output depends on nothing before it.
pub trait Stage {
    /// Saves the state of this stage and those after it.
    ///
    /// # Errors
    ///
    /// If it cannot be saved now.
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        let _ = to;
        Ok(())
    }

    /// Restores the state of this stage and those after it.
    ///
    /// # Errors
    ///
    /// If the state was saved by other stages.
    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        let _ = from;
        Ok(())
    }

    /// Returns whether a return has gone to a caller unknown here since the last call.
    fn take_missed(&mut self) -> bool {
        false
    }
}

/// A source whose decoders can be saved and restored.
pub trait Resumable<O: ?Sized>: Decoding<O> {
    /// Returns whether the start of the next packet is known.
    fn is_synchronised(&self) -> bool;

    /// Returns the state of all stages.
    ///
    /// # Errors
    ///
    /// If it cannot be saved now.
    fn state(&self) -> Result<StageStates, Unsaved>;

    /// Continues from a state.
    ///
    /// # Errors
    ///
    /// If the state was saved by other decoders. Some of the stages may then have changed.
    fn resume(&mut self, state: &StageStates) -> Result<(), Unsaved>;

    /// Returns whether a return has gone to a caller unknown here since the last call.
    fn take_missed(&mut self) -> bool;
}

impl<O: ?Sized, D, S> Resumable<O> for Source<D, S>
where
    D: PacketDecoder + Saved,
    S: PacketSink<D::Packet> + SourceSinks<O> + Stage,
{
    fn is_synchronised(&self) -> bool {
        self.decoder.is_synchronised()
    }

    fn state(&self) -> Result<StageStates, Unsaved> {
        let mut states = StageStates {
            packets: self.decoder.state(),
            elements: None,
            flow: None,
            sink: SinkState::None,
        };
        self.stage.sink.save(&mut states)?;
        Ok(states)
    }

    fn resume(&mut self, state: &StageStates) -> Result<(), Unsaved> {
        self.decoder.restore(&state.packets)?;
        self.stage.sink.restore(state)
    }

    fn take_missed(&mut self) -> bool {
        self.stage.sink.take_missed()
    }
}

impl<E: ElementDecoder + Saved, S: AtomSink + Stage> Stage for ElementStage<E, S> {
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        let state = self.elements.state();
        if state.bytes() > MOST {
            return Err(Unsaved);
        }
        to.elements = Some(state);
        self.sink.save(to)
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        let state = from.elements.as_ref().ok_or(Unsaved)?;
        self.elements.restore(state)?;
        self.sink.restore(from)
    }

    fn take_missed(&mut self) -> bool {
        self.sink.take_missed()
    }
}

impl<C: CodeImage, S: Stage> Stage for FlowDriver<C, S> {
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        to.flow = Some(self.flow.state());
        self.sink.save(to)
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        self.flow.resume(from.flow.as_ref().ok_or(Unsaved)?);
        self.sink.restore(from)
    }

    fn take_missed(&mut self) -> bool {
        self.flow.take_missed()
    }
}

/// Bytes up to a maximum count.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most - self.bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a value as JSON; `None` if the JSON has more than `most` bytes.
pub(crate) fn bounded_json(value: &impl Serialize, most: usize) -> Option<Vec<u8>> {
    let bytes = Vec::with_capacity(most.min(1 << 10));
    let mut out = Bounded { bytes, most };
    serde_json::to_writer(&mut out, value).ok()?;
    Some(out.bytes)
}
