//! `armsnap record --system`: the trace of bare-metal programs with interrupts and several cores
//! decodes to exactly what they executed.

use crate::support::program::{Code, Program, program};
use crate::support::record::{installed, places};
use armsnap::encode::CodeAddress;
use armsnap::quantity::{Address, Isa};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const EMULATORS: [&str; 2] = ["qemu-system-aarch64", "qemu-system-arm"];

/// `armsnap record` of a program on its machine.
fn record(program: &Program, output: &Path, options: &[&str]) -> Output {
    let mut machine = program.machine.as_ref().unwrap().iter();
    let mut arguments = vec!["--system".to_owned(), machine.next().unwrap().clone()];
    for option in machine {
        // -cpu, -smp: the same names with another dash.
        let dash = if option.starts_with('-') { "-" } else { "" };
        arguments.push(format!("{dash}{option}"));
    }
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    record_image(&program.elf, output, &arguments)
}

pub(crate) fn record_image(image: &Path, output: &Path, options: &[String]) -> Output {
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "5",
        "120",
        crate::support::armsnap(),
        "record",
        "--exit-zero",
    ]);
    command.arg("-o").arg(output).args(options);
    command.arg("--").arg(image).stdin(Stdio::null());
    command.output().unwrap()
}

/// The instructions that the trace of each core decodes to, and its exceptions by name.
fn decoded(snapshot: &Path, source: &str, code: &Code) -> (Vec<CodeAddress>, Vec<String>) {
    let run = Command::new(crate::support::armsnap())
        .args(["decode", "--format", "jsonl", "--source", source])
        .arg(snapshot)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let (mut places, mut exceptions) = (Vec::new(), Vec::new());
    let mut begins = 0;
    for line in String::from_utf8_lossy(&run.stdout).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap();
        match text("kind") {
            "range" => {
                let hex = |text: &str| u64::from_str_radix(&text[2..], 16).unwrap();
                let isa = match text("isa") {
                    "A64" => Isa::A64,
                    "A32" => Isa::A32,
                    _ => Isa::T32,
                };
                let (mut here, end) = (hex(text("start")), hex(text("end")));
                while here < end {
                    let address = Address(here);
                    places.push(CodeAddress { address, isa });
                    here += code.length(here, isa);
                }
            }
            "exception" => exceptions.push(text("name").to_owned()),
            "trace_on" => begins += 1,
            "memory_missing" => panic!("{line}"),
            _ => {}
        }
    }
    assert_eq!(begins, 1, "{source}: the trace has gaps");
    (places, exceptions)
}

/// Records a program with these options, and compares the trace of each core with the witness. Returns
/// the exceptions of the first core.
fn exact(name: &str, protocol: &str, options: &[&str]) -> Option<Vec<String>> {
    if !installed(&EMULATORS) {
        return None;
    }
    let program = program(name);
    let directory = tempfile::tempdir().unwrap();
    let (output, witness) = (
        directory.path().join("out"),
        directory.path().join("witness"),
    );
    let mut arguments = vec![
        "--protocol",
        protocol,
        "--witness",
        witness.to_str().unwrap(),
    ];
    arguments.extend(options);
    let run = record(program, &output, &arguments);
    let what = format!("{name} {protocol} {options:?}");
    assert!(run.status.success(), "{what}: {run:?}");
    Some(compare(&output, &witness, protocol, &program.code(), &what))
}

/// Compares the trace of each core with the witness. Returns the exceptions of the first core.
pub(crate) fn compare(
    output: &Path,
    witness: &Path,
    protocol: &str,
    code: &Code,
    what: &str,
) -> Vec<String> {
    let mut first = None;
    for (core, executed) in places(witness) {
        let source = format!("{}_{core}", protocol.to_uppercase());
        let (found, exceptions) = decoded(output, &source, code);
        let same = found.iter().zip(&executed).take_while(|(a, b)| a == b);
        let same = same.count();
        assert!(
            found == executed,
            "{what}: {source}: {same} of {} agree, decoded {:x?}, executed {:x?}",
            executed.len(),
            found.get(same.saturating_sub(2)..(same + 3).min(found.len())),
            executed.get(same.saturating_sub(2)..(same + 3).min(executed.len())),
        );
        assert!(found.len() > 40, "{what}: {}", found.len());
        first.get_or_insert(exceptions);
    }
    first.expect("a core")
}

pub(crate) fn count(exceptions: &[String], name: &str) -> usize {
    exceptions.iter().filter(|found| *found == name).count()
}

#[test]
fn interrupts_calls_and_faults_of_a_cortex_a57() {
    let Some(exceptions) = exact(
        "irq-a64-bare-a64",
        "etmv4",
        &["--return-stack", "--ram", "16M"],
    ) else {
        return;
    };
    for name in ["IRQ", "call", "data fault"] {
        assert!(count(&exceptions, name) > 0, "{name}: {exceptions:?}");
    }
}

#[test]
fn interrupts_calls_and_faults_of_a_cortex_a15() {
    for (protocol, call, fault) in [
        ("etmv4", "call", "data fault"),
        ("ptm", "SVC", "Synchronous data abort"),
        ("etmv3", "SVC", "Synchronous data abort"),
    ] {
        let options = ["--sync", "500", "--ram", "16M"];
        let Some(exceptions) = exact("irq-a15-bare-a15", protocol, &options) else {
            return;
        };
        for name in ["IRQ", call, fault] {
            assert!(count(&exceptions, name) > 0, "{name}: {exceptions:?}");
        }
    }
}

#[test]
fn exceptions_of_a_cortex_m4() {
    for (protocol, options) in [
        ("etmv4", &["--sync", "100"][..]),
        ("etmv4", &["--cycles", "--timestamps", "--branch-broadcast"]),
        ("etmv3", &["--sync", "100"]),
        ("etmv3", &["--cycles", "--timestamps"]),
    ] {
        let Some(exceptions) = exact("irq-m4-bare-m4", protocol, options) else {
            return;
        };
        for name in ["SysTick", "SVC", "PendSV", "BusFault"] {
            assert!(count(&exceptions, name) > 0, "{name}: {exceptions:?}");
        }
    }
}

/// Cores with an ETMv4 (M7, M33) or an ETMv3 (M3), and the start of their memories.
const MICROCONTROLLERS: [[&str; 5]; 3] = [
    ["cortex-m3", "mps2-an385", "etmv3", "0", "0x20000000"],
    ["cortex-m7", "mps2-an500", "etmv4", "0", "0x20000000"],
    [
        "cortex-m33",
        "mps2-an505",
        "etmv4",
        "0x10000000",
        "0x38000000",
    ],
];

#[test]
fn exceptions_of_other_microcontrollers() {
    const COMPILER: &str = "arm-none-eabi-gcc";
    if !installed(&["qemu-system-arm", COMPILER]) {
        return;
    }
    for [core, machine, protocol, code, ram] in MICROCONTROLLERS {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let script = format!(
            "SECTIONS {{ . = {code}; .text : {{ *(.vectors) *(.text*) *(.rodata*) }}\n\
             . = {ram}; .bss : {{ *(.data* .bss* COMMON) }} stack_top = {ram} + 0x4000; }}"
        );
        std::fs::write(file("script.ld"), script).unwrap();
        let built = Command::new(COMPILER)
            .args(["-mthumb", "-O1", "-g", "-ffreestanding", "-nostdlib"])
            .args(["-Wl,--build-id=none", "-Wl,-z,noexecstack", "-T"])
            .arg(file("script.ld"))
            .arg(format!("-mcpu={core}"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/programs/exceptions-m.c"))
            .arg("-o")
            .arg(file("image.elf"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        // To its end, and into a handler entered after a branch.
        for until in [None, Some("on_tick")] {
            let witness = file("witness");
            let mut options = vec!["--system", machine, "--protocol", protocol, "--force"];
            options.extend(["--witness", witness.to_str().unwrap()]);
            options.extend(until.iter().flat_map(|until| ["--until", until]));
            let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
            let run = record_image(&file("image.elf"), &file("out"), &options);
            let told = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(run.status.success(), "{core}: {told}");
            let code = Code::of(&file("image.elf"));
            let what = format!("{core} {until:?}");
            let exceptions = compare(&file("out"), &witness, protocol, &code, &what);
            let wanted = match until {
                None => [("SysTick", 5), ("PendSV", 5), ("SVC", 40), ("HardFault", 1)],
                Some(_) => [("SysTick", 1), ("PendSV", 0), ("HardFault", 0), ("NMI", 0)],
            };
            for (name, wanted) in wanted {
                assert_eq!(count(&exceptions, name), wanted, "{what}: {name}");
            }
            let end = match until {
                None => "about to exit with status 3",
                Some(_) => "at on_tick",
            };
            assert!(told.contains(end), "{told}");
        }
    }
}

#[test]
fn two_cores() {
    exact("cores-a64-bare-a64", "etmv4", &["--timestamps"]);
    for (protocol, option) in [
        ("etmv4", "--cycles"),
        ("ptm", "--timestamps"),
        ("etmv3", "--branch-broadcast"),
    ] {
        exact("cores-a15-bare-a15", protocol, &[option, "--sync", "64"]);
    }
}

/// The saved systems in `testdata`, recorded up to where they were saved: GDB shows the back
/// traces of the live machine, and the registers have the same values.
#[test]
fn the_state_equals_the_live_machine() {
    if !installed(&["gdb-multiarch"]) || !installed(&EMULATORS) {
        return;
    }
    for (name, machine) in [
        (
            "virt-a57",
            &["--system", "virt", "--smp", "2", "--ram", "16M"][..],
        ),
        ("mps2-m4", &["--system", "mps2-an386"]),
    ] {
        let saved = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata")
            .join(name);
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("out");
        let mut options: Vec<String> = machine.iter().map(|o| (*o).to_owned()).collect();
        options.extend(["--until", "halt_here"].map(str::to_owned));
        let run = record_image(&saved.join("program.elf"), &output, &options);
        assert!(run.status.success(), "{run:?}");
        let loaded = Snapshot::open(&output, &OpenOptions::default()).unwrap();
        let threads = std::fs::read_to_string(saved.join("expected/threads.txt")).unwrap();
        for line in threads.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [thread, device, _] = words[..] else {
                panic!("{line}");
            };
            let expected = |file: &str| {
                let path = saved.join("expected").join(device).join(file);
                std::fs::read_to_string(path).unwrap()
            };
            let mut gdb = Command::new("timeout");
            gdb.args(["-k", "5", "60", crate::support::armsnap(), "gdb"]);
            gdb.arg(&output)
                .args(["--", "-batch", "-nx", "-ex", "set width 0"]);
            gdb.args(["-ex", &format!("thread apply {thread} -q bt")]);
            let shown = gdb.stdin(Stdio::null()).output().unwrap();
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            assert!(
                shown.contains(expected("bt.txt").trim()),
                "{device}: {shown}"
            );
            let devices = &loaded.snapshot.devices;
            let core = devices.iter().find(|core| core.name == device).unwrap();
            let registers = expected("registers.txt");
            assert!(registers.lines().count() > 30);
            for line in registers.lines() {
                let (name, value) = line.split_once(' ').unwrap();
                let wanted = u128::from_str_radix(&value[2..], 16).unwrap();
                let register = core.register(name).unwrap_or_else(|| panic!("no {name}"));
                assert_eq!(register.value.as_u128(), Some(wanted), "{device}: {name}");
            }
        }
    }
}

#[test]
fn a_machine_that_shuts_down_or_resets() {
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    const PROGRAM: &str = r#"
        #include <stdint.h>
        struct saved;
        void exception(int kind, struct saved *saved) { (void)kind, (void)saved; for (;;); }
        void start_other(void);
        static void firmware(uint64_t call, uint64_t core, void (*start)(void))
        {
            register uint64_t x0 __asm__("x0") = call;
            register uint64_t x1 __asm__("x1") = core;
            register uint64_t x2 __asm__("x2") = (uint64_t)start;
            register uint64_t x3 __asm__("x3") = core;
            __asm__ volatile("hvc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3) : "memory");
        }
        void run_other(int core) { (void)core; firmware(CALL, 0, 0); }
        int run(void)
        {
            // Semihosting: SYS_WRITE0, which does not exit.
            register uint64_t x0 __asm__("x0") = 4;
            register const char *x1 __asm__("x1") = "by semihosting\n";
            __asm__ volatile("hlt #0xf000" : "+r"(x0) : "r"(x1) : "memory");
            for (const char *text = "by the serial port\n"; *text; text++)
                *(volatile unsigned *)0x09000000 = *text;
            if (OTHER) {
                // CPU_ON.
                firmware(0xC4000003, 1, start_other);
                for (;;)
                    __asm__ volatile("wfi");
            }
            firmware(CALL, 0, 0);
            return 1;
        }
    "#;
    if !installed(&["qemu-system-aarch64", COMPILER]) {
        return;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/programs");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    std::fs::write(file("off.c"), PROGRAM).unwrap();
    // PSCI: SYSTEM_OFF, SYSTEM_RESET.
    for (call, other) in [
        ("0x84000008", false),
        ("0x84000009", false),
        ("0x84000009", true),
    ] {
        let built = Command::new(COMPILER)
            .args([
                "-g",
                "-O1",
                "-ffreestanding",
                "-fno-pic",
                "-no-pie",
                "-static",
            ])
            .args(["-nostdlib", "-nostartfiles", "-mstrict-align"])
            .args([
                "-mgeneral-regs-only",
                "-Wl,--build-id=none",
                "-Wl,--no-warn-rwx-segments",
            ])
            .arg(format!("-DCALL={call}"))
            .arg(format!("-DOTHER={}", u8::from(other)))
            .arg("-T")
            .arg(programs.join("virt.ld"))
            .args([programs.join("start-a64.S"), file("off.c")])
            .arg("-o")
            .arg(file("off.elf"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let witness = file("witness");
        let options = ["--system", "virt", "--ram", "16M", "--force", "--witness"];
        let mut options: Vec<String> = options.map(str::to_owned).to_vec();
        options.push(witness.to_str().unwrap().to_owned());
        let cores = if other { "2" } else { "1" };
        options.extend(["--smp", cores].map(str::to_owned));
        let run = record_image(&file("off.elf"), &file("out"), &options);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{told}");
        assert!(told.contains("stopped shut down"), "{told}");
        assert!(told.contains("by semihosting"), "{told}");
        let serial = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(serial.contains("by the serial port"), "{serial}");
        let code = Code::of(&file("off.elf"));
        if !other {
            compare(&file("out"), &witness, "etmv4", &code, call);
        }
        let written = std::fs::read_to_string(file("out/snapshot.ini")).unwrap();
        let second = written.contains("stopped=Cortex-A57_1");
        assert_eq!(second, other, "{written}");
    }
    // An image may be kept from the host's files.
    let options = "--system virt --force --qemu -semihosting-config --qemu enable=off";
    let options = format!("{options} --instructions 100000");
    let options: Vec<String> = options.split(' ').map(str::to_owned).collect();
    let run = record_image(&file("off.elf"), &file("out"), &options);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    assert!(!told.contains("by semihosting"), "{told}");
}

#[test]
fn systems_that_cannot_be_recorded_are_errors() {
    if !installed(&EMULATORS) {
        return;
    }
    let image = &program("irq-m4-bare-m4").elf;
    let directory = tempfile::tempdir().unwrap();
    for (options, status, wanted) in [
        (&["--protocol", "ptm"][..], 2, "Cortex-M has no PTM"),
        (
            &["--until", "nowhere"],
            2,
            "no function or label has this name",
        ),
        (&["--smp", "0"], 2, "0 is not in"),
        (&["--sysroot", "/usr"], 2, "cannot be used with"),
    ] {
        let mut all = vec!["--system".to_owned(), "mps2-an386".to_owned()];
        all.extend(options.iter().map(|option| (*option).to_owned()));
        let run = record_image(image, &directory.path().join("out"), &all);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(status), "{told}");
        assert!(told.contains(wanted), "{told}");
        assert!(!directory.path().join("out").exists());
    }
}

/// The number of processes with this path among their arguments, except the recorder.
fn emulators_of(path: &Path) -> usize {
    let path = path.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.map(|process| std::fs::read(process.path().join("cmdline")));
    let arguments = arguments.flatten().filter(|arguments| {
        let arguments = String::from_utf8_lossy(arguments);
        arguments.starts_with("qemu-system") && arguments.contains(path)
    });
    arguments.count()
}

/// Waits for a number of emulators of the image.
fn wait_for_emulators(path: &Path, wanted: usize) {
    for _ in 0..6000 {
        if emulators_of(path) == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} emulators of {}", emulators_of(path), path.display());
}

#[test]
fn the_user_can_end_a_recording() {
    if !installed(&EMULATORS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (image, output) = (
        directory.path().join("image.elf"),
        directory.path().join("out"),
    );
    let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/virt-a57/program.elf");
    std::fs::copy(saved, &image).unwrap();
    for signal in [Signal::INT, Signal::KILL] {
        let mut command = Command::new(crate::support::armsnap());
        command.args([
            "record", "--system", "virt", "--smp", "2", "--ram", "16M", "--force", "-o",
        ]);
        command.arg(&output).arg("--").arg(&image);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_for_emulators(&image, 1);
        let id = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        kill_process(id, signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        // The emulator has ended in any case.
        wait_for_emulators(&image, 0);
        if signal == Signal::INT {
            let told = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.success(), "{told}");
            assert!(told.contains("stopped interrupted"), "{told}");
            let loaded = Snapshot::open(&output, &OpenOptions::default()).unwrap();
            assert!(loaded.snapshot.trace.is_some());
        }
    }
}

/// A Cortex-M4 with a hundred thousand interrupts a second of emulated time, after branches too.
const TICKS: &str = r#"
    #include <stdint.h>
    extern char stack_top[];
    static volatile unsigned ticks, odd, even;
    static void on_tick(void) { ticks++; }
    static void hang(void) { for (;;); }
    __attribute__((noinline)) static void one(void) { odd++; }
    __attribute__((noinline)) static void two(void) { even++; }
    static void reset(void)
    {
        *(volatile uint32_t *)0xe000e014 = 249;
        *(volatile uint32_t *)0xe000e018 = 0;
        *(volatile uint32_t *)0xe000e010 = 7;
        for (unsigned i = 0;; i++)
            if (i & 1) one(); else two();
    }
    __attribute__((section(".vectors"), used)) static void *const vectors[16] = {
        stack_top, reset, hang, hang, hang, hang, hang, 0, 0, 0, 0, hang, hang, 0, hang, on_tick };
"#;

/// Builds `TICKS` in this directory.
fn ticks(directory: &Path) -> Option<PathBuf> {
    const COMPILER: &str = "arm-none-eabi-gcc";
    const SCRIPT: &str = "SECTIONS { . = 0; .text : { *(.vectors) *(.text*) *(.rodata*) }\n\
        . = 0x20000000; .bss : { *(.data* .bss* COMMON) } stack_top = 0x20004000; }";
    if !installed(&["qemu-system-arm", COMPILER]) {
        return None;
    }
    let file = |name: &str| directory.join(name);
    std::fs::write(file("script.ld"), SCRIPT).unwrap();
    std::fs::write(file("ticks.c"), TICKS).unwrap();
    let built = Command::new(COMPILER)
        .args(["-mthumb", "-mcpu=cortex-m4", "-O1", "-ffreestanding"])
        .args(["-nostdlib", "-Wl,--build-id=none", "-T"])
        .args([file("script.ld"), file("ticks.c")])
        .arg("-o")
        .arg(file("ticks.elf"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    Some(file("ticks.elf"))
}

/// The recorder's time for interrupts is in proportion to their number.
#[test]
fn many_interrupts() {
    let directory = tempfile::tempdir().unwrap();
    let Some(image) = ticks(directory.path()) else {
        return;
    };
    let options = ["--system", "mps2-an386", "--instructions", "8000000"];
    let options = options.map(str::to_owned);
    let run = record_image(&image, &directory.path().join("out"), &options);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        told.contains("stopped after 8000000 instructions"),
        "{told}"
    );
}

#[test]
fn a_full_disk_ends_the_recording_of_a_machine() {
    let directory = tempfile::tempdir().unwrap();
    let Some(image) = ticks(directory.path()) else {
        return;
    };
    // No file may be larger than this many blocks.
    let limited = "trap '' XFSZ; ulimit -f 1000; exec timeout -k 5 120 \"$@\"";
    let run = Command::new("sh")
        .args([
            "-c",
            limited,
            "sh",
            crate::support::armsnap(),
            "record",
            "--exit-zero",
        ])
        .args(["--system", "mps2-an386", "-o"])
        .arg(directory.path().join("out"))
        .arg("--witness")
        .arg(directory.path().join("witness"))
        .arg("--")
        .arg(&image)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{told}");
    assert!(told.contains("File too large (os error"), "{told}");
    // A witness is whole, or not there.
    assert!(!directory.path().join("witness").exists());
}

/// Memory is written to temporary files in pieces, without what is zero.
#[test]
fn much_memory_takes_little_of_the_disk() {
    if !installed(&EMULATORS) {
        return;
    }
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/virt-a57/program.elf");
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out");
    // No file may be larger than this many blocks.
    let limited = "trap '' XFSZ; ulimit -f 200000; exec timeout -k 5 120 \"$@\"";
    let run = Command::new("sh")
        .args([
            "-c",
            limited,
            "sh",
            crate::support::armsnap(),
            "record",
            "--exit-zero",
        ])
        .args(["--system", "virt", "--smp", "2", "--ram", "512M"])
        .args(["--until", "halt_here", "-o"])
        .arg(&output)
        .arg("--")
        .arg(&image)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    assert!(!told.contains("is not saved"), "{told}");
    let loaded = Snapshot::open(&output, &OpenOptions::default()).unwrap();
    assert!(!loaded.snapshot.devices[0].dumps.is_empty(), "{told}");
}

/// At the third visit of a function by either core, and at a source line.
#[test]
fn a_recording_ends_at_until() {
    if !installed(&EMULATORS) {
        return;
    }
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/virt-a57/program.elf");
    for (until, wanted) in [
        (
            "price_tree --count 3",
            "stopped at price_tree (visit 3), PC 0x40100608",
        ),
        ("src/main.c:36", "stopped at src/main.c:36, PC 0x401004f4"),
        ("second_main", "stopped at second_main, PC 0x4010034c"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("--system virt --smp 2 --ram 16M --until {until}");
        let options: Vec<String> = options.split(' ').map(str::to_owned).collect();
        let output = directory.path().join("out");
        let run = record_image(&image, &output, &options);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(told.contains(wanted), "{told}");
        // Debuggers select the core that stopped, if it is not the first.
        let written = std::fs::read_to_string(output.join("snapshot.ini")).unwrap();
        let second = until == "second_main";
        assert_eq!(
            written.contains("stopped=Cortex-A57_1"),
            second,
            "{written}"
        );
        assert_eq!(written.contains("stopped="), second, "{written}");
    }
}
