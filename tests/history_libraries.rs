//! Shared libraries at past positions: the server knows where they were loaded, GDB need not read
//! it from the program's memory.

mod gdb;
mod record_support;

use std::process::Command;

use gdb::{ends_of_history, forget_registers, gdb_version, need_gdb, run, session, text};
use record_support::{Guest, build};

const PROGRAM: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    static int compare(const void *a, const void *b)
    {
        return strcmp(a, b);
    }
    static int twice(int of)
    {
        int sum = of;
        sum += of;
        return sum;
    }
    int main(void)
    {
        char names[4][8] = { "wheel", "spoke", "frame", "bell" };
        qsort(names, 4, 8, compare);
        int sum = twice(3);
        sum += twice(4);
        *(volatile int *)8 = sum;
        return 0;
    }
"#;

/// A recorded program that crashed; `None` without a compiler for it.
fn recorded(options: &[&str]) -> Option<Guest> {
    need_gdb();
    if gdb_version() > 16 {
        println!("SKIPPED: GDB 18 reads the linker's list in spite of the server's");
        return None;
    }
    let guest = build("aarch64", "sort.c", PROGRAM, options)?;
    let mut record = Command::new(env!("CARGO_BIN_EXE_armsnap"));
    record.arg("record").arg("-o");
    record.arg(guest.directory.path().join("saved"));
    let run = run(record.arg("--").arg(&guest.program));
    assert!(run.status.success(), "{run:?}");
    Some(guest)
}

/// What is shown between two marks.
fn between<'t>(text: &'t str, first: &str, last: &str) -> &'t str {
    let inside = text.split(first).nth(1).and_then(|t| t.split(last).next());
    inside.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn libraries_stay() {
    let Some(guest) = recorded(&["-O0"]) else {
        return;
    };
    let saved = guest.directory.path().join("saved");
    let commands = [
        "echo <1>\\n",
        "info sharedlibrary",
        "backtrace",
        "echo <2>\\n",
        "armsnap find compare back",
        "echo <3>\\n",
        "info sharedlibrary",
        "echo <4>\\n",
        "backtrace",
        "finish",
        "reverse-finish",
        "armsnap goto begin",
        "continue",
        "echo <5>\\n",
        "info sharedlibrary",
        "backtrace",
        "echo <6>\\n",
    ];
    let shown = session(&saved, &[], &commands);
    let list = between(&shown, "<1>\n", "#0 ");
    assert!(list.contains("libc.so.6"), "{shown}");
    assert!(list.contains("ld-linux-aarch64.so.1"), "{shown}");
    assert_eq!(between(&shown, "<3>\n", "<4>"), list, "{shown}");
    let past = between(&shown, "<4>\n", "<5>");
    assert!(past.contains("in qsort"), "{shown}");
    assert!(past.contains(" in main () at "), "{shown}");
    // And at the end all is as it was.
    let (end, first) = (
        between(&shown, "<5>\n", "<6>"),
        between(&shown, "<1>\n", "<2>"),
    );
    assert_eq!(end, first, "{shown}");
    assert!(!shown.contains("warning:"), "{shown}");
}

/// A GDB without any of our commands.
#[test]
fn reverse_step_in_a_static_program_stays_near() {
    let Some(guest) = recorded(&["-O0", "-static"]) else {
        return;
    };
    let saved = guest.directory.path().join("saved");
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex"]).arg(format!(
        "target remote | exec {} serve --stdio {}",
        env!("CARGO_BIN_EXE_armsnap"),
        saved.display()
    ));
    let forget = forget_registers();
    for command in [
        "break twice",
        "reverse-continue",
        forget,
        "stepi",
        "stepi",
        "echo <1>\\n",
        "reverse-step",
        "reverse-step",
        "echo <2>\\n",
    ] {
        gdb.args(["-ex", command]);
    }
    let shown = text(&run(&mut gdb));
    let moved = between(&shown, "<1>\n", "<2>");
    assert!(moved.contains("main () at "), "{shown}");
    assert_eq!(ends_of_history(moved), 0, "{shown}");
}
