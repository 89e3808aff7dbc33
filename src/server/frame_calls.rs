//! Whether the open call assumed for a frame is the frame's own.
//!
//! The open calls come from the trace, which does not contain the stack pointer. If a program switches
//! stacks, as coroutines and tasks do, the innermost open call may be on another stack. Then its
//! registers say nothing about the frame, and its caller is not the frame's caller.

use gdbstub::common::Tid;

use super::memory::MemoryView;
use super::process_stack::sets_process_stack;
use super::target::SnapshotTarget;
use armsnap_arch::arch::Architecture;
use armsnap_history::calls::OpenCall;

/// Maximum size of a function's code that is searched for a stack switch.
const SEARCHED: usize = 1 << 12;
/// Size of the prologue in which call frame information may not be exact yet.
const PROLOGUE: u64 = 32;

/// The owner of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// What is known of the frame.
    Frame,
    /// A frame on another stack, or none. The start of this frame is known.
    Other,
    /// Possibly a frame on another stack: stacks were switched, and the start of this frame is not
    /// known.
    Unknown,
}

/// Compares a call with the frame at `pc`, an address inside its function. `entry` is the stack pointer
/// at the start of the call, and `register` returns a register of the frame by name.
pub(super) fn owner(
    target: &SnapshotTarget,
    thread: Tid,
    (call, entry): (&OpenCall, Option<u64>),
    pc: u64,
    register: impl Fn(&str) -> Option<u64>,
) -> Owner {
    if call.exception && !call.signal {
        return Owner::Frame;
    }
    let symbols = target.symbols();
    let start = symbols.start(pc);
    let is_same = start.is_some() && start == symbols.start(call.function.0);
    let (Some(stack), Some(entry)) = (register("sp"), entry) else {
        // Go's functions that switch stacks jump to other functions that do it.
        let function = call.function.0;
        let switches =
            || target.go().contains(function) || switches_stacks(target, thread, function);
        return match !is_same && switches() {
            true => Owner::Unknown,
            false => Owner::Frame,
        };
    };
    let found = frame_address(target, pc, register);
    // A stack grows towards lower addresses.
    if stack > entry {
        return found.map_or(Owner::Unknown, |_| Owner::Other);
    }
    // In an epilogue without call frame information the address is too high, in a prologue without
    // it too low.
    let is_other = |frame: u64| {
        let is_inside = start.is_some_and(|start| pc.wrapping_sub(start) >= PROLOGUE);
        frame != entry && (!is_same || (frame < entry && is_inside))
    };
    match found.is_some_and(is_other) {
        true => Owner::Other,
        false => Owner::Frame,
    }
}

/// Returns the start of the frame of an instruction, from call frame information and the registers
/// there.
pub(super) fn frame_address(
    target: &SnapshotTarget,
    pc: u64,
    register: impl Fn(&str) -> Option<u64>,
) -> Option<u64> {
    let frame = target.call_frames().at(pc)?;
    let value = register(&name(target.endpoint.architecture(), frame.register)?)?;
    Some(value.wrapping_add_signed(frame.offset))
}

/// Returns the name of a register by its number in DWARF (AADWARF64 4.1, AADWARF32 4.1).
fn name(architecture: Architecture, number: u16) -> Option<String> {
    match (architecture, number) {
        (Architecture::AArch64, 31) => Some("sp".to_owned()),
        (Architecture::AArch64, 0..=30) => Some(format!("x{number}")),
        (Architecture::AArch32 | Architecture::MProfile, 13) => Some("sp".to_owned()),
        (Architecture::AArch32 | Architecture::MProfile, 0..=12) => Some(format!("r{number}")),
        _ => None,
    }
}

/// Returns whether a function sets the stack pointer from a register other than the frame pointer, or
/// from memory.
fn switches_stacks(target: &SnapshotTarget, thread: Tid, function: u64) -> bool {
    let symbols = target.symbols();
    let (Some(extent), Some(core)) = (symbols.extent(function), target.core(thread)) else {
        return false;
    };
    let length = usize::try_from(extent.end - extent.start).unwrap_or(SEARCHED);
    let mut code = vec![0; length.min(SEARCHED)];
    let view = &MemoryView::Current;
    let moment = target.moment(thread);
    let known = target
        .endpoint
        .read(core, view, moment, extent.start, &mut code);
    code.truncate(known);
    if target.endpoint.architecture() == Architecture::AArch64 {
        return words(&code).any(sets_stack_a64);
    }
    let halves: Vec<u16> = code
        .chunks_exact(2)
        .map(|half| u16::from_le_bytes([half[0], half[1]]))
        .collect();
    words(&code).any(sets_stack_a32)
        || halves
            .windows(2)
            .any(|pair| sets_stack_t32(pair[0], pair[1]))
}

fn words(code: &[u8]) -> impl Iterator<Item = u32> {
    let words = code.chunks_exact(4);
    words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

/// `mov sp, xN`.
fn sets_stack_a64(word: u32) -> bool {
    let from = word >> 5 & 31;
    word & 0xffff_fc1f == 0x9100_001f && from != 29 && from != 31
}

/// `mov sp, rN`; `ldr sp, [rN, ...]`; `ldm rN, {..., sp, ...}`.
fn sets_stack_a32(word: u32) -> bool {
    let from = word & 15;
    let base = word >> 16 & 15;
    (word & 0x0fff_fff0 == 0x01a0_d000 && from != 11 && from != 13)
        || (word & 0x0e50_f000 == 0x0410_d000 && base != 13)
        || (word & 0x0e50_2000 == 0x0810_2000 && base != 11 && base != 13 && word >> 28 != 15)
}

/// `mov sp, rN`; `ldr.w sp, [rN, ...]`; `msr psp, rN`.
fn sets_stack_t32(first: u16, second: u16) -> bool {
    let from = first >> 3 & 15;
    (first & 0xff87 == 0x4685 && from != 7 && from != 13)
        || (first & 0xff70 == 0xf850 && first & 15 != 13 && second >> 12 == 13)
        || sets_process_stack(first, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_stacks_are_recognised() {
        // mov sp, x2; mov sp, x29; mov x29, sp; add sp, sp, #0x10.
        let a64 = [0x9100_005f, 0x9100_03bf, 0x9100_03fd, 0x9100_43ff];
        assert_eq!(a64.map(sets_stack_a64), [true, false, false, false]);
        // mov sp, r1; mov sp, fp; ldr sp, [r0, #4]; pop {sp}, as ldr; sub sp, sp, #8.
        let a32 = [
            0xe1a0_d001,
            0xe1a0_d00b,
            0xe590_d004,
            0xe49d_d004,
            0xe24d_d008,
        ];
        assert_eq!(a32.map(sets_stack_a32), [true, false, true, false, false]);
        // mov sp, r1; mov sp, r7; ldr.w sp, [r0]; msr psp, r0; mov r7, sp.
        let t32 = [
            (0x468d, 0),
            (0x46bd, 0),
            (0xf8d0, 0xd000),
            (0xf380, 0x8809),
            (0x466f, 0),
        ];
        let found = t32.map(|(first, second)| sets_stack_t32(first, second));
        assert_eq!(found, [true, false, true, true, false]);
    }

    #[test]
    fn registers_of_call_frame_information_have_names() {
        let of = |architecture, number| name(architecture, number).unwrap_or_default();
        assert_eq!(of(Architecture::AArch64, 31), "sp");
        assert_eq!(of(Architecture::AArch64, 29), "x29");
        assert_eq!(of(Architecture::AArch64, 64), "");
        assert_eq!(of(Architecture::MProfile, 7), "r7");
        assert_eq!(of(Architecture::AArch32, 13), "sp");
    }
}
