//! History in GDB: stepping, breakpoints and gaps, and the `monitor` commands.

mod gdb;
mod history_support;

use gdb::{session, shared};
use history_support::{Step, decoded};

const TC2: &str = "tc2-ptm-rstk-t32";
const ACK: &str = "001-ack_test";

/// What GDB prints of `$pc` after each of some moves, as one script.
fn walked(name: &str, options: &[&str], before: &[&str], step: &str, count: usize) -> Vec<u64> {
    let Some(snapshot) = shared(name) else {
        return Vec::new();
    };
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    let text = format!(
        "set $n = 0\nwhile $n < {count}\n{step}\nprintf \"@%#lx\\n\", $pc\nset $n = $n + 1\nend\n"
    );
    std::fs::write(&script, text).unwrap();
    let source = format!("source {}", script.display());
    let mut commands = before.to_vec();
    commands.push(&source);
    let text = session(&snapshot, options, &commands);
    let addresses: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("@0x"))
        .map(|digits| u64::from_str_radix(digits, 16).unwrap())
        .collect();
    assert_eq!(addresses.len(), count, "{text}");
    addresses
}

/// Stepping in GDB shows the last instructions of the decoder, and then again on the way back.
fn steps(name: &str, core: &str, source: &str, count: usize) {
    let Some(snapshot) = shared(name) else { return };
    let mut wanted = decoded(&snapshot, source);
    wanted.reverse();
    let core = format!("--core={core}");
    let back = walked(name, &[&core], &[], "reverse-stepi", count);
    let there = wanted.iter().zip(&back).enumerate();
    for (number, (wanted, found)) in there {
        match wanted {
            Step::At(address) => assert_eq!(found, address, "{name}, step {number}"),
            // What GDB shows of a gap is tested elsewhere.
            Step::Gap => {}
        }
    }
    let reverse = format!("reverse-stepi {count}");
    // A gap ends a step of many.
    let free = wanted[..count].iter().all(|step| *step != Step::Gap);
    if free {
        let forward = walked(name, &[&core], &[&reverse], "stepi", count - 1);
        let mut back = back[..count - 1].to_vec();
        back.reverse();
        assert_eq!(forward, back);
    }
}

#[test]
fn steps_of_tc2_are_the_decoders() {
    steps(TC2, "Cortex-A15_0", "PTM_0_2", 500);
}

#[test]
fn steps_of_001_ack_test_are_the_decoders() {
    steps(ACK, "cpu_0", "ETE_0_s1", 300);
}

#[test]
fn steps_of_juno_are_the_decoders() {
    steps("juno_r1_1", "cpu_0", "ETM_0", 300);
}

#[test]
fn thumb_code_is_read_as_the_trace_says() {
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
fn gaps_and_ends_are_stops_of_their_own() {
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
    let ends = text.matches("No more reverse-execution history.").count();
    assert_eq!(ends, 4, "{text}");
    assert_eq!(
        text.matches("  gap       the core was in debug state")
            .count(),
        2,
        "{text}"
    );
    assert!(text.contains("= 0x80000594"), "{text}");
}

#[test]
fn memory_of_the_past_is_code_until_the_user_says_otherwise() {
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
fn monitor_goes_and_finds() {
    let Some(snapshot) = shared(ACK) else { return };
    let commands = [
        "monitor goto begin",
        "maintenance flush register-cache",
        "p/x $pc",
        "monitor find 0x39200",
        "monitor find 0x39200 back",
        "monitor goto 0+90740",
        "maintenance flush register-cache",
        "p/x $pc",
        "monitor history 2",
        "monitor exceptions 1",
        "monitor calls 3",
        "monitor goto end",
        "maintenance flush register-cache",
        "p/x $pc",
        "monitor goto 0+90751",
        "monitor goto time 5",
        "monitor goto nowhere",
        "monitor find nothing",
        "stepi",
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
        "call (number 2), returns to 0x9ef60, goes on at 0x39200",
        "cpu_0 from the begin of history to 0+90740\n",
        "\n* 0+90694        0x9daf0\n* 0+90712          -- call: 0x39200\n> 0+90740  in 2 open calls",
        "$3 = 0xffffffc000081000",
        "cpu_0: the trace has no 0+90751",
        "cpu_0: the trace has no time 5",
        "\"nowhere\" is no position",
        "\"nothing\" is neither an address nor a function",
        "No more reverse-execution history",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("0+90743"), "{text}");
}

#[test]
fn breakpoints_stop_both_ways_at_each_visit() {
    let Some(snapshot) = shared(ACK) else { return };
    let wanted = decoded(&snapshot, "ETE_0_s1");
    // From the last gap on: GDB stops at those too.
    let last = wanted.iter().rposition(|step| *step == Step::Gap).unwrap();
    let rest = &wanted[last + 1..];
    // The address that is visited most often there.
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
        let stops = text.matches("\nBreakpoint 3, ").count();
        assert_eq!(stops, 2 * visits, "{text}");
        assert_eq!(text.matches("SIGLOST").count(), 1, "{text}");
        assert_eq!(
            text.matches("No more reverse-execution").count(),
            1,
            "{text}"
        );
    }
    let text = session(
        &snapshot,
        &[],
        &["reverse-stepi", "watch *(int*)0x10000", "continue"],
    );
    assert!(
        text.contains("Could not insert hardware watchpoint"),
        "{text}"
    );
}

#[test]
fn gdbs_own_branch_trace() {
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
    // The last gap is that between the end of the trace and the halted pc.
    let recorded = format!(
        "Recorded {} instructions in 194 functions ({} gaps)",
        wanted.len() + 1,
        gaps + 1
    );
    for wanted in [
        recorded.as_str(),
        "90750\t   0x000000000009dc04:\tbr\tx2",
        "inst 90124,90750",
        "$1 = 0x9dc04",
        "$2 = <unavailable>",
        "=> 0xa10c8:\tret",
        "$3 = 0x3c1c0",
        "$4 = 0xffffffc000081000",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}
