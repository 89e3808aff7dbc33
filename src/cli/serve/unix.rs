//! Parts that exist only on Unix: sockets with names, standard error as a pipe that a debugger
//! polls.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{Arguments, Failure, cannot_listen};
use crate::cli::signals::before_the_end;
use armsnap::server::Endpoint;
use armsnap::server::listen::Listener;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Listens on the Unix sockets that the user requested.
pub fn unix_listeners(
    arguments: &Arguments,
    endpoints: &[Endpoint],
) -> Option<Result<Vec<Listener>, Failure>> {
    let path = arguments.unix.as_ref()?;
    let listen = |endpoint| {
        let listener = match endpoints.len() {
            1 => Listener::unix(path),
            _ => Listener::unix(&with_suffix(path, endpoint)),
        };
        listener.map_err(|error| cannot_listen(&path.display().to_string(), &error))
    };
    Some(endpoints.iter().map(listen).collect())
}

fn with_suffix(path: &Path, endpoint: &Endpoint) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".");
    path.push(endpoint.architecture().name());
    path.into()
}

/// Closes standard error, to signal the end of messages to a debugger that started this process.
///
/// Until the pipe ends, GDB polls it with a system call for each character that it receives, which
/// doubles the time of a step.
pub fn end_messages() -> io::Result<()> {
    let messages = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let kind = messages.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        let nowhere = File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(&nowhere)?;
    }
    Ok(())
}

/// Removes socket files on Ctrl-C and termination before the signal ends the program.
pub fn remove_sockets_at_the_end(listeners: &[Listener]) -> io::Result<()> {
    let files: Vec<PathBuf> = listeners
        .iter()
        .filter_map(|listener| listener.file().map(Path::to_owned))
        .collect();
    if files.is_empty() {
        return Ok(());
    }
    before_the_end(&[SIGINT, SIGTERM, SIGHUP], move || {
        for file in &files {
            let _ = std::fs::remove_file(file);
        }
    })
}
