//! `armsnap explain` has an explanation for every message of the program, and for no other: each text of prose in
//! the sources is a message, unless `not_messages.txt` has it with the reason.

mod sources;

use crate::support::gdb::{armsnap, run};
use serde::Deserialize;
use sources::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// Stands for any text in messages, in exceptions, and for the values in texts.
const ANY: char = '…';

/// Shorter patterns would cover anything.
const FEWEST_LETTERS: usize = 5;
/// The texts that one message may cover.
const MAX_TEXTS: usize = 16;

/// What GDB prints, not armsnap.
const GDBS: [&str; 2] = ["<unavailable>", "Cannot access memory"];

/// Whether `text` matches `pattern`, in which `…` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once(ANY) else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once(ANY).unwrap_or(("", rest));
    let Some(mut text) = text.strip_suffix(last) else {
        return false;
    };
    for part in middle.split(ANY) {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Whether a message with an explanation is a text. A text may have places before it, such as a file's
/// name, and a value after it.
fn covers(message: &str, text: &str) -> bool {
    let mut text = text;
    loop {
        if fits(message, text) || fits(message, text.trim_end_matches(ANY)) {
            return true;
        }
        let after = text.trim_start_matches(['…', '[', ']', ':']).trim_start();
        if after.len() == text.len() || !text.starts_with(['…', '[']) {
            return false;
        }
        text = after;
    }
}

/// What `armsnap explain` says about messages.
#[derive(Deserialize)]
struct Explanation {
    name: String,
    messages: Vec<String>,
    explanation: String,
}

fn explanations() -> Vec<Explanation> {
    let output = run(armsnap().args(["explain", "--json"]));
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exceptions, by file or folder: what is no message there.
fn exceptions(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(": ").unwrap_or((line, "…")))
        .collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(TOP).join(name)).unwrap()
}

#[test]
fn every_message_has_an_explanation() {
    let Some(texts) = sources::texts(Path::new(TOP)) else {
        return;
    };
    assert!(texts.len() > 1000, "{}", texts.len());
    let explanations = explanations();
    let exceptions = read("tests/cli/messages/not_messages.txt");
    let exceptions = self::exceptions(&exceptions);
    let mut used = vec![false; exceptions.len()];
    let messages = explanations.iter().flat_map(|of| &of.messages);
    let messages: Vec<(&str, &str)> = messages
        .map(|message| {
            let parts = message.split(ANY);
            (
                parts.max_by_key(|part| part.len()).unwrap(),
                message.as_str(),
            )
        })
        .collect();
    let mut missing = Vec::new();
    let mut covered: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Text { place, line, text } in &texts {
        let mut excepted = false;
        for ((file, pattern), used) in exceptions.iter().zip(&mut used) {
            if place.starts_with(file) && fits(pattern, text) {
                (*used, excepted) = (true, true);
            }
        }
        let mut found = false;
        for &(longest, message) in &messages {
            // Most texts do not contain it; this is quicker.
            if text.contains(longest) && covers(message, text) {
                covered.entry(message).or_default().push(text);
                found = true;
            }
        }
        if !excepted && !found {
            missing.push(format!("{place}:{line}: {text}"));
        }
    }
    let missing_count = missing.len();
    assert!(
        missing.is_empty(),
        "{missing_count} messages are not in docs/messages/:\n{}",
        missing.join("\n")
    );
    let unused = exceptions.iter().zip(used).filter(|(_, used)| !used);
    let unused: Vec<_> = unused.map(|(exception, _)| exception).collect();
    assert!(
        unused.is_empty(),
        "not_messages.txt: nothing is like {unused:#?}"
    );
    let mut wrong: Vec<String> = Vec::new();
    for message in explanations.iter().flat_map(|of| &of.messages) {
        if GDBS.contains(&message.as_str()) {
            continue;
        }
        let texts = covered.get(message.as_str()).map_or(&[][..], Vec::as_slice);
        let letters = message.chars().filter(|c| c.is_ascii_alphabetic()).count();
        if texts.is_empty() {
            wrong.push(format!("no text of the program is like {message:?}"));
        } else if texts.len() > MAX_TEXTS {
            wrong.push(format!("{message:?} covers too much: {texts:#?}"));
        } else if message.contains(ANY) && letters < FEWEST_LETTERS {
            wrong.push(format!("too short: {message:?}"));
        }
    }
    assert!(wrong.is_empty(), "docs/messages/:\n{}", wrong.join("\n"));
}

#[test]
fn names_and_messages_are_there_once_and_all_are_explained() {
    let explanations = explanations();
    let mut texts = BTreeSet::new();
    for Explanation {
        name,
        messages,
        explanation,
    } in &explanations
    {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(is_plain), "{name}");
        assert!(!messages.is_empty(), "{name}");
        assert!(explanation.len() > 10, "{name}: {explanation}");
        for text in messages.iter().chain([name]) {
            assert!(texts.insert(text), "{text} is there twice");
        }
    }
    assert!(explanations.len() > 300, "{}", explanations.len());
}

#[test]
fn every_line_of_the_pages_is_read() {
    let pages = fs::read_dir(Path::new(TOP).join("docs/messages")).unwrap();
    let pages = pages.map(|page| fs::read_to_string(page.unwrap().path()).unwrap());
    let pages: Vec<String> = pages.collect();
    let lines = |start: &str| {
        let lines = pages.iter().flat_map(|page| page.lines());
        lines.filter(|line| line.starts_with(start)).count()
    };
    let explanations = explanations();
    assert_eq!(explanations.len(), lines("### "));
    let messages = explanations.iter().map(|of| of.messages.len());
    assert_eq!(messages.sum::<usize>(), lines("- "));
    for Explanation {
        name, explanation, ..
    } in &explanations
    {
        assert!(!explanation.contains("- `"), "{name}: {explanation}");
        assert!(!explanation.contains("]("), "{name}: {explanation}");
    }
}

#[test]
fn patterns_fit_whole_texts() {
    for (pattern, text, wanted) in [
        ("no such file", "no such file", true),
        ("no such file", "no such files", false),
        ("no … of …", "no core of that name", true),
        ("… exists", "a exists", true),
        ("… exists", "exists not", false),
        ("a… a", "a", false),
    ] {
        assert_eq!(fits(pattern, text), wanted, "{pattern:?} {text:?}");
    }
    assert!(covers("not a file", "…: …: not a file"));
    assert!(covers("not a file", "[…] not a file…"));
    assert!(!covers("a file", "not a file"));
}
