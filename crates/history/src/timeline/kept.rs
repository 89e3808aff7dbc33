//! Cache of decoded parts; drops the least recently used.

use super::part::SegmentPart;
use super::track::PartKey;
use std::collections::HashMap;
use std::sync::Arc;

/// The most recently used decoded parts.
#[derive(Debug, Default)]
pub(super) struct Kept {
    parts: HashMap<PartKey, (Arc<SegmentPart>, u64)>,
    bytes: usize,
    clock: u64,
}

impl Kept {
    /// Returns a part if it is cached.
    pub fn get(&mut self, key: PartKey) -> Option<Arc<SegmentPart>> {
        self.clock += 1;
        let (part, used) = self.parts.get_mut(&key)?;
        *used = self.clock;
        Some(Arc::clone(part))
    }

    /// Inserts a part and shrinks the cache to `most` bytes. The part itself always stays.
    pub fn insert(&mut self, key: PartKey, part: Arc<SegmentPart>, most: usize) {
        self.clock += 1;
        self.bytes += part.bytes();
        if let Some((old, _)) = self.parts.insert(key, (part, self.clock)) {
            self.bytes -= old.bytes();
        }
        while self.bytes > most && self.parts.len() > 1 {
            let oldest = self.parts.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(&key, _)| key) else {
                return;
            };
            if let Some((part, _)) = self.parts.remove(&oldest) {
                self.bytes -= part.bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> PartKey {
        let segment = 0;
        PartKey { segment, number }
    }

    #[test]
    fn the_least_recently_used_part_is_dropped() {
        let part = Arc::new(SegmentPart::default());
        let most = 3 * part.bytes();
        let mut kept = Kept::default();
        for number in 0..3 {
            kept.insert(key(number), Arc::clone(&part), most);
        }
        assert!(kept.get(key(0)).is_some());
        kept.insert(key(3), Arc::clone(&part), most);
        assert!(kept.get(key(1)).is_none());
        for number in [0, 2, 3] {
            assert!(kept.get(key(number)).is_some(), "{number}");
        }
        kept.insert(key(3), Arc::clone(&part), most);
        assert_eq!(kept.bytes, most);
        kept.insert(key(4), part, 0);
        assert_eq!(kept.parts.len(), 1);
        assert!(kept.get(key(4)).is_some());
    }
}
