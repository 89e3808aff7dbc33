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

/// The recorded trace with an unformatted buffer for each of both trace units, which have the same ID.
fn unformatted(into: &Path, id: u8) {
    let recorded = testdata("recorded/etmv4");
    fs::create_dir(into).unwrap();
    for entry in fs::read_dir(&recorded).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), into.join(entry.file_name())).unwrap();
    }
    let trace = fs::read(recorded.join("trace.bin")).unwrap();
    for unit in 0..2 {
        let text = fs::read_to_string(into.join(format!("trace_{unit}.ini"))).unwrap();
        let own = format!("TRCTRACEIDR={:#010x}", 0x10 + unit);
        assert!(text.contains(&own), "{text}");
        let text = text.replace(&own, &format!("TRCTRACEIDR={id:#x}"));
        fs::write(into.join(format!("trace_{unit}.ini")), text).unwrap();
        fs::write(
            into.join(format!("{unit}.bin")),
            payload(&trace, 0x10 + unit),
        )
        .unwrap();
    }
    let buffer = |n: u8| format!("[buffer{n}]\nname=ETB_{n}\nfile={n}.bin\nformat=source_data\n\n");
    let text = format!(
        "[trace_buffers]\nbuffers=buffer0,buffer1\n\n{}{}[core_trace_sources]\n\
         Cortex-A57_0=ETMV4_0\nCortex-A57_1=ETMV4_1\n\n\
         [source_buffers]\nETMV4_0=ETB_0\nETMV4_1=ETB_1\n",
        buffer(0),
        buffer(1)
    );
    fs::write(into.join("trace.ini"), text).unwrap();
}

/// The bytes of a trace ID in formatter frames (CoreSight Architecture Specification, formatter).
fn payload(trace: &[u8], wanted: u8) -> Vec<u8> {
    let (mut id, mut out) = (0, Vec::new());
    for frame in trace.chunks_exact(16) {
        for at in 0..15 {
            let aux = frame[15] >> (at / 2) & 1;
            match (at % 2, frame[at]) {
                (0, byte) if byte & 1 == 1 => {
                    // With the auxiliary bit the new ID applies after the next byte.
                    let next = byte >> 1;
                    if aux == 1 && at < 14 {
                        if id == wanted {
                            out.push(frame[at + 1]);
                        }
                    } else if at < 14 && next == wanted {
                        out.push(frame[at + 1]);
                    }
                    id = next;
                }
                (0, byte) if id == wanted => out.push(byte | aux),
                (1, byte) if frame[at - 1] & 1 == 0 && id == wanted => out.push(byte),
                _ => {}
            }
        }
    }
    out
}

#[test]
fn cores_get_ids_of_their_own_in_perf_data() {
    for id in [0, 0x10] {
        let scratch = tempfile::tempdir().unwrap();
        let snapshot = scratch.path().join("snapshot");
        unformatted(&snapshot, id);
        let file = scratch.path().join("perf.data");
        convert(&snapshot, &file, &[]);
        let (recorded, back) = (runs(&snapshot), runs(&file));
        assert!(recorded["ETMV4_1"].len() > 8);
        let wanted: Vec<_> = recorded.values().collect();
        assert_eq!(back.values().collect::<Vec<_>>(), wanted, "{id:#x}");
    }
}

/// A snapshot of one core with these registers and dumps.
fn one_core(directory: &Path, kind: &str, registers: &str, dumps: &[(u64, usize)]) {
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).unwrap();
    write(
        "snapshot.ini",
        b"[snapshot]\nversion=1.0\n\n[device_list]\ndevice0=core.ini\n",
    );
    let mut text = format!("[device]\nname=cpu\nclass=core\ntype={kind}\n\n[regs]\n{registers}\n");
    for (number, (address, length)) in dumps.iter().enumerate() {
        write(&format!("{number}.bin"), &vec![0xA5; *length]);
        text += &format!("[dump{number}]\nfile={number}.bin\naddress={address:#x}\n");
    }
    write("core.ini", text.as_bytes());
}

#[test]
fn core_files_have_no_unknown_vectors_and_no_placeholders() {
    let directory = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("out.core");
    let general: String = (0..31).map(|n| format!("X{n}={n}\n")).collect();
    let state = format!("{general}SP=0x1000\nPC=0x1000\nCPSR=0x3c5\n");
    one_core(directory.path(), "Cortex-A53", &state, &[(0x1000, 64)]);
    let said = convert(directory.path(), &file, &[]);
    assert!(!said.contains("unknown, 0"), "{said}");
    let back = out.path().join("back");
    let import = |file: &Path, back: &Path| {
        let output = run(armsnap().arg("import").args([file, back]));
        assert!(output.status.success(), "{}", text(&output));
        let core = fs::read_dir(back)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let texts = core.filter_map(|path| fs::read_to_string(path).ok());
        texts.collect::<String>()
    };
    let registers = import(&file, &back);
    assert!(
        registers.contains("X30") && !registers.contains("V0"),
        "{registers}"
    );
    // One of them is known: the others are listed.
    let more = format!("{state}V3(size:128)=0x10\n");
    one_core(directory.path(), "Cortex-A53", &more, &[(0x1000, 64)]);
    let said = convert(directory.path(), &file, &["--force"]);
    assert!(
        said.contains("unknown, 0 in the core file: v0, v1, v2, v4"),
        "{said}"
    );
    // Placeholders of a core that was not stopped.
    one_core(
        directory.path(),
        "Cortex-A53",
        "PC=0xffff0000\nSP=0\nCPSR=0x1c5\n",
        &[(0x1000, 64)],
    );
    let output = run(armsnap()
        .args(["convert", "--force"])
        .args([directory.path(), &file]));
    assert!(
        text(&output).contains("no core has a PC"),
        "{}",
        text(&output)
    );
}

/// A core file has one memory: where a core has other bytes than those in it, there is a note.
#[test]
fn core_files_have_the_memory_of_one_core() {
    let directory = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let dumps = [(0x1000, 64), (0x2000, 64)];
    one_core(
        directory.path(),
        "Cortex-A53",
        "X0=1\nSP=0x1000\nPC=0x1000\nCPSR=0x3c5\n",
        &dumps,
    );
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let list = "[snapshot]\nversion=1.0\n[device_list]\na=core.ini\nb=other.ini\n";
    write("snapshot.ini", list);
    let mut other = vec![0xa5; 64];
    other[60] = 1;
    fs::write(directory.path().join("other.bin"), other).unwrap();
    let head = "[device]\nname=second\nclass=core\ntype=Cortex-A53\n[regs]\nX0=2\nSP=0x2000\nPC=0x1004\nCPSR=0x3c5\n";
    for (dumps, at) in [
        ("[dump]\nfile=0.bin\naddress=0x1000\n", None),
        ("[dump]\nfile=1.bin\naddress=0x1000\n", None),
        ("[dump]\nfile=other.bin\naddress=0x2000\n", Some("0x203c")),
        ("[dump]\nfile=0.bin\naddress=0x1fc0\n", None),
        ("[dump]\nfile=other.bin\naddress=0x1fe0\n", Some("0x201c")),
    ] {
        write("other.ini", &format!("{head}{dumps}"));
        let said = convert(directory.path(), &out.path().join("out.core"), &["--force"]);
        let note = |at| {
            format!("second: its memory at {at} is not in the core file, which has that of cpu")
        };
        match at {
            None => assert!(!said.contains("is not in the core file"), "{dumps}: {said}"),
            Some(at) => assert!(said.contains(&note(at)), "{dumps}: {said}"),
        }
    }
}

#[test]
fn core_files_of_32_bits_end_at_4_gib() {
    let directory = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("out.core");
    let general: String = (0..13).map(|n| format!("R{n}={n}\n")).collect();
    let state = format!("{general}SP=0x1000\nLR=0\nPC=0x1000\nCPSR=0x1d3\n");
    let dumps = [(0x1000, 64), (0xffff_ffc0, 128), (0x1_0000_1000, 64)];
    one_core(directory.path(), "Cortex-A15", &state, &dumps);
    let said = convert(directory.path(), &file, &[]);
    assert!(
        said.contains("memory from 0x100000000 on is left out"),
        "{said}"
    );
    let elf = fs::read(&file).unwrap();
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap());
    let parts: Vec<_> = (1..elf[44] as usize)
        .map(|n| [8, 16].map(|at| word(52 + 32 * n + at)))
        .collect();
    assert_eq!(parts, [[0x1000, 64], [0xffff_ffc0, 64]]);
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
