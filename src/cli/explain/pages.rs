//! The explanations, which are the pages in docs/messages/.
//!
//! A heading of the third level is a name. The messages follow as items of a list, with `…` for what
//! varies, and then a paragraph that says what they mean and what to do.

use serde::Serialize;

const PAGES: [&str; 13] = [
    include_str!("../../../docs/messages/starting.md"),
    include_str!("../../../docs/messages/snapshots.md"),
    include_str!("../../../docs/messages/programs.md"),
    include_str!("../../../docs/messages/trace.md"),
    include_str!("../../../docs/messages/gdb.md"),
    include_str!("../../../docs/messages/translation.md"),
    include_str!("../../../docs/messages/importing.md"),
    include_str!("../../../docs/messages/core-files.md"),
    include_str!("../../../docs/messages/raw-trace.md"),
    include_str!("../../../docs/messages/recording.md"),
    include_str!("../../../docs/messages/converting.md"),
    include_str!("../../../docs/messages/reports.md"),
    include_str!("../../../docs/messages/saving.md"),
];

/// What messages mean, and what to do.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// A short name, which stays the same when the messages change.
    pub name: &'static str,
    /// The messages, with `…` for what varies.
    pub messages: Vec<&'static str>,
    /// The explanation, on one line.
    #[serde(rename = "explanation")]
    pub text: String,
}

/// All explanations, in the order of the pages.
pub fn explanations() -> Vec<Explanation> {
    let sections = PAGES.iter().flat_map(|page| page.split("\n### ").skip(1));
    sections.map(explanation).collect()
}

/// Reads what follows `### `.
fn explanation(section: &'static str) -> Explanation {
    // The heading of the next group may follow.
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut parts = section.split("\n\n");
    let name = parts.next().unwrap_or_default();
    let messages = parts.next().unwrap_or_default().lines();
    let messages = messages
        .filter_map(|line| line.strip_prefix("- `")?.strip_suffix('`'))
        .collect();
    let text: Vec<&str> = parts.flat_map(str::split_whitespace).collect();
    Explanation {
        name,
        messages,
        text: without_links(&text.join(" ")),
    }
}

/// Replaces links, such as `[limits.md](../limits.md)` by `docs/limits.md`, and `[the
/// reason](#psp-not-inferred)` by `the reason (psp-not-inferred)`.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (target, after))) = rest
        .split_once("](")
        .and_then(|(before, after)| Some((before, after.split_once(')')?)))
    {
        let (before, link) = before.rsplit_once('[').unwrap_or(("", before));
        let (page, name) = target.split_once('#').unwrap_or((target, ""));
        out.push_str(before);
        out.push_str(&match page.strip_prefix("../") {
            Some(page) if page == link => format!("docs/{page}"),
            Some(page) => format!("{link} (docs/{page})"),
            None if name == link => link.to_owned(),
            None => format!("{link} ({name})"),
        });
        rest = after;
    }
    out + rest
}
