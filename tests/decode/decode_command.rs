//! `armsnap decode`: programs, files, exit status, processor cores.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use armsnap::formatter::encode::Encoder;
use armsnap::quantity::TraceId;

fn decode(snapshot: &Path, arguments: &[&str]) -> Output {
    Command::new(crate::support::armsnap())
        .arg("decode")
        .arg(snapshot)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Lines of the standard output; the status must be 0.
#[track_caller]
fn lines(snapshot: &Path, arguments: &[&str]) -> Vec<String> {
    let output = decode(snapshot, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn snapshot(directory: &Path, files: &[(&str, &str)], trace: &[u8]) {
    let mut list = "[snapshot]\nversion=1.0\n[device_list]\n".to_owned();
    for (name, content) in files {
        if *name != "trace.ini" {
            list += &format!("{name}={name}\n");
        }
        fs::write(directory.join(name), content).unwrap();
    }
    list += "[trace]\nmetadata=trace.ini\n";
    fs::write(directory.join("snapshot.ini"), list).unwrap();
    fs::write(directory.join("trace.bin"), trace).unwrap();
}

/// IHI 0064, TRCCONFIGR: VMIDOPT chooses between VTTBR_EL2.VMID and CONTEXTIDR_EL2.
#[test]
fn virtual_contexts_have_the_name_of_what_they_are() {
    let mut trace = vec![0; 11];
    trace.extend([
        0x80, 0x01, 0x00, 0x04, // A-sync, trace info, trace on
        0x85, 0x2f, 0x02, 0x10, 0x40, 0, 0, 0, 0, // 0x401004bc
        0x72, 0x34, 0x12, 0, 0, 0xf7, // EL2, 64 bits, VMID; an atom
    ]);
    for (configuration, name) in [("0x81", "VMID 0x1234"), ("0x8081", "CONTEXTIDR_EL2 0x1234")] {
        let directory = tempfile::tempdir().unwrap();
        let source = format!(
            "[device]\nname=etm\nclass=trace_source\ntype=ETM4.2\n[regs]\n\
             TRCCONFIGR={configuration}\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\n\
             TRCIDR1=0x4100f420\nTRCIDR2=0x1088\n"
        );
        snapshot(
            directory.path(),
            &[
                (
                    "core.ini",
                    "[device]\nname=c\nclass=core\ntype=Cortex-A55\n",
                ),
                ("etm.ini", &source),
                (
                    "trace.ini",
                    "[trace_buffers]\nbuffers=b\n[b]\nname=etb\nfile=trace.bin\n\
                     format=source_data\n[source_buffers]\netm=etb\n\
                     [core_trace_sources]\nc=etm\n",
                ),
            ],
            &trace,
        );
        let found = lines(directory.path(), &["--level", "elements"]);
        let found = found.iter().any(|line| line.ends_with(name));
        assert!(found, "{configuration}");
        let found = lines(
            directory.path(),
            &["--level", "elements", "--format", "jsonl"],
        );
        let is_field = |line: &String| line.contains("\"vmid\":\"0x1234\"");
        assert!(found.iter().any(is_field), "{found:?}");
    }
}

/// Code of testdata/virt-a57, traced from `receipt` on. The dump ends inside the
/// function; the program is beside it.
fn receipt() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let system = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/virt-a57");
    for file in ["program.elf", "code.bin"] {
        fs::copy(system.join(file), path.join(file)).unwrap();
    }
    let mut trace = vec![0; 11];
    trace.extend([
        0x80, // A-sync
        0x01, 0x00, // trace info
        0x04, // trace on
        0x85, 0x2f, 0x02, 0x10, 0x40, 0, 0, 0, 0, 0x31, // 0x401004bc, EL1, non-secure
        0xf7, 0xf7, 0xf6, // b; b.ne taken, b.ne not taken
    ]);
    snapshot(
        path,
        &[
            (
                "cpu.ini",
                "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[dump]\nfile=code.bin\n\
                 address=0x40100000\nlength=0x4d4\n",
            ),
            (
                "etm.ini",
                "[device]\nname=ETM\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1\n\
                 TRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\nTRCIDR1=0x4100f403\nTRCIDR2=0x488\n\
                 TRCIDR8=0\n",
            ),
            (
                "trace.ini",
                "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat=source_data\n\
                 [core_trace_sources]\ncpu=ETM\n",
            ),
        ],
        &trace,
    );
    directory
}

const JSON: [&str; 2] = ["--format", "jsonl"];

#[test]
fn code_without_a_dump_is_read_from_the_program() {
    let directory = receipt();
    let output = decode(directory.path(), &JSON);
    let ranges: Vec<&str> = text(&output.stdout)
        .lines()
        .filter_map(|line| Some(line.split_once(r#""kind":"range","#)?.1.split_at(39).0))
        .collect();
    assert_eq!(
        ranges,
        [
            r#""start":"0x401004bc","end":"0x401004d0""#,
            r#""start":"0x401004dc","end":"0x401004f4""#,
            r#""start":"0x401004d0","end":"0x401004f4""#,
        ]
    );
    let notes = text(&output.stderr);
    assert!(
        notes.contains("cpu: no dump has 0x401004d4-0x4010084f: read from"),
        "{notes}"
    );
    let without = decode(
        directory.path(),
        &[&JSON[..], &["--no-elf-memory"]].concat(),
    );
    let missing = r#""kind":"memory_missing","address":"0x401004dc""#;
    assert!(text(&without.stdout).contains(missing));
    assert!(!text(&output.stdout).contains("memory_missing"));
}

#[test]
fn functions_and_source_lines_come_from_the_program() {
    let directory = receipt();
    let text = lines(directory.path(), &[]);
    assert!(
        text.iter()
            .any(|line| line.contains("0x401004dc-0x401004f4")
                && line.contains("conditional branch")
                && line.ends_with(" receipt+0x20")),
        "{text:#?}"
    );
    let text = lines(directory.path(), &["--level", "instructions"]);
    assert!(
        text.iter().any(|line| line.contains("14000004")
            && line.contains("b #0x401004dc")
            && line.contains(" receipt+0x10 ")
            && line.ends_with("main.c:34")),
        "{text:#?}"
    );
    let json = lines(
        directory.path(),
        &[&JSON[..], &["--level", "instructions"]].concat(),
    );
    let first: serde_json::Value = json
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|line: &serde_json::Value| line["kind"] == "instruction")
        .unwrap();
    assert_eq!(first["address"], "0x401004bc");
    assert_eq!(first["isa"], "A64");
    assert_eq!(first["bytes"], "ff8300d1");
    assert_eq!(first["text"], "sub sp, sp, #0x20");
    assert_eq!(first["function"], "receipt");
    assert_eq!(first["offset_in_function"], 0);
    assert_eq!(first["line"], 32);
    assert!(first["file"].as_str().unwrap().ends_with("main.c"));
}

/// Two ITMs in one formatted buffer, nearly 2 MB of text each.
fn two_itms(first_id: u32, second_id: u32) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let itm = |name: &str, id: u32| {
        let control = id << 16;
        format!(
            "[device]\nname={name}\nclass=trace_source\ntype=ITM\n[regs]\nITMTCR={control:#x}\n"
        )
    };
    let (mut encoder, mut trace) = (Encoder::new(), Vec::new());
    let sync = [0, 0, 0, 0, 0, 0x80];
    for id in [first_id, second_id] {
        encoder.write(TraceId(id as u8), &sync, &mut trace);
    }
    for n in 0..16_000_u32 {
        for id in [first_id, second_id] {
            // Stimulus port 1, one byte.
            encoder.write(TraceId(id as u8), &[0x09, (n + id) as u8], &mut trace);
        }
    }
    encoder.finish(&mut trace);
    snapshot(
        directory.path(),
        &[
            ("one.ini", &itm("ITM_1", first_id)),
            ("two.ini", &itm("ITM_2", second_id)),
            (
                "trace.ini",
                "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat=coresight\n",
            ),
        ],
        &trace,
    );
    directory
}

#[test]
fn the_output_does_not_depend_on_the_number_of_processor_cores() {
    let directory = two_itms(1, 2);
    for level in ["packets", "elements"] {
        let one = decode(
            directory.path(),
            &["--format", "jsonl", "--level", level, "--jobs", "1"],
        );
        assert!(one.stdout.len() > 3 << 20, "{}", one.stdout.len());
        for jobs in ["2", "7"] {
            let many = decode(
                directory.path(),
                &["--format", "jsonl", "--level", level, "--jobs", jobs],
            );
            assert!(many.stdout == one.stdout, "{level}, {jobs} jobs");
            assert_eq!(many.status.code(), Some(0));
        }
    }
}

#[test]
fn a_second_source_with_the_same_trace_id_is_left_out_with_a_note() {
    let directory = two_itms(3, 3);
    let output = decode(directory.path(), &JSON);
    let notes = text(&output.stderr);
    assert!(
        notes.contains("ITM_2: ITM_1 has its trace ID 0x03 in the same buffer: it is left out"),
        "{notes}"
    );
    assert!(!text(&output.stdout).contains("ITM_2"));
    assert!(text(&output.stdout).lines().count() > 32_000);
}

#[test]
fn exit_status_distinguishes_faulty_input_from_wrong_usage() {
    let directory = two_itms(1, 2);
    let path = directory.path();
    for (arguments, status, message) in [
        (&["--source", "ITM_1"][..], 0, ""),
        (
            &["--source", "ETM"],
            2,
            "no trace source \"ETM\"; there are: ITM_1, ITM_2",
        ),
        (
            &["--buffer", "ETR"],
            2,
            "no trace buffer \"ETR\"; there are: ETB",
        ),
        (&["--jobs", "0"], 2, "--jobs"),
        (&["--elf", "none.elf"], 1, "none.elf"),
    ] {
        let output = decode(path, arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(message),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
    fs::remove_file(path.join("trace.bin")).unwrap();
    let output = decode(path, &[]);
    assert_eq!(output.status.code(), Some(1), "a buffer without its file");
    assert!(text(&output.stderr).contains("trace.ini:3: [b] file \"trace.bin\""));
}

#[test]
fn a_file_appears_complete_and_overwrites_only_with_force() {
    let directory = two_itms(1, 2);
    let path = directory.path();
    let to = path.join("out.jsonl");
    let file = to.to_str().unwrap();
    let arguments = ["--format", "jsonl", "-o", file];
    assert!(lines(path, &arguments).is_empty());
    let whole = fs::read(&to).unwrap();
    assert_eq!(whole, decode(path, &JSON).stdout);

    fs::write(&to, "mine").unwrap();
    let refused = decode(path, &arguments);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(fs::read(&to).unwrap(), b"mine");
    assert_eq!(refused.stdout, b"");

    let forced = [&arguments[..], &["--force"]].concat();
    assert!(lines(path, &forced).is_empty());
    assert_eq!(fs::read(&to).unwrap(), whole);
    let left = fs::read_dir(path).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().contains(".part"));
    assert_eq!(left.count(), 0);

    // A device is written to, not replaced.
    assert!(lines(path, &["--format", "jsonl", "-o", "/dev/null"]).is_empty());
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn statistics_are_the_last_line_and_without_a_format_the_only_one() {
    let directory = two_itms(1, 2);
    let one = lines(directory.path(), &["--format", "none", "--stats"]);
    let many = lines(
        directory.path(),
        &["--format", "none", "--stats", "--jobs", "2"],
    );
    assert_eq!((one.len(), many.len()), (1, 1));
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let (one, many) = (read(&one[0]), read(&many[0]));
    let trace = fs::metadata(directory.path().join("trace.bin"))
        .unwrap()
        .len();
    for stats in [&one, &many] {
        assert_eq!(stats["bytes"], trace);
        assert_eq!(stats["packets"], 2 * 16_001);
        // And the two end elements.
        assert_eq!(stats["elements"], 2 * 16_000 + 2 + 2);
        assert_eq!(stats["ranges"], 0);
        assert_eq!(stats["instructions"], 0);
        for figure in ["cpu_seconds", "wall_seconds", "mb_per_s"] {
            assert!(stats[figure].is_number(), "{figure}");
        }
    }
}

#[test]
fn empty_buffers_and_buffers_of_several_files_are_decoded() {
    let directory = two_itms(1, 2);
    let path = directory.path();
    let one = lines(path, &JSON);
    let trace = fs::read(path.join("trace.bin")).unwrap();
    // Split inside a frame, and an empty file.
    let (first, second) = trace.split_at(16 * 100 + 7);
    fs::write(path.join("a.bin"), first).unwrap();
    fs::write(path.join("b.bin"), second).unwrap();
    fs::write(path.join("empty.bin"), "").unwrap();
    let buffer = |files: &str| {
        let text =
            format!("[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile={files}\nformat=coresight\n");
        fs::write(path.join("trace.ini"), text).unwrap();
    };
    buffer("a.bin,empty.bin,b.bin,empty.bin");
    // The order of lines of different sources may differ.
    let parts = lines(path, &JSON);
    for source in ["ITM_1", "ITM_2"] {
        let of = |lines: &[String]| -> Vec<String> {
            let own = lines.iter().filter(|line| line.contains(source));
            own.cloned().collect()
        };
        assert_eq!(of(&parts).len(), 16_002);
        assert!(of(&parts) == of(&one), "{source}");
    }
    buffer("empty.bin");
    let ends: Vec<String> = lines(path, &JSON);
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|line| line.contains(r#""kind":"end""#)));
}

/// The peak memory use in KiB, which the system reports after the program ended.
fn peak_memory(snapshot: &Path, arguments: &[&str]) -> u64 {
    let mut child = Command::new(crate::support::armsnap())
        .arg("decode")
        .arg(snapshot)
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (mut buffer, mut peak) = (vec![0; 1 << 16], 0);
    while std::io::Read::read(&mut out, &mut buffer).unwrap() > 0 {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        // The mapped trace counts as memory in use, although it can be released at any time.
        peak = peak.max(field("RssAnon:").unwrap_or(0));
    }
    assert!(child.wait().unwrap().success());
    assert!(peak > 0, "no memory in use was seen");
    peak
}

#[cfg(target_os = "linux")]
#[test]
fn memory_use_does_not_grow_with_the_trace() {
    let directory = two_itms(1, 2);
    let path = directory.path();
    for jobs in ["1", "2"] {
        let arguments = ["--format", "jsonl", "--jobs", jobs];
        let trace = fs::read(path.join("trace.bin")).unwrap();
        let small = peak_memory(path, &arguments);
        fs::write(path.join("trace.bin"), trace.repeat(8)).unwrap();
        let large = peak_memory(path, &arguments);
        fs::write(path.join("trace.bin"), &trace).unwrap();
        // The text of the larger trace is 33 MB.
        assert!(
            large < small + (12 << 10),
            "{jobs} jobs: {small} and {large} KiB"
        );
    }
}

fn one_source(kind: &str, registers: &str, trace: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = format!("[device]\nname=T\nclass=trace_source\ntype={kind}\n[regs]\n{registers}");
    snapshot(
        directory.path(),
        &[
            ("t.ini", &source),
            (
                "trace.ini",
                "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat=source_data\n",
            ),
        ],
        trace,
    );
    directory
}

/// For each program flow protocol: A-sync and first packets, then bytes that no trace unit
/// writes. The trace after the next A-sync decodes normally.
#[test]
fn decoding_continues_at_the_next_synchronisation_after_a_bad_packet() {
    let macrocell = |id: &str| format!("ETMCR=0\nETMCCER=0\nETMIDR={id}\nETMTRACEIDR=1\n");
    let etmv4 = "TRCCONFIGR=0x1\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\nTRCIDR1=0x4100f403\n\
                 TRCIDR2=0x488\nTRCIDR8=0\n";
    let short_sync = [0, 0, 0, 0, 0, 0x80];
    let long_sync = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
    for (kind, registers, sync, begin, bad) in [
        (
            "PTM1.1",
            macrocell("0x411cf312"),
            &short_sync[..],
            // I-sync at 0x80000554.
            &[0x08, 0x54, 0x05, 0x00, 0x80, 0x21][..],
            &[0x10, 0x55, 0xaa][..],
        ),
        (
            "ETM3.5",
            macrocell("0x410cf250"),
            &short_sync,
            // I-sync at 0x8000.
            &[0x08, 0x21, 0x01, 0x80, 0x00, 0x00],
            &[0x78, 0x55, 0xaa],
        ),
        (
            "ETM4",
            etmv4.to_owned(),
            &long_sync,
            // Trace info, trace on, 0x80000 in EL1, an atom.
            &[1, 0, 4, 0x85, 0, 0, 8, 0, 0, 0, 0, 0, 0x31, 0xf7],
            &[0x00, 0xf7, 0xf7],
        ),
    ] {
        let good = [sync, begin].concat();
        let read = |trace: &[u8]| -> Vec<serde_json::Value> {
            let directory = one_source(kind, &registers, trace);
            let lines = lines(directory.path(), &JSON);
            lines
                .iter()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        };
        let undisturbed = read(&good);
        assert_eq!(undisturbed[0]["reason"], "start", "{kind}");
        assert_eq!(undisturbed[1]["kind"], "trace_on", "{kind}");
        let disturbed = read(&[&good, bad, &good].concat());
        let lost = disturbed
            .iter()
            .position(|line| line["reason"] == "bad_packet")
            .unwrap_or_else(|| panic!("{kind}: {disturbed:#?}"));
        assert_eq!(disturbed[lost]["offset"], good.len(), "{kind}");
        // An unchanged context is not traced again.
        let others = |lines: &[serde_json::Value]| -> Vec<serde_json::Value> {
            let lines = lines.iter().filter(|line| line["kind"] != "context");
            lines.cloned().collect()
        };
        let (first, again) = (others(&undisturbed[1..]), others(&disturbed[lost + 1..]));
        let shift = (good.len() + bad.len()) as u64;
        assert_eq!(again.len(), first.len(), "{kind}");
        for (again, first) in again.iter().zip(&first) {
            let mut moved = first.clone();
            moved["offset"] = (first["offset"].as_u64().unwrap() + shift).into();
            assert_eq!(*again, moved, "{kind}");
        }
    }
}

#[test]
fn a_stream_number_is_added_to_the_trace_id() {
    let directory = two_itms(1, 2);
    let path = directory.path();
    let text = "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat=coresight\n\
                [source_buffers]\nITM_1(stream:1)=ETB\n";
    fs::write(path.join("trace.ini"), text).unwrap();
    let found = lines(path, &JSON);
    assert_eq!(found.len(), 16_002);
    assert!(found[1].starts_with(r#"{"source":"ITM_1","buffer":"ETB","trace_id":2,"#));
    // The first byte of the source with ID 2.
    assert!(
        found[1].ends_with(r#""port":1,"bytes":1,"value":"0x2"}"#),
        "{}",
        found[1]
    );
}

#[cfg(unix)]
#[test]
fn closing_the_output_early_is_not_an_error() {
    let directory = two_itms(1, 2);
    for jobs in ["1", "2"] {
        let mut child = Command::new(crate::support::armsnap())
            .arg("decode")
            .arg(directory.path())
            .args(["--format", "jsonl", "--jobs", jobs])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{jobs} jobs");
        assert!(!text(&output.stderr).contains("roken pipe"));
    }
}

/// Two cores that execute the same program, dumped with the first one only.
fn shared_code() -> tempfile::TempDir {
    let directory = receipt();
    let path = directory.path();
    fs::remove_file(path.join("program.elf")).unwrap();
    let dump = "[dump]\nfile=code.bin\naddress=0x40100000\n";
    let core = |name: &str| format!("[device]\nname={name}\nclass=core\ntype=Cortex-A57\n");
    fs::write(path.join("cpu.ini"), core("traced")).unwrap();
    fs::write(path.join("other.ini"), core("dumped") + dump).unwrap();
    let list = fs::read_to_string(path.join("snapshot.ini")).unwrap();
    let list = list.replace("cpu.ini=cpu.ini", "cpu.ini=cpu.ini\nother=other.ini");
    fs::write(path.join("snapshot.ini"), list).unwrap();
    let trace = fs::read_to_string(path.join("trace.ini")).unwrap();
    fs::write(
        path.join("trace.ini"),
        trace.replace("cpu=ETM", "traced=ETM"),
    )
    .unwrap();
    directory
}

#[test]
fn code_dumped_with_another_core_is_used_with_a_note() {
    let directory = shared_code();
    let missing = r#""kind":"memory_missing""#;
    for jobs in ["1", "2"] {
        let arguments = [&JSON[..], &["--jobs", jobs]].concat();
        let output = decode(directory.path(), &arguments);
        assert!(text(&output.stdout).contains(r#""start":"0x401004dc","end":"0x401004f4""#));
        assert!(!text(&output.stdout).contains(missing));
        let notes: Vec<&str> = text(&output.stderr).lines().collect();
        let notes_on_memory = notes
            .iter()
            .filter(|note| note.contains("memory of dumped"));
        assert_eq!(notes_on_memory.count(), 1, "{notes:#?}");
        assert!(
            notes.iter().all(|note| note.contains("--no-shared-memory")),
            "{notes:#?}"
        );
    }
    let alone = decode(
        directory.path(),
        &[&JSON[..], &["--no-shared-memory"]].concat(),
    );
    assert!(text(&alone.stdout).contains(missing));
    assert!(
        !text(&alone.stderr).contains("dumped"),
        "{}",
        text(&alone.stderr)
    );
    let info = |arguments: &[&str]| {
        let mut command = Command::new(crate::support::armsnap());
        let output = command
            .arg("info")
            .arg(directory.path())
            .args(arguments)
            .output();
        text(&output.unwrap().stdout).to_owned()
    };
    assert!(
        info(&[]).contains("memory of dumped is shown"),
        "{}",
        info(&[])
    );
    assert!(!info(&["--no-shared-memory"]).contains("memory of dumped"));
}

#[test]
fn an_elf_file_named_as_a_dump_is_read_as_the_program() {
    let r5f = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/captures/r5f"
    ));
    if !r5f.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return;
    }
    let option = format!("--elf {}/files/freertos.out", r5f.display());
    let output = decode(r5f, &["--format", "none", "--stats"]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(stats["instructions"].as_u64().unwrap() > 232_000, "{stats}");
    let notes = text(&output.stderr);
    assert_eq!(notes.matches(&option).count(), 1, "{notes}");
    for command in ["info", "check"] {
        let mut program = Command::new(crate::support::armsnap());
        let output = program.arg(command).arg(r5f).output().unwrap();
        let said = text(&output.stdout);
        assert_eq!(said.matches(&option).count(), 1, "{command}: {said}");
    }
}

/// With TRCCONFIGR.INSTP0, loads and stores have atoms: a flow that expects only branches would
/// read these atoms as those of branches.
#[test]
fn without_a_flow_where_loads_have_atoms() {
    let trace = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 4, 0x85, 0, 0, 8, 0, 0, 0, 0, 0, 0x31, 0xf7,
    ];
    // The field exists only if TRCIDR0.INSTP0 says so.
    for (idr0, is_followed) in [("0x28000ea1", true), ("0x28000ea7", false)] {
        let registers = format!(
            "TRCCONFIGR=0x7\nTRCTRACEIDR=0x10\nTRCIDR0={idr0}\nTRCIDR1=0x4100f403\n\
             TRCIDR2=0x488\nTRCIDR8=0\n"
        );
        let directory = one_source("ETM4", &registers, &trace);
        let output = decode(directory.path(), &[]);
        let (text, notes) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{notes}");
        let note =
            "T: loads or stores have atoms (TRCCONFIGR.INSTP0): its program flow is not followed";
        assert_eq!(notes.contains(note), !is_followed, "{notes}");
        assert_eq!(text.contains("memory_missing"), is_followed, "{text}");
    }
}
