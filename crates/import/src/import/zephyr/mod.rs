//! Core dumps of Zephyr (`CONFIG_DEBUG_COREDUMP`): as its scripts write them from a log, the log
//! itself, and an image of the flash partition.
//!
//! The layout is that of `include/zephyr/debug/coredump.h`: a header, blocks with the registers of the
//! thread that failed and of other CPUs, the kernel's list of threads, memory, a checksum.

mod blocks;
mod registers;
mod threads;
mod wrapped;

#[cfg(test)]
mod tests;

use super::fields::Fields;
use super::note::ZephyrNote;
use super::paths::{Names, plain};
use super::{ImportError, Imported, Options, programs};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::rtos::zephyr::Offsets;
use armsnap_snapshot::snapshot::model::{Device, DeviceClass, Dump, Register, Snapshot};
use blocks::Block;
use registers::Core;
use std::collections::BTreeMap;
use std::path::Path;
pub(super) use wrapped::is_text;

/// Target codes.
const CORTEX_M: u16 = 3;
const ARM64: u16 = 6;
/// The first code that was not yet assigned when ARM64 was added. Cortex-A and Cortex-R have a
/// later one.
const LATER: u16 = 7;
/// The size of the header.
const HEADER: usize = 12;
/// The flag of a dump that ends with a checksum.
const HAS_CHECKSUM: u8 = 1;
/// The newest version of the format.
const VERSION: u16 = 2;
/// The maximum number of dumps of all threads together.
const MAX_DUMPS: usize = 1 << 20;

/// The number of bytes at the start of a file by which a dump is recognised, if it is not in a log.
pub const HEAD: u64 = 8192;

/// Whether bytes are the start of a Zephyr dump, or of a partition with one.
pub fn is_zephyr_dump(bytes: &[u8]) -> bool {
    is_dump(bytes) || wrapped::in_partition(bytes).is_some()
}

/// Whether a file is a log that contains a dump; `head` is its start.
pub fn is_log(head: &[u8], whole: impl FnOnce() -> Option<Mapped>) -> bool {
    wrapped::is_text(head) && whole().is_some_and(|bytes| wrapped::has_dump(&bytes))
}

/// Whether bytes are the start of a dump: `ZE`, version, target, size of pointers.
fn is_dump(bytes: &[u8]) -> bool {
    let mut fields = Fields::new(bytes, false);
    let identity = fields.bytes(2) == Some(b"ZE");
    let version = fields
        .u16()
        .is_some_and(|version| (1..=8).contains(&version));
    let target = fields.u16().is_some_and(|target| target < 64);
    let pointers = fields.bytes(1).is_some_and(|bits| matches!(bits[0], 5 | 6));
    identity && version && target && pointers
}

/// Reads a dump from the bytes of a file; `path` is its name.
///
/// # Errors
///
/// If the file is damaged, or of another architecture.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let fault = |text: String| ImportError::input(path, text);
    let mut notes = Vec::new();
    let bytes = if let Some(at) = wrapped::in_partition(&bytes) {
        let place = wrapped::of_partition(&bytes, at, &mut notes);
        bytes.part(place)
    } else if is_dump(&bytes) {
        bytes
    } else {
        wrapped::of_log(&bytes, &mut notes).map_err(fault)?
    };
    let header = Header::read(&bytes);
    let header = header.ok_or_else(|| fault("core dump of Zephyr cut in its header".to_owned()))?;
    if header.version > VERSION {
        notes.push(ZephyrNote::Version(header.version));
    }
    let found = blocks::read(&bytes, HEADER, header.wide, &mut notes);
    check(&bytes, &header, &found, &mut notes);
    let named = options.elf.first();
    let elf = named.map(|named| Elf::open(&named.path)).transpose()?;
    // The kernel runs at its link address.
    let elf = elf.filter(|_| named.is_some_and(|named| named.address.is_none()));
    let core = header.core(&bytes, &found, elf.as_ref()).map_err(fault)?;
    let mut out = Imported {
        kind: "core dump of Zephyr".to_owned(),
        ..Imported::default()
    };
    let mut dump = Dumped {
        bytes: &bytes,
        core,
        wide: header.wide,
        blocks: &found,
        notes: &mut notes,
    };
    let stopped = dump.stopped();
    if stopped.is_empty() {
        return Err(fault(
            "core dump of Zephyr without the block of registers".to_owned(),
        ));
    }
    let cores = dump.with_threads(stopped, elf.as_ref());
    out.notes.extend(notes.into_iter().map(Into::into));
    let mut dumps = dumps(&bytes, &found, &mut out);
    dumps.extend(programs::dumps(&options.elf, &mut out)?);
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
    let mut names = Names::default();
    let most = (MAX_DUMPS / dumps.len().max(1)).max(1);
    let devices = cores.into_iter().take(most).enumerate();
    let devices = devices.map(|(index, found)| {
        let mut other = Vec::new();
        if index == 0 {
            other.push(("reason".to_owned(), header.reason.to_string()));
        }
        other.extend(found.cpu.map(|cpu| ("cpu".to_owned(), cpu.to_string())));
        let thread = found.thread.map(|thread| format!("{thread:#x}"));
        other.extend(thread.map(|thread| ("thread".to_owned(), thread)));
        let name = match (&found.name, found.cpu) {
            (Some(name), _) => plain(name),
            (None, Some(cpu)) if index > 0 => format!("cpu_{cpu}"),
            (None, _) => "thread".to_owned(),
        };
        Device {
            key: format!("device{index}"),
            file: format!("cpu_{index}.ini"),
            name: names.unique(&name),
            class: DeviceClass::Core,
            kind: core.kind().to_owned(),
            other,
            registers: found.registers,
            dumps: dumps.clone(),
            ..Device::default()
        }
    });
    out.snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices: devices.collect(),
        other_sections: std::mem::take(&mut out.snapshot.other_sections),
        ..Snapshot::default()
    };
    out.record_origin();
    Ok(out)
}

/// The header of a dump.
#[derive(Clone, Copy, Debug)]
struct Header {
    version: u16,
    target: u16,
    wide: bool,
    flags: u8,
    reason: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes, false);
        fields.bytes(2)?;
        let (version, target) = (fields.u16()?, fields.u16()?);
        let form = fields.bytes(2)?;
        Some(Self {
            version,
            target,
            wide: form[0] == 6,
            flags: form[1],
            reason: fields.u32()?,
        })
    }

    /// The kind of core whose registers the blocks contain.
    fn core(
        &self,
        bytes: &[u8],
        found: &[(usize, Block)],
        elf: Option<&Elf>,
    ) -> Result<Core, String> {
        let of_m = elf.is_none_or(|elf| elf.m_profile != Some(false));
        match (self.target, self.wide) {
            (CORTEX_M, false) if of_m => return Ok(Core::MProfile),
            // Early dumps of Cortex-A and Cortex-R have the code of Cortex-M.
            (CORTEX_M, false) => return Ok(Core::AProfile),
            (ARM64, true) => return Ok(Core::AArch64),
            _ => {}
        }
        let status = found.iter().find_map(|(_, block)| match block {
            Block::Registers(version, place) => {
                let block = bytes.get(place.clone())?;
                let read = registers::of_fault(Core::AProfile, *version, block)?;
                let status = read.iter().find(|register| register.name == "CPSR");
                status?.value.as_u64()
            }
            _ => None,
        });
        match status {
            Some(status) if self.target >= LATER && !self.wide && registers::is_mode(status) => {
                Ok(Core::AProfile)
            }
            _ => Err(format!(
                "core dump of Zephyr for target {}: expected Cortex-M (3), ARM64 (6), Cortex-A or Cortex-R",
                self.target
            )),
        }
    }
}

/// Verifies the checksum, which covers all bytes before its block.
fn check(bytes: &[u8], header: &Header, found: &[(usize, Block)], notes: &mut Vec<ZephyrNote>) {
    let checksum = found.iter().rev().find_map(|(at, block)| match block {
        Block::Checksum(written) => Some((*at, *written)),
        _ => None,
    });
    match checksum {
        Some((at, written)) => {
            let found = crc32fast::hash(&bytes[..at]);
            if found != written {
                notes.push(ZephyrNote::Checksum { written, found });
            }
        }
        None if header.flags & HAS_CHECKSUM != 0 => notes.push(ZephyrNote::NoChecksum),
        None => {}
    }
}

/// The memory in a dump.
fn dumps(bytes: &Mapped, found: &[(usize, Block)], out: &mut Imported) -> Vec<Dump> {
    let mut dumps = Vec::new();
    for (_, block) in found {
        let Block::Memory(start, place) = block else {
            continue;
        };
        if place.is_empty() {
            continue;
        }
        let file = format!("memory/{}_{start:x}.bin", dumps.len());
        out.files.insert(file.clone(), bytes.part(place.clone()));
        dumps.push(Dump {
            file,
            address: *start,
            length: Some(place.len() as u64),
            ..Dump::default()
        });
    }
    dumps
}

/// A thread with its registers.
#[derive(Clone, Debug, Default)]
struct Thread {
    name: Option<String>,
    /// The CPU that was running it, if the dump says so.
    cpu: Option<u32>,
    /// Its address, if the dump contains it.
    thread: Option<u64>,
    registers: Vec<Register>,
}

/// The blocks of a dump.
struct Dumped<'d> {
    bytes: &'d [u8],
    core: Core,
    wide: bool,
    blocks: &'d [(usize, Block)],
    notes: &'d mut Vec<ZephyrNote>,
}

impl Dumped<'_> {
    /// The threads that CPUs were running, the one that failed first.
    fn stopped(&mut self) -> Vec<Thread> {
        let (mut failed, mut others) = (Thread::default(), Vec::new());
        for (at, block) in self.blocks {
            match block {
                Block::Registers(version, place) => {
                    let read = registers::of_fault(self.core, *version, &self.bytes[place.clone()]);
                    match read {
                        Some(read) => failed.registers = read,
                        None => self.notes.push(ZephyrNote::Registers {
                            at: *at,
                            version: *version,
                            bytes: place.len(),
                        }),
                    }
                }
                Block::Cpu {
                    cpu,
                    thread,
                    registers,
                } if registers.is_empty() => {
                    (failed.cpu, failed.thread) = (Some(*cpu), Some(*thread));
                }
                Block::Cpu {
                    cpu,
                    thread,
                    registers: place,
                } => match registers::of_cpu(self.core, &self.bytes[place.clone()]) {
                    Some(registers) => others.push(Thread {
                        name: None,
                        cpu: Some(*cpu),
                        thread: Some(*thread),
                        registers,
                    }),
                    None => self.notes.push(ZephyrNote::Registers {
                        at: *at,
                        version: 1,
                        bytes: place.len(),
                    }),
                },
                _ => {}
            }
        }
        let mut all = Vec::new();
        if !failed.registers.is_empty() {
            all.push(failed);
        }
        all.append(&mut others);
        let mut forgotten = false;
        if self.core == Core::AArch64 {
            for thread in &mut all {
                forgotten |= registers::forget_user_stack(&mut thread.registers);
            }
        }
        if forgotten {
            self.notes.push(ZephyrNote::UserStack);
        }
        all
    }

    /// Adds the threads that were not running, and the names of all threads, if the dump and the
    /// program contain them.
    fn with_threads(&mut self, mut known: Vec<Thread>, elf: Option<&Elf>) -> Vec<Thread> {
        let kernel = self.blocks.iter().find_map(|(_, block)| match block {
            Block::Threads(place) => Some(&self.bytes[place.clone()]),
            _ => None,
        });
        let Some(kernel) = kernel else {
            return known;
        };
        let offsets =
            elf.and_then(|elf| Some((elf, Offsets::of(elf, if self.wide { 8 } else { 4 })?)));
        let Some((elf, offsets)) = offsets else {
            self.notes.push(ZephyrNote::NoThreadInfo);
            return known;
        };
        let mut blocks = BTreeMap::new();
        for (_, block) in self.blocks {
            if let Block::Memory(start, place) = block {
                blocks.insert(*start, place.clone());
            }
        }
        let memory = threads::Memory {
            bytes: self.bytes,
            blocks,
            elf,
            wide: self.wide,
        };
        let Some(list) = threads::list(kernel, &offsets, &memory) else {
            self.notes.push(ZephyrNote::NoThreadInfo);
            return known;
        };
        // Without blocks of CPUs, there is only one CPU.
        if let [only] = &mut known[..] {
            only.thread = only.thread.or(list.current);
        }
        let saved = self.blocks.iter().find_map(|(_, block)| match block {
            Block::Registers(version, place) if self.core == Core::MProfile => {
                registers::callee_saved(*version, &self.bytes[place.clone()])
            }
            _ => None,
        });
        for thread in &mut known {
            let address = thread.thread;
            thread.name = address.and_then(|thread| threads::name(thread, &offsets, &memory));
        }
        let (mut read, mut without) = (0, 0);
        for address in list.threads {
            if known.iter().any(|known| known.thread == Some(address)) {
                continue;
            }
            let registers = threads::registers(self.core, address, saved, &offsets, &memory);
            let Some(registers) = registers else {
                without += 1;
                continue;
            };
            read += 1;
            known.push(Thread {
                name: threads::name(address, &offsets, &memory),
                cpu: None,
                thread: Some(address),
                registers,
            });
        }
        if read + without > 0 {
            self.notes.push(ZephyrNote::Threads { read, without });
        }
        if list.is_cut {
            self.notes.push(ZephyrNote::CutThreads);
        }
        known
    }
}
