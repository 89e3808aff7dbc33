//! Notes on raw trace.

use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::capture::Protocol;
use armsnap_snapshot::text;
use armsnap_trace::formatter::FrameKind;
use std::fmt;
use std::path::{Path, PathBuf};

/// A note on raw trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawNote {
    /// What was found in a buffer.
    #[error("{}", found(.path, *.frames, *.from, .sources))]
    Found {
        /// Its file.
        path: PathBuf,
        /// The layout of its frames; `None` if it contains the bytes of one source.
        frames: Option<FrameKind>,
        /// The offset of the first frame; what precedes it is left out.
        from: usize,
        /// The sources that were found.
        sources: Vec<FoundSource>,
    },
    /// The registers of a core were read from a list.
    #[error("{path}: {} are those of {core}", text::count(*.count as u64, "register"))]
    Registers {
        /// The file.
        path: PathBuf,
        /// Their number.
        count: usize,
        /// The core.
        core: String,
    },
    /// Trace units without trace in the buffers.
    #[error("trace units without trace in the buffers: {}", .units.join(", "))]
    UnitsWithoutTrace {
        /// Their names.
        units: Vec<String>,
    },
    /// The core that a source traced is assumed from the order of cores.
    #[error("{unit}: is assumed to have traced {core}: the order of cores is that of trace units")]
    AssumedCore {
        /// The trace unit.
        unit: String,
        /// The core.
        core: String,
    },
    /// Records of the Event Recorder are no trace.
    #[error("{path}: has records of the Event Recorder, which are not read")]
    EventRecorder {
        /// The file.
        path: PathBuf,
    },
    /// The trace unit of a buffer is assumed from the order of units.
    #[error(
        "{buffer}: is assumed to be trace of {unit}: it has no trace ID, and the order of buffers \
         is that of trace units"
    )]
    AssumedUnit {
        /// The buffer.
        buffer: String,
        /// The trace unit.
        unit: String,
    },
    /// A source traced a core without a saved state.
    #[error("{unit}: traced core {core}, without a saved state")]
    UnsavedCore {
        /// The trace unit.
        unit: String,
        /// The number of the core.
        core: usize,
    },
    /// The type of a core is assumed.
    #[error("{core}: --core does not give its type: {kind} is assumed")]
    AssumedType {
        /// The core.
        core: String,
        /// The type.
        kind: String,
    },
    /// A note on trace that a kernel kept when it panicked.
    #[error("{path}: {note}")]
    Crash {
        /// The file with the trace.
        path: PathBuf,
        /// The note.
        note: CrashNote,
    },
    /// A note on the packets of an MTB.
    #[error("{0}")]
    Mtb(MtbNote),
}

/// What was found in a buffer.
fn found(path: &Path, frames: Option<FrameKind>, from: usize, sources: &[FoundSource]) -> String {
    let has_ids = sources.iter().all(|source| source.trace_id.is_some());
    let how = match frames {
        Some(FrameKind::Memory) if !has_ids => {
            "formatter frames, the first ones without a trace ID, as a ring that wrapped holds them: \
             taken for one source"
        }
        Some(FrameKind::Memory) => "formatter frames",
        Some(FrameKind::Dstream) => "formatter frames as a DSTREAM stores them",
        Some(_) => "a trace port's stream of formatter frames",
        None => "one source, not formatted",
    };
    let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
    let sources = sources.join(", ");
    let path = path.display();
    match from {
        0 => format!("{path}: found to be {how}: {sources}"),
        from => format!("{path}: found to be {how} from offset {from} on: {sources}"),
    }
}

/// A source that was found in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSource {
    /// Its trace ID; `None` if the buffer is not formatted.
    pub trace_id: Option<TraceId>,
    /// Its protocol; `None` if its bytes are of no known kind and left out.
    pub protocol: Option<Protocol>,
    /// Another protocol that fits the bytes equally well.
    pub alike: Option<Protocol>,
    /// The number of its bytes.
    pub bytes: u64,
}

impl fmt::Display for FoundSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.trace_id {
            write!(f, "trace ID {:#04x}, ", id.0)?;
        }
        match (self.protocol.map(Protocol::name), self.alike) {
            (Some(protocol), Some(alike)) => write!(
                f,
                "{protocol} ({} fits as well: a register such as ETMIDR tells them apart)",
                alike.name()
            ),
            (Some(protocol), None) => f.write_str(protocol),
            (None, _) => write!(f, "{} bytes of no known kind, left out", self.bytes),
        }
    }
}

/// A note on trace that a kernel kept when it panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrashNote {
    /// The checksum covers more bytes than the file has.
    #[error("not checked: the checksum is that of {of} bytes, of which {bytes} are here")]
    NotChecked {
        /// The number of bytes that the checksum covers.
        of: u64,
        /// The number of bytes in the file.
        bytes: u64,
    },
    /// The file is the whole region, and its checksum is correct.
    #[error("the region of a panic, checksum correct: {bytes} bytes from {from:#x} on are valid")]
    Region {
        /// The number of valid bytes.
        bytes: u64,
        /// The offset of the oldest byte.
        from: usize,
    },
    /// The file was read from the region with the oldest byte first, and its checksum is correct.
    #[error("trace of a panic, the oldest byte first, checksum correct")]
    Ordered,
    /// The checksum is wrong.
    #[error(
        "damaged: its checksum is {checksum:#010x}, expected {expected:#010x}: some of the trace \
         is not what was traced"
    )]
    Damaged {
        /// The checksum of the file.
        checksum: u32,
        /// The expected one.
        expected: u32,
    },
}

/// A note on the packets of an MTB.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MtbNote {
    /// BASE is not given.
    #[error("MTB: --register does not give BASE: {ram:#x}, the address of the RAM, is assumed")]
    AssumedBase {
        /// The address.
        ram: u64,
    },
    /// VTOR is not given.
    #[error(
        "MTB: --register does not give VTOR: the vectors are assumed at {start:#x}, the start of \
         the program"
    )]
    AssumedVectors {
        /// The address.
        start: u64,
    },
    /// Packets are older than the current trace.
    #[error(
        "MTB: {} before the first one with the S bit, though it has not wrapped: left out, as \
         older than the trace",
        text::count(*.count as u64, "packet")
    )]
    OldPackets {
        /// Their number.
        count: usize,
    },
    /// What was read.
    #[error(
        "{path}: MTB: {} in the {bytes} bytes from {from:#x} on{}",
        text::count(*.packets as u64, "packet"),
        if *.wrapped { ", wrapped: older ones are lost" } else { "" }
    )]
    Read {
        /// The file with the RAM.
        path: PathBuf,
        /// The number of packets.
        packets: usize,
        /// The size of the ring in bytes.
        bytes: u64,
        /// The address of the ring.
        from: u64,
        /// Whether older packets were overwritten.
        wrapped: bool,
    },
    /// Packets from which execution cannot be followed to the next packet.
    #[error(
        "MTB: {} where a packet, or the code, does not lead to the next packet: gaps in the history",
        text::count(*.count, "place")
    )]
    Gaps {
        /// Their number.
        count: u64,
    },
    /// Exceptions whose number is not known.
    #[error(
        "MTB: {} without a number: handlers in no vector, or in several",
        text::count(*.count, "exception")
    )]
    UnnumberedExceptions {
        /// Their number.
        count: u64,
    },
    /// The straight lines between packets are too long.
    #[error("MTB: the lines between packets are too long: the rest is left out")]
    LongLines,
    /// The MTB was not tracing when the registers were read.
    #[error("MTB: was not tracing when the registers were read: the trace may end before")]
    NotTracing,
    /// The code executed after the last packet is not known, because the PC is not.
    #[error(
        "MTB: what was executed after the last packet is left out: no PC is known that it leads to"
    )]
    NoEnd,
}
