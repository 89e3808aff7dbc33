//! Analysis results in the formats of other tools.
//!
//! Each format has a file here. Formats with counts are written from a [`Profile`]; formats over
//! time listen while the trace is decoded ([`crate::profile::Listener`]). `docs/reports.md`
//! describes them.

pub mod axis;
pub mod callgrind;
pub mod chrome;
pub mod clover;
pub mod cobertura;
pub mod columns;
pub mod compilers;
mod covered;
pub mod ctf;
pub mod drcov;
pub mod folded;
mod happenings;
pub mod images;
pub mod lcov;
mod note;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod perfetto;
pub mod rows;
pub mod spool;
pub mod tables;

pub use note::Note;

use crate::profile::{Profile, Track};
use armsnap_history::decode::Programs;
use armsnap_snapshot::text::is_plain;
use std::io;

/// What was analysed.
pub struct Analysed<'a> {
    /// The tracks with their profiles.
    pub tracks: &'a [(Track, Profile)],
    /// The programs.
    pub programs: &'a Programs,
}

/// Why a format cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The format cannot represent the analysed data.
    #[error("{0}")]
    Unfit(String),
}

/// Describes what gaps hide, for a comment; `None` if there are no gaps.
fn hidden(track: &Track, profile: &Profile) -> Option<String> {
    let mut parts: Vec<String> = profile
        .gaps
        .iter()
        .map(|(kind, count)| format!("{kind}: {count}"))
        .collect();
    let unknown = profile.totals.unknown_path;
    if unknown > 0 {
        parts.push(format!("instructions on unknown paths: {unknown}"));
    }
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        format!("{}: execution in gaps is not counted ({parts})", track.name)
    })
}

/// Writes what gaps hide as XML comments, in which `--` is not allowed.
fn comments(analysed: &Analysed<'_>, out: &mut impl io::Write) -> io::Result<()> {
    for (track, profile) in analysed.tracks {
        if let Some(text) = hidden(track, profile) {
            let mut text = clean(&text);
            while text.contains("--") {
                text = text.replace("--", "- -");
            }
            writeln!(out, "<!-- {text} -->")?;
        }
    }
    Ok(())
}

/// Replaces control characters: line ends separate records.
fn clean(text: &str) -> String {
    let clean = |c: char| if is_plain(c) { c } else { '?' };
    text.chars().map(clean).collect()
}
