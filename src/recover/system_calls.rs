//! What Linux does to a program's memory in a system call, by number and arguments.

/// What a system call may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// No memory of the program.
    Nothing,
    /// Which memory there is changes, not what is in the memory that stays.
    Layout(Change),
    /// Anything.
    Unknown,
}

/// A system call that changes which memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Break,
    Unmap,
    Move,
    Map,
    Advise,
}

/// Arguments of a system call, and its result, as far as known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments {
    pub first: Option<u64>,
    pub second: Option<u64>,
    pub third: Option<u64>,
    pub result: Option<u64>,
}

impl Change {
    /// Whether the contents of an address are taken away; `None` if that is not known.
    pub fn takes(self, arguments: Arguments, address: u64) -> Option<bool> {
        /// The largest page.
        const PAGE: u64 = 1 << 16;
        let Arguments {
            first,
            second,
            third,
            result,
        } = arguments;
        let within = |start: Option<u64>, length: Option<u64>| {
            let (start, length) = (start?, length?);
            let page = |address: u64| address & !(PAGE - 1);
            let end = start
                .checked_add(length)
                .and_then(|end| end.checked_add(PAGE - 1));
            Some(address >= page(start) && end.is_none_or(|end| address < page(end)))
        };
        match self {
            // One that only asks. That it made the heap shorter is not known from one call.
            Self::Break => (first == Some(0)).then_some(false),
            Self::Unmap => within(first, second),
            Self::Move => match (within(first, second), within(result, third)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::Map => within(result, second),
            // Advice that keeps what is there (uapi/asm-generic/mman-common.h): normal to willneed,
            // dontfork to nohugepage, dontdump to dodump, cold, pageout, populate.
            Self::Advise if matches!(third, Some(0..=3 | 10..=17 | 20..=23)) => Some(false),
            Self::Advise => match within(first, second) {
                Some(true) if third.is_none() => None,
                within => within,
            },
        }
    }
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
        // mprotect, msync, madvise (any advice); fadvise64.
        223 | 226 | 227 => Effect::Nothing,
        214 => Effect::Layout(Change::Break),
        215 => Effect::Layout(Change::Unmap),
        216 => Effect::Layout(Change::Move),
        222 => Effect::Layout(Change::Map),
        233 => Effect::Layout(Change::Advise),
        _ => Effect::Unknown,
    }
}

/// The effect of a system call of the EABI of AArch32 (arch/arm/tools/syscall.tbl).
pub(super) fn of_arm(number: u64) -> Effect {
    match number {
        // exit, write, open, close, creat, link, unlink, chdir, mknod, chmod, lchown, lseek, getpid.
        1 | 4..=6 | 8..=10 | 12 | 14..=16 | 19 | 20 => Effect::Nothing,
        // setuid, getuid, access, sync, kill, rename, mkdir, rmdir, dup, setgid to getegid.
        23 | 24 | 33 | 36..=41 | 46 | 47 | 49 | 50 => Effect::Nothing,
        // setpgid, umask, chroot, dup2, getppid, getpgrp, setsid, symlink, truncate to setpriority.
        57 | 60 | 61 | 63..=66 | 83 | 92..=97 => Effect::Nothing,
        // fsync, mprotect, getpgid, fchdir, flock, msync, writev, fdatasync, sched_yield, pwrite64.
        118 | 125 | 132 | 133 | 143 | 144 | 146 | 148 | 158 | 181 => Effect::Nothing,
        // chown, truncate64, ftruncate64, getuid32 to setregid32, fchown32, chown32, setuid32,
        // setgid32, gettid, tkill, exit_group, set_tid_address, tgkill, fadvise64_64.
        182 | 193 | 194 | 199..=204 | 207 | 212..=214 | 224 | 238 | 248 | 256 | 268 | 270 => {
            Effect::Nothing
        }
        // socket to listen, send, sendto, shutdown, setsockopt.
        281..=284 | 289 | 290 | 293 | 294 => Effect::Nothing,
        // openat to fchownat, unlinkat to symlinkat, fchmodat, faccessat, set_robust_list, dup3,
        // pwritev, cacheflush, set_tls.
        322..=325 | 328..=331 | 333 | 334 | 338 | 358 | 362 | 0xf_0002 | 0xf_0005 => {
            Effect::Nothing
        }
        45 => Effect::Layout(Change::Break),
        91 => Effect::Layout(Change::Unmap),
        163 => Effect::Layout(Change::Move),
        192 => Effect::Layout(Change::Map),
        220 => Effect::Layout(Change::Advise),
        _ => Effect::Unknown,
    }
}
