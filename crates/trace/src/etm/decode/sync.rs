//! Finding A-sync: five zero bytes or more, then 0x80.
//!
//! ARM IHI 0014Q 7.10.4 and ARM IHI 0035B 4.5.1, both on A-sync packets. The result does not
//! depend on the bytes after it, so pieces of any size give the same packets.

use crate::etm::packet::SyncPacket;

/// The minimum number of zeros in an A-sync.
const ZEROS: usize = 5;
/// The length from which a run of zeros is [`Zeros::Many`], whatever its end.
const LONG_RUN: usize = 16;
/// The maximum number of zeros in an A-sync, which bounds memory.
const MAX_ZEROS: usize = 1 << 16;
/// The maximum length of a packet of unsynchronised bytes.
const MAX_SKIP: usize = 64;

/// The meaning of a run of zeros.
enum Zeros {
    /// A-sync of this length.
    Sync(usize),
    /// This many zeros that do not start an A-sync.
    Other(usize),
    /// [`LONG_RUN`] or more.
    Many,
}

/// Classifies the zeros at the start of `bytes`; `None` if `bytes` ends inside them.
#[inline]
fn zeros(bytes: &[u8]) -> Option<Zeros> {
    let count = bytes
        .iter()
        .take(LONG_RUN)
        .take_while(|&&byte| byte == 0)
        .count();
    if count == LONG_RUN {
        return Some(Zeros::Many);
    }
    Some(match *bytes.get(count)? {
        0x80 if count >= ZEROS => Zeros::Sync(count + 1),
        _ => Zeros::Other(count),
    })
}

/// Whether a decoder is synchronised with the start of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Synchronisation {
    reached: bool,
}

impl Synchronisation {
    /// Whether an A-sync was found and every packet since then was valid.
    #[inline]
    pub(crate) fn is_reached(self) -> bool {
        self.reached
    }

    /// Loses synchronisation until the next A-sync.
    pub(crate) fn lose(&mut self) {
        self.reached = false;
    }

    /// Searches for an A-sync.
    pub(crate) fn search<P: SyncPacket>(&mut self, bytes: &[u8]) -> Option<(P, usize)> {
        if bytes.first() == Some(&0) {
            return Some(match zeros(bytes)? {
                Zeros::Sync(length) => {
                    self.reached = true;
                    (P::A_SYNC, length)
                }
                Zeros::Other(count) => (P::NOT_SYNC, count),
                Zeros::Many => (P::NOT_SYNC, LONG_RUN - ZEROS),
            });
        }
        let others = bytes
            .iter()
            .take(MAX_SKIP)
            .take_while(|&&byte| byte != 0)
            .count();
        let cut = others == bytes.len() && others < MAX_SKIP;
        (!cut).then_some((P::NOT_SYNC, others))
    }

    /// The packet that starts with a zero byte.
    pub(crate) fn zeros<P: SyncPacket>(&mut self, bytes: &[u8]) -> Option<(P, usize)> {
        match zeros(bytes)? {
            Zeros::Sync(length) => Some((P::A_SYNC, length)),
            Zeros::Other(count) => self.bad_sequence(count),
            Zeros::Many => self.many_zeros(bytes),
        }
    }

    /// A long A-sync, or a run of zeros that only looks like one.
    #[cold]
    fn many_zeros<P: SyncPacket>(&mut self, bytes: &[u8]) -> Option<(P, usize)> {
        let run = bytes.iter().take(MAX_ZEROS);
        let count = run.take_while(|&&byte| byte == 0).count();
        if count < MAX_ZEROS && *bytes.get(count)? == 0x80 {
            return Some((P::A_SYNC, count + 1));
        }
        self.bad_sequence(LONG_RUN - ZEROS)
    }

    /// A reserved header.
    pub(crate) fn reserved<P: SyncPacket>(&mut self) -> Option<(P, usize)> {
        self.lose();
        Some((P::RESERVED, 1))
    }

    /// Bytes that no encoder writes.
    pub(crate) fn bad_sequence<P: SyncPacket>(&mut self, length: usize) -> Option<(P, usize)> {
        self.lose();
        Some((P::BAD_SEQUENCE, length))
    }

    /// The packet of the rest of the trace. A run of zeros to the end is not an incomplete packet:
    /// most likely the buffer was not filled.
    pub(crate) fn rest<P: SyncPacket>(self, bytes: &[u8]) -> P {
        if self.reached && bytes.starts_with(&[0; LONG_RUN]) {
            P::BAD_SEQUENCE
        } else if self.reached {
            P::INCOMPLETE
        } else {
            P::NOT_SYNC
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptm::Packet;

    fn search(bytes: &[u8]) -> Option<(Packet, usize)> {
        Synchronisation::default().search(bytes)
    }

    #[test]
    fn five_zeros_and_a_one_are_a_sync() {
        let sync = |length| Some((Packet::ASync, length));
        let skip = |length| Some((Packet::NotSync, length));
        assert_eq!(search(&[0, 0, 0, 0, 0, 0x80, 8]), sync(6));
        assert_eq!(search(&[0, 0, 0, 0, 0, 0, 0x80]), sync(7));
        assert_eq!(search(&[0, 0, 0, 0, 0x80]), skip(4));
        assert_eq!(search(&[0, 0, 0, 0, 0, 0x81]), skip(5));
        assert_eq!(search(&[0, 0, 0]), None);
    }

    #[test]
    fn long_runs_of_zeros_are_cut_before_their_end() {
        let mut bytes = vec![0; 100];
        bytes.push(0x80);
        let mut at = 0;
        let length = loop {
            match search(&bytes[at..]) {
                Some((Packet::NotSync, count)) => at += count,
                Some((Packet::ASync, length)) => break length,
                other => panic!("{other:?} at {at}"),
            }
        };
        assert_eq!(at + length, bytes.len());
    }

    #[test]
    fn an_a_sync_may_have_any_number_of_zeros() {
        let reached = || Synchronisation { reached: true };
        for zeros in [5, 15, 16, 17, 100, 65_535] {
            let mut bytes = vec![0; zeros];
            assert_eq!(reached().zeros::<Packet>(&bytes), None, "{zeros}");
            bytes.push(0x80);
            let sync = Some((Packet::ASync, zeros + 1));
            assert_eq!(reached().zeros(&bytes), sync);
            // Not an A-sync: the rest is searched again.
            bytes[zeros] = 0x81;
            let mut sync = reached();
            let bad = if zeros < 16 { zeros } else { 11 };
            assert_eq!(sync.zeros(&bytes), Some((Packet::BadSequence, bad)));
            assert!(!sync.is_reached());
        }
        let endless = reached().zeros(&vec![0; 70_000]);
        assert_eq!(endless, Some((Packet::BadSequence, 11)));
    }

    #[test]
    fn zeros_up_to_the_end_are_bad() {
        let reached = Synchronisation { reached: true };
        assert_eq!(reached.rest::<Packet>(&[0; 5]), Packet::Incomplete);
        assert_eq!(reached.rest::<Packet>(&[0; 16]), Packet::BadSequence);
    }

    #[test]
    fn other_bytes_are_skipped_up_to_a_zero() {
        assert_eq!(search(&[1, 2, 0]), Some((Packet::NotSync, 2)));
        assert_eq!(search(&[1, 2]), None);
        assert_eq!(search(&[1; 100]), Some((Packet::NotSync, 64)));
    }
}
