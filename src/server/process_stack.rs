//! The process stack of a Cortex-M that halted in an exception.
//!
//! In Handler mode SP is MSP. A debugger also needs PSP, to unwind from there to a task that an
//! exception interrupted. Where it was not saved, the trace says at which instruction that was, and
//! the core has stored that address in the exception's frame on the stack of the task. If only one
//! frame in memory fits, PSP is its address: handlers leave PSP there, as long as they do not write
//! it.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use memchr::memmem::Finder;

use super::cores::Core;
use super::note::{CoreNote, NoProcessStack};
use armsnap_arch::arch::{Architecture, Space};
use armsnap_arch::quantity::Address;
use armsnap_history::calls::{OpenCall, OpenCalls};
use armsnap_history::timeline::{Direction, EndAgrees, Entry, History, Position, Timeline};
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::stop::Cancel;

/// Time limit of decoding the end of the trace: a client may already be waiting.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of open calls that are examined.
const CALLS: usize = 1 << 12;
/// Bytes of the main stack that are searched: the frames of handlers are there.
const MAIN_STACK: usize = 16 << 10;
/// Maximum number of nested exceptions that are followed. There can be more levels of preemption, but few are used.
const NESTED: usize = 16;
/// Maximum number of bytes that are searched for frames, for all cores.
const SEARCHED: u64 = 64 << 20;
/// Maximum number of frames that are found: one is what is wanted.
const FRAMES: usize = 100;

/// Index of the pc in an exception's frame: after R0 to R3, R12 and LR (DDI 0403, B1.5.6).
const PC: usize = 6;
/// Words of a frame without and with floating-point registers.
const PLAIN: usize = 8;
const WITH_FLOATING_POINT: usize = 26;

/// EXC_RETURN (DDI 0403, B1.5.8; DDI 0553, D1.2.95): the interrupted code used the process stack.
const ON_PROCESS_STACK: u32 = 1 << 2;
/// It ran in Thread mode.
const IN_THREAD_MODE: u32 = 1 << 3;
/// No registers of the secure state are stored before R0 (DCRS; DDI 0553 only).
const STARTS_PLAINLY: u32 = 1 << 5;
/// Its frame has no floating-point registers.
const IS_PLAIN: u32 = 1 << 4;

/// Completes the registers of cores that halted in an exception that interrupted a task on the
/// process stack. Adds a note that says so, or why that was not possible. `open` opens the histories.
pub(super) fn complete(cores: &mut [Core], open: impl FnOnce(&[Core]) -> Option<Timeline>) {
    let lacking: Vec<(usize, Handler)> = cores
        .iter()
        .enumerate()
        .filter_map(|(number, core)| Some((number, Handler::of(core)?)))
        .collect();
    if lacking.is_empty() {
        return;
    }
    // GDB uses the registers of all cores or none.
    let others = (0..cores.len()).filter(|at| !lacking.iter().any(|(number, _)| number == at));
    let fits = others
        .into_iter()
        .all(|at| cores[at].registers.selects_stack());
    let mut timeline = open(cores);
    let mut limits = Limits {
        cancel: Cancel::after(TIME_LIMIT),
        bytes: SEARCHED,
    };
    let found: Vec<_> = lacking
        .iter()
        .map(|(number, handler)| {
            let core = &cores[*number];
            let history = timeline.as_mut().and_then(|all| all.history(core.device));
            (*number, handler.process_stack(core, history, &mut limits))
        })
        .collect();
    let fits = fits && found.iter().all(|(_, found)| matches!(found, Ok(Some(_))));
    for ((number, found), (_, handler)) in found.into_iter().zip(&lacking) {
        let note = match found {
            Ok(None) => continue,
            Ok(Some(_)) if !fits => NoProcessStack::OtherCores.into(),
            Ok(Some((frame, returns_to))) => {
                let registers = &mut cores[number].registers;
                registers.set_stack_pointers(handler.main_stack, frame);
                CoreNote::ProcessStack { frame, returns_to }
            }
            Err(reason) => reason.into(),
        };
        cores[number].notes.push(note);
    }
}

/// What may still be used to find stacks.
struct Limits {
    cancel: Cancel,
    /// Bytes of memory that may be searched.
    bytes: u64,
}

/// A core in Handler mode without PSP.
struct Handler {
    main_stack: u64,
    link: u32,
    /// The words of the main stack, from SP on.
    stack: Vec<u32>,
}

/// The address of a frame, and the address to which its exception returns.
type Found = Option<(u64, Address)>;

impl Handler {
    fn of(core: &Core) -> Option<Self> {
        let registers = &core.registers;
        let value = |name| registers.value(name);
        let is_made_up = |note: &CoreNote| matches!(note, CoreNote::Placeholders { .. });
        if registers.architecture() != Architecture::MProfile
            || value("xpsr")? & 0x1ff == 0
            || ["psp", "psp_s", "psp_ns"]
                .into_iter()
                .any(|name| value(name).is_some())
            || core.notes.iter().any(is_made_up)
        {
            return None;
        }
        let main_stack = value("sp")?;
        // Two stack pointers in one state: which belongs to the handler is not known.
        if value("msp").is_some_and(|msp| msp != main_stack) {
            return None;
        }
        let mut bytes = vec![0; MAIN_STACK];
        let known = core
            .memory
            .read(Address(main_stack), core.space.space, &mut bytes);
        Some(Self {
            main_stack,
            link: value("lr").map_or(0, |link| link as u32),
            stack: words(&bytes[..known]).collect(),
        })
    }

    /// Returns the frame on the process stack; `None` if, as far as is known, no task was
    /// interrupted.
    fn process_stack(
        &self,
        core: &Core,
        history: Option<&mut History>,
        limits: &mut Limits,
    ) -> Result<Found, NoProcessStack> {
        let calls = history.and_then(|history| {
            let calls = open_exceptions(history, &limits.cancel)?;
            Some((history, calls))
        });
        let Some((history, calls)) = calls else {
            // The newest of these values most likely belongs to the newest exception.
            return match self.codes(self.link, 0).next() {
                Some(_) if limits.cancel.is_requested() => Err(NoProcessStack::Unfinished),
                Some((code, _)) if changes_security_state(code) => Err(NoProcessStack::OtherState),
                Some((code, _)) if code & ON_PROCESS_STACK != 0 => Err(NoProcessStack::NoTrace),
                _ => Ok(None),
            };
        };
        let places: Vec<_> = calls.iter().map(|call| call.returns_to).collect();
        let interrupted = self.interrupted(&places);
        if interrupted.iter().eq([&Interrupted::OtherState]) {
            return Err(NoProcessStack::OtherState);
        }
        let tasks = interrupted.iter().filter_map(|place| match place {
            Interrupted::Task(number) => Some(*number),
            Interrupted::Main | Interrupted::OtherState => None,
        });
        let tasks: Vec<OpenCall> = tasks.map(|number| calls[number]).collect();
        let Some(outermost) = tasks.last().and_then(|call| call.returns_to) else {
            // The trace may begin in the handler that a task entered.
            let is_task = |(code, _)| code & ON_PROCESS_STACK != 0;
            return match interrupted.is_empty() && self.codes(self.link, 0).any(is_task) {
                true => Err(NoProcessStack::NoTrace),
                false => Ok(None),
            };
        };
        let mut frames = Vec::new();
        for call in &tasks {
            let Some(returns_to) = call.returns_to else {
                continue;
            };
            let at = frames_at(&core.memory, core.space.space, returns_to, limits)?;
            frames.extend(at.into_iter().map(|frame| (frame, returns_to, call.entry)));
        }
        let is_main = interrupted.contains(&Interrupted::Main);
        if frames.is_empty() && is_main {
            // The EXC_RETURN was left over on the main stack.
            return Ok(None);
        }
        let [(frame, returns_to, entry)] = frames[..] else {
            let (count, returns_to) = (frames.len(), outermost);
            return Err(NoProcessStack::Frames { count, returns_to });
        };
        if is_main {
            return Err(NoProcessStack::MainStack);
        }
        let writes = writes_process_stack(history, entry, &limits.cancel);
        match writes.ok_or(NoProcessStack::Unfinished)? {
            true => Err(NoProcessStack::Written),
            false => Ok(Some((frame, returns_to))),
        }
    }

    /// Returns the values that may be the EXC_RETURN of a handler, each with the index after it: the
    /// handler's LR or, if that contains another address, values that may have been saved on the stack.
    fn codes(&self, link: u32, from: usize) -> impl Iterator<Item = (u32, usize)> + '_ {
        let in_link = is_exception_return(link).then_some((link, from));
        let saved = self.stack.iter().copied().zip(1..).skip(from);
        let saved = saved.filter(move |(word, _)| in_link.is_none() && is_exception_return(*word));
        in_link.into_iter().chain(saved)
    }

    /// Returns what the exceptions may have interrupted in the end: follows them outward, each from the
    /// EXC_RETURN of its handler to its frame on the main stack. `places` are their return addresses,
    /// innermost first; `None` where one exception followed another without a return in between.
    fn interrupted(&self, places: &[Option<Address>]) -> BTreeSet<Interrupted> {
        let mut found = BTreeSet::new();
        // The handlers of one exception: LR and the index of the first word of their frames.
        let mut handlers = BTreeSet::from([(self.link, 0)]);
        for (number, place) in places.iter().enumerate().take(NESTED) {
            let Some(returns_to) = *place else { continue };
            let frames = self.main_frames(returns_to);
            let mut outer = BTreeSet::new();
            for (code, from) in handlers
                .iter()
                .flat_map(|(link, from)| self.codes(*link, *from))
            {
                if changes_security_state(code) {
                    found.insert(Interrupted::OtherState);
                    continue;
                }
                if code & ON_PROCESS_STACK != 0 {
                    found.insert(Interrupted::Task(number));
                    continue;
                }
                let is_thread = code & IN_THREAD_MODE != 0;
                let after = frames.partition_point(|frame| *frame < from);
                let frame = frames[after..]
                    .iter()
                    .find(|frame| self.is_thread(**frame) == is_thread);
                match frame {
                    Some(_) if is_thread => {
                        found.insert(Interrupted::Main);
                    }
                    Some(frame) => {
                        let size = match code & IS_PLAIN != 0 {
                            true => PLAIN,
                            false => WITH_FLOATING_POINT,
                        };
                        outer.insert((self.stack[frame + PC - 1], frame + size));
                    }
                    None => {}
                }
            }
            handlers = outer;
        }
        found
    }

    /// Returns the indexes of frames on the main stack that return to an address.
    fn main_frames(&self, returns_to: Address) -> Vec<usize> {
        let pairs = self.stack.windows(2).enumerate();
        let fits = |pair: &[u32]| {
            u64::from(pair[0]) == returns_to.0 && is_status(pair[1]) && pair[1] & 1 << 24 != 0
        };
        pairs
            .filter(|(_, pair)| fits(pair))
            .filter_map(|(index, _)| index.checked_sub(PC))
            .collect()
    }

    /// Returns whether a frame on the main stack belongs to code in Thread mode.
    fn is_thread(&self, frame: usize) -> bool {
        let status = self.stack.get(frame + PC + 1);
        status.is_some_and(|status| status & 0x1ff == 0)
    }
}

/// What the exceptions interrupted in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interrupted {
    /// Code on the main stack.
    Main,
    /// A task, by the exception with this index.
    Task(usize),
    /// Code in the other security state.
    OtherState,
}

/// Returns the exceptions that are being handled at the end of a history, innermost first, if that end is
/// the halted state.
fn open_exceptions(history: &mut History, cancel: &Cancel) -> Option<Vec<OpenCall>> {
    if !history.reach_end(cancel) || history.end_agrees() != EndAgrees::Yes {
        return None;
    }
    let end = history.end();
    let (calls, _) = OpenCalls::default().at(history, end, 0, CALLS, cancel);
    let exceptions = calls
        .into_iter()
        .filter(|call| call.exception && !call.signal);
    let exceptions: Vec<_> = exceptions.collect();
    exceptions
        .iter()
        .any(|call| call.returns_to.is_some())
        .then_some(exceptions)
}

/// Returns whether a value can be an EXC_RETURN: bits 1 and 7 to 31 are fixed, and Handler mode does not
/// use the process stack.
fn is_exception_return(value: u32) -> bool {
    let is_thread = value & IN_THREAD_MODE != 0;
    value & 0xffff_ff82 == 0xffff_ff80 && (is_thread || value & ON_PROCESS_STACK == 0)
}

/// Returns whether the security state changed between the interrupted code and the handler: bits 0 and 6 differ,
/// or registers of the secure state are stored before R0.
fn changes_security_state(code: u32) -> bool {
    code & 1 != code >> 6 & 1 || code & STARTS_PLAINLY == 0
}

/// Returns whether a value can be an xPSR in a frame: bits 22 and 23 are 0. Bits 20 (SFPA) and 21 (B) are used
/// from Armv8-M and Armv8.1-M on (DDI 0553, RETPSR).
fn is_status(value: u32) -> bool {
    value & 0x00c0_0000 == 0
}

/// Returns the addresses of exception frames that return to an address in Thread mode.
fn frames_at(
    memory: &CoreMemory,
    space: Space,
    returns_to: Address,
    limits: &mut Limits,
) -> Result<Vec<u64>, NoProcessStack> {
    let Ok(pc) = u32::try_from(returns_to.0) else {
        return Ok(Vec::new());
    };
    let pc = pc.to_le_bytes();
    let finder = Finder::new(&pc);
    let mut frames = Vec::new();
    let mut at = Some(Address(0));
    while let Some(start) = at {
        let slice = memory.slice(start, space);
        let left = limits.bytes.checked_sub(slice.len() as u64);
        limits.bytes = left.ok_or(NoProcessStack::TooMuchMemory)?;
        for offset in finder.find_iter(slice) {
            let place = start.0 + offset as u64;
            let Some(frame) = place.checked_sub(4 * PC as u64) else {
                continue;
            };
            let mut bytes = [0; 4 * PLAIN];
            let is_whole = memory.read(Address(frame), space, &mut bytes) == bytes.len();
            let status = words(&bytes).last().unwrap_or(0);
            if is_whole
                && place.is_multiple_of(4)
                && is_status(status)
                && status & 0x0100_01ff == 1 << 24
            {
                frames.push(frame);
                if frames.len() == FRAMES {
                    return Ok(frames);
                }
            }
        }
        at = match slice.len() {
            0 => memory.next(start, space),
            length => start.0.checked_add(length as u64).map(Address),
        };
    }
    Ok(frames)
}

/// Returns whether PSP was written, or may have been written, after a position; `None` if that took too long.
fn writes_process_stack(history: &mut History, from: Position, cancel: &Cancel) -> Option<bool> {
    let mut seen = HashSet::new();
    let mut ranges: Vec<(Position, Address, Address)> = Vec::new();
    for event in history.entries(from, Direction::Forward) {
        if cancel.is_requested() {
            return None;
        }
        match event.entry {
            Entry::Run { range, .. } => {
                let line = (range.start, range.end);
                if seen.insert(line) {
                    ranges.push((event.position, range.start, range.end));
                }
            }
            Entry::Gap(_) => return Some(true),
            _ => {}
        }
    }
    let halted = history.halted().unwrap_or_default();
    let end = history.end();
    let rest = history.rest().map(|rest| (end, rest.start, halted));
    let written = ranges
        .into_iter()
        .chain(rest)
        .any(|(position, start, end)| {
            let context = history.place(position).and_then(|place| place.context);
            let view = history.view(context.as_ref());
            let length = usize::try_from(end.0.saturating_sub(start.0)).unwrap_or(0);
            // Code that is not known may do anything.
            let code = history.code(view, start).get(..length);
            code.is_none_or(writes_process_stack_in)
        });
    Some(written)
}

/// Returns whether code may write PSP.
fn writes_process_stack_in(code: &[u8]) -> bool {
    let halves = code.as_chunks::<2>().0.iter();
    let halves: Vec<u16> = halves.map(|half| u16::from_le_bytes(*half)).collect();
    halves
        .windows(2)
        .any(|pair| sets_process_stack(pair[0], pair[1]))
}

/// `msr psp, rN`; `msr psp_ns, rN`.
pub(super) fn sets_process_stack(first: u16, second: u16) -> bool {
    first & 0xfff0 == 0xf380 && second & 0xff7f == 0x8809
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let words = bytes.as_chunks::<4>().0.iter();
    words.map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Address = Address(0x100);
    const OUTER: Address = Address(0x200);

    fn frame(lr: u32, pc: Address, status: u32) -> [u32; PLAIN] {
        [0, 0, 0, 0, 0, lr, pc.0 as u32, status]
    }

    fn interrupted(link: u32, stack: Vec<u32>) -> Vec<Interrupted> {
        let handler = Handler {
            main_stack: 0,
            link,
            stack,
        };
        let found = handler.interrupted(&[Some(PLACE), Some(OUTER)]);
        found.into_iter().collect()
    }

    #[test]
    fn exceptions_are_followed_outward() {
        let handled = frame(0x301, PLACE, 0x0100_000f);
        let (task, main) = (vec![Interrupted::Task(0)], vec![Interrupted::Main]);
        assert_eq!(interrupted(0xffff_fffd, vec![]), task);
        assert_eq!(interrupted(0x301, vec![7, 0xffff_fffd]), task);
        let thread = frame(0, PLACE, 1 << 24);
        assert_eq!(interrupted(0xffff_fff9, thread.to_vec()), main);
        // A handler that called a function, then the handler that its exception interrupted.
        let saved = [&[7, 0xffff_fff1][..], &handled, &[7, 0xffff_fffd]].concat();
        let all = interrupted(0x301, saved.clone());
        assert!(all.contains(&Interrupted::Task(1)), "{all:?}");
        assert_eq!(
            interrupted(0xffff_fff1, saved),
            [Interrupted::Task(1)],
            "LR decides"
        );
        // With floating-point registers, whose values may look like an EXC_RETURN.
        let registers = [0xffff_fff9; WITH_FLOATING_POINT - PLAIN];
        let saved = [&handled[..], &registers, &[0xffff_ffed]].concat();
        assert_eq!(interrupted(0xffff_ffe1, saved), [Interrupted::Task(1)]);
    }

    #[test]
    fn what_is_left_over_on_the_stack_may_contradict() {
        let thread = frame(0, PLACE, 1 << 24);
        let stack = [&[0xffff_fffd, 0xffff_fff9][..], &thread].concat();
        assert_eq!(
            interrupted(0, stack),
            [Interrupted::Main, Interrupted::Task(0)]
        );
        assert_eq!(interrupted(0xffff_ffbd, vec![]), [Interrupted::OtherState]);
        // Registers of the secure state are stored before R0.
        assert_eq!(interrupted(0xffff_ffdd, vec![]), [Interrupted::OtherState]);
        // Secure code that uses floating-point registers.
        let secure = frame(0, PLACE, 1 << 24 | 1 << 20);
        assert_eq!(
            interrupted(0xffff_fff9, secure.to_vec()),
            [Interrupted::Main]
        );
        // Not an EXC_RETURN: -1, and Handler mode with the process stack.
        assert_eq!(interrupted(0, vec![u32::MAX, 0xffff_fff5]), []);
    }
}
