//! Finding A-sync: five zero bytes or more, then 0x80. The same in ETMv3 and PTM.
//!
//! ARM IHI 0014Q 7.10.4 and ARM IHI 0035B 4.5.1. What is found does not depend on how many
//! bytes are there beyond it, so that pieces of any size give the same packets.

/// A longer run of zeros is no A-sync; only its end can begin one.
const MAX_ZEROS: usize = 16;
const ZEROS: usize = 5;
/// The most bytes in one packet that is not synchronised.
const MAX_SKIP: usize = 64;

/// What stands where a zero byte is the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// A-sync of this length.
    Sync(usize),
    /// This many zeros begin no A-sync.
    Other(usize),
    /// Cut.
    Cut,
}

/// Looks at the zeros at the begin of `bytes`.
#[inline]
pub(crate) fn zeros(bytes: &[u8]) -> Zeros {
    let count = bytes
        .iter()
        .take(MAX_ZEROS)
        .take_while(|&&byte| byte == 0)
        .count();
    match bytes.get(count) {
        _ if count == MAX_ZEROS => Zeros::Other(MAX_ZEROS - ZEROS),
        Some(0x80) if count >= ZEROS => Zeros::Sync(count + 1),
        Some(_) => Zeros::Other(count),
        None => Zeros::Cut,
    }
}

/// What comes next where nothing is synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynchronised {
    /// A-sync of this length.
    Sync(usize),
    /// This many bytes are before it.
    Skip(usize),
    /// Cut.
    Cut,
}

/// Looks for A-sync in `bytes`.
pub(crate) fn search(bytes: &[u8]) -> Unsynchronised {
    if bytes.first() == Some(&0) {
        return match zeros(bytes) {
            Zeros::Sync(length) => Unsynchronised::Sync(length),
            Zeros::Other(count) => Unsynchronised::Skip(count),
            Zeros::Cut => Unsynchronised::Cut,
        };
    }
    let others = bytes
        .iter()
        .take(MAX_SKIP)
        .take_while(|&&byte| byte != 0)
        .count();
    if others == bytes.len() && others < MAX_SKIP {
        Unsynchronised::Cut
    } else {
        Unsynchronised::Skip(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_zeros_and_a_one_are_a_sync() {
        assert_eq!(search(&[0, 0, 0, 0, 0, 0x80, 8]), Unsynchronised::Sync(6));
        assert_eq!(search(&[0, 0, 0, 0, 0, 0, 0x80]), Unsynchronised::Sync(7));
        assert_eq!(search(&[0, 0, 0, 0, 0x80]), Unsynchronised::Skip(4));
        assert_eq!(search(&[0, 0, 0, 0, 0, 0x81]), Unsynchronised::Skip(5));
        assert_eq!(search(&[0, 0, 0]), Unsynchronised::Cut);
    }

    #[test]
    fn long_runs_of_zeros_are_cut_before_their_end() {
        let mut bytes = vec![0; 100];
        bytes.push(0x80);
        let mut at = 0;
        let length = loop {
            match search(&bytes[at..]) {
                Unsynchronised::Skip(count) => at += count,
                Unsynchronised::Sync(length) => break length,
                Unsynchronised::Cut => panic!("cut at {at}"),
            }
        };
        assert_eq!(at + length, bytes.len());
    }

    #[test]
    fn other_bytes_are_skipped_up_to_a_zero() {
        assert_eq!(search(&[1, 2, 0]), Unsynchronised::Skip(2));
        assert_eq!(search(&[1, 2]), Unsynchronised::Cut);
        assert_eq!(search(&[1; 100]), Unsynchronised::Skip(64));
    }
}
