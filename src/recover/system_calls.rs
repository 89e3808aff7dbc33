//! What Linux does to a program's memory in a system call, by number.

/// What a system call may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// No memory of the program.
    Nothing,
    /// Which memory there is changes, not what is in the memory that stays.
    Layout,
    /// Anything.
    Unknown,
}

/// The effect of a system call of A64 (asm-generic/unistd.h).
pub(super) fn of_a64(number: u64) -> Effect {
    match number {
        // setxattr to lremovexattr without the readers; dup to dup3; mknodat to renameat;
        // ftruncate to fchown; openat, close; lseek; write; writev; pwrite64; pwritev.
        5..=7 | 23 | 24 | 33..=38 | 45..=55 | 56 | 57 | 62 | 64 | 66 | 68 | 70 => Effect::Nothing,
        // sync to fdatasync, exit, exit_group, set_tid_address, set_robust_list.
        81..=83 | 93 | 94 | 96 | 99 => Effect::Nothing,
        // sched_yield, kill to tgkill, sigaltstack is not among them, setpriority, getpriority.
        124 | 129..=131 | 140 | 141 => Effect::Nothing,
        // setregid to setfsgid without getters by address; umask; getpid to gettid.
        143..=147 | 149 | 151 | 152 | 154..=157 | 166 | 172..=178 => Effect::Nothing,
        // socket, bind, listen, connect, sendto, setsockopt, shutdown.
        198 | 200 | 201 | 203 | 206 | 208 | 210 => Effect::Nothing,
        // mprotect, msync, madvise without MADV_DONTNEED is not told from it; fadvise64.
        223 | 226 | 227 => Effect::Nothing,
        // brk, munmap, mremap, mmap, madvise.
        214 | 215 | 216 | 222 | 233 => Effect::Layout,
        _ => Effect::Unknown,
    }
}
