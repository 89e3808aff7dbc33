//! The state of decoders, saved and restored.

use super::only::ContextMatch;
use armsnap_trace::etmv3;
use armsnap_trace::etmv4;
use armsnap_trace::itm;
use armsnap_trace::ptm;
use armsnap_trace::stm;
use serde::{Deserialize, Serialize};

/// A state was saved by another kind of decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherDecoder;

/// A decoder whose state can be saved and then restored in a decoder with the same settings.
pub trait Saved {
    /// Returns the state.
    fn state(&self) -> SavedState;

    /// Continues from a state.
    ///
    /// # Errors
    ///
    /// If the state was saved by another kind of decoder.
    fn restore(&mut self, state: &SavedState) -> Result<(), OtherDecoder>;
}

/// The state of a decoder of packets or elements. Decoders with equal states continue in the same
/// way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    decoder: Decoder,
    /// Of a decoder of elements that is limited to a context.
    context: Option<ContextMatch>,
}

/// Declares [`Decoder`]: decoders are saved as a whole, including their settings.
macro_rules! saved {
    ($($variant:ident($decoder:ty),)*) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        enum Decoder {
            $($variant(Box<$decoder>),)*
        }

        $(impl Saved for $decoder {
            fn state(&self) -> SavedState {
                SavedState {
                    decoder: Decoder::$variant(Box::new(self.clone())),
                    context: None,
                }
            }

            fn restore(&mut self, state: &SavedState) -> Result<(), OtherDecoder> {
                let Decoder::$variant(state) = &state.decoder else {
                    return Err(OtherDecoder);
                };
                self.clone_from(state);
                Ok(())
            }
        })*
    };
}

saved! {
    Etmv3Packets(etmv3::Decoder),
    Etmv3Elements(etmv3::Elements),
    PtmPackets(ptm::Decoder),
    PtmElements(ptm::Elements),
    Etmv4Packets(etmv4::Decoder),
    Etmv4Elements(etmv4::Elements),
    ItmPackets(itm::Decoder),
    ItmElements(itm::Elements),
    StmPackets(stm::Decoder),
    StmElements(stm::Elements),
}

impl SavedState {
    /// Returns the same state, of a decoder that is limited to a context.
    pub(super) fn in_context(self, place: ContextMatch) -> Self {
        Self {
            context: Some(place),
            ..self
        }
    }

    /// Returns where a decoder that is limited to a context was; `None` for others.
    pub(super) const fn context(&self) -> Option<ContextMatch> {
        self.context
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let held = match &self.decoder {
            Decoder::Etmv4Elements(elements) => elements.held_bytes(),
            _ => 0,
        };
        size_of::<Self>() + 512 + held
    }
}
