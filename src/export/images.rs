//! Which program an address belongs to.

use super::clean;
use crate::decode::Programs;
use crate::program::elf::Elf;
use std::fmt::Write as _;

/// A program or library.
#[derive(Debug)]
pub struct Image<'a> {
    elf: &'a Elf,
    /// Its path.
    pub path: String,
    /// Its build-id, in hexadecimal digits.
    pub build_id: Option<String>,
}

impl Image<'_> {
    /// Returns the address in the file, which does not depend on where it is loaded.
    pub fn in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(self.elf.offset)
    }

    /// Returns what identifies it: its build-id, or without one its path.
    pub fn identity(&self) -> &str {
        self.build_id.as_deref().unwrap_or(&self.path)
    }
}

/// The programs and libraries of a snapshot.
#[derive(Debug)]
pub struct Images<'a>(Vec<Image<'a>>);

impl<'a> Images<'a> {
    /// Reads their names and build-ids.
    pub fn of(programs: &'a Programs) -> Self {
        let images = programs.images().iter().map(|elf| Image {
            elf,
            path: clean(&elf.path.display().to_string()),
            build_id: elf.build_id().map(|id| hexadecimal(&id)),
        });
        Self(images.collect())
    }

    /// Returns the image that contains an address.
    pub fn at(&self, address: u64) -> Option<&Image<'a>> {
        let mut images = self.0.iter();
        images.find(|image| image.elf.slice(address).is_some())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
