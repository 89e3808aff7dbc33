//! Names of functions: whatever a symbol is called, showing it takes little time.
#![no_main]

use armsnap::program::symbols::shown;
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, Instant};

fuzz_target!(|bytes: &[u8]| {
    let Ok(name) = std::str::from_utf8(bytes) else {
        return;
    };
    for begin in ["", "_Z", "_R"] {
        let name = format!("{begin}{name}");
        let start = Instant::now();
        let _ = shown(&name);
        assert!(start.elapsed() < Duration::from_secs(1), "{name}");
    }
});
