#![no_main]

use armsnap::itm::{Config, Decoder, Elements};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([tcr], bytes)) = armsnap_fuzz::registers(bytes) else {
        return;
    };
    armsnap_fuzz::decode(Decoder::new(), Elements::new(Config::new(tcr)), bytes);
});
