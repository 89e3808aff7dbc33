//! What is not known of a program's past, by the instructions that were asked about and by what
//! prevents an answer: a guide to which rule to add next.

use armsnap::quantity::Address;
use armsnap::recover::{End, Recovery, What};
use armsnap::semantics::Location;
use armsnap::stop::Cancel;
use armsnap::timeline::{History, Position};
use std::collections::HashMap;
use std::fmt::Write;

/// How many links back from a value are followed.
const FOLLOWED: usize = 64;
/// How many holes are shown, the most frequent first.
const SHOWN: usize = 12;

/// Registers that were asked for and not known.
#[derive(Default)]
pub struct Holes {
    /// How often, by the instruction, the number of its register, and what ended the search.
    all: HashMap<(u64, usize, String), u64>,
    /// Positions at which the stack pointer is not known, although it is known right after them.
    stack: Vec<u64>,
}

impl Holes {
    /// Adds a register that is not known before the instruction at `pc`.
    pub fn add(
        &mut self,
        history: &mut History,
        recovery: &mut Recovery,
        (pc, position): (u64, Position),
        location: Location,
    ) {
        let what = What::Location(location);
        let way = recovery.origin(history, position, what, FOLLOWED, &Cancel::default());
        let end = match way.map(|way| way.end) {
            Some(End::Overwritten(at)) => format!("overwritten, maybe, at {}", pc_of(history, at)),
            Some(End::AddressUnknown(at)) => {
                format!("from unknown address at {}", pc_of(history, at))
            }
            Some(End::Lost(at)) => format!("lost at {}", pc_of(history, at)),
            Some(end) => format!("{end:?}"),
            None => "cancelled".to_owned(),
        };
        *self.all.entry((pc, location.index(), end)).or_default() += 1;
    }

    /// Walks over all positions, latest first, for those where the stack pointer is lost.
    pub fn stack(
        &mut self,
        history: &mut History,
        recovery: &mut Recovery,
        stack: Location,
        positions: impl Iterator<Item = (u64, Position)>,
    ) {
        let mut was_known = true;
        for (pc, position) in positions {
            let known = recovery.registers(history, position, &Cancel::default());
            let is_known = known.is_some_and(|known| known.get(stack).is_some());
            if was_known && !is_known {
                self.stack.push(pc);
            }
            was_known = is_known;
        }
    }

    /// The most frequent ones.
    pub fn text(&self) -> String {
        let mut all: Vec<_> = self.all.iter().collect();
        all.sort_by_key(|(key, count)| (std::cmp::Reverse(**count), key.0));
        let mut text = String::new();
        for ((pc, number, end), count) in all.into_iter().take(SHOWN) {
            let _ = writeln!(text, "  {count:4} register {number} at {pc:#x}: {end}");
        }
        for pc in self.stack.iter().take(SHOWN) {
            let _ = writeln!(text, "  the stack pointer is not known before {pc:#x}");
        }
        text
    }
}

fn pc_of(history: &mut History, at: Position) -> String {
    match history.place(at).and_then(|place| place.pc()) {
        Some(Address(pc)) => format!("{pc:#x}"),
        None => format!("{at:?}"),
    }
}
