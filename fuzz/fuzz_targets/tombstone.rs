#![no_main]

//! A tombstone of Android: text or protobuf, threads, memory, modules.

use armsnap::import::{Options, tombstone};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("tombstone");
    let bytes = data.to_vec().into();
    if let Ok(imported) = tombstone::import_bytes(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
