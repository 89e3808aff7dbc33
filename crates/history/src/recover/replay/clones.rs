//! System calls that start and end threads: clone(2) and exit(2).

use super::Stopped;
use super::machine::Processor;
use super::memory::Memory;
use super::thread::Thread;
use super::threads::Threads;
use crate::recover::bits::untagged;
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Location;
use armsnap_snapshot::snapshot::replay::Call;
use std::ops::Range;

// Flags (Linux, uapi/linux/sched.h).
const VM: u64 = 0x100;
const VFORK: u64 = 0x4000;
const SET_TLS: u64 = 0x8_0000;
const PARENT_SET_ID: u64 = 0x10_0000;
const CHILD_CLEAR_ID: u64 = 0x20_0000;
const CHILD_SET_ID: u64 = 0x100_0000;

/// The result of a call with invalid arguments (`EINVAL`).
const INVALID: i64 = -22;

/// The numbers of the calls.
struct Numbers {
    clone: u64,
    exit: u64,
    set_tid_address: u64,
}

impl Numbers {
    const fn of(narrow: bool) -> Self {
        if narrow {
            Self {
                clone: 120,
                exit: 1,
                set_tid_address: 256,
            }
        } else {
            Self {
                clone: 220,
                exit: 93,
                set_tid_address: 96,
            }
        }
    }
}

/// The arguments of clone(2).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Arguments {
    flags: u64,
    stack: u64,
    parent_id: u64,
    tls: u64,
    child_id: u64,
}

impl Arguments {
    fn new([flags, stack, parent_id, tls, child_id]: [u64; 5]) -> Self {
        Self {
            flags,
            stack,
            parent_id,
            tls,
            child_id,
        }
    }

    /// Whether a thread is started, not a process: the emulator makes vfork(2) a fork(2).
    fn is_thread(&self) -> bool {
        self.flags & VM != 0 && self.flags & VFORK == 0
    }

    /// Where its ID is written in the memory of the caller.
    fn written(self) -> impl Iterator<Item = Range<u64>> {
        let child = if self.is_thread() { CHILD_SET_ID } else { 0 };
        let all = [(PARENT_SET_ID, self.parent_id), (child, self.child_id)];
        let all = all
            .into_iter()
            .filter(move |(flag, _)| self.flags & flag != 0);
        all.map(|(_, at)| untagged(at)..untagged(at).saturating_add(4))
    }
}

/// The address at which the kernel clears the ID of the thread when it ends, if a call sets it.
pub(super) fn clears(call: &Call<'_>, architecture: Architecture) -> Option<u64> {
    let numbers = Numbers::of(architecture != Architecture::AArch64);
    (call.number == numbers.set_tid_address).then_some(call.arguments[0])
}

/// Whether a call starts or ends a thread or process.
pub(super) fn is_one(call: &Call<'_>, architecture: Architecture) -> bool {
    let Numbers { clone, exit, .. } = Numbers::of(architecture != Architecture::AArch64);
    call.number == clone || call.number == exit
}

/// Begins a system call of the executing thread. One that is started may execute before the call returns.
pub(super) fn begins(
    thread: &mut Thread,
    threads: &mut Threads,
    narrow: bool,
) -> Result<(), Stopped> {
    let Numbers { clone, .. } = Numbers::of(narrow);
    let Thread {
        processor,
        expected,
        ..
    } = thread;
    let number = processor.values[if narrow { 7 } else { 8 }];
    if number != Some(clone) {
        return Ok(());
    }
    let mut arguments = [0; 5];
    for (argument, value) in arguments.iter_mut().zip(&processor.values) {
        *argument = value.ok_or(Stopped::Call(clone))?;
    }
    let arguments = Arguments::new(arguments);
    for range in arguments.written() {
        processor.memory.forget(range);
    }
    if !arguments.is_thread() {
        return Ok(());
    }
    let mut born = Processor::new(processor.values, Memory::default());
    born.values[0] = Some(0);
    let stack_pointer = match narrow {
        true => Location::general(13),
        false => Location::SP,
    };
    if arguments.stack != 0 {
        born.values[stack_pointer.index()] = Some(arguments.stack);
    }
    if arguments.flags & SET_TLS != 0 {
        born.values[Location::THREAD_POINTER.index()] = Some(arguments.tls);
    }
    let clears = arguments.flags & CHILD_CLEAR_ID != 0;
    let born = Thread {
        clears: Some(if clears { arguments.child_id } else { 0 }),
        ..Thread::new(born, *expected)
    };
    threads.add(born);
    Ok(())
}

/// Applies a call that starts or ends a thread or process. Returns whether it does. `is_last`: nothing was
/// recorded after it.
pub(super) fn returns(
    thread: &mut Thread,
    threads: &mut Threads,
    call: &Call<'_>,
    architecture: Architecture,
    is_last: bool,
) -> Result<bool, Stopped> {
    let narrow = architecture != Architecture::AArch64;
    let numbers = Numbers::of(narrow);
    let Thread {
        processor, clears, ..
    } = thread;
    if let Some(address) = self::clears(call, architecture) {
        *clears = Some(address);
        return Ok(false);
    }
    if call.number == numbers.exit {
        let clears = clears.ok_or(Stopped::Call(call.number))?;
        if clears != 0 {
            // The kernel does so before another thread has its turn.
            let value = (!is_last).then_some(0);
            processor.memory.store(untagged(clears), 4, value);
        }
        return Ok(true);
    }
    if call.number != numbers.clone {
        return Ok(false);
    }
    let mut both = processor.values.iter().zip(call.arguments).take(5);
    if both.any(|(value, argument)| *value != Some(argument)) {
        return Err(Stopped::CallDiffers);
    }
    let [flags, stack, parent_id, tls, child_id, _] = call.arguments;
    let arguments = Arguments::new([flags, stack, parent_id, tls, child_id]);
    let result = match narrow {
        true => i64::from(call.result as i32),
        false => call.result.cast_signed(),
    };
    if result >= 0 {
        for range in arguments.written() {
            processor.memory.store(range.start, 4, Some(call.result));
        }
    } else if arguments.is_thread() {
        // The emulator has numbered it, unless it refuses the flags.
        threads.is_not_started(result == INVALID);
    }
    processor.values[0] = Some(call.result);
    Ok(true)
}
