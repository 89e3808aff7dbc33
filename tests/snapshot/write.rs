//! Written snapshots read back as the same, by armsnap and by the reference's listing program.

use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::model::*;
use armsnap::snapshot::write::{WriteError, canonical, texts, write};
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A text that an .ini file can contain, without separators of lists and without parentheses.
fn name() -> impl Strategy<Value = String> {
    let odd = "\\PC{1,10}".prop_map(|text| {
        let text: String = text
            .chars()
            .map(|c| {
                if "=#;[](),@\u{FEFF}".contains(c) {
                    '_'
                } else {
                    c
                }
            })
            .collect();
        text.trim_matches(' ').to_owned()
    });
    prop_oneof!["[A-Za-z_][A-Za-z0-9_.:-]{0,12}", odd]
        .prop_filter("not empty", |text| !text.is_empty())
        .prop_filter("no stream", |text| !text.to_lowercase().contains("stream"))
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((name(), name()), 0..3).prop_map(|pairs| {
        let pairs = pairs.into_iter().enumerate();
        pairs
            .map(|(index, (key, value))| (format!("x{index} {key}"), value))
            .collect()
    })
}

fn other_sections() -> impl Strategy<Value = Vec<OtherSection>> {
    vec((name(), vec((name(), name()), 0..3)), 0..2).prop_map(|sections| {
        let sections = sections.into_iter();
        sections
            .map(|(name, entries)| OtherSection {
                name: format!("other {name}"),
                entries,
                place: FileLine::default(),
            })
            .collect()
    })
}

fn register() -> impl Strategy<Value = Register> {
    let size = option::of(prop_oneof![Just(8), Just(64), Just(128), 1_u32..2048]);
    (
        name(),
        option::of(any::<u64>()),
        size,
        vec(any::<u8>(), 0..40),
    )
        .prop_map(|(name, id, size, value)| Register {
            name,
            id,
            size,
            value: RegisterValue(value),
            place: FileLine::default(),
        })
}

fn dump() -> impl Strategy<Value = Dump> {
    (
        (name(), name(), option::of(name())),
        any::<u64>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        pairs(),
    )
        .prop_map(
            |((section, file, space), address, length, offset, other)| Dump {
                section: format!("dump{section}"),
                file,
                space,
                address,
                length,
                offset,
                other,
                place: FileLine::default(),
            },
        )
}

fn class() -> impl Strategy<Value = DeviceClass> {
    prop_oneof![
        Just(DeviceClass::Core),
        Just(DeviceClass::TraceSource),
        Just(DeviceClass::MemorySpace),
        Just(DeviceClass::Missing),
        name().prop_map(|name| DeviceClass::Other(format!("x{name}"))),
    ]
}

fn device() -> impl Strategy<Value = Device> {
    (
        (name(), name(), class(), name(), option::of(name())),
        pairs(),
        vec(register(), 0..12),
        vec(dump(), 0..6),
        other_sections(),
    )
        .prop_map(
            |((key, name, class, kind, location), other, registers, dumps, others)| Device {
                key,
                name,
                class,
                kind,
                location,
                other,
                registers,
                dumps,
                other_sections: others,
                ..Device::default()
            },
        )
}

fn format() -> impl Strategy<Value = BufferFormat> {
    prop_oneof![
        Just(BufferFormat::Coresight),
        Just(BufferFormat::SourceData),
        Just(BufferFormat::DstreamCoresight),
        Just(BufferFormat::Missing),
        name().prop_map(|name| BufferFormat::Other(format!("x{name}"))),
    ]
}

fn trace() -> impl Strategy<Value = Trace> {
    let buffer = (name(), vec(name(), 1..4), format(), pairs());
    let line = (name(), option::of(any::<u32>()), vec(name(), 0..3));
    (
        vec(buffer, 0..4),
        vec((name(), name()), 0..5),
        option::of(vec(line, 0..5)),
        option::of(any::<u64>()),
        other_sections(),
    )
        .prop_map(
            |(buffers, cores, lines, timestamp_frequency, other_sections)| Trace {
                file: "trace.ini".into(),
                buffers: buffers
                    .into_iter()
                    .enumerate()
                    .map(|(index, (name, files, format, other))| Buffer {
                        id: format!("buffer{index}"),
                        name,
                        files,
                        format,
                        other,
                        place: FileLine::default(),
                    })
                    .collect(),
                core_sources: cores
                    .into_iter()
                    .map(|(core, source)| CoreSource {
                        core,
                        source,
                        place: FileLine::default(),
                    })
                    .collect(),
                source_buffers: lines.map(|lines| {
                    lines
                        .into_iter()
                        .map(|(source, stream, buffers)| SourceBuffers {
                            source,
                            stream,
                            buffers,
                            place: FileLine::default(),
                        })
                        .collect()
                }),
                timestamp_frequency,
                other_sections,
                place: FileLine::default(),
            },
        )
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    (
        (name(), option::of(name()), pairs()),
        vec(device(), 0..5),
        vec((name(), vec(name(), 0..4)), 0..3),
        option::of(trace()),
        other_sections(),
    )
        .prop_map(
            |((version, description, other), mut devices, clusters, trace, others)| {
                for (index, device) in devices.iter_mut().enumerate() {
                    device.file = format!("d{index}/device.ini");
                }
                Snapshot {
                    version,
                    description,
                    devices,
                    clusters: clusters
                        .into_iter()
                        .map(|(name, devices)| Cluster {
                            name,
                            devices,
                            place: FileLine::default(),
                        })
                        .collect(),
                    trace,
                    other,
                    other_sections: others,
                    place: FileLine::default(),
                }
            },
        )
}

proptest! {
    #[test]
    fn model_to_files_to_model_is_the_identity(snapshot in snapshot()) {
        let files = texts(&snapshot).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let back = OpenSnapshot::from_files(Arc::new(InMemory(files)), "snapshot.ini").unwrap();
        prop_assert_eq!(canonical(&back.snapshot), canonical(&snapshot));
    }
}

fn core(name: &str) -> Snapshot {
    Snapshot {
        version: "1.0".into(),
        devices: vec![Device {
            key: "device0".into(),
            file: "cpu.ini".into(),
            name: name.into(),
            class: DeviceClass::Core,
            kind: "Cortex-A53".into(),
            dumps: vec![Dump {
                section: "dump0".into(),
                file: "sub/code.bin".into(),
                ..Dump::default()
            }],
            ..Device::default()
        }],
        ..Snapshot::default()
    }
}

fn blobs() -> InMemory {
    let mut files = InMemory::default();
    files.0.insert("sub/code.bin".into(), vec![1, 2, 3].into());
    files
}

#[test]
fn nothing_is_overwritten_without_force() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("out");
    assert!(write(&core("a"), &blobs(), &dir, false).unwrap().is_empty());
    assert_eq!(std::fs::read(dir.join("sub/code.bin")).unwrap(), [1, 2, 3]);
    let again = write(&core("b"), &blobs(), &dir, false);
    assert!(matches!(again, Err(WriteError::Exists(_))));
    let name = || {
        let loaded = Snapshot::open(&dir, &OpenOptions::default()).unwrap();
        loaded.snapshot.devices[0].name.clone()
    };
    assert_eq!(name(), "a");
    std::fs::write(dir.join("mine"), "").unwrap();
    let refused = write(&core("b"), &blobs(), &dir, true);
    assert!(matches!(refused, Err(WriteError::InTheWay(file)) if file == dir.join("mine")));
    assert_eq!(name(), "a");
    std::fs::remove_file(dir.join("mine")).unwrap();
    write(&core("b"), &blobs(), &dir, true).unwrap();
    assert_eq!(name(), "b");

    // Libraries belong to the snapshot, although no .ini file names them.
    let libraries = dir.join("libraries");
    std::fs::create_dir(&libraries).unwrap();
    std::fs::write(libraries.join("libc.so.6"), b"\x7fELF").unwrap();
    write(&core("a"), &blobs(), &dir, true).unwrap();
    assert!(!libraries.exists());
    std::fs::create_dir(&libraries).unwrap();
    std::fs::write(libraries.join("notes"), "mine").unwrap();
    let refused = write(&core("b"), &blobs(), &dir, true);
    assert!(matches!(refused, Err(WriteError::InTheWay(file)) if file == libraries.join("notes")));
    std::fs::remove_dir_all(&libraries).unwrap();
    assert_eq!(name(), "a");

    let home = parent.path().join("home");
    std::fs::create_dir(&home).unwrap();
    write(&core("a"), &blobs(), &home, false).unwrap();
    std::fs::remove_file(home.join("snapshot.ini")).unwrap();
    let refused = write(&core("a"), &blobs(), &home, true);
    assert!(matches!(refused, Err(WriteError::NotASnapshot(_))));
    let left = std::fs::read_dir(parent.path()).unwrap().count();
    assert_eq!(left, 2, "only out and home are there");
}

#[test]
fn a_snapshot_appears_complete_or_not_at_all() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("out");
    let mut clash = core("a");
    clash.devices[0].dumps[0].file = "cpu.ini/code.bin".into();
    let mut files = InMemory::default();
    files.0.insert("cpu.ini/code.bin".into(), vec![1].into());
    let mut outside = core("a");
    outside.devices[0].file = "../cpu.ini".into();
    let mut same = core("a");
    same.devices[0].dumps[0].file = "snapshot.ini".into();
    files.0.insert("snapshot.ini".into(), vec![1].into());
    let mut lines = core("two\nlines");
    lines.devices[0].dumps.clear();
    let mut changed = core("a");
    changed.devices[0].class = DeviceClass::Other("core".into());
    for (snapshot, what) in [
        (clash, "Io"),
        (outside, "Path"),
        (same, "Collision"),
        (lines, "Text"),
        (changed, "Changed"),
    ] {
        let error = write(&snapshot, &files, &dir, false).unwrap_err();
        assert!(format!("{error:?}").starts_with(what), "{error:?}");
        assert_eq!(
            std::fs::read_dir(parent.path()).unwrap().count(),
            0,
            "{what}"
        );
    }
}

#[test]
fn a_missing_file_is_noted() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("out");
    let notes = write(&core("a"), &InMemory::default(), &dir, false).unwrap();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].text, "\"sub/code.bin\": no such file: not copied");
}

#[test]
#[cfg(unix)]
fn sparse_files_stay_sparse() {
    use std::os::unix::fs::MetadataExt;
    let parent = tempfile::tempdir().unwrap();
    let source = parent.path().join("source");
    write(&core("a"), &blobs(), &source, false).unwrap();
    let code = source.join("sub/code.bin");
    let file = std::fs::File::options().write(true).open(&code).unwrap();
    file.set_len(64 << 20).unwrap();
    if code.metadata().unwrap().blocks() * 512 > 1 << 20 {
        crate::support::skip::unavailable("no sparse files here");
        return;
    }
    let loaded = Snapshot::open(&source, &OpenOptions::default()).unwrap();
    let copy = parent.path().join("copy");
    write(&loaded.snapshot, &*loaded.files(), &copy, false).unwrap();
    let metadata = copy.join("sub/code.bin").metadata().unwrap();
    assert_eq!(metadata.len(), 64 << 20);
    assert!(metadata.blocks() * 512 <= 1 << 20);
    let written = std::fs::read(copy.join("sub/code.bin")).unwrap();
    assert_eq!(&written[..4], [1, 2, 3, 0]);
}

/// The reference's listing of elements, without lines with the directory or the time.
fn listing(dir: &Path) -> Option<Vec<String>> {
    let output = tempfile::NamedTempFile::new().unwrap();
    let working = tempfile::tempdir().unwrap();
    let run = Command::new("trc_pkt_lister")
        // It writes a log file to the current directory.
        .current_dir(&working)
        .args(["-ss_dir".as_ref(), dir.as_os_str()])
        .args(["-decode", "-logfilename"])
        .arg(output.path())
        .output()
        .ok()?;
    assert!(run.status.success(), "{run:?}");
    let text = std::fs::read(output.path()).unwrap();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| line.starts_with("Idx:"));
    Some(lines.map(str::to_owned).collect())
}

#[test]
fn the_reference_reads_written_snapshots() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots");
    let shared = PathBuf::from(shared);
    if !shared.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return;
    }
    // It writes its log file to the current directory.
    let anywhere = tempfile::tempdir().unwrap();
    if Command::new("trc_pkt_lister")
        .arg("-help")
        .current_dir(&anywhere)
        .output()
        .is_err()
    {
        crate::support::skip::missing("trc_pkt_lister is not installed");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    for name in [
        "a57_single_step",
        "tc2-ptm-rstk-t32",
        "juno_r1_1",
        "stm_only",
        "q_elem",
    ] {
        let loaded = Snapshot::open(&shared.join(name), &OpenOptions::default()).unwrap();
        let copy = parent.path().join(name);
        let notes = write(&loaded.snapshot, &*loaded.files(), &copy, false).unwrap();
        assert!(notes.is_empty(), "{name}: {notes:?}");
        let back = Snapshot::open(&copy, &OpenOptions::default()).unwrap();
        assert_eq!(
            canonical(&back.snapshot),
            canonical(&loaded.snapshot),
            "{name}"
        );
        let (before, after) = (listing(&shared.join(name)), listing(&copy));
        assert!(
            before.as_ref().is_some_and(|lines| lines.len() > 3),
            "{name}"
        );
        assert!(before == after, "{name}: the listings differ");
    }
}
