//! The registers that a Cortex-M stacked at an exception (DDI 0403, B1.5.6 to B1.5.8; DDI 0553,
//! B3.19).

use super::Halted;

/// How far above the main stack pointer a handler's frame is searched.
const SEARCHED: u64 = 4 << 10;
/// The signatures of additional state that a secure core stacks below R0 (DDI 0553, B3.19).
const SIGNATURES: [u32; 2] = [0xFEFA_125A, 0xFEFA_125B];
/// The size of that state.
const ADDITIONAL: u64 = 0x28;

/// EXC_RETURN: the process stack has the frame.
const ON_PROCESS_STACK: u32 = 1 << 2;
/// The interrupted code ran in Thread mode.
const IN_THREAD_MODE: u32 = 1 << 3;
/// The frame has no floating-point registers.
const IS_PLAIN: u32 = 1 << 4;

/// The frame of an exception.
pub(super) struct Frame {
    /// R0 to R3, R12, LR, the return address, xPSR.
    pub words: [u32; 8],
    /// The stack pointer before the exception.
    pub stack_pointer: u32,
    /// EXC_RETURN of the exception.
    pub exc_return: u32,
    /// Whether EXC_RETURN was found on the stack of the handler, not in LR.
    pub searched: bool,
}

impl Frame {
    /// The return address.
    pub(super) fn pc(&self) -> u32 {
        self.words[6]
    }

    /// The stack of the frame.
    pub(super) fn stack(&self) -> &'static str {
        match self.exc_return & ON_PROCESS_STACK {
            0 => "main stack",
            _ => "process stack",
        }
    }

    /// The mode of the interrupted code.
    pub(super) fn mode(&self) -> &'static str {
        match self.exc_return & IN_THREAD_MODE {
            0 => "Handler mode",
            _ => "Thread mode",
        }
    }

    /// Finds the frame of the exception that a core is handling: by EXC_RETURN in LR, or by its copy
    /// on the handler's stack if LR was changed. Unless a branch failed (`may_be_elsewhere`), the
    /// frame returns to known code.
    pub(super) fn find(core: &Halted<'_>, may_be_elsewhere: bool) -> Option<Self> {
        let fits = |frame: &Self| may_be_elsewhere || frame.returns_to_code(core);
        let read = |at, exc_return, searched| {
            Self::read(core, at, exc_return, searched).filter(|frame| fits(frame))
        };
        let process = core.register(&["psp"]);
        let in_lr = core.registers.value("lr").and_then(exc_return);
        if let Some(exc_return) = in_lr
            && exc_return & ON_PROCESS_STACK != 0
        {
            return read(process?, exc_return, false);
        }
        let main = core.register(&["msp", "sp"])? & !3;
        // A handler that has pushed nothing, or has popped everything.
        if let Some(exc_return) = in_lr
            && let Some(frame) = Self::read(core, main, exc_return, false)
            && frame.returns_to_code(core)
        {
            return Some(frame);
        }
        // What the handler pushed ends with EXC_RETURN, and the frame follows.
        for at in (main..main.saturating_add(SEARCHED)).step_by(4) {
            let Some(word) = core.word(at) else { break };
            let Some(found) = exc_return(u64::from(word)) else {
                continue;
            };
            if in_lr.is_some_and(|in_lr| in_lr != found) {
                continue;
            }
            let frame = match found & ON_PROCESS_STACK {
                0 => read(at + 4, found, true),
                _ => process.and_then(|process| read(process, found, true)),
            };
            if frame.is_some() {
                return frame;
            }
        }
        read(main, in_lr?, false)
    }

    /// Whether it returns to known code in T32 state, as almost all do.
    fn returns_to_code(&self, core: &Halted<'_>) -> bool {
        self.words[7] >> 24 & 1 == 1 && core.has_memory(u64::from(self.pc()))
    }

    /// Reads a frame, and refuses what no exception stacks.
    fn read(core: &Halted<'_>, at: u64, exc_return: u32, searched: bool) -> Option<Self> {
        let at = match core.word(at) {
            Some(word) if SIGNATURES.contains(&word) => at + ADDITIONAL,
            _ => at,
        };
        let bytes: [u8; 32] = core.bytes(at)?;
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let xpsr = words[7];
        let in_thread_mode = exc_return & IN_THREAD_MODE != 0;
        // Bits 23 to 20 of xPSR are reserved, and bit 0 of the return address is.
        let fits =
            (xpsr & 0x1FF == 0) == in_thread_mode && xpsr & 0x00F0_0000 == 0 && words[6] & 1 == 0;
        if !fits {
            return None;
        }
        let size = match exc_return & IS_PLAIN {
            0 => 104,
            _ => 32,
        };
        let padding = if xpsr >> 9 & 1 == 1 { 4 } else { 0 };
        Some(Self {
            words,
            stack_pointer: (at as u32).wrapping_add(size + padding),
            exc_return,
            searched,
        })
    }
}

/// EXC_RETURN, if a value can be one whose frame is on a stack of the current security state: with
/// bits 31 to 7 set and bit 1 clear; where bits 6 and 0 (S and ES of Armv8-M) differ, a fault of one
/// state is handled in the other, and the stack is not that of the current one.
fn exc_return(value: u64) -> Option<u32> {
    let value = u32::try_from(value).ok()?;
    let is_possible = value >> 7 == 0x01FF_FFFF && value & 2 == 0;
    let is_of_the_state = value & 1 == value >> 6 & 1;
    (is_possible && is_of_the_state).then_some(value)
}
