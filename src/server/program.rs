//! The programs (ELF files) behind the cores of an endpoint: named by the user, or found in the
//! snapshot by their contents.

use std::path::{Path, PathBuf};

use super::endpoint::Core;
use super::memory::next_known;
use crate::arch::Architecture;
use crate::quantity::Address;
use crate::snapshot::elf::{Comparison, Elf, ElfError, Machine, is_elf};

/// Most bytes of a program that are compared with dumps.
const COMPARED: u64 = 4 << 20;
/// Most files of a snapshot's directory that are looked at.
const MAX_FILES: usize = 4096;
/// How deep directories are looked into.
const MAX_DEPTH: usize = 3;

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path, absolute.
    pub path: PathBuf,
    /// The file.
    pub elf: Elf,
    /// How it agrees with the dumps of the cores.
    pub comparison: Comparison,
    /// The user named it; otherwise it was found.
    pub named: bool,
}

impl Program {
    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.elf.bytes()
    }

    fn new(elf: Elf, cores: &[Core], named: bool) -> Self {
        let mut best = Comparison::default();
        for core in cores {
            let result = compare(&elf, core);
            if result.compared > best.compared {
                best = result;
            }
        }
        Self {
            path: elf.path.clone(),
            elf,
            comparison: best,
            named,
        }
    }
}

/// Compares a program with what a core sees in its current space.
fn compare(elf: &Elf, core: &Core) -> Comparison {
    let space = core.space.space;
    elf.compare(COMPARED, |address| {
        let known = core.memory.slice(Address(address), space);
        if known.is_empty() {
            let next = next_known(&core.memory, space, address);
            Err(next.map_or(u64::MAX, |next| next - address))
        } else {
            Ok(known)
        }
    })
}

fn fits(elf: &Elf, architecture: Architecture) -> bool {
    match architecture {
        Architecture::AArch64 => elf.machine == Machine::AArch64,
        Architecture::AArch32 | Architecture::MProfile => elf.machine == Machine::Arm,
    }
}

/// The programs of the cores: those that the user named, or else the one that was found.
pub(super) fn programs(
    directory: &Path,
    named: &[Elf],
    cores: &[Core],
    architecture: Architecture,
) -> Vec<Program> {
    if !named.is_empty() {
        let mut programs: Vec<Program> = named
            .iter()
            .filter(|elf| fits(elf, architecture))
            .map(|elf| Program::new(elf.clone(), cores, true))
            .collect();
        // With cores of A- and M-profile each program belongs where its contents are.
        if programs.iter().any(|program| program.comparison.matches()) && programs.len() > 1 {
            programs.sort_by_key(|program| !program.comparison.matches());
        }
        return programs;
    }
    let found = candidates(directory).into_iter().filter_map(|path| {
        let elf = Elf::open(&path).ok()?;
        let program = Program::new(elf, cores, false);
        (fits(&program.elf, architecture) && program.comparison.matches()).then_some(program)
    });
    let best = found.max_by_key(|program| {
        let comparison = &program.comparison;
        let agreeing = comparison.compared - comparison.differing - comparison.changed;
        // Of two that agree as well, the one with more in it has the debug information.
        (agreeing, program.bytes().len())
    });
    best.into_iter().collect()
}

/// Opens the programs that the user named.
pub(super) fn open_named(paths: &[PathBuf]) -> Result<Vec<Elf>, ElfError> {
    paths.iter().map(|path| Elf::open(path)).collect()
}

/// ELF files below a directory, in the order of their paths.
fn candidates(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut directories = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            looked_at += 1;
            if looked_at > MAX_FILES {
                found.sort();
                return found;
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = entry.path();
            if kind.is_dir() && depth < MAX_DEPTH {
                directories.push((path, depth + 1));
            } else if kind.is_file() && begins_as_elf(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn begins_as_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok_and(|()| is_elf(&magic))
}
