//! Folded stacks: a line for each chain of callers, with the instructions executed in it.

use super::{Analysed, ExportError, clean};
use crate::profile::{Function, FunctionKind, LineKey, Node, Profile};
use armsnap_arch::quantity::{Address, ExceptionLevel};
use armsnap_history::decode::Image;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::flow::next;
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes the stacks of all tracks. The outermost frame is the track. If blocks were counted by
/// caller chain ([`LinesOfCalls`](crate::profile::LinesOfCalls)), inlined functions are frames too.
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
        let symbols = track.core.and_then(|core| analysed.programs.symbols(core));
        let image = Image(track.core.and_then(|core| analysed.programs.memory(core)));
        write_stacks(&core, profile, &Stacks::of(profile, symbols, image), out)?;
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

/// Writes the stacks of one track.
fn write_stacks(
    core: &str,
    profile: &Profile,
    stacks: &Stacks,
    out: &mut impl Write,
) -> io::Result<()> {
    let functions = profile.functions.iter();
    let mut names: Vec<String> = functions.map(|(_, row)| name(profile, row)).collect();
    let inlined = stacks.inlined.iter();
    names.extend(inlined.map(|name| format!("{}_[i]", frame(name))));
    if stacks.instructions[0] > 0 {
        writeln!(out, "{core};[unknown] {}", stacks.instructions[0])?;
    }
    let mut stack = core.to_owned();
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut next = stacks.children[0].iter().rev().copied().collect::<Vec<_>>();
    while let Some(node) = next.pop() {
        let depth = stacks.depths[node];
        while open.last().is_some_and(|(known, _)| *known >= depth) {
            let (_, length) = open.pop().unwrap_or_default();
            stack.truncate(length);
        }
        open.push((depth, stack.len()));
        stack.push(';');
        stack.push_str(&names[stacks.frames[node]]);
        if stacks.instructions[node] > 0 {
            writeln!(out, "{stack} {}", stacks.instructions[node])?;
        }
        next.extend(stacks.children[node].iter().rev());
    }
    Ok(())
}

/// The calling contexts by frame alone: calls from different locations in a function are merged. A
/// caller precedes its callees.
struct Stacks {
    /// The innermost frame of each stack: a function's number, or, above those, that of an inlined
    /// function.
    frames: Vec<usize>,
    instructions: Vec<u64>,
    depths: Vec<usize>,
    children: Vec<Vec<usize>>,
    known: HashMap<(usize, usize), usize>,
    /// The names of inlined functions.
    inlined: Vec<String>,
}

impl Stacks {
    fn of(profile: &Profile, symbols: Option<&Symbols>, image: Image<'_>) -> Self {
        let mut stacks = Self {
            frames: vec![0],
            instructions: vec![0],
            depths: vec![0],
            children: vec![Vec::new()],
            known: HashMap::new(),
            inlined: Vec::new(),
        };
        let mut lines: Vec<(&LineKey, u64)> = profile.tree.lines().collect();
        lines.sort_by_key(|(line, _)| (line.node, line.start, line.end, line.view));
        let functions = profile.functions.iter().len();
        let mut inlined = Inlined::new(symbols.filter(|_| !lines.is_empty()), functions);
        let mut lines = lines.into_iter().peekable();
        let mut there = Vec::with_capacity(profile.tree.nodes().len());
        for (index, node) in profile.tree.nodes().iter().enumerate() {
            let at = match index {
                0 => 0,
                _ => {
                    let mut caller = there[node.parent.index()];
                    if let Some(call) = call_site(profile, node) {
                        for &frame in inlined.frames(call) {
                            caller = stacks.frame(caller, frame);
                        }
                    }
                    stacks.frame(caller, node.function.index())
                }
            };
            there.push(at);
            let mut rest = node.instructions;
            while let Some((line, count)) = lines.next_if(|(line, _)| line.node.index() == index) {
                let mut here = line.start;
                while here < line.end {
                    let mut inner = at;
                    for &frame in inlined.frames(here) {
                        inner = stacks.frame(inner, frame);
                    }
                    // At most the total that was counted.
                    let count = count.min(rest);
                    rest -= count;
                    stacks.instructions[inner] = stacks.instructions[inner].saturating_add(count);
                    here = match next(&image, line.view, line.isa, here) {
                        after if after > here => after,
                        _ => break,
                    };
                }
            }
            stacks.instructions[at] = stacks.instructions[at].saturating_add(rest);
        }
        stacks.inlined = inlined.names;
        stacks
    }

    /// The stack of a frame called by another stack.
    fn frame(&mut self, caller: usize, frame: usize) -> usize {
        *self.known.entry((caller, frame)).or_insert_with(|| {
            let new = self.frames.len();
            self.frames.push(frame);
            self.instructions.push(0);
            self.depths.push(self.depths[caller] + 1);
            self.children.push(Vec::new());
            self.children[caller].push(new);
            new
        })
    }
}

/// An address in the instruction that called a function, or that an exception interrupted.
fn call_site(profile: &Profile, node: &Node) -> Option<Address> {
    let returns_to = node.returns_to?;
    Some(match profile.functions.get(node.function).kind {
        FunctionKind::Exception(_) => returns_to,
        _ => Address(returns_to.0.wrapping_sub(1)),
    })
}

/// Functions inlined in others, by address.
struct Inlined<'a> {
    /// `None` if inlined functions are not wanted.
    symbols: Option<&'a Symbols>,
    known: HashMap<Address, Vec<usize>>,
    frames: HashMap<String, usize>,
    names: Vec<String>,
    /// The number of the first one.
    first: usize,
}

impl<'a> Inlined<'a> {
    fn new(symbols: Option<&'a Symbols>, first: usize) -> Self {
        Self {
            symbols,
            known: HashMap::new(),
            frames: HashMap::new(),
            names: Vec::new(),
            first,
        }
    }

    /// The numbers of the frames at an address, outermost first.
    fn frames(&mut self, at: Address) -> &[usize] {
        let Some(symbols) = self.symbols else {
            return &[];
        };
        self.known.entry(at).or_insert_with(|| {
            let names = symbols.inlined(at.0).into_iter();
            let numbers = names.map(|name| {
                let next = self.first + self.names.len();
                *self.frames.entry(name).or_insert_with_key(|name| {
                    self.names.push(name.clone());
                    next
                })
            });
            numbers.collect()
        })
    }
}

/// The name of a function; kernel functions are marked, as flame graphs do, if there are others.
fn name(profile: &Profile, function: &Function) -> String {
    let kernel = function.el.is_some_and(|ExceptionLevel(level)| level > 0);
    let both = profile.kernel_and_user == [true, true];
    let mark = if kernel && both { "_[k]" } else { "" };
    format!("{}{mark}", frame(&function.name))
}

/// A name without the characters that separate frames and lines.
fn frame(name: &str) -> String {
    clean(name).replace(';', ":")
}
