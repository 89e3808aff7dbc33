//! `perf.data` of every form, made from recorded trace: what is decoded is what was recorded.

use crate::perf_builder::{LOST, PerfData, big_endian, framed, words};
use crate::support::gdb::{armsnap, run, testdata, text};
pub use crate::support::inputs::perf::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

const ETMV3: u64 = 0x3030_3030_3030_3030;

/// The kinds of elements that are the same wherever trace comes from, without places.
pub fn flow(output: &str, source: impl Fn(&Value) -> bool) -> Vec<Value> {
    let lines = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|element: &Value| {
            ["range", "exception"].contains(&element["kind"].as_str().unwrap()) && source(element)
        })
        .map(|mut element| {
            let fields = element.as_object_mut().unwrap();
            for field in ["source", "buffer", "offset", "trace_id"] {
                fields.remove(field);
            }
            element
        })
        .collect()
}

/// The listing of a perf.data file or snapshot, an object for each line.
pub fn listed(input: &Path, options: &[&str]) -> Vec<Value> {
    let (lines, _) = decoded(input, options);
    let lines = lines.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}

pub fn decoded(input: &Path, options: &[&str]) -> (String, String) {
    let mut command = armsnap();
    command
        .args(["decode", "--format", "jsonl"])
        .arg(input)
        .args(options);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// What the recorded core executed.
pub fn expected(name: &str, id: u8) -> Vec<Value> {
    let program = testdata("recorded").join(name).join("program.elf");
    let options = ["--elf", program.to_str().unwrap()];
    let (out, _) = decoded(&testdata("recorded").join(name), &options);
    let found = flow(&out, |element| element["trace_id"] == u64::from(id));
    assert!(found.len() > 8, "{}", found.len());
    found
}

/// Writes a file and decodes it: returns what was executed by the core whose source satisfies
/// `core`, and the messages.
pub fn executed(bytes: &[u8], core: &str, options: &[&str]) -> (Vec<Value>, String) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    fs::write(&path, bytes).unwrap();
    let symfs = testdata("recorded/etmv4");
    let mut all = vec!["--symfs", symfs.to_str().unwrap()];
    all.extend(options);
    let (out, said) = decoded(&path, &all);
    let mut info = armsnap();
    info.args(["info", "--json"]).arg(&path).args(&all);
    let info = run(&mut info);
    assert!(info.status.success(), "{}", text(&info));
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    let sources: Vec<&str> = info["sources"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|source| {
            source["cores"]
                .as_array()
                .unwrap()
                .iter()
                .any(|own| own == core)
        })
        .map(|source| source["name"].as_str().unwrap())
        .collect();
    assert!(!sources.is_empty(), "no core {core}: {info:#}");
    let own = |element: &Value| sources.contains(&element["source"].as_str().unwrap());
    (flow(&out, own), said)
}

#[test]
fn all_versions_of_the_trace_units_block() {
    let expected = expected("etmv4", 0x10);
    let trace = frames(&[(0x12, &recorded("etmv4", 0x10))]);
    for (version, more) in [(0, vec![]), (1, vec![]), (2, vec![]), (2, vec![1, 2, 3])] {
        let mut file = process();
        let mut own = etmv4(0x12);
        own.extend(&more);
        file.info(
            version,
            &[(ETMV4, 0, [etmv4(0x10), more].concat()), (ETMV4, 1, own)],
        );
        file.trace(0, 1, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 5, 1));
        for bytes in [file.file(), file.piped()] {
            let (found, _) = executed(&bytes, "prog-100", &[]);
            assert_eq!(found, expected, "version {version}");
        }
    }
}

#[test]
fn several_blocks_of_a_cpu_are_one_source() {
    let expected = expected("etmv4", 0x10);
    let trace = frames(&[(0x12, &recorded("etmv4", 0x10))]);
    for with_records in [false, true] {
        let mut file = process();
        file.info(1, &[1, 0, 1, 1].map(|cpu| (ETMV4, cpu, etmv4(0x11 + cpu))));
        if with_records {
            file.hardware_id(0x12, at(100, 3, 1));
        }
        file.trace(0, 1, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 5, 1));
        let (found, said) = executed(&file.file(), "prog-100", &[]);
        assert_eq!(found, expected, "{said}");
        let says = "AUXTRACE_INFO has several trace units of CPU 1: the first one is used";
        assert_eq!(said.matches(says).count(), 1, "{said}");
    }
}

#[test]
fn compressed_records_are_read() {
    let expected = expected("etmv4", 0x10);
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let mut inner = process();
    inner.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    // A record may begin in one piece and end in the next.
    let (first, second) = inner.records.split_at(inner.records.len() / 2 + 3);
    for kind in [81, 83] {
        let mut file = PerfData::default();
        file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
        for piece in stored(&[first, second]) {
            let body = match kind {
                // The length, and the piece filled up to whole words.
                83 => {
                    let mut body = words(&[piece.len() as u64]);
                    body.extend(&piece);
                    body.resize(body.len().next_multiple_of(8), 0);
                    body
                }
                _ => piece,
            };
            file.records.extend(framed(kind, 0, &body));
        }
        file.trace(0, 0, 0, &trace);
        let (found, _) = executed(&file.file(), "prog-100", &[]);
        assert_eq!(found, expected, "type {kind}");
    }
    // Damaged records are refused, and those that expand to far more than perf writes.
    let bomb: Vec<u8> = [0x28, 0xB5, 0x2F, 0xFD, 0, 0x88]
        .into_iter()
        .chain(std::iter::repeat_n([0x02, 0, 0x10, 0], 1000).flatten())
        .collect();
    for (bytes, says) in [(vec![1; 40], "damaged"), (bomb, "which perf never writes")] {
        let mut file = process();
        file.records.extend(framed(81, 0, &bytes));
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("perf.data");
        fs::write(&path, file.file()).unwrap();
        let output = run(armsnap().arg("info").arg(&path));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(says), "{}", text(&output));
    }
}

#[test]
fn threads_keep_their_history_across_cpus() {
    let (first, second) = (expected("etmv4", 0x10), expected("etmv4", 0x11));
    let (a, b) = (recorded("etmv4", 0x10), recorded("etmv4", 0x11));
    // Each thread runs twice, the second time on the other CPU. IDs are those of sinks: both CPUs
    // have the same one.
    for sinks in [true, false] {
        let ids: [u8; 2] = if sinks { [0x10, 0x10] } else { [0x10, 0x12] };
        let mut file = process();
        file.info(2, &[0, 1].map(|cpu| (ETMV4, cpu, etmv4(1 << 31 | 0x7F))));
        for cpu in 0..2 {
            let id = u64::from(ids[cpu as usize]);
            let value = match sinks {
                true => 1 << 56 | (0xABC0 + u64::from(cpu)) << 8 | id,
                false => id,
            };
            file.hardware_id(value, at(100, 3, cpu));
        }
        file.fork(100, 100, 101, at(100, 4, 0));
        file.comm("worker", false, at(101, 5, 0));
        let mut offsets = [0, 0];
        for (tid, cpu, time) in [(100, 0, 10), (101, 1, 11), (100, 1, 20), (101, 0, 21)] {
            let bytes = if tid == 100 { &a } else { &b };
            let trace = frames(&[(ids[cpu as usize], bytes)]);
            let offset = &mut offsets[cpu as usize];
            file.trace(*offset, cpu, 0, &trace);
            file.aux(*offset, trace.len() as u64, 0, at(tid, time, cpu));
            *offset += trace.len() as u64;
        }
        let file = file.file();
        let twice = |once: &Vec<Value>| [once.clone(), once.clone()].concat();
        let (found, _) = executed(&file, "prog-100", &[]);
        assert_eq!(found, twice(&first), "sinks {sinks}");
        let (found, _) = executed(&file, "worker-101", &[]);
        assert_eq!(found, twice(&second), "sinks {sinks}");
        let (found, _) = executed(&file, "cpu0", &["--by", "cpu"]);
        assert_eq!(
            found,
            [first.clone(), second.clone()].concat(),
            "sinks {sinks}"
        );
        let (found, _) = executed(&file, "worker-101", &["--tid", "101", "--cpu", "0"]);
        assert_eq!(found, second, "sinks {sinks}");
        let (found, _) = executed(&file, "worker-101", &["--comm", "worker"]);
        assert_eq!(found, twice(&second), "sinks {sinks}");
    }
}

#[test]
fn buffers_of_threads_and_raw_trace() {
    let (first, second) = (expected("etmv4", 0x10), expected("etmv4", 0x11));
    let (a, b) = (recorded("etmv4", 0x10), recorded("etmv4", 0x11));
    let mut file = process();
    file.info(1, &[(ETMV4, 0, etmv4(0x10)), (ETMV4, 1, etmv4(0x12))]);
    file.fork(100, 100, 101, at(100, 4, 0));
    let trace = frames(&[(0x12, &a)]);
    file.trace(0, u32::MAX, 100, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 1));
    // Each record has its own format; the bytes that fill it up are no trace.
    file.trace(0, u32::MAX, 101, &b);
    file.aux(0, b.len() as u64, 0x100, at(101, 6, 0));
    let file = file.file();
    assert_eq!(executed(&file, "prog-100", &[]).0, first);
    assert_eq!(executed(&file, "prog-101", &[]).0, second);
}

#[test]
fn buffers_say_whose_records_without_identifiers_are() {
    let (first, second) = (expected("etmv4", 0x10), expected("etmv4", 0x11));
    let traces = [0x10, 0x11].map(|id| frames(&[(id, &recorded("etmv4", id))]));
    // Records of one thread, and of two; perf saves a buffer after its records.
    for threads in [1, 2] {
        let anonymous = PerfData {
            anonymous: true,
            ..PerfData::default()
        };
        let mut file = program_of(anonymous);
        file.info(1, &[(ETMV4, 0, etmv4(0x10)), (ETMV4, 1, etmv4(0x11))]);
        if threads > 1 {
            file.fork(100, 100, 101, at(100, 4, 0));
        }
        for (tid, trace) in (100..100 + threads).zip(&traces) {
            file.aux(0, trace.len() as u64, 0, at(tid, 5, 0));
            file.trace(0, u32::MAX, tid, trace);
        }
        for bytes in [file.file(), file.piped()] {
            let (found, said) = executed(&bytes, "prog-100", &[]);
            assert_eq!(found, first, "{threads} threads: {said}");
            assert!(!said.contains("are not in the file"), "{said}");
            if threads > 1 {
                assert_eq!(executed(&bytes, "prog-101", &[]).0, second);
            }
        }
    }
}

#[test]
fn truncated_records_are_gaps() {
    let expected = expected("etmv4", 0x10);
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let half = trace.len() as u64 / 32 * 16;
    let mut file = process();
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    file.trace(0, 0, 0, &[&trace[..half as usize], &trace[..]].concat());
    file.aux(0, half, 1, at(100, 5, 0));
    file.aux(half, trace.len() as u64, 0, at(100, 6, 0));
    let (found, said) = executed(&file.file(), "prog-100", &[]);
    assert!(
        said.contains("1 AUX record truncated: trace is missing after each"),
        "{said}"
    );
    let (before, after) = found.split_at(found.len() - expected.len());
    assert_eq!(after, expected);
    assert!(
        !before.is_empty() && before.len() < expected.len(),
        "{}",
        before.len()
    );
    assert_eq!(before[..before.len() - 1], expected[..before.len() - 1]);
}

#[test]
fn files_of_big_endian_systems() {
    let mut plain = process();
    plain.info(2, &[0, 1].map(|cpu| (ETMV4, cpu, etmv4(1 << 31 | 0x7F))));
    for cpu in 0..2 {
        plain.hardware_id(1 << 56 | u64::from(cpu) << 8 | 0x10, at(100, 3, cpu));
    }
    plain.fork(100, 100, 101, at(100, 4, 0));
    plain.comm("worker", false, at(101, 5, 0));
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    plain.trace(0, 0, 0, &trace);
    plain.aux(0, trace.len() as u64, 0, at(101, 11, 0));
    plain.event(LOST, 0, &words(&[1, 3]), at(100, 12, 0));
    let swapped = big_endian(&plain.file());
    assert!(swapped.starts_with(b"2ELIFREP"));
    let (found, said) = executed(&swapped, "worker-101", &[]);
    assert_eq!(found, expected("etmv4", 0x10));
    assert!(said.contains("3 records lost"), "{said}");
}

#[test]
fn ptm_of_both_layouts() {
    let name = "ptm";
    let elf = testdata("recorded/ptm/cores-a15-bare-a15.elf");
    let (out, _) = decoded(
        &testdata("recorded").join(name),
        &["--elf", elf.to_str().unwrap()],
    );
    let expected = flow(&out, |element| element["trace_id"] == 0x10);
    assert!(expected.len() > 8);
    let trace = frames(&[(0x12, &recorded(name, 0x10))]);
    for version in [0, 1] {
        let mut file = PerfData::default();
        file.comm("prog", true, at(100, 1, 0));
        // The file's first page of code, as it is linked.
        use object::{Object, ObjectSegment};
        let bytes = fs::read(&elf).unwrap();
        let parsed = object::File::parse(&*bytes).unwrap();
        for segment in parsed.segments() {
            let (offset, size) = segment.file_range();
            let path = "/bin/cores-a15-bare-a15.elf";
            file.map(path, segment.address(), size, offset, &[], at(100, 2, 0));
        }
        let unit = vec![0, 0x12, 0x34C0_1AC2, 0x411C_F312];
        file.info(version, &[(ETMV3, 0, unit)]);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
        let symfs = testdata("recorded/ptm");
        let options = ["--symfs", symfs.to_str().unwrap()];
        let (found, _) = executed(&file.file(), "prog-100", &options);
        assert_eq!(found, expected, "version {version}");
    }
}

#[test]
fn faults_are_one_message() {
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let good = |info: fn(&mut PerfData)| {
        let mut file = process();
        info(&mut file);
        file.trace(0, 0, 0, &trace);
        file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
        file
    };
    let whole = good(|file| file.info(1, &[(ETMV4, 0, etmv4(0x10))])).file();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    let other = |kind: u32| {
        let mut file = process();
        file.records
            .extend(framed(70, 0, &words(&[u64::from(kind), 1, 0, 0])));
        file.file()
    };
    let mut tiny = whole.clone();
    let at_record = 256 + 6;
    tiny[at_record..at_record + 2].copy_from_slice(&[4, 0]);
    for (bytes, says) in [
        (good(|_| {}).file(), "it has no AUXTRACE_INFO record"),
        (
            good(|file| file.info(3, &[])).file(),
            "AUXTRACE_INFO of version 3",
        ),
        (
            good(|file| file.info(1, &[(5, 0, vec![])])).file(),
            "block 0 begins with 0x5",
        ),
        // The trace ID in the block is not used, and no record gives another.
        (
            good(|file| file.info(2, &[(ETMV4, 0, etmv4(0x8000_0000))])).file(),
            "no CPU has a trace ID, as the AUX_OUTPUT_HW_ID records are missing",
        ),
        (
            other(1),
            "AUX trace of type 1 (Intel PT): expected 3 (CoreSight)",
        ),
        (
            whole[..60].to_vec(),
            "the section of attributes begins at 0x70, beyond the file",
        ),
        (tiny, "with 4 bytes"),
        (b"PERFILE2".to_vec(), "the file ends in its header"),
    ] {
        fs::write(&path, bytes).unwrap();
        let mut command = armsnap();
        command.arg("info").arg(&path);
        let output = run(&mut command);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{says}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(says), "{says}: {said}");
        let at_start = said.contains("at byte 0x0: AUXTRACE_INFO");
        assert!(!at_start, "{says}: {said}");
    }
    // Cut anywhere, there is a message, or what came before is used.
    for length in (100..whole.len()).step_by(37) {
        fs::write(&path, &whole[..length]).unwrap();
        let output = run(armsnap().arg("info").arg(&path));
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{length}: {}",
            text(&output)
        );
    }
}

#[test]
fn sizes_of_lost_trace_are_added_without_limit() {
    let mut file = process();
    file.info(2, &[(ETMV4, 0, etmv4(0x10))]);
    for _ in 0..2 {
        file.aux(0, u64::MAX, 0, at(100, 11, 0));
    }
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("perf.data");
    std::fs::write(&input, file.file()).unwrap();
    let output = run(armsnap().arg("info").arg(&input));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let wanted = "its trace was lost: 36893488147419103230 bytes of 2 AUX records";
    assert!(said.contains(wanted), "{said}");
}
