//! Snapshot → trace file → snapshot, and trace files of any origin → snapshot.

use armsnap::convert::snapshot::{self, Found};
use armsnap::convert::trace_file::{self, Options};
use armsnap::convert::visits::Kind;
use armsnap::convert::{Error, state::State};
use armsnap::quantity::Address;
use armsnap::snapshot::check::check;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::{CoreMemory, Space};
use armsnap::snapshot::model::*;
use armsnap::snapshot::write;
use armsnap::snapshot::{Loaded, OpenOptions};
use armsnap::tfile::{self, Block, ByteOrder, Description, File, Tracepoint, Writer};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The trace files of a snapshot.
fn trace_files(loaded: &Loaded, options: &Options) -> Vec<Vec<u8>> {
    let parts = trace_file::parts(loaded, options).unwrap();
    let write = |part| {
        trace_file::write(
            loaded,
            part,
            options,
            Vec::new(),
            &mut Vec::new(),
            &mut |_, _| {},
        )
    };
    parts.into_iter().map(|part| write(part).unwrap()).collect()
}

fn read(bytes: &[u8], frame: Option<usize>, merge: bool) -> Result<Found, Error> {
    let options = snapshot::Options { frame, merge };
    let bytes = bytes.to_vec().into();
    snapshot::read(&bytes, "x.tf", &options, &mut Vec::new())
}

/// The snapshot that a trace file carries.
fn back(bytes: &[u8]) -> Loaded {
    match read(bytes, None, false).unwrap() {
        Found::Carried(carried) => carried.open().unwrap(),
        Found::Made(..) => panic!("it carries no snapshot"),
    }
}

/// The files that the .ini files of a snapshot name: as written, with their bytes.
fn blobs(loaded: &Loaded) -> Vec<(String, Option<Vec<u8>>)> {
    let snapshot = &loaded.snapshot;
    let dumps = snapshot.devices.iter().flat_map(|device| &device.dumps);
    let mut named: Vec<(&Path, &str)> = dumps.map(|d| (&*d.place.file, &*d.file)).collect();
    if let Some(trace) = &snapshot.trace {
        let files = trace.buffers.iter().flat_map(|buffer| &buffer.files);
        named.extend(files.map(|file| (&*trace.place.file, &**file)));
    }
    named
        .into_iter()
        .map(|(from, written)| {
            let bytes = loaded.file(from, written);
            (written.to_owned(), bytes.ok().map(|bytes| bytes.to_vec()))
        })
        .collect()
}

fn same(there: &Loaded, back: &Loaded) {
    assert_eq!(there.snapshot, back.snapshot);
    assert_eq!(there.notes, back.notes);
    assert_eq!(there.entry, back.entry);
    assert_eq!(blobs(there), blobs(back));
}

fn shared() -> Vec<PathBuf> {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots");
    let Ok(entries) = std::fs::read_dir(shared) else {
        eprintln!("SKIPPED: ../shared is not there");
        return Vec::new();
    };
    let all = entries.map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.is_dir()).collect();
    all.sort();
    assert!(all.len() > 15);
    all
}

fn own(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("testdata").join(name)
}

fn open(path: &Path) -> Loaded {
    Snapshot::open(path, &OpenOptions::default()).unwrap()
}

#[test]
fn every_snapshot_comes_back_as_it_was() {
    let own = [
        "virt-a57",
        "mps2-m4",
        "recorded/etmv4",
        "recorded/ptm",
        "recorded/etmv3",
        "info/two-clusters",
        "info/etmv4-stm-itm",
    ]
    .map(own);
    let mut files = 0;
    for path in shared().into_iter().chain(own) {
        let loaded = open(&path);
        for bytes in trace_files(&loaded, &Options::default()) {
            same(&loaded, &back(&bytes));
            files += 1;
        }
    }
    assert!(files >= 6);
}

#[test]
fn the_state_alone_comes_back_without_its_trace() {
    for path in shared() {
        let loaded = open(&path);
        let options = Options {
            state_only: true,
            ..Options::default()
        };
        let mut wanted = write::canonical(&loaded.snapshot);
        wanted.trace = None;
        for bytes in trace_files(&loaded, &options) {
            let back = back(&bytes);
            assert_eq!(write::canonical(&back.snapshot), wanted);
            let there = blobs(&loaded);
            let kept = blobs(&back);
            assert!(kept.iter().all(|file| there.contains(file)));
            let file = File::open(&bytes, None).unwrap();
            assert!(file.count() <= 1);
        }
    }
}

/// Frame 0 has what a server shows of the core: the same registers and the same memory.
#[test]
fn the_first_frame_is_the_halted_state() {
    for path in shared()
        .into_iter()
        .chain([own("virt-a57"), own("mps2-m4")])
    {
        let loaded = open(&path);
        let options = Options::default();
        let parts = trace_file::parts(&loaded, &options).unwrap();
        for (part, bytes) in parts.iter().zip(trace_files(&loaded, &options)) {
            let file = File::open(&bytes, None).unwrap();
            let Some(core) = part.core else {
                // GDB warns of a file without frames.
                assert_eq!(file.count(), 1);
                assert!(file.frame(0).unwrap().unwrap().data().is_empty());
                continue;
            };
            let state = State::of(&loaded, core, false);
            let frame = file.frame(0).unwrap().unwrap();
            let mut registers = None;
            let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[core]);
            let mut length = 0;
            for block in frame.blocks() {
                match block {
                    Block::Registers(bytes) => registers = Some(bytes),
                    Block::Memory { address, bytes } => {
                        let mut there = vec![0; bytes.len()];
                        let read = memory.read(Address(address), state.space.space, &mut there);
                        assert_eq!((read, &*there), (bytes.len(), bytes));
                        length += bytes.len();
                    }
                    Block::Variable { .. } => {}
                    Block::Unreadable { .. } => panic!("{block:?}"),
                }
            }
            let known: usize = state.memory().iter().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!(length, known);
            match registers {
                Some(bytes) => assert_eq!(bytes, state.block),
                None => assert!(state.unknown.iter().any(|name| name != "pc")),
            }
            assert_eq!(file.description().target, Some(state.description.xml()));
        }
    }
}

#[test]
fn a_register_block_ends_before_the_first_unknown_register() {
    let loaded = |registers: &str| {
        let mut files = InMemory::default();
        let device = format!("[device]\nname=c\nclass=core\ntype=ARM-AA32\n[regs]\n{registers}");
        files.0.insert("c.ini".into(), device.into_bytes().into());
        let list = b"[snapshot]\nversion=1.0\n[device_list]\nd=c.ini\n".to_vec();
        files.0.insert("snapshot.ini".into(), list.into());
        Loaded::from_files(Arc::new(files), "snapshot.ini").unwrap()
    };
    let general: String = (0..16).map(|n| format!("R{n}={n}\n")).collect();
    let frame = |registers: &str| {
        let bytes = trace_files(&loaded(registers), &Options::default()).remove(0);
        let file = File::open(&bytes, None).unwrap();
        let frame = file.frame(0).unwrap().unwrap();
        let block = frame.blocks().find_map(|block| match block {
            Block::Registers(bytes) => Some(bytes.to_vec()),
            _ => None,
        });
        let at = file
            .description()
            .tracepoints
            .iter()
            .find(|t| t.number == 1);
        (block.map(|block| block.len()), at.map(|t| t.address))
    };
    // All general registers, but no CPSR.
    assert_eq!(frame(&general), (Some(64), Some(15)));
    // One is missing before the pc: what the tracepoint tells must not be hidden.
    assert_eq!(frame(&general.replace("R5=5\n", "")), (None, Some(15)));
    // Without a pc there is no tracepoint to tell it.
    assert_eq!(frame(&general.replace("R15=15\n", "")), (None, None));
}

fn waypoints(loaded: &Loaded, kind: Kind) -> (Vec<u8>, usize) {
    let options = Options {
        frames: kind,
        ..Options::default()
    };
    let bytes = trace_files(loaded, &options).remove(0);
    let count = File::open(&bytes, None).unwrap().count();
    (bytes, count)
}

#[test]
fn fewer_places_make_fewer_frames() {
    let shared = shared();
    let Some(path) = shared.iter().find(|p| p.ends_with("tc2-ptm-rstk-t32")) else {
        return;
    };
    let loaded = open(path);
    let kinds = [
        Kind::Instructions,
        Kind::Waypoints,
        Kind::Functions,
        Kind::Exceptions,
    ];
    let counts = kinds.map(|kind| waypoints(&loaded, kind).1);
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
    assert!(counts[3] > 1);
}

#[test]
fn more_addresses_than_numbers_are_refused_not_written_wrong() {
    let shared = shared();
    let Some(path) = shared.iter().find(|p| p.ends_with("tc2-ptm-rstk-t32")) else {
        return;
    };
    let loaded = open(path);
    let options = Options {
        last: Some(10),
        ..Options::default()
    };
    let file = trace_files(&loaded, &options).remove(0);
    assert_eq!(File::open(&file, None).unwrap().count(), 11);
    let none = Options {
        from: Some(armsnap::convert::window::Bound::Address(Address(1))),
        ..Options::default()
    };
    let part = trace_file::parts(&loaded, &none).unwrap()[0];
    let error = trace_file::write(
        &loaded,
        part,
        &none,
        Vec::new(),
        &mut Vec::new(),
        &mut |_, _| {},
    );
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("none of "), "{error}");
    let other = Options {
        core: Some("nobody".to_owned()),
        ..Options::default()
    };
    let error = trace_file::parts(&loaded, &other).unwrap_err().to_string();
    assert!(error.contains("Cortex-A15_0"), "{error}");
}

#[test]
fn a_carrier_cut_at_any_byte_is_told() {
    let loaded = open(&own("mps2-m4"));
    let bytes = trace_files(&loaded, &Options::default()).remove(0);
    let file = File::open(&bytes, None).unwrap();
    let frames = file.frame(0).unwrap().unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize;
    let step = 7;
    for length in (0..frames).chain((frames..bytes.len()).step_by(step)) {
        let error = read(&bytes[..length], None, false).unwrap_err().to_string();
        let told = ["line ", "carries cannot be read", "no whole trace frame"];
        assert!(
            told.iter().any(|told| error.contains(told)),
            "{length}: {error}"
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = read(&longer, None, false).unwrap_err().to_string();
    assert!(error.contains("its first line is another"), "{error}");
}

const CORE: &str = "<target><architecture>arm</architecture>\
    <reg name=\"r0\" bitsize=\"32\"/><reg name=\"pc\" bitsize=\"32\" regnum=\"15\"/></target>\n";

fn foreign(description: &Description, order: ByteOrder) -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), description, order).unwrap()
}

fn description(target: &str) -> Description {
    Description {
        register_bytes: 8,
        target: Some(target.to_owned()),
        tracepoints: vec![
            Tracepoint::at(1, 0x8000),
            Tracepoint::at(2, 0x9000),
            Tracepoint::at(2, 0xa000),
        ],
        ..Description::default()
    }
}

fn made(bytes: &[u8], frame: Option<usize>, merge: bool) -> (Snapshot, InMemory) {
    match read(bytes, frame, merge).unwrap() {
        Found::Made(snapshot, dumps) => (*snapshot, dumps),
        Found::Carried(_) => panic!("nothing is carried"),
    }
}

#[test]
fn frames_of_other_writers_become_snapshots() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut writer = foreign(&description(CORE), order);
        let registers = match order {
            ByteOrder::Little => [1, 2, 3, 4, 0, 0x80, 0, 0],
            ByteOrder::Big => [4, 3, 2, 1, 0, 0, 0x80, 0],
        };
        writer.registers(&registers).unwrap();
        writer.memory(0x100, &[1, 2, 3]);
        writer.memory(0x101, &[9, 9, 9, 9]);
        writer.end_frame(1).unwrap();
        writer.memory(0x102, &[7]);
        writer.variable(5, -6);
        writer.end_frame(1).unwrap();
        writer.end_frame(2).unwrap();
        let bytes = writer.finish().unwrap();

        let (first, dumps) = made(&bytes, Some(0), false);
        let device = &first.devices[0];
        let values = device
            .registers
            .iter()
            .map(|r| (&*r.name, r.value.as_u64()));
        let values: Vec<_> = values.collect();
        assert_eq!(values, [("R0", Some(0x0403_0201)), ("PC", Some(0x8000))]);
        let pieces = device.dumps.iter().map(|d| (d.address, d.length.unwrap()));
        assert_eq!(pieces.collect::<Vec<_>>(), [(0x100, 5)]);
        assert_eq!(*dumps.0["frame0_100.bin"], [1, 2, 3, 9, 9]);
        let title = first.description.unwrap();
        assert_eq!(title, "trace frame 0 of x.tf: tracepoint 1 at 0x8000");

        let (second, _) = made(&bytes, Some(1), false);
        let pc = &second.devices[0].registers;
        assert_eq!((pc.len(), pc[0].value.as_u64()), (1, Some(0x8000)));
        assert_eq!(second.devices[0].dumps.len(), 1);
        let variables = &second.other_sections[0].entries;
        assert_eq!(variables[2], ("$5".to_owned(), "-6".to_owned()));

        let (merged, dumps) = made(&bytes, Some(1), true);
        let pieces = merged.devices[0].dumps.iter();
        let pieces: Vec<_> = pieces.map(|d| (d.address, &*d.other[0].1)).collect();
        assert_eq!(pieces, [(0x100, "0"), (0x102, "1"), (0x103, "0")]);
        assert_eq!(*dumps.0["frame0_103.bin"], [9, 9]);

        // The last frame: a tracepoint of two locations tells no pc.
        let (last, _) = made(&bytes, None, false);
        assert!(last.devices[0].registers.is_empty());
        assert!(last.devices[0].dumps.is_empty());

        let error = read(&bytes, Some(3), false).unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
        assert_eq!(
            error.to_string(),
            "expected a trace frame from 0 to 2, found 3"
        );
        for frame in [Some(0), Some(1), Some(2)] {
            for merge in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let out = directory.path().join("out");
                read(&bytes, frame, merge)
                    .unwrap()
                    .write(&out, false, &mut |_, _| {})
                    .unwrap();
                let loaded = open(&out);
                assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
                let found = check(&loaded);
                let odd = found
                    .iter()
                    .find(|note| note.to_string().contains("unknown key"));
                assert!(odd.is_none(), "{odd:?}");
                let error = read(&bytes, frame, merge)
                    .unwrap()
                    .write(&out, false, &mut |_, _| {});
                assert!(error.unwrap_err().to_string().contains("exists"));
                read(&bytes, frame, merge)
                    .unwrap()
                    .write(&out, true, &mut |_, _| {})
                    .unwrap();
            }
        }
    }
}

#[test]
fn what_cannot_be_converted_says_why() {
    let whole = |target: &str| {
        let mut writer = foreign(&description(target), ByteOrder::Little);
        writer.end_frame(1).unwrap();
        writer.finish().unwrap()
    };
    let x86 = "<target><architecture>i386:x86-64</architecture></target>";
    let text = |bytes: &[u8]| read(bytes, None, false).unwrap_err().to_string();
    assert!(text(&whole(x86)).contains("found i386:x86-64"));
    assert!(text(&whole("<target")).contains("tdesc:"));
    assert!(text(b"\x7fTRACE0\nR 8\n\n").contains("no whole trace frame"));
    assert!(text(b"\x7fTRACE1\nR 8\n\n").contains("expected \\x7fTRACE0"));
    assert!(text(b"\x7fTRACE0\nR 8").contains("ends without an empty line"));
    let no_target = b"\x7fTRACE0\nR 8\n\n\x01\0\0\0\0\0";
    assert!(text(no_target).contains("no tdesc"));
    let cut = b"\x7fTRACE0\nR 8\n\n\x01\0\x09\0\0\0\0";
    assert!(text(cut).contains("no whole trace frame"));

    // What is told and does not stop the work.
    let odd = |body: &[u8]| {
        let mut bytes = b"\x7fTRACE0\n".to_vec();
        bytes.extend_from_slice(body);
        let mut notes = Vec::new();
        let options = snapshot::Options::default();
        snapshot::read(&bytes.clone().into(), "x.tf", &options, &mut notes).unwrap();
        notes.join("\n")
    };
    let tdesc = format!("tdesc {CORE}");
    for (body, tail, told) in [
        ("", "", "there is no R line"),
        ("R 8\nstatus 9\n", "", "expected 0 or 1"),
        (
            "R 8\nstatus 0;tframes:-1\n",
            "",
            "tframes: cannot read \"-1\"",
        ),
        ("R 8\ntp T-1:10:E:0:0\n", "", "tp: cannot read"),
        ("R 8\n", "Zoo", "block of type 'Z' at byte 0 cannot be read"),
        (
            "R 8\n",
            "R123",
            "block of type 'R' at byte 0 cannot be read",
        ),
        ("R 8\n", "M12345678\x05\x001", "block of type 'M' at byte 0"),
        ("R 8\n", "", "has no registers"),
    ] {
        let mut file = format!("{body}{tdesc}\n").into_bytes();
        file.extend_from_slice(&[3, 0, tail.len() as u8, 0, 0, 0]);
        file.extend_from_slice(tail.as_bytes());
        file.extend_from_slice(&[0; 4]);
        let notes = odd(&file);
        assert!(notes.contains(told), "{told} not in {notes}");
    }
}

/// A snapshot with memory of two cores that overlaps, spaces, registers of any size.
fn snapshots() -> impl Strategy<Value = (Snapshot, InMemory)> {
    let word = "[A-Za-z][A-Za-z0-9_]{0,8}";
    let kind = prop::sample::select(vec!["Cortex-A57", "Cortex-A15", "Cortex-M4", "odd"]);
    let register = (0..40_u32, prop::option::of(1..130_u32), any::<u128>());
    let space = prop::option::of(prop::sample::select(vec!["S", "N", "EL2", "P", "H"]));
    let dump = (
        0..3_usize,
        0..300_u64,
        prop::option::of(0..200_u64),
        0..50_u64,
        space,
    );
    let device = (
        kind,
        prop::collection::vec(register, 0..40),
        prop::collection::vec(dump, 0..5),
    );
    let files = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 3);
    let devices = prop::collection::vec(device, 1..3);
    (word, devices, files).prop_map(|(description, devices, files)| {
        let devices = devices.into_iter().enumerate().map(|(n, device)| {
            let (kind, registers, dumps) = device;
            let mut seen = std::collections::BTreeSet::new();
            let registers = registers.into_iter().filter(|r| seen.insert(r.0));
            let register = |(number, size, value): (u32, Option<u32>, u128)| {
                let bits = size.unwrap_or(32);
                let value = if bits < 128 {
                    value & ((1 << bits) - 1)
                } else {
                    value
                };
                let name = match number {
                    33 => "CPSR".to_owned(),
                    34 => "SP".to_owned(),
                    35 => "PC".to_owned(),
                    n if kind == "Cortex-A57" => format!("X{n}"),
                    n => format!("R{n}"),
                };
                Register {
                    name,
                    size,
                    value: RegisterValue(value.to_le_bytes().to_vec()),
                    ..Register::default()
                }
            };
            type Place<'a> = (usize, u64, Option<u64>, u64, Option<&'a str>);
            let dump = |(number, (file, address, length, offset, space)): (usize, Place)| Dump {
                section: format!("dump{number}"),
                file: format!("sub/f{file}.bin"),
                address,
                length,
                offset: Some(offset),
                space: space.map(str::to_owned),
                ..Dump::default()
            };
            Device {
                key: format!("device{n}"),
                file: format!("device{n}.ini"),
                name: format!("cpu_{n}"),
                class: DeviceClass::Core,
                kind: kind.to_owned(),
                registers: registers.map(register).collect(),
                dumps: dumps.into_iter().enumerate().map(dump).collect(),
                ..Device::default()
            }
        });
        let snapshot = Snapshot {
            version: "1.0".to_owned(),
            description: Some(description),
            devices: devices.collect(),
            ..Snapshot::default()
        };
        let files = files.into_iter().enumerate();
        let files = files.map(|(n, bytes)| (format!("sub/f{n}.bin"), bytes.into()));
        (snapshot, InMemory(files.collect()))
    })
}

/// Memory of a frame, byte by byte: what is written first counts.
type Bytes = BTreeMap<u64, u8>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_snapshot_comes_back((snapshot, files) in snapshots()) {
        let mut all = write::texts(&snapshot).unwrap();
        all.extend(files.0);
        let loaded = Loaded::from_files(Arc::new(InMemory(all)), "snapshot.ini").unwrap();
        for bytes in trace_files(&loaded, &Options::default()) {
            same(&loaded, &back(&bytes));
        }
    }

    #[test]
    fn any_frame_becomes_its_registers_and_memory(
        frames in prop::collection::vec(
            (any::<Option<[u8; 8]>>(), prop::collection::vec(
                (0..64_u64, prop::collection::vec(any::<u8>(), 0..20)), 0..6)),
            1..6,
        ),
        wanted in any::<prop::sample::Index>(),
        top in any::<bool>(),
        merge: bool,
    ) {
        // At the begin and at the end of the address space.
        let base = if top { u64::MAX - 80 } else { 0 };
        let mut writer = foreign(&description(CORE), ByteOrder::Little);
        let mut images: Vec<Bytes> = Vec::new();
        for (registers, blocks) in &frames {
            if let Some(registers) = registers {
                writer.registers(registers).unwrap();
            }
            let mut image = Bytes::new();
            for (address, bytes) in blocks {
                writer.memory(base + address, bytes);
                // What would lie beyond the last address is nowhere.
                let room = (base + address)..=u64::MAX;
                for (at, byte) in room.zip(bytes) {
                    image.entry(at).or_insert(*byte);
                }
            }
            images.push(image);
            writer.end_frame(1).unwrap();
        }
        let file = writer.finish().unwrap();
        let wanted = wanted.index(frames.len());
        let (snapshot, files) = made(&file, Some(wanted), merge);
        let device = &snapshot.devices[0];
        let mut found = Bytes::new();
        for dump in &device.dumps {
            let bytes = files.0[&dump.file].iter().copied();
            for (at, byte) in (dump.address..=u64::MAX).zip(bytes) {
                prop_assert!(found.insert(at, byte).is_none());
                if merge {
                    let from: usize = dump.other[0].1.parse().unwrap();
                    prop_assert_eq!(images[from].get(&at), Some(&byte));
                    let newer = &images[from + 1..=wanted];
                    prop_assert!(newer.iter().all(|image| !image.contains_key(&at)));
                }
            }
        }
        let mut oracle = images[wanted].clone();
        if merge {
            for image in images[..wanted].iter().rev() {
                for (at, byte) in image {
                    oracle.entry(*at).or_insert(*byte);
                }
            }
        }
        prop_assert_eq!(found, oracle);
        let values: Vec<_> = device.registers.iter().map(|r| r.value.as_u64().unwrap()).collect();
        match frames[wanted].0 {
            Some(block) => {
                let word = |at: usize| u64::from(u32::from_le_bytes(block[at..at + 4].try_into().unwrap()));
                prop_assert_eq!(values, [word(0), word(4)]);
            }
            None => prop_assert_eq!(values, [0x8000]),
        }
    }

    #[test]
    fn damaged_files_are_told_without_panic(
        at in any::<prop::sample::Index>(),
        byte: u8,
        frame in prop::option::of(0..2_usize),
        merge: bool,
    ) {
        thread_local! {
            static FILE: Vec<u8> =
                trace_files(&open(&own("mps2-m4")), &Options::default()).remove(0);
        }
        let mut bytes = FILE.with(Clone::clone);
        // Where the text is, twice as often.
        let at = at.index(bytes.len() * 2) % bytes.len();
        bytes[at] = byte;
        if let Ok(Found::Carried(carried)) = read(&bytes, frame, merge) {
            let _ = carried.open();
        }
    }
}

/// Keeps the first bytes and counts all.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    length: u64,
}

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = (1_usize << 16).saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn dumps_of_gigabytes_are_cut_to_what_a_frame_can_have() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let core = "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x80000000\n\
                [dump1]\nfile=large.bin\naddress=0x80000000\n\
                [dump2]\nfile=small.bin\naddress=0x1000\n";
    std::fs::write(path("cpu.ini"), core).unwrap();
    let list = "[snapshot]\nversion=1.0\n[device_list]\ncpu=cpu.ini\n";
    std::fs::write(path("snapshot.ini"), list).unwrap();
    std::fs::write(path("small.bin"), [1, 2, 3, 4]).unwrap();
    let large = std::fs::File::create(path("large.bin")).unwrap();
    if large.set_len(3 << 30).is_err() {
        eprintln!("SKIPPED: no files of 3 GiB here");
        return;
    }
    let loaded = open(directory.path());
    let options = Options::default();
    let parts = trace_file::parts(&loaded, &options).unwrap();
    let mut notes = Vec::new();
    let written = trace_file::write(
        &loaded,
        parts[0],
        &options,
        Head::default(),
        &mut notes,
        &mut |_, _| {},
    );
    let written = written.unwrap();
    let told = notes
        .iter()
        .any(|note| note.contains("of its dumps are not in trace frame 0"));
    assert!(told, "{notes:?}");
    let file = File::open(&written.bytes, None).unwrap();
    let Some(Err(tfile::Error::Cut { size, .. })) = file.frame(0) else {
        panic!("{:?}", file.frame(0));
    };
    // As much as GDB reads, and all the rest behind it.
    assert!((0x7fff_ff00..0x8000_0000).contains(&size), "{size:#x}");
    let missing = (3_u64 << 30) - size as u64;
    let behind = written.length - size as u64;
    assert!(
        (missing..missing + (1 << 20)).contains(&behind),
        "{behind:#x}"
    );
}

#[test]
fn dumps_of_a_space_that_the_core_is_not_in_travel_too() {
    let loaded = open(&own("info/two-clusters"));
    let spaces = loaded
        .snapshot
        .devices
        .iter()
        .flat_map(|device| &device.dumps);
    assert!(spaces.clone().count() > 0);
    for bytes in trace_files(&loaded, &Options::default()) {
        let back = back(&bytes);
        for device in &loaded.snapshot.devices {
            let (there, here) = (
                CoreMemory::new(&loaded, device),
                CoreMemory::new(&back, device),
            );
            for region in there.regions() {
                let (mut a, mut b) = (
                    vec![0; region.length as usize],
                    vec![0; region.length as usize],
                );
                for space in Space::ALL {
                    let read = there.read(region.address, space, &mut a);
                    assert_eq!(read, here.read(region.address, space, &mut b));
                    assert_eq!(a, b);
                }
            }
        }
    }
}
