//! The state of decoders, saved and restored.

use armsnap_trace::etmv3;
use armsnap_trace::etmv4;
use armsnap_trace::itm;
use armsnap_trace::ptm;
use armsnap_trace::stm;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A decoder whose state can be saved and then restored in a decoder with the same settings.
pub trait Saved {
    /// The state.
    type State: DeserializeOwned;

    /// Returns the state for serialisation. It is read back as [`State`](Self::State).
    fn state(&self) -> impl Serialize;

    /// Continues from a state.
    fn restore(&mut self, state: Self::State);
}

/// Implements [`Saved`] for decoders that are saved as a whole, including their settings.
macro_rules! saved {
    ($($decoder:ty),*) => {$(
        impl Saved for $decoder {
            type State = Self;

            fn state(&self) -> impl Serialize {
                self
            }

            fn restore(&mut self, state: Self) {
                *self = state;
            }
        }
    )*};
}

saved!(etmv3::Decoder, etmv3::Elements);
saved!(ptm::Decoder, ptm::Elements);
saved!(etmv4::Decoder, etmv4::Elements);
saved!(itm::Decoder, itm::Elements);
saved!(stm::Decoder, stm::Elements);
