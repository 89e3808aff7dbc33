//! Build-ids: the hash in an ELF file that identifies it (`NT_GNU_BUILD_ID`).

use object::Object;
use std::fmt;

/// A build-id: 1 to 64 bytes, usually 16 or 20.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// Creates a build-id from its bytes; `None` if there are too many, or all are zero.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let some = (1..=64).contains(&bytes.len()) && bytes.iter().any(|&byte| byte != 0);
        some.then(|| Self(bytes.to_owned()))
    }

    /// Creates a build-id from bytes padded with zeros to an unknown length: build-ids consist of
    /// whole words.
    pub fn padded(bytes: &[u8]) -> Option<Self> {
        let used = bytes.iter().rposition(|&byte| byte != 0)? + 1;
        Self::new(&bytes[..used.next_multiple_of(4).min(bytes.len())])
    }

    /// The build-id in an ELF file.
    pub fn of_elf(bytes: &[u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        Self::new(file.build_id().ok()??)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether both identify the same file: perf truncates longer build-ids to 20 bytes, and pads
    /// shorter ones with zeros.
    pub fn is_same(&self, other: &Self) -> bool {
        let (short, long) = match self.0.len() <= other.0.len() {
            true => (&self.0, &other.0),
            false => (&other.0, &self.0),
        };
        let cut = short.len() == 20 && long.starts_with(short);
        let padded = long.starts_with(short) && long[short.len()..].iter().all(|&byte| byte == 0);
        cut || padded
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_no_part_of_it() {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&[7; 16]);
        let short = BuildId::padded(&bytes).unwrap();
        assert_eq!(short.to_string(), "07".repeat(16));
        assert!(short.is_same(&BuildId::new(&bytes).unwrap()));
        assert!(!short.is_same(&BuildId::new(&[7; 20]).unwrap()));
        assert!(
            BuildId::new(&[7; 32])
                .unwrap()
                .is_same(&BuildId::new(&[7; 20]).unwrap())
        );
        assert_eq!(BuildId::padded(&[0; 20]), None);
    }
}
