#![no_main]

//! The log of a Linux kernel that failed.

use armsnap::import::{Options, kernel_log};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let name = Path::new("log");
    let bytes = data.to_vec().into();
    if let Ok(imported) = kernel_log::import_bytes(name, bytes, &Options::default()) {
        imported
            .open(name, &OpenOptions::default())
            .expect("what is imported can be opened");
    }
});
