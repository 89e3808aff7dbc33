#![no_main]

use armsnap::protocol::Core;
use armsnap::stm::{Config, Decoder, Elements, Registers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let config = Config::read(&Registers::default(), Core::default());
    armsnap_fuzz::decode(Decoder::new(&config), Elements::new(&config), bytes);
});
