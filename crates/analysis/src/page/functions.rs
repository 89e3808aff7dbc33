//! The functions of all tracks, each once.

use super::data::FunctionRow;
use crate::profile::{Function, FunctionId, FunctionKind, Profile};
use armsnap_arch::quantity::Address;
use std::collections::HashMap;

/// Maximum number of functions on the page.
pub const MOST: usize = 30_000;
/// Maximum length of a name on the page.
const LONGEST_NAME: usize = 300;

/// A function on the page.
#[derive(Clone, Debug)]
pub struct PageFunction {
    /// Its row.
    pub row: FunctionRow,
    /// How it is known.
    pub kind: FunctionKind,
    /// Its first address; `None` for code without a known function.
    pub start: Option<Address>,
    /// The address after its last instruction; known only for functions with a symbol.
    pub end: Option<Address>,
    /// The first track that executed it.
    pub track: usize,
}

/// The functions of a page, in the order of their indices.
#[derive(Clone, Debug, Default)]
pub struct PageFunctions {
    all: Vec<PageFunction>,
    /// By start.
    starts: Vec<(u64, u32)>,
}

/// The page's index of each function of a track, by [`FunctionId::index`].
pub type Indexes = Vec<u32>;

impl PageFunctions {
    /// Merges the functions of the tracks' profiles; the hottest first.
    pub fn of(profiles: &[&Profile]) -> (Self, Vec<Indexes>) {
        let mut known: HashMap<(Option<Address>, String), usize> = HashMap::new();
        let mut all: Vec<PageFunction> = Vec::new();
        let mut maps: Vec<Vec<usize>> = Vec::new();
        for (track, profile) in profiles.iter().enumerate() {
            let functions = profile.functions.iter();
            let totals = profile.tree.totals(functions.len());
            let own = profile.own();
            let map = functions.map(|(id, function)| {
                let key = (function.start, function.name.clone());
                let index = *known.entry(key).or_insert_with(|| {
                    all.push(new(function, track));
                    all.len() - 1
                });
                add(&mut all[index].row, id, function, &own, &totals);
                index
            });
            maps.push(map.collect());
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&index| {
            let row = &all[index].row;
            (std::cmp::Reverse((row.own, row.total)), index)
        });
        let mut place = vec![0_u32; all.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new as u32;
        }
        let maps = maps
            .iter()
            .map(|map| map.iter().map(|&index| place[index]).collect());
        let all: Vec<PageFunction> = order.iter().map(|&index| all[index].clone()).collect();
        let with_start = all.iter().enumerate();
        let mut starts: Vec<(u64, u32)> = with_start
            .filter_map(|(index, function)| Some((function.start?.0, index as u32)))
            .collect();
        starts.sort_unstable();
        (Self { all, starts }, maps.collect())
    }

    /// The functions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PageFunction> {
        self.all.iter()
    }

    /// The functions, to be completed.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut PageFunction> {
        self.all.iter_mut()
    }

    /// The rows of the page.
    pub fn into_rows(self) -> Vec<FunctionRow> {
        let listed = self.all.into_iter().take(MOST);
        listed.map(|function| function.row).collect()
    }

    /// The row for the code at an address, if it is on the page.
    pub fn row_at(&self, address: u64) -> Option<u32> {
        let index = self.at(address).or_else(|| self.unknown());
        index.filter(|index| is_listed(*index))
    }

    /// The function that contains an address: by symbol, or else the closest one entered before it.
    pub fn at(&self, address: u64) -> Option<u32> {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        let (_, index) = *self.starts[..after].last()?;
        let end = self.all[index as usize].end;
        end.is_none_or(|end| address < end.0).then_some(index)
    }

    /// The row for code without a known function.
    pub fn unknown(&self) -> Option<u32> {
        let mut all = self.all.iter();
        let unknown = all.position(|function| function.kind == FunctionKind::Unknown);
        unknown.map(|index| index as u32)
    }

    /// The start of the next function after an address.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        self.starts.get(after).map(|(start, _)| *start)
    }
}

/// Whether the function with this index is on the page.
pub fn is_listed(index: u32) -> bool {
    (index as usize) < MOST
}

fn new(function: &Function, track: usize) -> PageFunction {
    let name = &function.name;
    let cut = name.char_indices().nth(LONGEST_NAME);
    let row = FunctionRow {
        name: match cut {
            Some((at, _)) => format!("{}…", &name[..at]),
            None => name.clone(),
        },
        start: function.start.map_or(0, |start| start.0),
        ..FunctionRow::default()
    };
    PageFunction {
        row,
        kind: function.kind,
        start: function.start,
        end: function.end,
        track,
    }
}

fn add(
    row: &mut FunctionRow,
    id: FunctionId,
    function: &Function,
    own: &[(u64, u64)],
    totals: &[(u64, u64)],
) {
    row.own = row.own.saturating_add(own[id.index()].0);
    row.total = row.total.saturating_add(totals[id.index()].0);
    row.calls = row.calls.saturating_add(function.calls);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_too_many_chains_have_the_instructions_of_their_code() {
        let profile = Profile::crowded();
        let (functions, _) = PageFunctions::of(&[&profile]);
        let own: Vec<u64> = functions.iter().map(|function| function.row.own).collect();
        assert_eq!(own, [12]);
    }

    #[test]
    fn code_of_functions_that_have_no_row_refers_to_none() {
        let function = |index: u64| PageFunction {
            row: FunctionRow::default(),
            kind: FunctionKind::Symbol,
            start: Some(Address(index * 16)),
            end: Some(Address(index * 16 + 16)),
            track: 0,
        };
        let most = MOST as u64;
        let functions = PageFunctions {
            all: (0..=most).map(function).collect(),
            starts: (0..=MOST as u32).map(|i| (u64::from(i) * 16, i)).collect(),
        };
        assert_eq!(functions.row_at(most * 16 - 4), Some(MOST as u32 - 1));
        assert_eq!(functions.row_at(most * 16), None);
        assert_eq!(functions.into_rows().len(), MOST);
    }
}
