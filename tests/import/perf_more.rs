//! What else a recording may have: code made at run time, archives, directories, clocks.

use crate::capture;
use crate::perf_builder::{At, PerfData, framed, words};
use crate::perf_generated::{
    ETMV4, PROGRAM, at, decoded, etmv4, executed, expected, flow, frames, process, recorded,
};
use crate::support::gdb::{armsnap, run, testdata, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The bytes of the recorded program.
fn program() -> Vec<u8> {
    let file = fs::read(testdata("recorded/etmv4/program.elf")).unwrap();
    let (_, length, offset) = PROGRAM;
    file[offset as usize..(offset + length) as usize].to_vec()
}

/// A record of a jitdump: type, words, name and code.
fn jit(kind: u32, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend((16 + 8 * numbers.len() as u32 + rest.len() as u32).to_le_bytes());
    out.extend(words(&[1]));
    out.extend(words(numbers));
    out.extend(rest);
    out
}

#[test]
fn code_made_at_run_time_comes_from_its_dump() {
    let expected = expected("etmv4", 0x10);
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let mut file = PerfData::default();
    file.comm("prog", true, at(100, 1, 0));
    file.map(
        "/tmp/jit-100.dump",
        0x7000_0000,
        0x1000,
        0,
        &[],
        at(100, 2, 0),
    );
    file.map("//anon", PROGRAM.0, 0x10_0000, 0, &[], at(100, 2, 0));
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    let symfs = tempfile::tempdir().unwrap();
    let options = ["--symfs", symfs.path().to_str().unwrap()];
    let (found, said) = executed(&file.file(), "prog-100", &options);
    let ranges = found.iter().filter(|element| element["kind"] == "range");
    assert_eq!(ranges.count(), 0, "its code is not known");
    assert!(said.contains("missing image: /tmp/jit-100.dump"), "{said}");

    // At first another function was at the address; the code itself was made elsewhere and moved.
    let code = program();
    let mut dump = words(&[1 << 32 | 0x4A69_5444, 183 << 32 | 40, 100 << 32, 0, 0]);
    let load = |address: u64, index: u64, name: &[u8], code: &[u8]| {
        let numbers = [100 << 32 | 100, address, address, code.len() as u64, index];
        jit(0, &numbers, &[name, code].concat())
    };
    dump.extend(load(PROGRAM.0, 1, b"old\0", &[0; 4096]));
    dump.extend(load(0x9000_0000, 2, b"new\0", &code));
    dump.extend(jit(2, &[0, 0], b"debug information"));
    dump.extend(jit(
        1,
        &[
            100 << 32 | 100,
            PROGRAM.0,
            0x9000_0000,
            PROGRAM.0,
            code.len() as u64,
            2,
        ],
        b"",
    ));
    fs::write(symfs.path().join("jit-100.dump"), &dump).unwrap();
    let (found, said) = executed(&file.file(), "prog-100", &options);
    assert_eq!(found, expected);
    assert!(said.contains("1 function replaced by others"), "{said}");
    for (bytes, says) in [
        (
            &b"something else entirely, and long enough"[..],
            "is no jitdump",
        ),
        (&dump[..dump.len() - 8], "a record is cut short"),
    ] {
        fs::write(symfs.path().join("jit-100.dump"), bytes).unwrap();
        let (_, said) = executed(&file.file(), "prog-100", &options);
        assert!(said.contains(says), "{said}");
    }
}

/// Runs tar in a directory.
fn tar(directory: &Path, words: &[&str]) {
    let output = Command::new("tar")
        .current_dir(directory)
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_archive_of_perf_is_a_directory() {
    let Some(captures) = capture("perf") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let input = captures.join("perf_etm.data");
    let program = "etm_test_loop";
    let info = text(&run(armsnap()
        .arg("info")
        .arg(&input)
        .arg("--symfs")
        .arg(scratch.path())));
    let line = info
        .lines()
        .find(|line| line.contains("missing image") && line.contains(program));
    let id = line
        .and_then(|line| line.split("(build-id ").nth(1))
        .unwrap();
    let id = &id[..id.find(')').unwrap()];
    // As `perf archive` packs the cache: a link by the build-id, and the file by path and build-id.
    let tree = scratch.path();
    let entry = format!("data/nativetest64/{program}/{id}");
    fs::create_dir_all(tree.join(&entry)).unwrap();
    fs::copy(captures.join(program), tree.join(&entry).join("elf")).unwrap();
    let link = tree.join(".build-id").join(&id[..2]);
    fs::create_dir_all(&link).unwrap();
    std::os::unix::fs::symlink(format!("../../{entry}"), link.join(&id[2..])).unwrap();
    tar(tree, &["-cf", "plain.tar", ".build-id", "data"]);
    tar(tree, &["-cjf", "perf.data.tar.bz2", ".build-id", "data"]);
    let list = |symfs: &Path| {
        let (out, _) = decoded(&input, &["--symfs", symfs.to_str().unwrap()]);
        assert!(out.len() > 10_000, "{}", symfs.display());
        out
    };
    let wanted = list(&captures);
    for archive in ["plain.tar", "perf.data.tar.bz2"] {
        assert!(list(&tree.join(archive)) == wanted, "{archive}");
    }
    // Links that lead out of the archive, or in a circle, are not followed.
    fs::remove_file(link.join(&id[2..])).unwrap();
    for to in ["../../../../../../etc/passwd", "../../.build-id/xx", "."] {
        let _ = fs::remove_file(link.join(&id[2..]));
        std::os::unix::fs::symlink(to, link.join(&id[2..])).unwrap();
        tar(tree, &["-cf", "links.tar", ".build-id"]);
        let mut command = armsnap();
        command
            .arg("info")
            .arg(&input)
            .arg("--symfs")
            .arg(tree.join("links.tar"));
        let said = text(&run(&mut command));
        assert!(said.contains("missing image"), "{to}: {said}");
    }
    fs::write(tree.join("none.tar"), [1; 2000]).unwrap();
    fs::write(tree.join("cut.tar.bz2"), b"BZh91AY&SY").unwrap();
    for (archive, says) in [
        ("none.tar", "is neither a directory nor a tar file"),
        ("cut.tar.bz2", "bzip2: "),
    ] {
        let mut command = armsnap();
        command
            .arg("info")
            .arg(&input)
            .arg("--symfs")
            .arg(tree.join(archive));
        let output = run(&mut command);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(says), "{}", text(&output));
    }
}

#[test]
fn directories_of_threads_are_one_recording() {
    let (first, second) = (expected("etmv4", 0x10), expected("etmv4", 0x11));
    let mut main = process();
    main.info(1, &[(ETMV4, 0, etmv4(0x10)), (ETMV4, 1, etmv4(0x12))]);
    main.fork(100, 100, 101, at(100, 4, 0));
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("perf.data");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("data"), main.file()).unwrap();
    for (cpu, id, own, tid) in [(0, 0x10, 0x10, 100), (1, 0x12, 0x11, 101)] {
        let trace = frames(&[(id, &recorded("etmv4", own))]);
        let mut file = PerfData::default();
        file.trace(0, cpu, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(tid, 5 + u64::from(tid), cpu));
        fs::write(directory.join(format!("data.{cpu}")), &file.records).unwrap();
    }
    let symfs = testdata("recorded/etmv4");
    let (out, _) = decoded(&directory, &["--symfs", symfs.to_str().unwrap()]);
    let of = |name: &str| flow(&out, |element| element["source"] == name);
    assert_eq!(of("ETM_cpu0"), first);
    assert_eq!(of("ETM_cpu1"), second);
    // A file that is cut is named; the others are used.
    let path = directory.join("data.1");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let (out, said) = decoded(&directory, &["--symfs", symfs.to_str().unwrap()]);
    assert!(said.contains("data.1: at byte"), "{said}");
    assert_eq!(flow(&out, |element| element["source"] == "ETM_cpu0"), first);
}

/// An ELF core file with one segment, as `kcore_dir/kcore`.
fn kcore(address: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend([4, 0, 183, 0, 1, 0, 0, 0]);
    out.extend(words(&[0, 64, 0]));
    out.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    out.extend([1, 0, 0, 0, 7, 0, 0, 0]);
    let length = bytes.len() as u64;
    out.extend(words(&[120, address, 0, length, length, 0]));
    out.extend(bytes);
    out
}

#[test]
fn the_kernels_memory_beside_a_recording_is_its_code() {
    let wanted = expected("etmv4", 0x10);
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let mut file = PerfData::default();
    file.comm("prog", true, at(100, 1, 0));
    let kernel = At {
        pid: u32::MAX,
        ..at(0, 0, 0)
    };
    file.map(
        "[kernel.kallsyms]_text",
        PROGRAM.0,
        PROGRAM.1,
        PROGRAM.0,
        &[],
        kernel,
    );
    file.map(
        "[some_module]",
        PROGRAM.0 + 0x10_0000,
        0x1000,
        0,
        &[],
        kernel,
    );
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("perf.data");
    fs::create_dir_all(directory.join("kcore_dir")).unwrap();
    fs::write(directory.join("data"), file.file()).unwrap();
    let (out, said) = decoded(&directory, &[]);
    assert!(!out.contains(r#""kind":"range""#));
    assert!(said.contains("missing image: [some_module]"), "{said}");
    fs::write(
        directory.join("kcore_dir/kcore"),
        kcore(PROGRAM.0, &program()),
    )
    .unwrap();
    let (out, said) = decoded(&directory, &[]);
    assert_eq!(flow(&out, |_| true), wanted);
    assert!(!said.contains("missing image"), "{said}");
}

#[test]
fn timestamps_become_times_of_perf() {
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let times = |clock: u64, fields: &[u64]| {
        let mut file = process();
        file.info(1, &[(ETMV4, 0, [etmv4(0x10), vec![clock]].concat())]);
        file.records.extend(framed(79, 0, &words(fields)));
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("perf.data");
        fs::write(&path, file.file()).unwrap();
        let symfs = testdata("recorded/etmv4");
        let (out, said) = decoded(&path, &["--symfs", symfs.to_str().unwrap()]);
        let lines = out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let stamps: Vec<Value> = lines.filter(|line| line["kind"] == "timestamp").collect();
        assert!(stamps.len() > 1, "{}", stamps.len());
        (stamps, said)
    };
    // 62.5 MHz: 16 ns a tick.
    let zero = 5_000_000_000_u64;
    for fields in [
        &[10, 16 << 10, zero][..],
        &[10, 16 << 10, zero, 0, u64::MAX, 1],
    ] {
        let (stamps, said) = times(1, fields);
        for stamp in stamps {
            let value = stamp["value"].as_str().unwrap().trim_start_matches("0x");
            let tick = u64::from_str_radix(value, 16).unwrap();
            assert_eq!(stamp["perf_time"], zero + 16 * tick, "{stamp}");
        }
        assert!(!said.contains("virtual counter"), "{said}");
    }
    for clock in [u64::MAX, 0] {
        let (stamps, said) = times(clock, &[10, 16 << 10, zero]);
        assert!(stamps.iter().all(|stamp| stamp.get("perf_time").is_none()));
        assert!(
            said.contains("these are not converted to perf's clock"),
            "{said}"
        );
    }
}

#[test]
fn inputs_are_checked_and_converted_as_they_are() {
    let scratch = tempfile::tempdir().unwrap();
    let place = |name: &str| scratch.path().join(name);
    fs::write(place("perf.data"), crate::perf_generated::every_record().0).unwrap();
    let symfs = testdata("recorded/etmv4");
    let core = crate::core_files::core_file(scratch.path());
    let command = |words: &[&str], input: &Path, output: Option<&Path>| {
        let mut command = armsnap();
        command
            .args(words)
            .arg(input)
            .args(output)
            .arg("--symfs")
            .arg(&symfs);
        let output = run(&mut command);
        (output.status.code(), text(&output))
    };
    for input in [place("perf.data"), core.clone()] {
        let (status, said) = command(&["check"], &input, None);
        assert_eq!(status, Some(0), "{said}");
    }
    for (input, output) in [("perf.data", "again.perf.data"), ("perf.data", "out.tf")] {
        let (status, said) = command(&["convert"], &place(input), Some(&place(output)));
        assert_eq!(status, Some(0), "{output}: {said}");
        if output == "out.tf" {
            // A trace file for each core.
            let names = fs::read_dir(scratch.path()).unwrap();
            let names = names.map(|entry| entry.unwrap().path());
            let written: Vec<_> = names
                .filter(|path| path.extension().is_some_and(|end| end == "tf"))
                .collect();
            assert!(!written.is_empty(), "{said}");
            for path in written {
                let bytes = fs::read(&path).unwrap();
                assert!(bytes.starts_with(b"\x7fTRACE0"), "{}", path.display());
            }
            continue;
        }
        let (status, said) = command(&["check"], &place(output), None);
        assert_eq!(status, Some(0), "{output}: {said}");
    }
    let (status, said) = command(&["convert"], &core, Some(&place("again.core")));
    assert_eq!(status, Some(0), "{said}");
    let bytes = fs::read(place("again.core")).unwrap();
    assert!(bytes.starts_with(b"\x7fELF"));
    let (status, said) = command(&["convert"], &core, Some(&place("none.perf.data")));
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("has no trace that follows a core"), "{said}");
}
