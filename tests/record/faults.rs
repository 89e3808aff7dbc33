//! Faults of Cortex-M cores in the emulator: `armsnap fault` and `monitor fault` say what the program did.

use crate::process_stack::{MICROCONTROLLERS, build_program, told};
use crate::support::record::installed;
use crate::systems::record_image;
use std::path::Path;
use std::process::Command;

/// Faults of testdata/programs/faults-m.c: the exception that they are if it is enabled, what is said of the
/// cause, and the function and instruction that are named.
const FAULTS: [(&str, &str, &str, &str); 8] = [
    (
        "BusFault",
        "bus error of a data access at 0xcccccc0c",
        "element",
        "ldr",
    ),
    ("UsageFault", "integer division by zero", "fail+", "udiv"),
    ("UsageFault", "unaligned data access", "element", "ldr"),
    ("UsageFault", "undefined instruction", "fail", "udf #7"),
    ("UsageFault", "execution with the T bit clear", "fail", ""),
    (
        "MemManage fault",
        "forbids execution there",
        "0x40000000",
        "",
    ),
    (
        "UsageFault",
        "coprocessor or floating-point instruction without access",
        "fail",
        "0xee000000",
    ),
    (
        "",
        "such as SVC or BKPT could not be taken",
        "fail",
        "bkpt #1",
    ),
];

fn fault(snapshot: &Path) -> String {
    let run = Command::new(crate::support::armsnap())
        .arg("fault")
        .arg(snapshot)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn the_fault_of_a_microcontroller_is_that_of_the_program() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let variants: [&[&str]; 4] = [
        &[],
        &["-DSEPARATE"],
        &["-DTASK", "-DCHANGES"],
        &["-DSEPARATE", "-DTASK"],
    ];
    for (number, (exception, cause, place, instruction)) in FAULTS.iter().enumerate() {
        for (at, variant) in variants.iter().enumerate() {
            let microcontroller = MICROCONTROLLERS[(number + at) % MICROCONTROLLERS.len()];
            let defined = format!("-DFAULT={number}");
            let options = [&[&*defined][..], variant].concat();
            let image = build_program(directory.path(), microcontroller, "faults-m.c", &options);
            let output = directory.path().join("out");
            let [_, machine, ..] = microcontroller;
            let limits = ["--system", machine, "--force", "--instructions", "300"];
            let run = record_image(&image, &output, &limits.map(str::to_owned));
            assert!(run.status.success(), "{run:?}");
            let shown = fault(&output);
            let context = format!("{number} {variant:?} {machine}\n{shown}");
            let separate = variant.contains(&"-DSEPARATE") && !exception.is_empty();
            let first = shown.lines().next().unwrap();
            let name = match (separate, *exception) {
                (true, exception) => format!(": {exception}: "),
                (false, "") => ": HardFault, escalated: ".to_owned(),
                (false, exception) => format!(": HardFault, escalated from {exception}: "),
            };
            assert!(first.contains(&name) && first.contains(cause), "{context}");
            // The emulator does not report PSP, and trace does not say where a branch out of T32
            // was interrupted.
            if matches!(number, 4 | 5) && variant.contains(&"-DTASK") {
                assert!(
                    shown.contains("the exception frame was not found"),
                    "{context}"
                );
                continue;
            }
            let second = shown.lines().nth(1).unwrap();
            assert!(second.contains(place), "{context}");
            assert!(second.contains(instruction), "{context}");
            let stack = match variant.contains(&"-DTASK") {
                true => "its frame is on the process stack",
                false => "its frame is on the main stack",
            };
            assert!(shown.contains(stack), "{context}");
            if number == 0 {
                let from = "address      0xcccccc0c, from r0 (0xcccccc00) and r1 (0x3): ";
                assert!(shown.contains(from), "{context}");
            }
            if number == 0 && at == 0 {
                let told = told(&output, &[], &["monitor fault", "bt"]);
                let (_, fault) = shown.split_once(": ").unwrap();
                assert!(told.contains(fault), "{told}\n{context}");
                assert!(told.contains("monitor fault says more"), "{told}");
            }
        }
    }
}
