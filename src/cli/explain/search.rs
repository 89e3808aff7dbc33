//! Finds the messages that a text is, contains, or has words of.

use super::pages::Explanation;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Stands for what varies in a message.
const ANY: char = '…';
/// The most explanations that are shown for a text.
const MOST: usize = 4;
/// The messages that are shown if none is found.
const NEAREST: usize = 3;
/// Messages that vary and have fewer letters are in too many texts.
const FEWEST_LETTERS: usize = 5;
/// The characters of a text that are compared with those of messages; no message is longer.
const COMPARED: usize = 400;

/// An explanation that was found.
pub struct Found<'a> {
    /// The explanation.
    pub explanation: &'a Explanation,
    /// The messages of it that were found.
    pub messages: Vec<&'a str>,
}

/// Finds explanations by their name, by messages that the text contains, or by words that are all in
/// a message. The best come first.
pub fn find<'a>(all: &'a [Explanation], text: &str) -> Vec<Found<'a>> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.to_lowercase();
    if let Some(explanation) = all.iter().find(|explanation| explanation.name == text) {
        let messages = explanation.messages.clone();
        return vec![Found {
            explanation,
            messages,
        }];
    }
    let mut found = contained(all, &text);
    if found.is_empty() {
        found = with_words(all, &text);
    }
    found.truncate(MOST);
    let found = found.into_iter();
    found
        .map(|(explanation, message)| Found {
            explanation,
            messages: vec![message],
        })
        .collect()
}

/// An explanation, and one of its messages.
type Message<'a> = (&'a Explanation, &'a str);

/// All messages with their explanations.
fn messages(all: &[Explanation]) -> impl Iterator<Item = Message<'_>> {
    all.iter().flat_map(|explanation| {
        let messages = explanation.messages.iter();
        messages.map(move |message| (explanation, *message))
    })
}

/// Returns the messages that a text contains, those with the most letters first. Of messages at the
/// same place, only those with the most letters are returned.
fn contained<'a>(all: &'a [Explanation], text: &str) -> Vec<Message<'a>> {
    let mut found: Vec<(usize, Range<usize>, Message<'a>)> = messages(all)
        .filter_map(|message| {
            let letters = message.1.chars().filter(|c| c.is_alphabetic()).count();
            let place = place(&message.1.to_lowercase(), text)?;
            let is_enough = letters >= FEWEST_LETTERS || !message.1.contains(ANY);
            is_enough.then_some((letters, place, message))
        })
        .collect();
    found.sort_by_key(|(letters, _, message)| Reverse((*letters, message.1.len())));
    let mut kept: Vec<(usize, Range<usize>, Message<'a>)> = Vec::new();
    for (letters, place, message) in found {
        let is_part = kept.iter().any(|(more, of, better)| {
            let overlap = of.start < place.end && place.start < of.end;
            (overlap && *more > letters) || better.0.name == message.0.name
        });
        if !is_part {
            kept.push((letters, place, message));
        }
    }
    kept.into_iter().map(|(.., message)| message).collect()
}

/// Returns where a text contains a message, without what varies at its ends.
fn place(message: &str, text: &str) -> Option<Range<usize>> {
    let continues = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let parts: Vec<&str> = message.split(ANY).collect();
    let mut place: Option<Range<usize>> = None;
    for (number, part) in parts.iter().enumerate() {
        if part.trim().is_empty() {
            continue;
        }
        let from = place.as_ref().map_or(0, |place| place.end);
        let mut found = text[from..].match_indices(part).map(|(at, _)| from + at);
        // Where nothing varies at its end, the message does not end in a word.
        let at = found.find(|at| {
            let before = text[..*at].chars().next_back();
            let after = text[at + part.len()..].chars().next();
            let starts = number > 0 || !continues(before);
            let ends = number + 1 < parts.len() || !continues(after);
            starts && ends
        })?;
        place = Some(place.map_or(at, |place| place.start)..at + part.len());
    }
    place
}

/// The words of a text, without numbers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()))
}

/// Returns a message of each explanation that has all words of a text, or longer ones, in the message
/// or in its name. Those with most of them in the message come first, then those with the fewest
/// other words.
fn with_words<'a>(all: &'a [Explanation], text: &str) -> Vec<Message<'a>> {
    let wanted: BTreeSet<&str> = words(text).collect();
    let mut found: Vec<((usize, usize), Message<'a>)> = messages(all)
        .filter_map(|(explanation, message)| {
            let lower = message.to_lowercase();
            let there: Vec<&str> = words(&lower).collect();
            let named: Vec<&str> = words(explanation.name).collect();
            let has =
                |words: &[&str], word: &str| words.iter().any(|longer| longer.starts_with(word));
            let mut missing = 0;
            for word in &wanted {
                if !has(&there, word) {
                    missing += 1;
                    if !has(&named, word) {
                        return None;
                    }
                }
            }
            (!wanted.is_empty()).then_some(((missing, there.len()), (explanation, message)))
        })
        .collect();
    found.sort_by_key(|(rank, _)| *rank);
    one_each(found.into_iter().map(|(_, message)| message))
}

/// Returns the first message of each explanation.
fn one_each<'a>(messages: impl Iterator<Item = Message<'a>>) -> Vec<Message<'a>> {
    let mut names = HashSet::new();
    messages
        .filter(|(explanation, _)| names.insert(explanation.name))
        .collect()
}

/// Returns the names and messages that are most like a text.
pub fn nearest<'a>(all: &'a [Explanation], text: &str) -> Vec<(&'a str, &'a str)> {
    let text: String = text.chars().take(COMPARED).collect();
    let text = text.to_lowercase();
    let mut near: Vec<(f64, Message<'a>)> = messages(all)
        .map(|message| {
            let by_name = strsim::sorensen_dice(message.0.name, &text);
            let by_text = strsim::sorensen_dice(&message.1.to_lowercase(), &text);
            (by_name.max(by_text), message)
        })
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near = one_each(near.into_iter().map(|(_, message)| message));
    let near = near.into_iter().take(NEAREST);
    near.map(|(explanation, message)| (explanation.name, message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::pages::explanations;
    use super::*;

    #[test]
    fn every_message_finds_its_explanation() {
        let all = explanations();
        let mut wrong = Vec::new();
        for (explanation, message) in messages(&all) {
            let text = format!("warning: x.ini:7: {}", message.replace(ANY, "0x8000"));
            let found = find(&all, &text);
            let names: Vec<&str> = found.iter().map(|found| found.explanation.name).collect();
            // Others have the same words, at most.
            if names.first() != Some(&explanation.name) && names.len() != 2 {
                wrong.push((explanation.name, message, names));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn messages_are_whole_words_unless_they_vary_there() {
        assert_eq!(place("pc is 0", "epc is 0"), None);
        assert_eq!(place("pc is 0", "pc is 0x80"), None);
        assert_eq!(place("pc is 0", "epc is 0 and pc is 0."), Some(13..20));
        assert_eq!(place("… is …", "this is it"), Some(4..8));
        assert_eq!(place("a … b …", "b a x b"), None);
        assert_eq!(place("a … b", "b a x b"), Some(2..7));
    }
}
