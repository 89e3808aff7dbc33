//! Memory that Linux fills in further system calls: at several addresses, or of a size that depends on
//! their results. Recordings have its contents; without them, these calls may have written anything.

use armsnap_arch::arch::Architecture;

/// A part of the program's memory that a system call fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelBuffer {
    /// The number of the call.
    pub number: u64,
    /// The index of the argument with the buffer's address, from 0; there is none if the address is 0.
    pub argument: u8,
    /// The size of the buffer.
    pub size: BufferSize,
}

/// The result of a call with an address that cannot be accessed: it may have filled others before.
const EFAULT: i64 = -14;

/// The size of a buffer that a system call fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSize {
    /// At most this many bytes.
    Bytes(u64),
    /// The number of bytes in the argument with this index; the call returns how many it filled.
    Argument(u8),
    /// The argument with this index is a number of structures of this size, all of which may change.
    Structures(u8, u64),
    /// The call returns a number of structures of this size, at most the argument with this index.
    Returned(u8, u64),
    /// The argument with this index is the address of a `u32` with the number of bytes.
    Length(u8),
    /// The buffer is an array of `struct iovec`, whose length is the argument with this index; what they
    /// describe is filled.
    Vector(u8),
    /// The buffer is a `struct msghdr`; it and what it describes is filled.
    Message,
}

impl BufferSize {
    /// The number of bytes that a call with these arguments filled, or may have, if these say so.
    pub fn bytes(self, arguments: [u64; 6], result: i64) -> Option<u64> {
        let argument = |index: u8| arguments[usize::from(index)];
        let returned = result.max(0).cast_unsigned();
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Argument(index) if result == EFAULT => Some(argument(index)),
            Self::Argument(index) => Some(argument(index).min(returned)),
            Self::Structures(index, bytes) => argument(index).checked_mul(bytes),
            Self::Returned(most, bytes) => argument(most).min(returned).checked_mul(bytes),
            Self::Length(_) | Self::Vector(_) | Self::Message => None,
        }
    }

    /// Whether the record of a call has all that it filled: the size follows from memory.
    pub fn is_recorded(self, result: i64, has_memory: bool) -> bool {
        match self {
            _ if result == EFAULT => false,
            Self::Vector(_) => result <= 0 || has_memory,
            Self::Length(_) | Self::Message => result < 0 || has_memory,
            Self::Bytes(_) | Self::Argument(_) | Self::Structures(..) | Self::Returned(..) => false,
        }
    }

    /// The size in the form of four hexadecimal digits that the recorder's plugin reads.
    pub fn code(self) -> u64 {
        let small = |bytes: u64| bytes.min(0xfff);
        match self {
            Self::Bytes(bytes) => small(bytes),
            Self::Argument(index) => 0x8000 | u64::from(index),
            Self::Structures(index, bytes) => 0x9000 | (bytes & 0xff) << 4 | u64::from(index),
            Self::Returned(_, bytes) => 0xa000 | small(bytes),
            Self::Length(index) => 0xb000 | u64::from(index),
            Self::Vector(index) => 0xc000 | u64::from(index),
            Self::Message => 0xd000,
        }
    }
}

/// The arguments that a call fills, and how much of each.
type Fills = &'static [(u8, BufferSize)];

/// The buffers that a system call fills, if they are known.
pub(in crate::recover) fn further_buffers(
    architecture: Architecture,
    number: u64,
) -> Option<impl Iterator<Item = KernelBuffer>> {
    let fills = match architecture {
        Architecture::AArch64 => of_a64(number)?,
        Architecture::AArch32 | Architecture::MProfile => of_arm(number)?,
    };
    let buffers = fills.iter();
    Some(buffers.map(move |&(argument, size)| KernelBuffer {
        number,
        argument,
        size,
    }))
}

/// The calls of A64 (asm-generic/unistd.h).
fn of_a64(number: u64) -> Option<Fills> {
    use BufferSize::{Argument, Bytes, Length, Message, Returned, Structures, Vector};
    Some(match number {
        // getxattr to fgetxattr, listxattr to flistxattr.
        8..=10 => &[(2, Argument(3))],
        11..=13 => &[(1, Argument(2))],
        // epoll_pwait; fcntl: F_GETLK, F_GETOWN_EX.
        22 => &[(1, Returned(2, 16))],
        25 => &[(2, Bytes(32))],
        // readv, preadv, preadv2.
        65 | 69 | 286 => &[(1, Vector(2))],
        // pselect6: sets of at most 1024 files; ppoll.
        72 => &[
            (1, Bytes(128)),
            (2, Bytes(128)),
            (3, Bytes(128)),
            (4, Bytes(16)),
        ],
        73 => &[(0, Structures(1, 8)), (2, Bytes(16))],
        // splice, copy_file_range.
        76 | 285 => &[(1, Bytes(8)), (3, Bytes(8))],
        // timerfd_settime, timerfd_gettime; capget; waitid.
        86 | 110 => &[(3, Bytes(32))],
        87 | 108 | 102 => &[(1, Bytes(32))],
        90 => &[(0, Bytes(8)), (1, Bytes(24))],
        95 => &[(2, Bytes(128)), (4, Bytes(144))],
        // setitimer, timer_create.
        103 => &[(2, Bytes(32))],
        107 => &[(2, Bytes(8))],
        // timer_getoverrun, timer_delete; sched_setparam, sched_setscheduler.
        109 | 111 | 118 | 119 => &[],
        // sched_getparam, sched_rr_get_interval.
        121 => &[(1, Bytes(4))],
        127 => &[(1, Bytes(16))],
        // rt_sigpending, rt_sigtimedwait.
        136 => &[(0, Bytes(8))],
        137 => &[(1, Bytes(128))],
        // getresuid, getresgid; getgroups.
        148 | 150 => &[(0, Bytes(4)), (1, Bytes(4)), (2, Bytes(4))],
        158 => &[(1, Returned(0, 4))],
        // prctl; getcpu, gettimeofday.
        167 => &[(1, Bytes(64))],
        168 => &[(0, Bytes(4)), (1, Bytes(4))],
        169 => &[(0, Bytes(16)), (1, Bytes(8))],
        // socketpair; accept, accept4, getsockname, getpeername.
        199 => &[(3, Bytes(8))],
        202 | 204 | 205 | 242 => &[(1, Bytes(128)), (2, Bytes(4))],
        // recvfrom, getsockopt, sendmsg, recvmsg.
        207 => &[(1, Argument(2)), (4, Bytes(128)), (5, Bytes(4))],
        209 => &[(3, Length(4)), (4, Bytes(4))],
        211 => &[],
        212 => &[(1, Message)],
        // readahead, syncfs, renameat2; pidfd_send_signal, pidfd_open.
        213 | 267 | 276 | 424 | 434 => &[],
        // wait4 with `struct rusage`; statx.
        260 => &[(1, Bytes(4)), (3, Bytes(144))],
        291 => &[(4, Bytes(256))],
        _ => return None,
    })
}

/// The calls of the EABI of AArch32 (arch/arm/tools/syscall.tbl).
fn of_arm(number: u64) -> Option<Fills> {
    use BufferSize::{Argument, Bytes, Length, Message, Returned, Structures, Vector};
    Some(match number {
        // fcntl64: F_GETLK, F_GETLK64, F_GETOWN_EX.
        55 | 221 => &[(2, Bytes(32))],
        // gettimeofday, setitimer, getitimer; wait4 with `struct rusage`.
        78 => &[(0, Bytes(8)), (1, Bytes(8))],
        104 => &[(2, Bytes(16))],
        105 | 259 | 354 => &[(1, Bytes(16))],
        114 => &[(1, Bytes(4)), (3, Bytes(72))],
        // _newselect, pselect6; readv, preadv, preadv2.
        142 | 335 => &[
            (1, Bytes(128)),
            (2, Bytes(128)),
            (3, Bytes(128)),
            (4, Bytes(8)),
        ],
        145 | 361 | 392 => &[(1, Vector(2))],
        // sched_setparam, sched_setscheduler; sched_getparam, sched_rr_get_interval.
        154 | 156 => &[],
        155 => &[(1, Bytes(4))],
        161 => &[(1, Bytes(8))],
        // poll, ppoll, ppoll_time64.
        168 => &[(0, Structures(1, 8))],
        336 => &[(0, Structures(1, 8)), (2, Bytes(8))],
        414 => &[(0, Structures(1, 8)), (2, Bytes(16))],
        // prctl, rt_sigpending, rt_sigtimedwait, capget.
        172 => &[(1, Bytes(64))],
        176 => &[(0, Bytes(8))],
        177 => &[(1, Bytes(128))],
        184 => &[(0, Bytes(8)), (1, Bytes(24))],
        // getgroups32; getresuid32, getresgid32.
        205 => &[(1, Returned(0, 4))],
        209 | 211 => &[(0, Bytes(4)), (1, Bytes(4)), (2, Bytes(4))],
        // getxattr to fgetxattr, listxattr to flistxattr.
        229..=231 => &[(2, Argument(3))],
        232..=234 => &[(1, Argument(2))],
        // epoll_wait, epoll_pwait.
        252 | 346 => &[(1, Returned(2, 16))],
        // timer_create, timer_settime, timerfd_settime; timer_getoverrun, timer_delete; waitid.
        257 => &[(2, Bytes(8))],
        258 | 353 => &[(3, Bytes(16))],
        260 | 261 => &[],
        280 => &[(2, Bytes(128)), (4, Bytes(72))],
        // socketpair; accept, accept4, getsockname, getpeername.
        288 => &[(3, Bytes(8))],
        285 | 366 | 286 | 287 => &[(1, Bytes(128)), (2, Bytes(4))],
        // recvfrom, getsockopt, sendmsg, recvmsg.
        292 => &[(1, Argument(2)), (4, Bytes(128)), (5, Bytes(4))],
        295 => &[(3, Length(4)), (4, Bytes(4))],
        296 => &[],
        297 => &[(1, Message)],
        // splice, copy_file_range; getcpu; statx.
        340 | 391 => &[(1, Bytes(8)), (3, Bytes(8))],
        345 => &[(0, Bytes(4)), (1, Bytes(4))],
        397 => &[(4, Bytes(256))],
        _ => return None,
    })
}
