//! Decodes one buffer on all processor cores: its parts are decoded separately, then joined.
//!
//! A part starts at the start of any piece. Its decoders start a little earlier, without any state,
//! and synchronise in this lead-in ([`PartDecoder`]). Each page, the output of one piece, carries
//! the state of the decoders before it. The [`Joiner`], which knows the true state at the end of
//! the output, takes a page of a source if both states are equal: from equal states, equal bytes
//! decode to the same output. If they differ, or a return in the page goes to a caller from before
//! the part, or the [`Receiver`] refuses the page, the joiner decodes the piece itself, and
//! compares again at the next one. A wrong guess costs time, but never changes the output.
//!
//! Parts, pages and states can be serialised: a part can be decoded on another machine.

mod board;
mod decoder;
mod joiner;
mod layout;
mod runner;
mod state;

pub use board::Sizes;
pub use decoder::PartDecoder;
pub use joiner::Joiner;
pub use runner::Decoders;
pub use state::{Page, Part, PartError, PartState};
pub(crate) use state::{SourceState, frames_alike};

use super::silence::Totals;
use super::state::Unsaved;
use armsnap_snapshot::capture::CaptureBuffer;
use board::{Board, Event};
use decoder::SHORTEST_LEAD;
use std::iter;
use std::thread;

/// The most files that a buffer decoded in parts may have.
const MAX_FILES: usize = 64;
/// After this many parts, none of them useful, no more are tried.
const MAX_FAILED: u64 = 4;

/// The output of a source for a piece.
pub trait Output: Default + Send {
    /// Returns its approximate size in bytes.
    fn bytes(&self) -> usize;
}

/// Receives what is decoded, in order.
pub trait Receiver<T, X> {
    /// Into how many pieces the joiner cuts a piece that it decodes itself.
    const CUTS: usize = 1;

    /// Returns whether the output of a source for the next piece can be used as decoded in its
    /// part. If not, the joiner's decoder decodes the piece.
    fn accepts(&mut self, source: usize, output: &T) -> bool {
        let _ = (source, output);
        true
    }

    /// Receives the output of all sources for the next piece, and the offset after it.
    ///
    /// # Errors
    ///
    /// If it cannot continue.
    fn receive(&mut self, outputs: Vec<T>, at: u64) -> Result<(), X>;
}

impl<T, X, F: FnMut(Vec<T>, u64) -> Result<(), X>> Receiver<T, X> for F {
    fn receive(&mut self, outputs: Vec<T>, at: u64) -> Result<(), X> {
        self(outputs, at)
    }
}

/// What decoders are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// For a thread that decodes parts.
    Part,
    /// For the joiner.
    Joiner,
}

/// Ends the work of the threads, whatever happens to the joining thread.
struct Close<'b, 'a, T>(&'b Board<'a, T>);

impl<T> Drop for Close<'_, '_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reports the end of a thread.
struct Leave<'b, 'a, T>(&'b Board<'a, T>);

impl<T> Drop for Leave<'_, '_, T> {
    fn drop(&mut self) {
        self.0.leave(thread::panicking());
    }
}

/// Decodes a buffer in parts on `jobs` threads. `make` makes the decoders of its sources, and `take`
/// takes the output of one of them after a piece, with its number of packets.
///
/// The output equals that of [`decode_buffer`](super::decode_buffer) with pieces of the same size.
/// Returns the number of bytes of each trace ID, or `None` without any output if parts are not
/// worthwhile: the buffer is short, or decoding can start at few points in it.
///
/// # Errors
///
/// Those of `make` and of the receiver, and if a state cannot be restored.
pub fn decode_in_parts<'a, O: ?Sized, T: Output, X: From<PartError>>(
    buffer: &'a CaptureBuffer,
    sizes: Sizes,
    jobs: usize,
    make: &(impl Fn(Role) -> Result<Decoders<'a, O>, X> + Sync),
    take: &(impl Fn(&mut O, u64) -> T + Sync),
    receiver: &mut impl Receiver<T, X>,
) -> Result<Option<Totals>, X> {
    let total = buffer.bytes();
    if total < 4 * sizes.piece as u64 || buffer.parts.len() > MAX_FILES {
        return Ok(None);
    }
    let Ok(mut joiner) = Joiner::new(buffer, make(Role::Joiner)?, sizes.piece, take) else {
        return Ok(None);
    };
    let lead = match sizes.lead_in {
        Some(lead) => Some(lead),
        None => lead_in(buffer, sizes, make(Role::Part)?, take),
    };
    let Some(lead) = lead else {
        return Ok(None);
    };
    let board = Board::new(buffer, sizes, jobs.max(1), lead);
    thread::scope(|scope| {
        let _close = Close(&board);
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let _leave = Leave(&board);
                work(&board, buffer, sizes, make, take);
            });
        }
        join(&board, &mut joiner, receiver)?;
        board.close();
        joiner.decode(total, receiver)?;
        Ok(Some(joiner.totals()))
    })
}

/// Decodes a buffer on one thread, page by page, like [`decode_in_parts`].
///
/// # Errors
///
/// Those of `make` and of the receiver, and if a state cannot be restored.
pub fn decode_in_pages<'a, O: ?Sized, T: Output, X: From<PartError>>(
    buffer: &'a CaptureBuffer,
    piece: usize,
    make: &(impl Fn(Role) -> Result<Decoders<'a, O>, X> + Sync),
    take: &(impl Fn(&mut O, u64) -> T + Sync),
    receiver: &mut impl Receiver<T, X>,
) -> Result<Totals, X> {
    let state = |error: Unsaved| X::from(PartError::from(error));
    let mut joiner = Joiner::new(buffer, make(Role::Joiner)?, piece, take).map_err(state)?;
    let decoders = make(Role::Part)?;
    let mut decoder = PartDecoder::new(buffer, decoders, piece, take).map_err(state)?;
    let whole = Part {
        lead_in: 0,
        start: 0,
        end: buffer.bytes(),
    };
    joiner.begin(0, receiver)?;
    let mut result = Ok(());
    let exit = decoder.decode(&whole, |page| {
        result = joiner.page(page, receiver);
        result.is_ok()
    });
    result?;
    if let Ok(exit) = exit {
        joiner.end(&exit)?;
    }
    joiner.decode(buffer.bytes(), receiver)?;
    Ok(joiner.totals())
}

/// Decodes one part after another.
fn work<'a, O: ?Sized, T: Output, X>(
    board: &Board<'a, T>,
    buffer: &'a CaptureBuffer,
    sizes: Sizes,
    make: &(impl Fn(Role) -> Result<Decoders<'a, O>, X> + Sync),
    take: &(impl Fn(&mut O, u64) -> T + Sync),
) {
    // The joiner made the same decoders; if this fails, it continues alone.
    let Ok(decoders) = make(Role::Part) else {
        return;
    };
    let Ok(mut decoder) = PartDecoder::new(buffer, decoders, sizes.piece, take) else {
        return;
    };
    while let Some((number, part)) = board.claim() {
        let exit = decoder.decode(&part, |page| {
            let size = page.bytes();
            board.push(number, page, size)
        });
        board.finish(number, exit.ok());
    }
}

/// Joins parts until there are no more, or until they turn out useless.
fn join<O: ?Sized, T: Output, X: From<PartError>>(
    board: &Board<'_, T>,
    joiner: &mut Joiner<'_, '_, O, T>,
    receiver: &mut impl Receiver<T, X>,
) -> Result<(), X> {
    let (mut parts, mut failed) = (0, 0);
    let (mut taken, mut first) = (0, true);
    loop {
        match board.next() {
            Event::Begin(start) => {
                joiner.begin(start, receiver)?;
                (taken, first) = (joiner.taken(), true);
            }
            Event::Page(page) => {
                joiner.page(*page, receiver)?;
                if std::mem::take(&mut first) && !joiner.is_following() {
                    board.lengthen();
                }
            }
            Event::End(exit, end) => {
                if let Some(exit) = exit {
                    joiner.end(&exit)?;
                }
                joiner.decode(end, receiver)?;
                parts += 1;
                failed += u64::from(joiner.taken() == taken);
                if failed >= MAX_FAILED && failed > parts / 2 {
                    return Ok(());
                }
            }
            Event::Closed | Event::Broken => return Ok(()),
        }
    }
}

/// Finds a lead-in with which the decoders synchronise at most offsets of the buffer; `None` if
/// they hardly ever synchronise.
fn lead_in<'a, O: ?Sized, T: Output>(
    buffer: &'a CaptureBuffer,
    sizes: Sizes,
    decoders: Decoders<'a, O>,
    take: &(impl Fn(&mut O, u64) -> T + Sync),
) -> Option<u64> {
    let mut decoder = PartDecoder::new(buffer, decoders, sizes.piece, take).ok()?;
    let most = sizes.part / 2;
    let mut found = Vec::new();
    for quarter in 1..4 {
        let at = buffer.bytes() / 4 * quarter;
        let least = found.last().copied().unwrap_or(SHORTEST_LEAD.min(most));
        let leads = iter::successors(Some(least), |lead| Some(lead * 4));
        let leads = leads.take_while(|&lead| lead <= most && lead < at);
        found.extend(decoder.lead_in(at, leads).ok()?);
    }
    (found.len() >= 2).then(|| found.pop()).flatten()
}
