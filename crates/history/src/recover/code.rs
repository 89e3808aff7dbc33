//! Code in past memory.

use super::bits::untagged;
use super::memory::regions::Class;
use super::queries::executed::{Between, Times};
use super::recovery::Recovery;
use super::status::{Known, Level, Status};
use super::window::Reached;
use crate::timeline::{History, Position};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::flow::View;

/// What is known of a byte of code.
enum Byte {
    Known(Known<u8>),
    Unknown,
}

/// The view of memory at a position.
fn view(history: &mut History, position: Position) -> View {
    let context = history.place(position).and_then(|place| place.context);
    history.view(context.as_ref())
}

impl Recovery {
    /// Adds code to the memory before the instruction at a position: code that was executed nearby
    /// and not written in between, and functions of programs.
    pub fn code(
        &mut self,
        history: &mut History,
        position: Position,
        address: u64,
        out: &mut [Option<Known<u8>>],
        cancel: &Cancel,
    ) -> Option<()> {
        if self.level() == Level::Off {
            return Some(());
        }
        self.executed.look(history, position);
        let here = view(history, position);
        for (offset, slot) in (0_u64..).zip(out) {
            if cancel.is_requested() {
                return None;
            }
            if slot.is_some_and(|known| known.status == Status::Proved) {
                continue;
            }
            let address = untagged(address.wrapping_add(offset));
            let found = match self.code_byte(history, (position, here), address, cancel)? {
                Byte::Known(known) if self.level().shows(known.status) => Some(known),
                Byte::Known(_) | Byte::Unknown => None,
            };
            if slot.is_none() || found.is_some_and(|known| known.status == Status::Proved) {
                *slot = found;
            }
        }
        Some(())
    }

    /// A byte of code before the instruction at a position, where memory is seen through a view.
    fn code_byte(
        &mut self,
        history: &mut History,
        (position, here): (Position, View),
        address: u64,
        cancel: &Cancel,
    ) -> Option<Byte> {
        let known = |value, status| Some(Byte::Known(Known { value, status }));
        let Times { now, before, after } = self.executed.times(address);
        let kept = self.facts().memory.kept(address);
        if !now && before.is_none() && after.is_none() && kept.is_none() {
            return Some(Byte::Unknown);
        }
        let Some(&value) = history.code(here, Address(address)).first() else {
            return Some(Byte::Unknown);
        };
        if now {
            return known(value, Status::Proved);
        }
        let mut is_inferred = false;
        for (at, is_before) in [(before, true), (after, false)] {
            let Some(at) = at else {
                continue;
            };
            let there = view(history, at);
            if history.code(there, Address(address)).first() != Some(&value) {
                continue;
            }
            let between = self.between(history, address, (position, at), cancel)?;
            let is_written = self.facts().memory.is_written(address);
            match between {
                Between::Kept(Status::Proved) => return known(value, Status::Proved),
                Between::Kept(Status::Inferred) => is_inferred = true,
                // Code not known to change after it ran stays; before it ran, it may not be there
                // yet.
                Between::Unexplored => is_inferred |= is_before && !is_written,
                Between::Unknown(class) => {
                    is_inferred |= is_before && !is_written && class != Class::Stack;
                }
                Between::Written => {}
            }
        }
        let is_kept = kept == Some(value) && !self.is_ever_written(address);
        Some(match is_inferred || is_kept {
            true => Byte::Known(Known {
                value,
                status: Status::Inferred,
            }),
            false => Byte::Unknown,
        })
    }

    /// What happened to a byte between two positions.
    fn between(
        &mut self,
        history: &mut History,
        address: u64,
        (one, other): (Position, Position),
        cancel: &Cancel,
    ) -> Option<Between> {
        if self.blind().is_some() {
            return Some(Between::Unexplored);
        }
        let Reached::At((mut solved, step)) = self.find(history, one, cancel)? else {
            return Some(Between::Unexplored);
        };
        Some(match solved.steps().find(other) {
            Some(other) => solved.between(address, (step, other)),
            None => Between::Unexplored,
        })
    }
}
