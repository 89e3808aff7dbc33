#![no_main]

use armsnap::stm::{Elements, Packets};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    armsnap_fuzz::decode(Packets::new(), Elements::new(), bytes);
});
