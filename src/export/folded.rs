//! Folded stacks: a line for each chain of callers, and the instructions executed in it.

use super::{Analysed, ExportError};
use crate::profile::{Function, FunctionId, NodeId, Profile};
use crate::quantity::ExceptionLevel;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

/// Writes the stacks of all tracks. The outermost frame is the track.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(analysed: &Analysed<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    for (track, profile) in analysed.tracks {
        if !track.follows {
            continue;
        }
        let core = frame(&track.name);
        for (stack, count) in stacks(profile) {
            writeln!(out, "{core}{stack} {count}")?;
        }
        let unknown = profile.totals.unknown_path;
        if unknown > 0 {
            writeln!(out, "{core};[unknown path] {unknown}")?;
        }
        for (kind, count) in &profile.gaps {
            writeln!(out, "{core};[gap: {kind}, {count} times] 0")?;
        }
    }
    Ok(())
}

/// The stacks of one track, each frame after a semicolon.
fn stacks(profile: &Profile) -> BTreeMap<String, u64> {
    let names: Vec<String> = profile
        .functions
        .iter()
        .map(|(_, function)| name(profile, function))
        .collect();
    let mut stacks = BTreeMap::new();
    for (index, node) in profile.tree.nodes().iter().enumerate() {
        if node.instructions == 0 {
            continue;
        }
        let mut stack = String::new();
        let id = profile.tree.id(index);
        let mut path = profile.tree.path(id);
        if id == NodeId::ROOT {
            path.push(FunctionId::UNKNOWN);
        }
        for function in path {
            let _ = write!(stack, ";{}", names[function.index()]);
        }
        let sum = stacks.entry(stack).or_insert(0_u64);
        *sum = sum.saturating_add(node.instructions);
    }
    stacks
}

/// The name of a function; the kernel's are marked, as flame graphs do, where there are others.
fn name(profile: &Profile, function: &Function) -> String {
    let kernel = function.el.is_some_and(|ExceptionLevel(level)| level > 0);
    let both = profile.kernel_and_user == [true, true];
    let mark = if kernel && both { "_[k]" } else { "" };
    format!("{}{mark}", frame(&function.name))
}

/// A name without what separates frames and lines.
fn frame(name: &str) -> String {
    let clean = |c: char| match c {
        ';' => ':',
        c if c.is_control() => '?',
        c => c,
    };
    name.chars().map(clean).collect()
}
