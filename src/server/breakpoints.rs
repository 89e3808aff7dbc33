//! The breakpoints of a client: `Z` and `z` (GDB manual, E.2).

use std::collections::BTreeSet;

use super::reply::pair;

/// Maximum number of breakpoints per client.
const MOST: usize = 1 << 16;

/// A kind of breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `Z0`.
    Software,
    /// `Z1`.
    Hardware,
}

/// The breakpoints set now. They apply to all cores.
#[derive(Debug, Default)]
pub struct Breakpoints(BTreeSet<(u64, Kind)>);

/// Why a breakpoint is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet is malformed.
    Malformed,
    /// It is a watchpoint.
    Watchpoint,
    /// There are too many.
    TooMany,
}

impl Breakpoints {
    /// Processes a packet without its leading `Z` (`set`) or `z`.
    pub fn change(&mut self, set: bool, packet: &[u8]) -> Result<(), Refusal> {
        let [kind, b',', arguments @ ..] = packet else {
            return Err(Refusal::Malformed);
        };
        // After `;` come conditions and commands, which the server does not advertise.
        let end = arguments.iter().position(|byte| *byte == b';');
        let arguments = &arguments[..end.unwrap_or(arguments.len())];
        let (address, _) = pair(arguments, b',').ok_or(Refusal::Malformed)?;
        let kind = match kind {
            b'0' => Kind::Software,
            b'1' => Kind::Hardware,
            b'2'..=b'4' => return Err(Refusal::Watchpoint),
            _ => return Err(Refusal::Malformed),
        };
        if !set {
            self.0.remove(&(address, kind));
        } else if self.0.len() >= MOST {
            return Err(Refusal::TooMany);
        } else {
            self.0.insert((address, kind));
        }
        Ok(())
    }

    /// Returns the kind of the breakpoint at an address.
    pub fn at(&self, address: u64) -> Option<Kind> {
        let mut kinds = self
            .0
            .range((address, Kind::Software)..=(address, Kind::Hardware));
        kinds.next().map(|(_, kind)| *kind)
    }

    /// Returns all addresses with a breakpoint.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_independent() {
        let mut all = Breakpoints::default();
        assert_eq!(all.change(true, b"0,1000,4"), Ok(()));
        assert_eq!(all.change(true, b"1,1000,4;X3,220300"), Ok(()));
        assert_eq!(all.change(true, b"1,2000,2"), Ok(()));
        assert_eq!(all.at(0x1000), Some(Kind::Software));
        assert_eq!(all.at(0x2000), Some(Kind::Hardware));
        assert_eq!(all.at(0x1fff), None);
        assert_eq!(all.change(false, b"0,1000,4"), Ok(()));
        assert_eq!(all.at(0x1000), Some(Kind::Hardware));
        assert_eq!(all.addresses().collect::<Vec<_>>(), [0x1000, 0x2000]);
    }

    #[test]
    fn malformed_packets_and_watchpoints_are_refused() {
        let mut all = Breakpoints::default();
        for packet in [&b""[..], b"0", b"0,", b"0,10", b"9,10,4", b"0,x,4"] {
            assert_eq!(
                all.change(true, packet),
                Err(Refusal::Malformed),
                "{packet:?}"
            );
        }
        assert_eq!(all.change(true, b"2,1000,4"), Err(Refusal::Watchpoint));
        assert_eq!(all.addresses().next(), None);
    }
}
