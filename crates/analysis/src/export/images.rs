//! Finds the program that contains an address.

use super::clean;
use armsnap_history::decode::Programs;
use armsnap_snapshot::program::elf::Elf;
use std::fmt::{self, Write as _};

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
    /// Returns the address in the file, which does not depend on the load address.
    pub fn in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(self.elf.offset)
    }

    /// Returns its identity: the build-id, or the path if there is none.
    pub fn identity(&self) -> &str {
        self.build_id.as_deref().unwrap_or(&self.path)
    }
}

/// The programs and libraries of a snapshot.
pub struct Images<'a> {
    programs: &'a Programs,
    images: Vec<Image<'a>>,
}

impl fmt::Debug for Images<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Images").field(&self.images).finish()
    }
}

impl<'a> Images<'a> {
    /// Reads their names and build-ids.
    pub fn of(programs: &'a Programs) -> Self {
        let images = programs.images().map(|elf| Image {
            elf,
            path: clean(&elf.path.display().to_string()),
            build_id: elf.build_id().map(|id| hexadecimal(&id)),
        });
        Self {
            programs,
            images: images.collect(),
        }
    }

    /// Returns the image of a core that contains an address.
    pub fn at(&self, core: Option<usize>, address: u64) -> Option<&Image<'a>> {
        let images = self.programs.images_of(core).into_iter();
        let elf = images
            .into_iter()
            .find(|elf| elf.slice(address).is_some())?;
        self.images
            .iter()
            .find(|image| std::ptr::eq(image.elf, elf))
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
