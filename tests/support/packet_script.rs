//! The packet scripts in `testdata/packets`, for unit tests too.
//!
//! ```text
//! config …                 starts a source: its registers
//! OFFSET  BYTES | NAME FIELD=VALUE…
//!         > an element of the packet before
//! # a comment
//! ```
//!
//! `BYTES` starts with `XX +` where a packet starts within the last byte of the packet before.

use armsnap_trace::protocol::{Describe, Field};

/// A source of a script.
#[derive(Clone, Debug, Default)]
pub struct Script<'a> {
    pub config: &'a str,
    pub packets: Vec<Line<'a>>,
}

/// A packet of a script.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// The line in the script.
    pub number: usize,
    pub offset: usize,
    /// The byte before `+`, as written.
    pub shared: Option<&'a str>,
    pub bytes: Vec<u8>,
    /// Its name and fields.
    pub text: &'a str,
    pub elements: Vec<&'a str>,
}

impl Script<'_> {
    /// The bytes of all its packets.
    pub fn bytes(&self) -> Vec<u8> {
        let lines = self.packets.iter();
        lines.flat_map(|line| line.bytes.iter().copied()).collect()
    }
}

pub fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |byte| u8::from_str_radix(byte, 16).expect("hex");
    text.split_whitespace().map(byte).collect()
}

/// Lines without comments and empty ones, with their numbers.
pub fn lines(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = script.lines().enumerate();
    let lines = lines.map(|(number, line)| (number + 1, line.split('#').next().unwrap().trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

/// Parses a script. Without `config` it has one source.
pub fn scripts(text: &str) -> Vec<Script<'_>> {
    let mut scripts: Vec<Script<'_>> = Vec::new();
    for (number, line) in lines(text) {
        if let Some(config) = line.strip_prefix("config ") {
            let packets = Vec::new();
            scripts.push(Script { config, packets });
            continue;
        }
        if scripts.is_empty() {
            scripts.push(Script::default());
        }
        let packets = &mut scripts.last_mut().unwrap().packets;
        if let Some(element) = line.strip_prefix("> ") {
            let packet = packets.last_mut().expect("a packet before its element");
            packet.elements.push(element);
            continue;
        }
        let (place, text) = line.split_once('|').expect("a packet");
        let (offset, bytes) = place.trim().split_once(' ').expect("an offset and bytes");
        let (shared, bytes) = match bytes.split_once('+') {
            Some((shared, bytes)) => (Some(shared.trim()), bytes),
            None => (None, bytes),
        };
        packets.push(Line {
            number,
            offset: offset.parse().expect("an offset"),
            shared,
            bytes: bytes_of(bytes),
            text: text.trim(),
            elements: Vec::new(),
        });
    }
    scripts
}

/// A packet's name and fields, as scripts have them.
pub fn described(packet: &impl Describe) -> String {
    let mut text = packet.name().to_owned();
    packet.fields(&mut |name, field| {
        #[allow(unreachable_patterns, reason = "other crates cannot know all")]
        let value = match field {
            Field::Count(value) => value.to_string(),
            Field::Hex(value) => format!("{value:#x}"),
            Field::Flag(value) => value.to_string(),
            Field::Name(value) => value.replace(' ', "_"),
            Field::Atoms(atoms) => (0..atoms.count)
                .map(|bit| if atoms.bits >> bit & 1 == 1 { 'E' } else { 'N' })
                .collect(),
            other => panic!("a field that scripts cannot contain: {other:?}"),
        };
        text += &format!(" {name}={value}");
    });
    text
}
