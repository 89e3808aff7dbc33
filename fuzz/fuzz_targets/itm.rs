#![no_main]

use armsnap::itm::{Config, Decoder, Elements, Registers};
use armsnap::protocol::Core;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([tcr], bytes)) = armsnap_fuzz::registers(bytes) else {
        return;
    };
    let config = Config::read(&Registers { tcr }, Core::default());
    armsnap_fuzz::decode(Decoder::new(&config), Elements::new(&config), bytes);
});
