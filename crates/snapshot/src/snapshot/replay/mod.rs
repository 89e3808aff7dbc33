//! What a recorded program started with, and what entered it from outside: the section `[replay]`
//! of snapshot.ini and the files that it names. armsnap writes both; other readers ignore them.
//!
//! Each entry names a core and its file. From these files, the program that the trace shows can be
//! executed again, from its first instruction on. `file` documents the format.

mod file;
mod writer;

pub use file::{
    Call, Checkpoint, Contents, Cursor, Error, Input, Inputs, Piece, Start, Turn, checksum,
};
pub use writer::{Saved, Writer};

use super::core_files::{CoreFile, OpenError};
use crate::mapped::Mapped;

impl CoreFile for Inputs {
    const SECTION: &'static str = "replay";
    type Error = Error;

    fn open(bytes: Mapped) -> Result<Self, Self::Error> {
        Self::open(bytes)
    }

    fn unused(core: &str, error: &OpenError<Self::Error>) -> String {
        format!("{error}: the recorded inputs of {core} are not used")
    }
}
