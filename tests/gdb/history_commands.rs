//! The commands of `gdb/history.py`: GDB shows the position that the server moved to.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::gdb::{armsnap, need_gdb, run, session, shared, testdata, text};
use crate::support::record::forget_start;
use tempfile::TempDir;

const PROGRAM: &str = "\
struct node { struct node *next; int value; };
static struct node nodes[6];
__attribute__((noinline)) static int deep(struct node *node, int depth) {
    if (!node->next)
        *(volatile int *)8 = depth + node->value;
    return deep(node->next, depth + 1) + 1;
}
void _start(void) {
    for (int i = 0; i < 6; i++) {
        nodes[i].value = 4711 + i;
        nodes[i].next = i < 5 ? &nodes[i + 1] : 0;
    }
    deep(nodes, 0);
}
";

/// A recording of a program that crashed six calls deep.
fn recorded() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("deep.c"), PROGRAM).unwrap();
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-g", "-O0", "-static", "-nostdlib", "-ffreestanding"])
        .args(["-fno-stack-protector", "-o", "deep", "deep.c"])
        .current_dir(directory.path())
        .status()
        .expect("aarch64-linux-gnu-gcc is not installed: install gcc-aarch64-linux-gnu");
    assert!(status.success());
    let mut record = armsnap();
    record.args(["record", "-o", "saved", "--", "./deep"]);
    let output = run(record.current_dir(directory.path()));
    let saved = directory.path().join("saved");
    assert!(saved.join("trace.ini").is_file(), "{}", text(&output));
    (directory, saved)
}

/// Checks that the text contains all of `wanted`, in order.
fn in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for wanted in wanted {
        let Some((_, after)) = rest.split_once(wanted) else {
            panic!("{wanted:?} is not in {rest}\n--- of\n{text}");
        };
        rest = after;
    }
}

#[test]
fn gdb_shows_the_position_after_each_command() {
    let (_directory, saved) = recorded();
    let enters = "deep (node=..., depth=...) at deep.c:3\n3\t__attribute__";
    let text = session(
        &saved,
        &[],
        &[
            "set print frame-arguments none",
            "armsnap find deep back",
            "backtrace",
            "echo <1>\\n",
            "armsnap goto begin",
            "print $pc == _start",
            "print $sp",
            "echo <2>\\n",
            "armsnap find deep",
            "armsnap calls",
            "echo <3>\\n",
            "armsnap find *&deep",
            "armsnap history 1",
            "echo <4>\\n",
            "armsnap goto end",
            "backtrace",
            "print $sp",
        ],
    );
    in_order(
        &text,
        &[
            "cpu_0 at ",
            "#0  ",
            enters,
            "#0  deep (",
            "#1  0x",
            " in deep (node=..., depth=...) at deep.c:6\n",
            "#6  0x",
            " in _start () at deep.c:13\n",
            "<1>",
            "cpu_0 at ",
            "#0  _start () at deep.c:8\n8\tvoid _start(void) {",
            "= 1\n",
            "= (void *) 0x",
            "<2>",
            "#0  ",
            enters,
            "> ",
            "in 1 open calls, at ",
            "<deep>",
            "<3>",
            "#0  ",
            enters,
            "\n> ",
            "<4>",
            "#0  ",
            "deep.c:5\n5\t",
            "#0  ",
            "#6  ",
            "_start ()",
            "= (void *) 0x",
        ],
    );
    // The hint for users of plain `monitor` is not printed.
    assert!(!text.contains("maintenance flush"), "{text}");
    assert!(!text.contains("Python Exception"), "{text}");
}

#[test]
fn memory_and_code_are_read_again() {
    let (_directory, saved) = recorded();
    forget_start(&saved);
    let text = session(
        &saved,
        &[],
        &[
            "print nodes[1].value",
            "armsnap goto begin",
            "print nodes[1].value",
            "armsnap memory final",
            "print nodes[1].value",
            "armsnap memory unavailable",
            "print nodes[1].value",
            "armsnap memory all",
            "armsnap goto end",
            "print nodes[1].value",
        ],
    );
    in_order(
        &text,
        &["= 4712\n", "#0  _start", "= 4712\n", "#0  ", "= 4712\n"],
    );
    assert_eq!(text.matches("Cannot access memory").count(), 2, "{text}");
    assert!(
        text.contains("expected final or unavailable, found \"all\""),
        "{text}"
    );
    assert!(!text.contains("maintenance flush"), "{text}");
}

#[test]
fn failed_commands_do_not_move() {
    let (_directory, saved) = recorded();
    let text = session(
        &saved,
        &[],
        &[
            "armsnap find nothing",
            "armsnap find",
            "armsnap goto",
            "armsnap goto 12 monkeys",
            "armsnap find deep",
            "armsnap where",
        ],
    );
    for wanted in [
        "Function \"nothing\" not defined.",
        "expected a function or an address, optionally followed by back",
        "expected POSITION, begin, end, time T or cycle N",
        "cpu_0 does not execute 0x",
        "the halted state",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("Traceback"), "{text}");
}

#[test]
fn commands_apply_to_the_selected_core() {
    let Some(juno) = shared("juno_r1_1") else {
        return;
    };
    let text = session(
        &juno,
        &[],
        &[
            "thread 2",
            "armsnap goto begin",
            "thread 1",
            "echo <1>\\n",
            "armsnap where",
            "thread 2",
            "echo <2>\\n",
            "armsnap where",
            "armsnap exceptions 1",
            "armsnap info",
        ],
    );
    in_order(
        &text,
        &[
            "cpu_1 at 0+0\n",
            "#0  ",
            "<1>",
            "cpu_0 at ",
            "the halted state",
            "<2>",
            "cpu_1 at 0+0\n",
            "thread 1: cpu_0",
        ],
    );
}

/// A GDB not started by armsnap, with the files of the source tree.
#[test]
fn the_source_tree_has_all_commands() {
    need_gdb();
    let (_directory, saved) = recorded();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gdb/armsnap.py");
    let commands = [
        format!("source {}", file.display()),
        format!("set armsnap-program {}", crate::support::armsnap()),
        format!("armsnap attach {}", saved.display()),
        "armsnap goto begin".to_owned(),
        "armsnap where".to_owned(),
        "complete armsnap goto b".to_owned(),
        "complete armsnap memory f".to_owned(),
        "complete armsnap find dee".to_owned(),
        "help armsnap find".to_owned(),
    ];
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]);
    for command in &commands {
        gdb.args(["-ex", command]);
    }
    let shown = text(&run(&mut gdb));
    in_order(
        &shown,
        &[
            "#0  _start ()",
            "cpu_0 at 0+0",
            "armsnap goto begin\n",
            "armsnap memory final\n",
            "armsnap find deep\n",
            "Usage: armsnap find LOCATION [back]",
        ],
    );
}

/// The printed single file loads no other file, which could be anyone's.
#[test]
fn the_printed_commands_load_no_other_file() {
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let printed = run(armsnap().arg("gdb-commands"));
    let file = directory.path().join("armsnap.py");
    std::fs::write(&file, printed.stdout).unwrap();
    std::fs::write(directory.path().join("history.py"), "print('stranger')").unwrap();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex"]);
    gdb.arg(format!("source {}", file.display()));
    let shown = text(&run(gdb.args(["-ex", "help armsnap"])));
    assert!(!shown.contains("stranger"), "{shown}");
    assert!(shown.contains("armsnap goto -- "), "{shown}");
}

#[test]
fn other_servers_are_recognised() {
    need_gdb();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gdb/armsnap.py");
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex"]);
    gdb.arg(format!("source {}", file.display()));
    gdb.arg(testdata("virt-a57").join("program.elf"));
    gdb.args(["-ex", "armsnap where", "-ex", "armsnap goto begin"]);
    let shown = text(&run(&mut gdb));
    let told = "\"monitor\" command not supported by this target.";
    assert_eq!(shown.matches(told).count(), 2, "{shown}");
    assert!(!shown.contains("Traceback"), "{shown}");
}
