//! The programs that snapshot.ini records.

use super::model::{FileLine, OtherSection, Snapshot};

/// The maximum number of programs that a snapshot may record.
const MAX_PROGRAMS: usize = 256;

/// The section `[program]` of snapshot.ini, which armsnap writes and other readers ignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// `file`: its path in the snapshot's directory.
    pub file: String,
    /// `offset`: the offset of its load address from the addresses in the file.
    pub offset: u64,
    /// `memory=read-only`: only read-only memory may be taken from the file; writable memory is in
    /// the dumps, where it is known.
    pub read_only: bool,
    /// `memory=none`: no memory may be taken from the file; all known memory is in the dumps.
    pub names_only: bool,
}

impl Recorded {
    /// Reads the section. A program with an invalid offset is ignored.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let sections = &snapshot.other_sections;
        let section = sections.iter().find(|section| section.name == "program")?;
        Self::read(section)
    }

    /// Reads this section and those of further programs: `[program2]`, `[program3]`…
    pub(super) fn all(snapshot: &Snapshot) -> Vec<Self> {
        let sections = Self::sections(snapshot);
        sections.filter_map(Self::read).take(MAX_PROGRAMS).collect()
    }

    /// Returns the files of all programs, each with the position of its section.
    pub(super) fn files(snapshot: &Snapshot) -> impl Iterator<Item = (&FileLine, String)> {
        let sections = Self::sections(snapshot);
        let files =
            sections.filter_map(|section| Some((&section.place, Self::read(section)?.file)));
        files.take(MAX_PROGRAMS)
    }

    fn sections(snapshot: &Snapshot) -> impl Iterator<Item = &OtherSection> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let sections = snapshot.other_sections.iter();
        sections.filter(move |section| section.name.strip_prefix("program").is_some_and(is_number))
    }

    fn read(section: &OtherSection) -> Option<Self> {
        let value = |name: &str| {
            let entry = section.entries.iter().find(|(key, _)| key == name);
            entry.map(|(_, value)| value.trim())
        };
        let offset = match value("offset").map(|text| text.strip_prefix("0x").ok_or(text)) {
            None => 0,
            Some(Ok(hex)) => u64::from_str_radix(hex, 16).ok()?,
            Some(Err(decimal)) => decimal.parse().ok()?,
        };
        Some(Self {
            file: value("file")?.to_owned(),
            offset,
            read_only: value("memory") == Some("read-only"),
            names_only: value("memory") == Some("none"),
        })
    }
}
