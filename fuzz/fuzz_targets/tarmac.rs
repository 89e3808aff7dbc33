#![no_main]

//! A Tarmac trace: lines, courses, memory, data addresses.

use armsnap::import::{Options, import_tarmac};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("tarmac");
    let bytes = data.to_vec().into();
    if let Ok(imported) = import_tarmac(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
