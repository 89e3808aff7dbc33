#![no_main]

use armsnap::protocol::Core;
use armsnap::ptm::{Config, Decoder, Elements, Registers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([etmcr, etmccer, etmidr, etmtraceidr], bytes)) = armsnap_fuzz::registers(bytes)
    else {
        return;
    };
    let registers = Registers {
        etmcr,
        etmccer,
        etmidr,
        etmtraceidr,
    };
    let config = Config::read(&registers, Core::default());
    armsnap_fuzz::decode(Decoder::new(&config), Elements::new(&config), bytes);
});
