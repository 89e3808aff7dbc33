//! `uses`: what became of a value.

use super::accesses::{describe, next, others};
use super::answer::{Access, Answer, Link};
use super::core::Core;
use super::note::{AskError, Unknown};
use super::origin::{Place, link, located};
use super::question::Subject;
use super::{Scope, Sink};
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{Cause, End, Wanted};
use armsnap_history::timeline::{Direction, Position};
use armsnap_snapshot::stop::Cancel;
use std::ops::Range;

/// The most instructions that used a value.
const MOST: usize = 1000;

/// Only stores.
const STORES: Wanted = Wanted {
    reads: false,
    writes: true,
};
/// Only loads.
const LOADS: Wanted = Wanted {
    reads: true,
    writes: false,
};

/// Answers with the instructions that used a value, the first one first. For a register, also those that used
/// what was computed from it; for memory, those that loaded it before it was stored to.
pub(super) fn list(
    core: &mut Core<'_>,
    at: Position,
    subject: &Subject,
    scope: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    core.check(at)?;
    let scope = Scope {
        most: scope.most.min(MOST),
        ..scope
    };
    let text = match subject {
        Subject::Range(range) => format!("{:#x}+{}", range.start, range.end - range.start),
        Subject::Expression(text) => text.clone(),
    };
    let (count, mut unknown) = match located(core, at, subject, cancel)? {
        Ok(Place::Register(location)) => of_register(core, (at, location), scope, cancel, sink)?,
        Ok(Place::Memory(range)) => of_memory(core, (at, range), scope, cancel, sink)?,
        Err(unknown) => return Ok(vec![unknown]),
    };
    if count == 0 {
        unknown.insert(0, Unknown::NotUsed(text));
    }
    Ok(unknown)
}

fn of_register(
    core: &mut Core<'_>,
    (at, location): (Position, Location),
    Scope { most, .. }: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<(usize, Vec<Unknown>), AskError> {
    let way = core
        .recovery
        .uses(core.history, at, location, most, cancel)
        .ok_or(AskError::Interrupted)?;
    for step in &way.instructions {
        let link = link(core, step);
        sink(Answer::Link(link))?;
    }
    let unknown = match way.end {
        End::Long => vec![Unknown::NotListed(most)],
        _ => Vec::new(),
    };
    Ok((way.instructions.len(), unknown))
}

/// Lists the loads of memory until the first store that replaces some of it, or may do so.
fn of_memory(
    core: &mut Core<'_>,
    (at, range): (Position, Range<u64>),
    Scope { most, to, .. }: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<(usize, Vec<Unknown>), AskError> {
    let until = to.unwrap_or_else(|| core.history.end());
    let stores = next(core, (at, until), range.clone(), STORES, cancel)?;
    let store = stores.hit.map(|hit| hit.position);
    if stores.skipped {
        let end = store.unwrap_or(until);
        return Ok((0, vec![Unknown::Unexplored(end)]));
    }
    let (mut count, mut unknown) = (0, Vec::new());
    let mut may_have = stores.may_have.map(|others| (others.nearest, others.count));
    // The instruction that stores to it may load it too.
    let last = [store, may_have.map(|(first, _)| first)]
        .into_iter()
        .flatten()
        .min();
    let after_last = last.and_then(|last| core.history.step(last, Direction::Forward));
    let until = after_last.map_or(until, |after| after.min(until));
    if last.is_none() && !stores.complete {
        unknown.push(Unknown::Unexplored(until));
    }
    let mut from = at;
    while from < until {
        let found = next(core, (from, until), range.clone(), LOADS, cancel)?;
        if let Some(others) = found.may_have {
            let (first, before) = may_have.unwrap_or((others.nearest, 0));
            may_have = Some((first.min(others.nearest), before + others.count));
        }
        if found.skipped || found.hit.is_none() && !found.complete {
            let end = found.hit.map_or(until, |hit| hit.position);
            unknown.push(Unknown::Unexplored(end));
        }
        let Some(hit) = found.hit else { break };
        let after = core.history.step(hit.position, Direction::Forward);
        let mut all = vec![hit];
        let during = (hit.position, after.unwrap_or(until));
        others(core, during, &range, &mut all, cancel)?;
        for hit in all.into_iter().filter(|hit| !hit.store) {
            if count == most {
                unknown.push(Unknown::NotListed(most));
                return Ok((count, unknown));
            }
            let access = describe(core, hit, after, cancel)?;
            if is_replaced(core, at, (hit.position, &range, &access), cancel)? {
                unknown.push(Unknown::Replaced(hit.position));
                return Ok((count, unknown));
            }
            count += 1;
            sink(Answer::Link(Link {
                position: access.position,
                code: access.code,
                what: Cause::Loaded(u64::try_from(access.address.0).ok()).to_string(),
                worth: access.worth,
            }))?;
        }
        match after {
            Some(after) => from = after,
            None => break,
        }
    }
    unknown.extend(may_have.map(|(first, count)| Unknown::MayHave { count, first }));
    Ok((count, unknown))
}

/// Whether what a load reads of a range is known to be another value than before: the kernel or another
/// core wrote it.
fn is_replaced(
    core: &mut Core<'_>,
    before: Position,
    (position, range, access): (Position, &Range<u64>, &Access),
    cancel: &Cancel,
) -> Result<bool, AskError> {
    let Ok(address) = u64::try_from(access.address.0) else {
        return Ok(false);
    };
    let start = address.max(range.start);
    let end = address.saturating_add(access.bytes.into()).min(range.end);
    let Ok(length) = u8::try_from(end.saturating_sub(start)) else {
        return Ok(false);
    };
    let old = core.number(before, start, length, cancel)?.value;
    let new = core.number(position, start, length, cancel)?.value;
    Ok(old.zip(new).is_some_and(|(old, new)| old != new))
}
