//! Lines of blocks, rendered once and copied afterwards.
//!
//! A block has the same lines each time it is executed, except for the offset in the buffer, whose
//! digits overwrite the old ones. Lines are kept for one number of digits at a time, so that
//! nothing moves: that number changes only a few times in a whole trace.

use super::Lines;
use super::text_buffer::TextBuffer;
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::flow::BlockId;

/// The maximum number of bytes of text that are kept. When it is exceeded, everything is dropped.
const MAX_BYTES: usize = 16 << 20;

/// The lines of the blocks of one flow.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// The offset of the lines being written, and its digits; none before the first line.
    at: BufferOffset,
    digits: TextBuffer,
    /// By block and atom: the index in `blocks` plus one, or 0.
    index: Vec<u32>,
    blocks: Vec<Kept>,
    /// Where the offset's digits are in the text of a block, line by line.
    columns: Vec<u32>,
    text: Vec<u8>,
}

/// Parts of `text` and `columns`.
#[derive(Clone, Copy, Debug)]
struct Kept {
    text: (u32, u32),
    columns: (u32, u32),
}

fn key(id: BlockId, taken: bool) -> usize {
    2 * id.index() + usize::from(taken)
}

impl Rendered {
    /// Writes the lines of a block with this offset if they are kept, and returns whether they are.
    #[inline]
    pub fn write(
        &mut self,
        at: BufferOffset,
        id: BlockId,
        taken: bool,
        lines: &mut impl Lines,
    ) -> bool {
        if at != self.at || self.digits.is_empty() {
            lines.out().line(at);
            self.set_offset(at);
        }
        let Some(kept) = (self.index.get(key(id, taken)))
            .and_then(|&number| self.blocks.get((number as usize).wrapping_sub(1)))
        else {
            return false;
        };
        let text = &self.text[kept.text.0 as usize..kept.text.1 as usize];
        let written = lines.out().copy(text);
        let digits = self.digits.bytes();
        for &column in &self.columns[kept.columns.0 as usize..kept.columns.1 as usize] {
            written[column as usize..column as usize + digits.len()].copy_from_slice(digits);
        }
        true
    }

    /// Keeps the lines of a block, which were written from `start` on, after [`Self::write`]
    /// returned false.
    #[cold]
    pub fn keep(&mut self, id: BlockId, taken: bool, lines: &mut impl Lines, start: usize) {
        let offset = lines.offset_column(self.digits.len());
        let text = &lines.out().bytes()[start..];
        if text.len() > MAX_BYTES / 16 {
            return;
        }
        if self.text.len() + text.len() > MAX_BYTES {
            self.forget();
        }
        let (before, first) = (self.text.len(), self.columns.len());
        self.text.extend_from_slice(text);
        let mut line_start = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            self.columns.push((line_start + offset) as u32);
            line_start += line.len();
        }
        self.blocks.push(Kept {
            text: (before as u32, self.text.len() as u32),
            columns: (first as u32, self.columns.len() as u32),
        });
        let key = key(id, taken);
        if self.index.len() <= key {
            self.index.resize(key + 1, 0);
        }
        self.index[key] = self.blocks.len() as u32;
    }

    /// Drops all lines, because the numbers of blocks change their meaning.
    pub fn forget(&mut self) {
        self.index.clear();
        self.blocks.clear();
        self.columns.clear();
        self.text.clear();
    }

    fn set_offset(&mut self, at: BufferOffset) {
        let width = self.digits.len();
        self.at = at;
        self.digits.clear();
        self.digits.decimal(at.0);
        if self.digits.len() != width {
            self.forget();
        }
    }
}
