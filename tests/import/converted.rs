//! Snapshots converted to perf.data and core files: other programs read the same in them.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn convert(from: &Path, to: &Path, options: &[&str]) -> String {
    let output = run(armsnap().arg("convert").args([from, to]).args(options));
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// The executed runs by trace source: first and last address, and whether the last branches.
fn runs(input: &Path) -> BTreeMap<String, Vec<(u64, u64, bool, bool)>> {
    let mut command = armsnap();
    command.args(["decode", "--format", "jsonl"]).arg(input);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut after_gap = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let element: Value = serde_json::from_str(line).unwrap();
        let source = element["source"].as_str().unwrap().to_owned();
        match element["kind"].as_str().unwrap() {
            "trace_on" | "no_sync" | "exception" => {
                after_gap.insert(source, true);
            }
            "range" => {
                let number = |field: &str| {
                    let text = element[field].as_str().unwrap();
                    u64::from_str_radix(&text[2..], 16).unwrap()
                };
                let gap = after_gap.insert(source.clone(), false).unwrap_or(true);
                // perf lists no barriers.
                let branch =
                    ["branch", "indirect"].contains(&element["last"]["kind"].as_str().unwrap());
                let taken = branch && element["last"]["taken"] == true;
                let runs = out.entry(source).or_default();
                runs.push((number("start"), number("end"), taken, gap));
            }
            _ => {}
        }
    }
    out
}

/// The recorded ETMv4 trace as that of an ETE, which has the same packets for it.
fn as_ete(into: &Path) -> PathBuf {
    let recorded = testdata("recorded/etmv4");
    fs::create_dir(into).unwrap();
    for entry in fs::read_dir(recorded).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), into.join(entry.file_name())).unwrap();
    }
    for unit in ["trace_0.ini", "trace_1.ini"] {
        let text = fs::read_to_string(into.join(unit)).unwrap();
        let lines = text
            .lines()
            .map(|line| match line.split(['=', '(']).next().unwrap() {
                "type" => "type=ETE".to_owned(),
                // ARM DDI 0487, TRCIDR1.TRCARCHMAJ and TRCDEVARCH of ETEv1.0.
                "TRCIDR1" => "TRCIDR1=0x4100fff0".to_owned(),
                "TRCDEVARCH" => "TRCDEVARCH=0x47705a13".to_owned(),
                _ => line.to_owned(),
            });
        fs::write(into.join(unit), lines.collect::<Vec<_>>().join("\n")).unwrap();
    }
    into.to_owned()
}

#[test]
fn perf_decodes_the_branches_that_were_recorded() {
    for (name, sources) in [
        ("etmv4", ["ETMV4_0", "ETMV4_1"]),
        ("ete", ["ETMV4_0", "ETMV4_1"]),
        ("ptm", ["PTM_0", "PTM_1"]),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let snapshot = match name {
            "ete" => as_ete(&scratch.path().join("ete")),
            name => testdata("recorded").join(name),
        };
        let (first, second) = (
            scratch.path().join("a.perf.data"),
            scratch.path().join("perf.data"),
        );
        convert(&snapshot, &first, &[]);
        convert(&snapshot, &second, &["--perf-version", "2"]);
        let recorded = runs(&snapshot);
        for (version, file) in [(1, &first), (2, &second)] {
            let back = runs(file);
            let back: Vec<_> = back.values().collect();
            let recorded: Vec<_> = sources.iter().map(|source| &recorded[*source]).collect();
            assert_eq!(back, recorded, "{name} version {version}");
        }
        let mut perf = Command::new("perf");
        perf.args(["script", "-f", "--itrace=b", "-F", "tid,ip,addr", "-i"])
            .arg(&first);
        if perf.output().is_err() {
            crate::support::skip::missing("perf is not installed");
            return;
        }
        let output = run(&mut perf);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Couldn't find"), "{said}");
        let mut theirs: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let edge = (number(words[1]), number(words[3]));
            if edge.0 != 0 && edge.1 != 0 {
                theirs
                    .entry(words[0].parse().unwrap())
                    .or_default()
                    .push(edge);
            }
        }
        for (source, (_, theirs)) in sources.iter().zip(&theirs) {
            let runs = &recorded[*source];
            // perf names a branch by its first byte; the length of the last instruction is not in
            // the listing.
            let ours: Vec<(u64, u64)> = runs
                .windows(2)
                .filter(|pair| pair[0].2 && !pair[1].3)
                .map(|pair| (pair[0].1, pair[1].0))
                .collect();
            assert!(theirs.len() > 8, "{name} {source}: {}", theirs.len());
            let near: Vec<bool> = ours
                .iter()
                .zip(theirs)
                .map(|(ours, theirs)| {
                    [2, 4].contains(&ours.0.wrapping_sub(theirs.0)) && ours.1 == theirs.1
                })
                .collect();
            assert_eq!(
                near,
                vec![true; ours.len().min(theirs.len())],
                "{name} {source}"
            );
            assert!(
                ours.len() - theirs.len() <= 1,
                "{name}: {} {}",
                ours.len(),
                theirs.len()
            );
        }
        assert_eq!(theirs.len(), 2, "{name}");
    }
}

#[test]
fn gdb_opens_the_core_file_of_a_snapshot() {
    need_gdb();
    for (name, program) in [
        ("etmv4", "program.elf"),
        ("ptm", "cores-a15-bare-a15.elf"),
        ("etmv3", "program.elf"),
    ] {
        let snapshot = testdata("recorded").join(name);
        let scratch = tempfile::tempdir().unwrap();
        let core = scratch.path().join("state.core");
        convert(&snapshot, &core, &[]);
        let commands = ["bt", "info registers sp", "x/4xw $sp"];
        let shown = |said: &str| -> Vec<String> {
            let lines = said.lines().map(|line| line.trim_end().to_owned());
            let shown = lines.filter(|line| {
                line.starts_with('#') || line.starts_with("sp ") || line.starts_with("0x")
            });
            // The first frame is shown when the state is opened.
            let shown: Vec<String> = shown.collect();
            let bt = shown
                .iter()
                .rposition(|line| line.starts_with("#0"))
                .unwrap();
            shown[bt..].to_vec()
        };
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"])
            .arg(snapshot.join(program))
            .arg(&core);
        for command in commands {
            gdb.args(["-ex", command]);
        }
        let own = shown(&text(&run(&mut gdb)));
        assert!(own.len() >= 3, "{name}: {own:?}");
        assert_eq!(own, shown(&session(&snapshot, &[], &commands)), "{name}");
    }
}

#[test]
fn what_they_cannot_hold_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let plain = testdata("virt-a57");
    let output = run(armsnap()
        .arg("convert")
        .arg(&plain)
        .arg(scratch.path().join("perf.data")));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("no trace that follows a core"),
        "{}",
        text(&output)
    );
    assert!(!scratch.path().join("perf.data").exists());
    let trace = testdata("recorded/etmv4");
    let output = run(armsnap()
        .arg("convert")
        .args([&trace, &scratch.path().join("a.core")])
        .args(["--last", "3"]));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}
