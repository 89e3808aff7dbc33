//! `why`: where a value came from.

use super::answer::{Answer, Link, Worth};
use super::core::Core;
use super::evaluate::{Cell, Evaluator};
use super::note::{AskError, Unknown};
use super::question::Subject;
use super::{Scope, Sink};
use armsnap_history::recover::{Contribution, End, Way, What};
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;

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
    let what = match subject {
        Subject::Range(range) => What::Byte(range.start),
        Subject::Expression(text) => {
            let pc = core.history.place(at).and_then(|place| place.pc());
            let evaluator = Evaluator::new(core, text, pc.map(|pc| pc.0))?;
            let found = evaluator.at(core, at, cancel)?;
            match found.object.map(|object| object.cell) {
                Some(Cell::Register(location)) => What::Location(location),
                Some(Cell::Memory(address)) => What::Byte(address),
                Some(Cell::Value(_)) | None => {
                    let text = text.clone();
                    return Ok(vec![Unknown::Nowhere { text, position: at }]);
                }
            }
        }
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
        End::Long => {
            let next = way.instructions.last().map_or(at, |step| step.position);
            vec![Unknown::More { most, next }]
        }
    })
}

/// The instructions on the path of a value, the oldest first.
pub(super) fn links(core: &mut Core<'_>, way: &Way) -> Vec<Link> {
    let steps = way.instructions.iter().rev();
    let link = |step: &Contribution| Link {
        position: step.position,
        code: core.place(step.position),
        what: step.cause.to_string(),
        worth: Worth::from(step.value),
    };
    steps.map(link).collect()
}
