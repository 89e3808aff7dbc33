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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// How well a program agrees with the dumps.
    #[error("{0}")]
    Program(ProgramNote),
    /// A note on a program that a core reads.
    #[error("{core}: {note}")]
    OfProgram {
        /// The core.
        core: String,
        /// The note.
        note: ProgramNote,
    },
    /// Where the memory of a core comes from.
    #[error("{core}: {note}")]
    OfMemory {
        /// The core.
        core: String,
        /// The note.
        note: MemoryNote,
    },
    /// A program without readable symbols.
    #[error("{program}: {error}")]
    Symbols {
        /// The program's file.
        program: PathBuf,
        /// The reason.
        error: SymbolsError,
    },
    /// Why little or nothing of a buffer is decoded.
    #[error("{place}: buffer {name}: {note}")]
    Buffer {
        /// Where the buffer is described.
        place: FileLine,
        /// Its name.
        name: String,
        /// The note.
        note: BufferNote,
    },
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferNote {
    /// Its files have no bytes.
    #[error("{} has no bytes: nothing was captured, or another file was meant", .files.join(", "))]
    Empty {
        /// The files as written.
        files: Vec<String>,
    },
    /// It has no formatter frames, and no trace source is assigned to it.
    #[error("no trace source is assigned to it: [source_buffers] names one for each buffer")]
    NoSource,
    /// It decodes well in another format.
    #[error(
        "read as {}, {}; read as {}, {} is sound ({} of {}, from offset {:#x} on): try format={}",
        format(*.declared),
        if *.synchronises { "it is not sound" } else { "nothing in it synchronises" },
        format(*.other),
        subject(*.other, .found.trace_id),
        .found.protocol.name(),
        .found.name,
        .from.0,
        format(*.other)
    )]
    OtherFormat {
        /// Whether anything synchronises in the declared format.
        synchronises: bool,
        /// The frames of the declared format.
        declared: Option<FrameKind>,
        /// The frames of the other format.
        other: Option<FrameKind>,
        /// The trace ID that decodes well, with the source whose protocol it matches.
        found: NamedSource,
        /// Where it synchronises.
        from: BufferOffset,
    },
    /// The trace of these sources has no synchronisation point.
    #[error(
        "nothing is decoded of {}: there is no synchronisation point in its trace. The buffer may \
         be shorter than the distance between two of them, or hold trace of another kind",
        list(.sources, |source| { format!("{source}, {}", source.protocol.name()) })
    )]
    NeverSynchronised {
        /// The sources.
        sources: Vec<NamedSource>,
    },
    /// Some bytes have trace IDs that belong to no source.
    #[error(
        "trace IDs of no source are left out: {}{}; {}{}: look at [source_buffers] and at the \
         registers that hold the sources' trace IDs",
        unclaimed(.ids, *.examined),
        if .ids.len() > MANY {
            ", more than systems have: a part of it may hold no frames"
        } else {
            ""
        },
        claimed(.sources),
        guessed(.guess.as_ref())
    )]
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
    #[error(
        "none of its {bytes} bytes belongs to a source: it holds padding, or no whole frame. \
         Tracing may have been off; its sources are {}",
        list(.sources, ToString::to_string)
    )]
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

/// What is sound in another format.
fn subject(frames: Option<FrameKind>, trace_id: TraceId) -> String {
    match frames {
        Some(_) => format!("trace ID {:#04x}", trace_id.0),
        None => "it".to_owned(),
    }
}

/// Trace IDs with their numbers of bytes, and how many bytes were examined, if not all.
fn unclaimed(ids: &[(TraceId, u64)], examined: Option<u64>) -> String {
    let ids = list(ids, |(id, bytes)| format!("{:#04x} ({bytes} bytes)", id.0));
    match examined {
        Some(examined) => format!("{ids} in the first {examined} bytes"),
        None => ids,
    }
}

/// The sources of a buffer.
fn claimed(sources: &[NamedSource]) -> String {
    match sources {
        [] => "it has no source".to_owned(),
        known => format!("its sources are {}", list(known, ToString::to_string)),
    }
}

/// The trace ID whose trace decodes like that of a source.
fn guessed(guess: Option<&NamedSource>) -> String {
    guess.map_or_else(String::new, |guess| {
        let (protocol, name) = (guess.protocol.name(), &guess.name);
        let id = guess.trace_id.0;
        format!("; {id:#04x} reads as {protocol}, as that of {name}")
    })
}

/// Lists the first items and the number of the others.
fn list<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(text).collect();
    match all.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
