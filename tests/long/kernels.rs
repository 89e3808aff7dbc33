//! Whole boots of Debian's kernel, with KASLR, to its panic: the trace equals the witness.
//!
//! Slow in a debug build: scripts/test --long runs it optimised.

use crate::support::gdb::{armsnap, run_within, text};
use crate::support::kernel::{boot, compare, debian_kernel, initrd};
use crate::support::translation::{Emulator, Numbers};
use armsnap::arch::Space;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::{Device, DeviceClass, Snapshot};
use armsnap::snapshot::read::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The output of GDB on a recording.
fn gdb(snapshot: &Path, options: &[&str], commands: &[&str]) -> String {
    let mut command = armsnap();
    command.arg("gdb").args(options).arg(snapshot);
    command.args(["--", "-nx", "-batch"]);
    for gdb in commands {
        command.args(["-ex", gdb]);
    }
    text(&run_within(&mut command, Duration::from_secs(300)))
}

/// The functions in the back trace that the kernel printed, from `panic` on. A return address after
/// a call that does not return is printed as the next function.
fn printed(console: &str) -> Vec<Option<String>> {
    let (_, trace) = console.rsplit_once("Call trace:").expect("a back trace");
    let lines = trace.lines().skip(1).map_while(|line| {
        let (_, place) = line.split_once("]  ")?;
        let (name, offset) = place.trim().split_once("+0x")?;
        // GDB omits what follows the point.
        let name = name.split('.').next().unwrap_or(name);
        Some((name.to_owned(), !offset.starts_with("0/")))
    });
    let from_panic = lines.skip_while(|(name, _)| name != "panic");
    from_panic
        .map(|(name, known)| known.then_some(name))
        .collect()
}

/// The names of the frames of each thread, by its number.
fn frames_by_thread(traces: &str) -> Vec<(String, Vec<String>)> {
    let threads = traces.split("\nThread ").skip(1).map(|thread| {
        let frames = thread.lines().filter(|line| line.starts_with('#'));
        let names = frames.map(|line| {
            let (_, rest) = line.split_once(' ').unwrap();
            let name = rest.split_once(" in ").map_or(rest, |(_, name)| name);
            name.split(" (").next().unwrap().trim().to_owned()
        });
        let number = thread.split(' ').next().unwrap();
        (number.to_owned(), names.collect())
    });
    threads.collect()
}

/// The thread with `panic` in its back trace, and its frames from there on.
fn panicked(traces: &str) -> (String, Vec<String>) {
    for (thread, names) in frames_by_thread(traces) {
        let names: Vec<String> = names.into_iter().skip_while(|n| n != "panic").collect();
        if !names.is_empty() {
            return (thread, names);
        }
    }
    panic!("{traces}");
}

/// Asserts that the frames of each processor that did not panic go down to the first function of its task,
/// wherever the panic found it. Returns those frames.
fn frames_of_others(traces: &str) -> Vec<Vec<String>> {
    let threads = frames_by_thread(traces).into_iter();
    let frames = threads.map(|(_, frames)| frames);
    let others = frames.filter(|frames| !frames.iter().any(|frame| frame == "panic"));
    let others: Vec<Vec<String>> = others.collect();
    assert!(!others.is_empty(), "{traces}");
    // A thread of the kernel, the idle task of the first processor, and those of the others.
    let first = [
        "ret_from_fork",
        "__primary_switched",
        "__secondary_switched",
    ];
    for frames in &others {
        let last = frames.last().map(String::as_str);
        assert!(last.is_some_and(|last| first.contains(&last)), "{traces}");
    }
    others
}

/// Whether the frames in GDB start with those that the kernel printed.
fn same(frames: &[String], printed: &[Option<String>]) -> bool {
    let signal = "<signal handler called>";
    let mut pairs = frames.iter().zip(printed);
    let equal = |(frame, printed): (&String, &Option<String>)| match printed {
        Some(printed) => frame == printed || frame == signal && printed.starts_with("el"),
        None => true,
    };
    frames.len() >= printed.len() && pairs.all(equal)
}

/// Boots until the kernel panics because there is no root file system.
fn panics(cores: usize) {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (witness, count) = (place("witness"), cores.to_string());
    let options = ["--smp", &count, "--witness", witness.to_str().unwrap()];
    let output = boot(&kernel, &place("snapshot"), &options);
    let console = String::from_utf8_lossy(&output.stdout);
    assert!(console.contains("Unable to mount root fs"), "{console}");
    let moved = "from where it was linked (KASLR)";
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(moved), "{said}");
    let traced = compare(&place("snapshot"), &witness);
    assert_eq!(traced.len(), cores);
    let all: u64 = traced.iter().map(|core| core.instructions()).sum();
    assert!(all > 50_000_000, "{all}");
    assert!(traced.iter().all(|core| core.context_ids.len() > 2));

    let snapshot = place("snapshot");
    let wanted = printed(&console);
    assert!(wanted.len() > 5, "{wanted:?}");
    let traces = gdb(&snapshot, &[], &["thread apply all bt"]);
    let (thread, frames) = panicked(&traces);
    assert!(same(&frames, &wanted), "{traces}\n{wanted:?}");
    assert_eq!(frames.len(), wanted.len(), "{traces}");
    if cores > 1 {
        frames_of_others(&traces);
    }

    // Back to the function that called panic, and forward again.
    let caller = wanted[1].as_deref().expect("its name");
    let moves = gdb(
        &snapshot,
        &[],
        &[
            &format!("thread {thread}"),
            &format!("break {caller}"),
            "reverse-continue",
            "delete",
            "break panic",
            "continue",
            "bt 2",
            "delete",
            "continue",
            "bt 1",
        ],
    );
    let (_, back) = moves.split_once("Breakpoint 1, ").expect(&moves);
    let (back, forward) = back.split_once("Breakpoint 2, ").expect(&moves);
    assert!(back.contains(&format!("in {caller} ()")), "{moves}");
    let at_panic = "in panic ()\n#1  ";
    assert!(forward.contains(at_panic), "{moves}");
    assert!(forward.contains(&format!("in {caller} ()")), "{moves}");
    assert!(
        forward.contains("No more reverse-execution history"),
        "{moves}"
    );

    // The log has all lines of the console.
    let kernel = gdb(
        &snapshot,
        &[],
        &["monitor dmesg", "monitor tasks", "monitor task 2"],
    );
    let console = console.replace('\t', " ");
    let lines = console.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("[  ")).collect();
    assert!(lines.len() > 150, "{console}");
    let log: std::collections::BTreeSet<&str> = kernel.lines().map(str::trim_end).collect();
    // What follows the back trace comes after the recording.
    for line in lines.iter().filter(|line| !line.contains("---[ end")) {
        assert!(log.contains(line), "{line}\n{kernel}");
    }
    let task = |pid: &str, name: &str| {
        let mut rows = kernel
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.any(|row| row.first() == Some(&pid) && row.last() == Some(&name))
    };
    // The kernel does not list the idle tasks of other cores.
    assert!(task("0", "swapper/0"), "{kernel}");
    assert!(task("2", "kthreadd"), "{kernel}");
    for frame in [
        " __switch_to+0x",
        " schedule+0x",
        " kthreadd+0x",
        " ret_from_fork+0x",
    ] {
        assert!(kernel.contains(frame), "{frame}: {kernel}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn one_core_boots_to_the_panic() {
    panics(1);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn two_cores_boot_to_the_panic() {
    panics(2);
}

/// Two processes with the same code at the same addresses, then the crash.
/// The system call is in the same file, so that the line with the crash has code of its own.
const CRASH: &str = r#"
static long call(long number, long a, long b, long c, long d, long e)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}

static volatile unsigned sum;

static void crash(void)
{
    long file = call(56, -100, (long)"/proc/sysrq-trigger", 1, 0, 0);
    call(64, file, (long)"c", 1, 0, 0); /* the crash */
}

void _start(void)
{
    long child = call(220, 17, 0, 0, 0, 0);
    for (unsigned i = 0; i < (child ? 9000000u : 3000000u); i++)
        sum += i;
    if (!child)
        for (;;)
            call(124, 0, 0, 0, 0, 0);
    call(40, (long)"proc", (long)"/proc", (long)"proc", 0, 0);
    crash();
    for (;;)
        ;
}
"#;

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn a_program_crashes_the_kernel() {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let Some((archive, program)) = initrd(directory.path(), CRASH) else {
        return;
    };
    let witness = place("witness");
    let options = [
        "--smp",
        "2",
        "--initrd",
        archive.to_str().unwrap(),
        "--from",
        "kernel_init",
        "--until",
        "panic",
        "--witness",
        witness.to_str().unwrap(),
    ];
    let output = boot(&kernel, &place("snapshot"), &options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("stopped at panic"), "{said}");
    let traced = compare(&place("snapshot"), &witness);
    let at = |level: usize| traced.iter().map(|core| core.at_level[level]).sum::<u64>();
    assert!(at(0) > 20_000_000, "{traced:?}");
    assert!(at(1) > 50_000_000, "{traced:?}");

    // From the panic to the program: by its back trace, then in history.
    let snapshot = place("snapshot");
    let elf = ["--elf", program.to_str().unwrap()];
    let traces = gdb(&snapshot, &elf, &["thread apply all bt"]);
    let (thread, frames) = panicked(&traces);
    let calls = ["sysrq_handle_crash", "vfs_write", "el0_svc"];
    assert!(
        calls.iter().all(|name| frames.iter().any(|f| f == name)),
        "{traces}"
    );
    let line = CRASH
        .lines()
        .position(|line| line.contains("/* the crash */"));
    let line = format!("init.c:{}", line.unwrap() + 1);
    // The process continues after its system call.
    assert_eq!(
        frames[frames.len() - 2],
        "<signal handler called>",
        "{traces}"
    );
    assert_eq!(frames[frames.len() - 1], "_start", "{traces}");
    assert!(traces.contains("init.c:"), "{traces}");
    let moves = gdb(
        &snapshot,
        &elf,
        &[
            &format!("thread {thread}"),
            &format!("break {line}"),
            "reverse-continue",
            "bt",
            "delete",
            "break write_sysrq_trigger",
            "continue",
            "bt 4",
        ],
    );
    let (_, back) = moves.split_once("Breakpoint 1, ").expect(&moves);
    let (back, forward) = back.split_once("Breakpoint 2, ").expect(&moves);
    assert!(
        back.contains("crash () at ") && back.contains(&line),
        "{moves}"
    );
    assert!(forward.contains("in vfs_write ()"), "{moves}");
}

/// A kernel that has panicked in QEMU, and its console.
fn panicked_in_qemu(kernel: &Path, cpu: &str, console: &Path) -> (Emulator, String) {
    let qemu = Emulator::start(
        Command::new("qemu-system-aarch64")
            .args(["-M", "virt", "-cpu", cpu, "-smp", "2", "-m", "256"])
            .args(["-serial", &format!("file:{}", console.display())])
            // Its time advances with the instructions, so that interrupts do not pile up on a busy
            // machine.
            .args(["-icount", "shift=4,sleep=off"])
            .args(["-append", "console=ttyAMA0", "-kernel"])
            .arg(kernel),
    );
    let started = Instant::now();
    loop {
        let text = std::fs::read(console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.contains("---[ end Kernel panic") {
            return (qemu, text);
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Writes the memory of QEMU's system and the registers of its cores to a core file.
fn dump(qemu: &mut Emulator, core: &Path) {
    let protocol = format!("file:{}", core.display());
    let arguments = serde_json::json!({"paging": false, "protocol": protocol});
    qemu.execute("dump-guest-memory", &arguments);
}

/// The kernel's half of its own tables: most addresses are near its blocks and pages, the others
/// anywhere.
#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn the_tables_of_linux_map_as_in_qemu() {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (mut qemu, _) = panicked_in_qemu(&kernel, "cortex-a57", &place("console"));
    qemu.execute("stop", &serde_json::json!({}));
    dump(&mut qemu, &place("core"));
    let mut import = armsnap();
    import
        .arg("import")
        .args([place("core"), place("snapshot")]);
    text(&run_within(&mut import, Duration::from_secs(60)));

    let loaded = Snapshot::open(&place("snapshot"), &OpenOptions::default()).unwrap();
    let devices = &loaded.snapshot.devices;
    let is_core = |device: &Device| device.class == DeviceClass::Core;
    let core = devices.iter().position(is_core).unwrap();
    let mut memory = CoreMemory::new(&loaded, &devices[core]);
    memory.translate(&loaded, core);
    let translated = memory.translated().unwrap();
    let regime = translated.regime(Space::El1N).unwrap();
    let mut maps = translated.maps(regime, 1 << 63, 1_000_000);
    let blocks: Vec<_> = std::iter::from_fn(|| maps.next_block()).collect();
    assert_eq!(maps.reached(), None);

    let (mut numbers, mut mapped, count) = (Numbers::new(1), 0, 100_000);
    for _ in 0..count / 1000 {
        let addresses: Vec<u64> = (0..1000)
            .map(|_| match numbers.below(4) {
                0 => numbers.next() | 0xffff << 48,
                _ => {
                    let block = &blocks[numbers.below(blocks.len() as u64) as usize];
                    let size = block.last - block.first + 1;
                    let around = block.first.wrapping_sub(size);
                    around.wrapping_add(numbers.below(3 * size)) | 0xffff << 48
                }
            })
            .collect();
        for (&address, wanted) in addresses.iter().zip(qemu.physical(&addresses)) {
            let found = translated.translate(regime, address, &mut |_| {});
            let physical = found.ok().map(|found| found.physical);
            assert_eq!(physical, wanted, "{address:#x}");
            mapped += usize::from(wanted.is_some());
        }
    }
    println!(
        "{count} compared, {mapped} of them mapped by {} blocks",
        blocks.len()
    );
    assert!(mapped > count / 4 && mapped < count * 9 / 10, "{mapped}");
}

/// Without a program with symbols, the names and callers come from the kernel's memory. The second
/// processor signs return addresses.
#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn core_files_of_kernels_show_the_back_traces_of_their_consoles() {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    for cpu in ["cortex-a57", "max,pauth-impdef=on"] {
        let directory = tempfile::tempdir().unwrap();
        let (mut qemu, console) = panicked_in_qemu(&kernel, cpu, &directory.path().join("console"));
        let wanted = printed(&console);
        assert!(wanted.len() > 5, "{wanted:?}");
        let core = directory.path().join("core");
        // At the start of an interrupt, only a register that core files lack has the address that
        // was interrupted.
        let mut traces = String::new();
        for _ in 0..5 {
            dump(&mut qemu, &core);
            traces = gdb(&core, &[], &["thread apply all bt"]);
            if traces.contains(" in panic (") {
                break;
            }
        }
        let (_, frames) = panicked(&traces);
        assert!(same(&frames, &wanted), "{cpu}: {traces}\n{wanted:?}");
        for frames in frames_of_others(&traces) {
            let stopped = frames.iter().any(|frame| frame == "local_cpu_stop");
            assert!(stopped, "{traces}");
        }
    }
}
