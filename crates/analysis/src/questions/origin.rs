//! `why`: where a value came from.

use super::answer::{Answer, Link, Worth};
use super::core::Core;
use super::evaluate::{Cell, Evaluator};
use super::note::{AskError, Unknown};
use super::question::Subject;
use super::{Scope, Sink};
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{Contribution, End, Way, What};
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;
use std::ops::Range;

/// The most instructions on the path of a value.
const LONGEST: usize = 1000;

/// Answers with the instructions on the path of a value, the oldest first.
pub(super) fn trace(
    core: &mut Core<'_>,
    at: Position,
    subject: &Subject,
    scope: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    core.check(at)?;
    let what = match located(core, at, subject, cancel)? {
        Ok(Place::Register(location)) => What::Location(location),
        Ok(Place::Memory(range)) => What::Byte(range.start),
        Err(unknown) => return Ok(vec![unknown]),
    };
    let most = scope.most.min(LONGEST);
    let way = core.recovery.origin(core.history, at, what, most, cancel);
    let way = way.ok_or(AskError::Interrupted)?;
    for link in links(core, &way) {
        sink(Answer::Link(link))?;
    }
    Ok(match way.end {
        End::Reached | End::Stack => Vec::new(),
        End::Overwritten(at) => vec![Unknown::Overwritten(at)],
        End::AddressUnknown(at) => vec![Unknown::AddressUnknown(at)],
        End::Lost(at) => vec![Unknown::Lost(at)],
        End::Older => vec![Unknown::Older],
        End::Long => vec![Unknown::NotListed(most)],
    })
}

/// The instructions on the path of a value, the oldest first.
pub(super) fn links(core: &mut Core<'_>, way: &Way) -> Vec<Link> {
    let steps = way.instructions.iter().rev();
    steps.map(|step| link(core, step)).collect()
}

/// An instruction on the path of a value.
pub(super) fn link(core: &mut Core<'_>, step: &Contribution) -> Link {
    Link {
        position: step.position,
        code: core.place(step.position),
        what: step.cause.to_string(),
        worth: Worth::from(step.value),
    }
}

/// Where the value is that a question is about.
pub(super) enum Place {
    Register(Location),
    Memory(Range<u64>),
}

/// Finds where the value is that a question is about; or what is not known.
pub(super) fn located(
    core: &mut Core<'_>,
    at: Position,
    subject: &Subject,
    cancel: &Cancel,
) -> Result<Result<Place, Unknown>, AskError> {
    let text = match subject {
        Subject::Range(range) => return Ok(Ok(Place::Memory(range.clone()))),
        Subject::Expression(text) => text,
    };
    let pc = core.pc(at);
    let evaluator = Evaluator::new(core, text, pc)?;
    let found = evaluator.at(core, at, cancel)?;
    let nowhere = Unknown::Nowhere {
        text: text.clone(),
        position: at,
    };
    Ok(
        match (found.object.map(|object| object.cell), found.range()) {
            (Some(Cell::Register(location)), _) => Ok(Place::Register(location)),
            (_, Some(range)) => Ok(Place::Memory(range)),
            _ => Err(nowhere),
        },
    )
}
