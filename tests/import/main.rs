//! Inputs that are not snapshots: imported, and opened directly.

#[path = "../support/mod.rs"]
mod support;

mod converted;
mod core_files;
#[cfg(target_os = "linux")]
mod large;
mod m_profile;
mod modules;
mod mtb;
mod mutated;
mod one_step_away;
mod panic;
mod perf_builder;
mod perf_captures;
mod perf_generated;
mod perf_more;
mod perf_threads;
mod pointer_auth;
mod private;
mod raw;
mod signals;
mod strangers;
mod swo;
mod with_state;
mod written_by_others;
mod zephyr;
mod zephyr_threads;

use std::path::{Path, PathBuf};

/// A real capture, or nothing where the folder is not there.
fn capture(name: &str) -> Option<PathBuf> {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if !shared.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return None;
    }
    let path = shared.join("captures").join(name);
    assert!(path.exists(), "{} is missing", path.display());
    Some(path)
}
