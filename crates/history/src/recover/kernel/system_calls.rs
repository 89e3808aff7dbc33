//! What Linux does to a program's memory in a system call, by number and arguments.

use super::outputs::{BufferSize, KernelBuffer, further_buffers};
use crate::recover::bits::untagged;
use armsnap_arch::arch::Architecture;
use std::ops::Range;

/// What a system call may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Effect {
    /// No memory of the program.
    Nothing,
    /// Which memory exists changes, but not the contents of the memory that stays.
    Layout(Change),
    /// A buffer of the program.
    Fills(Buffer),
    /// Anything.
    Unknown,
}

/// A system call that changes which memory exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Change {
    Break,
    Unmap,
    Move,
    Map,
    Advise,
}

/// The buffer that a system call fills, fully or partly; none if its address is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) struct Buffer {
    /// The argument with its address.
    address: Argument,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    First,
    Second,
    Third,
    Fourth,
}

/// An upper bound of the size of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Fixed(u64),
    Argument(Argument),
}

/// The arguments of a system call, and its result, where known.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Arguments {
    pub first: Option<u64>,
    pub second: Option<u64>,
    pub third: Option<u64>,
    pub fourth: Option<u64>,
    pub result: Option<u64>,
}

impl Arguments {
    /// For mmap: the mapped addresses, if other mappings may share their contents; empty if
    /// unknown. (MAP_SHARED and MAP_SHARED_VALIDATE have bit 0, PROT_WRITE is bit 1.)
    pub fn shared_mapping(self) -> Option<Range<u64>> {
        let has = |argument: Option<u64>, bit: u64| argument.is_some_and(|bits| bits & bit != 0);
        let (start, length) = self.result.zip(self.second).unwrap_or((0, 0));
        let is_shared = has(self.third, 2) && has(self.fourth, 1);
        is_shared.then(|| start..start.saturating_add(length))
    }

    /// All of them, and the result if it is known.
    pub fn of([first, second, third, fourth, ..]: [u64; 6], result: Option<u64>) -> Self {
        Self {
            first: Some(first),
            second: Some(second),
            third: Some(third),
            fourth: Some(fourth),
            result,
        }
    }

    fn get(self, argument: Argument) -> Option<u64> {
        match argument {
            Argument::First => self.first,
            Argument::Second => self.second,
            Argument::Third => self.third,
            Argument::Fourth => self.fourth,
        }
    }
}

impl Effect {
    /// A structure of the kernel, whose address is an argument.
    fn structure(address: Argument, bytes: u64) -> Self {
        let size = Size::Fixed(bytes);
        Self::Fills(Buffer { address, size })
    }

    /// A buffer, whose address and size are arguments.
    fn buffer(address: Argument, size: Argument) -> Self {
        let size = Size::Argument(size);
        Self::Fills(Buffer { address, size })
    }

    /// The effect of a call with a command: nothing if the command is harmless.
    fn nothing_if(command: Option<u64>, is_harmless: impl FnOnce(u64) -> bool) -> Self {
        match command.is_some_and(is_harmless) {
            true => Self::Nothing,
            false => Self::Unknown,
        }
    }
}

impl Buffer {
    /// Whether its address and size are known.
    pub fn is_known(self, arguments: Arguments) -> bool {
        arguments.get(self.address).is_some() && self.size(arguments).is_some()
    }

    fn size(self, arguments: Arguments) -> Option<u64> {
        match self.size {
            Size::Fixed(bytes) => Some(bytes),
            Size::Argument(argument) => arguments.get(argument),
        }
    }

    /// The addresses that a call which returned with `result` filled, or may have; `None` if they
    /// are unknown.
    pub fn filled(self, arguments: Arguments, result: i64) -> Option<Range<u64>> {
        /// Linux's number of the error of an address that cannot be written.
        const EFAULT: i64 = 14;
        let start = untagged(arguments.get(self.address)?);
        let size = self.size(arguments)?;
        let length = match self.size {
            _ if start == 0 => 0,
            Size::Argument(_) if result >= 0 => size.min(result.cast_unsigned()),
            Size::Argument(_) if result != -EFAULT => 0,
            Size::Argument(_) | Size::Fixed(_) => size,
        };
        Some(start..start.checked_add(length)?)
    }

    /// Whether it leaves the eight bytes at an address alone; `false` if this is unknown.
    pub fn spares(self, arguments: Arguments, address: u64) -> bool {
        // The kernel may accept tagged addresses (PR_SET_TAGGED_ADDR_CTRL).
        let Some(start) = arguments.get(self.address).map(untagged) else {
            return false;
        };
        let end = self
            .size(arguments)
            .and_then(|size| start.checked_add(size));
        let is_before = address.checked_add(8).is_some_and(|after| after <= start);
        start == 0 || is_before || end.is_some_and(|end| end <= address)
    }
}

/// Returns the system calls of an architecture that fill a buffer, as far as they are known.
pub fn kernel_buffers(architecture: Architecture) -> impl Iterator<Item = KernelBuffer> {
    // `ioctl` and `wait4` do with some arguments only.
    let arguments = Arguments {
        first: None,
        second: Some(0x5401),
        third: None,
        fourth: Some(0),
        result: None,
    };
    let further = (0..1024).filter_map(move |number| further_buffers(architecture, number));
    let buffers = (0..1024).filter_map(move |number| match of(architecture, number, arguments) {
        Effect::Fills(Buffer { address, size }) => Some(KernelBuffer {
            number,
            argument: address as u8,
            size: match size {
                Size::Fixed(bytes) => BufferSize::Bytes(bytes),
                Size::Argument(argument) => BufferSize::Argument(argument as u8),
            },
        }),
        Effect::Nothing | Effect::Layout(_) | Effect::Unknown => None,
    });
    buffers.chain(further.flatten())
}

/// The effect of a system call of an architecture.
pub(in crate::recover) fn of(
    architecture: Architecture,
    number: u64,
    arguments: Arguments,
) -> Effect {
    match architecture {
        Architecture::AArch64 => of_a64(number, arguments),
        Architecture::AArch32 | Architecture::MProfile => of_arm(number, arguments),
    }
}

impl Change {
    /// Whether the contents of an address are lost; `None` if this is unknown.
    pub fn takes(self, arguments: Arguments, address: u64) -> Option<bool> {
        /// The largest page.
        const PAGE: u64 = 1 << 16;
        let Arguments {
            first,
            second,
            third,
            result,
            ..
        } = arguments;
        let within = |start: Option<u64>, length: Option<u64>| {
            let (start, length) = (untagged(start?), length?);
            let page = |address: u64| address & !(PAGE - 1);
            let end = start
                .checked_add(length)
                .and_then(|end| end.checked_add(PAGE - 1));
            Some(address >= page(start) && end.is_none_or(|end| address < page(end)))
        };
        match self {
            // A call that only queries. One call does not show whether it made the heap shorter.
            Self::Break => (first == Some(0)).then_some(false),
            Self::Unmap => within(first, second),
            Self::Move => match (within(first, second), within(result, third)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::Map => within(result, second),
            // Advice that keeps the contents (uapi/asm-generic/mman-common.h): normal to willneed,
            // dontfork to nohugepage, dontdump to dodump, cold, pageout, populate.
            Self::Advise if matches!(third, Some(0..=3 | 10..=17 | 20..=23)) => Some(false),
            Self::Advise => match within(first, second) {
                Some(true) if third.is_none() => None,
                within => within,
            },
        }
    }
}

/// Commands of `futex` that only wait and wake: wait, wake, requeue, cmp_requeue, wait_bitset,
/// wake_bitset (uapi/linux/futex.h), private or with another clock.
fn only_waits(command: u64) -> bool {
    matches!(command & 0x7f, 0 | 1 | 3 | 4 | 9 | 10)
}

/// Commands of `fcntl` that take numbers, or only read a structure: dupfd to setfl, setlk, setlkw,
/// setown, getown, setlk64, setlkw64, ofd_setlk, ofd_setlkw, dupfd_cloexec to get_seals
/// (uapi/asm-generic/fcntl.h, uapi/linux/fcntl.h).
fn only_reads(command: u64) -> bool {
    matches!(command, 0..=4 | 6..=9 | 13 | 14 | 37 | 38 | 1030..=1034)
}

/// The effect of `ioctl`: settings and size of a terminal, bytes to read, flags of the file
/// (uapi/asm-generic/ioctls.h).
fn of_ioctl(command: Option<u64>) -> Effect {
    match command {
        // TCGETS (`struct termios`), TIOCGWINSZ, FIONREAD.
        Some(0x5401) => Effect::structure(Argument::Third, 36),
        Some(0x5413) => Effect::structure(Argument::Third, 8),
        Some(0x541b) => Effect::structure(Argument::Third, 4),
        // TCSETS, TCSETSW, TCSETSF; FIONBIO, FIONCLEX, FIOCLEX.
        Some(0x5402..=0x5404 | 0x5421 | 0x5450 | 0x5451) => Effect::Nothing,
        _ => Effect::Unknown,
    }
}

/// The effect of a system call of A64 (asm-generic/unistd.h).
pub(in crate::recover) fn of_a64(number: u64, arguments: Arguments) -> Effect {
    use Argument::{First, Fourth, Second, Third};
    match number {
        25 => Effect::nothing_if(arguments.second, only_reads),
        98 => Effect::nothing_if(arguments.second, only_waits),
        29 => of_ioctl(arguments.second),
        // getcwd, getrandom.
        17 | 278 => Effect::buffer(First, Second),
        // getdents64, read, pread64.
        61 | 63 | 67 => Effect::buffer(Second, Third),
        // readlinkat.
        78 => Effect::buffer(Third, Fourth),
        // sched_getaffinity.
        123 => Effect::buffer(Third, Second),
        // pipe2, times, uname, sysinfo.
        59 => Effect::structure(First, 8),
        153 => Effect::structure(First, 32),
        160 => Effect::structure(First, 390),
        179 => Effect::structure(First, 112),
        // statfs, fstatfs; fstat; nanosleep, clock_gettime, clock_getres, getrlimit; sigaltstack;
        // getrusage.
        43 | 44 => Effect::structure(Second, 120),
        80 => Effect::structure(Second, 128),
        101 | 113 | 114 | 163 => Effect::structure(Second, 16),
        132 => Effect::structure(Second, 24),
        165 => Effect::structure(Second, 144),
        // newfstatat, rt_sigaction, rt_sigprocmask.
        79 => Effect::structure(Third, 128),
        134 => Effect::structure(Third, 32),
        135 => Effect::structure(Third, 8),
        // setxattr, lsetxattr, fsetxattr; dup to dup3; mknodat to renameat;
        // ftruncate to fchown; openat, close; lseek; write; writev; pwrite64; pwritev.
        5..=7 | 23 | 24 | 33..=38 | 45..=55 | 56 | 57 | 62 | 64 | 66 | 68 | 70 => Effect::Nothing,
        // sendfile; clock_nanosleep.
        71 => Effect::structure(Third, 8),
        115 => Effect::structure(Fourth, 16),
        // eventfd2, epoll_create1, epoll_ctl, inotify_init1 to inotify_rm_watch, flock; sync_file_range,
        // timerfd_create, utimensat, capset, personality; sched_getscheduler, sched_setaffinity.
        19..=21 | 26..=28 | 32 | 84 | 85 | 88 | 91 | 92 | 120 | 122 => Effect::Nothing,
        // setrlimit, mlock, munlock; memfd_create, membarrier; close_range, openat2, faccessat2.
        164 | 228 | 229 | 279 | 283 | 436 | 437 | 439 => Effect::Nothing,
        // prlimit64; wait4 without `struct rusage`; rseq.
        261 => Effect::structure(Fourth, 16),
        260 if arguments.fourth == Some(0) => Effect::structure(Second, 4),
        293 => Effect::structure(First, 32),
        // sync to fdatasync, exit, exit_group, set_tid_address, set_robust_list.
        81..=83 | 93 | 94 | 96 | 99 => Effect::Nothing,
        // sched_yield; kill, tkill, tgkill; setpriority, getpriority.
        124 | 129..=131 | 140 | 141 => Effect::Nothing,
        // setregid to setfsgid except getters through pointers; umask; getpid to gettid.
        143..=147 | 149 | 151 | 152 | 154..=157 | 166 | 172..=178 => Effect::Nothing,
        // socket, bind, listen, connect, sendto, setsockopt, shutdown.
        198 | 200 | 201 | 203 | 206 | 208 | 210 => Effect::Nothing,
        // fadvise64, mprotect, msync.
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
pub(in crate::recover) fn of_arm(number: u64, arguments: Arguments) -> Effect {
    use Argument::{First, Fourth, Second, Third};
    match number {
        // fcntl, fcntl64; futex, futex_time64; ioctl.
        55 | 221 => Effect::nothing_if(arguments.second, only_reads),
        240 | 422 => Effect::nothing_if(arguments.second, only_waits),
        54 => of_ioctl(arguments.second),
        // getcwd, getrandom.
        183 | 384 => Effect::buffer(First, Second),
        // read, getdents64. (pread64 passes its offset in registers that do not affect the buffer.)
        3 | 180 | 217 => Effect::buffer(Second, Third),
        // readlink, readlinkat.
        85 => Effect::buffer(Second, Third),
        332 => Effect::buffer(Third, Fourth),
        // sched_getaffinity.
        242 => Effect::buffer(Third, Second),
        // pipe, pipe2, times, uname, sysinfo.
        42 | 359 => Effect::structure(First, 8),
        43 => Effect::structure(First, 16),
        122 => Effect::structure(First, 390),
        116 => Effect::structure(First, 64),
        // stat64, lstat64, fstat64; nanosleep, clock_gettime, ugetrlimit, clock_gettime64; sigaltstack;
        // getrusage.
        195..=197 => Effect::structure(Second, 104),
        162 | 263 | 191 => Effect::structure(Second, 8),
        403 => Effect::structure(Second, 16),
        186 => Effect::structure(Second, 12),
        77 => Effect::structure(Second, 72),
        // fstatat64, rt_sigaction, rt_sigprocmask.
        327 => Effect::structure(Third, 104),
        174 => Effect::structure(Third, 20),
        175 => Effect::structure(Third, 8),
        // _llseek; statfs64, fstatfs64; sendfile, sendfile64; clock_getres, clock_getres_time64;
        // clock_nanosleep_time64.
        140 => Effect::structure(Fourth, 8),
        266 | 267 => Effect::structure(Third, 88),
        187 => Effect::structure(Third, 4),
        239 => Effect::structure(Third, 8),
        264 => Effect::structure(Second, 8),
        406 => Effect::structure(Second, 16),
        407 => Effect::structure(Fourth, 16),
        // setrlimit, personality, mlock, munlock, sched_getscheduler, sched_setaffinity, epoll_ctl;
        // inotify_add_watch, inotify_rm_watch, utimensat, eventfd, eventfd2, epoll_create1,
        // inotify_init1; memfd_create, membarrier, utimensat_time64, close_range, openat2, faccessat2.
        75 | 136 | 150 | 151 | 157 | 241 | 251 => Effect::Nothing,
        317 | 318 | 348 | 351 | 356 | 357 | 360 => Effect::Nothing,
        385 | 389 | 412 | 436 | 437 | 439 => Effect::Nothing,
        // prlimit64; wait4 without `struct rusage`; rseq.
        369 => Effect::structure(Fourth, 16),
        114 if arguments.fourth == Some(0) => Effect::structure(Second, 4),
        398 => Effect::structure(First, 32),
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

/// System calls of A64 that fill memory through pointers in the fifth or sixth argument, or in
/// structures: readv, preadv, pselect6, splice, prctl, recvfrom, getsockopt, recvmsg,
/// get_mempolicy, recvmmsg, process_vm_readv, preadv2, statx.
const FILL_FURTHER: [u64; 13] = [65, 69, 72, 76, 167, 207, 209, 212, 236, 243, 270, 286, 291];

/// The same for AArch32, and _newselect.
const FILL_FURTHER_ARM: [u64; 14] = [
    145, 361, 142, 335, 340, 172, 292, 295, 297, 320, 365, 376, 392, 397,
];

/// The assumed maximum size of a structure or buffer on the stack that a system call fills.
const LARGEST: u64 = 1 << 16;

/// The ranges of the stack that a system call may fill, where its arguments are known: its buffer
/// or, if its effect is unknown, the memory after each address.
pub(in crate::recover) fn filled(
    effect: Effect,
    arguments: Arguments,
) -> impl Iterator<Item = Range<u64>> {
    let starts = match effect {
        Effect::Fills(buffer) => [arguments.get(buffer.address), None, None, None],
        Effect::Unknown => [
            arguments.first,
            arguments.second,
            arguments.third,
            arguments.fourth,
        ],
        Effect::Nothing | Effect::Layout(_) => [None; 4],
    };
    let size = match effect {
        Effect::Fills(buffer) => buffer.size(arguments),
        _ => None,
    };
    let size = size.unwrap_or(LARGEST).min(LARGEST);
    let starts = starts.into_iter().flatten().filter(|start| *start != 0);
    starts.map(move |start| untagged(start)..untagged(start).saturating_add(size))
}

/// Whether a system call whose effect is unknown may fill the eight bytes at an address: if one of
/// its first arguments points close before it, or further pointers may.
pub(in crate::recover) fn may_fill(
    call: u64,
    narrow: bool,
    arguments: Arguments,
    address: u64,
) -> bool {
    let further = match narrow {
        true => FILL_FURTHER_ARM.contains(&call),
        false => FILL_FURTHER.contains(&call),
    };
    let after = address.saturating_add(8);
    let mut ranges = filled(Effect::Unknown, arguments);
    further || ranges.any(|range| range.start < after && address < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Arguments = Arguments {
        first: None,
        second: None,
        third: None,
        fourth: None,
        result: None,
    };

    fn spares(effect: Effect, arguments: Arguments, address: u64) -> bool {
        match effect {
            Effect::Fills(buffer) => buffer.spares(arguments, address),
            Effect::Nothing => true,
            Effect::Layout(_) | Effect::Unknown => false,
        }
    }

    #[test]
    fn what_is_outside_of_a_buffer_stays() {
        let read = Arguments {
            second: Some(0x1004),
            third: Some(0x10),
            ..UNKNOWN
        };
        let tagged = Arguments {
            second: Some(0xab00_0000_0000_1004),
            ..read
        };
        let kept = |address| spares(of_a64(63, tagged), tagged, address);
        assert_eq!(
            [0xff8, 0x1000, 0x1010, 0x1018].map(kept),
            [true, false, false, true]
        );
        for (number, of) in [(63, of_a64 as fn(_, _) -> _), (3, of_arm)] {
            let kept = |address| spares(of(number, read), read, address);
            assert_eq!(
                [0xff8, 0x1000, 0x1010, 0x1018].map(kept),
                [true, false, false, true]
            );
            // Only its size is known, or only its address.
            let size = Arguments {
                second: None,
                ..read
            };
            assert!(!spares(of(number, size), size, 0xff8));
            let address = Arguments {
                third: None,
                ..read
            };
            assert!(spares(of(number, address), address, 0xff8));
            assert!(!spares(of(number, address), address, 0x8000));
        }
    }

    #[test]
    fn a_structure_that_is_not_wanted_is_not_written() {
        let sigaction = |old| Arguments {
            third: Some(old),
            ..UNKNOWN
        };
        let kept = |old, address| spares(of_a64(134, sigaction(old)), sigaction(old), address);
        assert!(kept(0, 0) && kept(0, 0x1000));
        assert!(!kept(0x1000, 0x1018) && kept(0x1000, 0x1020));
        assert!(kept(u64::MAX - 3, 0x1000), "up to the last address");
        assert!(!kept(u64::MAX - 3, !7));
    }

    #[test]
    fn commands_decide() {
        let with = |second| Arguments {
            second: Some(second),
            ..UNKNOWN
        };
        // futex: a private wait, and one that writes; fcntl: F_GETFL, F_GETLK; ioctl: TCGETS, another.
        for (number, harmless, other) in [(98, 128, 5), (25, 3, 5), (29, 0x5401, 0x5480)] {
            assert_ne!(of_a64(number, with(harmless)), Effect::Unknown, "{number}");
            assert_eq!(of_a64(number, with(other)), Effect::Unknown, "{number}");
            assert_eq!(of_a64(number, UNKNOWN), Effect::Unknown, "{number}");
        }
    }

    #[test]
    fn an_unknown_call_may_fill_what_its_arguments_point_to() {
        let ioctl = Arguments {
            first: Some(1),
            second: Some(0x5413),
            third: Some(0x55_0000_1000),
            ..UNKNOWN
        };
        let fills = |call, address| may_fill(call, false, ioctl, address);
        let places = [
            0x55_0000_0ff8,
            0x55_0000_1000,
            0x55_0000_1010,
            0x55_0002_0000,
        ];
        assert_eq!(places.map(|at| fills(29, at)), [false, true, true, false]);
        assert!(places.into_iter().all(|at| fills(291, at)));
        assert!(!may_fill(29, false, UNKNOWN, 0x1000));
    }
}
