//! The registers of peripherals, by the description of a microcontroller in the format CMSIS-SVD.
//!
//! `elements` finds elements of the description with what they derive from, `read` expands it into
//! registers, `find` finds them by name or address, and `values` reads what memory has of them.
//!
//! The crate svd-parser is not used: it takes ten seconds of processor time to build, expands arrays
//! without a limit, and rejects descriptions of vendors for faults that do not matter here.

mod elements;
mod find;
mod read;
#[cfg(test)]
mod tests;
mod values;

use armsnap_arch::xml::XmlError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use values::{FieldValue, PeripheralValues, RegisterValue, Text};

/// The description of a microcontroller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Svd {
    /// Its name, with escapes instead of control characters, as in all texts here.
    pub name: String,
    /// Its peripherals, in the order of the description.
    pub peripherals: Vec<Peripheral>,
    /// What is wrong with the description.
    pub notes: Vec<Note>,
    /// Whether registers have their most significant byte first.
    big_endian: bool,
    /// The registers by address, each as the indices of its peripheral and in it.
    by_address: Vec<(u64, u32, u32)>,
}

/// A peripheral.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peripheral {
    /// Its name.
    pub name: String,
    /// What it is, in the words of the description; may be empty.
    pub description: Arc<str>,
    /// Its address.
    pub base: u64,
    /// Its registers, by address.
    pub registers: Vec<Register>,
    /// The memory that it occupies: start and size.
    blocks: Vec<(u64, u64)>,
}

/// A register of a peripheral.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name in the peripheral, with the clusters that contain it: `CH[0].CTRL`.
    pub name: String,
    /// What it is; may be empty.
    pub description: Arc<str>,
    /// Its address.
    pub address: u64,
    /// Its size in bits, at most 64.
    pub bits: u32,
    /// Its fields, from the least significant one on.
    pub fields: Arc<[Field]>,
}

/// A field of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its least significant bit.
    pub lowest: u32,
    /// The number of its bits.
    pub bits: u32,
    /// What its values mean.
    meanings: Arc<[Meaning]>,
}

/// What a value of a field means.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meaning {
    name: String,
    /// The value; `None` stands for all that have no other meaning.
    value: Option<u64>,
    /// The bits of the value that matter.
    mask: u64,
}

impl Register {
    /// Returns its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }
}

/// An error that prevents the use of a description.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct SvdError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a description.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// The file is larger than any description.
    #[error("expected at most {} MiB, found more", read::LARGEST >> 20)]
    Large,
    /// It is no XML.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// It is XML, but no description.
    #[error("expected a CMSIS-SVD description with the element device, found {0:?}")]
    NoDevice(String),
    /// It has too many elements after its arrays are expanded.
    #[error(
        "expected at most {} registers, clusters and fields, found more",
        read::MOST
    )]
    Many,
    /// Following what elements derive from takes too long.
    #[error("expected a description of a device, found elements that derive from too many others")]
    Tangled,
    /// Clusters contain each other too deeply, or without end.
    #[error("expected at most {} nested clusters, found more", read::DEEPEST)]
    Deep,
}

/// What is wrong with an element of a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// What an element derives from does not exist.
    #[error("line {line}: it derives from {name:?}, which does not exist")]
    NoBase {
        /// Where the element is.
        line: u32,
        /// What it names.
        name: String,
    },
    /// A number cannot be read, or is missing.
    #[error("line {line}: expected a number in {tag}, found {found:?}: the {element} is left out")]
    NoNumber {
        /// Where the element is.
        line: u32,
        /// The element that contains the number.
        tag: &'static str,
        /// Its text.
        found: String,
        /// The element that is left out.
        element: &'static str,
    },
    /// A register is larger than any that is read.
    #[error("line {line}: a register of {bits} bits is left out")]
    Size {
        /// Where the register is.
        line: u32,
        /// Its size.
        bits: u64,
    },
}
