//! `accesses`: the loads and stores of a range of memory.

use super::answer::{Access, Answer, Hex, Worth};
use super::core::Core;
use super::evaluate::Evaluator;
use super::note::{AskError, Unknown};
use super::question::Subject;
use super::{Scope, Sink};
use armsnap_history::recover::{Accesses, Hit, Wanted};
use armsnap_history::timeline::{Direction, Position};
use armsnap_snapshot::stop::Cancel;
use std::ops::Range;

/// All loads and stores.
const BOTH: Wanted = Wanted {
    reads: true,
    writes: true,
};

/// Answers with the loads and stores of a range.
pub(super) fn list(
    core: &mut Core<'_>,
    subject: &Subject,
    scope: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    let range = match subject {
        Subject::Range(range) => range.clone(),
        Subject::Expression(text) => match place_of(core, text, scope, cancel)? {
            Ok(range) => range,
            Err(unknown) => return Ok(vec![unknown]),
        },
    };
    let mut unknown = Vec::new();
    let mut from = scope.from.unwrap_or_else(|| core.history.begin());
    let until = scope.to.unwrap_or_else(|| core.history.end());
    let (mut may_have, mut count) = (None, 0);
    while from < until {
        let found = next(core, (from, until), range.clone(), BOTH, cancel)?;
        if found.skipped
            && let Some(hit) = found.hit
        {
            unknown.push(Unknown::Unexplored(hit.position));
        }
        if let Some(others) = found.may_have {
            let (first, before) = may_have.unwrap_or((others.nearest, 0));
            may_have = Some((first, before + others.count));
        }
        let Some(hit) = found.hit else {
            if !found.complete {
                unknown.push(Unknown::Unexplored(until));
            }
            break;
        };
        if count >= scope.most {
            let (most, next) = (scope.most, hit.position);
            unknown.push(Unknown::More { most, next });
            break;
        }
        let after = core.history.step(hit.position, Direction::Forward);
        let mut all = vec![hit];
        if let Some(after) = after {
            others(core, (hit.position, after), &range, &mut all, cancel)?;
        }
        all.sort_by_key(|hit| (hit.store, hit.whole.map_or(hit.address, |(start, _)| start)));
        for hit in all {
            sink(Answer::Access(describe(core, hit, after, cancel)?))?;
            count += 1;
        }
        let Some(after) = after else {
            break;
        };
        from = after;
    }
    unknown.extend(may_have.map(|(first, count)| Unknown::MayHave { count, first }));
    if count == 0 {
        let shown = format!("{:#x}+{}", range.start, range.end - range.start);
        unknown.insert(0, Unknown::NotAccessed(shown));
    }
    Ok(unknown)
}

/// Finds where an expression is at the start of the scope, or at the end of the history.
fn place_of(
    core: &mut Core<'_>,
    text: &str,
    scope: Scope,
    cancel: &Cancel,
) -> Result<Result<Range<u64>, Unknown>, AskError> {
    let position = scope.from.unwrap_or_else(|| core.history.end());
    let pc = core.pc(position);
    let evaluator = Evaluator::new(core, text, pc)?;
    let found = evaluator.at(core, position, cancel)?;
    Ok(found.range().ok_or_else(|| Unknown::Nowhere {
        text: text.to_owned(),
        position,
    }))
}

/// Finds the next access.
pub(super) fn next(
    core: &mut Core<'_>,
    between: (Position, Position),
    range: Range<u64>,
    wanted: Wanted,
    cancel: &Cancel,
) -> Result<Accesses, AskError> {
    let recovery = &mut core.recovery;
    let found = recovery.accesses(
        core.history,
        between,
        range,
        Direction::Forward,
        wanted,
        cancel,
    );
    found.ok_or(AskError::Interrupted)
}

/// Adds the further accesses of the instruction that made one: of a pair of registers, or a load
/// and a store.
pub(super) fn others(
    core: &mut Core<'_>,
    between: (Position, Position),
    range: &Range<u64>,
    all: &mut Vec<Hit>,
    cancel: &Cancel,
) -> Result<(), AskError> {
    let Some((start, bytes)) = all.first().and_then(|hit| hit.whole) else {
        return Ok(());
    };
    let end = start.saturating_add(bytes.into());
    for part in [range.start..start, end..range.end] {
        if part.start < part.end {
            let found = next(core, between, part, BOTH, cancel)?;
            all.extend(found.hit.filter(|hit| hit.position == between.0));
        }
    }
    Ok(())
}

pub(super) fn describe(
    core: &mut Core<'_>,
    hit: Hit,
    after: Option<Position>,
    cancel: &Cancel,
) -> Result<Access, AskError> {
    let (address, bytes) = hit.whole.unwrap_or((hit.address, 1));
    // What is in memory before a load, and after a store.
    let at = if hit.store { after } else { Some(hit.position) };
    let worth = match at {
        Some(at) => core.number(at, address, bytes, cancel)?,
        None => Worth::UNKNOWN,
    };
    let code = core.place(hit.position);
    Ok(Access {
        position: hit.position,
        thread: core.name.to_owned(),
        kind: if hit.store { "write" } else { "read" },
        address: Hex(address.into()),
        bytes,
        worth: match hit.status {
            armsnap_history::recover::Status::Proved => worth,
            armsnap_history::recover::Status::Inferred => worth.assumed(),
        },
        code,
    })
}
