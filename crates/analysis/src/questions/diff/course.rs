//! What a core executed, one item after another, a batch at a time.

use super::super::note::AskError;
use armsnap_arch::quantity::Isa;
use armsnap_history::timeline::{Direction, Entry, History, Position};
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Exception;
use std::collections::VecDeque;

/// The number of entries that are held, or a few more.
const BATCH: usize = 1 << 12;

/// Instructions in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub position: Position,
    pub pc: u64,
    pub isa: Isa,
    pub instructions: u32,
}

/// An item of a course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Run(Piece),
    Gap(Position),
    Exception(Position, Exception),
    End(Position),
}

impl Item {
    pub fn position(self) -> Position {
        match self {
            Self::Run(piece) => piece.position,
            Self::Gap(at) | Self::Exception(at, _) | Self::End(at) => at,
        }
    }
}

/// A course from the start of a history to its end.
#[derive(Clone)]
pub(super) struct Course {
    items: VecDeque<Item>,
    /// Where the next batch begins.
    next: Option<Position>,
}

impl Course {
    pub fn new(history: &mut History) -> Self {
        Self {
            items: VecDeque::new(),
            next: Some(history.begin()),
        }
    }

    /// The next item; at the end again and again.
    pub fn peek(&mut self, history: &mut History, cancel: &Cancel) -> Result<Item, AskError> {
        while self.items.is_empty() {
            let Some(from) = self.next.take() else {
                return Ok(Item::End(history.end()));
            };
            if cancel.is_requested() {
                return Err(AskError::Interrupted);
            }
            self.read(history, from);
        }
        Ok(self.items[0])
    }

    fn read(&mut self, history: &mut History, from: Position) {
        for event in history.entries(from, Direction::Forward) {
            if self.items.len() >= BATCH && event.entry.places() > 0 {
                self.next = Some(event.position);
                return;
            }
            let item = match event.entry {
                Entry::Run { range, .. } if range.instructions > 0 => Item::Run(Piece {
                    position: event.position,
                    pc: range.start.0,
                    isa: range.isa,
                    instructions: range.instructions,
                }),
                Entry::Gap(_) => Item::Gap(event.position),
                Entry::Exception(exception) => Item::Exception(event.position, exception),
                Entry::Halted => Item::End(event.position),
                Entry::Run { .. } | Entry::Mark(_) => continue,
            };
            self.items.push_back(item);
        }
    }

    /// Passes the next item, or only its first instructions.
    pub fn pass(&mut self, history: &mut History, count: u32) {
        match self.items.front_mut() {
            Some(Item::Run(piece)) if count < piece.instructions => {
                let position = piece.position.after(count.into());
                let pc = history.place(position).and_then(|place| place.pc());
                *piece = Piece {
                    position,
                    pc: pc.map_or(piece.pc, |pc| pc.0),
                    instructions: piece.instructions - count,
                    ..*piece
                };
            }
            Some(Item::End(_)) | None => {}
            Some(_) => drop(self.items.pop_front()),
        }
    }
}
