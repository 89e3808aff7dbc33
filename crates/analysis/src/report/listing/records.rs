//! The listing of branches as binary records of one length, which programs read without parsing.
//!
//! `docs/decoding.md` describes the records and the header before them.

use super::branches::Line;
use super::text_buffer::TextBuffer;
use super::{BranchLines, RunningCounts};
use armsnap_arch::quantity::{BufferOffset, Isa, Security};
use armsnap_snapshot::capture::{Capture, CaptureBuffer, CaptureSource};
use armsnap_trace::element::{Context, Mark};

/// The length of a record, and the unit of the header's length.
pub const RECORD: usize = 32;

/// The first bytes of the header, with the version of the format.
const MAGIC: &[u8; 8] = b"ASBRNCH1";

/// A field of a record or of the header is not known.
const UNKNOWN: u8 = 0xff;

/// The kinds of records.
mod kind {
    pub const BRANCH: u8 = 0;
    pub const EXCEPTION: u8 = 1;
    pub const CONTEXT: u8 = 2;
    pub const EVENT: u8 = 3;
    pub const TRIGGER: u8 = 4;
    pub const TIMESTAMP: u8 = 5;
    pub const MARKER: u8 = 6;
}

/// The bits of a record's flags.
mod flag {
    /// The cycle is known.
    pub const CYCLE: u8 = 1;
    /// The value is known: of a context, the context ID in its lower half.
    pub const VALUE: u8 = 2;
    /// The VMID, in the upper half of a context's value, is known.
    pub const VMID: u8 = 4;
}

/// Returns the header of a file of records: it names the sources by their numbers.
pub fn header(capture: &Capture) -> Vec<u8> {
    let sources: Vec<_> = sources(capture)
        .map(|(buffer, source)| {
            serde_json::json!({
                "source": source.name,
                "buffer": buffer.name,
                "trace_id": source.trace_id.0,
            })
        })
        .collect();
    let names = serde_json::json!({ "sources": sources }).to_string();
    let length = (MAGIC.len() + 2 * size_of::<u32>() + names.len()).next_multiple_of(RECORD);
    let mut header = Vec::with_capacity(length);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&(length as u32).to_le_bytes());
    header.extend_from_slice(&(RECORD as u32).to_le_bytes());
    header.extend_from_slice(names.as_bytes());
    header.resize(length, b' ');
    header
}

/// Returns the number of a source in the header; `None` if it is not there or has no number.
pub fn number(capture: &Capture, buffer: &CaptureBuffer, source: &CaptureSource) -> Option<u16> {
    let wanted = (buffer.index, source.device, source.trace_id);
    let at = sources(capture)
        .position(|(buffer, source)| (buffer.index, source.device, source.trace_id) == wanted);
    at?.try_into().ok()
}

fn sources(capture: &Capture) -> impl Iterator<Item = (&CaptureBuffer, &CaptureSource)> {
    let buffers = capture.buffers.iter();
    buffers.flat_map(|buffer| buffer.sources.iter().map(move |source| (buffer, source)))
}

/// Adds `cycles` to the running counts of records.
pub(super) fn add_cycles(records: &mut [u8], cycles: u64) {
    if cycles == 0 {
        return;
    }
    let (records, _) = records.as_chunks_mut::<RECORD>();
    for record in records {
        if record[27] & flag::CYCLE != 0
            && let Some(count) = record[8..].first_chunk_mut()
        {
            *count = u64::from_le_bytes(*count)
                .wrapping_add(cycles)
                .to_le_bytes();
        }
    }
}

/// Writes the records of one source.
#[derive(Clone, Debug)]
pub struct BranchRecords {
    source: u16,
    out: TextBuffer,
}

impl BranchRecords {
    /// Creates the records for the source with this number.
    pub fn new(source: u16) -> Self {
        Self {
            source,
            out: TextBuffer::default(),
        }
    }
}

/// What a record contains besides its place and its cycle.
#[derive(Default)]
struct Content {
    kind: u8,
    flags: u8,
    value: u64,
    extra: [u8; 4],
}

impl Content {
    const fn known(kind: u8, value: u64) -> Self {
        Self {
            kind,
            flags: flag::VALUE,
            value,
            extra: [0; 4],
        }
    }

    #[inline(always)]
    fn of(line: &Line) -> Self {
        match line {
            Line::Branch(address) => Self::known(kind::BRANCH, address.0),
            Line::Exception(exception) => Self {
                kind: kind::EXCEPTION,
                flags: exception.return_address.map_or(0, |_| flag::VALUE),
                value: exception.return_address.map_or(0, |address| address.0),
                extra: u32::from(exception.number).to_le_bytes(),
            },
            Line::Mark(mark) => Self::of_mark(mark),
        }
    }

    fn of_mark(mark: &Mark) -> Self {
        match mark {
            Mark::Context(context) => Self::of_context(context),
            Mark::Timestamp(value) => Self::known(kind::TIMESTAMP, *value),
            Mark::Event(number) => Self::known(kind::EVENT, u64::from(*number)),
            Mark::Marker(value) => Self::known(kind::MARKER, u64::from(*value)),
            _ => Self {
                kind: kind::TRIGGER,
                ..Self::default()
            },
        }
    }

    fn of_context(context: &Context) -> Self {
        let known = |is: bool, flag| if is { flag } else { 0 };
        let isa = match context.isa {
            Isa::A64 => 0,
            Isa::A32 => 1,
            Isa::T32 => 2,
            Isa::ThumbEe => 3,
            Isa::Jazelle => 4,
        };
        let security = context.security.map_or(UNKNOWN, |security| match security {
            Security::Secure => 0,
            Security::NonSecure => 1,
            Security::Root => 2,
            Security::Realm => 3,
        });
        let bits = context
            .is_64bit
            .map_or(UNKNOWN, |is_64bit| if is_64bit { 64 } else { 32 });
        Self {
            kind: kind::CONTEXT,
            flags: known(context.context_id.is_some(), flag::VALUE)
                | known(context.vmid.is_some(), flag::VMID),
            value: u64::from(context.vmid.unwrap_or(0)) << 32
                | u64::from(context.context_id.unwrap_or(0)),
            extra: [isa, context.el.map_or(UNKNOWN, |el| el.0), security, bits],
        }
    }
}

impl BranchLines for BranchRecords {
    #[inline(always)]
    fn branch_line(&mut self, at: BufferOffset, line: &Line, cycle: Option<u64>) {
        let content = Content::of(line);
        let flags = content.flags | cycle.map_or(0, |_| flag::CYCLE);
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&at.0.to_le_bytes());
        record[8..16].copy_from_slice(&cycle.unwrap_or(0).to_le_bytes());
        record[16..24].copy_from_slice(&content.value.to_le_bytes());
        record[24..26].copy_from_slice(&self.source.to_le_bytes());
        record[26] = content.kind;
        record[27] = flags;
        record[28..].copy_from_slice(&content.extra);
        self.out.copy(&record);
    }

    fn count_later(&mut self) {}

    fn take_counts(&mut self) -> RunningCounts {
        RunningCounts::in_records()
    }

    fn out(&mut self) -> &mut TextBuffer {
        &mut self.out
    }
}
