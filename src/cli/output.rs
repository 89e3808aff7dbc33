//! Where results go: standard output, or a file that appears whole or not at all.

use super::Failure;
use armsnap::snapshot::map;
use std::fs::File;
use std::io::{self, StdoutLock, Write};
use std::path::{Path, PathBuf};

/// The destination of results.
pub enum Output {
    /// Standard output.
    Standard(StdoutLock<'static>),
    /// A file under a temporary name beside the final one.
    File {
        /// What is written.
        file: File,
        /// Its name until it is whole.
        temporary: TemporaryFile,
        /// Its name then.
        path: PathBuf,
        /// Whether a file of that name is overwritten.
        force: bool,
    },
    /// What is no file: a pipe, `/dev/null`.
    Device(File),
}

fn exists(path: &Path) -> Failure {
    Failure::Usage(format!("{} exists: --force overwrites it", path.display()))
}

/// Removes the file unless it was renamed.
pub struct TemporaryFile(Option<PathBuf>);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Nothing is left to do if it is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Output {
    /// A file, or standard output without a path. Nothing is overwritten without `force`.
    pub fn new(path: Option<&Path>, force: bool) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::Standard(io::stdout().lock()));
        };
        match path.symlink_metadata() {
            // A pipe or a device holds nothing that could be overwritten.
            Ok(there) if !there.is_file() && path.metadata().is_ok_and(|to| !to.is_file()) => {
                let file = File::options().write(true).open(path);
                return Ok(Self::Device(file.map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?));
            }
            Ok(_) if !force => return Err(exists(path)),
            _ => {}
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create_new(&temporary).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", temporary.display()))
        })?;
        Ok(Self::File {
            file,
            temporary: TemporaryFile(Some(temporary)),
            path: path.to_owned(),
            force,
        })
    }

    /// Everything is written.
    pub fn finish(self) -> Result<(), Failure> {
        map::whole()?;
        match self {
            Self::Standard(mut out) => out.flush()?,
            Self::Device(mut file) => file.flush()?,
            Self::File {
                mut file,
                mut temporary,
                path,
                force,
            } => {
                file.flush()?;
                // It may have come into being since the start.
                if !force && path.symlink_metadata().is_ok() {
                    return Err(exists(&path));
                }
                if let Some(written) = temporary.0.take() {
                    std::fs::rename(written, path)?;
                }
            }
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File { file, .. } | Self::Device(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File { file, .. } | Self::Device(file) => file.flush(),
        }
    }
}
