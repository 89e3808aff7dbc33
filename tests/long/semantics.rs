//! Programs of Debian, some hundred thousand instructions of each: in the emulator's own log of
//! states, every instruction does what its model says.
//!
//! Takes its time in a debug build: scripts/test --long runs this one optimised.

use crate::debian_programs::unpacked;
use crate::support::record::installed;
use crate::support::semantics::steps::{Log, Tally, decode_arm};
use armsnap::semantics::a64;
use std::process::Command;

const STEPS: u64 = 300_000;

fn holds(package: &str, program: &[&str]) {
    for (architecture, emulator) in [("armhf", "qemu-arm"), ("arm64", "qemu-aarch64")] {
        if !installed(&[emulator]) {
            return;
        }
        let Some(root) = unpacked(architecture, package) else {
            return;
        };
        let mut command = Command::new(emulator);
        if architecture == "arm64" {
            // Its C library would use SVE, whose registers the log shows in another form.
            command.args(["-cpu", "max,sve=off,sme=off"]);
        }
        command.arg("-L").arg(&root).arg(root.join(program[0]));
        command.args(&program[1..]);
        let mut log = Log::of(&mut command);
        let mut tally = Tally::default();
        match architecture {
            "arm64" => tally.take(&mut log, STEPS, |word, state| a64::decode(word, state.pc)),
            _ => tally.take(&mut log, STEPS, decode_arm),
        }
        let (steps, known, loads) = (tally.steps, tally.known, tally.loads);
        println!("{package}:{architecture}: {steps} steps, {known} known, {loads} loads checked");
        for (mnemonic, (steps, known)) in &tally.by_mnemonic {
            if steps != known {
                println!("  {mnemonic}: {known} of {steps} known");
            }
        }
        assert!(tally.wrong.is_empty(), "{package}: {:#?}", tally.wrong);
        assert!(steps > 50_000, "{package}: {steps}");
        // In AArch32, vectors are only partly modelled.
        let least = if architecture == "arm64" { 999 } else { 970 };
        assert!(
            1000 * known >= least * steps,
            "{package}: {known} of {steps}"
        );
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn lua() {
    let script = "local t = {} for i = 1, 300 do t[i] = math.sin(i) * 1000 % 97 end \
                  table.sort(t) print(string.format('%.3f %5d', t[9], #t))";
    holds("lua5.4", &["usr/bin/lua5.4", "-e", script]);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn sqlite() {
    let script = "create table t(a, b); insert into t values(1, 2.5), (3, 4); \
                  select sum(a * b) from t;";
    holds(
        "sqlite3",
        &["usr/bin/sqlite3", "-init", "/dev/null", ":memory:", script],
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn static_busybox() {
    holds("busybox-static", &["bin/busybox", "ls", "-l", "/usr/share"]);
}
