//! The models of A32 and T32.

use crate::support::record::build;
use crate::support::semantics::instances::{BATCH, Executor, Random, Tally};
use crate::support::semantics::steps;
use armsnap::semantics::t32::{self, ItState, is_wide};
use armsnap::semantics::{Control, Semantics, a32};

/// A group of encodings: its name, which bits are fixed and to what, whether registers are
/// addresses, and the least part in percent that the models must know wholly. Of T32 the first
/// halfword is in the lower bits.
type Group = (&'static str, u32, u32, bool, u64);

const A32: [Group; 9] = [
    ("data processing", 0x0c00_0000, 0, false, 95),
    ("media", 0x0e00_0010, 0x0600_0010, false, 88),
    ("multiplications", 0x0f00_00f0, 0x0000_0090, false, 99),
    ("words and bytes", 0x0c00_0000, 0x0400_0000, true, 92),
    ("halfwords and pairs", 0x0e00_0090, 0x0000_0090, true, 95),
    ("several registers", 0x0e00_0000, 0x0800_0000, true, 90),
    ("floating-point memory", 0x0e00_0e00, 0x0c00_0a00, true, 85),
    ("floating point", 0x0f00_0e10, 0x0e00_0a00, false, 85),
    ("floating-point moves", 0x0f00_0e10, 0x0e00_0a10, false, 99),
];

const T32: [Group; 16] = [
    ("shifts, immediates", 0xc000, 0, false, 99),
    ("registers", 0xf800, 0x4000, false, 99),
    ("register offsets", 0xf000, 0x5000, true, 99),
    ("immediate offsets", 0xe000, 0x6000, true, 99),
    ("stack, miscellaneous", 0xc000, 0x8000, true, 85),
    ("several registers", 0xf000, 0xc000, true, 80),
    ("shifted registers", 0xfe00, 0xea00, false, 99),
    ("immediates", 0x8000_f800, 0xf000, false, 99),
    ("wide registers", 0xff00, 0xfa00, false, 70),
    ("multiplications", 0xff00, 0xfb00, false, 70),
    ("several wide registers", 0xfe40, 0xe800, true, 99),
    ("pairs, exclusives", 0xfe40, 0xe840, true, 70),
    ("wide accesses", 0xfe00, 0xf800, true, 60),
    ("floating-point memory", 0x0e00_fe00, 0x0a00_ec00, true, 75),
    ("floating point", 0x0e00_ff00, 0x0a00_ee00, false, 85),
    ("elements", 0xff00, 0xf900, true, 40),
];

/// Where the program puts an instruction.
fn place(slot: usize) -> u64 {
    0x0080_0008 + 32 * slot as u64
}

/// Runs the instructions of a group that do not branch and of which there is at least a partial
/// model.
fn run(
    guest: &crate::support::record::Guest,
    group: Group,
    prepare: impl Fn(&mut Random, u64) -> u64,
    decode: impl Fn(u64, usize) -> (Semantics, u64),
    stores_to_code: impl Fn(u32) -> bool,
) {
    let (name, mask, fixed, accesses, least) = group;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let emulator = guest.emulator();
    let mut executor = Executor::start(&[&emulator, "-cpu", "max"], &guest.program);
    let mut tally = Tally::default();
    for _ in 0..10 {
        let mut before = Vec::new();
        while before.len() < BATCH {
            let mut instance = random.instance_of_arm(mask, fixed, accesses);
            instance.word = prepare(&mut random, instance.word);
            let (model, _) = decode(instance.word, before.len());
            let unknown = model.relations.len() > 100;
            let wild = accesses && stores_to_code(instance.word as u32);
            if model.control == Control::Next && !unknown && !wild {
                before.push(instance);
            }
        }
        let after = executor.execute(&before);
        for (slot, (before, after)) in before.iter().zip(&after).enumerate() {
            let (model, address) = decode(before.word, slot);
            tally.take_arm(&model, address, before, after);
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
    assert!(executed > 200, "{name}");
    assert!(
        100 * whole >= least * executed,
        "{name}: {whole} of {executed} known"
    );
}

const EXECUTOR: &str = include_str!("instances_arm.c");

#[test]
fn random_a32_instructions_do_what_their_models_say() {
    let Some(guest) = build("arm", "instances.c", EXECUTOR, &["-O1", "-static", "-marm"]) else {
        return;
    };
    for group in A32 {
        let decode = |word: u64, slot| (a32::decode(word as u32, place(slot)), place(slot));
        // SETEND and MSR of CPSR would change the byte order.
        let usable = |word: u32| {
            word & 0xfff1_0020 != 0xf101_0000
                && word & 0x0db0_f000 != 0x0120_f000
                && word & 0x0ff0_f000 != 0x0320_f000
        };
        let prepare = |random: &mut Random, mut word: u64| {
            while !usable(word as u32) {
                word = random.instance_of_arm(group.1, group.2, group.3).word;
            }
            word
        };
        run(&guest, group, prepare, decode, |word| {
            word >> 16 & 15 == 15 && word >> 20 & 1 == 0
        });
    }
}

#[test]
fn random_t32_instructions_do_what_their_models_say() {
    let Some(guest) = build("arm", "instances.c", EXECUTOR, &["-O1", "-static", "-marm"]) else {
        return;
    };
    // A third are in IT blocks; the block's instruction comes in the upper bits.
    let decode = |word: u64, slot| {
        let state = ItState::OUTSIDE.next((word >> 48) as u16);
        let address = place(slot) + 2;
        (
            t32::decode(word as u16, (word >> 16) as u16, address, state),
            address,
        )
    };
    for group in T32 {
        // Excludes CPS, SETEND, other IT instructions, MSR and hints.
        let usable = |word: u32| {
            word & 0xff00 != 0xb600
                && word & 0xff00 != 0xbf00
                && word & 0xffe0 != 0xf380
                && word & 0xfff0 != 0xf3a0
        };
        let prepare = |random: &mut Random, mut word: u64| {
            while !usable(word as u32) {
                word = random.instance_of_arm(group.1, group.2, group.3).word;
            }
            let block = if random.below(3) == 0 {
                0xbf08 | random.below(14) << 4
            } else {
                0
            };
            word | 1 << 32 | block << 48
        };
        let to_code = |word: u32| is_wide(word as u16) && word & 0x1f == 0x0f;
        run(&guest, group, prepare, decode, to_code);
    }
}

#[test]
fn programs_of_a32_and_t32_do_what_their_models_say() {
    let program = crate::a64::PROGRAM;
    for instructions in ["-marm", "-mthumb"] {
        let options = ["-O3", "-static", instructions, "-lm"];
        let Some(guest) = build("arm", "program.c", program, &options) else {
            return;
        };
        let mut log =
            steps::Log::of(std::process::Command::new(guest.emulator()).arg(&guest.program));
        let mut tally = steps::Tally::default();
        tally.take(&mut log, 40_000, steps::decode_arm);
        let steps::Tally {
            steps,
            known,
            loads,
            ref wrong,
            ..
        } = tally;
        println!("{instructions}: {steps} steps, {known} known, {loads} loads checked");
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(
            steps > 20_000 && loads > 2_000,
            "{steps} steps, {loads} loads checked"
        );
        // The other steps read coprocessors or store exclusively.
        assert!(steps - known <= 400, "{:?}", tally.by_mnemonic);
    }
}
