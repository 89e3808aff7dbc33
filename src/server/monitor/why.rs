//! `monitor why` and `monitor uses`: where a value came from, and what became of it.

use std::fmt::Write as _;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::history;
use super::output::Output;
use crate::server::target::SnapshotTarget;
use armsnap_analysis::questions::Unknown;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{Cause, Contribution, End, Recovery, RegisterLocations, Way, What};
use armsnap_history::timeline::{History, Position};
use armsnap_snapshot::stop::Cancel;
use armsnap_snapshot::svd::Svd;

/// Maximum number of instructions in a list.
const MOST: usize = 40;

/// `monitor why REGISTER` or `monitor why ADDRESS`.
pub(super) fn origin(target: &mut SnapshotTarget, wanted: &str, cancel: &Cancel) -> Output {
    let what = match location(target, wanted) {
        Some(location) => What::Location(location),
        None => match address(wanted) {
            Some(address) => What::Byte(address),
            None => return expected("a register or an address", wanted).into(),
        },
    };
    let way = ask(target, |recovery, history, position| {
        recovery.origin(history, position, what, MOST, cancel)
    });
    shown(target, way, "nothing is known of where it came from")
}

/// `monitor uses REGISTER`.
pub(super) fn uses(target: &mut SnapshotTarget, wanted: &str, cancel: &Cancel) -> Output {
    let Some(location) = location(target, wanted) else {
        return expected("a register", wanted).into();
    };
    let way = ask(target, |recovery, history, position| {
        recovery.uses(history, position, location, MOST, cancel)
    });
    shown(target, way, "no instruction used it, as far as is known")
}

fn expected(what: &str, found: &str) -> String {
    format!("expected {what}, found {found:?}\n")
}

/// Returns the location of the register with this name; for a vector register, that of its low
/// half.
fn location(target: &SnapshotTarget, name: &str) -> Option<Location> {
    let name = name.trim_start_matches('$').to_ascii_lowercase();
    RegisterLocations::of(target.endpoint.architecture(), &name).map(RegisterLocations::low)
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Asks a question at the position of the selected core; the error is a message.
fn ask(
    target: &mut SnapshotTarget,
    question: impl FnOnce(&mut Recovery, &mut History, Position) -> Option<Way>,
) -> Result<(Tid, Way), String> {
    let (thread, _) = history::core(target)?;
    let position = target.positions.position(thread).ok_or_else(String::new)?;
    let (endpoint, positions) = (Arc::clone(&target.endpoint), &mut target.positions);
    let found = target.past_values.of(&endpoint, positions, thread);
    let (recovery, history) =
        found.ok_or_else(|| "values of the past are not recovered\n".to_owned())?;
    let way = question(recovery, history, position);
    Ok((thread, way.ok_or_else(|| super::STOPPED.to_owned())?))
}

/// Lists the instructions of a chain, each with its position and its address in the program.
fn shown(target: &mut SnapshotTarget, way: Result<(Tid, Way), String>, none: &str) -> Output {
    let (thread, way) = match way {
        Ok(found) => found,
        Err(message) => return message.into(),
    };
    let mut output = Output::default();
    for instruction in &way.instructions {
        let history = target.positions.history(thread);
        let place = history.and_then(|history| history.place(instruction.position));
        let listed = history::list(target, thread, instruction.position, place.as_slice());
        // An exception before the instruction has a line of its own.
        let (before, line) = listed
            .trim_end()
            .rsplit_once('\n')
            .unwrap_or(("", listed.trim_end()));
        output.text(before);
        let line = line.trim_start_matches("> ");
        let svd = target.endpoint.svd.as_deref();
        let text = format!("{line:<72}  {}", effect(instruction, svd));
        match place.and_then(|place| place.pc()) {
            Some(pc) => output.line(text, [("pc", format!("{:#x}", pc.0))]),
            None => output.line(text, []),
        }
    }
    if way.instructions.is_empty() {
        output.text(none);
    }
    let frames = match way.frames {
        0 => String::new(),
        count => format!(
            "not listed: {count} that moved the stack pointer, or saved a register and loaded it again\n"
        ),
    };
    let end = match way.end {
        End::Reached => {
            output.text(&frames);
            return output;
        }
        End::Overwritten(position) => Unknown::Overwritten(position).to_string(),
        End::AddressUnknown(position) => Unknown::AddressUnknown(position).to_string(),
        End::Lost(position) => Unknown::Lost(position).to_string(),
        End::Older => Unknown::Older.to_string(),
        End::Stack => {
            "further back it is the stack pointer, which functions moved by constants".to_owned()
        }
        End::Long => format!("the first {MOST}: `goto` one of them to go on from there"),
    };
    output.text(&end);
    output.text(&frames);
    output
}

/// Describes what an instruction did with the value. Registers of peripherals have names.
fn effect(instruction: &Contribution, svd: Option<&Svd>) -> String {
    let mut text = instruction.cause.to_string();
    if let Cause::Loaded(Some(address)) | Cause::Stored(Some(address)) = instruction.cause
        && let Some(name) = svd.and_then(|svd| svd.name_of(address))
    {
        let _ = write!(text, " ({name})");
    }
    if let Some(known) = instruction.value {
        let _ = write!(text, ": {:#x} ({})", known.value, known.status.name());
    }
    text
}
