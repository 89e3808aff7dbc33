//! Notes on programs used in addition to dumps, on memory that cores share, and on changed code.

use crate::text;
use armsnap_arch::quantity::Address;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// How a program agrees with the dumps, and which memory is read from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramNote {
    /// The result of comparing the program with the dumps.
    #[error(
        "program {program} ({}): of {compared} bytes that dumps have too, {differing} differ in \
         read-only parts and {changed} in writable ones",
        if *.named { "named" } else { "found" }
    )]
    Compared {
        /// The program's file.
        program: PathBuf,
        /// Whether the user named it; otherwise it was found.
        named: bool,
        /// The number of its bytes that dumps contain too.
        compared: u64,
        /// How many of these differ in read-only parts.
        differing: u64,
        /// How many of these differ in writable parts.
        changed: u64,
    },
    /// Dump and program differ in a range.
    #[error("dump and program differ at {}-{}: the dump is shown", .range.start, last(.range))]
    Differ {
        /// The range; its end is exclusive.
        range: Range<Address>,
    },
    /// No dump contains a range.
    #[error(
        "no dump has {}-{}: read from {program}{}",
        .range.start,
        last(.range),
        if *.writable { ", as it was before the program ran" } else { "" }
    )]
    Gap {
        /// The range; its end is exclusive.
        range: Range<Address>,
        /// The program's file.
        program: PathBuf,
        /// Whether it is writable, so that the bytes are those from before the program ran.
        writable: bool,
    },
    /// The program has more ranges that no dump contains.
    #[error("where no dump has further parts of it: read from {program} too")]
    FurtherGaps {
        /// The program's file.
        program: PathBuf,
    },
}

/// Returns the last address of a range.
fn last(range: &Range<Address>) -> Address {
    Address(range.end.0.wrapping_sub(1))
}

/// Where the memory of a core comes from, or why a part of it is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryNote {
    /// Memory of another core is visible where this one has none.
    #[error(
        "it has no dump or program with {first}: memory of {core} is shown where it has none \
         {SWITCH}",
        SWITCH = SWITCH
    )]
    Shared {
        /// The first such address.
        first: Address,
        /// The core that has memory there.
        core: String,
    },
    /// Code of other cores was used.
    #[error(
        "it has no dump or program with all code from {first} to {last}: memory of {} is used {SWITCH}",
        names(.cores),
        SWITCH = SWITCH
    )]
    Taken {
        /// The first address that was used.
        first: Address,
        /// The last address that was used.
        last: Address,
        /// The cores with the code.
        cores: Vec<String>,
    },
    /// The translation tables of processes are not known.
    #[error(
        "the translation tables of processes with context ID {} are not known: their code is missing",
        ids(.context_ids)
    )]
    UnknownProcesses {
        /// Their context IDs.
        context_ids: Vec<u32>,
    },
}

/// How to switch sharing off.
const SWITCH: &str = "(--no-shared-memory switches this off)";
/// The maximum number of names in a note.
const NAMED: usize = 4;

/// The first names, and the number of the others.
fn names(all: &[String]) -> String {
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    all[..all.len().min(NAMED)].join(", ") + &more
}

/// The first context IDs.
fn ids(all: &[u32]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(u32::to_string).collect();
    named.join(", ") + if all.len() > NAMED { ", …" } else { "" }
}

/// Code that changed while the trace was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeNote {
    /// Whether all code that ran is kept, not only changed code.
    pub keeps_all: bool,
    /// The number of changed bytes.
    pub bytes: u64,
    /// The changed ranges: addresses and lengths.
    pub ranges: Vec<(u64, u64)>,
    /// The number of distinguishable versions.
    pub versions: u32,
    /// What is known about the code that ran.
    pub kept: KeptCode,
}

/// What is known about code that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptCode {
    /// Nothing: there are gaps in the history.
    #[error("the code that ran there is not known: gaps in the history")]
    Nothing,
    /// The code that ran is kept where it is known.
    #[error("the code that ran there is kept where known; elsewhere there are gaps")]
    WhereKnown,
    /// The VMID in the trace identifies the version that ran.
    #[error(
        "the code that ran there is kept, and the VMID in the trace identifies the version that ran"
    )]
    ByVmid,
    /// The context ID in the trace identifies the version that ran.
    #[error(
        "the code that ran there is kept, and the context ID in the trace identifies the version \
         that ran"
    )]
    ByContextId,
}

impl fmt::Display for CodeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The maximum number of ranges that are listed.
        const LISTED: usize = 3;
        let Self {
            bytes,
            versions,
            kept,
            ..
        } = self;
        let versions = text::count(u64::from(*versions), "version");
        if self.keeps_all {
            return write!(
                f,
                "all code that ran is kept as it ran ({bytes} bytes; {versions}): {kept}"
            );
        }
        let ranges = self.ranges.iter().take(LISTED);
        let ranges = ranges.map(|&(begin, length)| {
            let last = begin.saturating_add(length.saturating_sub(1));
            format!("{begin:#x}-{last:#x}")
        });
        let mut listed: Vec<String> = ranges.collect();
        listed.extend((self.ranges.len() > LISTED).then(|| "…".to_owned()));
        write!(
            f,
            "code changed while the trace was made ({bytes} bytes, at {}; {versions}): \
             {kept}",
            listed.join(", ")
        )
    }
}
