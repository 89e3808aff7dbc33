//! The models of A64.

use crate::instances::{BATCH, Executor, Random, Tally};
use crate::support::record::build;
use armsnap::semantics::a64;

/// A group of encodings: its name, which bits are fixed and to what, and the least part of what is
/// executed, in percent, that the models must know wholly.
type Group = (&'static str, u32, u32, u64);

const GROUPS: [Group; 7] = [
    ("immediate", 0x1c00_0000, 0x1000_0000, 98),
    ("register", 0x0e00_0000, 0x0a00_0000, 99),
    ("loads and stores", 0x0a00_0000, 0x0800_0000, 85),
    ("of one register", 0x3a00_0000, 0x3800_0000, 90),
    ("atomics", 0x3f20_0c00, 0x3820_0000, 99),
    ("structures", 0xbe00_0000, 0x0c00_0000, 99),
    ("changes of flags", 0xffff_f000, 0xd500_4000, 99),
];

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
            let behind = executor.execute(&before);
            for (slot, (before, behind)) in before.iter().zip(&behind).enumerate() {
                tally.take(a64::decode, slot, before, behind);
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
