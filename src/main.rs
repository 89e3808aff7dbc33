//! The command line of armsnap.

// What `record`, pipes and pagers use is not used on Windows.
#![cfg_attr(windows, allow(dead_code, unused_imports))]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
