#![no_main]

//! A dump of CrashCatcher, binary or in a log.

use armsnap::import::{Options, crash_catcher};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("log");
    let bytes = data.to_vec().into();
    if let Ok(imported) = crash_catcher::import_bytes(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
