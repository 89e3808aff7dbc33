//! Sources of a buffer that are not decoded.

use crate::snapshot::model::{Note, Severity, Snapshot};
use armsnap_arch::quantity::TraceId;

/// A source of a buffer that is not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Index of its device in the snapshot.
    pub device: usize,
    /// Why it is not decoded.
    pub reason: Reason,
}

/// Why a source is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the data trace of an ETMv4 (Debug and Trace Snapshot File Format 0.2, section 3.3.4).
    DataTrace,
    /// Neither its type nor its ID registers determine a protocol that can be decoded.
    UnknownProtocol {
        /// Its architecture, or its type if that is unknown.
        kind: String,
    },
    /// An earlier source of the buffer has the same trace ID.
    DuplicateId {
        /// The trace ID.
        id: TraceId,
        /// The name of the earlier source.
        first: String,
    },
    /// The buffer is not formatted, so it contains one source only.
    Unformatted {
        /// The name of the source whose trace it is.
        decoded: String,
    },
}

impl LeftOut {
    /// Returns a note for the user.
    pub fn note(&self, snapshot: &Snapshot) -> Note {
        let device = &snapshot.devices[self.device];
        let name = &device.name;
        let (severity, section, text) = match &self.reason {
            Reason::DataTrace => (
                Severity::Warning,
                "3.3.4",
                format!("{name}: its data trace cannot be decoded: it is left out"),
            ),
            Reason::UnknownProtocol { kind } => (
                Severity::Warning,
                "3.2.1",
                format!("{name}: trace of type {kind:?} cannot be decoded"),
            ),
            Reason::DuplicateId { id, first } => (
                Severity::Warning,
                "4.2",
                format!(
                    "{name}: {first} has its trace ID {:#04x} in the same buffer: it is left out",
                    id.0
                ),
            ),
            Reason::Unformatted { decoded } => (
                Severity::Warning,
                "3.3.2",
                format!(
                    "{name}: its buffer is unformatted, so it holds one source: that is {decoded}"
                ),
            ),
        };
        Note {
            place: device.place.clone(),
            severity,
            section,
            text,
        }
    }
}
