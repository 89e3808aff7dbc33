//! Questions over all of time: calls with arguments, accesses, values, where a value came from, and what used it.
//!
//! A [`Question`] is read from words. [`ask`] answers it for one core, answer by answer in the order
//! of positions. Each value has a status; a value that is unknown is absent, and [`Outcome::unknown`]
//! says what is not known and why.

mod accesses;
mod answer;
mod arguments;
mod calls;
mod core;
pub mod diff;
mod epilogue;
mod evaluate;
mod expression;
mod fields;
mod note;
mod origin;
mod question;
mod text;
mod uses;
mod values;
mod variable;
mod whereabouts;

pub use answer::{
    Access, Answer, Argument, Call, Change, CodePlace, Hex, Link, Memory, Values, Whereabouts,
    Worth,
};
pub use core::Core;
pub use note::{AskError, NoQuestion, Unknown};
pub use question::{Question, Subject};
pub use text::{Form, Writer};

use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;
use std::io;

/// The most answers to a question, unless more are wanted.
pub const MOST: usize = 100_000;

/// Receives answers; an error ends the question.
pub type Sink<'s> = dyn FnMut(Answer) -> io::Result<()> + 's;

/// The part of a history that a question is about, and the most answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// From here on; from the start of the history if `None`.
    pub from: Option<Position>,
    /// Before this position; to the end of the history if `None`.
    pub to: Option<Position>,
    /// The most answers.
    pub most: usize,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            most: MOST,
        }
    }
}

/// What remains to be said after the answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of answers.
    pub answers: usize,
    /// What is not known, and why.
    pub unknown: Vec<Unknown>,
}

/// Answers a question for a core.
///
/// # Errors
///
/// If the question does not fit the core, the answers cannot be written, or it was cancelled.
pub fn ask(
    core: &mut Core<'_>,
    question: &Question,
    scope: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Outcome, AskError> {
    for position in [scope.from, scope.to].into_iter().flatten() {
        core.check(position)?;
    }
    let mut outcome = Outcome::default();
    let mut counting = |answer| {
        outcome.answers += 1;
        sink(answer)
    };
    let sink: &mut Sink<'_> = &mut counting;
    let mut unknown = match question {
        Question::Where(at) => whereabouts::place(core, *at, sink),
        Question::Values(at) => values::registers(core, *at, cancel, sink),
        Question::Memory(at, address, length) => {
            values::memory(core, *at, (*address, *length), cancel, sink)
        }
        Question::Calls(function) => calls::list(core, function, scope, cancel, sink),
        Question::Variable(text) => variable::changes(core, text, scope, cancel, sink),
        Question::Accesses(subject) => accesses::list(core, subject, scope, cancel, sink),
        Question::Why(at, subject) => origin::trace(core, *at, subject, scope, cancel, sink),
        Question::Uses(at, subject) => uses::list(core, *at, subject, scope, cancel, sink),
    }?;
    let limits = core.recovery.limits(core.history);
    if outcome.answers == 0 || !unknown.is_empty() {
        unknown.extend(limits.into_iter().map(Unknown::Limit));
    }
    outcome.unknown = unknown;
    Ok(outcome)
}
