//! The kernel's log: the ring buffer of printk, since Linux 5.10
//! (Documentation/core-api/printk-ringbuffer; kernel/printk/printk_ringbuffer.h).
//!
//! A ring of descriptors refers to the texts, which are in a second ring. An array contains the
//! time and length of each record. VMCOREINFO provides the address and the layout.

use super::vmcoreinfo::{Info, NoValue};
use super::{Memory, bytes, long};

/// The maximum number of descriptors, as a power of two: the largest log that a kernel can be configured
/// with has 2^20.
const MAX_BITS: u64 = 22;
/// The maximum size of the text, as a power of two.
const MAX_SIZE_BITS: u64 = 31;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the start of the kernel.
    pub time: u64,
    /// Its text without the prefix; `None` if its memory is unknown.
    pub text: Option<Vec<u8>>,
}

/// Why the log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLog {
    /// VMCOREINFO lacks a value.
    #[error(transparent)]
    Value(#[from] NoValue),
    /// VMCOREINFO does not have the address of the log.
    #[error("VMCOREINFO has no {0}: kernels before Linux 5.10 keep another log")]
    Address(&'static str),
    /// Memory is not known.
    #[error("the memory at {0:#x} is not in the snapshot")]
    Memory(u64),
    /// The sizes of the rings are impossible.
    #[error("the log has impossible sizes: 2^{count_bits} records, 2^{size_bits} bytes")]
    Sizes {
        /// The number of records, as a power of two.
        count_bits: u64,
        /// The size of the text, as a power of two.
        size_bits: u64,
    },
    /// The numbers of the first and the last record are impossible.
    #[error("the log has impossible ends: records {tail:#x} to {head:#x}")]
    Ends {
        /// The first record.
        tail: u64,
        /// The last record.
        head: u64,
    },
}

/// The log's rings.
#[derive(Debug)]
pub struct Log<'m> {
    memory: &'m dyn Memory,
    layout: DescriptorLayout,
    descriptors: u64,
    infos: u64,
    count: u64,
    texts: u64,
    size: u64,
    head: u64,
    next: u64,
    left: u64,
    /// The number of bytes of text that the remaining records may have: blocks do not overlap.
    unread: u64,
}

/// Offsets and sizes of a descriptor's parts.
#[derive(Clone, Copy, Debug)]
struct DescriptorLayout {
    descriptor: u64,
    state: u64,
    block: u64,
    begin: u64,
    end: u64,
    info: u64,
    time: u64,
    length: u64,
}

impl std::fmt::Debug for dyn Memory + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl<'m> Log<'m> {
    /// Finds the log.
    ///
    /// # Errors
    ///
    /// Returns the reason if it cannot be read.
    pub fn of(info: &Info, memory: &'m dyn Memory) -> Result<Self, NoLog> {
        let number = |key: String| info.number(&key).ok_or(NoValue(key));
        let offset = |of: &str| number(format!("OFFSET({of})"));
        let size = |of: &str| number(format!("SIZE({of})"));
        let symbol = "SYMBOL(prb)";
        let symbol = info.address(symbol).ok_or(NoLog::Address(symbol))?;
        let at = |address: u64| {
            let found = long(memory, address);
            found.ok_or(NoLog::Memory(address))
        };
        let ring = at(symbol)?;
        let counter = offset("atomic_long_t.counter")?;
        let descriptors = ring.wrapping_add(offset("printk_ringbuffer.desc_ring")?);
        let texts = ring.wrapping_add(offset("printk_ringbuffer.text_data_ring")?);
        let field = |base: u64, of: &str| at(base.wrapping_add(offset(of)?));
        let count_bits = field(descriptors, "prb_desc_ring.count_bits")? & 0xffff_ffff;
        let size_bits = field(texts, "prb_data_ring.size_bits")? & 0xffff_ffff;
        if count_bits > MAX_BITS || size_bits > MAX_SIZE_BITS {
            return Err(NoLog::Sizes {
                count_bits,
                size_bits,
            });
        }
        let id = |of: &str| at(descriptors.wrapping_add(offset(of)?).wrapping_add(counter));
        let (head, tail) = (
            id("prb_desc_ring.head_id")? & ID,
            id("prb_desc_ring.tail_id")? & ID,
        );
        let count = 1 << count_bits;
        let left = (head.wrapping_sub(tail) & ID) + 1;
        if left > count {
            return Err(NoLog::Ends { tail, head });
        }
        Ok(Self {
            memory,
            layout: DescriptorLayout {
                descriptor: size("prb_desc")?,
                state: offset("prb_desc.state_var")?.wrapping_add(counter),
                block: offset("prb_desc.text_blk_lpos")?,
                begin: offset("prb_data_blk_lpos.begin")?,
                end: offset("prb_data_blk_lpos.next")?,
                info: size("printk_info")?,
                time: offset("printk_info.ts_nsec")?,
                length: offset("printk_info.text_len")?,
            },
            infos: field(descriptors, "prb_desc_ring.infos")?,
            descriptors: field(descriptors, "prb_desc_ring.descs")?,
            count,
            texts: field(texts, "prb_data_ring.data")?,
            size: 1 << size_bits,
            head,
            next: tail,
            left,
            unread: 1 << size_bits,
        })
    }

    /// Skips records so that at most `count` are left.
    pub fn keep(&mut self, count: u64) {
        if self.left > count {
            self.left = count;
            self.next = self.head.wrapping_sub(count.saturating_sub(1)) & ID;
        }
    }

    fn record(&mut self, id: u64) -> Option<Record> {
        let DescriptorLayout {
            descriptor,
            state,
            block,
            ..
        } = self.layout;
        let index = id % self.count;
        let descriptor = self
            .descriptors
            .wrapping_add(index.wrapping_mul(descriptor));
        let state = long(self.memory, descriptor.wrapping_add(state))?;
        // Committed or final, and not reused for a later record.
        if !matches!(state >> STATE, 1 | 2) || state & ID != id {
            return None;
        }
        let info = self
            .infos
            .wrapping_add(index.wrapping_mul(self.layout.info));
        let time = long(self.memory, info.wrapping_add(self.layout.time))?;
        let length = bytes(self.memory, info.wrapping_add(self.layout.length), 2)?;
        let length = u16::from_le_bytes([length[0], length[1]]);
        let block = descriptor.wrapping_add(block);
        let begin = long(self.memory, block.wrapping_add(self.layout.begin))?;
        let end = long(self.memory, block.wrapping_add(self.layout.end))?;
        Some(Record {
            time,
            text: self.text(id, (begin, end), length.into()),
        })
    }

    /// Reads the text of a block, which starts with the ID of its descriptor.
    fn text(&mut self, id: u64, (begin, end): (u64, u64), length: u64) -> Option<Vec<u8>> {
        // Blocks without text have odd positions.
        if begin & 1 == 1 || end & 1 == 1 {
            return Some(Vec::new());
        }
        let (mut begin, mut end) = (begin % self.size, end % self.size);
        if begin > end {
            // A block that does not fit before the end of the ring is at the start of the ring.
            match end {
                0 => end = self.size,
                _ => begin = 0,
            }
        }
        let length = length.min((end - begin).saturating_sub(8));
        let block = self.texts.wrapping_add(begin);
        if long(self.memory, block)? != id {
            return None;
        }
        self.unread = self.unread.checked_sub(length)?;
        bytes(self.memory, block.wrapping_add(8), length as usize)
    }
}

/// The number of the lowest bit of a descriptor's state; the ID is in the bits below.
const STATE: u32 = 62;
const ID: u64 = (1 << STATE) - 1;

impl Iterator for Log<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.left > 0 {
            let id = self.next;
            self.left -= 1;
            self.next = (id + 1) & ID;
            if let Some(record) = self.record(id) {
                return Some(record);
            }
        }
        None
    }
}
