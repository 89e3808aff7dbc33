//! `where`: the instruction at a position.

use super::Sink;
use super::answer::{Answer, Whereabouts};
use super::core::Core;
use super::note::{AskError, Unknown};
use armsnap_history::timeline::Position;

/// Answers with the place of an instruction in the program.
pub(super) fn place(
    core: &mut Core<'_>,
    at: Position,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    core.check(at)?;
    let code = core.place(at);
    sink(Answer::Where(Whereabouts {
        position: at,
        thread: core.name.to_owned(),
        code,
    }))?;
    Ok(Vec::new())
}
