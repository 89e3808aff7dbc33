#![no_main]

//! A `perf.data` file: header, sections, records, compressed records, trace units.

use armsnap::import::{Options, perf};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("perf.data");
    let bytes = data.to_vec().into();
    if let Ok(imported) = perf::import_bytes(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
