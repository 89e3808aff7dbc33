//! What is known of an M-profile core besides its registers and memory.

use armsnap_arch::arch::{CoreType, Extensions};
use armsnap_arch::quantity::Address;
use armsnap_arch::semantics::m_profile::is_float;
use armsnap_snapshot::program::elf::Elf;

/// Registers of the system control space (DDI 0403, B3.2.2; DDI 0553, D1.1.5): VTOR, CCR, CFSR, MPU_CTRL
/// and FPCCR.
const VTOR: Address = Address(0xe000_ed08);
const CCR: Address = Address(0xe000_ed14);
const CFSR: Address = Address(0xe000_ed28);
const MPU_CTRL: Address = Address(0xe000_ed94);
const FPCCR: Address = Address(0xe000_ef34);

/// Bits of FPCCR: ASPEN, CLRONRET and TS.
const ASPEN: u32 = 1 << 31;
const CLEARED_ON_RETURN: u32 = 1 << 28;
const TREATED_AS_SECURE: u32 = 1 << 26;

/// Bits of CFSR: the core could not store the frame of an exception (MSTKERR, STKERR, STKOF).
const NOT_STORED: u32 = 1 << 4 | 1 << 12 | 1 << 20;

/// SG, with which functions of Secure code begin that Non-secure code calls (DDI 0553, C2.4.159).
const SG: [u16; 2] = [0xe97f; 2];

/// Registers that MSR writes, by number (DDI 0553, C2.4.111): PSP, the stack limits, CONTROL.
const PSP: u8 = 9;
const LIMITS: [u8; 2] = [10, 11];
const CONTROL: u8 = 20;

/// The words in a snapshot, registers of devices included, and whether a byte never changes.
pub(super) type Words<'a> = (&'a dyn Fn(Address) -> Option<u32>, &'a dyn Fn(u64) -> bool);

/// An M-profile core whose exceptions are modelled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Microcontroller {
    /// What the core may have.
    pub extensions: Extensions,
    /// Whether the program has no code that selects the process stack.
    pub main_stack_only: bool,
    /// Whether frames of exceptions are aligned to 8 bytes: unless CCR.STKALIGN is known to be 0.
    pub aligns_frames: bool,
    /// Whether the program has no floating-point instructions.
    pub without_floats: bool,
    /// Whether the core notes the use of floating point: FPCCR.ASPEN is 1, or it is not known and the
    /// program does not seem to write FPCCR, or only to set this bit.
    pub notes_floats: bool,
    /// Whether faults may have been taken without a frame, because the MPU or a limit protects the
    /// stack.
    pub frames_may_fail: bool,
    /// Whether CFSR says that the latest fault has a frame.
    pub last_has_frame: bool,
    /// Where the core may start after a reset: by the vector table at address 0, and by the one that is
    /// used at the end.
    pub resets: [Option<Reset>; 2],
}

/// The first two words of a vector table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// MSP after a reset.
    pub stack_pointer: u64,
    /// The address of the first instruction.
    pub pc: u64,
}

impl Microcontroller {
    /// MSP where history begins, if that is where the core starts after a reset.
    pub(in crate::recover) fn stack_pointer_at_reset(&self, pc: u64) -> Option<u64> {
        let mut found = self.resets.iter().flatten().filter(|reset| reset.pc == pc);
        let first = found.next()?.stack_pointer;
        found
            .all(|other| other.stack_pointer == first)
            .then_some(first)
    }

    /// What the words of a snapshot and the programs in it say about a core of some type; `None` if its exceptions
    /// are not modelled, or if it may have the Security Extension and a program uses it.
    pub(super) fn of<'a>(
        kind: &str,
        (word, is_constant): Words<'_>,
        programs: impl IntoIterator<Item = &'a Elf> + Clone,
    ) -> Option<Self> {
        let extensions = CoreType::extensions(kind)?;
        let lacks = |is: &dyn Fn(u16, u16) -> bool| has_none(programs.clone(), is);
        if extensions.security && !lacks(&|first, second| [first, second] == SG) {
            return None;
        }
        let register = word;
        let without_floats = lacks(&is_float);
        let floats = register(FPCCR).or_else(|| {
            let sets = || !lacks(&sets_aspen) && lacks(&clears_aspen);
            (lacks(&reaches_fpccr) || sets()).then_some(ASPEN)
        });
        // Other frames, and registers that are cleared (DDI 0553, D1.2.101).
        let usual = without_floats
            || floats.is_some_and(|control| control & (TREATED_AS_SECURE | CLEARED_ON_RETURN) == 0);
        if extensions.security && extensions.floating_point && !usual {
            return None;
        }
        let reset = |table: u64| {
            let constant = |address: u64| (address..address + 4).all(is_constant);
            let word = |address: u64| word(Address(address)).filter(|_| constant(address));
            Some(Reset {
                stack_pointer: u64::from(word(table)? & !3),
                pc: u64::from(word(table + 4)? & !1),
            })
        };
        let faults = register(CFSR);
        let protects = register(MPU_CTRL).is_some_and(|control| control & 1 == 1);
        Some(Self {
            extensions,
            main_stack_only: lacks(&|first, second| {
                writes(first, second).is_some_and(|number| [PSP, CONTROL].contains(&number))
            }),
            aligns_frames: register(CCR).is_none_or(|control| control >> 9 & 1 == 1),
            without_floats,
            notes_floats: floats.is_some_and(|control| control & ASPEN != 0),
            frames_may_fail: protects
                || faults.is_some_and(|faults| faults & NOT_STORED != 0)
                || extensions.security
                    && !lacks(&|first, second| {
                        writes(first, second).is_some_and(|number| LIMITS.contains(&number))
                    }),
            resets: [Some(0), register(VTOR)].map(|table| reset(table?.into())),
            last_has_frame: faults.is_some_and(|faults| faults != 0 && faults & NOT_STORED == 0),
        })
    }
}

/// The number of the register that an instruction writes if it is MSR (DDI 0403, B5.2.3).
fn writes(first: u16, second: u16) -> Option<u8> {
    (first & 0xffe0 == 0xf380 && second & 0xd000 == 0x8000).then_some((second & 0xff) as u8)
}

/// Whether code or a constant seems to be for access to FPCCR: its address or that of the block of registers
/// that it is in, in a word (also its alias for Non-secure state) or MOVW, or STR with its offset from the
/// System Control Space, the System Control Block or CPACR.
fn reaches_fpccr(first: u16, second: u16) -> bool {
    const BLOCK: u16 = 0xef30;
    let is_word = first & 0xfff0 == BLOCK && second & !2 == 0xe000;
    let is_half = first == 0xf64e && second & 0x80f0 == BLOCK & 0xf0 && second & 0x7000 == 0x7000;
    let is_store = first & 0xfff0 == 0xf8c0 && matches!(second & 0xfff, 0xf34 | 0x234 | 0x1ac);
    is_word || is_half || is_store
}

/// Whether an instruction is ORR with ASPEN and LSPEN, as operating systems write FPCCR.
const fn sets_aspen(first: u16, second: u16) -> bool {
    first & 0xffe0 == 0xf040 && second & 0xf0ff == 0x4040
}

/// Whether an instruction is BIC with ASPEN, with or without LSPEN.
const fn clears_aspen(first: u16, second: u16) -> bool {
    first & 0xffe0 == 0xf020 && matches!(second & 0xf0ff, 0x4000 | 0x4040)
}

/// Whether nothing in programs looks like a 32-bit instruction of some kind.
fn has_none<'a>(
    programs: impl IntoIterator<Item = &'a Elf>,
    is: &dyn Fn(u16, u16) -> bool,
) -> bool {
    let mut segments = programs
        .into_iter()
        .flat_map(|elf| {
            elf.segments
                .iter()
                .map(|segment| elf.segment_bytes(segment))
        })
        .peekable();
    let is = |code: &[u8; 4]| {
        let [first, second] = [[code[0], code[1]], [code[2], code[3]]].map(u16::from_le_bytes);
        is(first, second)
    };
    segments.peek().is_some()
        && segments.all(|bytes| {
            let windows = bytes.windows(4).step_by(2);
            !windows.filter_map(|code| code.first_chunk()).any(is)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded by GNU as.
    #[test]
    fn access_to_fpccr_is_found() {
        for (code, reaches, sets, clears) in [
            // .word 0xe000ef34, 0xe000ef30, 0xe002ef34, 0xe000ed88
            ([0xef34, 0xe000], true, false, false),
            ([0xef30, 0xe000], true, false, false),
            ([0xef34, 0xe002], true, false, false),
            ([0xed88, 0xe000], false, false, false),
            // movw r3, #0xef34; movw r3, #0xed88
            ([0xf64e, 0x7334], true, false, false),
            ([0xf64e, 0x5388], false, false, false),
            // str.w r2, [r3, #0xf34]; str.w r2, [r3, #0xd88]
            ([0xf8c3, 0x2f34], true, false, false),
            ([0xf8c3, 0x2d88], false, false, false),
            // orr r3, r2, #0xc0000000; bic with the same, and with 0x80000000
            ([0xf042, 0x4340], false, true, false),
            ([0xf022, 0x4340], false, false, true),
            ([0xf022, 0x4300], false, false, true),
        ] {
            let [first, second] = code;
            assert_eq!(reaches_fpccr(first, second), reaches, "{code:x?}");
            assert_eq!(sets_aspen(first, second), sets, "{code:x?}");
            assert_eq!(clears_aspen(first, second), clears, "{code:x?}");
        }
    }
}
