//! Marks on a track: points without a length.

use super::pack::Packer;
use std::collections::HashMap;

/// The kind of a mark; the order is that of `MARK_KINDS` in `timeline.js`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// Execution before and after it is not connected.
    Gap,
    /// A numbered event, a trigger, or the marker of a timestamp.
    Event,
    /// A message of software or hardware: ITM, STM, ETE instrumentation.
    Message,
    /// An exception was taken.
    Exception,
    /// A memory transaction.
    Transaction,
}

const KINDS: usize = 5;
/// Added to the kind, in the page, if a count follows.
const COUNTED: u64 = 8;

/// Texts, each once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<String>,
    indexes: HashMap<String, u32>,
}

impl Texts {
    /// The index of a text.
    pub fn index(&mut self, text: &str) -> u32 {
        if let Some(index) = self.indexes.get(text) {
            return *index;
        }
        let index = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.indexes.insert(text.to_owned(), index);
        index
    }

    /// The texts in the order of their indices.
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}

#[derive(Clone, Debug)]
struct Mark {
    place: u64,
    text: String,
    count: u64,
}

/// The marks of a track. If there are too many of a kind, neighbours are merged.
#[derive(Clone, Debug)]
pub struct Marks {
    kinds: [Vec<Mark>; KINDS],
    resolution: [u64; KINDS],
    most: usize,
}

impl Marks {
    /// Keeps at most `most` marks of each kind.
    pub fn new(most: usize) -> Self {
        Self {
            kinds: Default::default(),
            resolution: [1; KINDS],
            most: most.max(4),
        }
    }

    /// Adds a mark before the instruction with this number. Marks must be added in order.
    pub fn add(&mut self, place: u64, kind: MarkKind, text: impl FnOnce() -> String) {
        let (marks, resolution) = (
            &mut self.kinds[kind as usize],
            &mut self.resolution[kind as usize],
        );
        // At the finest resolution, all marks at a position are kept.
        if *resolution > 1
            && let Some(last) = marks.last_mut()
            && place.saturating_sub(last.place) < *resolution
        {
            last.count += 1;
            return;
        }
        marks.push(Mark {
            place,
            text: text(),
            count: 1,
        });
        while marks.len() > self.most && *resolution < u64::MAX / 2 {
            *resolution *= 2;
            marks.dedup_by(|mark, before| {
                let near = mark.place.saturating_sub(before.place) < *resolution;
                if near {
                    before.count += mark.count;
                }
                near
            });
        }
    }

    /// The marks as text; their texts are added to `texts`.
    pub fn pack(&self, texts: &mut Texts) -> String {
        let kinds = self.kinds.iter().enumerate();
        let mut all: Vec<(usize, &Mark)> = kinds
            .flat_map(|(kind, marks)| marks.iter().map(move |mark| (kind, mark)))
            .collect();
        all.sort_by_key(|(_, mark)| mark.place);
        let mut packer = Packer::default();
        let mut at = 0;
        for (kind, mark) in all {
            let counted = if mark.count > 1 { COUNTED } else { 0 };
            packer.number(mark.place - at);
            packer.number(kind as u64 + counted);
            packer.number(texts.index(&mark.text).into());
            if counted != 0 {
                packer.number(mark.count);
            }
            at = mark.place;
        }
        packer.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_marks_become_fewer_with_counts() {
        let mut marks = Marks::new(100);
        for place in 0..100_000 {
            marks.add(place, MarkKind::Event, || "event 1".to_owned());
        }
        marks.add(5, MarkKind::Gap, || "lost".to_owned());
        let events = &marks.kinds[MarkKind::Event as usize];
        assert!(events.len() <= 100);
        assert_eq!(events.iter().map(|mark| mark.count).sum::<u64>(), 100_000);
        assert_eq!(marks.kinds[0].len(), 1);
        let mut texts = Texts::default();
        marks.pack(&mut texts);
        let mut texts = texts.into_texts();
        texts.sort();
        assert_eq!(texts, ["event 1", "lost"]);
    }
}
