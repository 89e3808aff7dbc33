//! One buffer on all processor cores: parts of it are decoded on their own, and joined.
//!
//! A part starts at any piece. Its decoders start a little earlier, knowing nothing, and synchronise
//! in this lead-in ([`PartDecoder`]). With each page, which is what a piece decodes to, comes the
//! state of the decoders before it. The [`Joiner`], which knows the true state where the output ends,
//! takes a page of a source if both states are equal: equal states decode equal bytes to the same
//! output. If they are not, or a return in the page goes to a caller from before the part, the joiner
//! decodes the piece itself, and compares again at the next one. So a wrong guess costs time, and never
//! changes the output.
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

use super::silence::Totals;
use crate::capture::CaptureBuffer;
use board::{Board, Event};
use decoder::SHORTEST_LEAD;
use std::iter;
use std::thread;

/// The most files of a buffer that is decoded in parts.
const MAX_FILES: usize = 64;
/// Parts of which none was of use, after which no more are tried.
const MAX_FAILED: u64 = 4;

/// The output of a source for a piece.
pub trait Output: Default + Send {
    /// Returns its approximate size in bytes.
    fn bytes(&self) -> usize;
}

/// Ends the work of the threads, whatever happens to the one that joins.
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
/// takes the output of one of them after a piece, with its number of packets. `give` gets the output
/// of all of them for each piece, in order, and the offset after the piece.
///
/// The output is that of [`decode_buffer`](super::decode_buffer) with pieces of the same size. Returns
/// the number of bytes of each trace ID, or `None` without any output if parts are not worth while:
/// the buffer is short, or has few places where decoding can start.
///
/// # Errors
///
/// Those of `make` and `give`, and if a state cannot be restored.
pub fn decode_in_parts<'a, O: ?Sized, T: Output, X: From<PartError>>(
    buffer: &'a CaptureBuffer,
    sizes: Sizes,
    jobs: usize,
    make: &(impl Fn() -> Result<Decoders<'a, O>, X> + Sync),
    take: &(impl Fn(&mut O, u64) -> T + Sync),
    mut give: impl FnMut(Vec<T>, u64) -> Result<(), X>,
) -> Result<Option<Totals>, X> {
    let total = buffer.bytes();
    if total < 4 * sizes.piece as u64 || buffer.parts.len() > MAX_FILES {
        return Ok(None);
    }
    let Ok(mut joiner) = Joiner::new(buffer, make()?, sizes.piece, take) else {
        return Ok(None);
    };
    let lead = match sizes.lead_in {
        Some(lead) => Some(lead),
        None => lead_in(buffer, sizes, make()?, take),
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
        join(&board, &mut joiner, &mut give)?;
        board.close();
        joiner.decode(total, &mut give)?;
        Ok(Some(joiner.totals()))
    })
}

/// Decodes one part after another.
fn work<'a, O: ?Sized, T: Output, X>(
    board: &Board<'a, T>,
    buffer: &'a CaptureBuffer,
    sizes: Sizes,
    make: &(impl Fn() -> Result<Decoders<'a, O>, X> + Sync),
    take: &(impl Fn(&mut O, u64) -> T + Sync),
) {
    // The joiner made the same decoders: if these fail, it goes on alone.
    let Ok(decoders) = make() else { return };
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

/// Joins parts until there are no more, or they are of no use.
fn join<O: ?Sized, T: Output, X: From<PartError>>(
    board: &Board<'_, T>,
    joiner: &mut Joiner<'_, '_, O, T>,
    give: &mut impl FnMut(Vec<T>, u64) -> Result<(), X>,
) -> Result<(), X> {
    let (mut parts, mut failed) = (0, 0);
    let (mut taken, mut first) = (0, true);
    loop {
        match board.next() {
            Event::Begin(start) => {
                joiner.begin(start, give)?;
                (taken, first) = (joiner.taken(), true);
            }
            Event::Page(page) => {
                joiner.page(*page, give)?;
                if std::mem::take(&mut first) && !joiner.is_following() {
                    board.lengthen();
                }
            }
            Event::End(exit, end) => {
                if let Some(exit) = exit {
                    joiner.end(&exit)?;
                }
                joiner.decode(end, give)?;
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

/// Finds a lead-in in which the decoders synchronise at most places of the buffer; `None` if they
/// hardly synchronise.
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
