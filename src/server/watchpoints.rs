//! The watchpoints of a client: `Z2` to `Z4` (GDB manual, E.2).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::reply::pair;
use crate::semantics::Semantics;

/// Maximum number of watchpoints per client.
const MOST: usize = 1 << 10;
/// The accesses that a watchpoint watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `Z2`.
    Write,
    /// `Z3`.
    Read,
    /// `Z4`.
    Access,
}

impl Kind {
    /// Returns the name in a stop reply.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "watch",
            Self::Read => "rwatch",
            Self::Access => "awatch",
        }
    }
}

/// The watchpoints set now, and what searches for them keep.
#[derive(Default)]
pub(super) struct Watchpoints {
    /// Address, length and kind.
    pub set: BTreeSet<(u64, u64, Kind)>,
    /// By address: what the instructions do that access memory; `None` for others.
    pub code: HashMap<u64, Option<Arc<Semantics>>>,
}

/// An access that an instruction makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub store: bool,
    /// `None`: not known.
    pub address: Option<u64>,
    pub bytes: u64,
}

impl Watchpoints {
    /// Processes a packet of `Z` (`set`) or `z` without that letter, which must be for a watchpoint.
    /// Returns `None` if it is malformed, or there are too many.
    pub fn change(&mut self, set: bool, packet: &[u8]) -> Option<()> {
        let [kind, b',', arguments @ ..] = packet else {
            return None;
        };
        let kind = match kind {
            b'2' => Kind::Write,
            b'3' => Kind::Read,
            b'4' => Kind::Access,
            _ => return None,
        };
        let end = arguments.iter().position(|byte| *byte == b';');
        let arguments = &arguments[..end.unwrap_or(arguments.len())];
        let (address, length) = pair(arguments, b',')?;
        let watchpoint = (address, length, kind);
        if !set {
            self.set.remove(&watchpoint);
        } else if length == 0 || address.checked_add(length - 1).is_none() || self.set.len() >= MOST
        {
            return None;
        } else {
            self.set.insert(watchpoint);
        }
        Some(())
    }

    /// Returns whether none is set.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Returns the watchpoint that an access hits, and the first address in both.
    pub fn hit(&self, touch: Touch) -> Option<(Kind, u64)> {
        let first = touch.address?;
        let last = first.saturating_add(touch.bytes - 1);
        let mut hits = self.set.iter().filter(|(address, length, kind)| {
            let meant = match kind {
                Kind::Write => touch.store,
                Kind::Read => !touch.store,
                Kind::Access => true,
            };
            meant && *address <= last && first <= address + (length - 1)
        });
        hits.next()
            .map(|(address, _, kind)| (*kind, first.max(*address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(store: bool, address: u64, bytes: u64) -> Touch {
        Touch {
            store,
            address: Some(address),
            bytes,
        }
    }

    #[test]
    fn accesses_hit_within_the_watched_range() {
        let mut all = Watchpoints::default();
        assert!(all.is_empty());
        all.change(true, b"2,1000,4").unwrap();
        all.change(true, b"3,2000,8").unwrap();
        all.change(true, b"4,3000,1;X1,0").unwrap();
        for (touch, wanted) in [
            (touch(true, 0x1000, 4), Some((Kind::Write, 0x1000))),
            (touch(true, 0xff8, 16), Some((Kind::Write, 0x1000))),
            (touch(true, 0x1003, 1), Some((Kind::Write, 0x1003))),
            (touch(true, 0x1004, 4), None),
            (touch(true, 0xffc, 4), None),
            (touch(false, 0x1000, 4), None),
            (touch(false, 0x2007, 8), Some((Kind::Read, 0x2007))),
            (touch(true, 0x2000, 8), None),
            (touch(true, 0x3000, 1), Some((Kind::Access, 0x3000))),
            (touch(false, 0x2ff9, 8), Some((Kind::Access, 0x3000))),
            (touch(true, u64::MAX, 8), None),
        ] {
            assert_eq!(all.hit(touch), wanted, "{touch:?}");
        }
        assert_eq!(
            all.hit(Touch {
                address: None,
                ..touch(true, 0, 8)
            }),
            None
        );
        all.change(false, b"2,1000,4").unwrap();
        assert_eq!(all.hit(touch(true, 0x1000, 4)), None);
    }

    #[test]
    fn malformed_watchpoints_are_refused() {
        let mut all = Watchpoints::default();
        for packet in [
            "2",
            "2,",
            "2,1000",
            "2,1000,0",
            "5,1000,4",
            "2,ffffffffffffffff,2",
            "2,x,4",
        ] {
            assert_eq!(all.change(true, packet.as_bytes()), None, "{packet}");
        }
        assert!(all.is_empty());
    }
}
