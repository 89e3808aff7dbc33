//! Notes on logs of Linux kernels.

use armsnap_snapshot::text;

/// A note on the log of a Linux kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelLogNote {
    /// What the kernel says of the cause.
    #[error("the kernel says: {0}")]
    Cause(String),
    /// The log has more reports.
    #[error(
        "the log has {} after the first: cut it there to read them",
        text::count(*.reports as u64, "more report")
    )]
    More {
        /// Their number.
        reports: usize,
    },
    /// A register is printed as a place in a function.
    #[error(
        "{register} is {place} by the log: its address is not known without the kernel (--vmlinux) that has \
         this function once, in the size in the log"
    )]
    Symbol {
        /// The register.
        register: String,
        /// The function, and the offset in it.
        place: String,
    },
    /// The offset of the kernel is not in the log.
    #[error(
        "the log does not say by how much the kernel was moved (Kernel Offset): assumed at its linked \
         addresses"
    )]
    NoOffset,
    /// The kernel is not named.
    #[error(
        "without the kernel (--vmlinux) there are no functions, and no code but that in the log"
    )]
    NoKernel,
}
