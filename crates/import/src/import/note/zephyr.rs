//! Notes on core dumps of Zephyr.

use armsnap_snapshot::text;
use std::fmt;

/// A note on a core dump of Zephyr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZephyrNote {
    /// A block is of an unknown kind or version, or damaged.
    Block {
        /// Its offset.
        at: usize,
        /// Its first byte, which gives its kind.
        kind: u8,
        /// The number of bytes up to the next block; `None` if no other block is found.
        bytes: Option<usize>,
    },
    /// The file ends in a block of memory.
    CutMemory {
        /// Its offset.
        at: usize,
        /// The number of bytes of memory that are present.
        kept: usize,
    },
    /// The version of the format is newer than those known.
    Version(u16),
    /// A block of registers has an unknown version or a wrong length.
    Registers {
        /// Its offset.
        at: usize,
        /// The version.
        version: u16,
        /// Its length.
        bytes: usize,
    },
    /// The stack pointer is left out for a fault in a user thread.
    UserStack,
    /// The bytes do not match the checksum of the dump.
    Checksum {
        /// The checksum in the dump.
        written: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The dump says that it has a checksum, but has none.
    NoChecksum,
    /// The offsets of the list of threads are missing.
    NoThreadInfo,
    /// Threads that were not running.
    Threads {
        /// The number of threads with registers.
        read: usize,
        /// The number of threads whose registers are not in the dump, or cannot be determined.
        without: usize,
    },
    /// The list of threads continues in memory that is not known.
    CutThreads,
    /// The kernel reported in the log that it could not write the dump.
    LogError {
        /// The line.
        line: usize,
    },
    /// A line of the log is damaged.
    LogLine {
        /// The line.
        line: usize,
    },
    /// The log has no end of the dump.
    LogWithoutEnd,
    /// The log has more dumps.
    LogHasMore {
        /// Their number.
        count: usize,
    },
    /// The kernel reported an error in the partition's header.
    FlashError {
        /// Its number.
        error: i32,
    },
    /// The image of the partition is cut short.
    FlashCut {
        /// The size of the dump according to the header.
        size: u64,
        /// The number of bytes that are present.
        there: u64,
    },
    /// The bytes do not match the checksum in the partition's header.
    FlashChecksum {
        /// The checksum.
        checksum: u16,
        /// The checksum of the bytes.
        sum: u16,
    },
}

impl fmt::Display for ZephyrNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { at, kind, bytes } => {
                match kind {
                    b'A' | b'C' | b'F' | b'M' | b'T' => write!(
                        f,
                        "at byte {at:#x}: block {} is damaged, cut short, or of an unknown version: ",
                        char::from(*kind)
                    )?,
                    _ => write!(f, "at byte {at:#x}: block of unknown kind {kind:#04x}: ")?,
                }
                match bytes {
                    Some(bytes) => {
                        write!(f, "{} are left out", text::count(*bytes as u64, "byte"))
                    }
                    None => f.write_str("the rest is left out"),
                }
            }
            Self::CutMemory { at, kept } => write!(
                f,
                "at byte {at:#x}: the file ends in a block of memory, of which {} are there",
                text::count(*kept as u64, "byte")
            ),
            Self::Version(version) => write!(
                f,
                "core dump of Zephyr of version {version}: 1 and 2 are known, and it is read like those"
            ),
            Self::Registers { at, version, bytes } => write!(
                f,
                "at byte {at:#x}: block of registers of version {version} with {}: its layout is not \
                 known, and it is left out",
                text::count(*bytes as u64, "byte")
            ),
            Self::UserStack => f.write_str(
                "SP is left out: at a fault of EL0 it may be that of EL1, by the kernel's configuration",
            ),
            Self::Checksum { written, found } => write!(
                f,
                "the checksum of the dump is {written:#010x}, and that of its bytes {found:#010x}: it is \
                 damaged, and what is shown may be wrong"
            ),
            Self::NoChecksum => {
                f.write_str("the dump ends without the checksum that it should have: it is cut short")
            }
            Self::NoThreadInfo => f.write_str(
                "other threads are not read: --elf names the program, built with \
                 CONFIG_DEBUG_THREAD_INFO",
            ),
            Self::Threads { read, without } => {
                write!(
                    f,
                    "{} did not run: their registers are those that the kernel saved when it switched \
                     to others",
                    text::count(*read as u64, "thread")
                )?;
                match without {
                    0 => Ok(()),
                    _ => write!(
                        f,
                        "; {} more without known ones are left out",
                        text::count(*without as u64, "thread")
                    ),
                }
            }
            Self::CutThreads => f.write_str(
                "the kernel's list of threads continues in memory that the dump does not have",
            ),
            Self::LogError { line } => write!(
                f,
                "line {line}: the kernel says that it could not dump: the dump may not be whole"
            ),
            Self::LogLine { line } => write!(
                f,
                "line {line}: expected pairs of hexadecimal digits after #CD:, so the dump is left out \
                 from there on"
            ),
            Self::LogWithoutEnd => {
                f.write_str("the log has no #CD:END#: the dump may be cut short")
            }
            Self::LogHasMore { count } => write!(
                f,
                "the log has {} after the first: cut it there to read them",
                text::count(*count as u64, "more dump")
            ),
            Self::FlashError { error } => write!(
                f,
                "the header of the partition has error {error}: the dump may not be whole"
            ),
            Self::FlashCut { size, there } => write!(
                f,
                "the dump has {} by the header of the partition, of which {there} are there",
                text::count(*size, "byte")
            ),
            Self::FlashChecksum { checksum, sum } => write!(
                f,
                "the checksum in the header of the partition is {checksum:#06x}, and that of the dump \
                 {sum:#06x}: it is damaged, and what is shown may be wrong"
            ),
        }
    }
}
