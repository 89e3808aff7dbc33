//! Notes on core dumps of Zephyr.

use armsnap_snapshot::text;

/// A note on a core dump of Zephyr.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZephyrNote {
    /// A block is of an unknown kind or version, or damaged.
    #[error("{}", block(*.at, *.kind, *.bytes))]
    Block {
        /// Its offset.
        at: usize,
        /// Its first byte, which gives its kind.
        kind: u8,
        /// The number of bytes up to the next block; `None` if no other block is found.
        bytes: Option<usize>,
    },
    /// The file ends in a block of memory.
    #[error(
        "at byte {at:#x}: the file ends in a block of memory, of which {} are there",
        text::count(*.kept as u64, "byte")
    )]
    CutMemory {
        /// Its offset.
        at: usize,
        /// The number of bytes of memory that are present.
        kept: usize,
    },
    /// The version of the format is newer than those known.
    #[error("core dump of Zephyr of version {0}: 1 and 2 are known, and it is read like those")]
    Version(u16),
    /// A block of registers has an unknown version or a wrong length.
    #[error(
        "at byte {at:#x}: block of registers of version {version} with {}: its layout is not \
         known, and it is left out",
        text::count(*.bytes as u64, "byte")
    )]
    Registers {
        /// Its offset.
        at: usize,
        /// The version.
        version: u16,
        /// Its length.
        bytes: usize,
    },
    /// The stack pointer is left out for a fault in a user thread.
    #[error(
        "SP is left out: at a fault of EL0 it may be that of EL1, by the kernel's configuration"
    )]
    UserStack,
    /// The bytes do not match the checksum of the dump.
    #[error(
        "the checksum of the dump is {written:#010x}, and that of its bytes {found:#010x}: it is \
         damaged, and what is shown may be wrong"
    )]
    Checksum {
        /// The checksum in the dump.
        written: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The dump says that it has a checksum, but has none.
    #[error("the dump ends without the checksum that it should have: it is cut short")]
    NoChecksum,
    /// The offsets of the list of threads are missing.
    #[error(
        "other threads are not read: --elf names the program, built with CONFIG_DEBUG_THREAD_INFO"
    )]
    NoThreadInfo,
    /// Threads that were not running.
    #[error(
        "{} did not run: their registers are those that the kernel saved when it switched to others{}",
        text::count(*.read as u64, "thread"),
        without_registers(*.without)
    )]
    Threads {
        /// The number of threads with registers.
        read: usize,
        /// The number of threads whose registers are not in the dump, or cannot be determined.
        without: usize,
    },
    /// The list of threads continues in memory that is not known.
    #[error("the kernel's list of threads continues in memory that the dump does not have")]
    CutThreads,
    /// The kernel reported in the log that it could not write the dump.
    #[error("line {line}: the kernel says that it could not dump: the dump may not be whole")]
    LogError {
        /// The line.
        line: usize,
    },
    /// A line of the log is damaged.
    #[error(
        "line {line}: expected pairs of hexadecimal digits after #CD:, so the dump is left out \
         from there on"
    )]
    LogLine {
        /// The line.
        line: usize,
    },
    /// The log has no end of the dump.
    #[error("the log has no #CD:END#: the dump may be cut short")]
    LogWithoutEnd,
    /// The log has more dumps.
    #[error(
        "the log has {} after the first: cut it there to read them",
        text::count(*.count as u64, "more dump")
    )]
    LogHasMore {
        /// Their number.
        count: usize,
    },
    /// The kernel reported an error in the partition's header.
    #[error("the header of the partition has error {error}: the dump may not be whole")]
    FlashError {
        /// Its number.
        error: i32,
    },
    /// The image of the partition is cut short.
    #[error(
        "the dump has {} by the header of the partition, of which {there} are there",
        text::count(*.size, "byte")
    )]
    FlashCut {
        /// The size of the dump according to the header.
        size: u64,
        /// The number of bytes that are present.
        there: u64,
    },
    /// The bytes do not match the checksum in the partition's header.
    #[error(
        "the checksum in the header of the partition is {checksum:#06x}, and that of the dump \
         {sum:#06x}: it is damaged, and what is shown may be wrong"
    )]
    FlashChecksum {
        /// The checksum.
        checksum: u16,
        /// The checksum of the bytes.
        sum: u16,
    },
}

/// What a block is, by its first byte, and how much is left out.
fn block(at: usize, kind: u8, bytes: Option<usize>) -> String {
    let block = match kind {
        b'A' | b'C' | b'F' | b'M' | b'T' => format!(
            "at byte {at:#x}: block {} is damaged, cut short, or of an unknown version: ",
            char::from(kind)
        ),
        _ => format!("at byte {at:#x}: block of unknown kind {kind:#04x}: "),
    };
    match bytes {
        Some(bytes) => format!("{block}{} are left out", text::count(bytes as u64, "byte")),
        None => block + "the rest is left out",
    }
}

/// The threads without registers, if there are any.
fn without_registers(threads: usize) -> String {
    match threads {
        0 => String::new(),
        _ => format!(
            "; {} more without known ones are left out",
            text::count(threads as u64, "thread")
        ),
    }
}
