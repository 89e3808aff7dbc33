//! One trace on several machines: shards are decoded independently, and joined.
//!
//! A [`Plan`] divides the buffers into shards. [`decode_shard`] decodes one of them: its decoders
//! synchronise in the trace before it, and it passes on a [`Piece`] of each track for each page of
//! the buffer. A piece contains the executed straight lines, counts of blocks, and the few things
//! that depend on earlier execution: calls, returns, exceptions, gaps. [`join`] passes the pieces,
//! in order, to the same [`Course`](super::Course) that follows a trace decoded as a whole, so the
//! result is the same.
//!
//! [`armsnap_history::decode::parts`] says when a piece can be accepted. Those that cannot are
//! decoded again by [`join`].

mod file;
mod join;
mod plan;

pub use super::pieces::{Line, Piece, Straight};
pub use file::{FileError, Header, Reader, Record, Writer};
pub use join::{JoinError, join};
pub use plan::{Plan, Planned, decode_shard};
