//! A hundred million instructions and more, recorded in each protocol, without and with all options:
//! armsnap and the reference decoder decode exactly the instructions of the witness.
//!
//! Slow in a debug build: scripts/test --long runs it optimised. There the
//! reference decodes only the start; all of it takes up to ten minutes a recording:
//!
//!     cargo test --profile checked --test long -- --ignored

use crate::support::program::decode::{by_library, by_reference, cores};
use crate::support::program::program;
use crate::support::program::record::{Instructions, Recording};

const OPTIONS: &[&str] = &[
    "--cycles",
    "--timestamps",
    "--branch-broadcast",
    "--sync",
    "4096",
];

/// The number of instructions that the reference decodes, unless it decodes all.
const BEGIN: u64 = 5_000_000;

fn long(name: &str, protocol: &str, options: &[&str], reference: u64) {
    let program = program(name);
    let code = program.code();
    let recording = Recording::of(program, &[&["--protocol", protocol], options].concat());
    let (snapshot, witness) = (recording.snapshot(), recording.witness());
    let [(core, id)] = &cores(&snapshot)[..] else {
        panic!("one core");
    };

    let mut executed = Instructions::of(&witness);
    let mut count = 0_u64;
    let beside = by_library(&snapshot, core, &code, &mut |address, _| {
        assert_eq!(Some(address), executed.next(), "instruction {count}");
        count += 1;
        true
    });
    assert_eq!(beside.gaps, []);
    assert_eq!(executed.next(), None, "after instruction {count}");
    assert!(count > 100_000_000, "{count}");

    let mut executed = Instructions::of(&witness);
    let mut read = 0_u64;
    let trouble = by_reference(&snapshot, *id, &code, &mut |address, _| {
        assert_eq!(Some(address), executed.next(), "the reference: {read}");
        read += 1;
        read < reference
    });
    assert_eq!(trouble, Vec::<String>::new());
    assert_eq!(read, count.min(reference));
}

macro_rules! long {
    ($($test:ident: $name:literal, $protocol:literal;)*) => {
        $(mod $test {
            use super::{BEGIN, OPTIONS, long};

            #[test]
            #[cfg_attr(debug_assertions, ignore = "with --release")]
            fn plain() {
                long($name, $protocol, &[], BEGIN);
            }
            #[test]
            #[cfg_attr(debug_assertions, ignore = "with --release")]
            fn all_options() {
                long($name, $protocol, OPTIONS, BEGIN);
            }
            #[test]
            #[ignore = "the reference reads all of it"]
            fn whole_plain() {
                long($name, $protocol, &[], u64::MAX);
            }
            #[test]
            #[ignore = "the reference reads all of it"]
            fn whole_all_options() {
                long($name, $protocol, OPTIONS, u64::MAX);
            }
        })*
    };
}

long! {
    etmv4_of_a64: "sieve-a64", "etmv4";
    ptm_of_t32: "sieve-t32", "ptm";
    etmv3_of_a32: "sieve-a32", "etmv3";
}
