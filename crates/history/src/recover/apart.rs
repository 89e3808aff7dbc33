//! Positions that memory does not suffice to reach from the end: the history around them is solved
//! separately.

use super::execution::stack_walk::Noted;
use super::facts::final_state::FinalState;
use super::window::{Reached, Window};
use crate::timeline::{Direction, History, Position};
use armsnap_snapshot::stop::Cancel;

/// Positions after the requested one that are examined.
const REACH: u64 = 1 << 15;
/// Positions after it that suffice if they were already examined.
const ENOUGH: u32 = 1 << 12;
/// The most positions before the main window that are walked for the stack pointer.
const MAX_WALKED: u32 = 1 << 26;
/// Stack pointers in the window that are taken from a walk.
const HINTS: usize = 1 << 8;

/// What is known of one part of a history that is not at its end.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// The window, and where it ends.
    window: Option<(Window, Position)>,
    /// A position that is, like all earlier ones, too far back for a walk of the stack pointer.
    beyond: Option<Position>,
    /// How many windows there have been.
    count: u32,
}

impl Apart {
    /// The step of a position in the window, if it is in there.
    pub fn find(&mut self, position: Position) -> Option<(&mut Window, u32)> {
        let (window, _) = self.window.as_mut()?;
        let step = window.steps.find(position)?;
        Some((window, step))
    }

    /// The window, if there is one.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref().map(|(window, _)| window)
    }

    /// How many windows there have been, and the steps of the last.
    pub fn steps(&self) -> (u32, u32) {
        let window = self.window.as_ref();
        let steps = window.map_or(0, |(window, _)| window.steps.len());
        (self.count, steps)
    }

    /// Solves the history around a position before a main window, within a limit of bytes. `None`
    /// if it was cancelled.
    pub fn reach(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        main: &mut Window,
        position: Position,
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Option<()> {
        if let Some((window, end)) = &mut self.window
            && position < *end
        {
            let near = match window.steps.find(position) {
                Some(step) => step >= ENOUGH,
                // A window that contradicted itself has no steps, and is not tried again.
                None => window.is_near(history, position, most_bytes, cancel)?,
            };
            if near {
                return window
                    .reach(history, facts, position, most_bytes, cancel)
                    .map(|_| ());
            }
        }
        if self.beyond.is_none_or(|beyond| position > beyond) {
            match main.steps.distance(history, position, MAX_WALKED, cancel)? {
                Ok(_) => main.walk_stack(history, position, cancel)?,
                Err(beyond) => self.beyond = Some(beyond),
            }
        }
        let walk = main.stack.as_ref().filter(|_| main.ends);
        let last = walk.and_then(|walk| Some((walk, walk.after(position, REACH)?)));
        if let Some((walk, last)) = last {
            let forward = walk.forward(history.begin(), last.position);
            let mut hints = vec![last];
            hints.extend(forward.take(HINTS));
            let window = self.start(history, facts, last.position, hints);
            let found = window.reach(history, facts, position, most_bytes, cancel)?;
            if matches!(found, Reached::At(_)) {
                return Some(());
            }
        }
        let end = after(history, position);
        let window = self.start(history, facts, end, Vec::new());
        window.reach(history, facts, position, most_bytes, cancel)?;
        Some(())
    }

    /// Starts another window, which ends at a position.
    fn start(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        end: Position,
        hints: Vec<Noted>,
    ) -> &mut Window {
        self.count += 1;
        let window = Window::in_the_middle(history, facts, end, hints);
        &mut self.window.insert((window, end)).0
    }
}

/// A position about [`REACH`] positions after another.
fn after(history: &mut History, position: Position) -> Position {
    let mut places = 0;
    let mut last = position;
    for event in history.entries(position, Direction::Forward) {
        last = event.position;
        places += event.entry.places();
        if places >= REACH {
            break;
        }
    }
    last
}
