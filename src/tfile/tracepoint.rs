//! `tp` lines: the definition of a tracepoint, in the form of replies to `qTfP` and `qTsP`.

use crate::remote_protocol::hex;
use std::collections::HashMap;

/// A tracepoint at one location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number on the target, from 1.
    pub number: u32,
    /// Its address.
    pub address: u64,
    /// Whether it is enabled.
    pub enabled: bool,
    /// The number of single steps collected after it (`while-stepping`).
    pub steps: u64,
    /// The number of hits after which tracing stops; 0 for never.
    pub pass: u64,
    /// Further parts of the `T` line, in order: `F4` (a fast tracepoint, of 4 bytes), `S`,
    /// `X3,220000` (the condition's bytecode).
    pub options: Vec<String>,
    /// `A` lines: actions, as `R…`, `M…`, `X…`.
    pub actions: Vec<String>,
    /// `S` lines: actions while stepping.
    pub step_actions: Vec<String>,
    /// `Z` lines: what the user typed.
    pub sources: Vec<SourceString>,
    /// `V` line: hits and bytes of trace frames.
    pub hits: Option<(u64, u64)>,
}

/// A `Z` line: a part of what the user typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceString {
    /// `at`, `cond` or `cmd`.
    pub kind: String,
    /// The text.
    pub text: String,
}

/// The index of each tracepoint among those read so far, by number and address.
pub type Index = HashMap<(u32, u64), usize>;

/// Reads the payload of one line. If it cannot be read, returns `false` and changes nothing.
pub fn read_line(payload: &str, tracepoints: &mut Vec<Tracepoint>, index: &mut Index) -> bool {
    read(payload, tracepoints, index).is_some()
}

fn read(payload: &str, tracepoints: &mut Vec<Tracepoint>, index: &mut Index) -> Option<()> {
    let mut characters = payload.chars();
    let kind = characters.next()?;
    let mut fields = characters.as_str().splitn(3, ':');
    let number = u32::try_from(hex::number(fields.next()?)?).ok()?;
    let address = hex::number(fields.next()?)?;
    let rest = fields.next().unwrap_or_default();
    if kind == 'T' {
        tracepoints.push(definition(number, address, rest)?);
        index.insert((number, address), tracepoints.len() - 1);
        return Some(());
    }
    let tracepoint = tracepoints.get_mut(*index.get(&(number, address))?)?;
    match kind {
        'A' => tracepoint.actions.push(rest.to_owned()),
        'S' => tracepoint.step_actions.push(rest.to_owned()),
        'Z' => source(rest, &mut tracepoint.sources)?,
        'V' => {
            let (hits, usage) = rest.split_once(':')?;
            tracepoint.hits = Some((hex::number(hits)?, hex::number(usage)?));
        }
        _ => return None,
    }
    Some(())
}

fn definition(number: u32, address: u64, rest: &str) -> Option<Tracepoint> {
    let mut fields = rest.split(':');
    let enabled = match fields.next()? {
        "E" => true,
        "D" => false,
        _ => return None,
    };
    Some(Tracepoint {
        number,
        address,
        enabled,
        steps: hex::number(fields.next()?)?,
        pass: hex::number(fields.next()?)?,
        options: fields.map(str::to_owned).collect(),
        ..Tracepoint::default()
    })
}

/// `at:0:5:6d61696e`: kind, offset, total length, hex. Long texts are split into parts.
fn source(rest: &str, sources: &mut Vec<SourceString>) -> Option<()> {
    let mut fields = rest.splitn(4, ':');
    let kind = fields.next()?;
    let offset = hex::number(fields.next()?)?;
    hex::number(fields.next()?)?;
    let text = hex::decode_text(fields.next()?)?;
    match sources.last_mut() {
        Some(last) if offset > 0 && last.kind == kind => last.text += &text,
        _ => sources.push(SourceString {
            kind: kind.to_owned(),
            text,
        }),
    }
    Some(())
}

/// The maximum number of bytes of source text in one `Z` line: its hex fits into a packet and into
/// a line of the description.
const SOURCE_PART: usize = 400;

impl Tracepoint {
    /// A plain enabled tracepoint without actions.
    pub fn at(number: u32, address: u64) -> Self {
        Self {
            number,
            address,
            enabled: true,
            ..Self::default()
        }
    }

    /// Passes the payload of each line that defines it to `line`, the `T` line first.
    pub fn write(&self, line: &mut dyn FnMut(String)) {
        let place = format!("{:x}:{:x}", self.number, self.address);
        let state = if self.enabled { 'E' } else { 'D' };
        let options: String = self.options.iter().map(|o| format!(":{o}")).collect();
        line(format!(
            "T{place}:{state}:{:x}:{:x}{options}",
            self.steps, self.pass
        ));
        for action in &self.actions {
            line(format!("A{place}:{action}"));
        }
        for action in &self.step_actions {
            line(format!("S{place}:{action}"));
        }
        for source in &self.sources {
            let bytes = source.text.as_bytes();
            let mut offset = 0;
            loop {
                let end = part_end(&source.text, offset);
                line(format!(
                    "Z{place}:{}:{offset:x}:{:x}:{}",
                    source.kind,
                    bytes.len(),
                    hex::encode(&bytes[offset..end])
                ));
                offset = end;
                if offset == bytes.len() {
                    break;
                }
            }
        }
        if let Some((hits, usage)) = self.hits {
            line(format!("V{place}:{hits:x}:{usage:x}"));
        }
    }
}

/// Returns the end of the part that starts at `offset`, at a character boundary.
fn part_end(text: &str, offset: usize) -> usize {
    let mut end = (offset + SOURCE_PART).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}
