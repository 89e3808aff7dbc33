//! The snapshot as data: the contents of the .ini files in their order, with positions.
//!
//! [`super::read`] creates it, `write` writes it, [`crate::check`] checks it. Section numbers and
//! terms follow the Debug and Trace Snapshot File Format 0.2.

use armsnap_arch::arch::{SavedCore, SavedRegister};
use std::fmt;
use std::path::PathBuf;

/// A position in an .ini file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileLine {
    /// The file, relative to the snapshot's directory.
    pub file: PathBuf,
    /// Line, from 1; 0 means the file as a whole.
    pub line: u32,
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.line {
            0 => Ok(()),
            line => write!(f, ":{line}"),
        }
    }
}

/// A message about a snapshot for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The position in a file that it refers to.
    pub place: FileLine,
    /// Its severity.
    pub severity: Severity,
    /// Section of the specification, or empty.
    pub section: &'static str,
    /// What was found, and what was expected.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// The severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Unusual or not recommended.
    Warning,
    /// Violates the specification; information is lost.
    Error,
}

/// A whole snapshot (section 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// `[snapshot] version`; empty if it is missing (3.1.1).
    pub version: String,
    /// `[snapshot] description` (3.1.1).
    pub description: Option<String>,
    /// Devices in the order of `[device_list]` (3.1.2).
    pub devices: Vec<Device>,
    /// `[clusters]` in file order; empty if the section is missing (3.1.3).
    pub clusters: Vec<Cluster>,
    /// The trace metadata (3.3).
    pub trace: Option<Trace>,
    /// Other keys of `[snapshot]`, in order.
    pub other: Vec<(String, String)>,
    /// Other sections of snapshot.ini, in order.
    pub other_sections: Vec<OtherSection>,
    /// The position of the version, or of the section that lacks it.
    pub place: FileLine,
}

/// A section unknown to the format: kept but not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherSection {
    /// Its name.
    pub name: String,
    /// Its keys and values, in order.
    pub entries: Vec<(String, String)>,
    /// The position of its header.
    pub place: FileLine,
}

/// An entry of `[clusters]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Names of its devices, as written.
    pub devices: Vec<String>,
    /// The position of its entry.
    pub place: FileLine,
}

/// A device file (3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its key in `[device_list]`.
    pub key: String,
    /// Its file, as written in `[device_list]`.
    pub file: String,
    /// `name`.
    pub name: String,
    /// `class`.
    pub class: DeviceClass,
    /// `type`, as written; empty if missing.
    pub kind: String,
    /// `location`, as written (`dap:2,ap:1,address:0x80010000`).
    pub location: Option<String>,
    /// Other keys of `[device]`, in order (3.2.1: ignored, kept).
    pub other: Vec<(String, String)>,
    /// Registers in file order.
    pub registers: Vec<Register>,
    /// Dumps in file order.
    pub dumps: Vec<Dump>,
    /// Other sections, in order.
    pub other_sections: Vec<OtherSection>,
    /// The position of `[device]`.
    pub place: FileLine,
    /// The position of its entry in `[device_list]`.
    pub listed: FileLine,
}

/// The class of a device (3.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceClass {
    /// `core`.
    Core,
    /// `trace_source`.
    TraceSource,
    /// `memory_space`, also written `memory`.
    MemorySpace,
    /// Anything else, as written; empty if missing.
    Other(String),
    /// No class is given.
    #[default]
    Missing,
}

/// A register (3.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// Name without the part in parentheses, as written.
    pub name: String,
    /// `id`.
    pub id: Option<u64>,
    /// `size` in bits, if written. Without it a register has 32 bits.
    pub size: Option<u32>,
    /// The value.
    pub value: RegisterValue,
    /// The position of its entry.
    pub place: FileLine,
}

impl SavedCore for Device {
    fn core_type(&self) -> &str {
        &self.kind
    }

    fn saved_registers(&self) -> impl Iterator<Item = SavedRegister<'_>> {
        self.registers.iter().map(|register| SavedRegister {
            name: &register.name,
            size: register.size,
            value: &register.value.0,
        })
    }
}

/// A register's value: any number of bytes, least significant first, without leading zeros
/// beyond the size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterValue(pub Vec<u8>);

/// The section of snapshot.ini for a snapshot made from a GDB trace frame: its number, tracepoint
/// and variables.
pub const TRACE_FRAME: &str = "trace_frame";

/// A key of dumps in such a snapshot: the trace frame that supplied their bytes.
pub const TRACE_FRAME_KEY: &str = "frame";

/// A region of memory (3.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// The section's name, starting with `dump`.
    pub section: String,
    /// `file`, as written.
    pub file: String,
    /// `space`, as written.
    pub space: Option<String>,
    /// `address` of the first byte.
    pub address: u64,
    /// `length` in bytes; to the end of the file if missing.
    pub length: Option<u64>,
    /// `offset` into the file in bytes.
    pub offset: Option<u64>,
    /// Other keys, in order.
    pub other: Vec<(String, String)>,
    /// The position of the section.
    pub place: FileLine,
}

/// The trace metadata (3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The metadata's file, as written in `[trace] metadata`.
    pub file: String,
    /// Buffers in the order of `buffers=` (3.3.1).
    pub buffers: Vec<Buffer>,
    /// `[core_trace_sources]` in file order; a core may have several (3.3.3).
    pub core_sources: Vec<CoreSource>,
    /// `[source_buffers]` in file order; `None` if the section is missing (3.3.4).
    pub source_buffers: Option<Vec<SourceBuffers>>,
    /// `[timestamp] frequency` in Hz (Arm DS).
    pub timestamp_frequency: Option<u64>,
    /// Other sections, in order.
    pub other_sections: Vec<OtherSection>,
    /// The position of the metadata.
    pub place: FileLine,
}

/// A trace buffer (3.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The ID in `buffers=`, which names its section.
    pub id: String,
    /// `name`.
    pub name: String,
    /// `file`: the parts in order, as written.
    pub files: Vec<String>,
    /// `format`.
    pub format: BufferFormat,
    /// Other keys, in order.
    pub other: Vec<(String, String)>,
    /// The position of the section.
    pub place: FileLine,
}

/// The format of a trace buffer (3.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BufferFormat {
    /// `coresight`: 16-byte formatter frames.
    Coresight,
    /// `source_data`: the bytes of one source.
    SourceData,
    /// `dstream_coresight`: frames with FSYNC and HSYNC, as a DSTREAM probe captures them.
    DstreamCoresight,
    /// Anything else, as written.
    Other(String),
    /// No format is given.
    #[default]
    Missing,
}

/// An entry of `[core_trace_sources]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreSource {
    /// The core's name, as written.
    pub core: String,
    /// The source's name, or `@` and its location, as written.
    pub source: String,
    /// The position of the entry.
    pub place: FileLine,
}

/// An entry of `[source_buffers]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceBuffers {
    /// The source's name, without `(stream:N)`.
    pub source: String,
    /// `N` of `(stream:N)`: the offset from the base trace ID.
    pub stream: Option<u32>,
    /// Names of the buffers.
    pub buffers: Vec<String>,
    /// The position of the entry.
    pub place: FileLine,
}
