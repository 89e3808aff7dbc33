//! Traces that are made: synchronisation points alone, calls, and stretches of anything.

use super::case::*;
use std::path::{Path, PathBuf};

use armsnap::capture::CaptureBuffer;
use armsnap::decode::parts::{Part, Sizes};
use armsnap::formatter::FSYNC;
use armsnap::formatter::encode::Encoder;
use armsnap::quantity::TraceId;
use proptest::prelude::*;

/// The start of synchronisation in each protocol.
const SYNCS: [&[u8]; 3] = [
    &[0, 0, 0, 0, 0, 0x80],
    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80],
    &[
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf, 0, 3,
    ],
];

fn one_of_each_protocol() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded = ["etmv3", "etmv4", "ptm"].map(|name| root.join("testdata/recorded").join(name));
    let shared = root.join("../shared/snapshots");
    let more = [
        "stm_only",
        "itm_only_raw",
        "tc2-ptm-rstk-t32",
        "trace_file_vmid",
        "ete_spec_1",
        "q_elem",
    ];
    let more = more.map(|name| shared.join(name));
    let all = recorded.into_iter().chain(more);
    all.filter(|path| path.is_dir()).collect()
}

#[test]
fn synchronisation_points_alone_decode_byte_by_byte() {
    for path in one_of_each_protocol() {
        cases(&path, |case| {
            for sync in SYNCS {
                let mut bytes = sync.repeat(20);
                if case.buffer.frames.is_some() {
                    let mut framed = Vec::new();
                    let mut encoder = Encoder::new();
                    let id = case.buffer.sources[0].trace_id;
                    encoder.write(id, &bytes, &mut framed);
                    encoder.finish(&mut framed);
                    bytes = framed;
                }
                let total = bytes.len() as u64;
                let case = Case {
                    level: Level::Elements,
                    form: LineForm::Text,
                    piece: 1,
                    buffer: with_bytes(
                        Case {
                            buffer: case.buffer.clone(),
                            ..case
                        },
                        bytes,
                    )
                    .buffer,
                    ..case
                };
                let parts: Vec<Part> = (0..total)
                    .map(|start| Part {
                        lead_in: start.saturating_sub(start % 40),
                        start,
                        end: start + 1,
                    })
                    .collect();
                let (joined, _) = case.joined(&parts, false);
                assert_same(&joined, &case.whole(), &case.name());
            }
        });
    }
}

/// Functions that call each other and return, at random, up to `DEPTH` deep. Function n is at 0x1000 +
/// 0x20 n: cbz x0, 2f; 1: bl of the next one; b to the start; 2: ret. Returns are not traced.
fn calls(directory: &Path, seed: u64) {
    const DEPTH: u64 = 40;
    let function = [
        0xb400_0060_u32,
        0x9400_0007,
        0x17ff_fffe,
        0xd65f_03c0,
        0,
        0,
        0,
        0,
    ];
    let code = function.repeat(DEPTH as usize + 1);
    let code: Vec<u8> = code.into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(directory.join("code.bin"), &code).unwrap();
    let mut random = numbers(seed);
    let (mut trace, mut depth) = (Vec::new(), 0);
    let (mut up, mut left) = (true, 0);
    for step in 0..600 {
        if step % 150 == 0 || random().is_multiple_of(16) {
            // A-sync, trace info, then the address in EL1, non-secure.
            let address = 0x1000 + 0x20 * depth;
            trace.extend(SYNCS[1]);
            let low = [(address >> 2 & 0x7f) as u8, (address >> 9 & 0x7f) as u8];
            trace.extend([1, 0, 0x85, low[0], low[1], 0, 0, 0, 0, 0, 0, 0x31]);
        }
        if left == 0 {
            (up, left) = (!up, random() % 24);
        }
        left = left.saturating_sub(1);
        if depth == 0 || up && depth < DEPTH {
            trace.extend([0xf6, 0xf7]);
            depth += 1;
        } else {
            trace.extend([0xf7; 3]);
            depth -= 1;
        }
    }
    std::fs::write(directory.join("trace.bin"), &trace).unwrap();
    for (name, text) in [
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n[trace]\nmetadata=trace.ini\n",
        ),
        (
            "cpu.ini",
            "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[dump]\nfile=code.bin\naddress=0x1000\n",
        ),
        (
            "etm.ini",
            "[device]\nname=ETM\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1001\n\
             TRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\nTRCIDR1=0x4100f403\nTRCIDR2=0x488\nTRCIDR8=0\n",
        ),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat=source_data\n\
             [core_trace_sources]\ncpu=ETM\n",
        ),
    ] {
        std::fs::write(directory.join(name), text).unwrap();
    }
}

/// A part that starts inside of calls does not know the callers.
#[test]
fn returns_to_callers_from_before_a_part_are_followed() {
    let (mut taken, mut all) = (0, 0);
    for seed in 1..8 {
        let directory = tempfile::tempdir().unwrap();
        calls(directory.path(), seed * 0x1234_5678_9abc);
        cases(directory.path(), |case| {
            let total = case.buffer.bytes();
            let mut case = case;
            case.level = Level::Elements;
            for (form, piece) in [
                (LineForm::Text, 16),
                (LineForm::Counts, 45),
                (LineForm::Text, 90),
            ] {
                (case.form, case.piece) = (form, piece);
                let whole = case.whole();
                let instructions = whole.0.iter().map(|piece| piece[0].counts[1]).sum::<u64>();
                assert!(instructions > 200, "{instructions}");
                for cut in 1..4 {
                    let parts = parts(total, piece, numbers(seed * 100 + cut));
                    let (joined, pages) = case.joined(&parts, false);
                    assert_same(&joined, &whole, &case.name());
                    (taken, all) = (taken + pages, all + whole.0.len() as u64);
                }
            }
        });
    }
    assert!(taken > all / 3 && taken < all, "{taken} of {all}");
}

/// Pieces of a real trace, random bytes, and synchronisation points, in frames or not.
#[derive(Clone, Debug)]
enum Stretch {
    Real(u64, usize),
    Random(Vec<u8>),
    Sync(usize),
}

fn stretch() -> impl Strategy<Value = Stretch> {
    prop_oneof![
        6 => (any::<u64>(), 1usize..600).prop_map(|(at, length)| Stretch::Real(at, length)),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Stretch::Random),
        2 => (0usize..3).prop_map(Stretch::Sync),
    ]
}

/// The payload of the first source of a buffer.
fn payload(buffer: &CaptureBuffer) -> Vec<u8> {
    use armsnap::formatter::{Deformatter, Demux};
    use armsnap::quantity::BufferOffset;
    let bytes = bytes_of(buffer);
    let Some(kind) = buffer.frames else {
        return bytes;
    };
    let mut demux = Demux::new();
    Deformatter::new(kind).feed(BufferOffset(0), &bytes, true, &mut demux);
    let streams = buffer.sources.iter();
    let streams = streams.map(|source| demux.stream(source.trace_id).payload().to_vec());
    streams.max_by_key(Vec::len).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_trace_decodes_in_any_parts_as_a_whole(
        stretches in prop::collection::vec(stretch(), 1..12),
        which in any::<prop::sample::Index>(),
        level in 0usize..4,
        framed in any::<bool>(),
        piece in prop_oneof![1usize..40, 40usize..700],
        seed in 1u64..,
        jobs in 1usize..4,
    ) {
        let paths = one_of_each_protocol();
        let path = which.get(&paths);
        cases(path, |case| {
            let real = payload(&case.buffer);
            let mut bytes = Vec::new();
            for stretch in &stretches {
                match stretch {
                    Stretch::Real(at, length) => {
                        let at = (*at % real.len().max(1) as u64) as usize;
                        let end = (at + length).min(real.len());
                        bytes.extend_from_slice(&real[at.min(end)..end]);
                    }
                    Stretch::Random(random) => bytes.extend_from_slice(random),
                    Stretch::Sync(sync) => bytes.extend_from_slice(SYNCS[*sync]),
                }
            }
            let mut case = Case { level: LEVELS[level], form: LineForm::Text, piece, ..case };
            case.buffer.frames = case.buffer.frames.filter(|_| framed);
            if case.buffer.frames.is_some() {
                // Switches between the sources, and to one that is not known.
                let ids = case.buffer.sources.iter().map(|source| source.trace_id);
                let ids: Vec<TraceId> = ids.chain([TraceId(0x6e)]).collect();
                let (mut framed, mut random) = (Vec::new(), numbers(seed));
                let mut encoder = match random() % 3 {
                    0 => Encoder::with_fsync(7),
                    _ => Encoder::new(),
                };
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(random() as usize % 100 + 1));
                    encoder.write(ids[random() as usize % ids.len()], now, &mut framed);
                    rest = later;
                    if random() % 16 == 0 {
                        // The end of a capture: bytes are lost there.
                        encoder.finish(&mut framed);
                        framed.extend(FSYNC.repeat(4));
                    }
                }
                encoder.finish(&mut framed);
                bytes = framed;
            } else {
                case.buffer.sources.truncate(1);
            }
            if bytes.is_empty() {
                return;
            }
            let total = bytes.len() as u64;
            case = with_bytes(case, bytes);
            // Not more than some hundred parts.
            case.piece = case.piece.max(total as usize / 200);
            let whole = case.whole();
            let parts = parts(total, case.piece, numbers(seed));
            let (joined, _) = case.joined(&parts, false);
            assert_same(&joined, &whole, &case.name());
            let sizes = Sizes {
                piece: case.piece,
                part: seed % 900 + 1,
                output: 1 << 10,
                lead_in: Some(seed % 1000),
            };
            if let Some(decoded) = case.on_threads(sizes, jobs) {
                assert_same(&decoded, &whole, &case.name());
            }
        });
    }
}
