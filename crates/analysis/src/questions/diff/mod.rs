//! `diff`: where the courses of two recordings first differ, and why.
//!
//! Both courses are followed at once, piece by piece of their straight lines, and never held. The rules
//! for what is passed over are in `docs/questions.md`.

mod builds;
mod course;
mod difference;
mod interrupts;
mod places;
mod polling;
mod reads;
mod system_calls;
mod values;

pub use difference::{Causes, Difference, Differing, Kind, Place};

use super::core::Core;
use super::note::AskError;
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;
use course::{Course, Item, Piece};
use places::{Code, Correspondence};
use system_calls::Calls;

/// Why two courses cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// One has a gap where the other has none.
    #[error(
        "not comparable beyond {a} and {b}: there is a gap in the {which} trace, and up to there \
         both are the same"
    )]
    Gap {
        /// The position in the first one.
        a: Position,
        /// That in the second one.
        b: Position,
        /// Which one: first or second.
        which: &'static str,
    },
    /// Execution does not return from an interrupt.
    #[error(
        "not comparable beyond {at} in the {which} recording: an interrupt there does not return, \
         and up to there both are the same"
    )]
    NoReturn {
        /// The position of the interrupt.
        at: Position,
        /// Which one: first or second.
        which: &'static str,
    },
    /// Nothing was executed in both before they differ.
    #[error("not comparable: the recordings {how} at different places, at {a} and {b}")]
    OtherStart {
        /// The position in the first one.
        a: Position,
        /// That in the second one.
        b: Position,
        /// At the beginning, or after a gap.
        how: &'static str,
    },
    /// The programs have other code at the same places.
    #[error(
        "not comparable: the code at {a:#x} in the first recording and at {b:#x} in the second one \
         is not the same, and without symbols, builds cannot be compared"
    )]
    OtherCode {
        /// The address in the first one.
        a: u64,
        /// That in the second one.
        b: u64,
    },
    /// The work was cancelled, or a question failed.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// What follows from the next items of both courses, and whether they are at the same place.
enum Next {
    /// Both executed the same instructions.
    Same(Piece, Piece),
    /// Both took the same exception, or have a gap at the same place.
    Pass,
    /// They differ, or both ended.
    Differ(Kind),
    End,
}

/// What was found by comparing two courses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Where they first differ; `None` if they are the same.
    pub difference: Option<Difference>,
    /// Whether these are different builds, which are compared by functions and source lines.
    pub are_builds: bool,
    /// The first system call, or the end, where registers are not known that would be compared.
    pub unknown: Option<[Position; 2]>,
}

/// Compares two courses.
///
/// # Errors
///
/// If there is a gap in only one of them, if they begin at different places, if an interrupt does not
/// return, if the programs are not the same, or if it was cancelled.
pub fn compare(a: &mut Core<'_>, b: &mut Core<'_>, cancel: &Cancel) -> Result<Compared, DiffError> {
    if !places::moved(a.symbols, b.symbols) {
        let mut calls = Calls::default();
        match same_build((a, b), &mut calls, cancel) {
            Err(DiffError::OtherCode { .. }) if !a.symbols.is_empty() && !b.symbols.is_empty() => {}
            compared => {
                return Ok(Compared {
                    difference: compared?,
                    are_builds: false,
                    unknown: calls.unknown,
                });
            }
        }
    }
    let mut calls = Calls::default();
    Ok(Compared {
        difference: builds::compare((a, b), &mut calls, cancel)?,
        are_builds: true,
        unknown: calls.unknown,
    })
}

fn same_build(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    calls: &mut Calls,
    cancel: &Cancel,
) -> Result<Option<Difference>, DiffError> {
    let mut left = Course::new(a.history);
    let mut right = Course::new(b.history);
    let mut same = Correspondence::default();
    let mut code = Code::default();
    // The last instruction that both executed.
    let mut last = None;
    let mut is_after_gap = false;
    loop {
        let items = [
            past_interrupts(&mut left, a, "first", cancel)?,
            past_interrupts(&mut right, b, "second", cancel)?,
        ];
        let is_same = match items {
            [Item::Run(x), Item::Run(y)] => same.place((a, b), (x.pc, y.pc)),
            _ => false,
        };
        match next(items, is_same)? {
            Next::Same(x, y) => {
                let count = x.instructions.min(y.instructions);
                let numbers = code.check((a, b), (x, y), count)?;
                left.pass(a.history, count);
                right.pass(b.history, count);
                for &number in numbers.iter() {
                    let at = [x.position, y.position].map(|at| at.after(number.into()));
                    if let Some(found) = calls.compare((a, b), at, &mut same, cancel)? {
                        return Ok(Some(found));
                    }
                }
                let before = u64::from(count).saturating_sub(1);
                last = Some([x.position.after(before), y.position.after(before)]);
            }
            Next::Pass => {
                if matches!(items[0], Item::Gap(_)) {
                    last = None;
                    is_after_gap = true;
                }
                left.pass(a.history, 1);
                right.pass(b.history, 1);
            }
            Next::End => return values::at_end((a, b), last, (&mut same, calls), cancel),
            Next::Differ(Kind::Branch) => {
                if let Some([x, y]) = last {
                    if let Some(ahead) = polling::left(a, &left, x, cancel)? {
                        left = ahead;
                        continue;
                    }
                    if let Some(ahead) = polling::left(b, &right, y, cancel)? {
                        right = ahead;
                        continue;
                    }
                }
                let at = last.ok_or_else(|| other_start(items, is_after_gap))?;
                return values::at((a, b), at, Kind::Branch, &mut same, cancel).map(Some);
            }
            Next::Differ(kind) => {
                let at = items.map(|item| item.position());
                return values::at((a, b), at, kind, &mut same, cancel).map(Some);
            }
        }
    }
}

/// The next item of a course that is no interrupt.
fn past_interrupts(
    course: &mut Course,
    core: &mut Core<'_>,
    which: &'static str,
    cancel: &Cancel,
) -> Result<Item, DiffError> {
    loop {
        let item = course.peek(core.history, cancel)?;
        match item {
            Item::Exception(at, exception) if interrupts::is_interrupt(&exception) => {
                if !interrupts::pass(course, core.history, cancel)? {
                    return Err(DiffError::NoReturn { at, which });
                }
            }
            _ => return Ok(item),
        }
    }
}

/// Nothing was executed in both before two items that differ.
fn other_start(items: [Item; 2], is_after_gap: bool) -> DiffError {
    DiffError::OtherStart {
        a: items[0].position(),
        b: items[1].position(),
        how: if is_after_gap {
            "go on after a gap"
        } else {
            "begin"
        },
    }
}

fn next(items: [Item; 2], is_same: bool) -> Result<Next, DiffError> {
    let gap = |which| DiffError::Gap {
        a: items[0].position(),
        b: items[1].position(),
        which,
    };
    Ok(match items {
        [Item::Run(x), Item::Run(y)] if is_same => Next::Same(x, y),
        [Item::Run(_), Item::Run(_)] => Next::Differ(Kind::Branch),
        [Item::End(_), Item::End(_)] => Next::End,
        // After a gap at the same place in both, the next instructions have to be the same again.
        [Item::Gap(_), Item::Gap(_)] => Next::Pass,
        [Item::Gap(_), _] => return Err(gap("first")),
        [_, Item::Gap(_)] => return Err(gap("second")),
        [Item::Exception(_, x), Item::Exception(_, y)] if x.number == y.number => Next::Pass,
        [Item::End(_), _] | [_, Item::End(_)] => Next::Differ(Kind::End),
        [Item::Exception(..), _] | [_, Item::Exception(..)] => Next::Differ(Kind::Branch),
    })
}
