//! Layouts of long segments, read from an index and kept in one.

use super::{Cut, Layout, PartStart, Segments};
use crate::timeline::index::{Executed, Index, IndexedPart, LongSegment, Store, written};
use crate::timeline::saved::Saved;
use crate::timeline::worker::Seam;
use armsnap_snapshot::cache::Name;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The index of a track.
#[derive(Debug)]
pub(super) struct Indexed {
    store: Store,
    /// Its name, once it was looked up.
    name: Option<Name>,
    /// The segments, by chunk, whose layouts were read.
    read: BTreeSet<u64>,
    /// The code executed in these.
    executed: Executed,
}

impl Indexed {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            name: None,
            read: BTreeSet::new(),
            executed: Executed::default(),
        }
    }
}

impl Segments {
    /// Reads the index, unless this was done before.
    pub(super) fn read_index(&mut self) {
        let threads = self.threads();
        let Some(indexed) = self.index.as_mut().filter(|indexed| indexed.name.is_none()) else {
            return;
        };
        let name = indexed.store.name(&self.trace, threads);
        indexed.name = Some(name);
        let Some(bytes) = indexed.store.cache.get(name) else {
            return;
        };
        let read: Option<Index> = serde_json::from_slice(&bytes).ok();
        let Some(index) = read.filter(|index| index.executed.is_in(self.worker.code())) else {
            return;
        };
        if let Some(indexed) = &mut self.index {
            indexed.executed = index.executed;
        }
        for segment in index.segments {
            self.insert(segment);
        }
    }

    /// Inserts the layout of a segment, if it fits the trace.
    fn insert(&mut self, segment: LongSegment) {
        let chunk = segment.chunk;
        let end = segment.next.map(|next| next.at.chunk);
        let passed = chunk + 1..end.unwrap_or(self.trace.count());
        let cuts: Vec<Cut> = segment.cut.into_iter().chain(segment.next).collect();
        let fits = segment.is_sound(&self.trace)
            && cuts.iter().all(|cut| self.cut(cut.at.chunk) == Some(*cut))
            && passed
                .clone()
                .all(|at| !matches!(self.cuts.get(&at), Some(Some(_))))
            && !self.layouts.contains_key(&chunk)
            && segment
                .parts
                .iter()
                .all(|part| self.worker.decoders().check(&part.state).is_ok());
        if !fits {
            return;
        }
        let mut parts = vec![PartStart {
            first: 0,
            saved: None,
        }];
        parts.extend(segment.parts.into_iter().map(|part| PartStart {
            first: part.first,
            saved: Some(Arc::new(part.state)),
        }));
        self.cuts.extend(passed.map(|at| (at, None)));
        self.after.insert(chunk, end);
        let counted = segment.after.cycles.unwrap_or(0);
        self.cycles.insert(chunk, counted);
        self.layouts.insert(
            chunk,
            Layout {
                parts,
                places: segment.places,
                ended: segment.ended,
                after: segment.after,
            },
        );
        if let Some(indexed) = &mut self.index {
            indexed.read.insert(chunk);
        }
    }

    /// Keeps the layouts of all long segments so far, because that of `chunk` is new.
    pub(super) fn keep_index(&mut self, chunk: u64) {
        let parts = |layout: &Layout| layout.parts.len();
        let least = self.index.as_ref().map(|indexed| indexed.store.least_parts);
        if least.is_none_or(|least| self.layouts.get(&chunk).map_or(0, parts) < least) {
            return;
        }
        self.read_index();
        // Blocks that were forgotten are executed code, too.
        let Some(indexed) = self
            .index
            .as_ref()
            .filter(|_| self.worker.decoders().emptied() == 0)
        else {
            return;
        };
        let (store, Some(name)) = (indexed.store.clone(), indexed.name) else {
            return;
        };
        let blocks = self.worker.decoders().blocks();
        let Some(executed) = Executed::of(blocks, &indexed.executed, self.worker.code()) else {
            return;
        };
        let layouts = self.layouts.iter();
        let long = layouts.filter(|(_, layout)| parts(layout) >= store.least_parts);
        let mut chunks: Vec<u64> = long.map(|(&chunk, _)| chunk).collect();
        chunks.retain(|&chunk| self.is_long(chunk));
        let nexts: Vec<Option<Cut>> = chunks.iter().map(|&chunk| self.next_cut(chunk)).collect();
        // An index that is too large is kept with fewer parts.
        for every in [1, 2, 4, 8, 16] {
            let segments = chunks.iter().zip(&nexts).map(|(chunk, &next)| {
                let layout = &self.layouts[chunk];
                LongSegment {
                    chunk: *chunk,
                    cut: self.cuts.get(chunk).copied().flatten(),
                    next,
                    parts: stored(&layout.parts, every),
                    places: layout.places,
                    ended: layout.ended,
                    after: layout.after,
                }
            });
            let index = Index {
                executed: executed.clone(),
                segments: segments.collect(),
            };
            if let Some(bytes) = written(&index, store.cache.limits().file) {
                store.cache.put(name, &bytes);
                return;
            }
        }
    }

    /// Returns the start of the segment after a segment.
    fn next_cut(&mut self, chunk: u64) -> Option<Cut> {
        let after = self.segment_after(chunk)?;
        self.cut(after)
    }

    /// Returns what the index records of the end of a part.
    pub(super) fn seam(&self, chunk: u64, number: usize) -> Option<Seam> {
        let indexed = self.index.as_ref()?;
        let layout = self
            .layouts
            .get(&chunk)
            .filter(|_| indexed.read.contains(&chunk))?;
        let next = layout.parts.get(number + 1);
        Some(Seam {
            places: next.map_or(layout.places, |next| next.first),
            saved: next.and_then(|next| next.saved.clone()),
        })
    }

    /// Removes the index, which contradicts the trace, and forgets everything that came from it.
    pub fn distrust(&mut self) {
        let Some(Indexed { store, name, .. }) = self.index.take() else {
            return;
        };
        if let Some(name) = name {
            store.cache.remove(name);
        }
        self.layouts.clear();
        self.kept = super::Kept::default();
        self.cuts.clear();
        self.after.clear();
        self.cycles.clear();
        self.last = None;
    }
}

/// Every `every`th part but the first, unless its state cannot be stored.
fn stored(parts: &[PartStart], every: usize) -> Vec<IndexedPart> {
    let parts = parts.iter().step_by(every);
    parts
        .filter_map(|part| {
            let saved = part.saved.as_ref()?;
            saved.known.exception.is_none().then(|| IndexedPart {
                first: part.first,
                state: Saved::clone(saved),
            })
        })
        .collect()
}
