//! Which addresses of two recordings correspond, and whether they have the same code.

use super::super::core::Core;
use super::DiffError;
use super::course::Piece;
use super::reads;
use armsnap_arch::semantics::Control;
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::symbols::Symbols;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The pairs of addresses that were compared.
#[derive(Default)]
pub(super) struct Correspondence {
    /// By the two pages of 4 KiB.
    pages: HashMap<[u64; 2], bool>,
    /// The last pages.
    last: Option<([u64; 2], bool)>,
    /// The program of the first recording, and that of the second one, if their names differ.
    programs: Option<(String, String)>,
    /// Whether any two addresses in programs may correspond, because these are different builds.
    are_builds: bool,
}

impl Correspondence {
    /// For different builds.
    pub fn of_builds() -> Self {
        Self {
            are_builds: true,
            ..Self::default()
        }
    }

    /// Whether the recordings are of different builds.
    pub fn are_builds(&self) -> bool {
        self.are_builds
    }

    /// Whether two addresses are the same place in the same program or library, wherever it was
    /// loaded; outside of all of them, whether they are equal.
    pub fn place(&mut self, (a, b): (&Core<'_>, &Core<'_>), (x, y): (u64, u64)) -> bool {
        if self.are_builds {
            let files = (a.symbols.file(x), b.symbols.file(y));
            return x == y || matches!(files, (Some(_), Some(_)));
        }
        const PAGE: u64 = 1 << 12;
        if x % PAGE != y % PAGE {
            return self.named((a, b), (x, y));
        }
        let pages = [x / PAGE, y / PAGE];
        if let Some((last, is_same)) = self.last
            && last == pages
        {
            return is_same;
        }
        let is_same = match self.pages.get(&pages) {
            Some(is_same) => *is_same,
            None => {
                let is_same = self.named((a, b), (x, y));
                // A page may belong to more than one file.
                let is_whole = [(a, x), (b, y)].iter().all(|(core, address)| {
                    let [first, end] = [address - address % PAGE, address | (PAGE - 1)];
                    let name = |at| core.symbols.file(at).map(|(name, _)| name);
                    name(first) == name(end)
                });
                if is_whole {
                    self.pages.insert(pages, is_same);
                }
                is_same
            }
        };
        self.last = self.pages.contains_key(&pages).then_some((pages, is_same));
        is_same
    }

    fn named(&mut self, (a, b): (&Core<'_>, &Core<'_>), (x, y): (u64, u64)) -> bool {
        let (Some((first, at)), Some((second, there))) = (a.symbols.file(x), b.symbols.file(y))
        else {
            return x == y;
        };
        if at != there {
            return false;
        }
        if first == second {
            return true;
        }
        // Copies of one program may have two names.
        let programs = self
            .programs
            .get_or_insert_with(|| (first.to_owned(), second.to_owned()));
        programs.0 == first && programs.1 == second
    }
}

/// Whether a function is not at the same place of the same file in both programs.
pub(super) fn moved(a: &Symbols, b: &Symbols) -> bool {
    let (mut first, mut second) = (functions(a), functions(b));
    let shared: Vec<String> = first.keys().cloned().collect();
    for file in shared {
        if let (Some(x), Some(y)) = (first.get(&file), second.get(&file)) {
            if x != y {
                return true;
            }
            first.remove(&file);
            second.remove(&file);
        }
    }
    // Copies of one program may have two names.
    first.len() == 1 && second.len() == 1 && !first.values().eq(second.values())
}

/// By the name of their file: the address in the file, the size and the name of each function.
type Functions<'s> = BTreeMap<String, Vec<(u64, u64, &'s str)>>;

fn functions(symbols: &Symbols) -> Functions<'_> {
    let mut all = Functions::new();
    for (range, _, name) in symbols.functions() {
        if let Some((file, at)) = symbols.file(range.start) {
            let functions = match all.get_mut(file) {
                Some(functions) => functions,
                None => all.entry(file.to_owned()).or_default(),
            };
            functions.push((at, range.end - range.start, name));
        }
    }
    all
}

/// The straight lines that were compared.
#[derive(Default)]
pub(super) struct Code {
    /// By both addresses and the number of instructions: the numbers of the system calls in it.
    known: HashMap<(u64, u64, u32), Arc<[u32]>>,
}

impl Code {
    /// Fails if two straight lines have other code; otherwise returns the numbers of the instructions
    /// in them that call the system.
    pub fn check(
        &mut self,
        (a, b): (&mut Core<'_>, &mut Core<'_>),
        (x, y): (Piece, Piece),
        count: u32,
    ) -> Result<Arc<[u32]>, DiffError> {
        let entry = match self.known.entry((x.pc, y.pc, count)) {
            Entry::Occupied(known) => return Ok(Arc::clone(known.get())),
            Entry::Vacant(entry) => entry,
        };
        let mut calls = Vec::new();
        for number in 0..count {
            let at = |position: Position| position.after(number.into());
            let [first, second] = [
                reads::instruction(a, at(x.position)),
                reads::instruction(b, at(y.position)),
            ];
            // Where code is unknown, nothing contradicts.
            let (Some(first), Some(second)) = (first, second) else {
                continue;
            };
            if first.code != second.code {
                let (a, b) = (first.pc, second.pc);
                return Err(DiffError::OtherCode { a, b });
            }
            if first.semantics.control == Control::SystemCall {
                calls.push(number);
            }
        }
        Ok(Arc::clone(entry.insert(calls.into())))
    }
}
