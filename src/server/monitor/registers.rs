//! `monitor registers`: registers by name.

use std::fmt::Write as _;
use std::sync::Arc;

use gdbstub::common::Tid;

use crate::server::cores::Core;
use crate::server::endpoint::Endpoint;
use crate::server::monitor::STOPPED;
use crate::server::past_values::past_position;
use crate::server::target::SnapshotTarget;
use armsnap_arch::arch::RegisterDescription;
use armsnap_arch::arch::registers::Bytes;
use armsnap_history::recover::RegisterLocations;
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;
use armsnap_snapshot::text::matches_pattern;

/// Message at a gap.
const AT_GAP: &str = "no register is known at a gap in history\n";

/// Lists the registers with matching names of the selected core.
pub(super) fn run(target: &mut SnapshotTarget, pattern: &str, cancel: &Cancel) -> String {
    let thread = target.selection.user();
    if target.positions.past(thread).is_some() {
        return match past_position(&target.positions, thread) {
            Some(position) => past(target, (thread, position), pattern, cancel),
            None => AT_GAP.to_owned(),
        };
    }
    match target.core(thread) {
        Some(core) => list(&target.endpoint, core, pattern),
        None => String::new(),
    }
}

/// Lists the registers that can be recovered at a past position, with their status.
fn past(
    target: &mut SnapshotTarget,
    at: (Tid, Position),
    pattern: &str,
    cancel: &Cancel,
) -> String {
    let endpoint = Arc::clone(&target.endpoint);
    let (values, positions) = (&mut target.past_values, &mut target.positions);
    let known = values.registers(&endpoint, positions, at, cancel);
    if known.is_none() && cancel.is_requested() {
        return STOPPED.to_owned();
    }
    let mut text = String::new();
    for register in endpoint.description.registers() {
        if !matches_pattern(pattern, &register.name) {
            continue;
        }
        let places = RegisterLocations::of(endpoint.architecture(), &register.name);
        let found = places.and_then(|places| places.value(known.as_ref()?));
        let (value, status) = match found {
            Some(found) => {
                let digits = register.bits as usize / 4;
                let value = format!("0x{:0digits$x}", found.value);
                (value, found.status.name())
            }
            None if register.name == "pc" => {
                let pc = target.positions.past(at.0).and_then(|past| past.pc);
                (pc.map_or_else(String::new, |pc| pc.to_string()), "traced")
            }
            None if places.is_none() => continue,
            None => ("<unavailable>".to_owned(), ""),
        };
        let line = format!("{:<20} {value:<36} {status}", register.name);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if text.is_empty() {
        text = format!("no register that can be recovered matches {pattern:?}\n");
    }
    text
}

/// Lists the registers with matching names of a core at the halted state.
fn list(endpoint: &Endpoint, core: &Core, pattern: &str) -> String {
    let mut text = String::new();
    for register in endpoint.description.registers() {
        if !matches_pattern(pattern, &register.name) {
            continue;
        }
        let bytes = core.registers.bytes(&register.view, register.bytes());
        let _ = writeln!(
            text,
            "{:<20} {:<36} {}",
            register.name,
            value(&bytes),
            register.group.unwrap_or(if register_is_wide(register) {
                "vector"
            } else {
                "general"
            })
        );
    }
    if text.is_empty() {
        text = format!("no register matches {pattern:?}\n");
    }
    text
}

fn register_is_wide(register: &RegisterDescription) -> bool {
    register.bits > 64 || register.kind == "ieee_double"
}

/// Formats a value in hexadecimal, with `..` for unknown bytes.
fn value(bytes: &Bytes) -> String {
    if bytes.iter().all(Option::is_none) {
        return "<unavailable>".to_owned();
    }
    let digits = bytes.iter().rev().map(|byte| match byte {
        Some(byte) => format!("{byte:02x}"),
        None => "..".to_owned(),
    });
    format!("0x{}", digits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(value(&vec![Some(1), Some(0x20)]), "0x2001");
        assert_eq!(value(&vec![Some(1), None]), "0x..01");
        assert_eq!(value(&vec![None, None]), "<unavailable>");
    }
}
