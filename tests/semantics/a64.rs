//! The models of A64.

use crate::support::record::build;
use crate::support::semantics::instances::{BATCH, Executor, Random, Tally};
use crate::support::semantics::steps;
use armsnap::semantics::a64;

/// A group of encodings: its name, which bits are fixed and to what, and the least part of what is
/// executed, in percent, that the models must know wholly.
type Group = (&'static str, u32, u32, u64);

const GROUPS: [Group; 13] = [
    ("immediate", 0x1c00_0000, 0x1000_0000, 98),
    ("register", 0x0e00_0000, 0x0a00_0000, 99),
    ("loads and stores", 0x0a00_0000, 0x0800_0000, 85),
    ("of one register", 0x3a00_0000, 0x3800_0000, 90),
    ("atomics", 0x3f20_0c00, 0x3820_0000, 99),
    ("structures", 0xbe00_0000, 0x0c00_0000, 99),
    ("vectors", 0x9e00_0000, 0x0e00_0000, 50),
    ("elements", 0xde00_0000, 0x5e00_0000, 20),
    ("floating point", 0x9f20_0000, 0x1e20_0000, 50),
    // A third are of half precision.
    ("multiply and add", 0x9f00_0000, 0x1f00_0000, 45),
    ("conversions", 0x5f20_0c00, 0x1e20_0000, 55),
    ("AES", 0xffff_cc00, 0x4e28_4800, 99),
    ("changes of flags", 0xffff_f000, 0xd500_4000, 99),
];

/// Where the program puts an instruction.
fn place(slot: usize) -> u64 {
    0x0400_0008 + 16 * slot as u64
}

#[test]
fn random_instructions_do_what_their_models_say() {
    let text = include_str!("instances_a64.c");
    let Some(guest) = build("aarch64", "instances.c", text, &["-O1", "-static"]) else {
        return;
    };
    for (name, mask, fixed, least) in GROUPS {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut executor = Executor::start(&[&guest.emulator()], &guest.program);
        let mut tally = Tally::default();
        for _ in 0..20 {
            let before: Vec<_> = (0..BATCH).map(|_| random.instance(mask, fixed)).collect();
            let after = executor.execute(&before);
            for (slot, (before, after)) in before.iter().zip(&after).enumerate() {
                let model = a64::decode(before.word as u32, place(slot));
                tally.take(&model, place(slot), before, after);
            }
        }
        let Tally {
            executed,
            whole,
            ref wrong,
            ..
        } = tally;
        println!("{name}: {executed} executed, {whole} known wholly");
        assert!(wrong.is_empty(), "{name}: {wrong:#x?}");
        assert!(executed > 1, "{name}");
        assert!(
            100 * whole >= least * executed,
            "{name}: {whole} of {executed} known"
        );
    }
}

/// C with strings, floating point and sorting; libraries of its own.
pub const PROGRAM: &str = r#"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    double numbers[40];
    float sums[40] = {0};
    char text[400] = "";
    for (int i = 0; i < 40; i++) {
        numbers[i] = fmod(i * 7919.25, 97.0) / 3;
        sums[i] = (float)numbers[i] * 2 + (float)i;
    }
    qsort(numbers, 40, sizeof *numbers, by_value);
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.3g %d,", numbers[i], (int)sums[i]);
    puts(strrchr(text, ',') - 20);
    return strstr(text, "x") != 0;
}
"#;

#[test]
fn a_program_does_what_its_models_say() {
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &["-O3", "-static", "-lm"]) else {
        return;
    };
    let mut command = std::process::Command::new(guest.emulator());
    command
        .args(["-cpu", "max,sve=off,sme=off"])
        .arg(&guest.program);
    let mut log = steps::Log::of(&mut command);
    let mut tally = steps::Tally::default();
    tally.take(&mut log, 60_000, |word, state| a64::decode(word, state.pc));
    let steps::Tally {
        steps,
        known,
        loads,
        ref wrong,
        ..
    } = tally;
    println!("{steps} steps, {known} known, {loads} loads checked");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        steps > 20_000 && loads > 2_000,
        "{steps} steps, {loads} loads checked"
    );
    // The other steps read system registers or store exclusively.
    assert!(steps - known <= 30, "{:?}", tally.by_mnemonic);
}
