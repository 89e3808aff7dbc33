//! Back traces from handlers of a Cortex-M to the tasks that they interrupted, whose stack pointer the emulator
//! does not report. The program notes it.

use crate::support::record::installed;
use crate::systems::record_image;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cores without and with floating point, their machines, and the starts of their memories.
pub const MICROCONTROLLERS: [[&str; 4]; 3] = [
    ["-mcpu=cortex-m3", "mps2-an385", "0", "0x20000000"],
    [
        "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
        "mps2-an386",
        "0",
        "0x20000000",
    ],
    [
        "-mcpu=cortex-m33+nodsp -mfloat-abi=soft",
        "mps2-an505",
        "0x10000000",
        "0x38000000",
    ],
];

fn build(directory: &Path, microcontroller: [&str; 4]) -> PathBuf {
    build_program(directory, microcontroller, "tasks-m.c", &[])
}

/// Builds a program of testdata/programs.
pub fn build_program(
    directory: &Path,
    [core, _, code, ram]: [&str; 4],
    program: &str,
    options: &[&str],
) -> PathBuf {
    let file = |name: &str| directory.join(name);
    let script = format!(
        "SECTIONS {{ . = {code}; .text : {{ *(.vectors) *(.text*) *(.rodata*) }}\n\
         . = {ram}; .bss : {{ *(.data* .bss* COMMON) }} stack_top = {ram} + 0x4000; }}"
    );
    std::fs::write(file("script.ld"), script).unwrap();
    let built = Command::new("arm-none-eabi-gcc")
        .args(core.split(' '))
        .args(["-mthumb", "-O1", "-g", "-ffreestanding", "-nostdlib"])
        .args(["-Wl,--build-id=none", "-Wl,-z,noexecstack", "-T"])
        .arg(file("script.ld"))
        .args(options)
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("testdata/programs")
                .join(program),
        )
        .arg("-o")
        .arg(file("image.elf"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    file("image.elf")
}

fn record(image: &Path, machine: &str, until: Option<&str>) -> PathBuf {
    let output = image.with_file_name("out");
    let mut options = vec!["--system", machine, "--force"];
    options.extend(until.iter().flat_map(|until| ["--until", until]));
    let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
    let run = record_image(image, &output, &options);
    assert!(run.status.success(), "{until:?}: {run:?}");
    output
}

/// What GDB prints.
pub fn told(snapshot: &Path, options: &[&str], commands: &[&str]) -> String {
    let run = Command::new(crate::support::armsnap())
        .arg("gdb")
        .args(options)
        .arg(snapshot)
        .args(["--", "-batch"])
        .args(commands.iter().flat_map(|command| ["-ex", command]))
        .output()
        .unwrap();
    String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()
}

/// The functions of the frames, and the exceptions among them.
fn frames(told: &str) -> Vec<&str> {
    let frames = told.lines().filter(|line| line.starts_with('#'));
    frames
        .map(|line| {
            let frame = line.split_once("  ").unwrap().1;
            let frame = frame.split_once(" in ").map_or(frame, |(_, of)| of);
            frame.split(" (").next().unwrap()
        })
        .collect()
}

const EXCEPTION: &str = "<signal handler called>";
const TASK: [&str; 3] = ["wait", "first", "??"];

#[test]
fn back_traces_go_on_to_the_task() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for microcontroller in MICROCONTROLLERS {
        let image = build(directory.path(), microcontroller);
        let commands = [
            "bt",
            "print/x $psp",
            "print/x seen",
            "print/x $msp - $sp",
            "print/x &seen",
        ];
        let mut seen = String::new();
        for (until, handlers, task) in [
            (None, &["report", EXCEPTION][..], &["load", "first", "??"]),
            (Some("in_tick"), &["in_tick", "on_tick", EXCEPTION], &TASK),
            (
                Some("in_interrupt"),
                &[
                    "in_interrupt",
                    "on_interrupt",
                    EXCEPTION,
                    "on_tick",
                    EXCEPTION,
                ],
                &TASK,
            ),
        ] {
            let snapshot = record(&image, microcontroller[1], until);
            let told = told(&snapshot, &[], &commands);
            assert_eq!(frames(&told), [handlers, task].concat(), "{told}");
            assert_eq!(value(&told, 1), value(&told, 2), "{told}");
            assert_eq!(value(&told, 3), "0x0", "{told}");
            assert!(
                told.contains(&format!("psp {} is inferred", value(&told, 1))),
                "{told}"
            );
            value(&told, 4).clone_into(&mut seen);
        }
        // The trace is enough: no symbols.
        let snapshot = record(&image, microcontroller[1], None);
        std::fs::remove_file(snapshot.join("image.elf")).unwrap();
        let read = format!("print/x *(unsigned int *) {seen}");
        let told = told(&snapshot, &[], &["print/x $psp", &read]);
        assert_eq!(value(&told, 1), value(&told, 2), "{told}");
    }
}

/// A value that GDB printed.
fn value(told: &str, number: u32) -> &str {
    let after = told.split(&format!("${number} = ")).nth(1);
    let line = after.and_then(|after| after.lines().next());
    line.unwrap_or_else(|| panic!("{told}"))
}

#[test]
fn a_stack_pointer_that_is_not_known_ends_the_back_trace() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let microcontroller = MICROCONTROLLERS[1];
    let image = build(directory.path(), microcontroller);
    for (until, options, reason) in [
        (
            None,
            &["--history", "none"][..],
            "(no trace leads to the exception)",
        ),
        (
            Some("third_switch"),
            &[],
            "and 2 exception frames return there)",
        ),
        (
            Some("psp_written"),
            &[],
            "(the handler wrote psp, or may have done so)",
        ),
    ] {
        let snapshot = record(&image, microcontroller[1], until);
        let told = told(&snapshot, options, &["bt", "print $psp"]);
        assert!(told.contains(reason), "{told}");
        assert!(told.contains("$1 = void"), "{told}");
        let names = frames(&told);
        assert!(!names.contains(&"reset"), "{told}");
        assert!(!names.contains(&EXCEPTION), "{told}");
    }
    // An exception of code on the main stack is as before.
    let snapshot = record(&image, microcontroller[1], Some("on_svc"));
    let told = told(&snapshot, &[], &["bt", "print $psp"]);
    assert!(
        frames(&told).starts_with(&["on_svc", EXCEPTION, "reset"]),
        "{told}"
    );
    assert!(!told.contains("note:"), "{told}");
}

#[test]
fn stack_pointers_of_the_snapshot_and_of_other_cores() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let microcontroller = MICROCONTROLLERS[1];
    let image = build(directory.path(), microcontroller);
    let snapshot = record(&image, microcontroller[1], Some("in_tick"));
    let file = |name: &str| snapshot.join(name);
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let (core, list) = (read("cpu_0.ini"), read("snapshot.ini"));
    // A core with PSP but without MSP.
    let inferred = told(&snapshot, &[], &["print/x $psp"]);
    let with = core.replace("\nPC=", &format!("\nPSP={}\nPC=", value(&inferred, 1)));
    std::fs::write(file("cpu_0.ini"), &with).unwrap();
    let told = self::told(&snapshot, &["--history", "none"], &["bt"]);
    assert!(told.contains("msp is sp: "), "{told}");
    assert!(frames(&told).ends_with(&TASK), "{told}");
    // The same core, together with one of which only SP is known.
    std::fs::write(file("cpu_0.ini"), &core).unwrap();
    let other = "[device]\nname=other\nclass=core\ntype=Cortex-M4\n\n\
                 [regs]\nPC=0x100\nSP=0x20000800\nxPSR=0x01000000\n";
    std::fs::write(file("other.ini"), other).unwrap();
    let list = list.replace("device1=", "device2=other.ini\ndevice1=");
    std::fs::write(file("snapshot.ini"), list).unwrap();
    let told = self::told(&snapshot, &[], &["info threads", "bt"]);
    assert!(told.contains("\"other\""), "{told}");
    assert!(
        told.contains("(another core has no msp and psp, "),
        "{told}"
    );
    assert!(!told.contains(EXCEPTION), "{told}");
}
