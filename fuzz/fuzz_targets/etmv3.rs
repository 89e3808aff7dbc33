#![no_main]

use armsnap::etm::Registers;
use armsnap::etmv3::{Config, Decoder, Elements, Profile};
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
    let profile = if etmtraceidr & 0x80 == 0 {
        Profile::ApplicationOrRealTime
    } else {
        Profile::Microcontroller
    };
    let config = Config::new(registers, profile);
    armsnap_fuzz::decode(Decoder::new(config), Elements::new(config), bytes);
});
