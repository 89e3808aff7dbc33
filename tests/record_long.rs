//! A hundred million instructions and more, recorded in each protocol: decoding the snapshot gives
//! exactly those of the witness, and the reference decoder's reading begins with the same.
//!
//! Decoding takes its time in a debug build: scripts/test runs this one with --release.

mod program_support;

use program_support::decode::{by_library, by_reference, cores};
use program_support::program;
use program_support::record::{Instructions, Recording};

/// How many instructions the reference decoder reads: it needs half a minute for all.
const READ: u64 = 5_000_000;

fn long(name: &str, protocol: &str) {
    let program = program(name);
    let code = program.code();
    let recording = Recording::of(program, &["--protocol", protocol]);
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
    assert_eq!(executed.next(), None, "behind instruction {count}");
    assert!(count > 100_000_000, "{count}");

    let mut executed = Instructions::of(&witness);
    let mut read = 0_u64;
    let trouble = by_reference(&snapshot, *id, &code, &mut |address, _| {
        assert_eq!(Some(address), executed.next(), "the reference: {read}");
        read += 1;
        read < READ
    });
    assert_eq!(trouble, Vec::<String>::new());
    assert_eq!(read, READ);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn etmv4_of_a64() {
    long("sieve-a64", "etmv4");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn ptm_of_t32() {
    long("sieve-t32", "ptm");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn etmv3_of_a32() {
    long("sieve-a32", "etmv3");
}
