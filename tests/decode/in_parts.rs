//! Decoding in parts: the output is that of decoding as a whole, wherever the parts begin, and
//! whatever the trace is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::repeated::repeated;
use crate::support::skip;
use armsnap::capture::{Capture, CaptureBuffer, CaptureSource, Saved, Visitor, traced_core};
use armsnap::decode::parts::{
    Decoders, Joiner, Output, Page, Part, PartDecoder, PartError, PartState, Sizes, decode_in_parts,
};
use armsnap::decode::{Decoding, Image, Resumable, Source, Totals, Unsaved, decode_buffer};
use armsnap::flow::{Flow, FlowConfig};
use armsnap::formatter::FSYNC;
use armsnap::formatter::encode::Encoder;
use armsnap::program::disassembly::Disassembler;
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::TraceId;
use armsnap::report::listing::branches::Branches;
use armsnap::report::listing::elements::ElementListing;
use armsnap::report::listing::instructions::InstructionListing;
use armsnap::report::listing::jsonl::JsonLines;
use armsnap::report::listing::nothing::NoLines;
use armsnap::report::listing::packets::PacketListing;
use armsnap::report::listing::text::TextLines;
use armsnap::report::listing::{Lines, Listed};
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Level {
    Packets,
    Elements,
    Branches,
    Instructions,
}

const LEVELS: [Level; 4] = [
    Level::Packets,
    Level::Elements,
    Level::Branches,
    Level::Instructions,
];

#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Json,
    Nothing,
}

struct Make<'a, L> {
    level: Level,
    lines: L,
    image: Image<'a>,
    m_profile: bool,
    counts_cycles: bool,
}

impl<'a, L: Lines + 'a> Visitor for Make<'a, L> {
    type Output = Box<dyn Resumable<dyn Listed + 'a> + 'a>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        let Self { lines, image, .. } = self;
        match (self.level, flow) {
            (Level::Packets, _) => Box::new(Source::new(packets, PacketListing::new(lines))),
            (Level::Branches, _) => {
                let branches = Branches::new(lines, self.counts_cycles);
                Box::new(Source::with_elements(packets, elements, branches))
            }
            (Level::Elements, Some(flow)) => {
                let flow = Flow::new(flow, image);
                let listing = ElementListing::new(lines);
                Box::new(Source::with_flow(packets, elements, flow, listing))
            }
            (Level::Instructions, Some(flow)) => {
                let disassembler = Disassembler::new(self.m_profile).unwrap();
                let listing = InstructionListing::new(lines, image, None, disassembler);
                let flow = Flow::new(flow, image);
                Box::new(Source::with_flow(packets, elements, flow, listing))
            }
            (_, None) => {
                let listing = ElementListing::new(lines);
                Box::new(Source::with_elements(packets, elements, listing))
            }
        }
    }
}

/// What a source gives for a piece.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Taken {
    text: String,
    counts: [u64; 3],
    unfollowed: Option<(u64, u64, Option<u64>)>,
    packets: u64,
}

impl Output for Taken {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

fn take(listed: &mut (dyn Listed + '_), packets: u64) -> Taken {
    let counts = listed.counts();
    let unfollowed = listed.unfollowed().map(|unfollowed| {
        let branch = unfollowed.branch.map(|address| address.0);
        (unfollowed.times, unfollowed.first.0, branch)
    });
    listed.reset();
    Taken {
        text: String::from_utf8(listed.text().take()).unwrap(),
        counts: [counts.ranges, counts.instructions, counts.elements],
        unfollowed,
        packets,
    }
}

/// A snapshot and how it is decoded.
struct Case<'a> {
    loaded: &'a OpenSnapshot,
    memories: &'a [CoreMemory],
    buffer: CaptureBuffer,
    level: Level,
    form: Form,
    piece: usize,
}

/// The outputs of all sources for each piece, and the bytes of each trace ID.
type Decoded = (Vec<Vec<Taken>>, Totals);

impl Case<'_> {
    fn make(&self, source: &CaptureSource) -> Box<dyn Resumable<dyn Listed + '_> + '_> {
        let id = source.trace_id;
        match self.form {
            Form::Text => self.with(source, TextLines::new(id, None)),
            Form::Json => self.with(source, JsonLines::new(&source.name, &self.buffer.name, id)),
            Form::Nothing => self.with(source, NoLines::default()),
        }
    }

    fn with<'a, L: Lines + 'a>(
        &'a self,
        source: &CaptureSource,
        lines: L,
    ) -> Box<dyn Resumable<dyn Listed + 'a> + 'a> {
        let devices = &self.loaded.snapshot.devices;
        let core = source.core.map(|core| traced_core(&devices[core]));
        source.visit(Make {
            level: self.level,
            lines,
            image: Image(source.core.map(|core| &self.memories[core])),
            m_profile: core.is_some_and(|core| core.is_microcontroller()),
            counts_cycles: source.config.counts_cycles(),
        })
    }

    fn decoders(&self) -> Decoders<'_, dyn Listed + '_> {
        let sources = self.buffer.sources.iter();
        sources
            .map(|source| (source.trace_id, self.make(source)))
            .collect()
    }

    /// Decodes as a whole.
    fn whole(&self) -> Decoded {
        let mut decoders = Vec::new();
        for (id, decoder) in self.decoders() {
            let decoder: Box<dyn Decoding<_>> = decoder;
            decoders.push((id, decoder));
        }
        let mut pieces: Vec<Vec<Taken>> = Vec::new();
        let count = decoders.len();
        let totals = decode_buffer(&self.buffer, &mut decoders, self.piece, |index, listed| {
            if index == 0 {
                pieces.push(vec![Taken::default(); count]);
            }
            pieces.last_mut().unwrap()[index] = take(listed, 0);
            Ok::<(), ()>(())
        });
        // Packets are counted at the end.
        for (index, (_, decoder)) in decoders.iter().enumerate() {
            if let Some(last) = pieces.last_mut() {
                last[index].packets = decoder.packets();
            }
        }
        (pieces, totals.unwrap())
    }

    /// Decodes each part on its own, and joins them. `remote` sends everything through text.
    /// Returns also the number of pages that were taken from parts.
    fn joined(&self, parts: &[Part], remote: bool) -> Option<(Decoded, u64)> {
        let new = PartDecoder::new(&self.buffer, self.decoders(), self.piece, &take);
        let mut decoder = new.ok()?;
        let mut joiner = Joiner::new(&self.buffer, self.decoders(), self.piece, &take).unwrap();
        let mut pieces = Vec::new();
        let mut give = |outputs, _| {
            pieces.push(outputs);
            Ok::<(), PartError>(())
        };
        for part in parts {
            let mut pages: Vec<Page<Taken>> = Vec::new();
            let part: Part = sent(part, remote);
            let exit: Result<PartState, Unsaved> = decoder.decode(&part, |page| {
                pages.push(page);
                true
            });
            joiner.begin(part.start, &mut give).unwrap();
            for page in pages {
                joiner.page(sent(&page, remote), &mut give).unwrap();
            }
            if let Ok(exit) = exit {
                joiner.end(&sent(&exit, remote)).unwrap();
            }
        }
        joiner.decode(self.buffer.bytes(), &mut give).unwrap();
        let taken = joiner.taken();
        let totals = joiner.totals();
        Some(((counted_at_end(pieces), totals), taken))
    }

    /// Decodes on several threads; `None` if that is not worth while.
    fn on_threads(&self, sizes: Sizes, jobs: usize) -> Option<Decoded> {
        let mut pieces = Vec::new();
        let make = || Ok::<_, PartError>(self.decoders());
        let give = |outputs, _| {
            pieces.push(outputs);
            Ok::<(), PartError>(())
        };
        let totals = decode_in_parts(&self.buffer, sizes, jobs, &make, &take, give).unwrap();
        Some((counted_at_end(pieces), totals?))
    }

    fn name(&self) -> String {
        let (level, form, piece) = (self.level, self.form, self.piece);
        let buffer = &self.buffer.name;
        format!("{buffer}, {level:?} {form:?}, pieces of {piece}")
    }
}

/// Sends a value to another machine and back.
fn sent<T: Serialize + for<'a> Deserialize<'a> + Clone>(value: &T, remote: bool) -> T {
    match remote {
        true => serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap(),
        false => value.clone(),
    }
}

/// Moves the packets to the last piece.
fn counted_at_end(mut pieces: Vec<Vec<Taken>>) -> Vec<Vec<Taken>> {
    let count = pieces.first().map_or(0, Vec::len);
    for index in 0..count {
        let packets = pieces.iter_mut();
        let packets = packets.map(|piece| std::mem::take(&mut piece[index].packets));
        let sum = packets.sum();
        pieces.last_mut().unwrap()[index].packets = sum;
    }
    pieces
}

#[track_caller]
fn assert_same(found: &Decoded, wanted: &Decoded, name: &str) {
    for (number, (found, wanted)) in found.0.iter().zip(&wanted.0).enumerate() {
        assert_eq!(found, wanted, "{name}: piece {number}");
    }
    assert_eq!(found.0.len(), wanted.0.len(), "{name}");
    assert!(found.1 == wanted.1, "{name}: totals");
}

/// Cuts `total` bytes into parts of 1 to 4 pieces with lead-ins of any length.
fn parts(total: u64, piece: usize, mut random: impl FnMut() -> u64) -> Vec<Part> {
    let (mut parts, mut start) = (Vec::new(), 0);
    while start < total {
        let end = (start + (random() % 4 + 1) * piece as u64).min(total);
        let most = [0, 64, 1 << 10, total][random() as usize % 4];
        parts.push(Part {
            lead_in: start.saturating_sub(random() % (most + 1)),
            start,
            end,
        });
        start = end;
    }
    parts
}

fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed >> 8
    }
}

/// The snapshots with trace, here and in ../shared.
fn snapshots() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for from in [
        "testdata/recorded",
        "../shared/snapshots",
        "../shared/captures",
    ] {
        let Ok(entries) = std::fs::read_dir(root.join(from)) else {
            skip::missing("../shared is not there");
            continue;
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        found.extend(paths.filter(|path| path.join("snapshot.ini").is_file()));
    }
    found.sort();
    found
}

/// Calls `each` for all buffers of a snapshot.
fn cases(path: &Path, mut each: impl FnMut(Case<'_>)) {
    let loaded: OpenSnapshot = Snapshot::open(path, &OpenOptions::default()).unwrap();
    let (capture, _) = Capture::open(&loaded);
    let devices = loaded.snapshot.devices.iter();
    let memories: Vec<CoreMemory> = devices
        .map(|device| CoreMemory::new(&loaded, device))
        .collect();
    for buffer in &capture.buffers {
        if buffer.sources.is_empty() || buffer.bytes() == 0 {
            continue;
        }
        each(Case {
            loaded: &loaded,
            memories: &memories,
            buffer: buffer.clone(),
            level: Level::Packets,
            form: Form::Nothing,
            piece: 1,
        });
    }
}

fn bytes_of(buffer: &CaptureBuffer) -> Vec<u8> {
    buffer.parts.iter().flat_map(|part| part.to_vec()).collect()
}

/// The buffer of a snapshot with other bytes.
fn with_bytes(mut case: Case<'_>, bytes: Vec<u8>) -> Case<'_> {
    case.buffer.parts = vec![bytes.into()];
    case
}

#[test]
fn all_captures_decode_in_parts_as_a_whole() {
    let mut random = numbers(0x5eed);
    let mut taken = [0; 4];
    for path in snapshots() {
        cases(&path, |case| {
            let total = case.buffer.bytes();
            let mut case = Case {
                piece: (total / 16).clamp(1, 4 << 10) as usize,
                ..case
            };
            for (index, level) in LEVELS.into_iter().enumerate() {
                case.level = level;
                let forms: &[Form] = match level {
                    Level::Elements => &[Form::Text, Form::Json, Form::Nothing],
                    Level::Packets => &[Form::Json, Form::Nothing],
                    Level::Branches => &[Form::Json],
                    // The disassembler is slow without optimisation.
                    Level::Instructions if total > 30 << 10 => &[Form::Nothing],
                    Level::Instructions => &[Form::Text],
                };
                for &form in forms {
                    case.form = form;
                    let name = format!("{}: {}", path.display(), case.name());
                    let whole = case.whole();
                    let parts = parts(total, case.piece, &mut random);
                    let Some((joined, pages)) = case.joined(&parts, false) else {
                        // A running count of cycles.
                        assert_eq!(level, Level::Branches, "{name}");
                        continue;
                    };
                    assert_same(&joined, &whole, &name);
                    taken[index] += pages;
                }
            }
        });
    }
    for pages in taken {
        skip::found_enough(pages as usize, 20);
    }
}

/// The recorded traces have few synchronisation points, so each is repeated.
#[test]
fn threads_decode_as_a_whole() {
    let mut split = 0;
    for path in snapshots() {
        cases(&path, |case| {
            let once = bytes_of(&case.buffer);
            let times = (24 << 10) / once.len() + 1;
            if once.len() < 64 || once.len() > 20 << 10 {
                return;
            }
            let mut case = with_bytes(case, once.repeat(times));
            case.piece = 1 << 10;
            for (level, form, jobs) in [
                (Level::Packets, Form::Json, 2),
                (Level::Elements, Form::Nothing, 3),
                (Level::Elements, Form::Text, 2),
            ] {
                (case.level, case.form) = (level, form);
                let sizes = Sizes {
                    piece: case.piece,
                    part: 8 << 10,
                    output: 16 << 10,
                    lead_in: None,
                };
                if let Some(decoded) = case.on_threads(sizes, jobs) {
                    assert_same(&decoded, &case.whole(), &path.display().to_string());
                    split += 1;
                }
            }
        });
    }
    skip::found_enough(split, 10);
}

fn decode(snapshot: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(crate::support::armsnap());
    let output = command.arg("decode").arg(snapshot).args(arguments).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    output.stdout
}

#[test]
fn the_program_writes_the_same_with_any_number_of_threads() {
    let short = repeated("etmv4", 150 << 10);
    for arguments in [
        ["--level", "packets", "--format", "jsonl"],
        ["--level", "elements", "--format", "text"],
        ["--level", "branches", "--format", "jsonl"],
    ] {
        let one = decode(short.path(), &[&arguments[..], &["--jobs", "1"]].concat());
        assert!(one.len() > 1 << 18, "{}", one.len());
        for jobs in ["2", "3"] {
            let many = decode(short.path(), &[&arguments[..], &["--jobs", jobs]].concat());
            assert!(many == one, "{arguments:?}, {jobs} threads");
        }
    }
    let long = repeated("etmv4", 1200 << 10);
    let counts = |jobs| {
        let arguments = ["--format", "none", "--stats", "--jobs", jobs];
        let stats = decode(long.path(), &arguments);
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        ["bytes", "packets", "ranges", "instructions", "elements"].map(|name| stats[name].clone())
    };
    let one = counts("1");
    assert!(one[3].as_u64() > Some(1 << 20));
    assert_eq!(counts("2"), one);
    assert_eq!(counts("3"), one);
}

/// What other machines decode arrives as text.
#[test]
fn parts_and_their_states_travel_as_text() {
    let mut taken = 0;
    for path in snapshots() {
        cases(&path, |case| {
            let mut bytes = bytes_of(&case.buffer);
            bytes.truncate(3 << 10);
            let bytes = bytes.repeat(2);
            let mut case = with_bytes(case, bytes);
            let total = case.buffer.bytes();
            case.piece = (total / 12).max(1) as usize;
            case.form = Form::Text;
            for level in [Level::Elements, Level::Instructions] {
                case.level = level;
                let parts = parts(total, case.piece, numbers(total + 1));
                let (joined, pages) = case.joined(&parts, true).unwrap();
                assert_same(&joined, &case.whole(), &case.name());
                taken += pages;
            }
        });
    }
    assert!(taken > 20, "{taken}");
}

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
                    form: Form::Text,
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
                let (joined, _) = case.joined(&parts, false).unwrap();
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
            for (form, piece) in [(Form::Text, 16), (Form::Nothing, 45), (Form::Text, 90)] {
                (case.form, case.piece) = (form, piece);
                let whole = case.whole();
                let instructions = whole.0.iter().map(|piece| piece[0].counts[1]).sum::<u64>();
                assert!(instructions > 200, "{instructions}");
                for cut in 1..4 {
                    let parts = parts(total, piece, numbers(seed * 100 + cut));
                    let (joined, pages) = case.joined(&parts, false).unwrap();
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
            let mut case = Case { level: LEVELS[level], form: Form::Text, piece, ..case };
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
            if let Some((joined, _)) = case.joined(&parts, false) {
                assert_same(&joined, &whole, &case.name());
            }
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
