//! An outer frame that stays selected while GDB looks at another thread, or while the position
//! changes: GDB looks for it again, and fails if Python runs a command meanwhile.

use crate::support::gdb::{need_gdb, run, session_output, testdata, text};
use std::path::Path;
use std::process::Command;

/// The session must continue after the commands.
fn goes_on(commands: &[&str], last: &[&str]) {
    let mut all = commands.to_vec();
    all.extend(["echo and\\n", "backtrace 1", "echo done\\n"]);
    let output = session_output(&testdata("recorded/etmv4"), &[], &all);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let (_, rest) = text.split_once("and\n").unwrap_or_else(|| panic!("{text}"));
    for part in last.iter().chain(&["done\n"]) {
        assert!(rest.contains(part), "{part}: {text}");
    }
}

#[test]
fn another_thread_is_looked_at() {
    let receipt = [
        "#0 ",
        " receipt (price=0x401017b0, item=0x40100818 \"tray\")",
    ];
    for commands in [
        &["frame 1", "thread apply 2 -q backtrace"][..],
        &["reverse-step", "frame 1", "thread apply 2 -q backtrace"],
        &["reverse-step", "frame 2", "thread apply all -q backtrace"],
    ] {
        goes_on(commands, &receipt);
    }
}

#[test]
fn the_position_changes() {
    let main = ["#0  main () at src/main.c:84"];
    goes_on(&["reverse-step", "frame 1", "armsnap goto 0+100"], &main);
    let flush = "maintenance flush register-cache";
    goes_on(
        &["reverse-step", "frame 1", "monitor goto 0+100", flush],
        &main,
    );
    // Other commands leave the frame selected.
    goes_on(
        &[
            "reverse-step",
            "frame 1",
            "monitor where",
            flush,
            "info frame",
        ],
        &["#0 ", " receipt ("],
    );
    let unknown = ["#0 ", " receipt (price=<error"];
    goes_on(
        &["reverse-step", "frame 2", "armsnap recover off"],
        &unknown,
    );
}

#[test]
fn the_demo_runs_to_its_end() {
    need_gdb();
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut demo = Command::new(top.join("scripts/demo"));
    demo.env("ARMSNAP", crate::support::armsnap());
    let output = run(&mut demo);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "# From the trace",
        "Temporary breakpoint 1, price_order",
        "0+",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
