#![no_main]

use armsnap::etmv3::{Config, Decoder, Elements, Registers};
use armsnap::protocol::Core;
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
    let core = if etmtraceidr & 0x80 == 0 {
        Core::default()
    } else {
        Core::microcontroller(7)
    };
    let config = Config::read(&registers, core);
    armsnap_fuzz::decode(Decoder::new(&config), Elements::new(&config), bytes);
});
