//! `monitor dmesg`, `monitor tasks` and `monitor task`: what a Linux kernel in the snapshot knows
//! about itself.

use std::fmt::Write as _;

use super::history::number;
use crate::server::cores::Core;
use crate::server::target::SnapshotTarget;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use armsnap_arch::translation::Regime;
use armsnap_snapshot::linux::Memory;
use armsnap_snapshot::linux::btf::{self, Btf};
use armsnap_snapshot::linux::log::Log;
use armsnap_snapshot::linux::tasks::{Task, TaskLayout};
use armsnap_snapshot::linux::vmcoreinfo::Info;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::memory::Dumps;
use armsnap_snapshot::snapshot::memory::translated::Translated;
use armsnap_snapshot::text::one_line;

/// Maximum number of log records listed, unless the user asks for more.
const RECORDS: u64 = 10_000;
/// Maximum size of the log text shown at once, in bytes.
const MAX_TEXT: usize = 16 << 20;
/// Maximum number of addresses tried to find something in memory, and maximum total size of the
/// type tables tried.
const TRIED: usize = 4096;
const TRIED_TYPES: usize = 256 << 20;

/// A kernel's memory, through its own tables.
struct Kernel<'t> {
    translated: &'t Translated,
    regime: Regime,
    info: Info,
}

impl Memory for Kernel<'_> {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        self.translated.read_in(&self.regime, Address(address), out)
    }
}

/// Returns the contiguous ranges of physical memory: address and bytes.
fn ranges(memory: &Dumps) -> impl Iterator<Item = (u64, &[u8])> {
    let mut next = Some(Address(0));
    std::iter::from_fn(move || {
        loop {
            let at = next?;
            let bytes = memory.slice(at, Space::Np);
            if bytes.is_empty() {
                next = memory.next(at, Space::Np).filter(|next| next.0 > at.0);
                continue;
            }
            next = at.0.checked_add(bytes.len() as u64).map(Address);
            return Some((at.0, bytes));
        }
    })
}

impl<'t> Kernel<'t> {
    fn of(target: &'t SnapshotTarget) -> Result<Self, String> {
        let core = target.core(target.selection.user());
        let core = core.ok_or("no core is selected\n")?;
        let translated = core.memory.translated().ok_or(
            "no kernel: the snapshot has no physical memory, which is a dump of space P, NP or SP, \
             or a memory device\n",
        )?;
        let mut ranges = ranges(translated.physical());
        let info = ranges.find_map(|(_, bytes)| Info::find(bytes, false));
        let info =
            info.ok_or("no Linux kernel: its VMCOREINFO is not in the snapshot's memory\n")?;
        let tables = info.tables().map_err(|why| format!("{why}\n"))?;
        let regime = tables.regime();
        let regime = regime.ok_or("VMCOREINFO describes impossible tables\n")?;
        Ok(Self {
            translated,
            regime,
            info,
        })
    }

    /// Returns the physical addresses at which these bytes are in memory.
    fn places(&self, bytes: &[u8]) -> Vec<u64> {
        let finder = memchr::memmem::Finder::new(bytes);
        let physical = ranges(self.translated.physical());
        let found = physical.flat_map(|(address, memory)| {
            let places = finder.find_iter(memory);
            places.map(move |place| address + place as u64)
        });
        found.take(TRIED).collect()
    }

    /// Returns the layout of tasks in memory, and the address of the first one.
    fn tasks(&self) -> Result<(TaskLayout, u64), String> {
        let physical = self.translated.physical();
        let mut left = TRIED_TYPES;
        let types = self.places(btf::START).into_iter().map_while(|place| {
            let bytes = physical.slice(Address(place), Space::Np);
            left = left.checked_sub(btf::length(bytes).unwrap_or(0))?;
            Some(Btf::read(bytes).map(|types| TaskLayout::of(&types)))
        });
        // Modules have types of their own; only those of the kernel include tasks.
        let mut layout = None;
        for found in types.flatten() {
            match found {
                Ok(found) => {
                    layout = Some(Ok(found));
                    break;
                }
                Err(why) => layout = layout.or(Some(Err(why))),
            }
        }
        let layout = layout.ok_or(
            "no types: the kernel's BTF is not in the snapshot's memory (CONFIG_DEBUG_INFO_BTF)\n",
        )?;
        let layout = layout.map_err(|why| format!("{why}\n"))?;
        let offset = self.info.image_offset();
        let offset = offset.ok_or("VMCOREINFO has no NUMBER(kimage_voffset)\n")?;
        // It is the idle task of the first core, named `swapper`.
        let mut first = self.places(b"swapper").into_iter().map(|place| {
            let task = place.wrapping_sub(layout.name());
            task.wrapping_add(offset)
        });
        let first = first.find(|address| layout.is_first(self, *address));
        let first = first.ok_or("the first task is not in the snapshot's memory\n")?;
        Ok((layout, first))
    }
}

/// Returns a note on the time of the memory shown, if the core is at a past position.
fn note(target: &SnapshotTarget) -> &'static str {
    match target.positions.past(target.selection.user()) {
        Some(_) => "(from the memory at the end of the recording)\n",
        None => "",
    }
}

/// Prints the kernel's log, or its last records.
pub(super) fn dmesg(target: &SnapshotTarget, count: &str) -> String {
    let count = match (count, number(count)) {
        ("", _) => RECORDS,
        (_, Some(count)) => count,
        _ => return format!("expected a number, found {count:?}: monitor dmesg [N]\n"),
    };
    let kernel = match Kernel::of(target) {
        Ok(kernel) => kernel,
        Err(reason) => return reason,
    };
    let mut log = match Log::of(&kernel.info, &kernel) {
        Ok(log) => log,
        Err(reason) => return format!("no log: {reason}\n"),
    };
    log.keep(count);
    let mut text = note(target).to_owned();
    for record in log {
        let (seconds, rest) = (record.time / 1_000_000_000, record.time % 1_000_000_000);
        let prefix = format!("[{seconds:5}.{:06}]", rest / 1000);
        let Some(bytes) = record.text else {
            let _ = writeln!(text, "{prefix} (this text is not in the snapshot)");
            continue;
        };
        for line in String::from_utf8_lossy(&bytes).split('\n') {
            // A tab would be printed as an escape.
            let line = line.replace('\t', " ");
            let _ = writeln!(text, "{prefix} {line}");
        }
        if text.len() > MAX_TEXT {
            text.push_str(
                "the log is too long to show it at once: monitor dmesg N shows its end\n",
            );
            break;
        }
    }
    text
}

/// Lists the tasks.
pub(super) fn tasks(target: &SnapshotTarget) -> String {
    let (_, tasks, broken) = match all(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let mut text = note(target).to_owned();
    text.push_str("    PID PROCESS  STATE              KERNEL STACK        NAME\n");
    for task in &tasks {
        let (letter, doing) = task.doing();
        let _ = writeln!(
            text,
            "{:>7} {:>7}  {letter} {doing:<15}  {:#018x}  {}",
            task.pid,
            task.process,
            task.stack,
            one_line(&task.name)
        );
    }
    if let Some(why) = broken {
        let _ = writeln!(text, "{why}");
    }
    text
}

type Tasks<'t> = (Kernel<'t>, Vec<Task>, Option<String>);

/// Returns all tasks, and why there may be more.
fn all(target: &SnapshotTarget) -> Result<Tasks<'_>, String> {
    let kernel = Kernel::of(target)?;
    let (layout, first) = kernel.tasks()?;
    let (mut tasks, broken) = layout.all(&kernel, first);
    // The idle tasks of the other cores are in no list.
    for core in &target.endpoint.cores {
        let known = |address| tasks.iter().any(|task| task.address == address);
        let current = current(core).filter(|address| !known(*address));
        tasks.extend(current.and_then(|address| layout.task(&kernel, address)));
    }
    Ok((kernel, tasks, broken))
}

/// Returns the address of the task that a core runs in the kernel: Linux keeps it in SP_EL0. With
/// FEAT_VHE the kernel runs at EL2.
fn current(core: &Core) -> Option<u64> {
    let value = |name: &str| core.registers.value(name);
    let task = value("SP_EL0")?;
    let in_kernel = match value("CPSR")? >> 2 & 3 {
        1 => true,
        // HCR_EL2.E2H, bit 34.
        2 => value("HCR_EL2").map_or(task >> 63 == 1, |hcr| hcr >> 34 & 1 == 1),
        _ => false,
    };
    in_kernel.then_some(task)
}

/// Shows where a task sleeps.
pub(super) fn task(target: &SnapshotTarget, pid: &str) -> String {
    let Some(pid) = number(pid) else {
        return "expected a task's ID: monitor task PID (monitor tasks lists them)\n".to_owned();
    };
    let (kernel, tasks, broken) = match all(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let symbols = target.symbols();
    let mut text = note(target).to_owned();
    let mut found = false;
    for task in tasks.iter().filter(|task| u64::from(task.pid) == pid) {
        found = true;
        let (letter, doing) = task.doing();
        let _ = writeln!(
            text,
            "{} {} (process {}): {letter} {doing}; task_struct {:#x}, kernel stack {:#x}",
            task.pid,
            one_line(&task.name),
            task.process,
            task.address,
            task.stack
        );
        let mut cores = target.endpoint.cores.iter().zip(1..);
        if let Some((core, number)) = cores.find(|(core, _)| current(core) == Some(task.address)) {
            let _ = writeln!(text, "  it runs on {}: thread {number}, bt", core.name);
            continue;
        }
        trace(task, &kernel, &symbols, &mut text);
    }
    if !found {
        let _ = writeln!(text, "no task has the ID {pid} (monitor tasks lists them)");
        text.extend(broken.map(|why| why + "\n"));
    }
    text
}

/// Formats the back trace of a sleeping task.
fn trace(task: &Task, kernel: &Kernel<'_>, symbols: &Symbols, text: &mut String) {
    let frames = task.frames(kernel);
    if frames.is_empty() {
        let why = match task.runs {
            Some(true) => "it runs on a core in a process: its kernel stack is empty",
            _ => "its saved registers are not known, or not on its kernel stack",
        };
        let _ = writeln!(text, "  no back trace: {why}");
    }
    for (pc, level) in frames.iter().zip(0..) {
        // These are return addresses, after the call.
        let function = symbols.function(pc.wrapping_sub(1));
        let place = function.map(|(name, offset)| format!(" {name}+{:#x}", offset + 1));
        let _ = writeln!(
            text,
            "  #{level:<3} {pc:#018x}{}",
            place.unwrap_or_default()
        );
    }
}
