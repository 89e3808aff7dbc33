//! The real snapshots load, with the contents of their text.

use armsnap::arch::Space;
use armsnap::capture::{Capture, CaptureSource, Protocol};
use armsnap::quantity::Address;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::{DeviceClass, Snapshot};
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use std::path::{Path, PathBuf};

fn shared() -> Option<PathBuf> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots");
    let path = PathBuf::from(path);
    if !path.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return None;
    }
    Some(path)
}

fn open(path: &Path) -> OpenSnapshot {
    Snapshot::open(path, &OpenOptions::default()).unwrap()
}

fn directories(shared: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(shared).unwrap();
    let mut out: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("snapshot.ini").is_file())
        .collect();
    out.sort();
    out
}

/// Lines below headers that start with `header`, found independently of the reader
/// under test.
fn lines_below(text: &str, header: &str) -> Vec<String> {
    let mut inside = false;
    let mut out = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.starts_with(header);
        } else if inside && line.contains('=') && !line.starts_with(';') && !line.starts_with('#') {
            out.push(line.to_owned());
        }
    }
    out
}

#[test]
fn every_snapshot_has_the_contents_of_its_text() {
    let Some(shared) = shared() else { return };
    let directories = directories(&shared);
    assert_eq!(directories.len(), 18);
    for directory in directories {
        let loaded = open(&directory);
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let head = text("snapshot.ini");
        let devices = lines_below(&head, "[device_list]");
        assert_eq!(
            loaded.snapshot.devices.len(),
            devices.len(),
            "{directory:?}"
        );
        assert_eq!(loaded.snapshot.version, "1.0");
        for (device, line) in loaded.snapshot.devices.iter().zip(&devices) {
            assert_eq!(*line, format!("{}={}", device.key, device.file));
            let text = text(&device.file);
            let registers = lines_below(&text, "[regs]");
            assert_eq!(device.registers.len(), registers.len(), "{}", device.file);
            for (register, line) in device.registers.iter().zip(&registers) {
                assert!(line.starts_with(&register.name));
                let value = line.split('=').nth(1).unwrap().trim();
                let value = match value.strip_prefix("0x") {
                    Some(hex) => u128::from_str_radix(hex, 16).unwrap(),
                    None => value.parse().unwrap(),
                };
                assert_eq!(register.value.as_u128(), Some(value), "{line}");
                let numbered = text.lines().nth(register.place.line as usize - 1);
                assert_eq!(numbered.map(str::trim), Some(line.as_str()));
            }
            let dumps = text.lines().filter(|l| l.starts_with("[dump")).count();
            assert_eq!(device.dumps.len(), dumps, "{}", device.file);
        }
    }
}

#[test]
fn notes_are_few_and_have_a_file_and_line() {
    let Some(shared) = shared() else { return };
    for directory in directories(&shared) {
        let loaded = open(&directory);
        let missing = match directory.file_name().unwrap().to_str().unwrap() {
            "a55-test-tpiu" => 1,
            "event_test" => 2,
            _ => 0,
        };
        assert_eq!(loaded.notes.len(), missing, "{:?}", loaded.notes);
        for note in &loaded.notes {
            assert!(note.text.contains("no such file"), "{note}");
            assert!(note.place.line > 0 && directory.join(&note.place.file).is_file());
        }
    }
}

#[test]
fn sources_cores_and_buffers_are_joined() {
    let Some(shared) = shared() else { return };
    let rows = |name: &str| -> Vec<(String, Protocol, Option<usize>, usize)> {
        let loaded = open(&shared.join(name));
        let mut buffers = Capture::open(&loaded).0.buffers;
        buffers.sort_by_key(|buffer| buffer.index);
        let rows = buffers.into_iter().flat_map(|buffer| {
            let row = move |s: CaptureSource| (s.name, s.protocol, s.core, buffer.index);
            buffer.sources.into_iter().map(row)
        });
        rows.collect()
    };
    let row = |name: &str, protocol, core, buffer| (name.to_owned(), protocol, core, buffer);
    use Protocol::{Ete, Etmv3, Etmv4, Itm, Ptm, Stm};
    assert_eq!(
        rows("juno_r1_1"),
        [
            row("ETM_0", Etmv4, Some(0), 0),
            row("ETM_1", Etmv4, Some(1), 0),
            row("ETM_2", Etmv4, Some(2), 0),
            row("ETM_3", Etmv4, Some(3), 0),
            row("ETM_4", Etmv4, Some(4), 0),
            row("ETM_5", Etmv4, Some(5), 0),
            row("STM_12", Stm, None, 1),
        ]
    );
    assert_eq!(
        rows("q_elem"),
        [
            row("ETE_0_s2", Ete, Some(0), 0),
            row("ETE_0_s1", Ete, Some(0), 1)
        ]
    );
    assert_eq!(rows("itm_only_raw"), [row("ITM_0", Itm, None, 0)]);
    assert_eq!(rows("tc2-ptm-rstk-t32"), [row("PTM_0_2", Ptm, Some(0), 0)]);
    let kinds: Vec<Protocol> = rows("TC2").into_iter().map(|row| row.1).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == Etmv3).count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == Ptm).count(), 2);

    let loaded = open(&shared.join("juno_r1_1"));
    for (index, file) in ["cstrace.bin", "cstraceitm.bin"].into_iter().enumerate() {
        let parts = loaded.buffer_parts(index).unwrap();
        let expected = std::fs::read(shared.join("juno_r1_1").join(file)).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!(*parts[0], expected);
    }
}

#[test]
fn memory_equals_the_dumps() {
    let Some(shared) = shared() else { return };
    let directory = shared.join("tc2-ptm-rstk-t32");
    let loaded = open(&directory);
    let core = &loaded.snapshot.devices[0];
    assert_eq!(core.class, DeviceClass::Core);
    let memory = CoreMemory::new(&loaded, core);
    for dump in &core.dumps {
        let bytes = std::fs::read(directory.join(&dump.file)).unwrap();
        let space = Space::parse(dump.space.as_deref().unwrap_or("")).unwrap();
        let found = memory.slice(Address(dump.address), space);
        let length = dump.length.map_or(bytes.len(), |l| l as usize);
        assert_eq!(found, &bytes[..length], "{}", dump.section);
    }

    let loaded = open(&shared.join("a57_single_step"));
    let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
    let at = Address(loaded.snapshot.devices[0].dumps[0].address);
    assert!(!memory.slice(at, Space::El2).is_empty());
    assert!(!memory.slice(at, Space::N).is_empty());
    assert!(memory.slice(at, Space::El1N).is_empty());
}

#[test]
fn only_snapshot_files_and_directories_open() {
    let Some(shared) = shared() else { return };
    let directory = shared.join("stm_only");
    let (a, b) = (open(&directory), open(&directory.join("snapshot.ini")));
    assert_eq!(a.snapshot, b.snapshot);
    for wrong in [
        "none",
        "none/snapshot.ini",
        "stm_only/cstraceitm.bin",
        "LICENSE",
    ] {
        let error = Snapshot::open(&shared.join(wrong), &OpenOptions::default()).unwrap_err();
        assert!(error.to_string().contains(wrong), "{error}");
    }
}
