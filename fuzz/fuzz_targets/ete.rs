#![no_main]

use armsnap::etmv4::Protocol;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((config, bytes)) = armsnap_fuzz::etmv4(Protocol::Ete, bytes) {
        armsnap_fuzz::decode_etmv4(&config, bytes);
    }
});
