//! The registers of a Cortex-M task that does not run: the frame of the exception that switched to
//! another task, and below it what the kernel added.
//!
//! Kernels add R4 to R11, and around them one or several of EXC_RETURN, the stack limit, CONTROL, and
//! the secure context. Which ones depends on the port and its configuration, which nothing names. But
//! EXC_RETURN, xPSR and the return address have few possible values, so that only one of the known
//! orders fits.

use super::Context;
use super::memory::Memory;

/// What a kernel saved below or above R4 to R11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    /// EXC_RETURN.
    ExcReturn,
    /// The stack limit, PSPLIM.
    StackLimit,
    /// CONTROL.
    Control,
    /// 1 if S16 to S31 are saved, 0 otherwise.
    HasFloat,
    /// The context of the secure state; 0 if the task has none.
    Secure,
    /// S16 to S31, if the frame has floating-point registers.
    Float,
    /// Space for S16 to S31, which have been saved if the frame has floating-point registers.
    FloatSpace,
    /// EXC_RETURN of a task that may use the main stack.
    AnyReturn,
    /// A word that is no register, or that is known better from the frame.
    Skipped,
}

use Saved::{
    AnyReturn, Control, ExcReturn, Float, FloatSpace, HasFloat, Secure, Skipped, StackLimit,
};

/// What is below R4 and above R11, from the lowest address on.
type Order = (&'static [Saved], &'static [Saved]);

/// Those with EXC_RETURN first: it tells orders apart.
const ORDERS: &[Order] = &[
    // FreeRTOS for ARM_CM4F and ARM_CM7.
    (&[], &[ExcReturn, Float]),
    // FreeRTOS for ARM_CM23_NTZ and ARM_CM33_NTZ.
    (&[StackLimit, ExcReturn], &[Float]),
    // FreeRTOS for ARM_CM23 and ARM_CM33.
    (&[Secure, StackLimit, ExcReturn], &[Float]),
    // FreeRTOS for ARM_CM0 from 11.1 on; ThreadX.
    (&[ExcReturn, Float], &[]),
    // FreeRTOS with a memory protection unit.
    (&[Control], &[ExcReturn, Float]),
    (&[StackLimit, Control, ExcReturn], &[Float]),
    (&[Secure, StackLimit, Control, ExcReturn], &[Float]),
    // RT-Thread for a Cortex-M33.
    (&[Secure, ExcReturn, StackLimit, Control], &[Float]),
    // RT-Thread with floating point.
    (&[HasFloat], &[Float]),
    // FreeRTOS for ARM_CM0 and ARM_CM3; RT-Thread.
    (&[], &[]),
    (&[Control], &[]),
];

/// Those of NuttX, by configuration and version. First, the stack pointer, and BASEPRI or PRIMASK.
const NUTTX: &[Order] = &[
    (MASKED, &[Control, AnyReturn, FloatSpace, StackLimit]),
    (MASKED, &[Control, AnyReturn, StackLimit]),
    (MASKED, &[Control, AnyReturn, FloatSpace]),
    (MASKED, &[Control, AnyReturn]),
    // Up to version 12.
    (MASKED, &[AnyReturn, FloatSpace]),
    (MASKED, &[AnyReturn]),
    (MASKED, &[]),
];
const MASKED: &[Saved] = &[Skipped, Skipped];

/// The words of an exception's frame (DDI 0403, B1.5.6).
const FRAME: [&str; 8] = ["r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr"];

/// Reads what was saved at an address on the stack of a task.
pub(super) fn saved(memory: &Memory<'_>, top: u64) -> Option<Context> {
    ORDERS.iter().find_map(|order| ordered(memory, top, *order))
}

/// Reads what NuttX saved at an address.
pub(super) fn saved_by_nuttx(memory: &Memory<'_>, top: u64) -> Option<Context> {
    NUTTX.iter().find_map(|order| ordered(memory, top, *order))
}

/// Reads what was saved in an order, if it fits.
fn ordered(memory: &Memory<'_>, top: u64, (below, above): Order) -> Option<Context> {
    let mut reader = Reader {
        memory,
        at: top,
        has_float: false,
        has_secure: false,
        stack: Stack::Process,
        context: Context::default(),
    };
    for saved in below {
        reader.read(*saved)?;
    }
    for number in 4..12 {
        reader.register(format!("r{number}"))?;
    }
    for saved in above {
        reader.read(*saved)?;
    }
    let Reader {
        at,
        has_float,
        stack,
        mut context,
        ..
    } = reader;
    frame(memory, at, has_float, stack, &mut context).then_some(context)
}

/// The stack that a task uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    /// The main stack.
    Main,
    /// The process stack.
    Process,
}

impl Stack {
    /// The names of its pointer and its limit.
    fn registers(self) -> [&'static str; 2] {
        match self {
            Self::Main => ["msp", "msplim"],
            Self::Process => ["psp", "psplim"],
        }
    }
}

/// Reads saved words one after another.
struct Reader<'m> {
    memory: &'m Memory<'m>,
    at: u64,
    /// Whether the frame has floating-point registers.
    has_float: bool,
    /// Whether the task has a context in the secure state.
    has_secure: bool,
    stack: Stack,
    context: Context,
}

impl Reader<'_> {
    fn word(&mut self) -> Option<u32> {
        let word = self.memory.word(self.at)?;
        self.at = self.at.wrapping_add(4);
        Some(word)
    }

    fn register(&mut self, name: impl Into<String>) -> Option<()> {
        let value = self.word()?;
        self.context.add(name, value);
        Some(())
    }

    /// Reads what was saved; `None` if it cannot be this.
    fn read(&mut self, saved: Saved) -> Option<()> {
        if matches!(saved, Float | FloatSpace) {
            let end = self.at.wrapping_add(64);
            if self.has_float {
                (16..32).try_for_each(|number| self.register(format!("s{number}")))?;
            } else if saved == FloatSpace {
                self.at = end;
            }
            return Some(());
        }
        let top = self.at;
        let value = self.word()?;
        let fits = match saved {
            ExcReturn => {
                self.has_float = value >> 4 & 1 == 0;
                // In the secure state, the frame is on a stack of that state.
                is_exc_return(value) && !(self.has_secure && value >> 6 & 1 == 1)
            }
            AnyReturn => {
                self.has_float = value >> 4 & 1 == 0;
                let is_process = value >> 2 & 1 == 1;
                self.stack = if is_process {
                    Stack::Process
                } else {
                    Stack::Main
                };
                is_exc_return(value | 1 << 2)
            }
            HasFloat => {
                self.has_float = value == 1;
                value <= 1
            }
            Secure => {
                self.has_secure = value != 0;
                true
            }
            StackLimit => {
                let [_, limit] = self.stack.registers();
                self.context.add(limit, value);
                value.is_multiple_of(4) && u64::from(value) <= top
            }
            Control => {
                self.context.add("control", value);
                value < 16
            }
            Skipped | Float | FloatSpace => true,
        };
        fits.then_some(())
    }
}

/// Adds the registers of an exception's frame, and the stack pointer above it. Returns whether it can
/// be one.
pub(super) fn frame(
    memory: &Memory<'_>,
    at: u64,
    has_float: bool,
    stack: Stack,
    context: &mut Context,
) -> bool {
    let word = |index: u64| memory.word(at.wrapping_add(4 * index));
    let (Some(pc), Some(status)) = (word(6), word(7)) else {
        return false;
    };
    // T32 code in Thread mode (no exception number). Bits 23 to 21 are reserved.
    let is_status = status >> 24 & 1 == 1 && status & 0x00e0_01ff == 0;
    if !at.is_multiple_of(4) || !is_status || !memory.has_code(u64::from(pc & !1)) {
        return false;
    }
    for (name, index) in FRAME.iter().zip(0..) {
        let Some(value) = word(index) else {
            return false;
        };
        // The address of a function, where a task starts, may have bit 0 set.
        let value = if *name == "pc" { value & !1 } else { value };
        context.add(*name, value);
    }
    let mut above = 32;
    if has_float {
        for number in 0..16 {
            let Some(value) = word(8 + number) else {
                return false;
            };
            context.add(format!("s{number}"), value);
        }
        let Some(value) = word(24) else { return false };
        context.add("fpscr", value);
        above += 72;
    }
    // Bit 9: a word aligns the stack.
    above += u64::from(status >> 9 & 1) * 4;
    let above = at.wrapping_add(above);
    context.add("sp", above as u32);
    let [pointer, _] = stack.registers();
    context.add(pointer, above as u32);
    true
}

/// Returns whether a value is the EXC_RETURN of an exception that interrupted Thread mode on the
/// process stack (DDI 0403, B1.5.8; DDI 0553, D1.2.95).
fn is_exc_return(value: u32) -> bool {
    value & 0xffff_ffae == 0xffff_ffac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenSnapshot;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::CoreMemory;
    use armsnap_arch::arch::{Architecture, Space};
    use std::sync::Arc;

    const STACK: u64 = 0x2000_0100;
    const CODE: u32 = 0x200;

    /// What is found on a stack with these words.
    fn found(words: &[u32]) -> Option<Context> {
        found_by(saved, words)
    }

    fn found_by(
        saved: impl Fn(&Memory<'_>, u64) -> Option<Context>,
        words: &[u32],
    ) -> Option<Context> {
        let device = format!(
            "[device]\nname=a\nclass=core\ntype=Cortex-M33\n\
             [dump0]\nfile=ram\naddress={STACK:#x}\n[dump1]\nfile=code\naddress={CODE:#x}\n"
        );
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let files = [
            (
                "snapshot.ini",
                b"[snapshot]\nversion=1.0\n[device_list]\na=a.ini\n".to_vec(),
            ),
            ("a.ini", device.into_bytes()),
            ("ram", bytes.collect()),
            ("code", vec![0; 16]),
        ];
        let files = files.map(|(name, bytes)| (name.to_owned(), bytes.into()));
        let files = Arc::new(InMemory(files.into()));
        let loaded = OpenSnapshot::from_files(files, "snapshot.ini").unwrap();
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        let memory = Memory {
            memory: &memory,
            space: Space::Any,
            architecture: Architecture::MProfile,
            programs: &[],
        };
        saved(&memory, STACK)
    }

    /// The words that are saved in an order.
    fn words((below, above): Order, has_float: bool) -> Vec<u32> {
        let is_secure = below.contains(&Secure);
        let special = |saved: &Saved| match saved {
            ExcReturn => {
                let code = if is_secure { 0xffff_ffbc } else { 0xffff_fffd };
                vec![code & !(u32::from(has_float) << 4)]
            }
            StackLimit => vec![STACK as u32 & !0xff],
            Control => vec![2],
            HasFloat => vec![u32::from(has_float)],
            Secure => vec![STACK as u32 + 0x40],
            AnyReturn => vec![0xffff_fff9 & !(u32::from(has_float) << 4)],
            Float if !has_float => Vec::new(),
            Float | FloatSpace => (16..32).map(|number| 0x500 + number).collect(),
            Skipped => vec![0x4567_8901],
        };
        let mut words: Vec<u32> = below.iter().flat_map(special).collect();
        words.extend((4..12).map(|number| 0x400 + number));
        words.extend(above.iter().flat_map(special));
        // The lowest bit of the address of a function, and a word that aligns the stack.
        words.extend([0, 1, 2, 3, 12, 0x301, CODE | 1, 1 << 24 | 1 << 9]);
        if has_float {
            words.extend((0..16).map(|number| 0x500 + number));
            words.extend([0x0300_0000, 0]);
        }
        words
    }

    #[test]
    fn each_order_is_told_from_the_others() {
        for order in ORDERS {
            let has = |saved| order.0.contains(&saved) || order.1.contains(&saved);
            for has_float in [false, true] {
                if has_float && !has(Float) {
                    continue;
                }
                let mut words = words(*order, has_float);
                let context = found(&words).unwrap_or_else(|| panic!("{order:?}"));
                let above = STACK + 4 * words.len() as u64 + 4;
                for (name, value) in [
                    ("r4", Some(0x404)),
                    ("r11", Some(0x40b)),
                    ("r12", Some(12)),
                    ("pc", Some(CODE.into())),
                    ("sp", Some(above)),
                    ("s16", has_float.then_some(0x510)),
                    ("s15", has_float.then_some(0x50f)),
                    ("fpscr", has_float.then_some(0x0300_0000)),
                    ("psplim", has(StackLimit).then_some(STACK & !0xff)),
                    ("control", has(Control).then_some(2)),
                ] {
                    assert_eq!(context.value(name), value, "{name}: {order:?}, {has_float}");
                }
                // The last word of a frame with floating point is reserved.
                words.truncate(words.len() - 2);
                assert_eq!(found(&words), None, "{order:?}");
            }
        }
    }

    #[test]
    fn each_order_of_nuttx_is_told_from_the_others() {
        for order in NUTTX {
            let has = |saved| order.1.contains(&saved);
            for has_float in [false, true] {
                if has_float && !has(FloatSpace) {
                    continue;
                }
                let words = words(*order, has_float);
                let context = found_by(saved_by_nuttx, &words);
                let context = context.unwrap_or_else(|| panic!("{order:?}"));
                let above = STACK + 4 * words.len() as u64 + 4;
                let main = has(AnyReturn).then_some(above);
                for (name, value) in [
                    ("r4", Some(0x404)),
                    ("pc", Some(CODE.into())),
                    ("sp", Some(above)),
                    ("msp", main),
                    ("psp", main.is_none().then_some(above)),
                    ("s16", has_float.then_some(0x510)),
                    ("s0", has_float.then_some(0x500)),
                    ("msplim", has(StackLimit).then_some(STACK & !0xff)),
                ] {
                    assert_eq!(context.value(name), value, "{name}: {order:?}, {has_float}");
                }
            }
        }
    }

    #[test]
    fn what_no_exception_saves_is_refused() {
        let plain = words((&[], &[]), false);
        let status = plain.len() - 1;
        for (index, value) in [
            // A handler; A32 code; no code.
            (status, 1 << 24 | 11),
            (status, 0),
            (status - 1, 0x8000_0000),
        ] {
            let mut words = plain.clone();
            words[index] = value;
            assert_eq!(found(&words), None, "{index}: {value:#x}");
        }
        // The frame is on a stack of the secure state.
        let mut words = words((&[Secure, StackLimit, ExcReturn], &[Float]), false);
        words[2] = 0xffff_fffd;
        assert_eq!(found(&words), None);
    }
}
