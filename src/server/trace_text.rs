//! Sanitizes texts of a trace file for clients: GDB prints them, evaluates the collected expressions
//! at `tdump`, and evaluates tracepoint locations when it connects.

use crate::tfile::{Status, StopReason, Tracepoint, Variable};
use armsnap_arch::arch::names;
use armsnap_snapshot::text::{is_plain, one_line};

/// Escapes the texts of a status for a terminal.
pub(super) fn status(mut status: Status) -> Status {
    let texts = [&mut status.user_name, &mut status.notes];
    for text in texts.into_iter().flatten() {
        *text = one_line(text).into_owned();
    }
    if let Some(StopReason::Command(Some(text)) | StopReason::Error(Some(text))) = &mut status.stop
    {
        *text = one_line(text).into_owned();
    }
    status
}

/// Replaces the name of a variable by a valid one.
pub(super) fn variable(mut variable: Variable) -> Variable {
    variable.name = names::safe(&variable.name);
    variable
}

/// Removes texts with control characters, and calls of GDB functions, some of which run commands.
pub(super) fn tracepoint(mut tracepoint: Tracepoint) -> Tracepoint {
    let sources = &mut tracepoint.sources;
    sources.retain(|source| source.text.chars().all(is_plain) && !calls_gdb(&source.text));
    sources.retain(|source| names::safe(&source.kind) == source.kind);
    // A computed location; GDB also has the address.
    sources.retain(|source| source.kind != "at" || !source.text.contains(['*', '$', '(']));
    let tracepoint_parts = [
        &mut tracepoint.options,
        &mut tracepoint.actions,
        &mut tracepoint.step_actions,
    ];
    for parts in tracepoint_parts {
        // They are sent unescaped.
        parts.retain(|part| part.chars().all(|c| is_plain(c) && !"#$}*".contains(c)));
    }
    tracepoint
}

/// Returns whether an expression contains `$name (`, or otherwise uses a GDB function: the names of
/// these start with `$_`, as do those of two collectable values (GDB manual, "Tracepoint Action
/// Lists").
fn calls_gdb(text: &str) -> bool {
    text.split('$').skip(1).any(|word| {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let name = &word[..word.len() - rest.len()];
        let own = name.starts_with('_') && !matches!(name, "_ret" | "_sdata");
        own || rest.trim_start().starts_with('(')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tfile::SourceString;

    #[test]
    fn calls_of_gdb_functions_are_removed_from_tracepoints() {
        let source = |text: &str| SourceString {
            kind: "cmd".to_owned(),
            text: text.to_owned(),
        };
        let harmless = [
            "collect $regs,x",
            "collect f->a[$x0 + 1] ,(int)$pc",
            "collect $_ret",
            "end",
        ];
        let hostile = [
            "collect $_shell(\"ls\")",
            "collect 1+$_gdb_setting (\"x\")",
            "collect ($_shell)(\"ls\")",
            "collect x\x1b[2J",
        ];
        let read = Tracepoint {
            sources: harmless
                .iter()
                .chain(&hostile)
                .map(|text| source(text))
                .collect(),
            actions: vec!["R3".to_owned(), "X1#00".to_owned()],
            ..Tracepoint::default()
        };
        let safe = tracepoint(read);
        let texts: Vec<&str> = safe.sources.iter().map(|source| &*source.text).collect();
        assert_eq!(texts, harmless);
        assert_eq!(safe.actions, ["R3"]);
    }
}
