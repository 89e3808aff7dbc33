//! Hands parts to threads, and their pages, in order and in bounded number, to the joining thread.

use super::layout::next_end;
use super::state::{Page, Part, PartState};
use armsnap_snapshot::capture::CaptureBuffer;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The assumed bytes of output per byte of trace, before any are seen.
const ASSUMED_OUTPUT: u64 = 64;

/// The sizes of pieces and parts.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The most bytes of trace decoded at once.
    pub piece: usize,
    /// The most bytes of trace in a part.
    pub part: u64,
    /// The most bytes of output waiting to be joined.
    pub output: usize,
    /// Bytes of a lead-in; `None` to find what the trace needs by trial.
    pub lead_in: Option<u64>,
}

/// What the joining thread receives.
pub(super) enum Event<T> {
    /// A part starts here.
    Begin(u64),
    /// Its next page.
    Page(Box<Page<T>>),
    /// The part ends; the state is `None` if it had no page.
    End(Option<Box<PartState>>, u64),
    /// No more parts.
    Closed,
    /// A thread panicked.
    Broken,
}

/// A part that is being decoded.
struct Slot<T> {
    part: Part,
    begun: bool,
    pages: VecDeque<(Box<Page<T>>, usize)>,
    /// Bytes of output in `pages`.
    size: usize,
    done: bool,
    exit: Option<Box<PartState>>,
}

struct Inner<T> {
    /// The start of the next part.
    next: u64,
    /// The number of the part that is being joined, the first of `slots`.
    first: u64,
    slots: VecDeque<Slot<T>>,
    /// Bytes of the lead-in of the next parts.
    lead: u64,
    /// Bytes of trace and of output so far.
    seen: (u64, u64),
    /// Threads that may still take a part.
    workers: usize,
    closed: bool,
    broken: bool,
}

/// The parts in progress.
pub(super) struct Board<'a, T> {
    buffer: &'a CaptureBuffer,
    total: u64,
    sizes: Sizes,
    workers: usize,
    inner: Mutex<Inner<T>>,
    changed: Condvar,
}

impl<'a, T> Board<'a, T> {
    pub fn new(buffer: &'a CaptureBuffer, sizes: Sizes, workers: usize, lead: u64) -> Self {
        Self {
            buffer,
            total: buffer.bytes(),
            sizes,
            workers,
            inner: Mutex::new(Inner {
                next: 0,
                first: 0,
                slots: VecDeque::new(),
                lead,
                seen: (1, ASSUMED_OUTPUT),
                workers,
                closed: false,
                broken: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, inner: MutexGuard<'g, Inner<T>>) -> MutexGuard<'g, Inner<T>> {
        let woken = self.changed.wait(inner);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of output that may wait per part.
    fn waiting(&self) -> usize {
        self.sizes.output / (self.workers + 1)
    }

    /// The size of the next part: while one part is joined, another of the same size can be decoded
    /// without waiting.
    fn part_size(&self, inner: &Inner<T>) -> u64 {
        let (trace, output) = inner.seen;
        let fitting = (2 * self.waiting() as u64)
            .saturating_mul(trace)
            .checked_div(output);
        fitting
            .unwrap_or(u64::MAX)
            .max(2 * inner.lead)
            .min(self.sizes.part)
    }

    /// Takes the next part, with its number; `None` if there are no more.
    pub fn claim(&self) -> Option<(u64, Part)> {
        let mut inner = self.lock();
        while !inner.closed && inner.slots.len() > self.workers {
            inner = self.wait(inner);
        }
        if inner.closed || inner.next >= self.total {
            return None;
        }
        let start = inner.next;
        let end = start.saturating_add(self.part_size(&inner).max(1));
        let part = Part {
            lead_in: start.saturating_sub(inner.lead),
            start,
            end: next_end(self.buffer, end.min(self.total), self.sizes.piece),
        };
        inner.next = part.end;
        let number = inner.first + inner.slots.len() as u64;
        inner.slots.push_back(Slot {
            part,
            begun: false,
            pages: VecDeque::new(),
            size: 0,
            done: false,
            exit: None,
        });
        self.changed.notify_all();
        Some((number, part))
    }

    /// Hands in a page with `size` bytes of output; returns whether more pages are wanted.
    pub fn push(&self, number: u64, page: Page<T>, size: usize) -> bool {
        let mut inner = self.lock();
        loop {
            if inner.closed {
                return false;
            }
            let Some(slot) = slot(&mut inner, number) else {
                return false;
            };
            if slot.pages.is_empty() || slot.size + size <= self.waiting() {
                break;
            }
            inner = self.wait(inner);
        }
        inner.seen.0 += page.range.end - page.range.start;
        inner.seen.1 += size as u64;
        if let Some(slot) = slot(&mut inner, number) {
            slot.size += size;
            slot.pages.push_back((Box::new(page), size));
        }
        self.changed.notify_all();
        true
    }

    /// Marks the part as decoded.
    pub fn finish(&self, number: u64, exit: Option<PartState>) {
        let mut inner = self.lock();
        if let Some(slot) = slot(&mut inner, number) {
            slot.done = true;
            slot.exit = exit.map(Box::new);
        }
        self.changed.notify_all();
    }

    /// Records that a thread ends.
    pub fn leave(&self, panicked: bool) {
        let mut inner = self.lock();
        inner.workers -= 1;
        inner.broken |= panicked;
        self.changed.notify_all();
    }

    /// Stops all work: no more parts are wanted, not even those in progress.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for the next event.
    pub fn next(&self) -> Event<T> {
        let mut inner = self.lock();
        loop {
            if inner.broken {
                return Event::Broken;
            }
            let ended = inner.closed || inner.workers == 0 || inner.next >= self.total;
            match inner.slots.front_mut() {
                None if ended => return Event::Closed,
                None => {}
                Some(slot) if !slot.begun => {
                    slot.begun = true;
                    return Event::Begin(slot.part.start);
                }
                Some(slot) => {
                    if let Some((page, size)) = slot.pages.pop_front() {
                        slot.size -= size;
                        self.changed.notify_all();
                        return Event::Page(page);
                    }
                    if slot.done {
                        let (exit, end) = (slot.exit.take(), slot.part.end);
                        inner.slots.pop_front();
                        inner.first += 1;
                        self.changed.notify_all();
                        return Event::End(exit, end);
                    }
                }
            }
            inner = self.wait(inner);
        }
    }

    /// Doubles the lead-in of the next parts, up to half a part.
    pub fn lengthen(&self) {
        let mut inner = self.lock();
        inner.lead = (inner.lead * 2).min((self.sizes.part / 2).max(inner.lead));
    }
}

fn slot<T>(inner: &mut Inner<T>, number: u64) -> Option<&mut Slot<T>> {
    let index = number.checked_sub(inner.first)?;
    inner.slots.get_mut(usize::try_from(index).ok()?)
}
