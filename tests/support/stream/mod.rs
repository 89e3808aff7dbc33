//! Helpers for tests of STM and ITM.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use armsnap::element::{Element, Itm, Mark, Stm};
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::protocol::{Describe, ElementDecoder, Field, PacketDecoder};
use armsnap::quantity::{BufferOffset, TraceId};

/// One packet in the form of a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    pub offset: u64,
    /// The bytes; a byte shared with the previous packet comes first, with a `+`.
    pub bytes: String,
    pub length: usize,
    pub name: &'static str,
    pub fields: Vec<String>,
    /// Elements in canonical form, without the end.
    pub elements: Vec<String>,
}

impl Listed {
    /// `offset bytes`, as in the expected listings.
    pub fn reference(&self) -> String {
        format!("{} {}", self.offset, self.bytes.replace('+', ""))
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn field(value: Field) -> String {
    match value {
        Field::Count(count) => count.to_string(),
        Field::Hex(value) => format!("{value:#x}"),
        Field::Flag(flag) => flag.to_string(),
        Field::Name(name) => name.to_owned(),
        Field::Atoms(atoms) => format!("{atoms:?}"),
    }
}

fn optional<T: std::fmt::LowerHex>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:x}"))
}

fn stm(stm: &Stm) -> String {
    let flags: Vec<&str> = [
        (stm.marker, "marker"),
        (stm.trigger, "trigger"),
        (stm.frequency, "frequency"),
        (stm.master_error, "master_error"),
        (stm.global_error, "global_error"),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
    .collect();
    let flags = if flags.is_empty() {
        "-".to_owned()
    } else {
        flags.join("+")
    };
    format!(
        "stm {} {} {} {} {flags} {}",
        optional(stm.master),
        optional(stm.channel),
        stm.bits,
        optional((stm.bits > 0).then_some(stm.value)),
        optional(stm.timestamp)
    )
}

fn itm(itm: &Itm) -> String {
    match itm {
        Itm::Stimulus { port, bytes, value } => format!("itm stimulus {port:x} {bytes} {value:x}"),
        Itm::Hardware { port, bytes, value } => format!("itm hardware {port:x} {bytes} {value:x}"),
        Itm::Overflow => "itm overflow".to_owned(),
        Itm::GlobalTimestamp(value) => format!("itm global_timestamp {value:x}"),
        Itm::LocalTimestamp {
            delta,
            relation,
            total,
        } => format!(
            "itm local_timestamp {delta:x} {} {total:x}",
            relation.name()
        ),
    }
}

/// The canonical form of the expected listings; `no_sync` with its reason if `reasons`.
pub fn canonical(element: &Element, reasons: bool) -> Option<String> {
    match element {
        Element::Mark(Mark::Stm(element)) => Some(stm(element)),
        Element::Mark(Mark::Itm(element)) => Some(itm(element)),
        Element::Mark(Mark::NoSync(reason)) if reasons => {
            Some(format!("no_sync {}", reason.name()))
        }
        Element::Mark(Mark::NoSync(_)) => Some("no_sync".to_owned()),
        Element::Mark(Mark::End) => None,
        other => Some(format!("{other:?}")),
    }
}

/// Decodes one stream of a demultiplexer.
pub fn list<P, E>(demux: &mut Demux, id: TraceId, mut packets: P, mut elements: E) -> Vec<Listed>
where
    P: PacketDecoder,
    E: ElementDecoder<Packet = P::Packet>,
{
    let mut listed = Vec::new();
    let mut out = Vec::new();
    let stream = demux.stream_mut(id);
    stream.packets(&mut packets, true, |at, packet, bytes| {
        elements.packet(at, packet, &mut out);
        let mut fields = Vec::new();
        packet.fields(&mut |name, value| fields.push(format!("{name}={}", field(value))));
        let shared = packet
            .shared_byte()
            .map_or_else(String::new, |byte| format!("{byte:02x}+"));
        listed.push(Listed {
            offset: at.0,
            bytes: shared + &hex(bytes),
            length: bytes.len(),
            name: packet.name(),
            fields,
            elements: out
                .drain(..)
                .filter_map(|(_, element)| canonical(&element, true))
                .collect(),
        });
    });
    elements.end(BufferOffset(0), &mut out);
    assert_eq!(
        out.pop().map(|(_, last)| last),
        Some(Element::Mark(Mark::End))
    );
    if let Some(last) = listed.last_mut() {
        last.elements.extend(
            out.iter()
                .filter_map(|(_, element)| canonical(element, true)),
        );
    }
    listed
}

/// Decodes the bytes of an unformatted source.
pub fn list_raw<P, E>(bytes: &[u8], packets: P, elements: E) -> Vec<Listed>
where
    P: PacketDecoder,
    E: ElementDecoder<Packet = P::Packet>,
{
    let mut demux = Demux::new();
    demux.unformatted(TraceId(1), BufferOffset(0), bytes);
    list(&mut demux, TraceId(1), packets, elements)
}

/// Splits a formatted buffer; `piece` bytes at a time.
pub fn deformat(kind: FrameKind, bytes: &[u8], piece: usize) -> Demux {
    let mut demux = Demux::new();
    let mut deformatter = Deformatter::new(kind);
    for (number, bytes) in bytes.chunks(piece.max(1)).enumerate() {
        let at = BufferOffset((number * piece) as u64);
        deformatter.feed(at, bytes, false, &mut demux);
    }
    deformatter.feed(BufferOffset(bytes.len() as u64), &[], true, &mut demux);
    assert_eq!(deformatter.counts().sum(), bytes.len() as u64);
    demux
}

/// The directory of the real captures; `None` with a warning if it does not exist.
pub fn shared() -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if path.is_dir() {
        Some(path.to_owned())
    } else {
        crate::support::skip::missing("../shared is not there");
        None
    }
}

/// The lines of an expected listing that belong to one trace ID, without the ID.
pub fn expected(shared: &Path, listing: &str, id: u8) -> Vec<String> {
    let path = shared.join("parity/expected").join(listing);
    let zcat = Command::new("zcat").arg(&path).output().expect("zcat runs");
    assert!(zcat.status.success(), "zcat {}", path.display());
    let text = String::from_utf8(zcat.stdout).expect("text");
    let prefix = format!("{id:02x} ");
    text.lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .map(str::to_owned)
        .collect()
}

/// Fails with the first difference.
pub fn assert_same(found: &[String], wanted: &[String]) {
    for (number, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found, wanted, "line {number}");
    }
    assert_eq!(
        found.get(wanted.len()..),
        Some(&[][..]),
        "{} of {} lines",
        found.len(),
        wanted.len()
    );
    assert!(!found.is_empty());
}

/// Compares packets and elements with the expected listings.
pub fn assert_parity(listed: &[Listed], shared: &Path, snapshot: &str, id: u8) {
    let packets: Vec<String> = listed
        .iter()
        .filter(|packet| packet.name != "not_sync")
        .map(|packet| format!("packet {}", packet.reference()))
        .collect();
    assert_same(
        &packets,
        &expected(shared, &format!("{snapshot}.packets.gz"), id),
    );
    let elements: Vec<String> = listed
        .iter()
        .flat_map(|packet| &packet.elements)
        .map(|element| match element.split_once(' ') {
            Some(("no_sync", _)) => "no_sync".to_owned(),
            _ => element.clone(),
        })
        .collect();
    assert_same(
        &elements,
        &expected(shared, &format!("{snapshot}.elements.gz"), id),
    );
}

/// Decodes unformatted bytes in pieces; joins unsynchronised bytes to one packet.
pub fn list_in_pieces<P: PacketDecoder>(bytes: &[u8], mut packets: P, piece: usize) -> Vec<Place> {
    let mut demux = Demux::new();
    let mut places: Vec<Place> = Vec::new();
    let mut offset = 0;
    for bytes_of_piece in bytes.chunks(piece.max(1)) {
        demux.unformatted(TraceId(1), BufferOffset(offset), bytes_of_piece);
        offset += bytes_of_piece.len() as u64;
        let last = offset == bytes.len() as u64;
        let stream = demux.stream_mut(TraceId(1));
        stream.packets(&mut packets, last, |at, packet, bytes| {
            match places.last_mut() {
                Some(("not_sync", _, length)) if packet.name() == "not_sync" => {
                    *length += bytes.len();
                }
                _ => places.push((packet.name(), at.0, bytes.len())),
            }
        });
    }
    places
}

/// A packet's name, offset and length.
pub type Place = (&'static str, u64, usize);
