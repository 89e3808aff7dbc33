//! Pieces of a trace, decoded independently of what came before, for a [`Course`](super::Course)
//! that follows them in order.
//!
//! A [`Recorder`] is the last stage of the decoders of a part. What depends on earlier execution
//! becomes a [`Step`] of its [`Piece`]: calls, returns, exceptions, gaps; everything else is only
//! counted. For courses that want sums and no timeline, it also counts the calls that begin and
//! return within the piece.

mod counts;
mod decoder;
mod facts;
mod frames;
mod names;
mod piece;
mod recorder;

pub(super) use decoder::decoder;
pub(super) use facts::Facts;
#[cfg(test)]
pub(super) use piece::Step;
pub(super) use piece::{Advance, Calls, Target, What};
pub use piece::{Line, Piece, Straight};
pub(super) use recorder::{Recorder, Wanted};
