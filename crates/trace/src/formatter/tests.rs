//! The deformatter: compared with a simple one and with the encoder, and on frames made by hand.

use proptest::prelude::*;

use super::encode::Encoder;
use super::{Counts, Deformatter, Demux, FRAME_BYTES, FSYNC, FrameKind, HSYNC};
use armsnap_arch::quantity::{BufferOffset, TraceId};

type Byte = (u8, u64, u8);

/// Decodes one frame at `at` byte by byte: (ID, offset, byte) of the payload. The offset is never
/// after the byte, never in another frame, and that of the byte itself if no ID precedes it in the
/// frame.
fn plain_frame(frame: &[u8], at: u64, current: &mut Option<u8>, out: &mut Vec<Byte>) {
    let mut base = at;
    let mut given = 0;
    let first_id = (0..15).step_by(2).find(|&index| frame[index] & 1 == 1);
    let mut give = |id: Option<u8>, byte: u8, stands: usize, base: u64, given: &mut u64| {
        if let Some(id) = id {
            let (place, stands_at) = (base + *given, at + stands as u64);
            assert!((at..=stands_at).contains(&place));
            assert!(place == stands_at || first_id.is_some_and(|id| id < stands));
            out.push((id, place, byte));
        }
        *given += 1;
    };
    let mut index = 0;
    while index < 15 {
        let aux = frame[15] >> (index / 2) & 1;
        let byte = frame[index];
        if byte & 1 == 0 {
            give(*current, byte | aux, index, base, &mut given);
            if index < 14 {
                give(*current, frame[index + 1], index + 1, base, &mut given);
            }
        } else {
            let new = Some(byte >> 1);
            let changes = new != *current;
            if changes && aux == 1 && index < 14 {
                give(*current, frame[index + 1], index + 1, base, &mut given);
            }
            if changes && given > 0 {
                base = at + index as u64;
                given = 0;
            }
            *current = new;
            if index < 14 && !(changes && aux == 1) {
                give(new, frame[index + 1], index + 1, base, &mut given);
            }
        }
        index += 2;
    }
}

fn plain_memory(bytes: &[u8]) -> Vec<Byte> {
    let mut out = Vec::new();
    let mut current = None;
    for (number, frame) in bytes.chunks_exact(FRAME_BYTES).enumerate() {
        plain_frame(frame, (number * FRAME_BYTES) as u64, &mut current, &mut out);
    }
    out
}

fn everything() -> Demux {
    Demux::only(&(0..128).map(TraceId).collect::<Vec<_>>())
}

/// Feeds `bytes` in pieces of the given sizes, which are repeated in a cycle.
fn deformat(kind: FrameKind, bytes: &[u8], pieces: &[usize]) -> (Vec<Byte>, Counts, Demux) {
    let mut deformatter = Deformatter::new(kind);
    let mut demux = everything();
    let mut at = 0;
    let mut sizes = pieces.iter().cycle();
    while at < bytes.len() {
        let size = (*sizes.next().unwrap_or(&bytes.len())).clamp(1, bytes.len() - at);
        let piece = &bytes[at..at + size];
        deformatter.feed(BufferOffset(at as u64), piece, false, &mut demux);
        at += size;
    }
    deformatter.feed(BufferOffset(at as u64), &[], true, &mut demux);
    let mut out = Vec::new();
    for id in 0..128 {
        let stream = demux.stream(TraceId(id));
        let mut locator = stream.locator();
        for (index, &byte) in stream.payload().iter().enumerate() {
            out.push((id, locator.locate(index).0, byte));
        }
    }
    (out, deformatter.counts(), demux)
}

fn by_id(mut bytes: Vec<Byte>) -> Vec<Byte> {
    bytes.sort_by_key(|&(id, ..)| id);
    bytes
}

/// Bytes without FSYNC or HSYNC at even offsets, with few IDs.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![
            4 => any::<u8>().prop_map(|byte| byte & 0xfe),
            2 => any::<u8>(),
            1 => prop::sample::select(vec![0x21u8, 0x23, 0x25]),
        ],
        0..400,
    )
    .prop_map(|mut bytes| {
        for byte in bytes.iter_mut().step_by(2) {
            if *byte == 0xff {
                *byte = 0xfd;
            }
        }
        bytes
    })
}

/// Frames of data alone, frames that start with their only ID, and others, in runs.
fn runs_of_frames() -> impl Strategy<Value = Vec<u8>> {
    let run = (0u8..4, 1usize..6, any::<[u8; FRAME_BYTES]>());
    prop::collection::vec(run, 0..40).prop_map(|runs| {
        let mut bytes = Vec::new();
        for (kind, count, mut frame) in runs {
            for (index, byte) in frame[..FRAME_BYTES - 1].iter_mut().enumerate().step_by(2) {
                match (kind, index) {
                    (0..=1, 0) => *byte = 0x21 + 2 * kind,
                    (0..=2, _) => *byte &= 0xfe,
                    (_, _) if *byte == 0xff => *byte = 0xfd,
                    (_, _) => {}
                }
            }
            (0..count).for_each(|_| bytes.extend_from_slice(&frame));
        }
        bytes
    })
}

fn writes() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let id = prop::sample::select(vec![0x01u8, 0x10, 0x20, 0x6f, 0x7d]);
    prop::collection::vec((id, prop::collection::vec(any::<u8>(), 0..40)), 0..40)
}

proptest! {
    #[test]
    fn equals_the_plain_one(bytes in frames(), pieces in prop::collection::vec(1usize..50, 1..5)) {
        let (found, counts, _) = deformat(FrameKind::Memory, &bytes, &pieces);
        prop_assert_eq!(counts.payload, found.len() as u64);
        prop_assert_eq!(found, by_id(plain_memory(&bytes)));
        prop_assert_eq!(counts.sum(), bytes.len() as u64);
        prop_assert_eq!(counts.sync, 0);
    }

    #[test]
    fn runs_of_frames_equal_the_plain_ones(
        bytes in runs_of_frames(),
        pieces in prop::collection::vec(1usize..400, 1..5),
    ) {
        let (found, counts, _) = deformat(FrameKind::Memory, &bytes, &pieces);
        prop_assert_eq!(found, by_id(plain_memory(&bytes)));
        prop_assert_eq!(counts.sum(), bytes.len() as u64);
    }

    #[test]
    fn reads_what_the_encoder_writes(
        writes in writes(),
        fsync in prop::option::of(1u32..5),
        pieces in prop::collection::vec(1usize..70, 1..5),
    ) {
        let mut encoder = fsync.map_or_else(Encoder::new, Encoder::with_fsync);
        let mut bytes = Vec::new();
        for (id, data) in &writes {
            encoder.write(TraceId(*id), data, &mut bytes);
        }
        encoder.finish(&mut bytes);
        let kinds: &[FrameKind] = match fsync {
            Some(_) => &[FrameKind::Tpiu, FrameKind::Memory],
            None => &[FrameKind::Memory],
        };
        for &kind in kinds {
            let (_, counts, demux) = deformat(kind, &bytes, &pieces);
            prop_assert_eq!(counts.sum(), bytes.len() as u64);
            prop_assert_eq!(counts.skipped, 0);
            for id in 1..128u8 {
                let wanted: Vec<u8> = writes
                    .iter()
                    .filter(|(of, _)| *of == id)
                    .flat_map(|(_, data)| data.clone())
                    .collect();
                prop_assert_eq!(demux.stream(TraceId(id)).payload(), &wanted[..]);
                prop_assert_eq!(demux.stream(TraceId(id)).loss(), None);
            }
        }
    }

    #[test]
    fn accounts_for_every_byte(
        bytes in prop::collection::vec(prop_oneof![Just(0xffu8), Just(0x7f), any::<u8>()], 0..600),
        pieces in prop::collection::vec(1usize..50, 1..5),
    ) {
        for kind in [FrameKind::Memory, FrameKind::Tpiu, FrameKind::Dstream] {
            let (found, counts, demux) = deformat(kind, &bytes, &pieces);
            prop_assert_eq!(counts.sum(), bytes.len() as u64);
            prop_assert_eq!(counts.payload, found.len() as u64);
            let totals: u64 = demux.ids().map(|id| demux.stream(id).total()).sum();
            prop_assert_eq!(counts.payload, totals);
            let whole = deformat(kind, &bytes, &[bytes.len()]);
            prop_assert_eq!(found, whole.0);
            prop_assert_eq!(counts, whole.1);
        }
    }
}

/// A frame of the ID 0x10 with 14 bytes of data from `first` on.
fn frame(first: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let data: Vec<u8> = (first..first + 14).collect();
    let mut encoder = Encoder::new();
    encoder.write(TraceId(0x10), &data, &mut bytes);
    assert_eq!(bytes.len(), FRAME_BYTES);
    bytes
}

#[test]
fn offsets_after_hsync_include_it() {
    let mut bytes = FSYNC.to_vec();
    let frame = frame(0);
    bytes.extend_from_slice(&frame[..6]);
    bytes.extend_from_slice(&HSYNC);
    bytes.extend_from_slice(&frame[6..]);
    let (found, counts, _) = deformat(FrameKind::Tpiu, &bytes, &[1]);
    let places: Vec<u64> = found.iter().map(|&(_, at, _)| at).collect();
    let wanted: Vec<u64> = (4..10).chain(12..20).collect();
    assert_eq!(places, wanted);
    assert_eq!((counts.sync, counts.payload, counts.overhead), (6, 14, 2));
}

#[test]
fn frames_are_aligned_again_at_the_next_fsync() {
    let mut bytes = FSYNC.to_vec();
    bytes.extend_from_slice(&frame(0));
    bytes.extend_from_slice(&frame(20)[..7]);
    bytes.push(0);
    bytes.extend_from_slice(&FSYNC);
    bytes.extend_from_slice(&frame(40));
    for kind in [FrameKind::Memory, FrameKind::Tpiu] {
        let (_, counts, demux) = deformat(kind, &bytes, &[5]);
        let stream = demux.stream(TraceId(0x10));
        let wanted: Vec<u8> = (0..14).chain(40..54).collect();
        assert_eq!(stream.payload(), wanted);
        assert_eq!(stream.loss(), Some(14));
        assert_eq!(counts.skipped, 8);
        assert_eq!(stream.locator().locate(14), BufferOffset(32));
    }
}

#[test]
fn a_broken_fsync_starts_a_search_for_the_next_one() {
    let mut bytes = FSYNC.to_vec();
    bytes.extend_from_slice(&frame(0));
    bytes.extend_from_slice(&[0xff, 0xff, 0x12]);
    bytes.extend_from_slice(&FSYNC);
    bytes.extend_from_slice(&frame(40));
    let (_, counts, demux) = deformat(FrameKind::Tpiu, &bytes, &[64]);
    let stream = demux.stream(TraceId(0x10));
    assert_eq!(stream.payload().len(), 28);
    assert_eq!(stream.loss(), Some(14));
    assert_eq!((counts.skipped, counts.sync), (3, 8));
}

#[test]
fn four_fsyncs_in_memory_separate_two_captures() {
    let mut bytes = frame(0);
    bytes.extend_from_slice(&FSYNC.repeat(4));
    bytes.extend_from_slice(&frame(40));
    let (_, counts, demux) = deformat(FrameKind::Memory, &bytes, &[64]);
    assert_eq!(demux.stream(TraceId(0x10)).loss(), Some(14));
    assert_eq!((counts.skipped, counts.sync), (0, 16));
}

#[test]
fn consuming_keeps_offsets_and_losses() {
    let mut deformatter = Deformatter::new(FrameKind::Memory);
    let mut demux = Demux::new();
    deformatter.feed(BufferOffset(0), &frame(0), false, &mut demux);
    demux.stream_mut(TraceId(0x10)).consume(10);
    deformatter.lost(&mut demux);
    deformatter.feed(BufferOffset(100), &frame(20), true, &mut demux);
    let stream = demux.stream_mut(TraceId(0x10));
    assert_eq!(stream.payload().len(), 18);
    assert_eq!(stream.loss(), Some(4));
    assert_eq!(stream.locator().locate(0), BufferOffset(10));
    assert_eq!(stream.locator().locate(5), BufferOffset(101));
    stream.consume(4);
    assert_eq!(stream.loss(), Some(0));
    stream.consume(1);
    assert_eq!(stream.loss(), None);
    assert_eq!(stream.locator().locate(0), BufferOffset(101));
}

#[test]
fn the_last_eight_bytes_of_a_dstream_block_are_not_trace() {
    let mut trace = Vec::new();
    let mut encoder = Encoder::with_fsync(1);
    let data: Vec<u8> = (0..2000u32).map(|value| value as u8).collect();
    encoder.write(TraceId(0x10), &data, &mut trace);
    encoder.finish(&mut trace);
    let mut blocks = Vec::new();
    for block in trace.chunks(504) {
        blocks.extend_from_slice(block);
        blocks.extend_from_slice(&[0xff; 8][..if block.len() == 504 { 8 } else { 0 }]);
    }
    let plain = deformat(FrameKind::Tpiu, &trace, &[trace.len()]);
    for piece in [blocks.len(), 512, 100, 1] {
        let (found, counts, demux) = deformat(FrameKind::Dstream, &blocks, &[piece]);
        assert_eq!(found, plain.0);
        assert_eq!(counts.sum(), blocks.len() as u64);
        assert_eq!(counts.blocks, 8 * (trace.len() as u64 / 504));
        assert_eq!(demux.stream(TraceId(0x10)).payload(), data);
    }
}

/// Found by fuzzing. As in other tools, data are counted from the ID byte before them, and an ID
/// without data from the ID before it, so two bytes may have the same offset.
#[test]
fn data_after_adjacent_ids_share_an_offset() {
    let mut bytes = frame(0);
    let mut second = [0; 16];
    second[..4].copy_from_slice(&[0x20 << 1 | 1, 0xaa, 0x10 << 1 | 1, 0xbb]);
    second[15] = 1;
    bytes.extend_from_slice(&second);
    let (_, counts, demux) = deformat(FrameKind::Memory, &bytes, &[32]);
    let stream = demux.stream(TraceId(0x10));
    assert_eq!(stream.payload()[14..16], [0xaa, 0xbb]);
    let mut locator = stream.locator();
    let places: Vec<u64> = (13..16).map(|index| locator.locate(index).0).collect();
    assert_eq!(places, [13, 16, 16]);
    assert_eq!(counts.sum(), 32);
}
