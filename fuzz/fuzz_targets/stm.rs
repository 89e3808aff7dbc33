#![no_main]

use armsnap::stm::{Decoder, Elements};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    armsnap_fuzz::decode(Decoder::new(), Elements::new(), bytes);
});
