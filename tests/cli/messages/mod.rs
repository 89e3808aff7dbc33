//! The troubleshooting page has an entry for every message of the program: each text of prose in the
//! sources is a message, unless `not_messages.txt` has it with the reason.

mod sources;

use sources::Text;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// Stands for any text in messages of the page, in exceptions, and for the values in texts.
const ANY: char = '…';

/// Patterns with less would cover anything.
const FEWEST_LETTERS: usize = 5;
/// The texts that one entry may cover.
const MAX_TEXTS: usize = 16;

/// What GDB prints, not armsnap.
const GDBS: [&str; 2] = ["<unavailable>", "Cannot access memory"];

/// Whether `text` is as `pattern`, in which `…` stands for any text.
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

/// Whether an entry of the page is about a text. A text may have places before it, such as a file's
/// name, and a value behind it.
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

/// An entry of the page: messages, and what is written on them.
struct Entry {
    messages: Vec<String>,
    meaning: String,
}

/// The entries: paragraphs that start with a message in bold.
fn entries(page: &str) -> Vec<Entry> {
    let paragraphs = page.split("\n\n").map(str::trim);
    let entries = paragraphs.filter(|paragraph| paragraph.starts_with("**`"));
    entries
        .map(|paragraph| {
            let paragraph = paragraph.replace('\n', " ");
            let (messages, meaning) = paragraph
                .rsplit_once("`** — ")
                .unwrap_or_else(|| panic!("no meaning: {paragraph}"));
            let messages = messages.trim_start_matches("**`");
            Entry {
                messages: messages.split("`**, **`").map(str::to_owned).collect(),
                meaning: meaning.to_owned(),
            }
        })
        .collect()
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

fn page() -> String {
    read("docs/troubleshooting.md")
}

#[test]
fn every_message_has_an_entry_on_the_page() {
    let Some(texts) = sources::texts(Path::new(TOP)) else {
        return;
    };
    assert!(texts.len() > 1000, "{}", texts.len());
    let page = page();
    let entries = entries(&page);
    let exceptions = read("tests/cli/messages/not_messages.txt");
    let exceptions = self::exceptions(&exceptions);
    let mut used = vec![false; exceptions.len()];
    let messages = entries.iter().flat_map(|entry| &entry.messages);
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
        "{missing_count} messages are not in docs/troubleshooting.md:\n{}",
        missing.join("\n")
    );
    let unused = exceptions.iter().zip(used).filter(|(_, used)| !used);
    let unused: Vec<_> = unused.map(|(exception, _)| exception).collect();
    assert!(
        unused.is_empty(),
        "not_messages.txt: nothing is like {unused:#?}"
    );
    let mut wrong: Vec<String> = Vec::new();
    for message in entries.iter().flat_map(|entry| &entry.messages) {
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
    assert!(
        wrong.is_empty(),
        "docs/troubleshooting.md:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_entry_has_a_meaning_and_messages_are_there_once() {
    let page = page();
    let entries = entries(&page);
    assert!(entries.len() > 100, "{}", entries.len());
    let mut messages: Vec<&String> = Vec::new();
    for Entry {
        messages: of,
        meaning,
    } in &entries
    {
        assert!(meaning.len() > 20, "{of:?}: {meaning}");
        messages.extend(of);
    }
    messages.sort_unstable();
    let twice = messages.windows(2).filter(|pair| pair[0] == pair[1]);
    let twice: Vec<_> = twice.map(|pair| pair[0]).collect();
    assert!(twice.is_empty(), "these have two entries: {twice:#?}");
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
