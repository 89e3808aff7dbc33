//! The connection of GDB: a pipe to `armsnap serve --stdio`.

use super::{Arguments, Failure};
use crate::cli::quote::shell_quote_os;
use armsnap::server::Endpoint;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Replaces this process by GDB; returns only on failure.
pub fn run(gdb: &mut Command) -> io::Result<ExitCode> {
    Err(gdb.exec())
}

/// Returns `target remote | armsnap serve --stdio …`, for the shell that GDB starts; with Python,
/// as an armsnap command that suppresses GDB's remarks.
pub fn target_command(
    server: &Path,
    arguments: &Arguments,
    _: Endpoint,
    python: bool,
) -> Result<OsString, Failure> {
    let selection = &arguments.selection;
    let mut words: Vec<OsString> = vec![server.into(), "serve".into(), "--stdio".into()];
    for name in &selection.core {
        words.push(format!("--core={name}").into());
    }
    if let Some(name) = &selection.cluster {
        words.push(format!("--cluster={name}").into());
    }
    for path in &selection.elf {
        let mut word = OsString::from("--elf=");
        word.push(path);
        words.push(word);
    }
    if let Some(path) = &selection.svd {
        let mut word = OsString::from("--svd=");
        word.push(path);
        words.push(word);
    }
    if let Some(arch) = selection.arch {
        words.push(format!("--arch={}", arch.name()).into());
    }
    if selection.no_elf_memory {
        words.push("--no-elf-memory".into());
    }
    words.push(format!("--history={}", selection.history.name()).into());
    if let Some(jobs) = selection.jobs {
        words.push(format!("--jobs={jobs}").into());
    }
    if selection.no_cache {
        words.push("--no-cache".into());
    }
    if arguments.snapshot.allow_outside {
        words.push("--allow-outside".into());
    }
    if arguments.snapshot.no_shared_memory {
        words.push("--no-shared-memory".into());
    }
    words.extend(arguments.snapshot.import.words());
    let mut command = OsString::new();
    if python {
        command.push("armsnap quietly --own-tdump ");
        words.push("--no-tracepoints".into());
    }
    words.push("--client-loads-programs".into());
    words.push("--".into());
    words.push(arguments.snapshot.snapshot.clone().into());
    command.push("target remote | exec");
    for word in &words {
        if python && word.to_str().is_none() {
            return Err(Failure::Usage(
                "a name that is not Unicode cannot be passed to GDB".to_owned(),
            ));
        }
        if word.as_encoded_bytes().contains(&b'\n') {
            return Err(Failure::Usage(
                "a name with a line break cannot be passed to GDB".to_owned(),
            ));
        }
        command.push(" ");
        command.push(shell_quote_os(word));
    }
    Ok(command)
}
