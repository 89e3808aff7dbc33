//! Joins the shards of a trace.

use super::super::course::Replayed;
use super::super::run::{Profile, Running, Track};
use super::super::stack::Listener;
use super::super::window::Window;
use super::Piece;
use super::file::{FileError, Reader, Record};
use super::plan::{Plan, take};
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::parts::{Joiner, PartError};
use armsnap_history::decode::{Programs, Totals, Unsaved};
use armsnap_snapshot::capture::{Capture, CaptureBuffer};
use armsnap_snapshot::mapped;
use armsnap_snapshot::snapshot::OpenSnapshot;
use std::io::{self, Read};

/// Why shards cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The snapshot cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A shard file cannot be used.
    #[error("shard {number}: {error}")]
    File {
        /// The number of the shard; the first is 1.
        number: usize,
        /// What is wrong with it.
        error: FileError,
    },
    /// A shard does not belong to this snapshot or to this number of shards.
    #[error("shard {number}: {why}")]
    Unfit {
        /// The number of the shard; the first is 1.
        number: usize,
        /// What does not fit.
        why: String,
    },
    /// The parts do not follow each other.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The state of a decoder cannot be restored.
    #[error(transparent)]
    State(#[from] Unsaved),
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Io(error) => error,
            error => io::Error::other(error),
        }
    }
}

/// The files of all shards, one after the other.
struct Files<'f, R> {
    files: &'f mut [Reader<R>],
    shard: usize,
    /// The record that was read but not used yet.
    next: Option<Record>,
}

impl<R: Read> Files<'_, R> {
    /// Returns the next record, without using it.
    fn peek(&mut self) -> Result<Option<&Record>, JoinError> {
        while self.next.is_none() && self.shard < self.files.len() {
            let read = self.files[self.shard].read();
            let number = self.shard + 1;
            self.next = read.map_err(|error| JoinError::File { number, error })?;
            if self.next.is_none() {
                self.shard += 1;
            }
        }
        Ok(self.next.as_ref())
    }
}

/// Joins all shards, whose files are in order. The result equals that of
/// [`profile`](super::super::profile) without a window, except that shards do not contain straight
/// lines by chains of callers ([`Listener::LINES`]): the tree lacks them. `finished` receives, at
/// the end of each buffer, its index with the bytes of each source; `progress` the number of bytes
/// done.
///
/// # Errors
///
/// If a file is not a shard file of this trace, or cannot be read.
pub fn join<L: Listener, R: Read>(
    loaded: &OpenSnapshot,
    capture: &Capture,
    programs: &Programs,
    files: &mut [Reader<R>],
    listener: impl FnMut(&Track) -> L,
    mut progress: impl FnMut(u64),
    mut finished: impl FnMut(usize, Option<&Totals>),
) -> Result<Vec<(Track, Profile, L)>, JoinError> {
    let shards = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let plan = Plan::new(loaded, capture, programs, shards);
    let wanted = plan.header(0);
    for (index, file) in files.iter().enumerate() {
        let (number, found) = (index + 1, file.header());
        if !found.is_like(&wanted) {
            let why = match (found.shards == shards, found.armsnap == wanted.armsnap) {
                (_, false) => format!("it is of armsnap {}", found.armsnap),
                (false, _) => format!("it is one of {}, and there are {shards}", found.shards),
                _ => "it is of another snapshot".to_owned(),
            };
            return Err(JoinError::Unfit { number, why });
        }
        if found.shard as usize != index {
            let why = format!("found shard {}", u64::from(found.shard) + 1);
            return Err(JoinError::Unfit { number, why });
        }
    }
    let mut files = Files {
        files,
        shard: 0,
        next: None,
    };
    let all = |_: &Track| Some(Window::default());
    let mut running = Running::all(loaded, capture, programs, &all, listener);
    let mut done = 0;
    for (index, buffer) in capture.buffers.iter().enumerate() {
        let mut here: Vec<_> = Vec::new();
        let tracks = plan.tracks_in(index);
        for (track, one) in running.iter_mut().enumerate() {
            if tracks.contains(&track) {
                one.start_buffer(buffer);
                here.push((one, Replayed::default()));
            }
        }
        let totals = join_buffer(&plan, index, buffer, &mut files, &mut here, |at| {
            progress(done + at);
        })?;
        finished(index, totals.as_ref());
        done += buffer.bytes();
    }
    if files.peek()?.is_some() {
        return Err(PartError::Misplaced.into());
    }
    Ok(running.into_iter().map(Running::finish).collect())
}

fn join_buffer<L: Listener, R: Read>(
    plan: &Plan<'_>,
    index: usize,
    buffer: &CaptureBuffer,
    files: &mut Files<'_, R>,
    tracks: &mut [(&mut Running<'_, L>, Replayed)],
    mut progress: impl FnMut(u64),
) -> Result<Option<Totals>, JoinError> {
    if tracks.is_empty() {
        return Ok(None);
    }
    let total = buffer.bytes();
    let mut decoders = plan.decoders(index, true);
    if total == 0 {
        for ((_, decoder), track) in decoders.iter_mut().zip(tracks) {
            decoder.end(BufferOffset(0));
            replay(track, &decoder.output().take(0));
        }
        return Ok(Some([0; 128]));
    }
    let mut give = |pieces: Vec<Piece>, at: u64| {
        for (track, piece) in tracks.iter_mut().zip(&pieces) {
            replay(track, piece);
        }
        progress(at);
        Ok::<_, JoinError>(mapped::whole()?)
    };
    let mut joiner = Joiner::new(buffer, decoders, plan.page(), &take)?;
    while let Some(Record::Begin(planned)) = files.peek()? {
        if planned.buffer != index {
            break;
        }
        joiner.begin(planned.part.start, &mut give)?;
        files.next = None;
        loop {
            files.peek()?;
            let shard = files.shard as u32;
            match files.next.take() {
                Some(Record::Page(mut page)) => {
                    for piece in &mut page.outputs {
                        piece.from = Some((shard, page.range.start));
                    }
                    joiner.page(*page, &mut give)?;
                }
                Some(Record::End(state)) => {
                    if let Some(state) = state {
                        joiner.end(&state)?;
                    }
                    break;
                }
                _ => return Err(PartError::Misplaced.into()),
            }
        }
    }
    joiner.decode(total, &mut give)?;
    Ok(Some(joiner.totals()))
}

fn replay<L: Listener>(track: &mut (&mut Running<'_, L>, Replayed), piece: &Piece) {
    let (running, replayed) = track;
    running.packets += piece.packets;
    running.course.replay(replayed, piece);
}
