//! Well-formed snapshots: everything that armsnap does with one.
#![no_main]

use armsnap_fuzz::build::{Choices, snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    armsnap_fuzz::exercise::snapshot(snapshot(&mut Choices(bytes)));
});
