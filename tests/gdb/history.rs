//! History in GDB: stepping, breakpoints and gaps, and the `monitor` commands.

use crate::support::gdb::{ends_of_history, forget_registers, gdb_version, session, shared};
use crate::support::history::in_gdb::{self, walk, walks};
use crate::support::history::{Client, Step, decoded};
use armsnap::server::Options;

const TC2: &str = "tc2-ptm-rstk-t32";
const ACK: &str = "001-ack_test";

/// Compares the first steps back in GDB, and the steps forward again, with the decoder's last ones.
fn steps(name: &str, core: &str, source: &str, count: usize) {
    let Some(snapshot) = shared(name) else { return };
    let decoded = decoded(&snapshot, source);
    let last = &decoded[decoded.len() - count..];
    let core = format!("--core={core}");
    let mut commands = vec![walk("reverse-stepi", count)];
    // GDB 10 does not step forward from a place without code.
    if gdb_version() > 10 || !last.contains(&Step::Gap) {
        commands.push(walk("stepi", count));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let walks = walks(&snapshot, &[&core], &commands);
    let mut back = in_gdb::steps(&walks[0]);
    back.reverse();
    assert_eq!(back, last, "{name}, back");
    if let Some(forward) = walks.get(1) {
        // The last step is to where the core halted.
        let forward = in_gdb::steps(forward);
        assert_eq!(forward[..count - 1], last[1..], "{name}, forward");
    }
}

#[test]
fn steps_in_tc2_equal_the_decoder() {
    steps(TC2, "Cortex-A15_0", "PTM_0_2", 500);
}

#[test]
fn steps_in_001_ack_test_equal_the_decoder() {
    // The steps go beyond a gap.
    steps(ACK, "cpu_0", "ETE_0_s1", 700);
}

#[test]
fn steps_in_juno_equal_the_decoder() {
    steps("juno_r1_1", "cpu_0", "ETM_0", 300);
}

#[test]
fn thumb_code_is_recognised_from_the_trace() {
    let Some(snapshot) = shared(TC2) else { return };
    let commands = [
        "reverse-stepi",
        "x/i $pc",
        "p $isa",
        "p $cpsr",
        "reverse-stepi 10",
        "x/i $pc",
        "p $isa",
        "backtrace",
        "stepi 11",
        "p $isa",
        "p/x $cpsr",
    ];
    let text = session(&snapshot, &["--core=Cortex-A15_0"], &commands);
    for wanted in [
        "=> 0x80000590:\tblt\t0x80000568",
        "$1 = A32",
        "$2 = <unavailable>",
        "=> 0x80000fb2:\tstr\tr2, [r1, #0]",
        "$3 = T32",
        "#0  0x80000fb2 in ?? ()",
        "$4 = A32",
        "$5 = 0x",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("is not available"), "{text}");
    // The trace ends with the halt, at the pc.
    assert!(!text.contains("the trace ends before"), "{text}");
}

#[test]
fn moves_stop_at_gaps_and_at_both_ends() {
    let Some(snapshot) = shared(TC2) else { return };
    let commands = [
        "reverse-continue",
        "monitor where",
        "reverse-continue",
        "stepi",
        "monitor where",
        "stepi",
        "monitor where",
        "reverse-stepi",
        "reverse-stepi",
        "reverse-stepi",
        "continue",
        "continue",
        "continue",
        "p/x $pc",
    ];
    let text = session(&snapshot, &["--core=Cortex-A15_0"], &commands);
    let lost = text
        .matches("received signal SIGLOST, Resource lost.")
        .count();
    assert_eq!(lost, 4, "{text}");
    assert_eq!(
        text.matches("gap in history: the core was in debug state")
            .count(),
        4
    );
    assert_eq!(ends_of_history(&text), 4, "{text}");
    assert_eq!(
        text.matches("  gap       the core was in debug state")
            .count(),
        2,
        "{text}"
    );
    assert!(text.contains("= 0x80000594"), "{text}");
}

#[test]
fn nothing_is_known_at_a_gap() {
    let Some(snapshot) = shared(TC2) else { return };
    let mut client = Client::new(&snapshot, &Options::default());
    while client.go("bc").signal != 29 {}
    let text = client.monitor("registers");
    assert_eq!(text, "no register is known at a gap in history\n");
    // Its program counter is where execution continues.
    let text = client.monitor("goto time soon");
    assert_eq!(text, "expected a number, found \"soon\"\n");
}

/// What is assumed constant at past positions is known by the addresses of the code.
#[test]
fn other_spaces_are_not_shown_at_past_positions() {
    let Some(snapshot) = shared(TC2) else { return };
    let pc = Client::new(&snapshot, &Options::default()).go("bs").pc;
    let pc = pc.unwrap();
    // Other bytes at that address, in a space that is not the core's.
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&snapshot).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    std::fs::write(copy.path().join("other.bin"), [1, 2, 3, 4]).unwrap();
    let core = copy.path().join("device1.ini");
    let mut text = std::fs::read_to_string(&core).unwrap();
    text += &format!("\n[dump_other]\nfile=other.bin\nspace=N\naddress={pc:#x}\nlength=4\n");
    std::fs::write(&core, text).unwrap();

    let mut client = Client::new(copy.path(), &Options::default());
    let request = format!("m{pc:x},4");
    client.monitor("space N");
    assert_eq!(client.ask(&request), ["01020304"]);
    client.go("bs");
    let hidden = client.ask(&request);
    assert!(hidden[0].starts_with('E'), "{hidden:?}");
    client.monitor("memory final");
    assert_eq!(client.ask(&request), ["01020304"]);
    client.monitor("memory unavailable");
    for space in ["current", "S"] {
        client.monitor(&format!("space {space}"));
        let shown = client.ask(&request);
        assert!(
            shown[0].len() >= 4 && !shown[0].starts_with("0102"),
            "{shown:?}"
        );
    }
}

#[test]
fn past_memory_is_only_code_unless_the_user_changes_the_mode() {
    let Some(snapshot) = shared(TC2) else { return };
    let commands = [
        "x/1xw $sp",
        "set $stack = $sp",
        "reverse-stepi 100",
        "x/1xh $pc",
        "x/1xw $stack",
        "monitor memory final",
        "maintenance flush dcache",
        "x/1xw $stack",
    ];
    let text = session(&snapshot, &["--core=Cortex-A15_0"], &commands);
    let words = text.matches("0x8008e268:\t0x").count();
    assert_eq!(words, 2, "{text}");
    assert_eq!(
        text.matches("Cannot access memory at address 0x8008e268")
            .count(),
        1,
        "{text}"
    );
}

#[test]
fn monitor_goto_and_find() {
    let Some(snapshot) = shared(ACK) else { return };
    let forget = forget_registers();
    let commands = [
        "monitor goto begin",
        forget,
        "p/x $pc",
        "monitor find 0x39200",
        "monitor find 0x39200 back",
        "monitor goto 0+90740",
        forget,
        "p/x $pc",
        "monitor history 2",
        "monitor exceptions 1",
        "monitor calls 3",
        "monitor goto end",
        forget,
        "p/x $pc",
        "monitor goto 0+90751",
        "monitor goto time 5",
        "monitor goto nowhere",
        "monitor find nothing",
        "continue",
    ];
    let text = session(&snapshot, &[], &commands);
    for wanted in [
        "cpu_0 at 0+0",
        "$1 = 0xa10c8",
        "0x39200",
        "cpu_0 does not execute 0x39200 before 0+0",
        "$2 = 0x3c1c4",
        "> 0+90740         0x3c1c4                           mov x0, x1",
        "  0+90742 ",
        "call (number 2), returns to 0x9ef60, continues at 0x39200",
        "cpu_0: start of history to 0+90740\n",
        "\n* 0+90694        0x9daf0\n* 0+90712          -- call: 0x39200\n> 0+90740  in 2 open calls",
        "$3 = 0xa10c0",
        "cpu_0: the trace has no 0+90751",
        "cpu_0: the trace has no time 5",
        "\"nowhere\" is not a position",
        "\"nothing\" is neither an address nor a function",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("0+90743"), "{text}");
    assert_eq!(ends_of_history(&text), 1, "{text}");
}

#[test]
fn breakpoints_stop_at_each_visit_in_both_directions() {
    let Some(snapshot) = shared(ACK) else { return };
    let wanted = decoded(&snapshot, "ETE_0_s1");
    // Starting after the last gap, since GDB also stops at gaps.
    let last = wanted.iter().rposition(|step| *step == Step::Gap).unwrap();
    let rest = &wanted[last + 1..];
    // The most frequently visited address there.
    let count = |step: &Step| rest.iter().filter(|other| *other == step).count();
    let Some(Step::At(address)) = rest.iter().copied().max_by_key(count) else {
        panic!("no instruction");
    };
    let visits = count(&Step::At(address));
    assert!(visits > 1);
    for kind in ["break", "hbreak"] {
        let breakpoint = format!("{kind} *{address:#x}");
        let mut commands = vec![breakpoint.as_str()];
        commands.extend(std::iter::repeat_n("reverse-continue", visits + 1));
        commands.extend(std::iter::repeat_n("continue", visits + 1));
        let text = session(&snapshot, &[], &commands);
        let stops = text.matches("\nBreakpoint 1, ").count();
        assert_eq!(stops, 2 * visits, "{text}");
        assert_eq!(text.matches("SIGLOST").count(), 1, "{text}");
        assert_eq!(ends_of_history(&text), 1, "{text}");
    }
    let text = session(
        &snapshot,
        &[],
        &["reverse-stepi", "watch *(int*)0x10000", "continue"],
    );
    // The last instruction does not write there.
    assert!(text.contains("Hardware watchpoint 1"), "{text}");
    assert!(!text.contains("Could not insert"), "{text}");
    assert_eq!(ends_of_history(&text), 1, "{text}");
}

#[test]
fn gdb_replays_a_branch_trace() {
    let Some(snapshot) = shared(ACK) else { return };
    let wanted = decoded(&snapshot, "ETE_0_s1");
    let gaps = wanted.iter().filter(|step| **step == Step::Gap).count();
    let commands = [
        "info record",
        "record instruction-history /s",
        "record function-call-history /ilc",
        "set record btrace replay-memory-access read-write",
        "reverse-stepi",
        "p/x $pc",
        "p $sp",
        "record goto begin",
        "x/i $pc",
        "record goto 90740",
        "p/x $pc",
        "record goto end",
        "p/x $pc",
    ];
    let text = session(&snapshot, &["--history=btrace"], &commands);
    // There is no halted state: the trace ends at GDB's position, without a gap.
    let recorded = format!(
        "Recorded {} instructions in 193 functions ({gaps} gaps)",
        wanted.len()
    );
    for wanted in [
        recorded.as_str(),
        "90750\t   0x000000000009dc04:\tbr\tx2",
        "inst 90124,90751",
        "$1 = 0x9dc04",
        "$2 = <unavailable>",
        "=> 0xa10c8:\tret",
        "$3 = 0x3c1c0",
        "$4 = 0xa10c0",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// Captures whose registers are placeholders: there is a trace and no halted state.
#[test]
fn a_trace_without_a_state_opens_at_its_end() {
    for (name, core) in [(ACK, "cpu_0"), ("juno_r1_1", "cpu_0"), ("TC2", "cpu_0")] {
        let Some(snapshot) = shared(name) else { return };
        let core = format!("--core={core}");
        let commands = [
            "p/x $pc",
            "info registers sp",
            "monitor where",
            "backtrace",
            "monitor registers pc",
            "monitor registers sp",
            "reverse-stepi",
            "stepi",
            "stepi",
            "p/x $pc",
            "tfind 0",
            "print/x (long)$pc + 1",
        ];
        let text = session(&snapshot, &[&core], &commands);
        // The trace leads there from a call.
        assert!(name != ACK || text.contains("#1 "), "{text}");
        let shown: Vec<&str> = text.lines().filter(|line| line.starts_with('$')).collect();
        assert_eq!(shown.len(), 2, "{text}");
        let value = |line: &str| line.split(" = ").nth(1).map(str::to_owned);
        assert_eq!(value(shown[0]), value(shown[1]), "{text}");
        for placeholder in ["ffffffc000081000", "0xc0008000", "0x0000000000000000"] {
            assert!(!text.contains(placeholder), "{text}");
        }
        assert!(text.contains("Found trace frame 0"), "{text}");
        assert!(text.contains("<unavailable>"), "{text}");
        assert!(!text.contains("the core halted at"), "{text}");
        assert_eq!(
            text.matches("note: cpu_0: there is no halted state")
                .count(),
            1,
            "{text}"
        );
        assert!(
            text.contains("the end of the trace (the halted state is not in"),
            "{text}"
        );
    }
}
