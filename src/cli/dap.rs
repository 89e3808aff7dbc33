//! `armsnap dap`: the Debug Adapter Protocol on standard input and output, for editors.
//!
//! GDB's own adapter (`gdb -i dap`, GDB 14 and later) speaks it; `gdb/dap.py` adds what it lacks.

use super::{Failure, gdb};
use std::ffi::OsStr;
use std::process::ExitCode;

/// The oldest GDB whose adapter can be used.
///
/// The adapter exists since version 14, but attaches as `gdb/dap.py` needs it only since 16.
pub const OLDEST: u32 = 16;

/// Returns the major version of a GDB, or `None` if it cannot be started.
pub fn version(gdb: &OsStr) -> Option<u32> {
    let answer = gdb::support::run_command(gdb, "python print(gdb.VERSION)")?;
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse().ok()
    };
    answer.lines().find_map(digits)
}

/// Starts GDB as an adapter; returns only on failure.
pub fn run(arguments: &gdb::Arguments) -> Result<ExitCode, Failure> {
    let name = arguments.gdb.to_string_lossy();
    let Some(version) = version(&arguments.gdb) else {
        let error = std::io::ErrorKind::NotFound.into();
        let missing = super::tool::find(&name).is_none() && !name.contains('/');
        return Err(if missing {
            gdb::cannot_start(&arguments.gdb, &error)
        } else {
            Failure::Input(format!(
                "{name} is not a GDB with Python, which editors need: name another with --gdb"
            ))
        });
    };
    if version < OLDEST {
        return Err(Failure::Input(format!(
            "{name} is GDB {version}, and editors need GDB {OLDEST} or later, which has a debug \
             adapter of the kind needed: install one (Debian 13 and Ubuntu 25.04 have one as gdb-multiarch; from \
             source: configure --enable-targets=all --with-python) and name it with --gdb"
        )));
    }
    gdb::start(arguments, gdb::Front::Adapter)
}
