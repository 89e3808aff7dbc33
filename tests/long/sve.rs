//! Core files that Linux writes of programs with SVE: the same as GDB shows in them.

use crate::support::gdb::{armsnap, run_within, text};
use crate::support::kernel::{debian_kernel, initrd};
use crate::support::translation::Emulator;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Crashes with values in all vectors, and prints its core file.
const CRASHES: &str = r#"
#include "system_call.h"

static long open(const char *path, long flags) { return call(56, -100, (long)path, flags, 0, 0); }

static __attribute__((noinline)) void crash(void)
{
    __asm__ volatile(".arch armv8-a+sve\n"
                     ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
                     "index z\\n\\().b, #\\n - 16, #3\n"
                     ".endr\n"
                     "setffr\n"
                     "ptrue p1.s, vl3\n"
                     "ptrue p15.h\n"
                     "mov x0, #0\n"
                     "str x0, [x0]\n");
}

static unsigned char part[64];
static char line[2 * sizeof part + 3];

void _start(void)
{
    call(40, (long)"proc", (long)"/proc", (long)"proc", 0, 0);
    call(64, open("/proc/sys/kernel/core_pattern", 1), (long)"/core", 5, 0, 0);
    static const unsigned long unlimited[2] = {-1ul, -1ul};
    call(261, 0, 4, (long)unlimited, 0, 0);
    long child = call(220, 17, 0, 0, 0, 0);
    if (!child)
        crash();
    call(260, -1, 0, 0, 0, 0);
    long file = open("/core", 0), count;
    while ((count = call(63, file, (long)part, sizeof part, 0, 0)) > 0) {
        char *at = line;
        *at++ = '@';
        for (long i = 0; i < count; i++) {
            *at++ = "0123456789abcdef"[part[i] >> 4];
            *at++ = "0123456789abcdef"[part[i] & 15];
        }
        *at++ = '\n';
        call(64, 1, (long)line, at - line, 0, 0);
    }
    call(64, 1, (long)"@end\n", 5, 0, 0);
    for (;;)
        call(124, 0, 0, 0, 0, 0);
}
"#;

/// The core file that the program printed.
fn printed(console: &Path) -> Vec<u8> {
    let started = Instant::now();
    loop {
        let text = std::fs::read(console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.contains("@end") {
            let lines = text
                .lines()
                .filter_map(|line| line.trim_end().strip_prefix('@'));
            let lines = lines.filter(|line| *line != "end");
            let digits: String = lines.collect();
            let bytes = (0..digits.len() / 2).map(|at| &digits[2 * at..2 * at + 2]);
            return bytes
                .map(|byte| u8::from_str_radix(byte, 16).expect(byte))
                .collect();
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What GDB prints for each command, without the number of the value.
fn values(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|line| line.starts_with('$'));
    lines
        .filter_map(|line| Some(line.split_once(" = ")?.1))
        .collect()
}

/// The bytes of a vector, as a number.
fn number(vector: &str) -> u64 {
    let bytes = vector.trim_matches(['{', '}']).split(", ").zip(0..);
    bytes
        .map(|(byte, at)| byte.parse::<u64>().expect(vector) << (8 * at))
        .sum()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn core_files_have_the_vectors_of_sve() {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let Some((archive, program)) = initrd(directory.path(), CRASHES) else {
        return;
    };
    let console = directory.path().join("console");
    let qemu = Emulator::start(
        Command::new("qemu-system-aarch64")
            .args(["-M", "virt", "-cpu", "max", "-m", "256"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-icount", "shift=4,sleep=off"])
            .args(["-append", "console=ttyAMA0 quiet", "-kernel"])
            .arg(&kernel)
            .arg("-initrd")
            .arg(&archive),
    );
    let core = directory.path().join("core");
    std::fs::write(&core, printed(&console)).unwrap();
    drop(qemu);

    let vectors = (0..32).map(|n| format!("p $z{n}"));
    let quads = (0..32).map(|n| format!("p $v{n}.q.u"));
    let more = ["vg", "fpsr", "fpcr", "sp", "x0"].map(|name| format!("p/x ${name}"));
    let masks = ["p0", "p1", "p15", "ffr"].map(|name| format!("p ${name}"));
    let common = { quads }
        .chain(more)
        .chain(["info registers pc".to_owned()]);
    let common: Vec<String> = common.collect();
    let vectors: Vec<String> = vectors.collect();
    let run = |mut command: Command, vectors: &[String]| {
        command.args(["-ex", "set print repeats unlimited"]);
        for gdb in vectors.iter().chain(&masks).chain(&common) {
            command.args(["-ex", gdb]);
        }
        text(&run_within(&mut command, Duration::from_secs(120)))
    };
    let mut own = Command::new("gdb-multiarch");
    own.args(["-nx", "-batch"])
        .arg(&program)
        .arg("-c")
        .arg(&core);
    // In GDB's own description, a vector is a union.
    let unions: Vec<String> = vectors
        .iter()
        .map(|vector| format!("{vector}.b.u"))
        .collect();
    let wanted = run(own, &unions);
    let mut ours = armsnap();
    ours.arg("gdb").arg("--elf").arg(&program).arg(&core);
    ours.args(["--", "-nx", "-batch"]);
    let found = run(ours, &vectors);

    let pc = |said: &str| {
        said.lines()
            .find(|line| line.starts_with("pc "))
            .map(str::to_owned)
    };
    assert_eq!(pc(&found), pc(&wanted), "{found}\n{wanted}");
    assert!(pc(&found).is_some_and(|pc| pc.contains("crash")), "{found}");
    let (found, wanted) = (values(&found), values(&wanted));
    assert_eq!(wanted.len(), 32 + masks.len() + 32 + 5, "{wanted:?}");
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    assert!(wanted[5].starts_with("{245, 248, 251, "), "{}", wanted[5]);
    for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        match masks.get(index.wrapping_sub(32)) {
            // 64 bits, as a vector of bytes in GDB's own description.
            Some(mask) => assert_eq!(*found, number(wanted).to_string(), "{mask}"),
            None => assert_eq!(found, wanted, "{index}"),
        }
    }
}
