//! Helpers for several test binaries: GDB sessions, recorded programs, reference listings.
#![allow(dead_code, reason = "each binary uses a part of it")]

pub mod browser;
pub mod convert;
#[cfg(target_os = "linux")]
pub mod damaged;
pub mod flow;
pub mod following;
pub mod gdb;
pub mod history;
pub mod inputs;
pub mod kernel;
pub mod mutation;
pub mod packet_script;
pub mod program;
pub mod record;
pub mod repeated;
pub mod semantics;
pub mod skip;
pub mod stream;
pub mod timeline;
pub mod translation;

/// Whether the program under test is optimised.
pub fn is_optimised() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("ARMSNAP_UNDER_TEST").is_some()
}

/// The path of the program under test: what cargo built beside the tests, or the optimised one that
/// `ARMSNAP_UNDER_TEST` names.
pub fn armsnap() -> &'static str {
    static PATH: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PATH.get_or_init(|| {
        let built = || env!("CARGO_BIN_EXE_armsnap").to_owned();
        std::env::var("ARMSNAP_UNDER_TEST").unwrap_or_else(|_| built())
    })
}
