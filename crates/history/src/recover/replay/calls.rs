//! What system calls do to the replayed program.

use super::Stopped;
use super::memory::{Memory, PAGE};
use crate::recover::bits::untagged;
use crate::recover::facts::final_state::FinalMemory;
use crate::recover::kernel::outputs::further_buffers;
use crate::recover::kernel::system_calls::{Arguments, Change, Effect, of};
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::{Location, Values};
use armsnap_snapshot::snapshot::replay::{Call, Contents, Piece, checksum};
use std::ops::Range;

/// The largest piece of saved memory that is taken.
const LARGEST: u64 = 256 << 20;

/// The largest number that the kernel returns for an error.
const LAST_ERROR: i64 = 4095;

/// The private system calls of AArch32 (Linux, arch/arm/include/uapi/asm/unistd.h) begin here.
const PRIVATE: u64 = 0xf_0000;
const CACHEFLUSH: u64 = PRIVATE + 2;
const SET_TLS: u64 = PRIVATE + 5;
const GET_TLS: u64 = PRIVATE + 6;

/// The result of a call that the kernel does not have (`ENOSYS`).
const NO_SUCH_CALL: i64 = -38;

/// Whether a call may make memory visible to others in a way that is not modelled: shmat, mremap and
/// remap_file_pages.
pub fn may_share(architecture: Architecture, number: u64) -> bool {
    match architecture {
        Architecture::AArch64 => matches!(number, 196 | 216 | 234),
        _ => matches!(number, 305 | 163 | 253),
    }
}

/// Makes one of the private system calls of AArch32, which are not recorded. Returns whether it is one.
pub fn is_private(values: &mut Values) -> bool {
    let thread_pointer = Location::THREAD_POINTER.index();
    match values[7] {
        Some(CACHEFLUSH) => values[0] = None,
        Some(SET_TLS) => (values[thread_pointer], values[0]) = (values[0], Some(0)),
        Some(GET_TLS) => values[0] = values[thread_pointer],
        _ => return false,
    }
    true
}

/// The kernel's view of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel {
    /// The end of the heap, once a call has returned it.
    heap_end: Option<u64>,
}

/// Adds recorded memory.
pub fn add(memory: &mut Memory, piece: &Piece<'_>, saved: &dyn FinalMemory) {
    let range = piece.address..piece.address.saturating_add(piece.length);
    match piece.contents {
        Contents::Zeros => memory.clear(range),
        Contents::Gone => memory.forget(range),
        Contents::Bytes(bytes) => memory.write(piece.address, bytes),
        Contents::AsSaved(hash) => {
            let mut bytes = vec![0; piece.length.min(LARGEST) as usize];
            let mut known = 0;
            while known < bytes.len() {
                match saved.read(piece.address + known as u64, &mut bytes[known..]) {
                    0 => break,
                    more => known += more,
                }
            }
            let is_whole = piece.length == known as u64;
            match is_whole && checksum(&bytes) == hash {
                true => memory.write(piece.address, &bytes),
                false => memory.forget(range),
            }
        }
    }
}

impl Kernel {
    /// Applies a call to what is known before it. Returns the ranges whose contents it changed,
    /// or may have.
    pub fn call(
        &mut self,
        call: &Call<'_>,
        architecture: Architecture,
        values: &mut Values,
        memory: &mut Memory,
        saved: &dyn FinalMemory,
    ) -> Result<Vec<Range<u64>>, Stopped> {
        let narrow = architecture != Architecture::AArch64;
        if !agrees(call, narrow, values) {
            return Err(Stopped::CallDiffers);
        }
        let [first, second, third, fourth, ..] = call.arguments;
        let arguments = Arguments::of(call.arguments, Some(call.result));
        let result = signed(call.result, architecture);
        if (-600..-500).contains(&result) {
            // Codes of the emulator: the call is made again, or returns from a signal's handler.
            return Err(Stopped::Call(call.number));
        }
        let failed = (-LAST_ERROR..0).contains(&result);
        let (mut changed, mut many) = (0..0, Vec::new());
        match of(architecture, call.number, arguments) {
            Effect::Nothing => {}
            Effect::Fills(buffer) => {
                let range = buffer.filled(arguments, result);
                changed = range.ok_or(Stopped::Call(call.number))?;
                // The emulator ends a link's text with a zero after the result.
                let is_link = match narrow {
                    true => matches!(call.number, 85 | 332),
                    false => call.number == 78,
                };
                changed.end = changed.end.saturating_add(u64::from(is_link));
                memory.forget(changed.clone());
            }
            Effect::Layout(Change::Break) => match self.heap_end.replace(call.result) {
                Some(before) if before == call.result => {}
                Some(before) => {
                    let (least, most) = (before.min(call.result), before.max(call.result));
                    changed = least..pages(most, 0).end;
                    memory.forget(changed.clone());
                }
                None if first == 0 => {}
                None => return Err(Stopped::Call(call.number)),
            },
            Effect::Layout(_) if failed => {}
            Effect::Layout(Change::Unmap) => {
                memory.set_foreign(pages(first, second), false);
                memory.forget(pages(first, second));
            }
            Effect::Layout(Change::Map) => {
                changed = pages(call.result, second);
                memory.forget(changed.clone());
                memory.set_foreign(changed.clone(), fourth & 1 != 0);
            }
            Effect::Layout(Change::Move) => {
                // MREMAP_DONTUNMAP, and a size of 0, keep what was there.
                if fourth & 4 != 0 || second == 0 {
                    return Err(Stopped::Call(call.number));
                }
                let (from, to) = (pages(first, second), pages(call.result, third));
                let length = to.end.saturating_sub(to.start);
                let kept = from.end.min(from.start.saturating_add(length));
                let is_foreign = memory.has_foreign(&from);
                changed = to.clone();
                if from.start == to.start {
                    memory.forget(kept..from.end.max(to.end));
                } else {
                    memory.set_foreign(to.clone(), false);
                    memory.forget(kept..from.end);
                    memory.move_pages(from.start..kept, to.start);
                    memory.forget(to.start.saturating_add(kept - from.start)..to.end);
                    memory.set_foreign(from, false);
                }
                if is_foreign {
                    memory.forget(to.clone());
                    memory.set_foreign(to, true);
                }
            }
            Effect::Layout(Change::Advise) => {
                if Change::Advise.takes(arguments, untagged(first)) != Some(false) {
                    changed = pages(first, second);
                    memory.forget(changed.clone());
                }
            }
            // The kernel does not have it.
            Effect::Unknown if result == NO_SUCH_CALL => {}
            Effect::Unknown => {
                many = further(call, architecture, result)?;
                many.iter().for_each(|range| memory.forget(range.clone()));
            }
        }
        for piece in &call.memory {
            add(memory, piece, saved);
            if memory.is_full() {
                return Err(Stopped::Full);
            }
            if !many.is_empty() {
                many.push(piece.address..piece.address.saturating_add(piece.length));
            }
        }
        values[0] = Some(call.result);
        many.push(changed);
        Ok(many)
    }
}

/// What a call with several buffers filled, or may have, as far as its record does not have it.
fn further(
    call: &Call<'_>,
    architecture: Architecture,
    result: i64,
) -> Result<Vec<Range<u64>>, Stopped> {
    /// `PR_GET_AUXV` of prctl(2) has a size.
    const AUXILIARY_VECTOR: u64 = 0x4155_5856;
    let buffers = further_buffers(architecture, call.number);
    let buffers = buffers.ok_or(Stopped::Call(call.number))?;
    if call.arguments[0] == AUXILIARY_VECTOR {
        return Err(Stopped::Call(call.number));
    }
    let mut filled = Vec::new();
    for buffer in buffers {
        let start = untagged(call.arguments[usize::from(buffer.argument)]);
        match buffer.size.bytes(call.arguments, result) {
            _ if start == 0 => {}
            Some(size) => filled.push(start..start.saturating_add(size)),
            // The record has what it is.
            None if buffer.size.is_recorded(result, !call.memory.is_empty()) => {}
            None => return Err(Stopped::Call(call.number)),
        }
    }
    Ok(filled)
}

/// What a call may write while other threads execute, before it returns as recorded.
pub fn written(call: &Call<'_>, architecture: Architecture) -> Result<Vec<Range<u64>>, Stopped> {
    let result = signed(call.result, architecture);
    let pieces = call.memory.iter();
    let pieces = pieces.map(|piece| piece.address..piece.address.saturating_add(piece.length));
    let mut all: Vec<Range<u64>> = pieces.collect();
    let arguments = Arguments::of(call.arguments, Some(call.result));
    match of(architecture, call.number, arguments) {
        Effect::Nothing => {}
        Effect::Fills(buffer) => {
            let filled = buffer.filled(arguments, result);
            let mut filled = filled.ok_or(Stopped::Call(call.number))?;
            // The zero after the text of a link.
            filled.end = filled.end.saturating_add(1);
            all.push(filled);
        }
        Effect::Unknown if result == NO_SUCH_CALL => {}
        Effect::Unknown => all.extend(further(call, architecture, result)?),
        // The thread keeps its turn, unless the emulator is slow.
        Effect::Layout(_) => return Err(Stopped::Call(call.number)),
    }
    all.retain(|range| !range.is_empty());
    Ok(all)
}

/// Whether a call with these arguments writes nothing, if they are known.
pub fn writes_nothing(
    architecture: Architecture,
    number: u64,
    arguments: [Option<u64>; 6],
) -> bool {
    let arguments = Arguments {
        first: arguments[0],
        second: arguments[1],
        third: arguments[2],
        fourth: arguments[3],
        result: None,
    };
    of(architecture, number, arguments) == Effect::Nothing
}

/// A result as a signed number.
fn signed(result: u64, architecture: Architecture) -> i64 {
    match architecture {
        Architecture::AArch64 => result.cast_signed(),
        _ => i64::from(result as i32),
    }
}

/// The pages of a range.
fn pages(start: u64, length: u64) -> Range<u64> {
    let start = untagged(start);
    let end = start.saturating_add(length).saturating_add(PAGE - 1);
    start / PAGE * PAGE..end / PAGE * PAGE
}

/// Whether the arguments of a call are what is known of the registers.
fn agrees(call: &Call<'_>, narrow: bool, values: &Values) -> bool {
    let number = values[if narrow { 7 } else { 8 }];
    let arguments = values.iter().zip(call.arguments);
    number.is_none_or(|number| number == call.number)
        && arguments
            .into_iter()
            .all(|(value, argument)| value.is_none_or(|value| value == argument))
}
