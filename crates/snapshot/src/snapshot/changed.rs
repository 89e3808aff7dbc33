//! Code that changed while the trace was made: the section `[changed_code]` of snapshot.ini and the
//! file that it names. armsnap writes both; other readers ignore them.
//!
//! Where code changed, the final contents of memory are not the code that ran before. The file
//! lists these addresses and the contents that ran there, by the context ID that the trace had
//! while they were valid (0 before the first one); with `version=vmid` in the section, by the VMID.
//! Contents that are not listed are not known.
//!
//! ```text
//! changed ADDRESS LENGTH
//! code FIRST LAST ADDRESS BYTES
//! ```
//!
//! Addresses and lengths are hexadecimal after `0x`, and even; FIRST and LAST are decimal context
//! IDs; BYTES are pairs of hexadecimal digits in memory order.

use super::ini::quote;
use super::model::{FileLine, Note, OtherSection, Severity, Snapshot};
use super::note::{CodeNote, KeptCode};
use super::paths::PathError;
use crate::mapped::Mapped;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// The last context ID: contents valid up to it are valid to the end.
pub const EVER: u32 = u32::MAX;

/// The section of snapshot.ini.
pub const SECTION: &str = "changed_code";

/// The name of the file in snapshots written by armsnap.
pub const FILE: &str = "changed_code.txt";

/// The part of the trace's context that identifies the version of the code: `version=` in the
/// section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// The context ID; the key is missing.
    #[default]
    ContextId,
    /// `vmid`: the VMID, used if the context ID is the core's own.
    Vmid,
}

/// The largest file that is read: every four digits take 24 bytes in memory.
const LARGEST: usize = 64 << 20;

/// The maximum number of versions that are read.
const MAX_VERSIONS: u32 = 1 << 20;

/// The code that ran from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastCode<'c> {
    /// It did not change: it is that of the final memory.
    Unchanged,
    /// It changed, and these bytes of it are known.
    Known(&'c [u8]),
    /// It changed, and what ran is not known.
    Unknown,
}

impl<'c> PastCode<'c> {
    /// Returns the known bytes of changed code.
    pub fn known(self) -> Option<&'c [u8]> {
        match self {
            Self::Known(bytes) => Some(bytes),
            Self::Unchanged | Self::Unknown => None,
        }
    }
}

/// A halfword that ran while the context ID was one of `versions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    /// Its address.
    pub address: u64,
    /// The first and the last context ID.
    pub versions: (u32, u32),
    /// Its bytes as in memory.
    pub bytes: [u8; 2],
}

/// The changed code, and the contents that ran there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Start and length, sorted by address; ranges are not adjacent.
    ranges: Vec<(u64, u64)>,
    code: Vec<Code>,
    versions: u32,
    carrier: Carrier,
    /// Whether all code that ran is listed, changed or not.
    keeps_all: bool,
}

impl Changed {
    /// Creates the record for halfwords that changed at these addresses.
    pub fn new(addresses: BTreeSet<u64>, code: Vec<Code>, versions: u32) -> Self {
        let ranges = addresses.into_iter().map(|address| (address, 2)).collect();
        Self::of(ranges, code, versions)
    }

    fn of(mut ranges: Vec<(u64, u64)>, mut code: Vec<Code>, versions: u32) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let touches = next.0 - range.0 <= range.1;
            if touches {
                range.1 = range.1.max((next.0 - range.0).saturating_add(next.1));
            }
            touches
        });
        code.sort_unstable();
        Self {
            ranges,
            code,
            versions,
            carrier: Carrier::default(),
            keeps_all: false,
        }
    }

    /// Marks the record as listing all code that ran, because memory at its virtual addresses is
    /// not in the dumps: `code=all` in the section.
    pub fn keeping_all(mut self) -> Self {
        self.keeps_all = true;
        self
    }

    /// Sets which part of the trace's context identifies versions.
    pub fn carried_by(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    /// Returns the part of the trace's context that identifies the version.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Returns the section of snapshot.ini.
    pub fn section(&self) -> Option<OtherSection> {
        let mut entries = vec![("file".to_owned(), FILE.to_owned())];
        if self.carrier == Carrier::Vmid {
            entries.push(("version".to_owned(), "vmid".to_owned()));
        }
        if self.keeps_all {
            entries.push(("code".to_owned(), "all".to_owned()));
        }
        (!self.is_empty()).then(|| OtherSection {
            name: SECTION.to_owned(),
            entries,
            ..OtherSection::default()
        })
    }

    /// Returns whether no code changed.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges where code changed: addresses and lengths.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Returns the number of distinguishable versions.
    pub fn versions(&self) -> u32 {
        self.versions
    }

    /// Returns the number of changed bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.1).sum()
    }

    /// Returns a note, if any code changed.
    pub fn note(&self) -> Option<CodeNote> {
        let kept = match self.versions {
            0 | 1 if self.code.is_empty() => KeptCode::Nothing,
            0 | 1 => KeptCode::WhereKnown,
            _ if self.carrier == Carrier::Vmid => KeptCode::ByVmid,
            _ => KeptCode::ByContextId,
        };
        (!self.is_empty()).then(|| CodeNote {
            keeps_all: self.keeps_all,
            bytes: self.bytes(),
            ranges: self.ranges.clone(),
            versions: self.versions.max(1),
            kept,
        })
    }

    /// Returns whether code at an address changed.
    pub fn contains(&self, address: u64) -> bool {
        self.steady(address) == 0
    }

    /// Returns the number of unchanged bytes from an address.
    pub fn steady(&self, address: u64) -> u64 {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let before = after.checked_sub(1).map(|before| self.ranges[before]);
        if before.is_some_and(|(begin, length)| address - begin < length) {
            return 0;
        }
        let next = self.ranges.get(after).map(|range| range.0 - address);
        next.unwrap_or(u64::MAX)
    }

    /// Returns the bytes that ran from `address` in the version with a context ID.
    pub fn code(&self, version: u32, address: u64) -> PastCode<'_> {
        if !self.contains(address) {
            return PastCode::Unchanged;
        }
        let even = address & !1;
        let after = self
            .code
            .partition_point(|code| (code.address, code.versions.0) <= (even, version));
        let found = after.checked_sub(1).map(|index| &self.code[index]);
        let found = found.filter(|code| code.address == even && version <= code.versions.1);
        match found {
            Some(code) => PastCode::Known(&code.bytes[(address - even) as usize..]),
            None => PastCode::Unknown,
        }
    }

    /// Returns the contents of the file.
    pub fn write(&self) -> String {
        let mut out = String::new();
        for (address, length) in &self.ranges {
            let _ = writeln!(out, "changed {address:#x} {length:#x}");
        }
        let mut by_versions: Vec<&Code> = self.code.iter().collect();
        by_versions.sort_by_key(|code| (code.versions, code.address));
        let mut before: Option<&Code> = None;
        for code in by_versions {
            let goes_on = before.is_some_and(|before| {
                before.versions == code.versions && before.address.wrapping_add(2) == code.address
            });
            if !goes_on {
                let (first, last) = code.versions;
                let end = if before.is_some() { "\n" } else { "" };
                let _ = write!(out, "{end}code {first} {last} {:#x} ", code.address);
            }
            let _ = write!(out, "{:02x}{:02x}", code.bytes[0], code.bytes[1]);
            before = Some(code);
        }
        if before.is_some() {
            out.push('\n');
        }
        out
    }

    /// Reads the file. The error contains the line number, from 1, and what is wrong there.
    pub fn read(bytes: &[u8]) -> Result<Self, (u32, String)> {
        let (mut ranges, mut code, mut versions) = (Vec::new(), Vec::new(), 0);
        for (number, line) in (1_u32..).zip(bytes.split(|&byte| byte == b'\n')) {
            let text = std::str::from_utf8(line).unwrap_or("\u{fffd}");
            let mut words = text.split_ascii_whitespace();
            let read = match words.next() {
                None => Some(()),
                Some("changed") => range(&mut words).map(|range| ranges.push(range)),
                Some("code") => piece(&mut words, &mut code).map(|last| {
                    if last != EVER {
                        versions = versions.max(last + 1);
                    }
                }),
                Some(_) => None,
            };
            if read.is_none() || words.next().is_some() {
                let wanted = "expected \"changed ADDRESS LENGTH\" or \"code FIRST LAST ADDRESS \
                              BYTES\"";
                let found: String = text.chars().take(60).collect();
                return Err((number, format!("{wanted}, found {}", quote(&found))));
            }
        }
        Ok(Self::of(ranges, code, versions))
    }

    /// Reads the changed code of a snapshot, and returns a note that reports it or what is wrong
    /// with it. If the file cannot be read, all code may have changed, so no code is followed.
    pub fn of_snapshot(
        snapshot: &Snapshot,
        get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
    ) -> (Self, Option<Note>) {
        let Some((place, file)) = file(snapshot) else {
            return (Self::default(), None);
        };
        let read = get(&place.file, file);
        let read = read.map_err(|error| error.to_string());
        let read = read.and_then(|bytes| {
            let fits = bytes.len() <= LARGEST;
            fits.then_some(bytes)
                .ok_or_else(|| "larger than 64 MiB".to_owned())
        });
        let read = read.map_err(|why| (place.clone(), format!("{}: {why}", quote(file))));
        let read = read.and_then(|bytes| {
            Self::read(&bytes).map_err(|(line, text)| {
                let file = file.into();
                (FileLine { file, line }, text)
            })
        });
        match read {
            Ok(changed) => {
                let mut changed = changed.carried_by(carrier(snapshot));
                changed.keeps_all = has_entry(snapshot, "code", "all");
                let note = changed.note().map(|note| Note {
                    place: place.clone(),
                    severity: Severity::Warning,
                    section: "",
                    text: note.to_string(),
                });
                (changed, note)
            }
            Err((place, text)) => {
                let all = Self::of(vec![(0, u64::MAX)], Vec::new(), 0);
                let text = format!("{text}: which code changed is not known, so none is followed");
                let note = Note {
                    place,
                    severity: Severity::Error,
                    section: "",
                    text,
                };
                (all, Some(note))
            }
        }
    }
}

/// Returns the file named in `[changed_code]`, and the position of the entry; the name is empty if
/// the entry is missing.
pub fn file(snapshot: &Snapshot) -> Option<(&FileLine, &String)> {
    static NONE: String = String::new();
    let mut sections = snapshot.other_sections.iter();
    let section = sections.find(|section| section.name == SECTION)?;
    let file = section.entries.iter().find(|(key, _)| key == "file");
    Some((&section.place, file.map_or(&NONE, |(_, file)| file)))
}

fn carrier(snapshot: &Snapshot) -> Carrier {
    match has_entry(snapshot, "version", "vmid") {
        true => Carrier::Vmid,
        false => Carrier::ContextId,
    }
}

/// Whether the section has this entry.
fn has_entry(snapshot: &Snapshot, key: &str, value: &str) -> bool {
    let mut sections = snapshot.other_sections.iter();
    let section = sections.find(|section| section.name == SECTION);
    let mut entries = section.into_iter().flat_map(|section| &section.entries);
    entries.any(|entry| entry.0 == key && entry.1.trim() == value)
}

fn hex(word: Option<&str>) -> Option<u64> {
    u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok()
}

fn range<'w>(words: &mut impl Iterator<Item = &'w str>) -> Option<(u64, u64)> {
    let (address, length) = (hex(words.next())?, hex(words.next())?);
    let even = address % 2 == 0 && length % 2 == 0;
    (even && length > 0 && address.checked_add(length - 1).is_some()).then_some((address, length))
}

/// Reads a `code` line; returns its last context ID.
fn piece<'w>(words: &mut impl Iterator<Item = &'w str>, code: &mut Vec<Code>) -> Option<u32> {
    let versions = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let address = hex(words.next())?;
    let (quads, rest) = words.next()?.as_bytes().as_chunks::<4>();
    let bytes = 2 * quads.len() as u64;
    if versions.0 > versions.1
        || versions.1 != EVER && versions.1 >= MAX_VERSIONS
        || address % 2 != 0
        || !rest.is_empty()
        || address.checked_add(bytes).is_none()
    {
        return None;
    }
    for (index, quad) in (0_u64..).zip(quads) {
        let digit = |at: usize| char::from(quad[at]).to_digit(16);
        let byte = |at: usize| Some((digit(at)? << 4 | digit(at + 1)?) as u8);
        code.push(Code {
            address: address + 2 * index,
            versions,
            bytes: [byte(0)?, byte(2)?],
        });
    }
    Some(versions.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenSnapshot;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::{CoreMemory, Moment};
    use armsnap_arch::arch::Space;
    use armsnap_arch::quantity::Address;
    use std::sync::Arc;

    const TEXT: &str = "changed 0x1000 0x4\nchanged 0x1004 0x2\nchanged 0x2000 0x2\n\
                        code 0 0 0x1000 0102\ncode 1 3 0x1000 03040506\ncode 0 4294967295 0x2000 0708\n";

    #[test]
    fn versions_have_their_own_contents() {
        let changed = Changed::read(TEXT.as_bytes()).unwrap();
        assert_eq!(changed.ranges(), [(0x1000, 6), (0x2000, 2)]);
        assert_eq!((changed.versions(), changed.bytes()), (4, 8));
        let code = |version, address| changed.code(version, address);
        assert_eq!(code(0, 0xfff), PastCode::Unchanged);
        assert_eq!(code(0, 0x1000), PastCode::Known(&[1, 2]));
        assert_eq!(code(0, 0x1001), PastCode::Known(&[2]));
        assert_eq!(code(0, 0x1002), PastCode::Unknown);
        assert_eq!(code(2, 0x1000), PastCode::Known(&[3, 4]));
        assert_eq!(code(3, 0x1002), PastCode::Known(&[5, 6]));
        assert_eq!(code(4, 0x1000), PastCode::Unknown);
        assert_eq!(code(4, 0x1006), PastCode::Unchanged);
        assert_eq!(code(4, 0x2000), PastCode::Known(&[7, 8]));
        assert_eq!(changed.steady(0x1006), 0xffa);
        assert_eq!(changed.steady(0x2002), u64::MAX);
        let again = Changed::read(changed.write().as_bytes()).unwrap();
        assert_eq!(again, changed);
    }

    #[test]
    fn invalid_lines_are_rejected_with_their_number() {
        for line in [
            "change 0x1000 0x4",
            "changed 0x1000",
            "changed 0x1000 0x4 0x4",
            "changed 1000 4",
            "changed 0x1001 0x4",
            "changed 0x1000 0x0",
            "changed 0xfffffffffffffffe 0x4",
            "code 1 0 0x1000 0102",
            "code 0 1 0x1000 012",
            "code 0 1 0x1000 01é2",
            "code 0 1 0xfffffffffffffffe 01020304",
            "code 0 5000000 0x1000 0102",
            "code 0 -1 0x1000 0102",
        ] {
            let text = format!("changed 0x1000 0x2\n{line}\n");
            let (number, why) = Changed::read(text.as_bytes()).unwrap_err();
            assert_eq!(number, 2, "{line}");
            assert!(why.contains("expected"), "{why}");
        }
        assert!(Changed::read(b"").unwrap().is_empty());
        let end = Changed::read(b"changed 0xfffffffffffffffe 0x2\n").unwrap();
        assert!(end.contains(u64::MAX));
        // Together these ranges are all of the address space, whose size has 65 bits.
        let all = b"changed 0x0 0xfffffffffffffffe\nchanged 0xfffffffffffffffe 0x2\n";
        assert!(Changed::read(all).unwrap().contains(u64::MAX - 1));
    }

    #[test]
    fn versions_may_be_vmids_and_all_code_kept() {
        let changed = Changed::read(TEXT.as_bytes()).unwrap();
        let changed = changed.carried_by(Carrier::Vmid).keeping_all();
        let section = changed.section().unwrap();
        let entries: Vec<String> = section
            .entries
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            entries,
            ["file=changed_code.txt", "version=vmid", "code=all"]
        );
        let said = changed.note().unwrap().to_string();
        assert!(said.starts_with("all code that ran is kept"), "{said}");
        assert!(said.contains("VMID"), "{said}");
        let loaded = loaded_with("file=c.txt\nversion=vmid\ncode=all\n", &[("c.txt", TEXT)]);
        assert_eq!(*loaded.changed, changed);
    }

    fn loaded(files: &[(&str, &str)]) -> OpenSnapshot {
        loaded_with("file=c.txt\n", files)
    }

    fn loaded_with(section: &str, files: &[(&str, &str)]) -> OpenSnapshot {
        let mut all = InMemory::default();
        let list =
            format!("[snapshot]\nversion=1.0\n[device_list]\nd=cpu.ini\n[changed_code]\n{section}");
        let cpu = "[device]\nname=cpu\nclass=core\ntype=ARMv8-A\n[dump]\nfile=x\naddress=0xff8\n";
        for (name, text) in [
            ("snapshot.ini", &*list),
            ("cpu.ini", cpu),
            ("x", "0123456789abcdef"),
        ]
        .iter()
        .chain(files)
        {
            all.0
                .insert((*name).to_owned(), text.as_bytes().to_vec().into());
        }
        OpenSnapshot::from_files(Arc::new(all), "snapshot.ini").unwrap()
    }

    #[test]
    fn code_depends_on_the_version_and_memory_shows_the_end() {
        let loaded = loaded(&[("c.txt", TEXT)]);
        assert!(
            loaded.notes[0]
                .text
                .contains("8 bytes, at 0x1000-0x1005, 0x2000-0x2001; 4 versions")
        );
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        let moment = |version| Moment {
            version: Some(version),
            ..Moment::default()
        };
        let code = |version, address| memory.code(moment(version), Address(address), Space::Any);
        assert_eq!(code(0, 0xff8), *b"01234567");
        assert_eq!(code(1, 0x1000), [3, 4]);
        assert!(code(1, 0x1004).is_empty());
        assert_eq!(code(1, 0x1006), *b"ef");
        let mut out = [0; 16];
        let whole = memory.read(Address(0xff8), Space::Any, &mut out);
        assert_eq!(&out[..whole], b"0123456789abcdef");
        let known = memory.read_code(moment(1), Address(0xff8), Space::Any, &mut out);
        assert_eq!(&out[..known], b"01234567\x03\x04\x05\x06");
    }

    #[test]
    fn an_unreadable_file_makes_all_code_unknown() {
        for files in [&[][..], &[("c.txt", "what\n")]] {
            let loaded = loaded(files);
            let note = &loaded.notes[0];
            assert_eq!(note.severity, Severity::Error);
            assert!(note.text.ends_with("so none is followed"), "{note}");
            let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
            let moment = Moment {
                version: Some(0),
                ..Moment::default()
            };
            assert!(memory.code(moment, Address(0xff8), Space::Any).is_empty());
            assert_eq!(memory.slice(Address(0xff8), Space::Any).len(), 16);
        }
    }
}
