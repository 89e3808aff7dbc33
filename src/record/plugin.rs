//! The plugin for the emulator: its shared object on disk, and its socket.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::stream;

/// The shared object; empty if armsnap was built without a C compiler.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));

/// Returns whether armsnap was built with the plugin.
pub const fn is_built() -> bool {
    !OBJECT.is_empty()
}

/// Why the plugin could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// armsnap was built without the plugin.
    #[error(
        "this armsnap was built without a C compiler, which recording needs: rebuild it \
             where cc is installed (Debian: apt install gcc)"
    )]
    NotBuilt,
    /// The emulator ended before it loaded the plugin.
    #[error(
        "the emulator ended during startup ({0}); see its messages above, and what armsnap doctor \
         says about it"
    )]
    Ended(std::process::ExitStatus),
    /// The emulator did not load the plugin in time.
    #[error("the emulator did not load its plugin within {0:?}")]
    Silent(Duration),
    /// A file or socket could not be used.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file or socket.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// A plugin ready to be loaded.
#[derive(Debug)]
pub struct Plugin {
    object: PathBuf,
    socket: PathBuf,
    listener: UnixListener,
}

impl Plugin {
    /// Writes the plugin and its socket to `directory`, which must be private to the caller.
    ///
    /// # Errors
    ///
    /// If armsnap was built without the plugin, or the files cannot be written.
    pub fn new(directory: &Path) -> Result<Self, Error> {
        if OBJECT.is_empty() {
            return Err(Error::NotBuilt);
        }
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::Io { path, error }
        };
        let object = directory.join("plugin.so");
        let socket = directory.join("plugin.socket");
        fs::write(&object, OBJECT).map_err(at(&object))?;
        let listener = UnixListener::bind(&socket).map_err(at(&socket))?;
        listener.set_nonblocking(true).map_err(at(&socket))?;
        Ok(Self {
            object,
            socket,
            listener,
        })
    }

    /// Returns the emulator's arguments that load the plugin, with options listed in `plugin.c`.
    pub fn arguments(&self, options: &[(&str, OsString)]) -> [OsString; 2] {
        let mut value = self.object.clone().into_os_string();
        value.push(",socket=");
        value.push(&self.socket);
        for (name, text) in options {
            value.push(format!(",{name}="));
            value.push(text);
        }
        ["-plugin".into(), value]
    }

    /// Makes an emulator of Linux programs preload the plugin, which serialises the threads in the
    /// emulator's GDB server. The program does not see this.
    pub fn preload(&self, command: &mut Command) {
        const PRELOAD: &str = "LD_PRELOAD";
        let before = std::env::var_os(PRELOAD).unwrap_or_default();
        let mut all = self.object.clone().into_os_string();
        if !before.is_empty() {
            all.push(":");
            all.push(&before);
        }
        command.env(PRELOAD, all);
        command.env("ARMSNAP_LD_PRELOAD", before);
    }

    /// Waits until `emulator` has loaded the plugin, for at most `patience`.
    ///
    /// # Errors
    ///
    /// If the emulator ends or does not load the plugin in time.
    pub fn connect(self, emulator: &mut Child, patience: Duration) -> Result<UnixStream, Error> {
        let start = Instant::now();
        let failed = |error| Error::Io {
            path: self.socket.clone(),
            error,
        };
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(failed)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
            if let Some(status) = emulator.try_wait().map_err(failed)? {
                return Err(Error::Ended(status));
            }
            if start.elapsed() > patience {
                return Err(Error::Silent(patience));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Sends a command to the plugin.
///
/// # Errors
///
/// If the plugin is gone.
pub fn send(mut stream: &UnixStream, command: &stream::Command) -> io::Result<()> {
    stream.write_all(&command.bytes())
}
