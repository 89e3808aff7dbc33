//! GDB sessions with trace frames: a served snapshot is a finished trace run.

use std::path::{Path, PathBuf};

use crate::support::convert::{RECORDED, convert};
use crate::support::gdb::{armsnap, run, session, shared, text};
use armsnap::convert::trace_run::{Options, TraceRun};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use armsnap::tfile::{self, Block};

const TC2: &str = "tc2-ptm-rstk-t32";
const ACK: &str = "001-ack_test";
/// The first core of each recording.
const FIRST: [&str; 3] = ["Cortex-A57_0", "Cortex-A15_0", "Cortex-M4_0"];

/// The trace run of the core at `device`, from the decoder.
fn decoded(snapshot: &Path, device: usize) -> TraceRun {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let mut notes = Vec::new();
    let options = Options::default();
    let run = TraceRun::of(&loaded, device, false, &options, &mut notes, &mut |_, _| {});
    let run = run.unwrap();
    assert!(run.frames() > 40, "{} frames", run.frames());
    run
}

/// The output of GDB between marks, one entry for each list of commands.
fn answers(snapshot: &Path, options: &[&str], lists: &[Vec<String>]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    let mut lines = String::new();
    for commands in lists {
        lines += "echo @@\n";
        for command in commands {
            lines += command;
            lines += "\necho \\n\n";
        }
    }
    lines += "echo @@\n";
    std::fs::write(&script, lines).unwrap();
    let text = session(
        snapshot,
        options,
        &[&format!("source {}", script.display())],
    );
    let parts: Vec<String> = text.split("@@").map(|p| p.replace("\n\n", "\n")).collect();
    assert_eq!(parts.len(), lists.len() + 2, "{text}");
    parts[1..=lists.len()].to_vec()
}

fn list(commands: &[&str]) -> Vec<String> {
    commands
        .iter()
        .map(|command| (*command).to_owned())
        .collect()
}

/// Returns GDB's position after some commands, which start outside of all frames: GDB for AArch32 does
/// not leave a frame with an unknown stack pointer in another way.
fn places(snapshot: &Path, moves: &[Vec<String>]) -> Vec<String> {
    let lists: Vec<Vec<String>> = moves
        .iter()
        .map(|moves| {
            let mut commands = list(&["tfind none"]);
            commands.extend(moves.iter().cloned());
            commands
                .push("printf \"%d %d %#lx %d\", $trace_frame, $tracepoint, $pc, $offset".into());
            commands
        })
        .collect();
    let answers = answers(snapshot, &[], &lists);
    let last = |text: &String| {
        text.trim_end()
            .lines()
            .last()
            .unwrap_or_default()
            .to_owned()
    };
    answers.iter().map(last).collect()
}

/// The same from the decoder.
fn place(run: &TraceRun, frame: usize) -> String {
    let pc = run.pc(frame).unwrap().0;
    let instruction = run.instruction(frame).unwrap();
    format!("{frame} 2 {pc:#x} {}", instruction.offset.0)
}

fn tfind_by_number_finds_the_decoders_frames(name: &str) {
    let Some(snapshot) = shared(name) else { return };
    let run = decoded(&snapshot, 0);
    let last = run.frames() - 1;
    // The frames are spread over the trace without a regular pattern.
    let mut frames: Vec<usize> = (0..40).map(|n| 1 + n * n * 7919 % last).collect();
    frames.extend([1, 2, last]);
    let moves: Vec<_> = frames.iter().map(|f| vec![format!("tfind {f}")]).collect();
    for (frame, found) in frames.iter().zip(places(&snapshot, &moves)) {
        assert_eq!(found, place(&run, *frame));
    }
}

#[test]
fn tfind_by_number_in_tc2() {
    tfind_by_number_finds_the_decoders_frames(TC2);
}

#[test]
fn tfind_by_number_in_recordings() {
    for name in RECORDED {
        tfind_by_number_finds_the_decoders_frames(name);
    }
}

#[test]
fn tfind_by_number_in_001_ack_test() {
    tfind_by_number_finds_the_decoders_frames(ACK);
}

#[test]
fn tfind_searches_find_the_decoders_frames() {
    let Some(snapshot) = shared(ACK) else { return };
    let run = decoded(&snapshot, 0);
    let pc = |frame: usize| run.pc(frame).unwrap().0;
    let find = |from: usize, is: &dyn Fn(u64) -> bool| {
        (from..run.frames()).find(|frame| is(pc(*frame))).unwrap()
    };
    let middle = run.frames() / 2;
    let here = pc(middle);
    let (low, high) = (here.saturating_sub(0x40), here + 0x40);
    let again = find(middle + 1, &|pc| pc == here);
    let inside = find(1, &|pc| (low..=high).contains(&pc));
    let outside = find(middle + 1, &|pc| !(low..=high).contains(&pc));
    let cases = [
        (list(&["tfind 0", "tfind"]), 1),
        (list(&["tfind 1", "tfind", "tfind"]), 3),
        (
            vec![format!("tfind {middle}"), "tfind -".into()],
            middle - 1,
        ),
        (list(&["tfind 0", "tfind tracepoint 2"]), 1),
        (
            vec![format!("tfind {middle}"), "tfind tracepoint".into()],
            middle + 1,
        ),
        (
            vec![format!("tfind {middle}"), format!("tfind pc {here:#x}")],
            again,
        ),
        (vec![format!("tfind {middle}"), "tfind pc".into()], again),
        (
            vec!["tfind 0".into(), format!("tfind range {low:#x}, {high:#x}")],
            inside,
        ),
        (
            vec![
                format!("tfind {middle}"),
                format!("tfind outside {low:#x}, {high:#x}"),
            ],
            outside,
        ),
    ];
    let moves: Vec<_> = cases.iter().map(|(moves, _)| moves.clone()).collect();
    for ((moves, frame), found) in cases.iter().zip(places(&snapshot, &moves)) {
        assert_eq!(found, place(&run, *frame), "{moves:?}");
    }
}

#[test]
fn tfind_fails_for_missing_frames() {
    let Some(snapshot) = shared(ACK) else { return };
    let frames = decoded(&snapshot, 0).frames();
    let answers = answers(
        &snapshot,
        &[],
        &[
            vec![
                "tfind 1".into(),
                format!("tfind {frames}"),
                "p $trace_frame".into(),
            ],
            list(&["tfind 1", "tfind pc 0x3", "p $trace_frame"]),
            list(&["tfind 1", "tfind tracepoint 1", "p $trace_frame"]),
        ],
    );
    for answer in answers {
        assert!(answer.contains("No trace frame found"), "{answer}");
        assert!(answer.contains("= -1"), "{answer}");
    }
}

#[test]
fn a_frame_of_the_trace_has_pc_code_and_variables() {
    let Some(snapshot) = shared(TC2) else { return };
    let run = decoded(&snapshot, 0);
    let instruction = run.instruction(3).unwrap();
    let pc = instruction.pc.0;
    let text = session(
        &snapshot,
        &[],
        &[
            "tfind 3",
            "p/x $pc",
            "p $sp",
            "p $cpsr",
            "p $SCTLR",
            &format!("x/1xh {pc:#x}"),
            &format!("x/1xw {:#x}", pc + 0x100),
            "tdump",
            "info tvariables",
        ],
    );
    let half = u16::from_le_bytes([instruction.code[0], instruction.code[1]]);
    for wanted in [
        format!("= {pc:#x}"),
        format!(":\t{half:#06x}"),
        "Data collected at tracepoint 2, trace frame 3".to_owned(),
        format!("$offset = {}", instruction.offset.0),
        "$cycles = void".to_owned(),
    ] {
        assert!(text.contains(&wanted), "{wanted}: {text}");
    }
    assert_eq!(text.matches("<unavailable>").count(), 4, "{text}");
    let offset = text
        .lines()
        .find(|line| line.starts_with("$offset  "))
        .unwrap();
    assert!(
        offset
            .trim_end()
            .ends_with(&format!(" {}", instruction.offset.0)),
        "{text}"
    );
}

/// The halted state before any `tfind`, in its own trace frame, and after `tfind none`.
#[test]
fn trace_frames_do_not_change_the_session() {
    for (name, memory) in [
        (TC2, "$sp"),
        ("a57_single_step", "0xFFFEB448"),
        (ACK, "0x10000"),
    ] {
        let Some(snapshot) = shared(name) else { return };
        let read = format!("x/8xw {memory}");
        let state = list(&[
            "bt 3",
            "info registers",
            "output/x $pc",
            &read,
            "info threads",
        ]);
        let with = |before: &[&str], after: &[&str]| {
            let mut commands = list(before);
            commands.push("echo ---\\n".into());
            commands.extend(state.clone());
            commands.push("echo ---\\n".into());
            commands.extend(list(after));
            commands
        };
        let answers = answers(
            &snapshot,
            &[],
            &[
                with(&[], &[]),
                with(&["tfind 0"], &["tfind none"]),
                with(&["tfind 2", "tfind none"], &[]),
                with(&["tfind 2", "tfind end"], &[]),
            ],
        );
        let shown = |text: &String| text.split("---").nth(1).unwrap().to_owned();
        let first = shown(&answers[0]);
        assert!(first.contains("#0") && first.contains("pc  "), "{first}");
        // A core without a halted state is at the end of its trace; frame 0 contains nothing of it.
        let state = if name == ACK {
            &answers[2..]
        } else {
            &answers[1..]
        };
        for answer in state {
            assert_eq!(shown(answer), first, "{name}");
        }
    }
}

#[test]
fn the_trace_run_has_finished_and_has_two_tracepoints() {
    let Some(snapshot) = shared(ACK) else { return };
    let run = decoded(&snapshot, 0);
    let instructions = run.instructions().len();
    // In `armsnap gdb`, GDB has no tracepoints.
    let server = crate::support::gdb::Server::start(&snapshot, &[], 1);
    let commands = ["tstatus", "info tracepoints", "monitor trace"];
    let text = crate::support::gdb::attach(&server.addresses[0], &commands);
    for wanted in [
        "Trace stopped by a tstop command (snapshot)".to_owned(),
        format!("Collected {} trace frames", run.frames()),
        "tracepoint already hit 1 time\n".to_owned(),
        format!("tracepoint already hit {instructions} times"),
        format!("trace of cpu_0: {} trace frames", run.frames()),
    ] {
        assert!(text.contains(&wanted), "{wanted}: {text}");
    }
}

/// Moving and listing threads leave the trace frames.
#[test]
fn a_move_leaves_the_trace_frame() {
    let Some(snapshot) = shared(ACK) else { return };
    let text = session(
        &snapshot,
        &[],
        &["tfind 2", "tfind none", "continue", "p/x $pc"],
    );
    assert_eq!(crate::support::gdb::ends_of_history(&text), 1, "{text}");
    // There is no halted state: history ends with the trace.
    assert!(text.contains("= 0xa10c0"), "{text}");
}

/// Tracepoint, variables and memory.
type Held = (u16, Vec<(i32, i64)>, Vec<(u64, Vec<u8>)>);

/// Frames without the registers of the halted state.
fn frames(bytes: &[u8]) -> Vec<Held> {
    let file = tfile::File::open(bytes, None).unwrap();
    let frames = file.frames().map(|frame| {
        let frame = frame.unwrap();
        let mut values = Vec::new();
        let mut memory = Vec::new();
        for block in frame.blocks() {
            match block {
                Block::Variable { number, value } => values.push((number, value)),
                Block::Memory { address, bytes } => memory.push((address, bytes.to_vec())),
                Block::Registers(_) => {}
                Block::Unreadable { kind, at } => panic!("{}: {kind} at {at}", frame.number),
            }
        }
        (frame.tracepoint, values, memory)
    });
    frames.collect()
}

/// The register block of the halted state.
fn registers(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = tfile::File::open(bytes, None).unwrap();
    let mut blocks = file.frame(0).unwrap().unwrap().blocks();
    blocks.find_map(|block| match block {
        Block::Registers(bytes) => Some(bytes.to_vec()),
        _ => None,
    })
}

/// The addresses of tracepoints, by number.
fn tracepoints(bytes: &[u8]) -> Vec<(u32, u64)> {
    let file = tfile::File::open(bytes, None).unwrap();
    let all = file.description().tracepoints.iter();
    let mut all: Vec<_> = all.map(|t| (t.number, t.address)).collect();
    all.sort_unstable();
    all
}

#[test]
fn tsave_writes_the_same_frames_as_convert() {
    let step = "a57_single_step";
    for (name, core, least) in [
        ("recorded/etmv4", "Cortex-A57_0", 100),
        ("recorded/ptm", "Cortex-A15_0", 100),
        ("recorded/etmv3", "Cortex-M4_0", 40),
        (TC2, "Cortex-A15_0", 1000),
        (ACK, "cpu_0", 1000),
        (step, "Cortex-A57_0", 2),
    ] {
        let Some(snapshot) = shared(name) else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { directory.path().join(name) };
        let (saved, converted) = (path("saved.tf"), path("converted.tf"));
        // This also holds after a frame was selected.
        let save = format!("tsave {}", saved.display());
        session(&snapshot, &[], &["tfind 2", "tfind none", &save]);
        convert(&["--core", core], [&snapshot, &converted]);
        let (saved, converted) = (
            std::fs::read(saved).unwrap(),
            std::fs::read(converted).unwrap(),
        );
        let (ours, theirs) = (frames(&saved), frames(&converted));
        assert_eq!(ours.len(), theirs.len(), "{name}");
        assert!(ours.len() >= least);
        assert!(ours == theirs, "{name}: frames differ");
        // GDB does not save system registers, which it reads one by one.
        match (registers(&saved), registers(&converted)) {
            (Some(saved), Some(converted)) => {
                assert!(saved.len() >= 64, "{name}: {}", saved.len());
                assert!(converted.starts_with(&saved), "{name}: {saved:02x?}");
            }
            (saved, converted) => {
                assert_eq!((saved, converted, name), (None, None, ACK));
            }
        }
        assert_eq!(tracepoints(&saved), tracepoints(&converted), "{name}");
        let variables = |bytes: &[u8]| {
            let file = tfile::File::open(bytes, None).unwrap();
            file.description().variables.clone()
        };
        assert_eq!(variables(&saved).len(), 14);
        for variable in variables(&saved) {
            let same = variables(&converted)
                .into_iter()
                .find(|v| v.number == variable.number);
            assert_eq!(same.unwrap().name, variable.name);
        }
    }
}

#[test]
fn a_served_trace_file_of_001_ack_test_has_the_same_frames() {
    a_trace_file_is_served(ACK, "cpu_0");
}

#[test]
fn served_trace_files_of_recordings_have_the_same_frames() {
    for (name, core) in RECORDED.into_iter().zip(FIRST) {
        a_trace_file_is_served(name, core);
    }
}

fn a_trace_file_is_served(name: &str, core: &str) {
    let Some(snapshot) = shared(name) else { return };
    let run = decoded(&snapshot, 0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.tf");
    convert(&["--core", core], [&snapshot, &file]);
    let place = |frame: usize| {
        let pc = run.pc(frame).unwrap().0;
        let (tracepoint, instruction) = (run.tracepoint(frame), run.instruction(frame).unwrap());
        // The maximum number of tracepoints reported to GDB; otherwise one.
        assert!(run.description().tracepoints.len() <= 1000);
        format!("{frame} {tracepoint} {pc:#x} {}", instruction.offset.0)
    };
    let last = run.frames() - 1;
    // A frame whose address occurs again, in the middle or earlier.
    let pc = |frame: usize| run.pc(frame).unwrap().0;
    let middle = (1..=run.frames() / 2).rev();
    let mut middle = middle.filter(|&here| (here + 1..=last).any(|frame| pc(frame) == pc(here)));
    let middle = middle.next().unwrap();
    let here = pc(middle);
    let again = (middle + 1..=last).find(|frame| pc(*frame) == here);
    let other = (middle + 1..=last).find(|frame| pc(*frame) != here);
    let (again, other) = (again.unwrap(), other.unwrap());
    let begin = format!("tfind {middle}");
    let after = |next: &str| vec![begin.clone(), next.to_owned()];
    let cases = [
        (list(&["tfind 1"]), 1),
        (vec![format!("tfind {last}")], last),
        (after("tfind"), middle + 1),
        (after("tfind -"), middle - 1),
        (after("tfind pc"), again),
        (after("tfind tracepoint"), again),
        (after(&format!("tfind outside {here:#x}, {here:#x}")), other),
    ];
    let moves: Vec<_> = cases.iter().map(|(moves, _)| moves.clone()).collect();
    for ((moves, frame), found) in cases.iter().zip(places(&file, &moves)) {
        assert_eq!(found, place(*frame), "{moves:?}");
    }
    // GDB saves the same contents.
    let saved = directory.path().join("saved.tf");
    session(&file, &[], &[&format!("tsave {}", saved.display())]);
    let (saved, file) = (std::fs::read(saved).unwrap(), std::fs::read(file).unwrap());
    assert_eq!(frames(&saved).len(), run.frames());
    assert!(frames(&saved) == frames(&file), "frames differ");
    assert_eq!(tracepoints(&saved), tracepoints(&file));
}

#[test]
fn registers_and_memory_of_a_trace_file_come_from_its_frames() {
    let Some(snapshot) = shared(TC2) else { return };
    let run = decoded(&snapshot, 0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tc2.tf");
    convert(&["--core", "Cortex-A15_0"], [&snapshot, &file]);
    let state = [
        "output/x $pc",
        "output/x $sp",
        "x/4xw $sp",
        "x/4xh $pc",
        "bt 3",
    ];
    let state = list(&state);
    let mut in_frame = list(&["tfind 0"]);
    in_frame.extend(state.clone());
    in_frame.push("tfind none".into());
    let lists = [state, in_frame];
    let of_file = answers(&file, &[], &lists);
    assert_eq!(of_file, answers(&snapshot, &[], &lists));
    let instruction = run.instruction(7).unwrap();
    let commands = ["tfind 7", "p/x $pc", "p $sp", "p $r0", "x/xw 0x80040000"];
    let text = session(&file, &[], &commands);
    assert!(text.contains(&format!("= {}", instruction.pc)), "{text}");
    assert_eq!(text.matches("<unavailable>").count(), 3, "{text}");
}

#[test]
fn unusable_trace_files_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.tf");
    let target = "tdesc <target><architecture>aarch64</architecture></target>\n";
    for (rest, wanted) in [
        ("", "ends without an empty line"),
        ("\n\0\0", "no target description"),
        (
            &format!("{target}\n\0\0"),
            "none of its first trace frames has a program counter",
        ),
    ] {
        std::fs::write(&file, format!("\x7fTRACE0\nR 8\n{rest}")).unwrap();
        let output = run(armsnap().args(["serve", "--stdio"]).arg(&file));
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains(wanted), "{}", text(&output));
    }
    let output = run(armsnap()
        .args(["serve", "--stdio", "--core", "a"])
        .arg(&file));
    assert_eq!(output.status.code(), Some(2));
}

/// A snapshot with ETE trace made by hand: from the start of `main`, six taken branches.
fn with_trace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    for name in [
        "cpu_0.ini",
        "cpu_1.ini",
        "code.bin",
        "data.bin",
        "program.elf",
    ] {
        std::fs::copy(
            crate::support::gdb::testdata("virt-a57").join(name),
            place(name),
        )
        .unwrap();
    }
    let list =
        std::fs::read_to_string(crate::support::gdb::testdata("virt-a57").join("snapshot.ini"))
            .unwrap();
    let list = list + "device3=ete.ini\n[trace]\nmetadata=trace.ini\n";
    std::fs::write(place("snapshot.ini"), list).unwrap();
    let ete = "[device]\nname=ETE\nclass=trace_source\ntype=ETE\n[regs]\nTRCCONFIGR=0x1\n\
               TRCTRACEIDR=0x2\nTRCDEVARCH=0x47705a13\nTRCIDR0=0x8000aa1\nTRCIDR1=0x4100fff0\n\
               TRCIDR2=0xc0001088\nTRCIDR8=0x0\n";
    std::fs::write(place("ete.ini"), ete).unwrap();
    let trace = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=trace.bin\nformat=source_data\n\
                 [source_buffers]\nETE=B\n[core_trace_sources]\nCortex-A57_0=ETE\n";
    std::fs::write(place("trace.ini"), trace).unwrap();
    // A-sync, trace info, trace on, address 0x40100700 with context, atoms E.
    let mut bytes = vec![0; 11];
    bytes.extend([
        0x80, 0x01, 0x01, 0x00, 0x04, 0x82, 0x40, 0x03, 0x10, 0x40, 0x31,
    ]);
    bytes.extend([0xf7; 6]);
    std::fs::write(place("trace.bin"), bytes).unwrap();
    directory
}

#[test]
fn frames_have_source_lines() {
    let snapshot = with_trace();
    // From the disassembly of the program: the executed branches and their lines.
    let wanted = [
        (1, 0x4010_0728, 84),
        (2, 0x4010_0768, 84),
        (3, 0x4010_074c, 85),
        (4, 0x4010_0400, 18),
        (5, 0x4010_0470, 23),
        (6, 0x4010_04a0, 26),
    ];
    let says = |frame: usize| {
        let (number, pc, line) = wanted[frame - 1];
        format!("{number} {pc:#x} {line}")
    };
    let cases = [
        (list(&["tfind 1"]), 1),
        (list(&["tfind 2"]), 2),
        (list(&["tfind 3"]), 3),
        (list(&["tfind 4"]), 4),
        (list(&["tfind 5"]), 5),
        (list(&["tfind 6"]), 6),
        (list(&["tfind 2", "tfind line"]), 3),
        (list(&["tfind line main.c:85"]), 3),
        (list(&["tfind 3", "tfind line"]), 4),
        (list(&["tfind start", "tfind pc insert+0x88"]), 5),
    ];
    let lists = cases.iter().map(|(moves, _)| {
        let mut commands = list(&["tfind none"]);
        commands.extend(moves.clone());
        commands.push("printf \"%d %#lx %d\", $trace_frame, $pc, $trace_line".to_owned());
        commands
    });
    let lists: Vec<_> = lists.collect();
    let answers = answers(snapshot.path(), &[], &lists);
    for ((moves, frame), answer) in cases.iter().zip(answers) {
        let last = answer.trim_end().lines().last().unwrap_or_default();
        assert_eq!(last, says(*frame), "{moves:?}: {answer}");
    }
}

/// GDB gives most replies two seconds: only `tfind` and `monitor` may take longer.
#[test]
fn large_trace_is_decoded_on_request() {
    let snapshot = with_trace();
    let path = snapshot.path().join("trace.bin");
    let one = std::fs::read(&path).unwrap();
    std::fs::write(&path, one.repeat((4 << 20) / one.len() + 1)).unwrap();
    let commands = [
        "tstatus",
        "tfind 1",
        "p/x $pc",
        "tfind none",
        "tstatus",
        "monitor trace",
    ];
    let text = session(snapshot.path(), &[], &commands);
    assert!(text.contains("tfind decodes it"), "{text}");
    assert!(text.contains("Found trace frame 1, tracepoint 2"), "{text}");
    assert!(text.contains("Collected 898783 trace frames"), "{text}");
    assert!(text.contains("trace of Cortex-A57_0: 898783"), "{text}");
    assert!(!text.contains("Bogus"), "{text}");
}
