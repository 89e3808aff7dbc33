//! The contents of a snapshot as data: created from a loaded snapshot, printed for people by
//! [`text`], serialised unchanged for `armsnap info --json` (docs/info-json.md).
//!
//! Only the start of each trace buffer is read, for notes on those that may decode to nothing.

mod build;
mod core;
mod kernel;
mod memory;
mod source;
pub mod text;

use serde::Serialize;

use super::fields::Field;
use armsnap_snapshot::capture::TraceArchitecture;

pub use kernel::{KernelInfo, TaskInfo};

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Info {
    /// `[snapshot] version`; empty if missing.
    pub version: String,
    /// `[snapshot] description`.
    pub description: Option<String>,
    /// All devices in the order of `[device_list]`.
    pub devices: Vec<DeviceInfo>,
    /// The clusters.
    pub clusters: Vec<ClusterInfo>,
    /// The devices of class `core`.
    pub cores: Vec<CoreInfo>,
    /// The real-time operating system that a core runs, and its tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelInfo>,
    /// The devices of class `memory_space`.
    pub memory_spaces: Vec<MemorySpaceInfo>,
    /// The trace buffers.
    pub buffers: Vec<BufferInfo>,
    /// The trace sources.
    pub sources: Vec<SourceInfo>,
    /// `[timestamp] frequency` in Hz.
    pub timestamp_frequency: Option<u64>,
    /// Assumptions and problems.
    pub notes: Vec<String>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// `name`.
    pub name: String,
    /// `class`, as written.
    pub class: String,
    /// `type`, as written.
    #[serde(rename = "type")]
    pub kind: String,
    /// `location`, as written.
    pub location: Option<String>,
    /// Its file.
    pub file: String,
    /// The number of its registers.
    pub registers: usize,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterInfo {
    /// Its name; empty for the one cluster of a snapshot without `[clusters]`.
    pub name: String,
    /// Its devices.
    pub devices: Vec<String>,
    /// Whether there is no `[clusters]`: all cores are in one.
    pub assumed: bool,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreInfo {
    /// `name`.
    pub name: String,
    /// `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `AArch64`, `AArch32` or `M-profile`.
    pub architecture: &'static str,
    /// What the architecture was derived from.
    pub architecture_from: String,
    /// The cluster it is in.
    pub cluster: Option<String>,
    /// The number of its registers.
    pub registers: RegisterCount,
    /// The program counter.
    pub pc: Option<Hex>,
    /// The stack pointer.
    pub sp: Option<Hex>,
    /// CPSR, or xPSR for an M-profile core.
    pub status: Option<StatusInfo>,
    /// The signal that stopped its thread, and the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Why the registers are not machine state.
    pub placeholder: Option<String>,
    /// The address space in which the core currently sees memory, and why.
    pub current_space: SpaceInfo,
    /// Its memory, with dumps merged, by space and address.
    pub memory: Vec<RegionInfo>,
    /// Notes on registers that were combined or left out.
    pub notes: Vec<String>,
}

/// The number of registers of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterCount {
    /// As written in the file.
    pub written: usize,
    /// With the views of one register (`X0` and `W0`) counted once.
    pub distinct: usize,
}

/// A status register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusInfo {
    /// `CPSR` or `xPSR`.
    pub name: &'static str,
    /// Its value.
    pub value: Hex,
    /// The value in words.
    pub meaning: String,
    /// Whether it was assembled from its parts because the snapshot does not contain it.
    pub assembled: bool,
}

/// An address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpaceInfo {
    /// Its name in the snapshot format; `None` if the architecture has none.
    pub name: Option<&'static str>,
    /// Why it is the current one.
    pub reason: String,
}

/// A device that is an address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemorySpaceInfo {
    /// `name`.
    pub name: String,
    /// Its memory.
    pub memory: Vec<RegionInfo>,
}

/// A range of memory filled by one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionInfo {
    /// Its address space; `None` if the dump names none.
    pub space: Option<String>,
    /// The first address.
    pub start: Hex,
    /// The last address; `None` if the file is missing and no length is written.
    pub end: Option<Hex>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// The file, as written.
    pub file: String,
    /// Why the memory is missing.
    pub missing: Option<String>,
}

/// A trace buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferInfo {
    /// `name`.
    pub name: String,
    /// `format`, as written; empty if missing.
    pub format: String,
    /// The total size in bytes of the files that exist.
    pub size: u64,
    /// Its files in order.
    pub files: Vec<FileInfo>,
}

/// A file of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    /// As written.
    pub file: String,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Why it is missing.
    pub missing: Option<String>,
}

/// A trace source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceInfo {
    /// `name`.
    pub name: String,
    /// `type`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The trace architecture with its version.
    pub protocol: TraceArchitecture,
    /// The trace ID, if a register has it.
    pub trace_id: Option<u64>,
    /// The cores that it traces.
    pub cores: Vec<String>,
    /// The location of its trace.
    pub buffers: Vec<SourceBufferInfo>,
    /// Its known configuration registers, in words.
    pub registers: Vec<SourceRegisterInfo>,
    /// The number of its other registers.
    pub other_registers: usize,
}

/// The location of a source's trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceBufferInfo {
    /// The buffer's name.
    pub buffer: String,
    /// `N` of `(stream:N)`.
    pub stream: Option<u32>,
}

/// A configuration register of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceRegisterInfo {
    /// Its name, as written.
    pub name: String,
    /// The specification's name of the register with this ID, if its own name is not a specified
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_id: Option<&'static str>,
    /// Its value.
    pub value: Hex,
    /// Its fields, the most significant first.
    pub fields: Vec<Field>,
}

/// A number written in hex, with as many digits as its bits need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hex {
    /// The number.
    pub value: u64,
    /// Digits.
    pub digits: usize,
}

impl Hex {
    /// A value of a register of `bits` bits.
    pub fn register(value: u64, bits: u32) -> Self {
        let digits = bits.div_ceil(4).clamp(1, 16) as usize;
        Self { value, digits }
    }

    /// An address: 8 digits, or 16 if it has more than 32 bits.
    pub fn address(value: u64) -> Self {
        let digits = if value >> 32 == 0 { 8 } else { 16 };
        Self { value, digits }
    }
}

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0x{:0width$x}", self.value, width = self.digits)
    }
}

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
