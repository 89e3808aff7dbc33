//! Call frame information for a Linux kernel without debug information, derived from its code.
//!
//! Each function is followed from its entry along all paths. The analysis tracks the stack pointer and
//! the registers that the function preserves for its caller. The result is written as `.debug_frame`,
//! which debuggers read. Where the code does not determine the caller's registers, the caller is marked
//! as unknown, and a back trace ends. Exceptions are unwound through the registers that the kernel
//! saves; see [`exception`].

mod debug_frame;
mod effects;
mod exception;
mod paths;
mod state;

#[cfg(test)]
mod tests;

use debug_frame::Entry;
use paths::Paths;
use state::State;
use std::collections::BTreeSet;

/// A function of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address.
    pub start: u64,
    /// Its instructions.
    pub bytes: &'a [u8],
}

/// The maximum number of instructions of a function; anything longer is regarded as data.
const LONGEST: usize = 1 << 16;

/// The maximum number of rounds in which functions are followed again because others branch into
/// them.
const ROUNDS: usize = 4;

/// The maximum number of positions and states in which other functions branch into a function.
/// Beyond it, the callers of the function are unknown.
const MAX_ENTRIES: usize = 256;

/// Writes `.debug_frame` for these functions, which are sorted by address and do not overlap. With
/// `signed`, return addresses may have authentication codes.
pub(crate) fn debug_frame(functions: &[Code<'_>], signed: bool) -> Vec<u8> {
    // Where other functions branch into a function, with the states there. They branch to rarely
    // executed parts, which GCC moves elsewhere, and to labels inside functions.
    let mut entered: Vec<Vec<(usize, State)>> = vec![Vec::new(); functions.len()];
    let mut entries = vec![None; functions.len()];
    let mut next: BTreeSet<usize> = (0..functions.len()).collect();
    for _ in 0..ROUNDS {
        for index in std::mem::take(&mut next) {
            let function = &functions[index];
            let code = function.words();
            if code.is_empty() {
                continue;
            }
            if let Some(saved) = exception::saved(&code) {
                entries[index] = Some(Entry::of_exception(function.start, code.len(), saved));
                continue;
            }
            if exception::returns(&code) || is_entry(function) {
                entries[index] = Some(Entry::unknown(function.start, code.len()));
                continue;
            }
            if entered[index].len() > MAX_ENTRIES {
                entries[index] = Some(Entry::unknown(function.start, code.len()));
                continue;
            }
            let called = (!is_part(function)).then_some((0, State::ENTRY));
            let begin: Vec<_> = called.iter().chain(&entered[index]).copied().collect();
            let paths = Paths::of(function.start, &code, &begin);
            let switches = function.name == SWITCHES;
            entries[index] = Some(Entry::of_function(function.start, &paths.states, switches));
            for exit in paths.exits {
                let Some((into, at)) = place(functions, exit.target) else {
                    continue;
                };
                let (state, target) = (exit.state, &functions[into]);
                if !exit.sure && begins_function(target) {
                    continue;
                }
                // Otherwise it is a tail call.
                let enters = at > 0 || is_part(target) || state.conflicts(&State::ENTRY);
                let entered = &mut entered[into];
                let more = entered.len() <= MAX_ENTRIES;
                if enters && more && !entered.contains(&(at, state)) {
                    entered.push((at, state));
                    next.insert(into);
                }
            }
        }
    }
    for index in next {
        let function = &functions[index];
        entries[index] = Some(Entry::unknown(function.start, function.length()));
    }
    let entries: Vec<Entry> = entries.into_iter().flatten().collect();
    debug_frame::section(&entries, signed)
}

/// Returns the index of the function that contains an address, and the index of the instruction in
/// it.
fn place(functions: &[Code<'_>], address: u64) -> Option<(usize, usize)> {
    let after = functions.partition_point(|function| function.start <= address);
    let index = after.checked_sub(1)?;
    let at = usize::try_from((address - functions[index].start) / 4).ok()?;
    (at < functions[index].length()).then_some((index, at))
}

impl Code<'_> {
    /// The number of instructions.
    fn length(&self) -> usize {
        (self.bytes.len() / 4).min(LONGEST)
    }

    fn words(&self) -> Vec<u32> {
        let words = self.bytes.as_chunks::<4>().0.iter().take(LONGEST);
        words.map(|word| u32::from_le_bytes(*word)).collect()
    }
}

/// Returns whether code looks like a function and not like code after a label inside a function: it
/// is aligned as by a compiler, or starts with BTI, PACIASP, NOPs for a tracer, or a frame record.
fn begins_function(code: &Code<'_>) -> bool {
    let words = code.bytes.as_chunks::<4>().0.iter().take(2);
    let words: Vec<u32> = words.map(|word| u32::from_le_bytes(*word)).collect();
    let begins = match words.first() {
        Some(0xd503_245f | 0xd503_233f) => true,
        Some(0xd503_201f) => words.get(1) == Some(&0xd503_201f),
        Some(word) => word & 0xffc0_7fff == 0xa980_7bfd,
        None => false,
    };
    begins || code.start.is_multiple_of(16) && !is_part(code)
}

/// Returns whether the name is that of a part of a function: `function.cold`, `function.cold.3`.
fn is_part(function: &Code<'_>) -> bool {
    let end = function.name.rsplit_once(".cold").map(|(_, end)| end);
    end.is_some_and(|end| end.is_empty() || end.starts_with('.'))
}

/// The function that calls another one on the interrupt stack: its caller's frame may be at a lower
/// address.
const SWITCHES: &str = "call_on_irq_stack";

/// Returns whether code is never called: exception vectors, which have the alignment of VBAR_EL1,
/// and the start of new tasks.
fn is_entry(code: &Code<'_>) -> bool {
    let vectors = code.name.contains("vectors") && code.start.is_multiple_of(2048);
    vectors || matches!(code.name, "ret_from_fork" | "__bad_stack")
}
