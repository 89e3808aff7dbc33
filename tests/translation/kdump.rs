//! Compressed core files of a system: those of QEMU, held against the ELF files that it writes of the same
//! state, and all layouts and compressions of makedumpfile.

use crate::support::gdb::{armsnap, run, text};
use crate::support::inputs::kdump::{Form, Kdump};
use crate::support::inputs::vmcore::{self, kernel32, kernel64, note, status};
use crate::support::skip;
use crate::support::translation::Emulator;
use armsnap::import::{self, Imported, Options};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: usize = 4096;
/// Where the memory of [`vmcore`] begins.
const FIRST: usize = 0x4000_0000 / PAGE;
const FORMS: [Form; 5] = [
    Form::Plain,
    Form::Zlib,
    Form::Lzo,
    Form::Snappy,
    Form::Zstandard,
];

fn imported(path: &Path) -> Imported {
    import::import(path, &Options::default()).unwrap()
}

fn read(directory: &Path, bytes: &[u8]) -> Imported {
    // What was read before is still mapped.
    let (_, path) = tempfile::NamedTempFile::new_in(directory)
        .unwrap()
        .keep()
        .unwrap();
    fs::write(&path, bytes).unwrap();
    imported(&path)
}

/// The pages of memory, by their physical addresses.
fn pages(imported: &Imported) -> BTreeMap<u64, Vec<u8>> {
    let mut out = BTreeMap::new();
    for dump in imported
        .snapshot
        .devices
        .iter()
        .flat_map(|device| &device.dumps)
    {
        for (index, page) in imported.files[&dump.file].chunks(PAGE).enumerate() {
            out.insert(dump.address + (index * PAGE) as u64, page.to_vec());
        }
    }
    out
}

/// Compares what is read of a compressed file with what is read of an ELF file.
fn same(found: &Imported, twin: &Imported) {
    let devices = |of: &Imported| -> Vec<_> {
        let devices = of.snapshot.devices.iter();
        let device = devices.map(|it| {
            (
                it.name.clone(),
                it.registers.clone(),
                it.other_sections.clone(),
            )
        });
        device.collect()
    };
    assert!(devices(found) == devices(twin), "registers differ");
    let (found, twin) = (pages(found), pages(twin));
    assert_eq!(found.len(), twin.len());
    for (address, page) in found {
        assert!(page == twin[&address], "page at {address:#x} differs");
    }
}

#[test]
fn files_of_qemu_are_those_that_it_writes_as_elf() {
    if Command::new("qemu-system-aarch64")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip::missing("qemu-system-aarch64");
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let bytes: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|at| (at / 700 * at).to_le_bytes())
        .collect();
    fs::write(&image, bytes).unwrap();
    for cpu in ["cortex-a57", "cortex-a15"] {
        let load = format!(
            "loader,file={},addr=0x40400000,force-raw=on",
            image.display()
        );
        let mut qemu = Emulator::start(
            Command::new("qemu-system-aarch64")
                .args(["-S", "-M", "virt", "-m", "16", "-smp", "2", "-cpu", cpu])
                .args(["-device", &load]),
        );
        let none = serde_json::json!({});
        let known = qemu.execute("query-dump-guest-memory-capability", &none);
        let mut dump = |format: &str| {
            let path = scratch.path().join(format!("{cpu}.{format}"));
            let to = format!("file:{}", path.display());
            let arguments = serde_json::json!({"paging": false, "protocol": to, "format": format});
            qemu.execute("dump-guest-memory", &arguments);
            imported(&path)
        };
        let twin = dump("elf");
        assert!(pages(&twin).len() >= 4096);
        // Debian's QEMU has been built without LZO.
        for format in ["kdump-zlib", "kdump-lzo", "kdump-snappy"] {
            if known["formats"]
                .as_array()
                .unwrap()
                .contains(&format.into())
            {
                same(&dump(format), &twin);
            }
        }
    }
}

/// A file of a kernel, and the ELF file of the same.
fn kernel(wide: bool, memory: &[u8], info: &str, pc: u64) -> (Vec<u8>, Vec<u8>) {
    let mut notes = status(wide, pc);
    notes.extend(note("VMCOREINFO", 0, info.as_bytes()));
    let elf = vmcore::file(wide, &notes, 0, memory);
    (notes, elf)
}

#[test]
fn every_layout_and_compression() {
    let scratch = tempfile::tempdir().unwrap();
    for wide in [true, false] {
        let (pc, memory, info) = match wide {
            true => kernel64(),
            false => {
                let (memory, info) = kernel32(0xc000_0000, false);
                (0xc010_0040, memory, info)
            }
        };
        let (notes, elf) = kernel(wide, &memory, &info, pc);
        let twin = read(scratch.path(), &elf);
        for form in FORMS {
            for aligned in [true, false] {
                let file = Kdump {
                    wide,
                    aligned,
                    form,
                    notes: notes.clone(),
                    first: FIRST,
                    memory: &memory,
                    saved: |_| true,
                    split: None,
                };
                let found = read(scratch.path(), &file.file());
                // Nothing is missing.
                assert_eq!(found.notes[1..], twin.notes[1..], "{form:?}");
                same(&found, &twin);
            }
        }
    }
}

/// The notes on a file, one a line.
fn said(found: &Imported) -> String {
    let notes = found.notes.iter().map(ToString::to_string);
    notes.collect::<Vec<_>>().join("\n")
}

/// A file of which a third of the pages is saved.
fn filtered(memory: &[u8], notes: &[u8]) -> Kdump<'static> {
    Kdump {
        wide: true,
        aligned: true,
        form: Form::Zlib,
        notes: notes.to_vec(),
        first: FIRST,
        memory: memory.to_vec().leak(),
        saved: |page| page % 3 == 0,
        split: None,
    }
}

#[test]
fn what_is_not_there_is_not_known() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let (notes, elf) = kernel(true, &memory, &info, pc);
    let all = pages(&read(scratch.path(), &elf));
    let kdump = filtered(&memory, &notes);
    let whole = kdump.file();
    let found = read(scratch.path(), &whole);
    let some = pages(&found);
    assert_eq!(some.len(), 1024_usize.div_ceil(3));
    for (address, page) in &some {
        assert_eq!(page, &all[address]);
        assert_eq!((address / 4096 - FIRST as u64) % 3, 0);
    }
    let left_out = "makedumpfile left out 682 pages of memory (dump level 31)";
    assert!(said(&found).contains(left_out), "{}", said(&found));
    // The last page is cut, and one is damaged.
    let mut damaged = whole[..whole.len() - 1].to_vec();
    let first = whole.len()
        - (0..1024)
            .step_by(3)
            .map(|page| kdump.packed(page))
            .sum::<usize>();
    damaged[first] ^= 0xff;
    let found = read(scratch.path(), &damaged);
    assert_eq!(pages(&found).len(), some.len() - 2);
    let wanted = "2 pages of memory missing or damaged in the file, the first one at physical 0x40000000: their \
                  contents are not known";
    assert!(
        said(&found).lines().any(|line| line == wanted),
        "{}",
        said(&found)
    );
}

#[test]
fn split_files() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let (notes, _) = kernel(true, &memory, &info, pc);
    let kdump = filtered(&memory, &notes);
    let whole = read(scratch.path(), &kdump.file());
    let paths = split(scratch.path(), "part", &kdump);
    for path in &paths {
        let found = imported(path);
        same(&found, &whole);
        let said = found
            .notes
            .iter()
            .any(|note| note.to_string() == "split core file: 3 files read");
        assert!(said, "{:?}", found.notes);
    }
    fs::remove_file(&paths[1]).unwrap();
    let output = text(&run(armsnap().arg("info").arg(&paths[0])));
    let wanted =
        "200 pages from physical 0x40066000 on are in files that are not in this directory";
    let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.contains(wanted), "{output}");
    assert_eq!(
        pages(&imported(&paths[0])).len(),
        (0..1024)
            .filter(|page| page % 3 == 0 && !(100..700).contains(page))
            .count()
    );
    fs::remove_file(&paths[2]).unwrap();
    let wanted = "split core file: 308 pages from physical 0x40066000 on are in files";
    let found = said(&imported(&paths[0]));
    assert!(found.contains(wanted), "{found}");
}

/// Writes a file in three parts.
fn split(directory: &Path, name: &str, kdump: &Kdump<'_>) -> Vec<PathBuf> {
    let places = [0, FIRST + 100, FIRST + 700, FIRST + 1024];
    let parts = places.windows(2).enumerate().map(|(index, place)| {
        let path = directory.join(format!("{name}{index}"));
        let part = Kdump {
            split: Some(place[0]..place[1]),
            ..kdump.clone()
        };
        fs::write(&path, part.file()).unwrap();
        path
    });
    parts.collect()
}

#[test]
fn split_files_of_other_crashes_are_left_out() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let other: Vec<u8> = memory.iter().map(|byte| byte ^ 0xff).collect();
    let at_time = |pc: u64, time: u32, memory: &[u8]| {
        let info = format!("{info}CRASHTIME={time}\n");
        filtered(memory, &kernel(true, memory, &info, pc).0)
    };
    let one = at_time(pc, 1_700_000_000, &memory);
    let whole = read(scratch.path(), &one.file());
    let paths = split(scratch.path(), "part", &one);
    split(scratch.path(), "a", &at_time(pc, 1_700_000_001, &other));
    split(scratch.path(), "z", &at_time(pc + 4, 1_700_000_000, &other));
    for path in &paths {
        let found = imported(path);
        same(&found, &whole);
        assert!(said(&found).contains("split core file: 3 files read"));
    }
    // Notes without VMCOREINFO, which is elsewhere.
    let apart = tempfile::tempdir().unwrap();
    let alone = status(true, pc).len() as u64;
    let split_apart = |name: &str, time: u32, memory: &[u8]| {
        let paths = split(apart.path(), name, &at_time(pc, time, memory));
        for path in &paths {
            let mut file = fs::read(path).unwrap();
            file[PAGE + 56..PAGE + 64].copy_from_slice(&alone.to_le_bytes());
            fs::write(path, file).unwrap();
        }
        paths
    };
    let paths = split_apart("part", 1_700_000_000, &memory);
    split_apart("a", 1_700_000_001, &other);
    for path in &paths {
        assert!(pages(&imported(path)) == pages(&whole));
    }
    // One that cannot be told from that of another crash.
    fs::copy(&paths[1], apart.path().join("copy")).unwrap();
    let found = imported(&paths[0]);
    assert!(pages(&found).len() < pages(&whole).len());
    for wanted in [
        "split core file: 2 files read",
        "split core file: 2 files left out, whose pages overlap those of another file in this directory",
        "split core file: 200 pages from physical",
    ] {
        assert!(said(&found).contains(wanted), "{}", said(&found));
    }
}

#[test]
fn many_files_beside_a_split_one_are_told() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let (notes, _) = kernel(true, &memory, &info, pc);
    let paths = split(scratch.path(), "part", &filtered(&memory, &notes));
    let wanted = "split core file: the other files are looked for among 4096 files of its directory, \
                  which has more";
    assert!(!said(&imported(&paths[0])).contains(wanted));
    for index in 0..4096 {
        fs::write(scratch.path().join(index.to_string()), "").unwrap();
    }
    assert!(said(&imported(&paths[0])).contains(wanted));
}

#[test]
fn pages_that_are_larger_compressed_are_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let (notes, _) = kernel(true, &memory, &info, pc);
    let whole = filtered(&memory, &notes).file();
    let count = 1024_usize.div_ceil(3);
    let descriptors = 2 * PAGE + notes.len().next_multiple_of(PAGE) + 2 * 0x9000;
    // Empty blocks before one with the page.
    let mut zlib = vec![0x78, 1];
    zlib.extend([0, 0, 0, 0xff, 0xff].repeat(1000));
    let mut encoder = flate2::write::DeflateEncoder::new(zlib, flate2::Compression::fast());
    encoder.write_all(&memory[..PAGE]).unwrap();
    let mut zlib = encoder.finish().unwrap();
    let sum = memory[..PAGE].iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (a + b) % 65521)
    });
    zlib.extend((sum.1 << 16 | sum.0).to_be_bytes());
    let mut zstandard = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    zstandard.extend([0, 0, 0].repeat(2000));
    zstandard.extend([3, 0x80, 0, b'a']);
    for (flags, page) in [(1_u32, zlib), (0x20, zstandard)] {
        let mut file = whole.clone();
        for index in 0..count {
            let fields = &mut file[descriptors + 24 * index..][..16];
            fields[..8].copy_from_slice(&(whole.len() as u64).to_le_bytes());
            fields[8..12].copy_from_slice(&(page.len() as u32).to_le_bytes());
            fields[12..].copy_from_slice(&flags.to_le_bytes());
        }
        file.extend(&page);
        let found = read(scratch.path(), &file);
        let wanted = format!("{count} pages of memory missing or damaged");
        assert!(said(&found).contains(&wanted), "{}", said(&found));
    }
}

#[test]
fn notes_have_a_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let (notes, _) = kernel(true, &memory, &info, pc);
    let mut bytes = filtered(&memory, &notes).file();
    // The notes take the rest of a file that is sparse.
    let length = 1_u64 << 28;
    let size = length - 2 * PAGE as u64;
    bytes[PAGE + 56..PAGE + 64].copy_from_slice(&size.to_le_bytes());
    let path = scratch.path().join("vmcore");
    fs::write(&path, bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length)
        .unwrap();
    let found = imported(&path);
    let wanted = format!(
        "{} bytes of notes of the core file left out: the first 64 MiB are used",
        size - (64 << 20)
    );
    assert!(said(&found).contains(&wanted), "{}", said(&found));
}

#[test]
fn other_systems_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (pc, memory, info) = kernel64();
    let (notes, _) = kernel(true, &memory, &info, pc);
    let whole = filtered(&memory, &notes).file();
    let path = scratch.path().join("vmcore");
    for (at, bytes, wanted) in [
        (
            12 + 4 * 65,
            &b"x86\x1b64"[..],
            "of a system on x86\\u{1b}64",
        ),
        (428, &[0, 3], "with damaged headers"),
    ] {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, file).unwrap();
        let error = import::import(&path, &Options::default()).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
