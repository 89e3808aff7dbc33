//! What system calls do to the replayed program.

use super::Stopped;
use super::memory::{Memory, PAGE};
use crate::recover::bits::untagged;
use crate::recover::facts::final_state::FinalMemory;
use crate::recover::kernel::system_calls::{
    Arguments, BufferSize, Change, Effect, KernelBuffer, further_buffer, of,
};
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
    /// Applies a call to what is known before it. Returns the addresses whose contents it changed, or
    /// may have.
    pub fn call(
        &mut self,
        call: &Call<'_>,
        architecture: Architecture,
        values: &mut Values,
        memory: &mut Memory,
        saved: &dyn FinalMemory,
    ) -> Result<Range<u64>, Stopped> {
        let narrow = architecture != Architecture::AArch64;
        if !agrees(call, narrow, values) {
            return Err(Stopped::CallDiffers);
        }
        let [first, second, third, fourth, ..] = call.arguments;
        let arguments = Arguments {
            first: Some(first),
            second: Some(second),
            third: Some(third),
            fourth: Some(fourth),
            result: Some(call.result),
        };
        let result = match narrow {
            true => i64::from(call.result as i32),
            false => call.result.cast_signed(),
        };
        if (-600..-500).contains(&result) {
            // Codes of the emulator: the call is made again, or returns from a signal's handler.
            return Err(Stopped::Call(call.number));
        }
        let failed = (-LAST_ERROR..0).contains(&result);
        let mut changed = 0..0;
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
            Effect::Unknown => match further_buffer(architecture, call.number) {
                Some(KernelBuffer {
                    argument,
                    size: BufferSize::Bytes(size),
                    ..
                }) => {
                    let start = untagged(call.arguments[usize::from(argument)]);
                    changed = start..start.saturating_add(size);
                    memory.forget(changed.clone());
                }
                _ => return Err(Stopped::Call(call.number)),
            },
        }
        for piece in &call.memory {
            add(memory, piece, saved);
            if memory.is_full() {
                return Err(Stopped::Full);
            }
        }
        values[0] = Some(call.result);
        Ok(changed)
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
