//! The streams of a minidump (Windows SDK, minidumpapiset.h; Breakpad, minidump_format.h).

use crate::import::fields::Fields;
use crate::import::note::MinidumpNote;
use std::collections::HashMap;

/// Types of streams.
const THREAD_LIST: u32 = 3;
const MODULE_LIST: u32 = 4;
const MEMORY_LIST: u32 = 5;
const EXCEPTION: u32 = 6;
const SYSTEM_INFO: u32 = 7;
const MEMORY_64_LIST: u32 = 9;
const THREAD_NAMES: u32 = 24;

/// The exception code of a dump that the program requested without a fault.
pub const REQUESTED: u32 = 0xFFFF_FFFF;

/// The maximum numbers of streams, threads and modules that are read.
const MAX_STREAMS: u32 = 1 << 12;
const MAX_THREADS: usize = 1 << 14;
const MAX_MODULES: usize = 1 << 12;
/// The maximum length of a name, in units of UTF-16.
const LONGEST_NAME: usize = 1024;

/// The layout of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// ARM64, in Windows' layout.
    Arm64,
    /// ARM64, in the layout that Breakpad used before 2018.
    OldArm64,
    /// ARM.
    Arm,
}

impl Architecture {
    /// Whether addresses have 64 bits.
    pub const fn is_64bit(self) -> bool {
        !matches!(self, Self::Arm)
    }

    /// The type of the cores.
    pub const fn core_type(self) -> &'static str {
        match self {
            Self::Arm64 | Self::OldArm64 => "ARMv8-A",
            Self::Arm => "ARMv7-A",
        }
    }
}

/// The operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux, with Android.
    Linux,
    /// Windows.
    Windows,
    /// macOS, iOS.
    Apple,
    /// Another one, by its number.
    Other(u32),
}

/// Where data are in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    size: u32,
    offset: u32,
}

impl Location {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (size, offset) = (fields.u32()?, fields.u32()?);
        Some(Self { size, offset })
    }

    /// The data; `None` if there are none, or not all are in the file.
    pub fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        let begin = usize::try_from(self.offset).ok()?;
        let end = begin.checked_add(usize::try_from(self.size).ok()?)?;
        bytes.get(begin..end).filter(|data| !data.is_empty())
    }
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its registers.
    pub context: Location,
    /// Its name.
    pub name: Option<String>,
}

/// The exception for which the dump was written.
#[derive(Clone, Debug)]
pub struct Exception {
    /// The thread.
    pub tid: u32,
    /// On Linux, the signal.
    pub code: u32,
    /// On Linux, `si_code`.
    pub flags: u32,
    /// On Linux, `si_addr`.
    pub address: u64,
    /// The registers at the exception.
    pub context: Location,
}

/// A program or a library.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its load address.
    pub base: u64,
    /// What identifies it: a CodeView record.
    pub identity: Location,
}

/// A part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its address.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

/// The contents of a minidump.
#[derive(Clone, Debug)]
pub struct Minidump {
    /// The layout of the registers.
    pub architecture: Architecture,
    /// The operating system.
    pub system: System,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The exception.
    pub exception: Option<Exception>,
    /// The modules; the first one is the program.
    pub modules: Vec<Module>,
    /// The memory; parts may overlap.
    pub memory: Vec<Part>,
    /// What could not be read.
    pub notes: Vec<MinidumpNote>,
}

impl Minidump {
    /// Reads the lists of a minidump.
    ///
    /// # Errors
    ///
    /// If it is cut in its header, has no threads, or is of another architecture.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let streams = directory(bytes);
        let streams = streams.ok_or("minidump cut in its header or its list of streams")?;
        let find = |kind: u32| {
            let mut streams = streams.iter().filter(|stream| stream.0 == kind);
            streams.find_map(|(_, place)| begin(*place, bytes))
        };
        let (architecture, system) = find(SYSTEM_INFO)
            .and_then(system)
            .ok_or("minidump without the description of its system")?;
        let architecture = match architecture {
            5 => Architecture::Arm,
            12 => Architecture::Arm64,
            0x8003 => Architecture::OldArm64,
            other => {
                return Err(format!(
                    "minidump for processor architecture {other}: expected ARM64 (12, 32771) or ARM (5)"
                ));
            }
        };
        let mut out = Self {
            architecture,
            system,
            threads: Vec::new(),
            exception: find(EXCEPTION).and_then(exception),
            modules: Vec::new(),
            memory: Vec::new(),
            notes: Vec::new(),
        };
        if let Some(list) = find(THREAD_LIST) {
            out.thread_list(list, find(THREAD_NAMES), bytes);
        }
        if out.threads.is_empty() {
            return Err("minidump without threads".to_owned());
        }
        if let Some(list) = find(MEMORY_LIST) {
            let parts = entries(list, 16, usize::MAX, |fields| {
                let (address, place) = (fields.u64()?, Location::read(fields)?);
                Some(part(address, place))
            });
            out.cut("memory", &parts);
            out.memory.extend(parts.found);
        }
        if let Some(list) = find(MEMORY_64_LIST) {
            out.whole_memory(list);
        }
        if let Some(list) = find(MODULE_LIST) {
            let modules = entries(list, 108, MAX_MODULES, |fields| module(fields, bytes));
            out.cut("modules", &modules);
            out.modules = modules.found;
        }
        Ok(out)
    }

    /// What it is, for messages.
    pub fn kind(&self) -> String {
        match self.system {
            System::Linux => "minidump of a Linux program".to_owned(),
            System::Windows => "minidump of a Windows program".to_owned(),
            System::Apple => "minidump of a macOS or iOS program".to_owned(),
            System::Other(_) => "minidump".to_owned(),
        }
    }

    /// Threads, and their stacks.
    fn thread_list(&mut self, list: &[u8], names: Option<&[u8]>, bytes: &[u8]) {
        let threads = entries(list, 48, MAX_THREADS, |fields| {
            let tid = fields.u32()?;
            // Suspend count, priorities, and the address of its environment.
            fields.bytes(20)?;
            let stack = part(fields.u64()?, Location::read(fields)?);
            let context = Location::read(fields)?;
            let name = None;
            Some((Thread { tid, context, name }, stack))
        });
        self.cut("threads", &threads);
        let names = names.map(|list| {
            entries(list, 12, MAX_THREADS, |fields| {
                let (tid, at) = (fields.u32()?, fields.u64()?);
                Some((tid, text(bytes, at)?))
            })
        });
        let mut names: HashMap<u32, String> =
            names.into_iter().flat_map(|names| names.found).collect();
        for (mut thread, stack) in threads.found {
            thread.name = names.remove(&thread.tid);
            self.threads.push(thread);
            self.memory.push(stack);
        }
    }

    /// The memory of a full dump: the parts follow each other in the file.
    fn whole_memory(&mut self, list: &[u8]) {
        let mut fields = Fields::new(list, false);
        let (Some(count), Some(mut offset)) = (fields.u64(), fields.u64()) else {
            return;
        };
        let there = fields.rest().len() as u64 / 16;
        for _ in 0..count.min(there) {
            let (Some(address), Some(length)) = (fields.u64(), fields.u64()) else {
                break;
            };
            self.memory.push(Part {
                address,
                offset,
                length,
            });
            offset = offset.saturating_add(length);
        }
        if there < count {
            self.notes.push(MinidumpNote::CutList {
                what: "memory",
                entries: count,
                used: there,
            });
        }
    }

    fn cut<T>(&mut self, what: &'static str, entries: &Entries<T>) {
        if entries.found.len() < entries.count as usize {
            self.notes.push(MinidumpNote::CutList {
                what,
                entries: entries.count.into(),
                used: entries.found.len() as u64,
            });
        }
    }
}

/// The entries of a list.
struct Entries<T> {
    /// Their number by the list.
    count: u32,
    /// Those that can be read.
    found: Vec<T>,
}

/// Reads a list: a number, and entries of `size` bytes. Some writers align the entries to 8 bytes.
fn entries<'b, T>(
    list: &'b [u8],
    size: usize,
    most: usize,
    read: impl Fn(&mut Fields<'b>) -> Option<T>,
) -> Entries<T> {
    let mut fields = Fields::new(list, false);
    let count = fields.u32().unwrap_or(0);
    let there = fields.rest().len();
    if (count as usize).checked_mul(size) == there.checked_sub(4) {
        fields.bytes(4);
    }
    let mut found = Vec::new();
    for _ in 0..(count as usize).min(most) {
        let Some(entry) = fields.bytes(size) else {
            break;
        };
        found.extend(read(&mut fields.again(entry)));
    }
    Entries { count, found }
}

/// The types and places of the streams.
fn directory(bytes: &[u8]) -> Option<Vec<(u32, Location)>> {
    let mut fields = Fields::new(bytes, false);
    fields.bytes(8)?;
    let (count, offset) = (fields.u32()?, fields.u32()?);
    // Checksum, time, flags.
    fields.bytes(16)?;
    let mut fields = fields.again(bytes.get(offset as usize..)?);
    let read = |_| Some((fields.u32()?, Location::read(&mut fields)?));
    (0..count.min(MAX_STREAMS)).map(read).collect()
}

/// The bytes of a stream, of which the last may be missing.
fn begin(place: Location, bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.get(place.offset as usize..)?;
    Some(&bytes[..bytes.len().min(place.size as usize)])
}

/// The processor architecture and the operating system.
fn system(stream: &[u8]) -> Option<(u16, System)> {
    let mut fields = Fields::new(stream, false);
    let architecture = fields.u16()?;
    fields.bytes(18)?;
    let system = match fields.u32()? {
        1..=2 => System::Windows,
        0x8101 | 0x8102 => System::Apple,
        0x8201 | 0x8203 => System::Linux,
        other => System::Other(other),
    };
    Some((architecture, system))
}

fn exception(stream: &[u8]) -> Option<Exception> {
    let mut fields = Fields::new(stream, false);
    let tid = fields.u32()?;
    fields.bytes(4)?;
    let (code, flags) = (fields.u32()?, fields.u32()?);
    // The address of a nested record.
    fields.bytes(8)?;
    let address = fields.u64()?;
    // The number of parameters, and 15 parameters.
    fields.bytes(8 + 15 * 8)?;
    let context = Location::read(&mut fields)?;
    Some(Exception {
        tid,
        code,
        flags,
        address,
        context,
    })
}

fn module(fields: &mut Fields<'_>, bytes: &[u8]) -> Option<Module> {
    let base = fields.u64()?;
    // Size, checksum, time.
    fields.bytes(12)?;
    let name = fields.u32()?;
    // VS_FIXEDFILEINFO.
    fields.bytes(52)?;
    let identity = Location::read(fields)?;
    Some(Module {
        path: text(bytes, name.into()).unwrap_or_default(),
        base,
        identity,
    })
}

/// A string: its length in bytes, and UTF-16.
fn text(bytes: &[u8], at: u64) -> Option<String> {
    let mut fields = Fields::new(bytes.get(usize::try_from(at).ok()?..)?, false);
    let length = fields.u32()? as usize / 2;
    let units = fields.bytes(2 * length.min(LONGEST_NAME))?;
    let units = units.as_chunks().0.iter().copied().map(u16::from_le_bytes);
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    Some(String::from_utf16_lossy(&units))
}

fn part(address: u64, place: Location) -> Part {
    Part {
        address,
        offset: place.offset.into(),
        length: place.size.into(),
    }
}
