//! The connection to GDB where its pipes depend on the shell, as on Windows: a socket of this process.

use super::{Arguments, Failure};
use armsnap::server::Endpoint;
use armsnap::server::listen::Listener;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

/// Runs GDB until it exits.
pub fn run(gdb: &mut Command) -> io::Result<ExitCode> {
    // Ctrl-C belongs to GDB.
    let _waits = crate::cli::signals::stay_alive()?;
    let code = gdb.status()?.code();
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Serves an endpoint on a free port until this process ends, and returns `target remote …`; with
/// Python, as an armsnap command that suppresses GDB's remarks.
pub fn target_command(
    _: &Path,
    _: &Arguments,
    mut endpoint: Endpoint,
    python: bool,
) -> Result<OsString, Failure> {
    endpoint.reports_tracepoints = !python;
    endpoint.clients_load_programs = true;
    let listener = Listener::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.address()?;
    thread::spawn(move || listener.serve(&Arc::new(endpoint)));
    let quietly = match python {
        true => "armsnap quietly --own-tdump ",
        false => "",
    };
    Ok(format!("{quietly}target remote {address}").into())
}
