//! The command line of armsnap.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
