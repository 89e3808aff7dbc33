//! Tasks of real-time operating systems as threads of GDB: a kernel in small, with the structures of the
//! real ones.

use crate::process_stack::{MICROCONTROLLERS, build_program, told};
use crate::support::record::installed;
use crate::systems::record_image;
use std::path::{Path, PathBuf};

/// Records a program up to `halt_here`.
fn record(directory: &Path, microcontroller: [&str; 4], program: &str) -> PathBuf {
    let image = build_program(directory, microcontroller, program, &[]);
    let output = directory.join("out");
    let options = [
        "--system",
        microcontroller[1],
        "--force",
        "--until",
        "halt_here",
    ];
    let options = options.map(str::to_owned);
    let run = record_image(&image, &output, &options);
    assert!(run.status.success(), "{run:?}");
    output
}

/// The functions in the back traces of all threads, by name of the thread.
fn back_traces(told: &str) -> Vec<(String, Vec<String>)> {
    let mut threads: Vec<(String, Vec<String>)> = Vec::new();
    for line in told.lines() {
        if line.starts_with("Thread ") {
            let name = line.split('"').nth(1).unwrap_or_default();
            threads.push((name.to_owned(), Vec::new()));
        } else if let Some((_, frame)) = line.split_once("  ").filter(|_| line.starts_with('#')) {
            let frame = frame.split_once(" in ").map_or(frame, |(_, of)| of);
            let function = frame.split(" (").next().unwrap();
            threads.last_mut().unwrap().1.push(function.to_owned());
        }
    }
    threads.reverse();
    threads
}

#[test]
fn tasks_of_freertos_are_threads() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for microcontroller in MICROCONTROLLERS {
        let snapshot = record(directory.path(), microcontroller, "freertos-m.c");
        let commands = ["info threads", "monitor tasks", "thread apply all bt"];
        let told = told(&snapshot, &[], &commands);
        let threads = [
            ("worker", "running", 1, &["halt_here", "worker"][..]),
            ("red\\u{1b}[31m", "ready", 0, &["never"]),
            (
                "sleeper",
                "blocked",
                3,
                &["enter", "sleep_deep", "sleep_deep", "sleep_deep", "sleeper"],
            ),
            (
                "waiter",
                "blocked",
                3,
                &["enter", "wait_for_event", "waiter"],
            ),
            ("suspended", "suspended", 2, &["enter", "suspended"]),
            ("deleted", "deleted", 2, &["enter", "deleted"]),
        ];
        let traces = back_traces(&told);
        assert_eq!(traces.len(), threads.len(), "{told}");
        for ((number, found), (name, state, priority, functions)) in (1..).zip(traces).zip(threads)
        {
            assert_eq!(found.0, name, "{told}");
            assert_eq!(found.1[..functions.len()], *functions, "{name}: {told}");
            let thread = format!("FreeRTOS task, {state}, priority {priority}, ");
            assert!(told.contains(&thread), "{thread}: {told}");
            let row = format!("{number:>6}  {state:<10}  {priority:>8}  0x");
            assert!(told.contains(&row), "{row}: {told}");
        }
        assert!(told.contains("FreeRTOS, 6 tasks"), "{told}");
        assert!(!told.contains("broken: "), "{told}");
    }
}

#[test]
fn registers_of_a_task_are_those_that_were_saved() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // With floating point.
    let snapshot = record(directory.path(), MICROCONTROLLERS[1], "freertos-m.c");
    let commands = [
        "thread 3",
        "print/x $r4 == *blocks[0].pxTopOfStack",
        // R4 to R11, EXC_RETURN, S16 to S31, the frame.
        "print/x $pc == blocks[0].pxTopOfStack[9 + 16 + 6]",
        "print $sp == (unsigned) (blocks[0].pxTopOfStack + 9 + 16 + 26)",
        "thread 5",
        // It has not used the FPU: nothing of it was saved.
        "print $s16",
        "print $s0",
    ];
    let told = told(&snapshot, &[], &commands);
    for value in [
        "$1 = 0x1",
        "$2 = 0x1",
        "$3 = 1",
        "$4 = <unavailable>",
        "$5 = <unavailable>",
    ] {
        assert!(told.contains(value), "{value}: {told}");
    }
}
