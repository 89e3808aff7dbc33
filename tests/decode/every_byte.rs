//! Every byte of every trace buffer is accounted for: it is overhead of frames, or skipped,
//! or the payload of a source; and every byte of a source is in one packet.

use std::path::{Path, PathBuf};

use armsnap::capture::{Capture, CaptureBuffer, CaptureSource, Visitor};
use armsnap::formatter::{Counts, Deformatter, Demux};
use armsnap::protocol::{Describe, ElementDecoder, PacketDecoder};
use armsnap::quantity::BufferOffset;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};

/// Bytes of trace decoded at once: odd, so that packets and frames cross the borders.
const PIECE: usize = 4099;

/// Adds up the bytes of the packets of one source.
struct Bytes<'a>(&'a CaptureBuffer, &'a CaptureSource);

#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    /// Numbers of bytes of the buffer by use.
    frames: Counts,
    /// Payload of the source.
    stream: u64,
    /// Bytes of its packets, and of the packets before synchronisation.
    packets: u64,
    not_sync: u64,
}

impl Visitor for Bytes<'_> {
    type Output = Account;

    fn visit<D, E>(self, mut packets: D, _: E) -> Account
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let Self(buffer, source) = self;
        let id = source.trace_id;
        let mut demux = Demux::new();
        let mut deformatter = buffer.frames.map(Deformatter::new);
        let (mut offset, total) = (0, buffer.bytes());
        let mut account = Account::default();
        let mut last_place = None;
        for part in &buffer.parts {
            for bytes in part.chunks(PIECE) {
                let last = offset + bytes.len() as u64 == total;
                match &mut deformatter {
                    Some(d) => d.feed(BufferOffset(offset), bytes, last, &mut demux),
                    None => demux.unformatted(id, BufferOffset(offset), bytes),
                }
                offset += bytes.len() as u64;
                let stream = demux.stream_mut(id);
                stream.packets(&mut packets, last, |at, packet, bytes| {
                    account.packets += bytes.len() as u64;
                    if packet.name() == "not_sync" {
                        account.not_sync += bytes.len() as u64;
                    }
                    assert!(at.0 < total, "a packet outside the buffer");
                    assert!(last_place <= Some(at), "packets go forward");
                    last_place = Some(at);
                });
            }
        }
        if let Some(deformatter) = deformatter {
            account.frames = deformatter.counts();
            let streams: u64 = (0..=0x7F)
                .map(|id| demux.stream(armsnap::quantity::TraceId(id)).total())
                .sum();
            assert_eq!(streams, account.frames.payload);
        } else {
            account.frames.payload = total;
        }
        account.stream = demux.stream(id).total();
        account
    }
}

/// Sums up all sources of a snapshot; returns their number.
fn account(snapshot: &Path) -> usize {
    let loaded: OpenSnapshot = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let (capture, _) = Capture::open(&loaded);
    let mut sources = 0;
    for buffer in &capture.buffers {
        for source in &buffer.sources {
            let account = source.config.visit(Bytes(buffer, source));
            let name = format!("{}: {}", snapshot.display(), source.name);
            assert_eq!(account.frames.sum(), buffer.bytes(), "{name}: the buffer");
            assert_eq!(account.packets, account.stream, "{name}: the source");
            assert!(account.not_sync <= account.packets);
            sources += 1;
        }
    }
    sources
}

#[test]
fn every_byte_of_every_capture_is_counted_once() {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots"));
    let Ok(entries) = std::fs::read_dir(shared) else {
        crate::support::skip::missing("../shared is not there");
        return;
    };
    let directories: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert!(!directories.is_empty());
    let sources: usize = directories.iter().map(|path| account(path)).sum();
    assert!(sources >= directories.len(), "{sources} sources");
}
