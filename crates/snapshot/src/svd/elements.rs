//! Elements of a description: what they derive from, and the texts and numbers in them.

use super::{Fault, Note};
use crate::text::one_line;
use roxmltree::{Document, Node, NodeId};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// The maximum number of elements that are visited, counting repetitions in arrays.
const STEPS: u64 = 1 << 25;
/// The maximum number of elements that derive from each other in a row.
const LONGEST_CHAIN: usize = 16;
/// The maximum length of a text in characters.
const LONGEST_TEXT: usize = 256;
/// The maximum number of notes.
const MOST_NOTES: usize = 64;
/// The elements that others derive from by name.
const NAMED: [&str; 5] = [
    "peripheral",
    "cluster",
    "register",
    "field",
    "enumeratedValues",
];

/// An element, followed by what it derives from, the nearest first.
pub(super) type Chain<'d> = Vec<Node<'d, 'd>>;

/// The elements of a description by name.
pub(super) struct Elements<'d> {
    document: &'d Document<'d>,
    /// By the element that contains them, and their name.
    inside: HashMap<(NodeId, &'d str), Node<'d, 'd>>,
    /// The first with a tag and a name in a peripheral.
    in_peripheral: HashMap<(NodeId, &'d str, &'d str), Node<'d, 'd>>,
    /// The first with a tag and a name anywhere.
    anywhere: HashMap<(&'d str, &'d str), Node<'d, 'd>>,
    steps: Cell<u64>,
    notes: RefCell<Vec<Note>>,
    noted: RefCell<HashSet<NodeId>>,
}

impl<'d> Elements<'d> {
    /// Indexes the elements with names.
    pub(super) fn new(document: &'d Document<'d>) -> Self {
        let mut elements = Self {
            document,
            inside: HashMap::new(),
            in_peripheral: HashMap::new(),
            anywhere: HashMap::new(),
            steps: Cell::new(0),
            notes: RefCell::default(),
            noted: RefCell::default(),
        };
        let mut peripheral = document.root().id();
        for node in document.descendants() {
            let tag = node.tag_name().name();
            if !NAMED.contains(&tag) {
                continue;
            }
            if tag == "peripheral" {
                peripheral = node.id();
            }
            let name = node.children().find(|child| child.has_tag_name("name"));
            let Some(name) = name.and_then(|name| name.text()).map(str::trim) else {
                continue;
            };
            if let Some(parent) = node.parent() {
                elements.inside.entry((parent.id(), name)).or_insert(node);
            }
            let key = (peripheral, tag, name);
            elements.in_peripheral.entry(key).or_insert(node);
            elements.anywhere.entry((tag, name)).or_insert(node);
        }
        elements
    }

    /// Counts a visit; fails if there were too many.
    pub(super) fn step(&self) -> Result<(), Fault> {
        self.steps.set(self.steps.get() + 1);
        match self.steps.get() > STEPS {
            true => Err(Fault::Tangled),
            false => Ok(()),
        }
    }

    /// Returns the notes so far.
    pub(super) fn take_notes(&self) -> Vec<Note> {
        self.notes.take()
    }

    /// Adds a note on an element, unless it has one.
    pub(super) fn note(&self, node: Node<'_, '_>, note: impl FnOnce(u32) -> Note) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < MOST_NOTES && self.noted.borrow_mut().insert(node.id()) {
            let line = self.document.text_pos_at(node.range().start).row;
            notes.push(note(line));
        }
    }

    /// Returns the children of an element.
    pub(super) fn children(&self, node: Node<'d, 'd>) -> impl Iterator<Item = Node<'d, 'd>> {
        let visited = |_: &Node<'_, '_>| self.steps.set(self.steps.get() + 1);
        node.children()
            .inspect(visited)
            .take_while(|_| self.steps.get() <= STEPS)
            .filter(Node::is_element)
    }

    /// Returns an element with what it derives from.
    pub(super) fn chain(&self, node: Node<'d, 'd>) -> Chain<'d> {
        let mut chain = vec![node];
        let mut last = node;
        while let Some(name) = last.attribute("derivedFrom") {
            let Some(base) = self.base(last, name.trim()) else {
                self.note(last, |line| Note::NoBase {
                    line,
                    name: shown(name),
                });
                break;
            };
            if chain.len() == LONGEST_CHAIN || chain.contains(&base) {
                break;
            }
            chain.push(base);
            last = base;
        }
        chain
    }

    /// Finds what an element derives from: a name beside it, in its peripheral or anywhere, or a path
    /// of names from a peripheral on.
    fn base(&self, node: Node<'d, 'd>, name: &'d str) -> Option<Node<'d, 'd>> {
        let tag = node.tag_name().name();
        let is_other = |found: &&Node<'d, 'd>| **found != node && found.tag_name().name() == tag;
        let beside = node
            .parent()
            .and_then(|parent| self.inside.get(&(parent.id(), name)));
        let in_peripheral = || {
            let mut above = node
                .ancestors()
                .filter(|node| node.has_tag_name("peripheral"));
            self.in_peripheral.get(&(above.next()?.id(), tag, name))
        };
        let found = beside.filter(is_other);
        let found = found.or_else(|| in_peripheral().filter(is_other));
        let found = found.or_else(|| self.anywhere.get(&(tag, name)).filter(is_other));
        found.copied().or_else(|| self.at_path(node, name))
    }

    /// Follows a path of names, from a peripheral or from the peripheral of an element on.
    fn at_path(&self, node: Node<'d, 'd>, path: &'d str) -> Option<Node<'d, 'd>> {
        let mut names = path.split('.');
        let first = names.next()?;
        let peripheral = self.anywhere.get(&("peripheral", first));
        let mut found = match peripheral {
            Some(peripheral) => *peripheral,
            None => {
                names = path.split('.');
                node.ancestors()
                    .find(|node| node.has_tag_name("peripheral"))?
            }
        };
        for name in names {
            // Registers, fields and enumerations are in a list, clusters directly.
            let lists = self
                .children(found)
                .filter(|list| matches!(list.tag_name().name(), "registers" | "fields"));
            let containers = lists.chain([found]).collect::<Vec<_>>();
            let mut inside = containers
                .iter()
                .filter_map(|list| self.inside.get(&(list.id(), name)));
            found = *inside.next()?;
        }
        (found != node && found.tag_name() == node.tag_name()).then_some(found)
    }

    /// Returns the first child with a tag, of an element or what it derives from.
    pub(super) fn child(&self, chain: &[Node<'d, 'd>], tag: &str) -> Option<Node<'d, 'd>> {
        let mut chain = chain.iter();
        chain.find_map(|node| self.children(*node).find(|child| child.has_tag_name(tag)))
    }

    /// Returns the text of a child.
    pub(super) fn text(&self, chain: &[Node<'d, 'd>], tag: &str) -> Option<&'d str> {
        Some(self.child(chain, tag)?.text()?.trim())
    }

    /// Returns the number in a child.
    pub(super) fn number(&self, chain: &[Node<'d, 'd>], tag: &str) -> Option<u64> {
        number(self.text(chain, tag)?)
    }

    /// Returns the number in a child; notes that an element is left out without it.
    pub(super) fn needed(
        &self,
        chain: &[Node<'d, 'd>],
        tag: &'static str,
        element: &'static str,
    ) -> Option<u64> {
        let text = self.text(chain, tag);
        let found = text.and_then(number);
        if found.is_none() {
            self.note(chain[0], |line| Note::NoNumber {
                line,
                tag,
                found: shown(text.unwrap_or_default()),
                element,
            });
        }
        found
    }
}

/// Returns a text for display: without line breaks, and shortened.
pub(super) fn shown(text: &str) -> String {
    let mut out = String::new();
    // Some vendors write line breaks as in C.
    let lines = text.split("\\n");
    for word in lines.flat_map(str::split_whitespace) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(word.chars().take(LONGEST_TEXT));
        if out.len() > LONGEST_TEXT {
            break;
        }
    }
    let short: String = out.chars().take(LONGEST_TEXT).collect();
    one_line(&short).into_owned()
}

/// Parses a number: decimal, hexadecimal with 0x, or binary with 0b or #.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches('+');
    let lower = text.get(..2).unwrap_or_default().to_ascii_lowercase();
    match (lower.as_str(), text.strip_prefix('#')) {
        ("0x", _) => u64::from_str_radix(&text[2..], 16).ok(),
        ("0b", _) => u64::from_str_radix(&text[2..], 2).ok(),
        (_, Some(binary)) => u64::from_str_radix(binary, 2).ok(),
        _ => text.parse().ok(),
    }
}
