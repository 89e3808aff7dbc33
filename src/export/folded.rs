//! Folded stacks: a line for each chain of callers, and the instructions executed in it.

use super::{Analysed, ExportError, clean};
use crate::profile::{Function, Profile, Tree};
use crate::quantity::ExceptionLevel;
use std::collections::HashMap;
use std::io::{self, Write};

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
        write_stacks(&core, profile, out)?;
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

/// Writes the stacks of one track. Calls from several places of a function are one.
fn write_stacks(core: &str, profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let names: Vec<String> = profile
        .functions
        .iter()
        .map(|(_, function)| name(profile, function))
        .collect();
    let tree = Merged::of(&profile.tree);
    if tree.instructions[0] > 0 {
        writeln!(out, "{core};[unknown] {}", tree.instructions[0])?;
    }
    let mut stack = core.to_owned();
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut next = tree.children[0].iter().rev().copied().collect::<Vec<_>>();
    while let Some(node) = next.pop() {
        let depth = tree.depths[node];
        while open.last().is_some_and(|(known, _)| *known >= depth) {
            let (_, length) = open.pop().unwrap_or_default();
            stack.truncate(length);
        }
        open.push((depth, stack.len()));
        stack.push(';');
        stack.push_str(&names[tree.functions[node]]);
        if tree.instructions[node] > 0 {
            writeln!(out, "{stack} {}", tree.instructions[node])?;
        }
        next.extend(tree.children[node].iter().rev());
    }
    Ok(())
}

/// The calling contexts by functions alone. A caller comes before what it calls.
struct Merged {
    functions: Vec<usize>,
    instructions: Vec<u64>,
    depths: Vec<usize>,
    children: Vec<Vec<usize>>,
}

impl Merged {
    fn of(tree: &Tree) -> Self {
        let mut merged = Self {
            functions: vec![0],
            instructions: vec![0],
            depths: vec![0],
            children: vec![Vec::new()],
        };
        let mut known: HashMap<(usize, usize), usize> = HashMap::new();
        let mut there = Vec::with_capacity(tree.nodes().len());
        for (index, node) in tree.nodes().iter().enumerate() {
            let at = match index {
                0 => 0,
                _ => {
                    let (parent, function) = (there[node.parent.index()], node.function.index());
                    *known.entry((parent, function)).or_insert_with(|| {
                        let new = merged.functions.len();
                        merged.functions.push(function);
                        merged.instructions.push(0);
                        merged.depths.push(merged.depths[parent] + 1);
                        merged.children.push(Vec::new());
                        merged.children[parent].push(new);
                        new
                    })
                }
            };
            there.push(at);
            let sum = &mut merged.instructions[at];
            *sum = sum.saturating_add(node.instructions);
        }
        merged
    }
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
    clean(name).replace(';', ":")
}
