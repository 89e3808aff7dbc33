//! Running counts of cycles in the output for a part of a trace, decoded before it is known how many
//! cycles came before the part.

use super::records;
use super::text_buffer::TextBuffer;
use std::mem;

/// The running counts in what a listing wrote since its last reset. There they start from 0;
/// [`complete`](Self::complete) adds the cycles before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningCounts {
    /// The cycles since the last reset.
    pub(super) cycles: u64,
    written: Written,
}

/// How the running counts are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Written {
    /// There are none.
    #[default]
    Not,
    /// In records.
    Records,
    /// They are missing in lines.
    Missing(CountForm, Vec<Place>),
}

/// Where a running count is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The length of the text before it.
    at: usize,
    /// The count, relative to the last reset.
    count: u64,
}

impl RunningCounts {
    /// Counts in records.
    pub(super) const fn in_records() -> Self {
        Self {
            cycles: 0,
            written: Written::Records,
        }
    }

    /// The cycles since the last reset.
    pub const fn cycles(&self) -> u64 {
        self.cycles
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        match &self.written {
            Written::Missing(_, places) => size_of_val(&places[..]),
            Written::Not | Written::Records => 0,
        }
    }

    /// Completes the counts in `text`, which has `before` cycles before it. `spare` is memory that is
    /// used for this.
    pub fn complete(&self, before: u64, text: &mut Vec<u8>, spare: &mut Vec<u8>) {
        match &self.written {
            Written::Not => {}
            Written::Records => records::add_cycles(text, before),
            Written::Missing(form, places) => {
                if places.is_empty() {
                    return;
                }
                let mut out = TextBuffer::default();
                out.replace(mem::take(spare));
                let mut done = 0;
                for place in places {
                    out.copy(&text[done..place.at]);
                    form.write(&mut out, before.wrapping_add(place.count));
                    done = place.at;
                }
                out.copy(&text[done..]);
                *spare = mem::replace(text, out.take());
            }
        }
    }
}

/// How a line contains its running count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountForm {
    /// In hex, in a column; the line continues in the next one.
    Column {
        /// The first character of the column.
        start: usize,
        /// The first character of the next column.
        next: usize,
    },
    /// In decimal.
    Decimal,
}

impl CountForm {
    #[inline]
    fn write(self, out: &mut TextBuffer, count: u64) {
        match self {
            Self::Column { start, next } => {
                let line = out.len() - start;
                out.hex(count);
                out.pad(line, next);
            }
            Self::Decimal => out.decimal(count),
        }
    }
}

/// Writes the running counts of lines, or leaves them out and keeps where they belong.
#[derive(Clone, Debug)]
pub(super) struct LineCounts {
    form: CountForm,
    /// `None` if counts are written.
    missing: Option<Vec<Place>>,
}

impl LineCounts {
    pub const fn new(form: CountForm) -> Self {
        Self {
            form,
            missing: None,
        }
    }

    /// From here on, counts are left out.
    pub fn leave_out(&mut self) {
        self.missing.get_or_insert_default();
    }

    /// Writes the count of a line, whose text before it is in `out`.
    #[inline]
    pub fn write(&mut self, out: &mut TextBuffer, count: u64) {
        match &mut self.missing {
            None => self.form.write(out, count),
            Some(places) => places.push(Place {
                at: out.len(),
                count,
            }),
        }
    }

    /// Takes the places of the counts that were left out.
    pub fn take(&mut self) -> RunningCounts {
        let mut taken = RunningCounts::default();
        if let Some(places) = &mut self.missing {
            // The next text has about as many.
            let empty = Vec::with_capacity(places.len());
            taken.written = Written::Missing(self.form, mem::replace(places, empty));
        }
        taken
    }
}
