//! `variable`: each change of the value of an expression.

use super::answer::{Answer, Change, Hex, Worth};
use super::core::Core;
use super::evaluate::Evaluator;
use super::note::{AskError, Unknown};
use super::{Scope, Sink};
use armsnap_history::recover::Wanted;
use armsnap_history::timeline::{Direction, PointKind, Position};
use armsnap_snapshot::stop::Cancel;
use std::ops::Range;

/// The most positions at which an expression over local variables is evaluated.
const MOST_POSITIONS: usize = 1 << 20;

/// Only stores.
const STORES: Wanted = Wanted {
    reads: false,
    writes: true,
};

/// The values of an expression over time.
struct Changes<'s, 'o> {
    /// The last value; `None` if it is unknown.
    last: Option<Hex>,
    count: usize,
    most: usize,
    sink: &'s mut Sink<'o>,
}

impl Changes<'_, '_> {
    /// Notes the value before the instruction at a position, which `store` left. Returns whether
    /// there may be more.
    fn note(
        &mut self,
        core: &mut Core<'_>,
        (at, store): (Position, Option<Position>),
        worth: Worth,
    ) -> Result<bool, AskError> {
        if worth.value == self.last {
            return Ok(true);
        }
        if self.count >= self.most {
            return Ok(false);
        }
        self.last = worth.value;
        self.count += 1;
        let place = store.map(|store| core.place(store)).unwrap_or_default();
        (self.sink)(Answer::Change(Change {
            position: at,
            worth,
            file: place.file,
            line: place.line,
        }))?;
        Ok(true)
    }
}

/// Answers with the changes of the value of an expression.
pub(super) fn changes(
    core: &mut Core<'_>,
    text: &str,
    scope: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    let from = scope.from.unwrap_or_else(|| core.history.begin());
    let until = scope.to.unwrap_or_else(|| core.history.end());
    let pc = core.pc(from);
    let evaluator = Evaluator::new(core, text, pc)?;
    let mut all = Changes {
        last: None,
        count: 0,
        most: scope.most,
        sink,
    };
    let mut unknown = match evaluator.is_local() {
        true => everywhere(core, &evaluator, (from, until), &mut all, cancel)?,
        false => at_stores(core, &evaluator, (from, until), &mut all, cancel)?,
    };
    if all.count == 0 {
        unknown.insert(0, Unknown::NoValue(text.to_owned()));
    }
    Ok(unknown)
}

/// Evaluates an expression over global variables where something is stored that it depends on.
fn at_stores(
    core: &mut Core<'_>,
    evaluator: &Evaluator,
    (from, until): (Position, Position),
    all: &mut Changes<'_, '_>,
    cancel: &Cancel,
) -> Result<Vec<Unknown>, AskError> {
    let mut unknown = Vec::new();
    let mut may_have: Option<(Position, u64)> = None;
    let mut unexplored = None;
    let (mut at, mut store) = (from, None);
    loop {
        let found = evaluator.at(core, at, cancel)?;
        if found.is_record(core) {
            return Err(AskError::NoNumber(evaluator.text().to_owned()));
        }
        if !all.note(core, (at, store), found.worth)? {
            let (most, next) = (all.most, at);
            unknown.push(Unknown::More { most, next });
            break;
        }
        let mut next: Option<Position> = None;
        for range in found.reads {
            let stores = next_store(core, (at, next.unwrap_or(until)), range, cancel)?;
            if let Some(others) = stores.may_have {
                let (first, count) = may_have.unwrap_or((others.nearest, 0));
                may_have = Some((first, count + others.count));
            }
            let hit = stores.hit.map(|hit| hit.position);
            if stores.skipped || hit.is_none() && !stores.complete {
                let until = hit.unwrap_or(next.unwrap_or(until));
                unexplored = unexplored.max(Some(until));
            }
            next = [next, hit].into_iter().flatten().min();
        }
        store = next;
        let after = next.and_then(|next| core.history.step(next, Direction::Forward));
        match after {
            Some(after) if after <= until => at = after,
            _ => break,
        }
    }
    unknown.extend(unexplored.map(Unknown::Unexplored));
    unknown.extend(may_have.map(|(first, count)| Unknown::MayHave { count, first }));
    Ok(unknown)
}

fn next_store(
    core: &mut Core<'_>,
    between: (Position, Position),
    range: Range<u64>,
    cancel: &Cancel,
) -> Result<armsnap_history::recover::Accesses, AskError> {
    let forward = Direction::Forward;
    let recovery = &mut core.recovery;
    let found = recovery.accesses(core.history, between, range, forward, STORES, cancel);
    found.ok_or(AskError::Interrupted)
}

/// Evaluates an expression over local variables or registers at each instruction of the function in
/// which it begins, in the same frame if frames are known: recursive calls have variables of their own.
fn everywhere(
    core: &mut Core<'_>,
    evaluator: &Evaluator,
    (from, until): (Position, Position),
    all: &mut Changes<'_, '_>,
    cancel: &Cancel,
) -> Result<Vec<Unknown>, AskError> {
    let first = core.pc(from);
    let function = first.and_then(|pc| core.symbols.extent(pc));
    let (mut at, mut before) = (from, None);
    let mut frame = None;
    for _ in 0..MOST_POSITIONS {
        let place = core.history.place(at);
        let is_inside = match place.map(|place| place.kind) {
            Some(PointKind::Instruction { pc, .. }) => function
                .as_ref()
                .is_none_or(|function| function.contains(&pc.0)),
            Some(PointKind::Halted) => {
                let halted = core.history.halted();
                let is_in =
                    |function: &Range<u64>| halted.is_some_and(|pc| function.contains(&pc.0));
                function.as_ref().is_none_or(is_in)
            }
            _ => false,
        };
        if is_inside {
            let found = evaluator.at(core, at, cancel)?;
            if found.is_record(core) {
                return Err(AskError::NoNumber(evaluator.text().to_owned()));
            }
            let frame = *frame.get_or_insert(found.frame);
            let is_other = frame
                .zip(found.frame)
                .is_some_and(|(own, other)| own != other);
            // Where it is not known, it may only be nowhere at this instruction.
            let is_known = found.worth.value.is_some() && !is_other;
            if is_known && !all.note(core, (at, before), found.worth)? {
                let (most, next) = (all.most, at);
                return Ok(vec![Unknown::More { most, next }]);
            }
        }
        before = Some(at);
        match core.history.step(at, Direction::Forward) {
            Some(next) if next <= until => at = next,
            _ => return Ok(Vec::new()),
        }
    }
    Ok(vec![Unknown::Long { next: at }])
}
