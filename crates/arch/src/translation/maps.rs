//! The mapped ranges of a regime, ascending.

use super::regime::{Mapping, Regime};
use super::steps::{Fault, FaultReason};
use super::{Attributes, PhysicalMemory, World, low_bits};

/// A range of addresses that is mapped to a range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// Its first address.
    pub first: u64,
    /// Its last address.
    pub last: u64,
    /// The physical address of the first one.
    pub physical: u64,
    /// The physical address space.
    pub world: World,
    /// The number of address bits within its smallest block or page.
    pub shift: u32,
    /// The attributes of stage 1.
    pub attributes: Option<Attributes>,
}

/// Finds the mapped ranges from an address up. A table may map all addresses to the same page, so
/// the number of walks is limited.
#[derive(Debug)]
pub struct Maps<'a, M> {
    regime: &'a Regime,
    memory: M,
    ranges: Vec<(u64, u64)>,
    /// The next address to examine; `None` at the end.
    at: Option<u64>,
    walks: usize,
}

impl<'a, M: PhysicalMemory> Maps<'a, M> {
    /// The ranges from `from` up, found with at most `walks` walks.
    pub fn new(regime: &'a Regime, memory: M, from: u64, walks: usize) -> Self {
        Self {
            regime,
            memory,
            ranges: regime.ranges(),
            at: Some(from),
            walks,
        }
    }

    /// Limits the search to addresses before `end`, which may cut off part of a range.
    pub fn before(mut self, end: Option<u64>) -> Self {
        if let Some(end) = end {
            self.ranges.retain(|(first, _)| *first < end);
            for (_, last) in &mut self.ranges {
                *last = (*last).min(end - 1);
            }
        }
        self
    }

    /// The address that the search has reached; `None` at the end.
    pub fn reached(&self) -> Option<u64> {
        self.at
    }

    /// The next block or page, not merged with its neighbours.
    pub fn next_block(&mut self) -> Option<MappedRange> {
        while self.walks > 0 {
            let at = self.at?;
            let range = self.ranges.iter().find(|(_, last)| *last >= at);
            let Some(&(first, last)) = range else {
                self.at = None;
                break;
            };
            let at = at.max(first);
            self.walks -= 1;
            let found = self.regime.translate(at, &self.memory, &mut |_| {});
            let shift = match &found {
                Ok(mapping) => mapping.shift,
                Err(Fault {
                    reason: FaultReason::Range { .. },
                    shift: 0,
                    ..
                }) => 12,
                Err(fault) => fault.shift,
            };
            let end = (at | low_bits(shift)).min(last);
            self.at = end.checked_add(1);
            if let Ok(Mapping {
                physical,
                world,
                shift,
                attributes,
            }) = found
            {
                return Some(MappedRange {
                    first: at,
                    last: end,
                    physical,
                    world,
                    shift,
                    attributes,
                });
            }
        }
        None
    }
}

impl<M: PhysicalMemory> Iterator for Maps<'_, M> {
    type Item = MappedRange;

    fn next(&mut self) -> Option<MappedRange> {
        let mut out = self.next_block()?;
        loop {
            let (at, walks) = (self.at, self.walks);
            let Some(next) = self.next_block() else {
                break;
            };
            let adjacent = out.last.checked_add(1) == Some(next.first)
                && out.physical.wrapping_add(next.first - out.first) == next.physical;
            if !adjacent || out.world != next.world || out.attributes != next.attributes {
                // The block is returned by the next call.
                (self.at, self.walks) = (at, walks);
                break;
            }
            out.last = next.last;
            out.shift = out.shift.min(next.shift);
        }
        Some(out)
    }
}
