//! Inputs that are one step away: compressed ones are opened, and others are named, with the next step.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::record::installed;
use std::fs;
use std::path::Path;
use std::process::Command;

fn convert(from: &Path, to: &Path) {
    let output = run(armsnap().arg("convert").arg(from).arg(to));
    assert!(output.status.success(), "{}", text(&output));
}

fn info(path: &Path) -> String {
    text(&run(armsnap().arg("info").arg(path)))
}

#[test]
fn compressed_files_are_opened() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let snapshot = testdata("recorded/etmv4");
    let core = scratch.path().join("state.core");
    let perf = scratch.path().join("state.perf.data");
    convert(&snapshot, &core);
    convert(&snapshot, &perf);
    let program = snapshot.join("program.elf");
    let options = ["--elf", program.to_str().unwrap()];
    let commands = ["bt", "info registers pc sp x0", "x/4xw $sp"];
    let wanted = session(&core, &options, &commands);
    assert!(wanted.contains("#1 "), "{wanted}");
    let known_perf = info(&perf);
    for (tool, extension) in [
        ("gzip", "gz"),
        ("bzip2", "bz2"),
        ("xz", "xz"),
        ("zstd", "zst"),
        ("lz4", "lz4"),
    ] {
        if !installed(&[tool]) {
            continue;
        }
        let packed = |path: &Path| {
            let name = format!("{}.{extension}", path.display());
            let mut command = Command::new(tool);
            // The files are small enough for any level.
            command.args(["-c", "-q"]).arg(path);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{tool}");
            fs::write(&name, output.stdout).unwrap();
            Path::new(&name).to_owned()
        };
        let said = session(&packed(&core), &options, &commands);
        assert_eq!(said, wanted, "{tool}");
        assert_eq!(info(&packed(&perf)), known_perf, "{tool}");
    }
    // No file with a name stays.
    let mut import = armsnap();
    let directory = scratch.path().join("temporary");
    fs::create_dir(&directory).unwrap();
    let gz = scratch.path().join("state.core.gz");
    if gz.is_file() {
        import.env("TMPDIR", &directory);
        let output = run(import.arg("info").arg(&gz));
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        let bytes = fs::read(&gz).unwrap();
        fs::write(&gz, &bytes[..bytes.len() / 2]).unwrap();
        let said = info(&gz);
        assert!(said.contains("state.core.gz: gzip: "), "{said}");
    }
}

#[test]
fn memory_in_limes_format() {
    let scratch = tempfile::tempdir().unwrap();
    let ram = scratch.path().join("ram.lime");
    let mut bytes = Vec::new();
    for (first, contents) in [(0x4000_0000_u64, b"first___"), (0x8000_0000, b"second__")] {
        bytes.extend(b"EMiL\x01\0\0\0");
        bytes.extend(first.to_le_bytes());
        bytes.extend((first + 7).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(contents);
    }
    fs::write(&ram, bytes).unwrap();
    let import = |memory: &str, output: &str| {
        let mut import = armsnap();
        import.args(["import", "--memory", memory, "--core", "Cortex-A53"]);
        run(import.arg(scratch.path().join(output)))
    };
    let name = ram.to_str().unwrap();
    let output = import(name, "snapshot");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("LiME: 16 bytes of memory in 2 runs"));
    let commands = ["x/s 0x40000000", "x/s 0x80000000"];
    let said = session(&scratch.path().join("snapshot"), &[], &commands);
    assert!(
        said.contains("\"first___") && said.contains("\"second__"),
        "{said}"
    );
    let output = import(&format!("{name}@0x40000000"), "other");
    assert!(!output.status.success());
    assert!(text(&output).contains("LiME's headers have the addresses"));
    assert!(info(&ram).contains("is memory in LiME's format: armsnap import --memory"));
}

#[test]
fn others_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = scratch.path().join("plain.tf");
    let common = scratch.path().join("ctf");
    fs::write(&plain, b"\x7fTRACE0\nR 0\n").unwrap();
    fs::create_dir(&common).unwrap();
    fs::write(common.join("metadata"), "/* CTF 1.8 */\n").unwrap();
    fs::write(common.join("datastream"), "").unwrap();
    let windows = scratch.path().join("memory.dmp");
    fs::write(&windows, b"PAGEDU64").unwrap();
    let output = scratch.path().join("output");
    for (path, wanted) in [
        (&plain, "is a trace file of GDB"),
        (&common, "is a trace in the Common Trace Format"),
        (&windows, "is a crash dump of Windows"),
    ] {
        for command in ["info", "check", "decode", "import", "convert"] {
            if command == "convert" && path == &plain {
                continue;
            }
            let mut armsnap = armsnap();
            armsnap.arg(command).arg(path);
            if matches!(command, "import" | "convert") {
                armsnap.arg(&output);
            }
            let done = run(&mut armsnap);
            assert!(!done.status.success());
            let said = text(&done);
            assert!(said.contains(wanted), "{command}: {said}");
        }
    }
}

#[test]
fn sessions_of_logic_analysers_are_no_raw_trace() {
    let scratch = tempfile::tempdir().unwrap();
    let session = scratch.path().join("swo.sr");
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.resize(30, 0);
    bytes.extend(b"version2 metadata logic-1");
    fs::write(&session, bytes).unwrap();
    let mut import = armsnap();
    import.args(["import", "--raw"]).arg(&session);
    let output = run(import.arg(scratch.path().join("output")));
    assert!(!output.status.success());
    let said = text(&output);
    assert!(said.contains("is a session of sigrok"), "{said}");
}

#[test]
fn core_files_of_other_systems_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("program.core");
    for (owner, system) in [
        ("FreeBSD", "FreeBSD"),
        ("NetBSD-CORE@1", "NetBSD"),
        ("OpenBSD", "OpenBSD"),
    ] {
        let mut note = [owner.len() as u32 + 1, 400, 1]
            .map(u32::to_le_bytes)
            .concat();
        note.extend(owner.as_bytes());
        note.resize(12 + (owner.len() + 1).next_multiple_of(4), 0);
        note.resize(note.len() + 400, 0);
        let mut file = b"\x7fELF\x02\x01\x01\x09".to_vec();
        file.resize(16, 0);
        file.extend([4, 0, 183, 0, 1, 0, 0, 0]);
        file.extend([0_u64, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        file.extend([4, 0, 0, 0, 4, 0, 0, 0]);
        let words = [120, 0, 0, note.len() as u64, note.len() as u64, 4];
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        file.extend(note);
        fs::write(&path, file).unwrap();
        let said = info(&path);
        assert!(
            said.contains(&format!("core file of {system}: expected one of Linux")),
            "{said}"
        );
    }
}
