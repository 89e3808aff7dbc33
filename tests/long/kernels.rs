//! Whole boots of Debian's kernel, with KASLR, to its panic: the trace equals the witness.
//!
//! Slow in a debug build: scripts/test --long runs it with --release.

use crate::support::kernel::{boot, compare, debian_kernel, initrd};

/// Boots to the panic for want of a root file system.
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
    let Some((archive, _)) = initrd(directory.path(), CRASH) else {
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
}
