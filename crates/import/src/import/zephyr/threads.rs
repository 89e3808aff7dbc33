//! The threads of a dump: the kernel's list of them (`CONFIG_THREAD_MONITOR`), read with the
//! offsets in a program with `CONFIG_DEBUG_THREAD_INFO`.

use super::registers::{Core, register};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::rtos::zephyr::{Field, Offsets};
use armsnap_snapshot::snapshot::model::Register;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The maximum number of threads.
pub const MOST: usize = 4096;
/// The maximum length of a name (`CONFIG_THREAD_MAX_NAME_LEN` is 32 by default).
const LONGEST_NAME: usize = 128;
/// The size of the registers that an exception of a Cortex-M saves, and of its FPU registers
/// (Armv7-M ARM DDI 0403, B1.5.6).
const FRAME: u64 = 32;
const FLOAT_FRAME: u64 = 72;

/// The memory of a dump and its program.
pub struct Memory<'d> {
    /// The dump.
    pub bytes: &'d [u8],
    /// The blocks of memory by address.
    pub blocks: BTreeMap<u64, Range<usize>>,
    /// The program.
    pub elf: &'d Elf,
    /// Whether pointers have 64 bits.
    pub wide: bool,
}

impl Memory<'_> {
    /// Bytes from a block. Blocks overlap: the memory of a thread may also be in the block of all
    /// memory.
    fn at(&self, address: u64, length: usize) -> Option<&[u8]> {
        const TRIED: usize = 16;
        let before = self.blocks.range(..=address).rev().take(TRIED);
        before.into_iter().find_map(|(start, range)| {
            let skipped = usize::try_from(address - start).ok()?;
            self.bytes[range.clone()].get(skipped..)?.get(..length)
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.at(address, if self.wide { 8 } else { 4 }).map(number)
    }
}

fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The kernel's list of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The address of the thread that was running on the first CPU.
    pub current: Option<u64>,
    /// The addresses of all threads that were found.
    pub threads: Vec<u64>,
    /// Whether the list continues in unknown memory, has a cycle, or is too long.
    pub is_cut: bool,
}

/// Reads the list; `kernel` contains the bytes of `_kernel`.
pub fn list(kernel: &[u8], offsets: &Offsets, memory: &Memory<'_>) -> Option<List> {
    let size = if memory.wide { 8 } else { 4 };
    let field = |field: Field| {
        let at = usize::try_from(offsets.get(field)?).ok()?;
        kernel.get(at..)?.get(..size).map(number)
    };
    let next = offsets.get(Field::Next)?;
    let mut out = List {
        current: field(Field::Current).filter(|thread| *thread != 0),
        ..List::default()
    };
    let mut known = BTreeSet::new();
    let mut thread = field(Field::Threads)?;
    while thread != 0 {
        if out.threads.len() == MOST || !known.insert(thread) {
            out.is_cut = true;
            break;
        }
        out.threads.push(thread);
        let Some(after) = memory.word(thread.wrapping_add(next)) else {
            out.is_cut = true;
            break;
        };
        thread = after;
    }
    Some(out)
}

/// The name of a thread.
pub fn name(thread: u64, offsets: &Offsets, memory: &Memory<'_>) -> Option<String> {
    let at = thread.wrapping_add(offsets.get(Field::Name)?);
    let bytes = (0..LONGEST_NAME as u64).map_while(|index| {
        let byte = memory.at(at.wrapping_add(index), 1)?[0];
        (byte != 0).then_some(byte)
    });
    let bytes: Vec<u8> = bytes.collect();
    let name = String::from_utf8_lossy(&bytes).into_owned();
    (!name.is_empty()).then_some(name)
}

/// The registers that the kernel saved when it switched to another thread. `callee_saved` is their
/// offset in a thread of a Cortex-M, if the dump contains it.
pub fn registers(
    core: Core,
    thread: u64,
    callee_saved: Option<u64>,
    offsets: &Offsets,
    memory: &Memory<'_>,
) -> Option<Vec<Register>> {
    let place = offsets.get(Field::Stack)?;
    match core {
        Core::AArch64 => aarch64(thread.wrapping_add(place), memory),
        Core::MProfile => {
            let before = place.checked_sub(FRAME);
            let agrees = callee_saved.is_none() || callee_saved == before;
            let saved = before.filter(|_| agrees);
            m_profile(thread, place, saved, offsets, memory)
        }
        Core::AProfile => None,
    }
}

/// `struct _callee_saved` of ARM64: X19 to X29, SP_EL0, SP, X30; the thread continues at X30.
fn aarch64(stack: u64, memory: &Memory<'_>) -> Option<Vec<Register>> {
    let bytes = memory.at(stack.wrapping_sub(96), 112)?;
    let word = |index: usize| &bytes[8 * index..8 * index + 8];
    let return_address = number(word(13));
    // If it is not a thread, these do not refer to code and a stack.
    let stack = number(word(12));
    let ends = [stack, stack.wrapping_sub(1)];
    let has_stack = ends.iter().any(|at| memory.at(*at, 1).is_some());
    let code = memory.elf.slice(return_address);
    code.filter(|_| return_address != 0 && has_stack)?;
    let names = (19..30).map(|number| format!("X{number}"));
    let mut out: Vec<Register> = names
        .enumerate()
        .map(|(index, name)| register(&name, word(index)))
        .collect();
    out.push(register("SP_EL0", word(11)));
    out.push(register("SP", word(12)));
    out.push(register("X30", word(13)));
    out.push(register("PC", word(13)));
    Some(out)
}

/// The frame of the exception in which the kernel switched threads, and `struct _callee_saved`: R4
/// to R11, PSP.
fn m_profile(
    thread: u64,
    place: u64,
    saved: Option<u64>,
    offsets: &Offsets,
    memory: &Memory<'_>,
) -> Option<Vec<Register>> {
    let stack = memory.word(thread.wrapping_add(place))?;
    let frame = memory.at(stack, FRAME as usize)?;
    let word = |index: usize| &frame[4 * index..4 * index + 4];
    let (pc, status) = (number(word(6)), number(word(7)));
    // EPSR.T is 1 in all code.
    if status >> 24 & 1 == 0 {
        return None;
    }
    memory.elf.slice(pc & !1)?;
    let names = ["R0", "R1", "R2", "R3", "R12", "LR", "PC", "xPSR"];
    let mut out: Vec<Register> = names
        .iter()
        .enumerate()
        .map(|(index, name)| register(name, word(index)))
        .collect();
    // EXC_RETURN.FType is 0 if the frame has FPU registers; bit 9 of xPSR shows whether there is a
    // word of padding.
    let float = offsets.get(Field::Arch).zip(offsets.get(Field::ExcReturn));
    let float = float.and_then(|(arch, at)| memory.at(thread.wrapping_add(arch + at), 1));
    let float = float.is_some_and(|byte| byte[0] & 1 << 4 == 0);
    let size = FRAME + if float { FLOAT_FRAME } else { 0 } + (status >> 9 & 1) * 4;
    let above = stack.wrapping_add(size) as u32;
    out.push(register("SP", &above.to_le_bytes()));
    let saved = saved.and_then(|at| memory.at(thread.wrapping_add(at), FRAME as usize));
    for (number, value) in saved.unwrap_or(&[]).chunks(4).enumerate() {
        out.push(register(&format!("R{}", 4 + number), value));
    }
    Some(out)
}
