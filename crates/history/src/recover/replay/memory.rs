//! The program's memory at one position of the replay, page by page.

use crate::recover::facts::final_state::FinalMemory;
use armsnap_arch::hash::NumberMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The size of a page in bytes.
pub const PAGE: u64 = 4096;

/// The most bytes that are compared with the final state.
const MOST_COMPARED: u64 = 64 << 20;

/// The most pages with contents.
const MOST_PAGES: usize = 1 << 15;

/// The bytes of a page, and which of them are known.
#[derive(Clone, Debug)]
struct Page {
    bytes: [u8; PAGE as usize],
    known: [u64; PAGE as usize / 64],
}

impl Page {
    const UNKNOWN: Self = Self {
        bytes: [0; PAGE as usize],
        known: [0; PAGE as usize / 64],
    };

    const ZEROS: Self = Self {
        bytes: [0; PAGE as usize],
        known: [!0; PAGE as usize / 64],
    };

    /// Whether a byte that is known in both differs.
    fn differs(&self, other: &Self) -> bool {
        if self.bytes == other.bytes {
            return false;
        }
        let mut bytes = self.bytes.iter().zip(&other.bytes).enumerate();
        bytes.any(|(at, (here, there))| here != there && self.is_known(at) && other.is_known(at))
    }

    fn is_known(&self, at: usize) -> bool {
        self.known[at / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: usize, value: Option<u8>) {
        let bit = 1 << (at % 64);
        match value {
            Some(value) => {
                self.bytes[at] = value;
                self.known[at / 64] |= bit;
            }
            None => self.known[at / 64] &= !bit,
        }
    }

    /// Whether the `size` bytes from `at` on, which do not cross a multiple of 64, are known.
    fn are_known(&self, at: usize, size: usize) -> bool {
        let mask = ((1_u128 << size) - 1) as u64;
        self.known[at / 64] >> (at % 64) & mask == mask
    }
}

/// Memory of which a part is known. A copy shares its pages until they are written.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pages: NumberMap<u64, Arc<Page>>,
    /// Pages of zeros without contents yet: the first of each range and the one after it.
    zeros: BTreeMap<u64, u64>,
    /// Ranges that others may write at any time.
    foreign: Vec<Range<u64>>,
    /// Ranges that the kernel may write for a waiting thread, each with the number of the thread.
    waiting: Vec<(usize, Range<u64>)>,
}

impl Memory {
    /// Whether more memory was written than is kept.
    pub fn is_full(&self) -> bool {
        self.pages.len() > MOST_PAGES
    }

    /// The ranges that others may write.
    pub fn foreign(&self) -> &[Range<u64>] {
        &self.foreign
    }

    /// Forgets everything but the ranges that others may write.
    pub fn forget_contents(&mut self) {
        self.pages.clear();
        self.zeros.clear();
    }

    /// Whether a byte is known here and there, and differs. Pages that both share are not compared.
    pub fn differs(&self, other: &Self) -> bool {
        let page = |number: &u64, page: &Arc<Page>| match other.pages.get(number) {
            Some(there) => !Arc::ptr_eq(page, there) && page.differs(there),
            None => other.is_zero(*number) && page.differs(&Page::ZEROS),
        };
        if self.pages.iter().any(|(number, here)| page(number, here)) {
            return true;
        }
        let mut others = other.pages.iter();
        others.any(|(number, there)| {
            !self.pages.contains_key(number) && self.is_zero(*number) && there.differs(&Page::ZEROS)
        })
    }

    /// Whether a known byte differs from the memory of the final state, of which at most
    /// [`MOST_COMPARED`] bytes are read.
    pub fn differs_from(&self, last: &dyn FinalMemory) -> bool {
        let pages = self.pages.keys().map(|number| *number..*number + 1);
        let zeros = self.zeros.iter().map(|(start, end)| *start..*end);
        let mut left = MOST_COMPARED;
        pages.chain(zeros).any(|numbers| {
            let (mut at, end) = (numbers.start * PAGE, numbers.end.saturating_mul(PAGE));
            while at < end && left > 0 {
                let mut bytes = [0; PAGE as usize];
                let most = (end - at).min(PAGE - at % PAGE) as usize;
                let known = last.read(at, &mut bytes[..most]);
                if known == 0 {
                    let next = last.next(at).unwrap_or(end);
                    at = next.max(at - at % PAGE + PAGE);
                    continue;
                }
                let page = self.pages.get(&(at / PAGE));
                let first = (at % PAGE) as usize;
                let differs = bytes[..known]
                    .iter()
                    .enumerate()
                    .any(|(offset, last)| match page {
                        Some(page) => {
                            page.is_known(first + offset) && page.bytes[first + offset] != *last
                        }
                        None => *last != 0,
                    });
                if differs {
                    return true;
                }
                left = left.saturating_sub(known as u64);
                at += known as u64;
            }
            false
        })
    }

    /// The value of 1 to 8 bytes, little endian, if they are known.
    #[inline]
    pub fn load(&self, address: u64, size: u8) -> Option<u64> {
        let (number, at) = (address / PAGE, (address % PAGE) as usize);
        let size = usize::from(size);
        if at % 64 + size <= 64 {
            let Some(page) = self.pages.get(&number) else {
                return self.is_zero(number).then_some(0);
            };
            if !page.are_known(at, size) {
                return None;
            }
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(&page.bytes[at..at + size]);
            return Some(u64::from_le_bytes(bytes));
        }
        let bytes = (0..size as u64)
            .rev()
            .map(|offset| self.byte(address.wrapping_add(offset)));
        bytes
            .into_iter()
            .try_fold(0, |value, byte| Some(value << 8 | u64::from(byte?)))
    }

    /// The byte at an address, if it is known.
    pub fn byte(&self, address: u64) -> Option<u8> {
        let (number, at) = (address / PAGE, (address % PAGE) as usize);
        match self.pages.get(&number) {
            Some(page) => page.is_known(at).then(|| page.bytes[at]),
            None => self.is_zero(number).then_some(0),
        }
    }

    /// Writes 1 to 8 bytes, which are unknown afterwards if the value is.
    #[inline]
    pub fn store(&mut self, address: u64, size: u8, value: Option<u64>) {
        let is_foreign = (!self.foreign.is_empty() || !self.waiting.is_empty())
            && self.has_foreign(&(address..address.saturating_add(size.into())));
        let value = value.filter(|_| !is_foreign);
        let (at, size) = ((address % PAGE) as usize, usize::from(size));
        if at % 64 + size <= 64
            && let Some(value) = value
        {
            let page = self.page(address / PAGE);
            page.bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
            page.known[at / 64] |= (((1_u128 << size) - 1) as u64) << (at % 64);
            return;
        }
        for offset in 0..size as u64 {
            let byte = value.map(|value| (value >> (8 * offset)) as u8);
            self.put(address.wrapping_add(offset), byte);
        }
    }

    fn put(&mut self, address: u64, value: Option<u8>) {
        self.page(address / PAGE)
            .set((address % PAGE) as usize, value);
    }

    /// Writes known bytes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let mut address = address;
        while !rest.is_empty() {
            let at = (address % PAGE) as usize;
            let (now, later) = rest.split_at(rest.len().min(PAGE as usize - at));
            let page = self.page(address / PAGE);
            for (place, &byte) in (at..).zip(now) {
                page.set(place, Some(byte));
            }
            rest = later;
            address = address.wrapping_add(now.len() as u64);
        }
        self.forget_foreign(address.wrapping_sub(bytes.len() as u64)..address);
    }

    /// What others may have written since is not known.
    fn forget_foreign(&mut self, range: Range<u64>) {
        let waiting = self.waiting.iter().map(|(_, range)| range);
        let all: Vec<Range<u64>> = self.foreign.iter().chain(waiting).cloned().collect();
        for foreign in all {
            let both = foreign.start.max(range.start)..foreign.end.min(range.end);
            if !both.is_empty() {
                self.forget(both);
            }
        }
    }

    /// The kernel may write a range for a thread from now on, until it [has returned](Self::has_returned).
    pub fn waits(&mut self, thread: usize, range: Range<u64>) {
        self.forget(range.clone());
        self.waiting.push((thread, range));
    }

    /// The kernel does not write for a thread any more.
    pub fn has_returned(&mut self, thread: usize) {
        self.waiting.retain(|(waiting, _)| *waiting != thread);
    }

    /// Writes zeros.
    pub fn clear(&mut self, range: Range<u64>) {
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.is_empty() {
            (range.clone()).for_each(|at| self.put(at, Some(0)));
            self.forget_foreign(range);
            return;
        }
        self.forget_pages(whole.clone());
        self.zeros.insert(whole.start, whole.end);
        (range.start..whole.start * PAGE).for_each(|at| self.put(at, Some(0)));
        (whole.end * PAGE..range.end).for_each(|at| self.put(at, Some(0)));
        self.forget_foreign(range);
    }

    /// Makes bytes unknown.
    pub fn forget(&mut self, range: Range<u64>) {
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.is_empty() {
            (range).for_each(|at| self.put(at, None));
            return;
        }
        (range.start..whole.start * PAGE).for_each(|at| self.put(at, None));
        (whole.end * PAGE..range.end).for_each(|at| self.put(at, None));
        self.forget_pages(whole);
    }

    /// Makes those bytes unknown that are not 0.
    pub fn forget_unless_zero(&mut self, range: Range<u64>) {
        for at in range {
            if self.byte(at).is_some_and(|byte| byte != 0) {
                self.put(at, None);
            }
        }
    }

    /// Whether others may write a range from now on, at any time; it is unknown until they do not.
    pub fn set_foreign(&mut self, range: Range<u64>, is_foreign: bool) {
        let mut kept = Vec::new();
        for other in self.foreign.drain(..) {
            kept.push(other.start..other.end.min(range.start));
            kept.push(other.start.max(range.end)..other.end);
        }
        if is_foreign {
            kept.push(range);
        }
        kept.retain(|range| !range.is_empty());
        self.foreign = kept;
    }

    /// Whether others may write a part of a range.
    pub fn has_foreign(&self, range: &Range<u64>) -> bool {
        let waiting = self.waiting.iter().map(|(_, range)| range);
        let mut foreign = self.foreign.iter().chain(waiting);
        foreign.any(|other| other.start < range.end && range.start < other.end)
    }

    /// Moves pages to another address; what is there afterwards is unknown where they were.
    pub fn move_pages(&mut self, from: Range<u64>, to: u64) {
        let numbers = from.start / PAGE..from.end / PAGE;
        let there = |number: u64| to / PAGE + (number - numbers.start);
        let pages = self
            .pages
            .iter()
            .filter(|(number, _)| numbers.contains(number));
        let pages: Vec<(u64, Arc<Page>)> = pages
            .map(|(number, page)| (there(*number), Arc::clone(page)))
            .collect();
        let zeros = self.zeros_within(numbers.clone());
        let zeros = zeros.map(|(start, end)| (start.max(numbers.start), end.min(numbers.end)));
        let zeros: Vec<(u64, u64)> = zeros
            .map(|(start, end)| (there(start), there(end)))
            .collect();
        let length = from.end - from.start;
        self.forget(from);
        self.forget(to..to.saturating_add(length));
        self.pages.extend(pages);
        self.zeros.extend(zeros);
    }

    /// The ranges of pages of zeros that overlap a range.
    fn zeros_within(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let before = self.zeros.range(..numbers.start).next_back();
        let inside = self
            .zeros
            .range(numbers.start..numbers.end.max(numbers.start));
        let all = before.into_iter().chain(inside);
        all.map(|(start, end)| (*start, *end))
            .filter(move |(start, end)| *start < numbers.end && *end > numbers.start)
    }

    fn is_zero(&self, number: u64) -> bool {
        let before = self.zeros.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    fn page(&mut self, number: u64) -> &mut Page {
        let is_zero =
            !self.zeros.is_empty() && !self.pages.contains_key(&number) && self.is_zero(number);
        let page = self.pages.entry(number).or_insert_with(|| {
            let known = if is_zero { !0 } else { 0 };
            Arc::new(Page {
                known: [known; PAGE as usize / 64],
                ..Page::UNKNOWN
            })
        });
        Arc::make_mut(page)
    }

    fn forget_pages(&mut self, numbers: Range<u64>) {
        if numbers.end - numbers.start < self.pages.len() as u64 {
            for number in numbers.clone() {
                self.pages.remove(&number);
            }
        } else {
            self.pages.retain(|number, _| !numbers.contains(number));
        }
        let overlapping: Vec<(u64, u64)> = self.zeros_within(numbers.clone()).collect();
        for (start, end) in overlapping {
            self.zeros.remove(&start);
            if start < numbers.start {
                self.zeros.insert(start, numbers.start);
            }
            if numbers.end < end {
                self.zeros.insert(numbers.end, end);
            }
        }
    }
}

/// Memory at a position of the replay.
pub struct ReplayedMemory {
    /// What the replay knows.
    pub memory: Memory,
    /// That of the snapshot.
    pub last: Arc<dyn FinalMemory>,
}

impl FinalMemory for ReplayedMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let bytes =
            (0..out.len() as u64).map(|offset| self.memory.byte(address.wrapping_add(offset)));
        let known = bytes.map_while(|byte| byte);
        let slots = out.iter_mut().zip(known);
        slots.map(|(slot, byte)| *slot = byte).count()
    }

    fn next(&self, address: u64) -> Option<u64> {
        self.last.next(address)
    }

    fn is_constant(&self, address: u64) -> bool {
        self.last.is_constant(address)
    }

    fn kept(&self, address: u64) -> Option<u8> {
        self.last.kept(address)
    }

    fn is_written(&self, address: u64) -> bool {
        self.last.is_written(address)
    }

    fn statics(&self) -> [&[Range<u64>]; 2] {
        self.last.statics()
    }

    fn is_unique(&self) -> bool {
        self.last.is_unique()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_known_once_they_are_written() {
        let mut memory = Memory::default();
        assert_eq!(memory.load(0x1000, 8), None);
        memory.clear(0x0ffe..0x3003);
        assert_eq!(memory.load(0x0ffd, 8), None);
        assert_eq!(memory.load(0x0ffe, 8), Some(0));
        assert_eq!((memory.byte(0x3002), memory.byte(0x3003)), (Some(0), None));
        memory.store(0x1ffc, 8, Some(0x1122_3344_5566_7788));
        assert_eq!(memory.load(0x2000, 4), Some(0x1122_3344));
        let before = memory.clone();
        memory.store(0x1fff, 2, None);
        assert_eq!(memory.load(0x1ffc, 4), None);
        assert_eq!(memory.load(0x2001, 2), Some(0x2233));
        assert_eq!(before.load(0x1ffc, 4), Some(0x5566_7788));
        memory.forget(0x2001..0x2002);
        assert_eq!(memory.load(0x2000, 2), None);
        memory.forget(0x1000..0x3000);
        assert_eq!(memory.load(0x1000, 1), None);
        assert_eq!(memory.load(0x3000, 1), Some(0));
    }

    #[test]
    fn pages_move_with_what_is_known_of_them() {
        let mut memory = Memory::default();
        memory.clear(0x1000..0x4000);
        memory.store(0x2008, 8, Some(7));
        memory.store(0x3008, 8, None);
        memory.move_pages(0x1000..0x4000, 0x8000);
        assert_eq!(memory.load(0x8000, 8), Some(0));
        assert_eq!(memory.load(0x9008, 8), Some(7));
        assert_eq!(memory.load(0xa008, 8), None);
        assert_eq!(memory.load(0x2008, 8), None);
    }

    #[test]
    fn what_others_write_is_never_known() {
        let mut memory = Memory::default();
        memory.set_foreign(0x1000..0x3000, true);
        memory.store(0x1000, 8, Some(7));
        assert_eq!(memory.load(0x1000, 8), None);
        memory.set_foreign(0x1000..0x2000, false);
        memory.store(0x1000, 8, Some(7));
        memory.store(0x2000, 8, Some(7));
        assert_eq!(
            (memory.load(0x1000, 8), memory.load(0x2000, 8)),
            (Some(7), None)
        );
    }
}
