//! Files that are one conversion away from what armsnap reads: their formats, and the conversion.

use super::archive;
use super::packed::{self, Format};
use super::records;
use armsnap_snapshot::mapped;
use std::fmt;
use std::path::Path;

/// The number of bytes at the start of a file by which it is recognised.
const HEAD: u64 = 8192;

/// A file that armsnap does not read directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A trace file of GDB.
    TraceFile,
    /// A directory written by `tsave -ctf`.
    CommonTraceFormat,
    /// Memory in LiME's format.
    Lime,
    /// Memory in AVML's compressed format.
    Avml,
    /// Intel HEX or S-records.
    Records,
    /// A crash dump of Windows.
    WindowsDump,
    /// A core file of macOS.
    MacCore,
    /// A sigrok session.
    Sigrok,
    /// A value change dump of a logic analyser or a simulator.
    ValueChanges,
    /// Another archive.
    Archive,
    /// A probe-rs dump.
    ProbeRs,
    /// A compressed file with other contents.
    Packed(&'static str),
}

impl Foreign {
    /// Recognises a file or directory by its contents.
    pub fn of(path: &Path) -> Option<Self> {
        if path.is_dir() {
            let metadata = mapped::head(&path.join("metadata"), HEAD).ok()?;
            let is_one =
                metadata.starts_with(b"/* CTF") || metadata.starts_with(b"\x75\xD1\x1D\x57");
            let has_stream = path.join("datastream").is_file();
            return (is_one || has_stream).then_some(Self::CommonTraceFormat);
        }
        let (head, format) = packed::head(path, HEAD).ok()?;
        Self::of_bytes(path, &head)
            .or_else(|| format.map(|format: Format| Self::Packed(format.name())))
    }

    fn of_bytes(path: &Path, head: &[u8]) -> Option<Self> {
        Some(match head {
            [0x7f, b'T', b'R', b'A', b'C', b'E', b'0', ..] => Self::TraceFile,
            [b'E', b'M', b'i', b'L', ..] => Self::Lime,
            [b'L', b'M', b'V', b'A', ..] => Self::Avml,
            [
                b'P',
                b'A',
                b'G',
                b'E',
                b'D',
                b'U',
                b'6' | b'M',
                b'4' | b'P',
                ..,
            ] => Self::WindowsDump,
            // MH_CORE in 64-bit files.
            [0xcf, 0xfa, 0xed, 0xfe, .., _] if head.get(12..16) == Some(&[4, 0, 0, 0]) => {
                Self::MacCore
            }
            [b'P', b'K', 3, 4, ..] if finds(head, b"logic-1") || is_sigrok(head) => Self::Sigrok,
            [b'P', b'K', 3, 4, ..] | [b'7', b'z', 0xbc, 0xaf, ..] => Self::Archive,
            _ if archive::is_tar(head) => Self::Archive,
            _ if finds(&head[..head.len().min(1024)], b"$timescale") => Self::ValueChanges,
            _ if records::format(head).is_some() => Self::Records,
            _ if is_probe_rs(path, head) => Self::ProbeRs,
            _ => return None,
        })
    }
}

fn finds(bytes: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(bytes, text).is_some()
}

/// Whether the first file of an archive is that of a sigrok session: `version`.
fn is_sigrok(head: &[u8]) -> bool {
    head.get(30..37) == Some(b"version") && finds(head, b"metadata")
}

/// Whether a file is MessagePack with the fields of probe-rs' `CoreDump`: an array or a map, with
/// names of instruction sets and core types at its end.
fn is_probe_rs(path: &Path, head: &[u8]) -> bool {
    const END: usize = 256;
    if !matches!(head.first(), Some(0x83..=0x89 | 0x93..=0x99)) {
        return false;
    }
    let Ok(bytes) = mapped::map(path) else {
        return false;
    };
    let end = &bytes[bytes.len().saturating_sub(END)..];
    let has = |names: &[&[u8]]| names.iter().any(|name| finds(end, name));
    has(&[b"Thumb2", b"A32", b"A64"]) && has(&[b"Armv", b"armv"])
}

impl Foreign {
    /// What the file is, and the command with which armsnap makes a snapshot of it, in which `@`
    /// stands for its path; `None` if armsnap does not read it.
    pub const fn import(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Lime => Some((
                "memory in LiME's format",
                "import --memory @ --core TYPE snapshot",
            )),
            Self::Records => Some((
                "an image of memory",
                "import --memory @ --core TYPE snapshot",
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TraceFile => {
                "is a trace file of GDB: armsnap gdb FILE opens it, armsnap convert FILE SNAPSHOT makes a \
                 snapshot of it"
            }
            Self::CommonTraceFormat => {
                "is a trace in the Common Trace Format, as tsave -ctf writes it: tsave FILE without -ctf \
                 writes a trace file, which armsnap reads; of this one, gdb-multiarch -ex 'target ctf \
                 DIRECTORY' -ex 'tsave FILE' makes it"
            }
            Self::Lime => {
                "is memory in LiME's format: armsnap import --memory FILE --core TYPE DIRECTORY makes a \
                 snapshot of it"
            }
            Self::Avml => {
                "is memory in AVML's compressed format: avml-convert makes LiME's format of it, which armsnap \
                 import --memory reads"
            }
            Self::Records => {
                "is an image of memory (Intel HEX or S-records): armsnap import --memory FILE --core TYPE \
                 DIRECTORY makes a snapshot of it"
            }
            Self::WindowsDump => "is a crash dump of Windows: WinDbg opens it",
            Self::MacCore => "is a core file of macOS: lldb -c FILE opens it",
            Self::Sigrok => {
                "is a session of sigrok (a logic analyser): sigrok-cli decodes the port (-P uart -B uart=rx \
                 for SWO) into bytes of trace, which armsnap import --raw takes"
            }
            Self::ValueChanges => {
                "has value changes (VCD): sigrok-cli -I vcd decodes the port (-P uart -B uart=rx for SWO) into \
                 bytes of trace, which armsnap import --raw takes"
            }
            Self::Archive => "is an archive: unpack it, and name the file or directory in it",
            Self::ProbeRs => {
                "is a core dump of probe-rs: probe-rs debug --core-dump FILE opens it; generate-core-file \
                 in a GDB on probe-rs gdb makes a core file that armsnap reads"
            }
            Self::Packed(format) => {
                return write!(
                    f,
                    "is compressed ({format}), and what is in it is no core file, perf.data, minidump or \
                     core dump of Zephyr: unpack it first"
                );
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_told_by_their_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut session = b"PK\x03\x04".to_vec();
        session.resize(30, 0);
        session.extend(b"version2 metadata");
        let mut tar = vec![b'a'; 257];
        tar.extend(b"ustar");
        let mut core = vec![0xcf, 0xfa, 0xed, 0xfe];
        core.extend([12, 0, 0, 1, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        for (bytes, wanted) in [
            (&b"\x7fTRACE0\n"[..], Some(Foreign::TraceFile)),
            (b"EMiL\x01\0\0\0", Some(Foreign::Lime)),
            (b"LMVA\x02\0\0\0", Some(Foreign::Avml)),
            (b"PAGEDU64", Some(Foreign::WindowsDump)),
            (&core, Some(Foreign::MacCore)),
            (&session, Some(Foreign::Sigrok)),
            (b"PK\x03\x04....", Some(Foreign::Archive)),
            (&tar, Some(Foreign::Archive)),
            (
                b"$date today $end $timescale 1ns $end",
                Some(Foreign::ValueChanges),
            ),
            (b":0400100001020304E2\n", Some(Foreign::Records)),
            (
                b"\x94\x81\x00\x90\xa6Thumb2\xa7Armv7em",
                Some(Foreign::ProbeRs),
            ),
            (b"\x1f\x8b\x08\0\0\0\0\0\0\0", Some(Foreign::Packed("gzip"))),
            (b"[snapshot]\nversion=1.0\n", None),
            (b"\x7fELF", None),
            (b"", None),
        ] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(Foreign::of(&path), wanted, "{bytes:?}");
        }
        fs::write(directory.path().join("metadata"), "/* CTF 1.8 */").unwrap();
        assert_eq!(
            Foreign::of(directory.path()),
            Some(Foreign::CommonTraceFormat)
        );
    }
}
