//! The destination of results: standard output, or a file that appears only when complete.

use super::Failure;
use armsnap::leftovers::{self, Leftover};
use armsnap::mapped::{self, Identity};
use armsnap::snapshot::{OpenSnapshot, inputs};
use std::fs::File;
use std::io::{self, StdoutLock, Write};
use std::path::{Path, PathBuf};

/// The destination of results.
pub enum Output {
    /// Standard output.
    Standard(StdoutLock<'static>),
    /// A file under a temporary name beside the final one.
    File {
        /// The writer.
        file: File,
        /// Its name until it is complete.
        temporary: Leftover,
        /// Its final name.
        path: PathBuf,
        /// Whether an existing file is overwritten.
        force: bool,
    },
    /// A pipe or device, such as `/dev/null`.
    Device {
        /// The writer.
        file: File,
        /// Its name.
        path: PathBuf,
    },
}

/// Adds the name of the output that cannot be written to an error.
fn named(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether a path names a file that is already open, such as `/dev/stdout`. Such a file is not
/// replaced.
fn is_open_file(path: &Path) -> bool {
    let streams = ["/dev/stdout", "/dev/stderr"];
    let folders = ["/dev/fd", "/proc"];
    streams.iter().any(|name| path == Path::new(name))
        || folders.iter().any(|name| path.starts_with(name))
}

/// Adds the name of standard output to an error.
fn standard(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Returns the failure for output that exists and may not be overwritten.
pub fn exists(path: &Path) -> Failure {
    Failure::Usage(format!("{} exists: --force overwrites it", path.display()))
}

/// Refuses to overwrite input, which would be truncated while it is read.
pub fn not_input(path: &Path) -> Result<(), Failure> {
    if mapped::is_open(path) {
        return Err(is_input(path));
    }
    Ok(())
}

/// Refuses to overwrite a file that is read while the output is written.
pub fn not_open_file(path: &Path, input: &File) -> Result<(), Failure> {
    let is_file = input.metadata().is_ok_and(|data| data.is_file());
    let input = Identity::of(input).ok().filter(|_| is_file);
    let same = |input| Identity::at(path).is_ok_and(|output| output.is_file(&input));
    match input.is_some_and(same) {
        true => Err(is_input(path)),
        false => Ok(()),
    }
}

/// Refuses to overwrite a file that a snapshot names, even if it has not been read yet.
pub fn not_named(path: &Path, loaded: &OpenSnapshot) -> Result<(), Failure> {
    match inputs::is_named(path, loaded) {
        true => Err(is_input(path)),
        false => Ok(()),
    }
}

/// Refuses to overwrite any of these inputs, under whatever name.
pub fn not_any_of<'a>(
    path: &Path,
    mut inputs: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let Ok(own) = Identity::at(path) else {
        return Ok(());
    };
    match inputs.any(|input| Identity::at(input).is_ok_and(|input| input.is_file(&own))) {
        true => Err(is_input(path)),
        false => Ok(()),
    }
}

fn is_input(path: &Path) -> Failure {
    Failure::Usage(format!(
        "{} is input: it is not overwritten; name another output",
        path.display()
    ))
}

impl Output {
    /// Creates the file. Without a path or with `-`, uses standard output. Overwrites only with
    /// `force`.
    pub fn new(path: Option<&Path>, force: bool) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Self::Standard(io::stdout().lock()));
        };
        if is_open_file(path) {
            // Appends to the existing contents, as `>>` does.
            let file = File::options().append(true).open(path);
            return Ok(Self::Device {
                file: file.map_err(named(path))?,
                path: path.to_owned(),
            });
        }
        match path.symlink_metadata() {
            // A pipe or device has no contents to overwrite.
            Ok(there) if !there.is_file() && path.metadata().is_ok_and(|to| !to.is_file()) => {
                let file = File::options().write(true).open(path);
                return Ok(Self::Device {
                    file: file.map_err(named(path))?,
                    path: path.to_owned(),
                });
            }
            Ok(_) if !force => return Err(exists(path)),
            _ => not_input(path)?,
        }
        let made = leftovers::beside(path, mapped::create);
        let (file, temporary) = made.map_err(named(path))?;
        Ok(Self::File {
            file,
            temporary,
            path: path.to_owned(),
            force,
        })
    }

    /// Returns a descriptor of the output if it may be a pipe; the file beside the final one is not.
    #[cfg(unix)]
    pub fn descriptor(&self) -> io::Result<Option<std::os::fd::OwnedFd>> {
        use std::os::fd::AsFd;
        let descriptor = match self {
            Self::Standard(out) => out.as_fd(),
            Self::Device { file, .. } => file.as_fd(),
            Self::File { .. } => return Ok(None),
        };
        descriptor.try_clone_to_owned().map(Some)
    }

    /// Completes the output.
    pub fn finish(self) -> Result<(), Failure> {
        mapped::whole()?;
        match self {
            Self::Standard(mut out) => out.flush().map_err(standard)?,
            Self::Device { mut file, path } => file.flush().map_err(named(&path))?,
            Self::File {
                mut file,
                mut temporary,
                path,
                force,
            } => {
                file.flush().map_err(named(&path))?;
                // The file may have been created since the start.
                if !force && path.symlink_metadata().is_ok() {
                    return Err(exists(&path));
                }
                not_input(&path)?;
                temporary.rename(&path).map_err(named(&path))?;
            }
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes).map_err(standard),
            Self::File { file, path, .. } | Self::Device { file, path } => {
                file.write(bytes).map_err(named(path))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush().map_err(standard),
            Self::File { file, path, .. } | Self::Device { file, path } => {
                file.flush().map_err(named(path))
            }
        }
    }
}
