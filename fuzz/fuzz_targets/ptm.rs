#![no_main]

use armsnap::etm::Registers;
use armsnap::ptm::{Config, Decoder, Elements};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([etmcr, etmccer, etmidr, etmtraceidr], bytes)) = armsnap_fuzz::registers(bytes)
    else {
        return;
    };
    let config = Config::new(Registers {
        etmcr,
        etmccer,
        etmidr,
        etmtraceidr,
    });
    armsnap_fuzz::decode(Decoder::new(config), Elements::new(), bytes);
});
