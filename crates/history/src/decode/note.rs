//! Notes on decoding: the programs of the cores, and buffers of which little is decoded.

use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::Protocol;
use armsnap_snapshot::program::symbols::SymbolsError;
use armsnap_snapshot::snapshot::model::FileLine;
use armsnap_snapshot::snapshot::{MemoryNote, ProgramNote};
use armsnap_trace::formatter::FrameKind;
use std::fmt;
use std::path::PathBuf;

/// Something assumed or missing when the trace of a snapshot is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// How well a program agrees with the dumps.
    Program(ProgramNote),
    /// A note on a program that a core reads.
    OfProgram {
        /// The core.
        core: String,
        /// The note.
        note: ProgramNote,
    },
    /// Where the memory of a core comes from.
    OfMemory {
        /// The core.
        core: String,
        /// The note.
        note: MemoryNote,
    },
    /// A program without readable symbols.
    Symbols {
        /// The program's file.
        program: PathBuf,
        /// The reason.
        error: SymbolsError,
    },
    /// Why little or nothing of a buffer is decoded.
    Buffer {
        /// Where the buffer is described.
        place: FileLine,
        /// Its name.
        name: String,
        /// The note.
        note: BufferNote,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(note) => note.fmt(f),
            Self::OfProgram { core, note } => write!(f, "{core}: {note}"),
            Self::OfMemory { core, note } => write!(f, "{core}: {note}"),
            Self::Symbols { program, error } => write!(f, "{}: {error}", program.display()),
            Self::Buffer { place, name, note } => write!(f, "{place}: buffer {name}: {note}"),
        }
    }
}

/// A source named in a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSource {
    /// Its name.
    pub name: String,
    /// Its trace ID.
    pub trace_id: TraceId,
    /// Its protocol.
    pub protocol: Protocol,
}

impl fmt::Display for NamedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#04x})", self.name, self.trace_id.0)
    }
}

/// Why little or nothing of a buffer is decoded, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferNote {
    /// Its files have no bytes.
    Empty {
        /// The files as written.
        files: Vec<String>,
    },
    /// It has no formatter frames, and no trace source is assigned to it.
    NoSource,
    /// It decodes well in another format.
    OtherFormat {
        /// Whether anything synchronises in the declared format.
        synchronises: bool,
        /// The frames of the declared format.
        declared: Option<FrameKind>,
        /// The frames of the other format.
        other: Option<FrameKind>,
        /// The trace ID that decodes well, with the source whose protocol it matches.
        source: NamedSource,
        /// Where it synchronises.
        from: BufferOffset,
    },
    /// The trace of these sources has no synchronisation point.
    NeverSynchronised {
        /// The sources.
        sources: Vec<NamedSource>,
    },
    /// Some bytes have trace IDs that belong to no source.
    UnclaimedIds {
        /// The trace IDs, and the bytes of each.
        ids: Vec<(TraceId, u64)>,
        /// The number of bytes that were examined, if not all.
        examined: Option<u64>,
        /// The sources of the buffer.
        sources: Vec<NamedSource>,
        /// One of the IDs (`trace_id`), whose trace decodes like that of a source of the buffer.
        guess: Option<NamedSource>,
    },
    /// No byte belongs to any source.
    NothingOfSources {
        /// The number of bytes of the buffer.
        bytes: u64,
        /// The sources of the buffer.
        sources: Vec<NamedSource>,
    },
}

/// The most IDs or sources that a note names.
const NAMED: usize = 8;
/// A plausible maximum of trace sources in one buffer.
const MANY: usize = 32;

/// The formats of buffers, as spelt in snapshots.
pub(super) const FORMATS: [(Option<FrameKind>, &str); 3] = [
    (Some(FrameKind::Memory), "coresight"),
    (None, "source_data"),
    (Some(FrameKind::Dstream), "dstream_coresight"),
];

fn format(frames: Option<FrameKind>) -> &'static str {
    let mut formats = FORMATS.iter();
    let found = formats.find(|(known, _)| *known == frames);
    found.map_or("another", |(_, name)| name)
}

impl fmt::Display for BufferNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { files } => write!(
                f,
                "{} has no bytes: nothing was captured, or another file was meant",
                files.join(", ")
            ),
            Self::NoSource => f.write_str(
                "no trace source is assigned to it: [source_buffers] names one for each buffer",
            ),
            Self::OtherFormat {
                synchronises,
                declared,
                other,
                source,
                from,
            } => {
                let how = match synchronises {
                    true => "it is not sound",
                    false => "nothing in it synchronises",
                };
                let (declared, format) = (format(*declared), format(*other));
                let what = match other {
                    Some(_) => format!("trace ID {:#04x}", source.trace_id.0),
                    None => "it".to_owned(),
                };
                write!(
                    f,
                    "read as {declared}, {how}; read as {format}, {what} is sound ({} of {}, from \
                     offset {:#x} on): try format={format}",
                    source.protocol.name(),
                    source.name,
                    from.0
                )
            }
            Self::NeverSynchronised { sources } => write!(
                f,
                "nothing is decoded of {}: there is no synchronisation point in its trace. The \
                 buffer may be shorter than the distance between two of them, or hold trace of \
                 another kind",
                list(sources, |source| {
                    format!("{source}, {}", source.protocol.name())
                })
            ),
            Self::UnclaimedIds {
                ids,
                examined,
                sources,
                guess,
            } => {
                let part = examined.map_or_else(String::new, |examined| {
                    format!(" in the first {examined} bytes")
                });
                let many = match ids.len() > MANY {
                    true => ", more than systems have: a part of it may hold no frames",
                    false => "",
                };
                let claimed = match &sources[..] {
                    [] => "it has no source".to_owned(),
                    known => format!("its sources are {}", list(known, ToString::to_string)),
                };
                let guess = guess.as_ref().map_or_else(String::new, |guess| {
                    let (protocol, name) = (guess.protocol.name(), &guess.name);
                    let id = guess.trace_id.0;
                    format!("; {id:#04x} reads as {protocol}, as that of {name}")
                });
                let ids = list(ids, |(id, bytes)| format!("{:#04x} ({bytes} bytes)", id.0));
                write!(
                    f,
                    "trace IDs of no source are left out: {ids}{part}{many}; {claimed}{guess}: look \
                     at [source_buffers] and at the registers that hold the sources' trace IDs"
                )
            }
            Self::NothingOfSources { bytes, sources } => write!(
                f,
                "none of its {bytes} bytes belongs to a source: it holds padding, or no whole frame. \
                 Tracing may have been off; its sources are {}",
                list(sources, ToString::to_string)
            ),
        }
    }
}

/// Lists the first items and the number of the others.
fn list<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(text).collect();
    match all.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
