//! The watchpoints of a client: `Z2` to `Z4` (GDB manual, E.2).

use std::collections::BTreeSet;

use super::reply::pair;

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

/// The watchpoints set now.
#[derive(Default)]
pub(super) struct Watchpoints {
    /// Address, length and kind.
    pub set: BTreeSet<(u64, u64, Kind)>,
}

impl Watchpoints {
    /// Processes a packet without its leading `Z` (`set`) or `z`, which must be for a watchpoint.
    /// Returns `None` if it is malformed, or if there are too many watchpoints.
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

    /// Returns whether no watchpoint is set.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchpoints_are_set_and_removed() {
        let mut all = Watchpoints::default();
        assert!(all.is_empty());
        all.change(true, b"2,1000,4").unwrap();
        all.change(true, b"3,1000,4").unwrap();
        all.change(true, b"4,3000,1;X1,0").unwrap();
        all.change(false, b"2,1000,4").unwrap();
        all.change(false, b"2,3000,1").unwrap();
        let set: Vec<_> = all.set.iter().copied().collect();
        assert_eq!(set, [(0x1000, 4, Kind::Read), (0x3000, 1, Kind::Access)]);
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
