//! `armsnap convert --trace`: the trace frames of a file become trace, which decodes to the
//! contents of the frames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::convert::{convert, listing, open};
use crate::support::gdb::{armsnap, run, shared, testdata, text};
use armsnap::capture::{Capture, Protocol};
use armsnap::tfile::{
    Block, ByteOrder, Description, File, Status, StopReason, Tracepoint, Variable, Writer,
};

/// The instructions of one or more sources in order, and the exceptions except the
/// entry to debug state.
fn flow(path: &Path, sources: &[&str]) -> (Vec<String>, Vec<(i64, String)>) {
    let (mut instructions, mut exceptions) = (Vec::new(), Vec::new());
    for line in listing(path, "instructions") {
        let of = |name: &&&str| line["source"] == **name;
        if !sources.is_empty() && !sources.iter().any(|name| of(&name)) {
            continue;
        }
        match line["kind"].as_str().unwrap() {
            "instruction" => instructions.push(format!(
                "{} {} {}",
                line["address"].as_str().unwrap(),
                line["isa"].as_str().unwrap(),
                line["bytes"].as_str().unwrap()
            )),
            // It also marks the end of execution before a gap.
            "exception"
                if line["name"]
                    .as_str()
                    .unwrap()
                    .to_lowercase()
                    .contains("halt") => {}
            "exception" => exceptions.push((
                line["number"].as_i64().unwrap(),
                line["return_address"].to_string(),
            )),
            _ => {}
        }
    }
    (instructions, exceptions)
}

/// Snapshot → trace file without the trace → snapshot with trace. Returns the directory that
/// contains both, the file and the snapshot.
fn there_and_back(
    snapshot: &Path,
    core: &str,
    kind: &str,
) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (file, back) = (directory.path().join("x.tf"), directory.path().join("back"));
    let options = [
        "--state-only",
        "--frames",
        kind,
        "--last",
        "1000000",
        "--core",
        core,
    ];
    convert(&options, [snapshot, &file]);
    convert(&["--trace"], [&file, &back]);
    (directory, file, back)
}

/// Captures and recordings: the core, and the sources of its trace.
type Traced = (&'static str, &'static str, &'static [&'static str]);

const CAPTURES: [Traced; 9] = [
    ("trace_cov_a15", "Cortex-A15_0", &[]),
    ("juno_r1_1", "cpu_5", &["ETM_5"]),
    ("TC2", "cpu_2", &["ETM_2"]),
    ("TC2", "cpu_3", &["PTM_0"]),
    ("trace_file_vmid", "cpu_0", &[]),
    ("ts_marker", "cpu_0", &[]),
    ("maxspec0_commopt1", "cpu_0", &[]),
    ("tme_simple", "cpu_0", &[]),
    ("ete_spec_1", "cpu_0", &[]),
];

const RECORDED: [Traced; 5] = [
    ("recorded/etmv4", "Cortex-A57_0", &["ETMV4_0"]),
    ("recorded/etmv4", "Cortex-A57_1", &["ETMV4_1"]),
    ("recorded/ptm", "Cortex-A15_0", &["PTM_0"]),
    ("recorded/ptm", "Cortex-A15_1", &["PTM_1"]),
    ("recorded/etmv3", "Cortex-M4_0", &["ETMV3_0"]),
];

/// The part of exceptions that is the same in ETMv4: PTM and ETMv3 have other numbers, and ETMv3
/// has no address.
fn alike(exceptions: Vec<(i64, String)>, protocol: Protocol) -> Vec<(Option<i64>, String)> {
    let numbered = !matches!(protocol, Protocol::Ptm | Protocol::Etmv3);
    let addressed = protocol != Protocol::Etmv3;
    let alike = exceptions.into_iter().map(|(number, address)| {
        let address = if addressed { address } else { String::new() };
        (numbered.then_some(number), address)
    });
    alike.collect()
}

/// The protocol of a core's trace.
fn protocol(snapshot: &Path, core: &str) -> Protocol {
    let loaded = open(snapshot);
    let core = loaded.snapshot.device_names().find(core).unwrap();
    let (capture, _) = Capture::open(&loaded);
    let (sources, _) = capture.following(&loaded.snapshot, core);
    sources[0].1.protocol
}

fn is_restored(captures: &[Traced], kind: &str) {
    for (name, core, sources) in captures {
        let Some(snapshot) = shared(name) else { return };
        let (_directory, _, back) = there_and_back(&snapshot, core, kind);
        let (wanted, exceptions) = flow(&snapshot, sources);
        let (found, found_exceptions) = flow(&back, &[]);
        assert!(!wanted.is_empty(), "{name}");
        let differs = wanted.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!(
            differs, None,
            "{name} {core} {kind}: {wanted:.8?} {found:.8?}"
        );
        assert_eq!(found.len(), wanted.len(), "{name} {core} {kind}");
        // Exceptions without trace after them have no frame.
        let protocol = protocol(&snapshot, core);
        let mut wanted = alike(exceptions, protocol).into_iter();
        for exception in &alike(found_exceptions, protocol) {
            assert!(
                wanted.any(|wanted| wanted == *exception),
                "{name} {exception:?}"
            );
        }
        let checked = run(armsnap().arg("check").arg(&back));
        assert!(checked.status.success(), "{name}: {}", text(&checked));
    }
}

#[test]
fn frames_at_waypoints_contain_the_whole_flow() {
    is_restored(&CAPTURES, "waypoints");
}

#[test]
fn frames_contain_the_whole_flow_of_recordings() {
    is_restored(&RECORDED, "waypoints");
    is_restored(&RECORDED, "instructions");
}

#[test]
fn frames_at_waypoints_contain_the_whole_flow_of_001_ack_test() {
    is_restored(&[("001-ack_test", "cpu_0", &[])], "waypoints");
}

#[test]
fn frames_of_instructions_contain_the_whole_flow() {
    is_restored(&CAPTURES[..3], "instructions");
    is_restored(&CAPTURES[6..], "instructions");
}

/// The variables of each frame after the first, by name, without the offset in the trace.
fn variables(file: &Path) -> Vec<BTreeMap<String, i64>> {
    let bytes = std::fs::read(file).unwrap();
    let file = File::open(&bytes, None).unwrap();
    let names: BTreeMap<i32, String> = file
        .description()
        .variables
        .iter()
        .map(|v| (v.number as i32, v.name.clone()))
        .collect();
    let frames = file.frames().skip(1).map(|frame| {
        let blocks = frame.unwrap().blocks();
        let values = blocks.filter_map(|block| match block {
            Block::Variable { number, value } => Some((names[&number].clone(), value)),
            _ => None,
        });
        values.filter(|(name, _)| name != "offset").collect()
    });
    frames.collect()
}

#[test]
fn time_and_context_are_kept() {
    for (name, core, wanted) in [
        ("trace_file_vmid", "cpu_0", &["vmid", "el"][..]),
        ("ts_marker", "cpu_0", &["timestamp"]),
        ("juno_r1_1", "cpu_1", &["context_id"]),
    ] {
        let Some(snapshot) = shared(name) else { return };
        let (directory, file, back) = there_and_back(&snapshot, core, "instructions");
        let again = directory.path().join("again.tf");
        let options = [
            "--frames",
            "instructions",
            "--last",
            "1000000",
            "--core",
            core,
        ];
        convert(&options, [&back, &again]);
        let (before, after) = (variables(&file), variables(&again));
        assert_eq!(before.len(), after.len(), "{name}");
        // The position of a packet within a straight line depends on the protocol.
        let changes = |frames: &[BTreeMap<String, i64>], name: &str| {
            let mut values: Vec<Option<i64>> = Vec::new();
            values.extend(frames.iter().map(|frame| frame.get(name).copied()));
            values.dedup();
            values
        };
        for variable in ["timestamp", "context_id", "vmid", "el", "security", "line"] {
            let (before, after) = (changes(&before, variable), changes(&after, variable));
            assert_eq!(before, after, "{name} {variable}");
        }
        for wanted in wanted {
            let has = |frame: &BTreeMap<String, i64>| frame.contains_key(*wanted);
            assert!(before.iter().any(has), "{name}: no {wanted}");
        }
    }
}

/// The reference decoder lists the same ranges of the new snapshot.
#[test]
fn the_reference_lists_the_same_ranges() {
    for (name, core, least) in [
        ("recorded/etmv4", "Cortex-A57_0", 100),
        ("recorded/ptm", "Cortex-A15_0", 100),
        ("recorded/etmv3", "Cortex-M4_0", 40),
        ("ts_marker", "cpu_0", 200),
    ] {
        let Some(snapshot) = shared(name) else {
            return;
        };
        let (_directory, _, back) = there_and_back(&snapshot, core, "waypoints");
        let mut lister = Command::new("trc_pkt_lister");
        lister
            .args(["-decode_only", "-logstdout", "-ss_dir"])
            .arg(&back);
        let output = text(&run(&mut lister));
        let ranges: Vec<String> = output
            .lines()
            .filter_map(|line| line.split_once("exec range=")?.1.split_once(']'))
            .map(|(range, _)| range.replace("[", ""))
            .collect();
        let wanted: Vec<String> = listing(&back, "elements")
            .iter()
            .filter(|line| line["kind"] == "range")
            .map(|line| {
                let text = |key: &str| line[key].as_str().unwrap().to_owned();
                format!("{}:{}", text("start"), text("end"))
            })
            .collect();
        assert!(ranges.len() > least, "{name}: {output:.2000}");
        assert_eq!(ranges, wanted, "{name}");
    }
}

/// `0x1000`: add; add; cbz x1, 0x1014; add; b 0x1018; 0x1014: nop; 0x1018: nop; bl 0x1020; 0x1020: ret
const CODE: [u32; 9] = [
    0x9100_0400,
    0x9100_0400,
    0xb400_0061,
    0x9100_0400,
    0x1400_0002,
    0xd503_201f,
    0xd503_201f,
    0x9400_0001,
    0xd65f_03c0,
];

const TARGET: &str = "<?xml version=\"1.0\"?><target version=\"1.0\">\
    <architecture>aarch64</architecture></target>";

/// A trace file of another writer: tracepoints at some addresses, and their frames, of which
/// the first contains the code.
fn foreign(points: &[u64], hits: &[usize], code: bool) -> Vec<u8> {
    let number = |index: usize| index as u32 + 1;
    let description = Description {
        register_bytes: 8,
        status: Some(Status {
            stop: Some(StopReason::Command(Some(String::new()))),
            frames: Some(hits.len() as u64),
            created: Some(hits.len() as u64),
            ..Status::default()
        }),
        tracepoints: points
            .iter()
            .enumerate()
            .map(|(index, &address)| Tracepoint {
                enabled: true,
                ..Tracepoint::at(number(index), address)
            })
            .collect(),
        variables: vec![Variable {
            number: 1,
            name: "cycles".to_owned(),
            ..Variable::default()
        }],
        target: Some(TARGET.to_owned()),
        ..Description::default()
    };
    let mut writer = Writer::new(Vec::new(), &description, ByteOrder::Little).unwrap();
    for (at, &hit) in hits.iter().enumerate() {
        if code {
            let index = (points[hit] - 0x1000) as usize / 4;
            writer.memory(points[hit], &CODE[index].to_le_bytes());
        }
        writer.variable(1, 100 * (at as i64 + 1));
        writer.end_frame(number(hit) as u16).unwrap();
    }
    writer.finish().unwrap()
}

/// A small program: an ELF file with the code above.
fn program(directory: &Path) -> PathBuf {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(2_u16.to_le_bytes());
    file.extend(183_u16.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [0x1000_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let size = 4 * CODE.len() as u64;
    file.extend(1_u32.to_le_bytes());
    file.extend(5_u32.to_le_bytes());
    for word in [120_u64, 0x1000, 0x1000, size, size, 4] {
        file.extend(word.to_le_bytes());
    }
    file.extend(CODE.iter().flat_map(|word| word.to_le_bytes()));
    let path = directory.join("program.elf");
    std::fs::write(&path, file).unwrap();
    path
}

/// The ranges and other elements that a foreign file becomes, in short form.
fn elements(points: &[u64], hits: &[usize], with_code: bool) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (file, back) = (directory.path().join("x.tf"), directory.path().join("back"));
    std::fs::write(&file, foreign(points, hits, with_code)).unwrap();
    let elf = program(directory.path());
    let mut options = vec!["--trace"];
    if !with_code {
        options.extend(["--elf", elf.to_str().unwrap()]);
    }
    convert(&options, [&file, &back]);
    let lines = listing(&back, "elements").into_iter();
    lines
        .filter_map(|line| match line["kind"].as_str().unwrap() {
            "range" => Some(format!(
                "{}-{}",
                line["start"].as_str().unwrap(),
                line["end"].as_str().unwrap()
            )),
            "trace_on" => Some("gap".to_owned()),
            "exception" => Some(format!("halt {}", line["return_address"].as_str().unwrap())),
            _ => None,
        })
        .collect()
}

#[test]
fn the_code_determines_the_path_between_frames_of_other_writers() {
    // A straight line, with a program for the code, all of which is in the snapshot.
    assert_eq!(
        elements(&[0x1000, 0x1008], &[0, 1], false),
        ["gap", "0x1000-0x1008", "halt 0x1008"]
    );
    // The branch was not taken, as the next frame shows.
    assert_eq!(
        elements(&[0x1000, 0x100c, 0x1014], &[0, 1], false),
        ["gap", "0x1000-0x100c", "0x100c-0x1010", "halt 0x1010"]
    );
    // It was taken.
    assert_eq!(
        elements(&[0x1000, 0x100c, 0x1014], &[0, 2], false),
        ["gap", "0x1000-0x100c", "0x1014-0x1018", "halt 0x1018"]
    );
    // Both paths lead there, so the path is unknown.
    assert_eq!(
        elements(&[0x1000, 0x1018], &[0, 1], false),
        [
            "gap",
            "0x1000-0x1004",
            "halt 0x1004",
            "gap",
            "0x1018-0x101c",
            "halt 0x101c"
        ]
    );
    // A direct call; the code does not determine where it returns.
    assert_eq!(
        elements(&[0x1018, 0x1020, 0x1000], &[0, 1, 2], false),
        [
            "gap",
            "0x1018-0x1020",
            "0x1020-0x1024",
            "gap",
            "0x1000-0x1004",
            "halt 0x1004"
        ]
    );
    // Only the code of the frames themselves.
    assert_eq!(
        elements(&[0x1000, 0x1004, 0x100c], &[0, 1, 2], true),
        [
            "gap",
            "0x1000-0x1008",
            "halt 0x1008",
            "gap",
            "0x100c-0x1010",
            "halt 0x1010"
        ]
    );
}

#[test]
fn files_that_give_no_trace_report_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("code.tf"), foreign(&[0x1000], &[0], false)).unwrap();
    std::fs::write(at("none.tf"), foreign(&[0x1000], &[], false)).unwrap();
    let own = testdata("virt-a57");
    for (options, input, status, wanted) in [
        (
            &["--trace"][..],
            at("code.tf"),
            1,
            "none of 1 trace frames has a program counter and code",
        ),
        (&["--trace"], at("none.tf"), 1, "no complete trace frame"),
        (
            &["--trace"],
            own.clone(),
            2,
            "--trace: the input is a snapshot",
        ),
        (
            &["--arch", "arm"],
            own,
            2,
            "--arch: the input is a snapshot",
        ),
        (
            &["--arch", "arm"],
            at("code.tf"),
            1,
            "tdesc: it says AArch64, and --arch says AArch32",
        ),
        (
            &["--trace", "--elf", "/nowhere"],
            at("code.tf"),
            1,
            "/nowhere",
        ),
    ] {
        let mut command = armsnap();
        command
            .arg("convert")
            .args(options)
            .arg(&input)
            .arg(at("out"));
        let output = run(&mut command);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
        assert!(
            text(&output).contains(wanted),
            "{wanted}: {}",
            text(&output)
        );
        assert!(!at("out").exists());
    }
    // The trace carried in a file is replaced, with a note.
    let Some(snapshot) = shared("trace_cov_a15") else {
        return;
    };
    convert(&[], [&snapshot, &at("whole.tf")]);
    let said = convert(&["--trace"], [&at("whole.tf"), &at("made")]);
    assert!(said.contains("the carried trace is left out"), "{said}");
    assert!(
        said.contains("trace of 20 frames, with 1 gap between them"),
        "{said}"
    );
}

#[test]
fn damaged_files_cause_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let (file, back) = (directory.path().join("x.tf"), directory.path().join("back"));
    let Some(snapshot) = shared("trace_cov_a15") else {
        return;
    };
    convert(
        &["--state-only", "--frames", "waypoints"],
        [&snapshot, &file],
    );
    let bytes = std::fs::read(&file).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % damaged.len();
            damaged[at] = (state >> 32) as u8;
        }
        std::fs::write(&file, &damaged).unwrap();
        let mut command = armsnap();
        command.args(["convert", "--trace", "--force", "--frame", "3"]);
        let output = run(command.arg(&file).arg(&back));
        assert!(
            matches!(output.status.code(), Some(0..=2)),
            "{}",
            text(&output)
        );
    }
}
