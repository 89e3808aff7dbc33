//! Iteration over the entries of a history.

use super::entry::{Entry, Event};
use super::history::{Here, History};
use super::position::{Direction, Position};

/// Iterator over the entries of a history; see [`History::entries`].
pub struct Entries<'a> {
    history: &'a mut History,
    here: Option<Here>,
    /// Index of the next entry; going backward, one more than it.
    number: usize,
    direction: Direction,
    /// Whether the next item is the halted state.
    halted: bool,
}

impl<'a> Entries<'a> {
    pub(super) fn new(history: &'a mut History, from: Position, direction: Direction) -> Self {
        let found = history.find(from);
        let (mut number, mut halted) = (0, false);
        if let Some((here, index)) = &found {
            let part = here.part();
            number = match (part.at(*index), direction) {
                (Some(number), Direction::Forward) => number,
                (Some(number), Direction::Backward) => number + 1,
                (None, _) => {
                    halted = true;
                    part.len()
                }
            };
        }
        Self {
            history,
            here: found.map(|(here, _)| here),
            number,
            direction,
            halted,
        }
    }

    fn halted(&mut self) -> Option<Event> {
        self.halted = false;
        let position = self.history.end();
        let place = self.history.place(position)?;
        Some(Event {
            position,
            offset: place.offset,
            entry: Entry::Halted,
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.halted {
            if self.direction == Direction::Forward {
                self.here = None;
            }
            return self.halted();
        }
        loop {
            let here = self.here.as_ref()?;
            match self.direction {
                Direction::Forward if self.number < here.part().len() => {
                    self.number += 1;
                    return Some(event(self.history, here, self.number - 1));
                }
                Direction::Backward if self.number > 0 => {
                    self.number -= 1;
                    return Some(event(self.history, here, self.number));
                }
                _ => {}
            }
            let (session, key) = (here.session, here.placed.key);
            self.here = self.history.beside(session, key, self.direction);
            self.number = match (&self.here, self.direction) {
                (Some(_), Direction::Forward) => 0,
                (Some(here), Direction::Backward) => here.part().len(),
                (None, Direction::Forward) => return self.halted(),
                (None, Direction::Backward) => return None,
            };
        }
    }
}

/// Returns an entry of a part. Called for each entry of a walk: counting a reference to the part would
/// take longer than the rest.
fn event(history: &mut History, here: &Here, number: usize) -> Event {
    let part = here.part();
    let index = part.index(number);
    Event {
        position: if index < part.places() {
            here.position(index)
        } else {
            history.first_after(here)
        },
        offset: part.offset(number),
        entry: part.entry(number),
    }
}
