//! `armsnap record --system` of a core with TrustZone-M: secure and non-secure code call each other.

use crate::support::program::Code;
use crate::support::record::installed;
use crate::systems::{compare, count, record_image};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the secure and the non-secure part of a program.
pub fn build_trustzone(directory: &Path) -> PathBuf {
    let file = |name: &str| directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/programs/trustzone-m.c");
    let script = "SECTIONS {\n\
        .non_secure 0x200000 : { non.o(.vectors) non.o(.text* .rodata* .data* .bss* COMMON) }\n\
        .text 0x10000000 : { *(.vectors) *(.text*) *(.rodata*) }\n\
        .gnu.sgstubs 0x10080000 : { *(.gnu.sgstubs*) . = ALIGN(32); }\n\
        .bss 0x38000000 : { *(.data* .bss* COMMON) }\n\
        secure_stack = 0x38008000; non_secure_stack = 0x240000; }";
    std::fs::write(file("script.ld"), script).unwrap();
    let compile = |arguments: &[&std::ffi::OsStr]| {
        let built = Command::new("arm-none-eabi-gcc")
            .args([
                "-mcpu=cortex-m33",
                "-mfloat-abi=soft",
                "-mthumb",
                "-O1",
                "-g",
            ])
            .args(["-ffreestanding", "-nostdlib"])
            .args(arguments)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
    };
    let words = |words: &'static str| words.split(' ').map(std::ffi::OsStr::new);
    for part in ["-c -o non.o", "-mcmse -c -o secure.o"] {
        let arguments: Vec<_> = words(part).chain([source.as_os_str()]).collect();
        compile(&arguments);
    }
    let link =
        "-Wl,--build-id=none -Wl,-z,noexecstack -T script.ld secure.o non.o -lgcc -o image.elf";
    compile(&words(link).collect::<Vec<_>>());
    file("image.elf")
}

/// What GDB is asked to do at the end of a recording.
const COMMANDS: [&str; 6] = [
    "monitor where",
    "reverse-stepi",
    "bt",
    "break run",
    "reverse-continue",
    "bt",
];

/// The address of the veneers that non-secure code calls.
const VENEERS: u64 = 0x1008_0000;

#[test]
fn calls_between_the_security_states_of_a_cortex_m33() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = build_trustzone(directory.path());
    for protocol in ["etmv4", "etmv3"] {
        let (output, witness) = (
            directory.path().join("out"),
            directory.path().join("witness"),
        );
        let options = [
            "--system",
            "mps2-an505",
            "--protocol",
            protocol,
            "--force",
            "--witness",
        ];
        let mut options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        options.push(witness.to_str().unwrap().to_owned());
        let run = record_image(&image, &output, &options);
        assert!(run.status.success(), "{run:?}");
        let exceptions = compare(&output, &witness, protocol, &Code::of(&image), protocol);
        assert_eq!(count(&exceptions, "SVC"), 40, "{protocol}");
        assert!(
            count(&exceptions, "SysTick") > 20,
            "{protocol}: {exceptions:?}"
        );
        // Secure memory is that whose address has bit 28 (IDAU of the machine).
        let run = Command::new(crate::support::armsnap())
            .args(["decode", "--format", "jsonl"])
            .arg(&output)
            .output()
            .unwrap();
        let (mut state, mut changes) = (String::new(), 0);
        for line in String::from_utf8_lossy(&run.stdout).lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["kind"] == "context" {
                let next = line["security"].as_str().unwrap();
                changes += u32::from(next != state);
                state = next.to_owned();
            } else if line["kind"] == "range" {
                let place = |name: &str| {
                    u64::from_str_radix(&line[name].as_str().unwrap()[2..], 16).unwrap()
                };
                let (start, end) = (place("start"), place("end"));
                if start >= VENEERS && end == start + 4 {
                    // SG alone: before the change of the state in ETMv3, and after it in ETMv4.
                    continue;
                }
                let wanted = if start >> 28 & 1 == 1 {
                    "secure"
                } else {
                    "non-secure"
                };
                assert_eq!(state, wanted, "{protocol}: {line}");
            }
        }
        assert_eq!(state, "non-secure");
        // In each round there are two calls with their returns, and within one of these another
        // call and return.
        assert!(changes >= 40 * 6, "{protocol}: {changes}");
    }
}

#[test]
fn callers_and_moves_go_through_entries_of_secure_code() {
    if !installed(&["qemu-system-arm", "arm-none-eabi-gcc", "gdb-multiarch"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = build_trustzone(directory.path());
    let output = directory.path().join("out");
    // The handler of an interrupt of non-secure code: none of it has run.
    for (until, state) in [
        ("triple", "secure"),
        ("twice", "non-secure"),
        ("on_tick", "secure"),
    ] {
        let options = ["--system", "mps2-an505", "--force", "--until", until];
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let run = record_image(&image, &output, &options);
        assert!(run.status.success(), "{run:?}");
        let run = Command::new(crate::support::armsnap())
            .arg("gdb")
            .arg(&output)
            .args(["--", "-batch"])
            .args(COMMANDS.iter().flat_map(|command| ["-ex", command]))
            .output()
            .unwrap();
        let told = [run.stdout, run.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        let shown = format!("state     EL0, {state}, AArch32");
        assert!(told.contains(&shown), "{until}: {told}");
        assert!(!told.contains("SIGLOST"), "{until}: {told}");
        if until != "on_tick" {
            let frames = ["entry_", " in run () at ", " in reset () at "];
            assert!(
                frames.iter().all(|frame| told.contains(frame)),
                "{until}: {told}"
            );
        }
    }
}
