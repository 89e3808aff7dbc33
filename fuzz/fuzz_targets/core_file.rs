#![no_main]

//! A core file: headers, notes, memory, build-ids in memory.

use armsnap::import::{Options, core_file};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("core");
    let bytes = data.to_vec().into();
    if let Ok(imported) = core_file::import_bytes(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
