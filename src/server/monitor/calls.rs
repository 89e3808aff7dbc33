//! `monitor calls`: the calls that led to the position of the selected core.

use std::fmt::Write as _;

use super::history::{core, number};
use crate::server::target::SnapshotTarget;
pub use armsnap_analysis::report::calls::{Calls, Line, What};
use armsnap_analysis::report::history as words;
use armsnap_arch::quantity::Address;
use armsnap_history::timeline::Direction;
use armsnap_snapshot::program::symbols::Symbols;

/// Number of instructions before the position that are examined.
const WINDOW: u64 = 1_000_000;
/// Default number of calls listed.
const LISTED: usize = 40;
/// Maximum number of calls listed.
const MOST: u64 = 10_000;
/// Maximum number of open calls listed in addition to the last calls.
const OPEN: usize = 20;
/// Lines nested deeper are not indented further.
const INDENTED: i64 = 60;

/// Runs the command.
pub(super) fn run(target: &mut SnapshotTarget, count: &str) -> String {
    let (thread, name) = match core(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let listed = match (count, number(count)) {
        ("", _) => LISTED,
        (_, Some(count)) => count.clamp(1, MOST) as usize,
        _ => return format!("expected a number, found {count:?}\n"),
    };
    let symbols = target.symbols();
    let (Some(here), Some(history)) = (
        target.positions.position(thread),
        target.positions.history(thread),
    ) else {
        return String::new();
    };
    let mut places = 0_u64;
    let mut first = here;
    for event in history.entries(here, Direction::Backward) {
        first = event.position;
        places = places.saturating_add(event.entry.places());
        if places >= WINDOW {
            break;
        }
    }
    let whole = first <= history.begin();
    let mut calls = Calls::new(listed);
    for event in history.entries(first, Direction::Forward) {
        if event.position > here {
            break;
        }
        calls.event(&event, &*symbols);
    }
    let place = history.place(here);
    let pc = target.positions.past(thread).and_then(|past| past.pc);
    let pc = pc.or_else(|| target.positions.end_of_trace(thread));
    let pc = pc.or_else(|| Some(Address(target.core(thread)?.registers.pc()?)));
    let mut text = if whole {
        format!("{name}: start of history to {here}\n")
    } else {
        format!(
            "{name}: {first} to {here}; history more than {WINDOW} instructions before is not \
             included\n"
        )
    };
    text += &list(&calls, &symbols);
    if let (Some(_), Some(pc)) = (place, pc) {
        let depth = calls.open().len();
        let pc = words::address(pc, &symbols);
        let _ = writeln!(text, "> {here}  in {depth} open calls, at {pc}");
    }
    text
}

fn list(calls: &Calls, symbols: &Symbols) -> String {
    let first_listed = calls.lines().next().map(|line| line.position);
    let before: Vec<&Line> = calls
        .open()
        .filter(|line| first_listed.is_none_or(|first| line.position < first))
        .collect();
    let hidden = before.len().saturating_sub(OPEN);
    let shown = &before[hidden..];
    let all = || shown.iter().copied().chain(calls.lines());
    let outermost = all().map(|line| line.depth).min().unwrap_or(0);
    let mut open = calls.open().map(|line| line.position).collect::<Vec<_>>();
    open.sort_unstable();
    let mut text = String::new();
    if hidden > 0 {
        let _ = writeln!(text, "  … {hidden} open calls around these");
    }
    let mut noted = false;
    for (number, line) in all().enumerate() {
        if number >= shown.len() && !noted && calls.left_out() > 0 {
            let _ = writeln!(text, "  … {} lines left out", calls.left_out());
            noted = true;
        }
        let mark = if open.binary_search(&line.position).is_ok() {
            '*'
        } else {
            ' '
        };
        let position = line.position.to_string();
        let indent = 2 * line.depth.saturating_sub(outermost).clamp(0, INDENTED) as usize;
        let what = describe(&line.what, symbols);
        let _ = writeln!(text, "{mark} {position:<14} {:indent$}{what}", "");
    }
    text
}

fn describe(what: &What, symbols: &Symbols) -> String {
    let name = |address: &Address| match symbols.function(address.0) {
        Some((name, 0)) => name.to_owned(),
        Some((name, offset)) => format!("{name}+{offset}"),
        None => address.to_string(),
    };
    match what {
        What::Call { function } => name(function),
        What::Jump { function } => format!("{} (jumped to)", name(function)),
        What::Exception {
            name: taken,
            handler,
        } => format!("-- {taken}: {}", name(handler)),
        What::Return { to } => format!("{} (returned to)", name(to)),
        What::Elsewhere { to } => {
            format!("-- returns to {}, which no open call expects", name(to))
        }
        What::Context { to } => {
            format!("-- returns to {}, whose calls were left before", name(to))
        }
        What::Gap { gap, to } => {
            format!("-- gap: {}; continues in {}", words::gap(gap), name(to))
        }
    }
}
