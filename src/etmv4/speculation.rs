//! What was traced and is not committed yet.
//!
//! A queue in the order of the trace, from which the oldest P0 elements are committed, the newest
//! cancelled, and the newest atom corrected (IHI 0064, "Speculation resolution"). Knows no packets
//! and gives out nothing by itself.

use std::collections::VecDeque;

use super::packet::{ContextInfo, InstructionSet};
use crate::element::Atoms;
use crate::quantity::{BufferOffset, ExceptionLevel};

/// Something that waits for the P0 elements before it, or after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Held {
    /// P0 elements that were traced before the trace begins.
    Unseen(u32),
    /// P0: atoms.
    Atoms(Atoms),
    /// P0: an exception, whose return address comes next.
    Exception {
        number: u16,
        /// The return address is the target of the branch before it.
        target: bool,
    },
    /// P0: the core was reset.
    PeReset,
    /// P0: a Q element, whose end address comes next.
    Q {
        count: Option<u32>,
    },
    /// P0: the core ran up to this address and branched there.
    Source {
        address: u64,
        is: InstructionSet,
    },
    /// P0 in Armv7-M.
    ExceptionReturn {
        p0: bool,
    },
    /// P0.
    FunctionReturn,
    /// P0 if TRCIDR0.COMMTRANS says so.
    TransactionStart {
        p0: bool,
    },
    /// The trace begins within a transaction.
    TransactionInit,
    TransactionCommit,
    TransactionFailure,
    TraceOn,
    Address {
        address: u64,
        is: InstructionSet,
    },
    Context {
        info: ContextInfo,
        is: InstructionSet,
    },
    /// The same context again.
    SameContext {
        is: InstructionSet,
    },
    /// Not speculative.
    Event(u8),
    /// Not speculative.
    Cycles(u32),
    /// Not speculative; cycles are given out where they are counted.
    Timestamp {
        value: u64,
        cycles: u32,
    },
    /// Not speculative.
    TimestampMarker,
    /// Not speculative.
    Instrumentation {
        el: ExceptionLevel,
        value: u64,
    },
}

impl Held {
    /// How many P0 elements this is.
    pub fn p0(&self) -> u32 {
        match *self {
            Self::Unseen(count) => count,
            Self::Atoms(atoms) => atoms.count.into(),
            Self::Exception { .. }
            | Self::PeReset
            | Self::Q { .. }
            | Self::Source { .. }
            | Self::FunctionReturn => 1,
            Self::ExceptionReturn { p0 } | Self::TransactionStart { p0 } => p0.into(),
            Self::TransactionInit
            | Self::TransactionCommit
            | Self::TransactionFailure
            | Self::TraceOn
            | Self::Address { .. }
            | Self::Context { .. }
            | Self::SameContext { .. }
            | Self::Event(_)
            | Self::Cycles(_)
            | Self::Timestamp { .. }
            | Self::TimestampMarker
            | Self::Instrumentation { .. } => 0,
        }
    }

    /// Whether it stays when the P0 elements before it are cancelled or discarded.
    pub fn outlives_cancel(&self) -> bool {
        matches!(
            self,
            Self::Event(_)
                | Self::Cycles(_)
                | Self::Timestamp { .. }
                | Self::TimestampMarker
                | Self::Instrumentation { .. }
        )
    }
}

/// Something held, and the place of its packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub at: BufferOffset,
    pub held: Held,
}

const _: () = assert!(size_of::<Entry>() <= 24);

/// Steps that cancels and mispredicts may take over what is held, for each entry of it. Those of a
/// real trace unit concern the newest few entries; a corrupt trace could let each of them pass over
/// everything again.
const STEPS_PER_ENTRY: u64 = 512;

/// The queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// The oldest first.
    entries: VecDeque<Entry>,
    /// P0 elements in it.
    p0: u64,
    /// What outlives a cancel, for a moment; the newest first.
    kept: Vec<Entry>,
    /// Steps that are left.
    steps: u64,
}

impl Queue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether P0 elements from before the begin of the trace are in it: they are the oldest.
    pub fn has_unseen(&self) -> bool {
        if self.p0 == 0 {
            return false;
        }
        let oldest = self.entries.iter().find(|entry| entry.held.p0() > 0);
        oldest.is_some_and(|entry| matches!(entry.held, Held::Unseen(_)))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many P0 elements are held.
    pub fn p0(&self) -> u64 {
        self.p0
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.kept.clear();
        self.p0 = 0;
    }

    #[inline]
    pub fn push(&mut self, at: BufferOffset, held: Held) {
        self.p0 += u64::from(held.p0());
        self.steps = self.steps.saturating_add(STEPS_PER_ENTRY);
        self.entries.push_back(Entry { at, held });
    }

    /// The oldest but `index`.
    pub fn peek(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Takes the oldest.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.p0 -= u64::from(entry.held.p0());
        Some(entry)
    }

    /// Takes up to `most` atoms, or up to `most` unseen elements, from the oldest entry, which is
    /// one of these. What is left stays.
    pub fn split(&mut self, most: u32) -> Option<Entry> {
        let entry = self.entries.front_mut()?;
        let at = entry.at;
        let taken = match &mut entry.held {
            Held::Atoms(atoms) if u32::from(atoms.count) > most => {
                let taken = Atoms {
                    bits: atoms.bits & ((1 << most) - 1),
                    count: most as u8,
                };
                atoms.bits >>= most;
                atoms.count -= taken.count;
                Held::Atoms(taken)
            }
            Held::Unseen(count) if *count > most => {
                *count -= most;
                Held::Unseen(most)
            }
            _ => return self.pop(),
        };
        self.p0 -= u64::from(most);
        Some(Entry { at, held: taken })
    }

    /// Takes so many steps; `false` if they are not left. Entries that went leave none behind: what
    /// came before a synchronisation does not matter.
    fn step(&mut self, count: usize) -> bool {
        let most = STEPS_PER_ENTRY * (self.entries.len() + self.kept.len()) as u64;
        let left = self.steps.min(most).checked_sub(count as u64);
        self.steps = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes back the newest `count` P0 elements and what belongs to them; `false` if there are
    /// fewer, or too many steps away.
    #[must_use]
    pub fn cancel(&mut self, count: u32) -> bool {
        let cancelled = self.cancel_newest(count);
        self.entries.extend(self.kept.drain(..).rev());
        cancelled
    }

    /// Moves what outlives the cancel to `kept`.
    fn cancel_newest(&mut self, mut count: u32) -> bool {
        if u64::from(count) > self.p0 {
            return false;
        }
        while count > 0
            && let Some(entry) = self.entries.back_mut()
        {
            let p0 = entry.held.p0();
            match &mut entry.held {
                Held::Atoms(atoms) if p0 > count => {
                    atoms.count -= count as u8;
                    atoms.bits &= (1 << atoms.count) - 1;
                    self.p0 -= u64::from(count);
                    break;
                }
                Held::Unseen(unseen) if p0 > count => {
                    *unseen -= count;
                    self.p0 -= u64::from(count);
                    break;
                }
                _ => {
                    if !self.step(1) {
                        return false;
                    }
                    self.kept
                        .extend(self.entries.pop_back().filter(|e| e.held.outlives_cancel()));
                    self.p0 -= u64::from(p0);
                    count -= p0;
                }
            }
        }
        true
    }

    /// Corrects the newest atom and forgets the addresses after it, where it did not lead; `false`
    /// if there is no atom, or too many steps away.
    #[must_use]
    pub fn mispredict(&mut self) -> bool {
        let mut index = self.entries.len();
        while let Some(before) = index.checked_sub(1) {
            if !self.step(1) {
                return false;
            }
            index = before;
            match &mut self.entries[index].held {
                Held::Atoms(atoms) => {
                    atoms.bits ^= 1 << (atoms.count - 1);
                    return true;
                }
                // Before the begin of the trace.
                Held::Unseen(_) => return true,
                Held::Address { .. } => {
                    self.entries.remove(index);
                    if !self.step(self.entries.len() - index) {
                        return false;
                    }
                }
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: BufferOffset = BufferOffset(0);

    fn atoms(text: &str) -> Held {
        let bits = text
            .bytes()
            .rev()
            .fold(0, |b, c| b << 1 | u32::from(c == b'E'));
        Held::Atoms(Atoms {
            bits,
            count: text.len() as u8,
        })
    }

    fn address(address: u64) -> Held {
        Held::Address {
            address,
            is: InstructionSet::Is0,
        }
    }

    fn queue(held: &[Held]) -> Queue {
        let mut queue = Queue::default();
        for &held in held {
            queue.push(AT, held);
        }
        queue
    }

    fn left(queue: &mut Queue) -> Vec<Held> {
        std::iter::from_fn(|| queue.pop()).map(|e| e.held).collect()
    }

    #[test]
    fn commits_split_atoms() {
        let mut q = queue(&[atoms("ENE"), address(4), atoms("N")]);
        assert_eq!(q.p0(), 4);
        assert_eq!(q.split(2).unwrap().held, atoms("EN"));
        assert_eq!(q.p0(), 2);
        assert_eq!(left(&mut q), [atoms("E"), address(4), atoms("N")]);
    }

    #[test]
    fn a_cancel_takes_atoms_and_the_addresses_after_them() {
        let mut q = queue(&[atoms("EE"), address(4), atoms("EN"), address(8)]);
        assert!(q.cancel(1));
        assert_eq!(left(&mut q), [atoms("EE"), address(4), atoms("E")]);
        let mut q = queue(&[atoms("EE"), address(4), atoms("EN"), address(8)]);
        assert!(q.cancel(3));
        assert_eq!(left(&mut q), [atoms("E")]);
    }

    #[test]
    fn a_cancel_leaves_what_is_not_speculative() {
        let time = Held::Timestamp {
            value: 1,
            cycles: 0,
        };
        let mut q = queue(&[
            atoms("E"),
            Held::Event(1),
            atoms("E"),
            time,
            address(4),
            Held::Event(2),
        ]);
        assert!(q.cancel(2));
        assert_eq!(left(&mut q), [Held::Event(1), time, Held::Event(2)]);
    }

    #[test]
    fn a_cancel_of_everything_leaves_nothing() {
        let mut q = queue(&[Held::Unseen(3), atoms("EEEE")]);
        assert!(!q.cancel(8));
        assert!(q.cancel(5));
        assert_eq!(left(&mut q), [Held::Unseen(2)]);
    }

    #[test]
    fn a_mispredict_corrects_the_newest_atom() {
        let mut q = queue(&[atoms("EE"), atoms("NE"), address(4), Held::Event(1)]);
        assert!(q.mispredict());
        assert_eq!(left(&mut q), [atoms("EE"), atoms("NN"), Held::Event(1)]);
    }

    #[test]
    fn a_mispredict_before_the_begin_of_trace_is_nothing() {
        assert!(queue(&[Held::Unseen(1)]).mispredict());
        assert!(!queue(&[address(4)]).mispredict());
    }

    #[test]
    fn deep_speculation_is_taken_back_one_by_one() {
        let mut q = Queue::default();
        for _ in 0..256 {
            q.push(AT, atoms("E"));
            q.push(AT, address(4));
            q.push(AT, Held::Event(1));
        }
        for _ in 0..256 {
            assert!(q.mispredict() && q.cancel(1));
        }
        assert_eq!(left(&mut q), [Held::Event(1); 256]);
    }

    /// How often `turn` finds its P0 element, which lies below so many events.
    fn turns_over(events: usize, turn: fn(&mut Queue) -> bool) -> usize {
        let mut q = queue(&[Held::Unseen(u32::MAX)]);
        for _ in 0..events {
            q.push(AT, Held::Event(1));
        }
        (0..1_000_000).take_while(|_| turn(&mut q)).count()
    }

    #[test]
    fn the_whole_queue_is_not_passed_again_and_again() {
        for turn in [|q: &mut Queue| q.cancel(1), Queue::mispredict] {
            for events in [100, 10_000] {
                let turns = turns_over(events, turn);
                assert!((400..=600).contains(&turns), "{turns} over {events}");
            }
        }
    }
}
