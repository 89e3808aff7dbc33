//! `perf.data` of a phone, beside the profile that simpleperf made of it and Debian's perf.

use crate::capture;
use crate::perf_generated::listed as elements;
use crate::support::gdb::{armsnap, run, session, text};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A run of instructions, or a branch: first and last address, counted from the program's start.
type Edge = (u64, u64);

/// The address in a field.
fn address(element: &serde_json::Value, field: &str) -> u64 {
    let text = element[field].as_str().unwrap();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// The golden profile: ranges with counts, and branches with counts.
fn golden(path: &Path) -> (BTreeMap<Edge, u64>, BTreeMap<Edge, u64>) {
    let text = std::fs::read_to_string(path).unwrap();
    let (mut ranges, mut branches) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines().filter(|line| !line.starts_with("//")) {
        let Some((edge, count)) = line.split_once(':') else {
            continue;
        };
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let count = count.parse().unwrap();
        if let Some((from, to)) = edge.split_once("->") {
            branches.insert((number(from), number(to)), count);
        } else if let Some((first, last)) = edge.split_once('-') {
            ranges.insert((number(first), number(last)), count);
        }
    }
    (ranges, branches)
}

#[test]
fn ranges_and_branches_equal_the_profile_of_simpleperf() {
    let Some(directory) = capture("perf") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let (input, written) = (
        directory.join("perf_etm.data"),
        scratch.path().join("snapshot"),
    );
    let symfs = directory.to_str().unwrap();
    let mut import = armsnap();
    import
        .arg("import")
        .args([&input, &written])
        .args(["--symfs", symfs]);
    let output = run(&mut import);
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains("perf.data of simpleperf: 1 core (etm_test_loop-17235)"),
        "{said}"
    );
    let missing =
        "missing image: /system/lib64/libc++.so (build-id 038d4ab0b4ef91c520d94f73693c8c14)";
    assert_eq!(said.matches(missing).count(), 1, "{said}");

    let (ranges, branches) = golden(&directory.join("perf_inject.data"));
    let direct = elements(&input, &["--symfs", symfs]);
    for elements in [&direct, &elements(&written, &[])] {
        // The program was mapped there.
        let base = 0x58_2b2b_0000;
        let (mut found, mut jumps) = (BTreeMap::new(), BTreeMap::new());
        let mut from = None;
        for element in elements {
            match element["kind"].as_str().unwrap() {
                "trace_on" | "no_sync" => from = None,
                "range" => {
                    let (begin, end) = (address(element, "start"), address(element, "end"));
                    // The profile names a run by its last instruction.
                    let run = (begin - base, end - 4 - base);
                    *found.entry(run).or_default() += 1_u64;
                    if let Some(from) = from {
                        *jumps.entry((from, run.0)).or_default() += 1_u64;
                    }
                    from = (element["last"]["taken"] == true).then_some(run.1);
                }
                _ => {}
            }
        }
        assert_eq!(found, ranges);
        for (edge, count) in branches.iter().filter(|((_, to), _)| *to != 0) {
            assert_eq!(jumps.get(edge), Some(count), "{edge:x?}");
        }
        if let Some(perf) = perf_branches(&input, &directory) {
            let perf: BTreeMap<Edge, u64> = perf
                .into_iter()
                .map(|((from, to), count)| ((from - base, to - base), count))
                .collect();
            assert_eq!(jumps, perf);
        }
    }
}

/// The branches that Debian's perf decodes, with their counts; those without a source or a target
/// are starts and ends of the trace.
fn perf_branches(input: &Path, programs: &Path) -> Option<BTreeMap<Edge, u64>> {
    let tree = tempfile::tempdir().unwrap();
    let place = tree.path().join("data/local/tmp");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(programs.join("etm_test_loop"), place.join("etm_test_loop")).unwrap();
    let mut perf = Command::new("perf");
    perf.args(["script", "-f", "--itrace=b", "-F", "ip,addr", "-i"]);
    perf.arg(input).arg("--symfs").arg(tree.path());
    if perf.output().is_err() {
        crate::support::skip::unavailable("perf is not installed");
        return None;
    }
    let output = run(&mut perf);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut branches = BTreeMap::new();
    for line in text.lines() {
        let number = |text: &str| u64::from_str_radix(text.trim(), 16).unwrap();
        let (from, to) = line.split_once("=>").unwrap();
        let edge = (number(from), number(to));
        if edge.0 != 0 && edge.1 != 0 {
            *branches.entry(edge).or_default() += 1;
        }
    }
    assert!(
        !branches.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(branches)
}

#[test]
fn gdb_walks_backward_in_a_perf_data_file() {
    let Some(directory) = capture("perf") else {
        return;
    };
    let input = directory.join("perf_etm.data");
    let symfs = directory.to_str().unwrap();
    let said = session(
        &input,
        &["--symfs", symfs],
        &[
            "reverse-stepi",
            "x/i $pc",
            "reverse-stepi",
            "x/i $pc",
            "break *0x582b2b1074",
            "reverse-continue",
            "info symbol $pc",
        ],
    );
    let before = "=> 0x582b2b10b0 <main+36>:\tret\n";
    assert!(said.contains(before), "{said}");
    let at = said.find(before).unwrap();
    assert!(
        said[at..].contains("=> 0x582b2b10ac <main+32>:\tadd"),
        "{said}"
    );
    assert!(
        said[at..].contains("Breakpoint 1, 0x000000582b2b1074"),
        "{said}"
    );
    assert!(!directory.join("snapshot.ini").exists());
}

#[test]
fn packets_of_a_raw_trbe_buffer_equal_those_of_perf() {
    let Some(directory) = capture("perf") else {
        return;
    };
    let input = directory.join("perf_with_unformatted_trace.data");
    let mut decode = armsnap();
    decode.args(["decode", "--level", "packets"]).arg(&input);
    let output = run(&mut decode);
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let ours: Vec<(u64, String)> = lines
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let at = words.next().unwrap().parse().unwrap();
            (at, words.nth(1).unwrap().to_owned())
        })
        .collect();
    // By hand, from the bytes of the file (DDI 0487, D4: ETE packets).
    let expected = [
        (0, "async"),
        (12, "trace_info"),
        (14, "trace_on"),
        (15, "address_with_context_64"),
        (29, "atom_f3"),
        (30, "long_address_64"),
        (39, "trace_on"),
        (40, "address_with_context_64"),
        (54, "atom_f6"),
    ];
    for (ours, (at, name)) in ours.iter().zip(expected) {
        assert_eq!((ours.0, &*ours.1), (at, name));
    }
    // The context is the virtual one: the kernel ran at EL2.
    assert!(lines.contains("vmid=0x13f"), "{lines}");
    assert_eq!(ours.last().unwrap().0, 67, "{lines}");
    let scratch = tempfile::tempdir().unwrap();
    let indexed = scratch.path().join("perf.data");
    std::fs::write(&indexed, with_index(std::fs::read(&input).unwrap())).unwrap();
    let mut perf = Command::new("perf");
    perf.args(["report", "-D", "-f", "-i"]).arg(&indexed);
    if perf.output().is_err() {
        crate::support::skip::unavailable("perf is not installed");
        return;
    }
    let dump = text(&run(&mut perf));
    let theirs: Vec<u64> = dump
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("Idx:")?
                .split(';')
                .next()?
                .parse()
                .ok()
        })
        .collect();
    let ours: Vec<u64> = ours.into_iter().map(|(at, _)| at).collect();
    assert_eq!(ours, theirs);
}

/// The file with an index of its AUXTRACE records in perf's own form (feature 18: count, then
/// offset and size of each), without which perf treats raw trace as formatted. simpleperf writes
/// another form.
fn with_index(mut file: Vec<u8>) -> Vec<u8> {
    let word =
        |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (begin, size) = (word(&file, 40), word(&file, 48));
    let mut at = begin;
    let mut found = Vec::new();
    while at < begin + size {
        let kind = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let length = usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
        let after = if kind == 71 { word(&file, at + 8) } else { 0 };
        if kind == 71 {
            found.extend([at as u64, length as u64]);
        }
        at += length + after;
    }
    let before = (0..18)
        .filter(|bit| word(&file, 72) >> bit & 1 == 1)
        .count();
    assert!(
        word(&file, 72) >> 18 & 1 == 1,
        "the file has an index of simpleperf's"
    );
    let entry = begin + size + 16 * before;
    let place = file.len() as u64;
    let index: Vec<u8> = std::iter::once(found.len() as u64 / 2)
        .chain(found)
        .flat_map(u64::to_le_bytes)
        .collect();
    file[entry..entry + 8].copy_from_slice(&place.to_le_bytes());
    file[entry + 8..entry + 16].copy_from_slice(&(index.len() as u64).to_le_bytes());
    file.extend(index);
    file
}

#[test]
fn lost_trace_is_one_clear_message() {
    let Some(directory) = capture("perf") else {
        return;
    };
    let input = directory.join("perf_with_missing_aux_data.data");
    let scratch = tempfile::tempdir().unwrap();
    let written = scratch.path().join("snapshot");
    for command in ["import", "decode", "info", "check"] {
        let mut armsnap = armsnap();
        armsnap.arg(command).arg(&input);
        if command == "import" {
            armsnap.arg(&written);
        }
        let output = run(&mut armsnap);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = text(&output);
        assert_eq!(said.lines().count(), 1, "{command}: {said}");
        assert!(
            said.contains(
                "its trace was lost: 1535344 bytes of 6 AUX records are in no AUXTRACE record"
            ),
            "{said}"
        );
    }
    assert!(!written.exists());
}
