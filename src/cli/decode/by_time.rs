//! Decodes the sources of a buffer into one listing by time.
//!
//! Each source is decoded by a thread of its own, which sends its text with the time of each part of
//! it. Parts of all sources are merged: those of a source stay in their order, and of those that are
//! next, the one with the least time is written. A part without a time is written before the first part
//! with a time after it in the buffer.

use super::job::{Decoded, Job, Stopped, joined};
use armsnap::capture::CaptureBuffer;
use armsnap::report::listing::Stretch;
use armsnap::report::listing::text_buffer::TextBuffer;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// The number of pages of a source that may wait for other sources.
const WAITING: usize = 2;

/// A page of a source's text, with its stretches, or none if a piece of trace was decoded without
/// filling one.
type Page = Option<(Vec<u8>, Vec<Stretch>)>;

/// A source whose text is merged.
struct Merged {
    pages: Receiver<Page>,
    text: Vec<u8>,
    stretches: Vec<Stretch>,
    /// The next stretch.
    next: usize,
    has_times: bool,
    /// Whether lines have no time.
    lacks_times: bool,
}

impl Merged {
    fn new(pages: Receiver<Page>) -> Self {
        Self {
            pages,
            text: Vec::new(),
            stretches: Vec::new(),
            next: 0,
            has_times: false,
            lacks_times: false,
        }
    }

    /// Returns the next stretch; waits for a page if there is none. `piece` is called after each piece
    /// of trace.
    fn head(&mut self, mut piece: impl FnMut()) -> Option<Stretch> {
        while self.next == self.stretches.len() {
            let page = self.pages.recv().ok()?;
            piece();
            if let Some((text, stretches)) = page {
                (self.text, self.stretches) = (text, stretches);
                self.next = 0;
            }
        }
        Some(self.stretches[self.next])
    }

    /// Writes the next stretch.
    fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        let stretch = self.stretches[self.next];
        self.next += 1;
        let end = self.stretches.get(self.next);
        let end = end.map_or(self.text.len(), |next| next.start);
        match stretch.time {
            Some(_) => self.has_times = true,
            None => self.lacks_times = true,
        }
        out.write_all(&self.text[stretch.start..end])
    }

    /// What is said of lines without a time.
    fn note(&self) -> Option<&'static str> {
        match (self.lacks_times, self.has_times) {
            (false, _) => None,
            (true, false) => {
                Some("it has no timestamps: its lines are where they are in the buffer")
            }
            (true, true) => {
                Some("its lines before its first timestamp are where they are in the buffer")
            }
        }
    }
}

impl Job<'_> {
    /// Decodes a buffer; `progress` receives the number of bytes done.
    pub fn by_time(
        &self,
        buffer: &CaptureBuffer,
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        thread::scope(|scope| {
            let mut merged = Vec::new();
            let mut workers = Vec::new();
            for source in &buffer.sources {
                let (sender, pages) = sync_channel(WAITING);
                merged.push(Merged::new(pages));
                workers.push(scope.spawn(move || {
                    let source = std::slice::from_ref(source);
                    self.group(buffer, source, |_, text| {
                        let gone = |_| io::ErrorKind::BrokenPipe.into();
                        let page = text.map(TextBuffer::take_stretches);
                        sender.send(page).map_err(gone).map_err(Stopped::Io)
                    })
                }));
            }
            let mut done = 0;
            let written = merge(&mut merged, out, || {
                done += self.piece() as u64;
                progress((done / buffer.sources.len() as u64).min(buffer.bytes()));
            });
            let sources = buffer.sources.iter().zip(&merged);
            let notes: Vec<String> = sources
                .filter_map(|(source, merged)| {
                    let place = &self.loaded.snapshot.devices[source.device].place;
                    Some(format!("{place}: {}: {}", source.name, merged.note()?))
                })
                .collect();
            // Threads that are still sending end here.
            drop(merged);
            let mut decoded = joined(workers, written)?;
            decoded.notes.extend(notes);
            Ok(decoded)
        })
    }
}

/// Writes the stretches of all sources.
fn merge(sources: &mut [Merged], out: &mut impl Write, mut piece: impl FnMut()) -> io::Result<()> {
    loop {
        let mut timed: Option<(u64, u64, usize)> = None;
        let mut other: Option<(u64, usize)> = None;
        for (index, source) in sources.iter_mut().enumerate() {
            let Some(head) = source.head(&mut piece) else {
                continue;
            };
            match head.time {
                Some(time) => {
                    let head = (time, head.at.0, index);
                    timed = Some(timed.map_or(head, |least| least.min(head)));
                }
                None => {
                    let head = (head.at.0, index);
                    other = Some(other.map_or(head, |least| least.min(head)));
                }
            }
        }
        let next = match (timed, other) {
            (None, None) => return Ok(()),
            (Some((_, at, _)), Some((before, index))) if before <= at => index,
            (Some((.., index)), _) | (None, Some((_, index))) => index,
        };
        sources[next].write(out)?;
    }
}
