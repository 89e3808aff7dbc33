#![no_main]

//! A minidump: streams, threads, memory, modules.

use armsnap::import::{Options, minidump};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("dump");
    let bytes = data.to_vec().into();
    if let Ok(imported) = minidump::import_bytes(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
