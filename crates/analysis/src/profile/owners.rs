//! Assigns code without a symbol to functions, once all functions are known.
//!
//! While a program is followed, such code counts for the function that executed it first. That may
//! be one that jumped there (a tail call, through a linker's stub) before anything called the
//! function that starts there.

use super::code::ExecutedCode;
use super::functions::{FunctionId, FunctionKind, Functions};
use armsnap_arch::hash::NumberMap;

/// Assigns code at the start of a function without a symbol, and the contiguous code after it, to
/// that function, if the one that executed it first lies elsewhere.
pub(super) fn settle(code: &mut ExecutedCode, functions: &Functions) {
    let targets: NumberMap<u64, FunctionId> = functions
        .iter()
        .filter(|(_, function)| function.kind == FunctionKind::Target)
        .filter_map(|(id, function)| Some((function.start?.0, id)))
        .collect();
    if targets.is_empty() {
        return;
    }
    let mut lines: Vec<(u64, u64, &mut FunctionId)> = Vec::new();
    for block in code.blocks.values_mut() {
        lines.push((block.start.0, block.end.0, &mut block.function));
    }
    for part in code.parts.values_mut() {
        lines.push((part.range.start.0, part.range.end.0, &mut part.function));
    }
    lines.retain(|(start, _, owner)| !contains(functions, **owner, *start));
    lines.sort_unstable_by_key(|(start, end, owner)| (*start, *end, **owner));
    // The function that received the preceding code, the one that executed that code first, and the
    // end of the code.
    let mut moved: Option<(FunctionId, FunctionId, u64)> = None;
    for (start, end, owner) in lines {
        let first = *owner;
        match targets.get(&start) {
            Some(&target) => {
                *owner = target;
                moved = (target != first).then_some((target, first, end));
            }
            None => match &mut moved {
                Some((target, from, until)) if *from == first && start <= *until => {
                    *owner = *target;
                    *until = end.max(*until);
                }
                _ => moved = None,
            },
        }
    }
}

/// Whether a function's symbol contains an address.
fn contains(functions: &Functions, id: FunctionId, address: u64) -> bool {
    let function = functions.get(id);
    let (Some(start), Some(end)) = (function.start, function.end) else {
        return false;
    };
    (start.0..end.0).contains(&address)
}
