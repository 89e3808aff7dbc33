//! Snapshot → trace file → snapshot: the result is the same, and frame 0 is the halted state.

use crate::support::convert::{
    RECORDED, back, blobs, captures, convert, open, read, same, trace_files, write,
};
use crate::support::gdb::{shared, testdata};
use armsnap::arch::Space;
use armsnap::convert::executed::FrameSelection;
use armsnap::convert::kept::Bound;
use armsnap::convert::trace_file::{self, Options};
use armsnap::convert::{Error, state::State};
use armsnap::quantity::Address;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::write::canonical;
use armsnap::tfile::{self, Block, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// The snapshots in testdata.
fn own() -> impl Iterator<Item = PathBuf> {
    let own = [
        "virt-a57",
        "mps2-m4",
        "info/two-clusters",
        "info/etmv4-stm-itm",
    ];
    own.into_iter().chain(RECORDED).map(testdata)
}

#[test]
fn every_snapshot_is_restored() {
    let mut files = 0;
    for path in captures().into_iter().chain(own()) {
        let loaded = open(&path);
        for bytes in trace_files(&loaded, &Options::default()) {
            same(&loaded, &back(&bytes));
            files += 1;
        }
    }
    assert!(files >= 6);
}

/// Programs, libraries and lists of code without bytes come back too, also where the result replaces
/// the snapshot.
#[test]
fn programs_and_libraries_are_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let snapshot = scratch.path().join("snapshot");
    std::fs::create_dir_all(snapshot.join("libraries")).unwrap();
    for entry in std::fs::read_dir(testdata("recorded/etmv4")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, snapshot.join(path.file_name().unwrap())).unwrap();
    }
    std::fs::write(snapshot.join("libraries/libc.so.6"), b"\x7fELF").unwrap();
    std::fs::write(snapshot.join("straight.txt"), "10-18\n").unwrap();
    let core = snapshot.join("cpu_0.ini");
    let text = std::fs::read_to_string(&core).unwrap();
    let text = text.replacen("[device]", "[device]\nstraight_code=straight.txt", 1);
    std::fs::write(&core, text).unwrap();

    let loaded = open(&snapshot);
    let there = blobs(&loaded);
    let extra = ["program.elf", "straight.txt", "libraries/libc.so.6"];
    for name in extra {
        assert!(
            there
                .iter()
                .any(|(file, bytes)| file == name && bytes.is_some())
        );
    }
    for bytes in trace_files(&loaded, &Options::default()) {
        same(&loaded, &back(&bytes));
    }
    let core = ["--core", "Cortex-A57_0"];
    let file = scratch.path().join("a.tf");
    convert(&core, [&snapshot, &file]);
    convert(&["--force"], [&file, &snapshot]);
    assert_eq!(blobs(&open(&snapshot)), there);
    convert(&["--force", "--trace"], [&file, &snapshot]);
    let kept = blobs(&open(&snapshot));
    for name in extra {
        let is_there = |(file, bytes): &(String, Option<Vec<u8>>)| file == name && bytes.is_some();
        assert!(kept.iter().any(is_there), "{name}");
    }
}

#[test]
fn the_state_alone_is_restored_without_trace() {
    for path in captures().into_iter().chain(own()) {
        let loaded = open(&path);
        let options = Options {
            state_only: true,
            ..Options::default()
        };
        let mut wanted = canonical(&loaded.snapshot);
        wanted.trace = None;
        for bytes in trace_files(&loaded, &options) {
            let back = back(&bytes);
            assert_eq!(canonical(&back.snapshot), wanted);
            let there = blobs(&loaded);
            let kept = blobs(&back);
            assert!(kept.iter().all(|file| there.contains(file)));
            let file = File::open(&bytes, None).unwrap();
            assert!(file.count() <= 1);
        }
    }
}

/// Frame 0 has the same registers and memory as the served core.
#[test]
fn the_first_frame_is_the_halted_state() {
    for path in captures().into_iter().chain(own()) {
        let loaded = open(&path);
        let options = Options::default();
        let runs = trace_file::core_runs(&loaded, &options).unwrap();
        for (core_run, bytes) in runs.iter().zip(trace_files(&loaded, &options)) {
            let file = File::open(&bytes, None).unwrap();
            let Some(core) = core_run.core else {
                // GDB warns about a file without frames.
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
        OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
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
    // One is missing before the pc: a block would hide the tracepoint's address.
    assert_eq!(frame(&general.replace("R5=5\n", "")), (None, Some(15)));
    // Without a pc there is no tracepoint for it.
    assert_eq!(frame(&general.replace("R15=15\n", "")), (None, None));
}

fn waypoints(loaded: &OpenSnapshot, kind: FrameSelection) -> (Vec<u8>, usize) {
    let options = Options {
        frames: kind,
        ..Options::default()
    };
    let bytes = trace_files(loaded, &options).remove(0);
    let count = File::open(&bytes, None).unwrap().count();
    (bytes, count)
}

#[test]
fn a_limit_of_addresses_reduces_the_frames() {
    let Some(path) = shared("tc2-ptm-rstk-t32") else {
        return;
    };
    let loaded = open(&path);
    let kinds = [
        FrameSelection::Instructions,
        FrameSelection::Waypoints,
        FrameSelection::Functions,
        FrameSelection::Exceptions,
    ];
    let counts = kinds.map(|kind| waypoints(&loaded, kind).1);
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
    assert!(counts[3] > 1);
}

#[test]
fn more_addresses_than_tracepoint_numbers_are_refused() {
    let Some(path) = shared("tc2-ptm-rstk-t32") else {
        return;
    };
    let loaded = open(&path);
    let options = Options {
        last: Some(10),
        ..Options::default()
    };
    let file = trace_files(&loaded, &options).remove(0);
    assert_eq!(File::open(&file, None).unwrap().count(), 11);
    let none = Options {
        from: Some(Bound::Address(Address(1))),
        ..Options::default()
    };
    let core_run = trace_file::core_runs(&loaded, &none).unwrap()[0];
    let error = write(&loaded, core_run, &none).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("none of "), "{error}");
    let other = Options {
        core: Some("nobody".to_owned()),
        ..Options::default()
    };
    let error = trace_file::core_runs(&loaded, &other)
        .unwrap_err()
        .to_string();
    assert!(error.contains("Cortex-A15_0"), "{error}");
}

#[test]
fn a_carrier_truncated_at_any_byte_is_reported() {
    let loaded = open(&testdata("mps2-m4"));
    let bytes = trace_files(&loaded, &Options::default()).remove(0);
    let file = File::open(&bytes, None).unwrap();
    let frames = file.frame(0).unwrap().unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize;
    let step = 7;
    for length in (0..frames).chain((frames..bytes.len()).step_by(step)) {
        let error = read(&bytes[..length], None, false).unwrap_err().to_string();
        let told = [
            "line ",
            "carried snapshot cannot be read",
            "no complete trace frame",
        ];
        assert!(
            told.iter().any(|told| error.contains(told)),
            "{length}: {error}"
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = read(&longer, None, false).unwrap_err().to_string();
    assert!(
        error.contains("its first line is not that of a carrier"),
        "{error}"
    );
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
fn dumps_of_gigabytes_are_limited_to_the_size_of_a_frame() {
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
        crate::support::skip::unavailable("no files of 3 GiB here");
        return;
    }
    let loaded = open(directory.path());
    let options = Options::default();
    let runs = trace_file::core_runs(&loaded, &options).unwrap();
    let mut notes = Vec::new();
    let written = trace_file::write(
        &loaded,
        runs[0],
        &options,
        Head::default(),
        &mut notes,
        &mut |_, _| {},
    );
    let written = written.unwrap();
    let told = notes.iter().any(|note| {
        note.to_string()
            .contains("of its dumps are not in trace frame 0")
    });
    assert!(told, "{notes:?}");
    let file = File::open(&written.bytes, None).unwrap();
    let Some(Err(tfile::Error::Cut { size, .. })) = file.frame(0) else {
        panic!("{:?}", file.frame(0));
    };
    // As much as GDB reads, and the rest after the frames.
    assert!((0x7fff_ff00..0x8000_0000).contains(&size), "{size:#x}");
    let missing = (3_u64 << 30) - size as u64;
    let after = written.length - size as u64;
    assert!(
        (missing..missing + (1 << 20)).contains(&after),
        "{after:#x}"
    );
}

#[test]
fn dumps_of_other_address_spaces_are_included() {
    let loaded = open(&testdata("info/two-clusters"));
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
