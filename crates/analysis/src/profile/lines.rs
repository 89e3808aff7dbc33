//! Executed source lines, functions and branches of programs.
//!
//! The count of a line is that of its most executed instruction. A branch of a line is a
//! conditional branch instruction.

use super::code::{EdgeKind, ExecutedCode, Spans};
use armsnap_arch::arch::branch::{self, Kind};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_snapshot::program::elf::{Elf, Machine};
use armsnap_snapshot::program::symbols::Symbols;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The executed part of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By path, as named in the debug information.
    pub files: BTreeMap<String, FileCoverage>,
}

/// The executed part of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCoverage {
    /// How often each line with code was executed.
    pub lines: BTreeMap<u32, u64>,
    /// The functions, by line and name.
    pub functions: BTreeSet<FunctionCoverage>,
    /// The conditional branches, by line and address.
    pub branches: BTreeSet<BranchCoverage>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionCoverage {
    /// The line of its first instruction.
    pub line: u32,
    /// Its name in the source.
    pub name: String,
    /// Its symbol name in the file.
    pub linked: String,
    /// Its first instruction.
    pub start: Address,
    /// How often it was entered.
    pub entered: u64,
}

/// A conditional branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BranchCoverage {
    /// Its line.
    pub line: u32,
    /// The instruction.
    pub address: Address,
    /// Its distance from the first executable segment of its program: the same in each run.
    pub number: u32,
    /// How often it was taken and not taken; `None` if it was not executed.
    pub outcomes: Option<(u64, u64)>,
}

/// Returns what `codes` executed of the programs with these symbols. `images` are the programs'
/// files.
pub fn coverage(symbols: &Symbols, images: &[&Elf], codes: &[&ExecutedCode]) -> Coverage {
    let mut found = Coverage::default();
    let spans: Vec<Spans> = codes.iter().map(|code| code.spans()).collect();
    let branches = branches(codes);
    let looped = looped(symbols, codes);
    let sum = |of: &dyn Fn(&Spans) -> u64| spans.iter().map(of).fold(0, u64::saturating_add);
    let bases = images
        .iter()
        .map(|image| image.text_base().wrapping_add(image.offset));
    let bases: Vec<u64> = bases.collect();
    let mut seen = BTreeSet::new();
    for (extent, name, linked) in symbols.functions() {
        if !seen.insert(extent.start) {
            continue;
        }
        let lines = symbols.lines_of(extent.clone());
        // Counts of each line, by core.
        let mut highest: HashMap<(&str, u32), Vec<u64>> = HashMap::new();
        for (range, line) in lines.iter().filter(|(_, line)| line.line > 0) {
            let counts = highest
                .entry((&line.file, line.line))
                .or_insert_with(|| vec![0; spans.len()]);
            for (count, spans) in counts.iter_mut().zip(&spans) {
                *count = (*count).max(spans.most(range.clone()));
            }
        }
        for ((file, line), counts) in highest {
            let count = counts.into_iter().fold(0, u64::saturating_add);
            let file = file_of(&mut found, file);
            // Several functions may share a line: templates, inlined functions.
            let sum = file.lines.entry(line).or_insert(0);
            *sum = sum.saturating_add(count);
        }
        let Some((_, first)) = lines.first().filter(|(_, line)| line.line > 0) else {
            continue;
        };
        let entered = sum(&|spans| spans.at(extent.start));
        let again = looped.get(&extent.start).copied().unwrap_or(0);
        file_of(&mut found, &first.file)
            .functions
            .insert(FunctionCoverage {
                line: first.line,
                name: name.to_owned(),
                linked: linked.to_owned(),
                start: Address(extent.start),
                entered: entered.saturating_sub(again),
            });
        let all = all_branches(images, &extent);
        let known = branches
            .range(Address(extent.start)..Address(extent.end))
            .map(|(at, outcomes)| (*at, Some(*outcomes)));
        let image = images
            .iter()
            .position(|image| image.slice(extent.start).is_some());
        let base = image.map_or(0, |image| bases[image]);
        let mut both: BTreeMap<Address, Option<(u64, u64)>> =
            all.into_iter().map(|at| (at, None)).collect();
        both.extend(known);
        for (address, outcomes) in both {
            let at = lines.partition_point(|(range, _)| range.start <= address.0);
            let line = at.checked_sub(1).map(|index| &lines[index]);
            if let Some((_, line)) =
                line.filter(|(range, line)| range.contains(&address.0) && line.line > 0)
            {
                file_of(&mut found, &line.file)
                    .branches
                    .insert(BranchCoverage {
                        line: line.line,
                        address,
                        number: address.0.wrapping_sub(base) as u32,
                        outcomes,
                    });
            }
        }
    }
    found
}

fn file_of<'c>(coverage: &'c mut Coverage, file: &str) -> &'c mut FileCoverage {
    if !coverage.files.contains_key(file) {
        coverage
            .files
            .insert(file.to_owned(), FileCoverage::default());
    }
    coverage.files.get_mut(file).expect("it was inserted")
}

/// The outcomes of the conditional branches that were executed.
fn branches(codes: &[&ExecutedCode]) -> BTreeMap<Address, (u64, u64)> {
    let mut found: BTreeMap<Address, (u64, u64)> = BTreeMap::new();
    for block in codes.iter().flat_map(|code| code.blocks.values()) {
        if block.last.conditional && EdgeKind::of(&block.last).is_some() {
            let sum = found.entry(block.last_at).or_default();
            sum.0 = sum.0.saturating_add(block.taken);
            sum.1 = sum.1.saturating_add(block.not_taken);
        }
    }
    found.retain(|_, outcomes| *outcomes != (0, 0));
    found
}

/// How often each function branched to its own first instruction other than by a call.
fn looped(symbols: &Symbols, codes: &[&ExecutedCode]) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    for edge in codes.iter().flat_map(|code| code.edges()) {
        if matches!(edge.kind, EdgeKind::Branch | EdgeKind::Indirect)
            && let Some(extent) = symbols.extent(edge.from.0)
            && extent.start == edge.to.0
        {
            *found.entry(extent.start).or_insert(0) += edge.count;
        }
    }
    found
}

/// The conditional branches of a function, executed or not. Only for A64: code of the other
/// instruction sets contains data that symbols need not mark.
fn all_branches(images: &[&Elf], extent: &std::ops::Range<u64>) -> Vec<Address> {
    let mut found = Vec::new();
    let image = images
        .iter()
        .filter(|image| image.machine == Machine::AArch64 && image.little_endian);
    let Some(bytes) = image.filter_map(|image| image.slice(extent.start)).next() else {
        return found;
    };
    let size = usize::try_from(extent.end - extent.start).unwrap_or(usize::MAX);
    let (words, _) = bytes[..bytes.len().min(size)].as_chunks::<4>();
    for (index, word) in words.iter().enumerate() {
        let address = Address(extent.start + index as u64 * 4);
        let word = u32::from_le_bytes(*word);
        if let Some(instruction) = branch::decode(Isa::A64, address, word)
            && instruction.conditional
            && matches!(instruction.kind, Kind::Branch { .. })
        {
            found.push(address);
        }
    }
    found
}
