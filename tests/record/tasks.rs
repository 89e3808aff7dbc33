//! Tasks of real-time operating systems as threads of GDB: a kernel in small, with the structures of the
//! real ones.

use crate::process_stack::{MICROCONTROLLERS, build_program, told};
use crate::support::record::installed;
use crate::systems::record_image;
use std::path::{Path, PathBuf};

/// Records a program up to `halt_here`.
fn record(
    directory: &Path,
    microcontroller: [&str; 4],
    program: &str,
    options: &[&str],
) -> PathBuf {
    let image = build_program(directory, microcontroller, program, options);
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

/// A thread: its name, its state, its priority, and the functions of its back trace.
type Thread = (&'static str, &'static str, i64, &'static [&'static str]);

/// The tasks of a program are the threads that GDB shows, on each microcontroller.
fn are_threads(program: &str, options: &[&str], kernel: &str, threads: &[Thread]) {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for microcontroller in MICROCONTROLLERS {
        let snapshot = record(directory.path(), microcontroller, program, options);
        let commands = ["info threads", "monitor tasks", "thread apply all bt"];
        let told = told(&snapshot, &[], &commands);
        let traces = back_traces(&told);
        assert_eq!(traces.len(), threads.len(), "{told}");
        let all = (1..).zip(traces).zip(threads);
        for ((number, found), (name, state, priority, functions)) in all {
            assert_eq!(found.0, *name, "{told}");
            assert_eq!(found.1[..functions.len()], **functions, "{name}: {told}");
            let thread = format!("{kernel} task, {state}, priority {priority}, ");
            assert!(told.contains(&thread), "{thread}: {told}");
            let row = format!("{number:>6}  {state:<11}  {priority:>8}  0x");
            assert!(told.contains(&row), "{row}: {told}");
        }
        let head = format!("{kernel}, {} tasks", threads.len());
        assert!(told.contains(&head), "{told}");
        assert!(!told.contains("broken: "), "{told}");
    }
}

/// Three calls deep in the function that gives up the core.
const SLEEPER: &[&str] = &["enter", "sleep_deep", "sleep_deep", "sleep_deep", "sleeper"];
const WAITER: &[&str] = &["enter", "waiter"];

#[test]
fn tasks_of_freertos_are_threads() {
    let threads: [Thread; 6] = [
        ("worker", "running", 1, &["halt_here", "worker"]),
        ("red\\u{1b}[31m", "ready", 0, &["never"]),
        ("sleeper", "blocked", 3, SLEEPER),
        (
            "waiter",
            "blocked",
            3,
            &["enter", "wait_for_event", "waiter"],
        ),
        ("suspended", "suspended", 2, &["enter", "suspended"]),
        ("deleted", "deleted", 2, &["enter", "deleted"]),
    ];
    are_threads("freertos-m.c", &[], "FreeRTOS", &threads);
}

#[test]
fn threads_of_threadx_are_threads() {
    let threads: [Thread; 4] = [
        ("worker", "running", 8, &["halt_here", "worker"]),
        ("sleeper", "sleep", 2, SLEEPER),
        ("waiter", "queue", 3, WAITER),
        ("idle", "ready", 31, &["idle"]),
    ];
    are_threads("threadx-m.c", &[], "ThreadX", &threads);
}

#[test]
fn threads_of_zephyr_are_threads() {
    let threads: [Thread; 4] = [
        ("worker", "running", 7, &["halt_here", "worker"]),
        ("idle", "queued", 15, &["idle"]),
        ("waiter", "pending", 1, WAITER),
        ("sleeper", "sleeping", -2, SLEEPER),
    ];
    are_threads("zephyr-m.c", &[], "Zephyr", &threads);
}

#[test]
fn threads_of_rt_thread_are_threads() {
    let threads: [Thread; 4] = [
        ("worker", "running", 8, &["halt_here", "worker"]),
        ("tidle0", "ready", 31, &["idle"]),
        ("waiter", "suspended", 3, WAITER),
        ("sleeper", "suspended", 2, SLEEPER),
    ];
    for version in ["-DVERSION=5", "-DVERSION=4"] {
        are_threads("rtthread-m.c", &[version], "RT-Thread", &threads);
    }
    // Until a pending exception switches, the thread before runs.
    are_threads("rtthread-m.c", &["-DPENDING"], "RT-Thread", &threads);
}

#[test]
fn tasks_of_nuttx_are_threads() {
    let threads: [Thread; 4] = [
        ("worker", "running", 100, &["halt_here", "worker"]),
        ("sleeper", "signal", 200, SLEEPER),
        ("waiter", "semaphore", 150, WAITER),
        ("Idle_Task", "ready", 0, &["idle"]),
    ];
    are_threads("nuttx-m.c", &[], "NuttX", &threads);
}

#[test]
fn registers_of_a_task_are_those_that_were_saved() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // With floating point.
    let snapshot = record(directory.path(), MICROCONTROLLERS[1], "freertos-m.c", &[]);
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

#[test]
fn damage_is_named() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (program, damage, wanted) in [
        (
            "freertos-m.c",
            "-DDAMAGE=1",
            &[
                "xSuspendedTaskList: the list reaches the entry 0x",
                "uxCurrentNumberOfTasks: the kernel counts 6 entries, the list has 5",
            ][..],
        ),
        (
            "freertos-m.c",
            "-DDAMAGE=2",
            &["xDelayedTaskList1: 0xdead0004 is not in the snapshot's memory"],
        ),
        (
            "freertos-m.c",
            "-DDAMAGE=3",
            &[
                "task \"suspended\" at 0x",
                ": its stack has overflowed, or was used up to its end: the pattern at 0x",
                "task \"deleted\" at 0x",
                ": its stack pointer 0x",
            ],
        ),
        (
            "freertos-m.c",
            "-DDAMAGE=4",
            &[
                "xSuspendedTaskList: the entry 0x",
                " says that it is in the list 0x",
                " says that it is part of the task at 0x",
            ],
        ),
        (
            "rtthread-m.c",
            "-DDAMAGE=1",
            &[
                "the list of threads: the entry 0x",
                " is not part of a thread: its object has another type",
                "the list of threads: the list reaches the entry 0x",
                "task \"waiter\" at 0x",
                ": its stack has overflowed, or was used up to its end: the pattern at 0x",
            ],
        ),
        (
            "rtthread-m.c",
            "-DDAMAGE=2",
            &["the list of threads: 0xdead0000 is not in the snapshot's memory"],
        ),
        (
            "nuttx-m.c",
            "-DDAMAGE=1",
            &[
                "g_pidhash: 0xdead0000 is not in the snapshot's memory",
                "g_pidhash: the task in the slot 0x",
                " has the PID 3, which belongs in another slot",
                "task \"Idle_Task\" at 0x",
                ": its stack has overflowed, or was used up to its end: the pattern at 0x",
            ],
        ),
        (
            "nuttx-m.c",
            "-DDAMAGE=2",
            &["g_pidhash: the task in the slot 0x"],
        ),
    ] {
        let snapshot = record(directory.path(), MICROCONTROLLERS[0], program, &[damage]);
        let commands = ["monitor tasks", "info threads", "thread apply all bt 1"];
        let told = told(&snapshot, &[], &commands);
        let run = crate::support::gdb::armsnap()
            .arg("check")
            .arg(&snapshot)
            .output();
        let checked = String::from_utf8(run.unwrap().stdout).unwrap();
        for wanted in wanted {
            assert!(told.contains(wanted), "{wanted}: {told}");
            assert!(checked.contains(wanted), "{wanted}: {checked}");
        }
        // A task without registers.
        assert!(!told.contains("not available"), "{told}");
        // The others are still there.
        assert!(told.contains("\"worker\""), "{told}");
        assert!(checked.contains("warning (advice): "), "{checked}");
    }
}
