//! Modules of Debian's kernel, by their list in its memory: names and callers.

use crate::support::gdb::{armsnap, run_within, text};
use crate::support::kernel::{boot, debian_kernel, initrd_with, later_kernel, module};
use crate::support::translation::Emulator;
use armsnap::program::module_file::{ModuleFile, Placement};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What both programs need: system calls, and inserting a module.
const CALLS: &str = r#"
#include "system_call.h"
static char text[1 << 16];
static unsigned long length(const char *s) { unsigned long n = 0; while (s[n]) n++; return n; }
static void say(const char *s) { call(64, 1, (long)s, length(s), 0, 0); }
static long open(const char *path, long flags) { return call(56, -100, (long)path, flags, 0, 0); }
static void insert(const char *path)
{
    long file = open(path, 0);
    long r = call(273, file, (long)"", 0, 0, 0);
    if (r) say("insert failed\n");
}
static int has(const char *line, unsigned long n, const char *what)
{
    unsigned long w = length(what);
    for (unsigned long i = 0; i + w <= n; i++) {
        unsigned long j = 0;
        while (j < w && line[i + j] == what[j]) j++;
        if (j == w) return 1;
    }
    return 0;
}
/* Prints the lines of a file that contain a text. */
static void print(const char *path, const char *what)
{
    long file = open(path, 0), n;
    unsigned long have = 0;
    while ((n = call(63, file, (long)text + have, sizeof text - have, 0, 0)) > 0) {
        unsigned long from = 0, end = have + n;
        for (unsigned long i = 0; i < end; i++)
            if (text[i] == '\n') {
                if (has(text + from, i - from, what)) {
                    say("@ ");
                    call(64, 1, (long)text + from, i + 1 - from, 0, 0);
                }
                from = i + 1;
            }
        have = end - from;
        for (unsigned long i = 0; i < have; i++) text[i] = text[from + i];
    }
}
"#;

/// The modules: one whose thread sleeps, and one whose initialisation takes a second.
const MODULES: [&str; 2] = ["pktgen", "raid6_pq"];

/// Prints what the kernel reports on its module and its tasks, and inserts the other module.
const PRINTS: &str = r#"
void _start(void)
{
    call(40, (long)"proc", (long)"/proc", (long)"proc", 0, 0);
    insert("/pktgen.ko");
    print("/proc/modules", "");
    print("/proc/kallsyms", "[pktgen]");
    long file = open("/proc/sysrq-trigger", 1);
    call(64, file, (long)"t", 1, 0, 0);
    say("@ ready\n");
    insert("/raid6_pq.ko");
    say("@ end\n");
    for (;;)
        call(115, 1, 0, 0, 0, 0);
}
"#;

/// Inserts a module, and then crashes.
const CRASHES: &str = r#"
void _start(void)
{
    call(40, (long)"proc", (long)"/proc", (long)"proc", 0, 0);
    insert("/pktgen.ko");
    long file = open("/proc/sysrq-trigger", 1);
    call(64, file, (long)"c", 1, 0, 0);
    for (;;)
        ;
}
"#;

fn gdb(snapshot: &Path, commands: &[String]) -> String {
    let mut command = armsnap();
    command.arg("gdb").arg(snapshot);
    command.args(["--", "-nx", "-batch"]);
    for gdb in commands {
        command.args(["-ex", gdb]);
    }
    text(&run_within(&mut command, Duration::from_secs(300)))
}

/// Waits for the second module, which measures how fast its algorithms are.
fn inserting(console: &Path) -> String {
    let started = Instant::now();
    loop {
        let text = std::fs::read(console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.contains("raid6: neon") {
            return text;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The functions of the first module by `/proc/kallsyms`: name and address.
fn functions(console: &str) -> Vec<(&str, &str)> {
    let lines = console.lines().filter_map(|line| line.strip_prefix("@ "));
    let lines = lines.filter(|line| line.contains("[pktgen]"));
    let functions = lines.filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (address, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
        let function = kind.eq_ignore_ascii_case("t") && !name.starts_with('$');
        // GDB omits what follows the point.
        function.then(|| (name.split('.').next().unwrap_or(name), address))
    });
    functions.collect()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn core_files_name_the_functions_of_modules() {
    if let Some(kernel) = debian_kernel() {
        names_and_code(&kernel);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn core_files_of_later_kernels_name_the_functions_of_modules() {
    if let Some(kernel) = later_kernel() {
        names_and_code(&kernel);
    }
}

/// Compares the modules of a running kernel with what it reports on them, and with their files.
fn names_and_code(kernel: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let files = MODULES.map(|name| (format!("{name}.ko"), module(kernel, name)));
    let files = files
        .each_ref()
        .map(|(name, bytes)| (&**name, bytes.clone()));
    let source = format!("{CALLS}{PRINTS}");
    let Some((archive, _)) = initrd_with(directory.path(), &source, &files) else {
        return;
    };
    let mut qemu = Emulator::start(
        Command::new("qemu-system-aarch64")
            .args(["-M", "virt", "-cpu", "cortex-a57", "-m", "256"])
            .args(["-serial", &format!("file:{}", place("console").display())])
            .args(["-icount", "shift=4,sleep=off"])
            .args(["-append", "console=ttyAMA0", "-kernel"])
            .arg(kernel)
            .arg("-initrd")
            .arg(&archive),
    );
    let console = inserting(&place("console"));
    let core = place("core");
    let file = format!("file:{}", core.display());
    let dump = serde_json::json!({"paging": false, "protocol": file});
    qemu.execute("dump-guest-memory", &dump);

    let functions = functions(&console);
    assert!(functions.len() > 20, "{console}");
    // The thread of the module, in the list of tasks that the kernel printed.
    let (_, task) = console.split_once("task:kpktgend_0").expect(&console);
    let (_, pid) = task.split_once(" pid:").unwrap();
    let pid = pid.split_whitespace().next().unwrap();
    let (_, trace) = task.split_once("Call trace:").unwrap();
    let frames = trace.lines().skip(1).map_while(|line| {
        let (_, place) = line.split_once("]  ")?;
        place
            .split(['/', ' '])
            .next()
            .filter(|place| place.contains("+0x"))
    });
    let frames: Vec<&str> = frames.collect();
    assert!(
        frames.iter().any(|frame| frame.starts_with("pktgen_")),
        "{task}"
    );

    // What is known of the module from its file is what the kernel loaded.
    let modules = console.lines().filter_map(|line| line.strip_prefix("@ "));
    let mut lines = modules.filter(|line| line.starts_with("pktgen "));
    let first = lines.next().and_then(|line| line.split(" 0x").nth(1));
    let first = first.and_then(|rest| rest.split_whitespace().next());
    let first = u64::from_str_radix(first.expect(&console), 16).unwrap();
    let file = ModuleFile::read(&files[0].1).unwrap();
    let linked = file.link(&Placement::of_code(&file, first), &|_| None);
    let end = linked
        .code
        .iter()
        .map(|part| part.address + part.file.len() as u64);
    let end = end.max().unwrap();
    let loaded = place("loaded");
    let dump = format!(
        "dump binary memory {} {first:#x} {end:#x}",
        loaded.display()
    );
    let said = gdb(&core, &[dump]);
    let loaded = std::fs::read(&loaded).expect(&said);
    let mut known = 0;
    for part in &linked.code {
        let at = (part.address - first) as usize;
        let own = &linked.file[part.file.clone()];
        known += own.len();
        assert!(own == &loaded[at..at + own.len()], "{:#x}", part.address);
    }
    let straight: u64 = linked
        .straight
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    println!(
        "{known} bytes known, {straight} straight, of {}",
        loaded.len()
    );
    assert!(known > loaded.len() / 2, "{known}");
    for range in &linked.straight {
        for at in range.clone().step_by(4) {
            let word = loaded[(at - first) as usize..].first_chunk().unwrap();
            let word = u32::from_le_bytes(*word);
            // Branches, exceptions, and barriers among the system instructions (Arm ARM DDI 0487,
            // C4.1.94).
            let class = word & 0x1c00_0000 == 0x1400_0000;
            let system = word >> 24 == 0xd5 && word & 0xffff_f01f != 0xd503_301f;
            assert!(!class || system, "{at:#x}: {word:#x}");
        }
    }

    let mut commands = vec!["bt".to_owned(), format!("monitor task {pid}")];
    let symbols = functions
        .iter()
        .map(|(_, address)| format!("info symbol 0x{address}"));
    commands.extend(symbols);
    let said = gdb(&core, &commands);
    for (name, address) in &functions {
        // GDB shows one name of several.
        let same = functions.iter().filter(|function| function.1 == *address);
        let names: Vec<&str> = same.map(|function| function.0).collect();
        let mut lines = said
            .lines()
            .filter(|line| names.iter().any(|name| line.starts_with(name)));
        let found = lines.any(|line| line.contains(" in section .text.pktgen of "));
        assert!(found, "{name}: {said}");
    }
    for frame in &frames {
        assert!(said.contains(&format!(" {frame}\n")), "{frame}: {said}");
    }
    // From the module's own initialisation, perhaps in an interrupt, to the kernel.
    for name in ["raid6_select_algo", "do_one_initcall"] {
        assert!(said.contains(&format!(" in {name} ()")), "{said}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn recordings_name_the_functions_of_modules() {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let files = [("pktgen.ko", module(&kernel, "pktgen"))];
    let source = format!("{CALLS}{CRASHES}");
    let Some((archive, _)) = initrd_with(directory.path(), &source, &files) else {
        return;
    };
    let snapshot = directory.path().join("snapshot");
    let archive = archive.to_str().unwrap();
    let options = [
        "--initrd",
        archive,
        "--from",
        "kernel_init",
        "--until",
        "panic",
    ];
    let output = boot(&kernel, &snapshot, &options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(" functions of 1 module"), "{said}");
    let commands = [
        "break pg_net_init",
        "reverse-continue",
        "bt 3",
        "monitor calls 8",
    ];
    let said = gdb(&snapshot, &commands.map(str::to_owned));
    let (_, at) = said.split_once("Breakpoint 1, ").expect(&said);
    assert!(at.contains("in pg_net_init ()\n#1 "), "{said}");
    assert!(at.contains("in ops_init ()"), "{said}");
}
