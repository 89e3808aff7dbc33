//! Texts of a trace file as a client may have them: GDB prints them, and evaluates what
//! tracepoints collect at `tdump`, and where they lie when it connects.

use crate::arch::names;
use crate::text::{is_plain, one_line};
use crate::tfile::{Status, StopReason, Tracepoint, Variable};

/// The status, with texts that do nothing to a terminal.
pub(super) fn status(mut status: Status) -> Status {
    let texts = [&mut status.user_name, &mut status.notes];
    for text in texts.into_iter().flatten() {
        *text = one_line(text).into_owned();
    }
    if let Some(StopReason::Command(text) | StopReason::Error(text)) = &mut status.stop {
        *text = one_line(text).into_owned();
    }
    status
}

/// The variable under a name that is one.
pub(super) fn variable(mut variable: Variable) -> Variable {
    variable.name = names::safe(&variable.name);
    variable
}

/// The tracepoint without what is not plain, and without calls of GDB's own functions, of which
/// some run commands.
pub(super) fn tracepoint(mut tracepoint: Tracepoint) -> Tracepoint {
    let sources = &mut tracepoint.sources;
    sources.retain(|source| source.text.chars().all(is_plain) && !calls_gdb(&source.text));
    sources.retain(|source| names::safe(&source.kind) == source.kind);
    // A place that is computed; GDB has the address, too.
    sources.retain(|source| source.kind != "at" || !source.text.contains(['*', '$', '(']));
    let tracepoint_parts = [
        &mut tracepoint.options,
        &mut tracepoint.actions,
        &mut tracepoint.step_actions,
    ];
    for parts in tracepoint_parts {
        // They stand in packets as they are.
        parts.retain(|part| part.chars().all(|c| is_plain(c) && !"#$}*".contains(c)));
    }
    tracepoint
}

/// Whether an expression has `$name (`, or uses one of GDB's own functions in another way: their
/// names begin with `$_`, as those of two values do (GDB manual, "Tracepoint Action Lists").
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
    fn what_a_tracepoint_collects_is_no_call_of_gdb() {
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
        let told = tracepoint(read);
        let texts: Vec<&str> = told.sources.iter().map(|source| &*source.text).collect();
        assert_eq!(texts, harmless);
        assert_eq!(told.actions, ["R3"]);
    }
}
