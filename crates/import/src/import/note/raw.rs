//! Notes on raw trace.

use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::capture::Protocol;
use armsnap_snapshot::text;
use armsnap_trace::formatter::FrameKind;
use std::fmt;
use std::path::PathBuf;

/// A note on raw trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawNote {
    /// What was found in a buffer.
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
    /// Trace units without trace in the buffers.
    UnitsWithoutTrace {
        /// Their names.
        units: Vec<String>,
    },
    /// The core that a source traced is assumed from the order of cores.
    AssumedCore {
        /// The source.
        source: String,
        /// The core.
        core: String,
    },
    /// The trace unit of a buffer is assumed from the order of units.
    AssumedUnit {
        /// The buffer.
        buffer: String,
        /// The trace unit.
        unit: String,
    },
    /// A source traced a core without a saved state.
    UnsavedCore {
        /// The source.
        source: String,
        /// The number of the core.
        core: usize,
    },
    /// The type of a core is assumed.
    AssumedType {
        /// The core.
        core: String,
        /// The type.
        kind: String,
    },
    /// A note on trace that a kernel kept when it panicked.
    Crash {
        /// The file with the trace.
        path: PathBuf,
        /// The note.
        note: CrashNote,
    },
    /// A note on the packets of an MTB.
    Mtb(MtbNote),
}

impl fmt::Display for RawNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found {
                path,
                frames,
                from,
                sources,
            } => {
                let has_ids = sources.iter().all(|source| source.trace_id.is_some());
                let how = match frames {
                    Some(FrameKind::Memory) if !has_ids => {
                        "formatter frames, the first ones without a trace ID, as a ring that \
                         wrapped holds them: taken for one source"
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
                    0 => write!(f, "{path}: found to be {how}: {sources}"),
                    from => write!(
                        f,
                        "{path}: found to be {how} from offset {from} on: {sources}"
                    ),
                }
            }
            Self::UnitsWithoutTrace { units } => write!(
                f,
                "trace units without trace in the buffers: {}",
                units.join(", ")
            ),
            Self::AssumedCore { source, core } => write!(
                f,
                "{source}: is assumed to have traced {core}: the order of cores is that of trace \
                 units"
            ),
            Self::AssumedUnit { buffer, unit } => write!(
                f,
                "{buffer}: is assumed to be trace of {unit}: it has no trace ID, and the order of \
                 buffers is that of trace units"
            ),
            Self::UnsavedCore { source, core } => {
                write!(f, "{source}: traced core {core}, without a saved state")
            }
            Self::AssumedType { core, kind } => write!(
                f,
                "{core}: --core does not give its type: {kind} is assumed"
            ),
            Self::Crash { path, note } => write!(f, "{}: {note}", path.display()),
            Self::Mtb(note) => note.fmt(f),
        }
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashNote {
    /// The checksum covers more bytes than the file has.
    NotChecked {
        /// The number of bytes that the checksum covers.
        of: u64,
        /// The number of bytes in the file.
        bytes: u64,
    },
    /// The file is the whole region, and its checksum is correct.
    Region {
        /// The number of valid bytes.
        bytes: u64,
        /// The offset of the oldest byte.
        from: usize,
    },
    /// The file was read from the region with the oldest byte first, and its checksum is correct.
    Ordered,
    /// The checksum is wrong, so some of the trace is not what was traced.
    Damaged {
        /// The checksum of the file.
        checksum: u32,
        /// The expected one.
        expected: u32,
    },
}

impl fmt::Display for CrashNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotChecked { of, bytes } => write!(
                f,
                "not checked: the checksum is that of {of} bytes, of which {bytes} are here"
            ),
            Self::Region { bytes, from } => write!(
                f,
                "the region of a panic, checksum correct: {bytes} bytes from {from:#x} on are valid"
            ),
            Self::Ordered => {
                f.write_str("trace of a panic, the oldest byte first, checksum correct")
            }
            Self::Damaged { checksum, expected } => write!(
                f,
                "damaged: its checksum is {checksum:#010x}, expected {expected:#010x}: some of the \
                 trace is not what was traced"
            ),
        }
    }
}

/// A note on the packets of an MTB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MtbNote {
    /// BASE is not given; the address of the RAM is assumed.
    AssumedBase {
        /// The address.
        ram: u64,
    },
    /// VTOR is not given; the vectors are assumed to be at the start of the program.
    AssumedVectors {
        /// The address.
        start: u64,
    },
    /// Packets are older than the current trace, and left out.
    OldPackets {
        /// Their number.
        count: usize,
    },
    /// What was read.
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
    Gaps {
        /// Their number.
        count: u64,
    },
    /// Exceptions whose number is not known.
    UnnumberedExceptions {
        /// Their number.
        count: u64,
    },
    /// The straight lines between packets are too long; the rest is left out.
    LongLines,
    /// The MTB was not tracing when the registers were read.
    NotTracing,
    /// The code executed after the last packet is not known, because the PC is not.
    NoEnd,
}

impl fmt::Display for MtbNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AssumedBase { ram } => write!(
                f,
                "MTB: --register does not give BASE: {ram:#x}, the address of the RAM, is assumed"
            ),
            Self::AssumedVectors { start } => write!(
                f,
                "MTB: --register does not give VTOR: the vectors are assumed at {start:#x}, the \
                 start of the program"
            ),
            Self::OldPackets { count } => write!(
                f,
                "MTB: {} before the first one with the S bit, though it has not wrapped: left out, \
                 as older than the trace",
                text::count(*count as u64, "packet")
            ),
            Self::Read {
                path,
                packets,
                bytes,
                from,
                wrapped,
            } => write!(
                f,
                "{}: MTB: {} in the {bytes} bytes from {from:#x} on{}",
                path.display(),
                text::count(*packets as u64, "packet"),
                if *wrapped {
                    ", wrapped: older ones are lost"
                } else {
                    ""
                }
            ),
            Self::Gaps { count } => write!(
                f,
                "MTB: {} where a packet, or the code, does not lead to the next packet: gaps in \
                 the history",
                text::count(*count, "place")
            ),
            Self::UnnumberedExceptions { count } => write!(
                f,
                "MTB: {} without a number: handlers in no vector, or in several",
                text::count(*count, "exception")
            ),
            Self::LongLines => {
                f.write_str("MTB: the lines between packets are too long: the rest is left out")
            }
            Self::NotTracing => f.write_str(
                "MTB: was not tracing when the registers were read: the trace may end before",
            ),
            Self::NoEnd => f.write_str(
                "MTB: what was executed after the last packet is left out: no PC is known that it \
                 leads to",
            ),
        }
    }
}
