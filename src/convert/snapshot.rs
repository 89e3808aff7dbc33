//! Trace file → snapshot.
//!
//! The snapshot carried in a file is restored. From any other file, one trace frame becomes a
//! snapshot of one core that contains only what was collected in that frame.

use super::carrier::{Carried, CarrierError, FIELD, Memory};
use super::chosen::ChosenArchitecture;
use super::note::{Note, PcSource};
use super::steps::{address_variable, variable};
use super::{Error, Progress};
use crate::remote_protocol::hex;
use crate::tfile::{Block, ByteOrder, File, TraceFrame};
use armsnap_arch::arch::Architecture;
use armsnap_arch::arch::target::Target;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::files::InMemory;
use armsnap_snapshot::snapshot::model::{
    Device, DeviceClass, Dump, OtherSection, Register, RegisterValue, Snapshot, TRACE_FRAME,
    TRACE_FRAME_KEY,
};
use armsnap_snapshot::snapshot::write;
use std::path::Path;

/// The file with the memory of trace frames.
const MEMORY: &str = "memory.bin";

/// Options for reading a trace file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The trace frame to convert; if `None`, the carried snapshot, or else the last frame.
    pub frame: Option<usize>,
    /// Whether memory of earlier frames fills missing memory.
    pub merge: bool,
    /// The architecture, for a file that does not name it.
    pub chosen: Option<ChosenArchitecture>,
}

/// A snapshot read from a trace file.
#[derive(Clone, Debug)]
pub enum RestoredSnapshot {
    /// The snapshot carried in the file.
    Carried(Carried),
    /// A snapshot generated from a trace frame, and its dumps.
    Made(Box<Snapshot>, InMemory),
}

impl RestoredSnapshot {
    /// Writes the snapshot into the new directory `dir`; `force` replaces an existing snapshot.
    ///
    /// # Errors
    ///
    /// If `dir` may not be replaced, or writing fails.
    pub fn write(&self, dir: &Path, force: bool, progress: Progress<'_>) -> Result<(), Error> {
        match self {
            Self::Carried(carried) => carried.write(dir, force, progress)?,
            Self::Made(snapshot, dumps) => {
                write::write_with_progress(snapshot, dumps, dir, force, progress)?;
            }
        }
        Ok(())
    }
}

/// Reads a trace file; `name` identifies it in the snapshot's description. Notes are added to
/// `notes`.
///
/// # Errors
///
/// If the file is damaged or has no target description, or does not contain the wanted trace frame.
pub fn read(
    bytes: &Mapped,
    name: &str,
    options: &Options,
    notes: &mut Vec<Note>,
) -> Result<RestoredSnapshot, Error> {
    let order = options.chosen.and_then(|chosen| chosen.order);
    let file = File::open(bytes, order)?;
    let file = file.releasing(|walked| bytes.release(walked));
    notes.extend(file.notes().iter().cloned().map(Note::TraceFile));
    let description = file.description().target.as_deref();
    let named = options.chosen.as_ref().map(|chosen| &chosen.named);
    let target = Target::of_file(description, named);
    let by_default = target.as_ref().ok().and_then(|target| target.by_default);
    notes.extend(by_default.map(Note::DefaultRegisters));
    if options.frame.is_none()
        && !options.merge
        && let Some(carried) = carried(bytes, &file)
    {
        if options.chosen.is_some() {
            target?;
        }
        return Ok(RestoredSnapshot::Carried(carried?));
    }
    let frame = choose(&file, options.frame, notes)?;
    let target = target?;
    let made = Making {
        file: &file,
        target,
        frame,
        name,
        notes,
    };
    let (snapshot, dumps) = made.make(options.merge)?;
    Ok(RestoredSnapshot::Made(Box::new(snapshot), dumps))
}

/// The snapshot carried in a file, or the reason why it cannot be read.
fn carried(bytes: &[u8], file: &File<'_>) -> Option<Result<Carried, CarrierError>> {
    let fields = &file.description().status.as_ref()?.other;
    let (_, value) = fields.iter().find(|(name, _)| name == FIELD)?;
    let length = hex::number(value).and_then(|length| usize::try_from(length).ok());
    let Some(begin) = length.and_then(|length| bytes.len().checked_sub(length)) else {
        return Some(Err(CarrierError::Size(value.clone())));
    };
    let mut memory = Memory::default();
    if let Some(Ok(first)) = file.frame(0) {
        add_memory(&first, &mut memory);
    }
    Some(Carried::read(&bytes[begin..], &memory))
}

fn add_memory<'a>(frame: &TraceFrame<'a>, memory: &mut Memory<'a>) -> Vec<(u64, &'a [u8])> {
    let mut new = Vec::new();
    for block in frame.blocks() {
        if let Block::Memory { address, bytes } = block {
            new.extend(memory.add(address, bytes));
        }
    }
    new
}

/// Trace frame `wanted`, or the last one.
fn choose<'a>(
    file: &File<'a>,
    wanted: Option<usize>,
    notes: &mut Vec<Note>,
) -> Result<TraceFrame<'a>, Error> {
    let count = file.count();
    if let Some(Err(cut)) = file.frame(count) {
        notes.push(Note::Cut(cut));
    }
    if count == 0 {
        return Err(Error::Input(
            "it contains no complete trace frame".to_owned(),
        ));
    }
    match file.frame(wanted.unwrap_or(count - 1)) {
        Some(Ok(frame)) => Ok(frame),
        _ => Err(Error::Usage(format!(
            "expected a trace frame from 0 to {}, found {}",
            count - 1,
            wanted.unwrap_or_default()
        ))),
    }
}

/// A trace frame from which a snapshot is generated.
struct Making<'f, 'a> {
    file: &'f File<'a>,
    target: Target,
    frame: TraceFrame<'a>,
    name: &'f str,
    notes: &'f mut Vec<Note>,
}

impl<'a> Making<'_, 'a> {
    fn make(mut self, merge: bool) -> Result<(Snapshot, InMemory), Error> {
        for block in self.frame.blocks() {
            if let Block::Unreadable { kind, at } = block {
                let frame = self.frame.number;
                self.notes.push(Note::UnreadableBlock { frame, kind, at });
            }
        }
        let mut dumps = InMemory::default();
        let device = Device {
            key: "device1".to_owned(),
            file: "device1.ini".to_owned(),
            name: "cpu_0".to_owned(),
            class: DeviceClass::Core,
            kind: kind(self.target.architecture).to_owned(),
            registers: self.registers(),
            dumps: self.dumps(merge, &mut dumps),
            ..Device::default()
        };
        let snapshot = Snapshot {
            version: "1.0".to_owned(),
            description: Some(self.title()),
            devices: vec![device],
            other_sections: vec![self.frame_section()],
            ..Snapshot::default()
        };
        Ok((snapshot, dumps))
    }

    /// The address of the frame's tracepoint, if GDB also uses it as the program counter.
    fn tracepoint_address(&self) -> Option<u64> {
        let addresses = self.file.description().addresses();
        *addresses.get(&self.frame.tracepoint.into())?
    }

    fn title(&self) -> String {
        let number = self.frame.number;
        let tracepoint = self.frame.tracepoint;
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        match self.tracepoint_address() {
            Some(address) => {
                format!("trace frame {number} of {name}: tracepoint {tracepoint} at {address:#x}")
            }
            None => format!("trace frame {number} of {name}: tracepoint {tracepoint}"),
        }
    }

    fn frame_section(&self) -> OtherSection {
        let mut entries = vec![
            ("frame".to_owned(), self.frame.number.to_string()),
            ("tracepoint".to_owned(), self.frame.tracepoint.to_string()),
        ];
        for block in self.frame.blocks() {
            if let Block::Variable { number, value } = block {
                let variables = self.file.description().variables.iter();
                let named = variables
                    .filter(|variable| i64::from(variable.number) == i64::from(number))
                    .find(|variable| plain(&variable.name));
                let name = match named {
                    Some(variable) => format!("${}", variable.name),
                    None => format!("${number}"),
                };
                entries.push((name, value.to_string()));
            }
        }
        OtherSection {
            name: TRACE_FRAME.to_owned(),
            entries,
            ..OtherSection::default()
        }
    }

    fn registers(&mut self) -> Vec<Register> {
        let target = &self.target;
        let block = self.frame.blocks().find_map(|block| match block {
            Block::Registers(bytes) => Some(bytes),
            _ => None,
        });
        let Some(block) = block else {
            let own = address_variable(self.file.description());
            let own = own.and_then(|number| variable(&self.frame, number));
            let own = own.map(|pc| (pc, PcSource::Variable));
            let by_tracepoint = || Some((self.tracepoint_address()?, PcSource::Tracepoint));
            let pc = own.or_else(by_tracepoint);
            self.notes.push(Note::NoRegisters {
                frame: self.frame.number,
                pc: pc.map(|(_, source)| source),
            });
            let pc = pc.map(|(pc, _)| pc);
            let bits = target.architecture.general_bits();
            return pc
                .map(|pc| register("PC", bits as usize / 8, &pc.to_le_bytes()))
                .into_iter()
                .collect();
        };
        let mut registers = Vec::new();
        let mut rest = block;
        let mut left = 0;
        for (name, bytes) in &target.registers {
            let Some((value, after)) = rest.split_at_checked(*bytes) else {
                rest = &[];
                left += 1;
                continue;
            };
            rest = after;
            let mut value = value.to_vec();
            if self.file.order() == ByteOrder::Big {
                value.reverse();
            }
            if !value.is_empty() && plain(name) {
                registers.push(register(&name.to_ascii_uppercase(), *bytes, &value));
            }
        }
        if left > 0 {
            self.notes.push(Note::ShortRegisters {
                frame: self.frame.number,
                missing: left,
                registers: target.registers.len(),
            });
        }
        registers
    }

    /// The frame's memory; with `merge`, memory of earlier frames fills what is missing.
    fn dumps(&self, merge: bool, files: &mut InMemory) -> Vec<Dump> {
        let mut memory = Memory::default();
        // By address: the frame number and the bytes.
        let mut pieces: Vec<(u64, usize, &'a [u8])> = Vec::new();
        let mut add = |number: usize, new: Vec<(u64, &'a [u8])>| {
            pieces.extend(
                new.into_iter()
                    .map(|(address, bytes)| (address, number, bytes)),
            );
        };
        add(self.frame.number, add_memory(&self.frame, &mut memory));
        if merge {
            let earlier = self.file.frames().take(self.frame.number);
            let earlier: Vec<TraceFrame<'a>> = earlier.map_while(Result::ok).collect();
            for frame in earlier.iter().rev() {
                add(frame.number, add_memory(frame, &mut memory));
            }
        }
        pieces.sort_unstable_by_key(|(address, _, _)| *address);
        let mut dumps: Vec<Dump> = Vec::new();
        // All pieces are written to one file, however many there are.
        let mut file = Vec::new();
        let mut last_frame = None;
        for (address, frame, bytes) in pieces {
            let offset = file.len() as u64;
            file.extend_from_slice(bytes);
            let before = dumps.last_mut().filter(|_| last_frame == Some(frame));
            if let Some(dump) = before
                && let Some(length) = &mut dump.length
                && dump.address.checked_add(*length) == Some(address)
            {
                *length += bytes.len() as u64;
                continue;
            }
            last_frame = Some(frame);
            dumps.push(Dump {
                section: format!("dump{}", dumps.len() + 1),
                file: MEMORY.to_owned(),
                address,
                length: Some(bytes.len() as u64),
                offset: (offset > 0).then_some(offset),
                other: if merge {
                    vec![(TRACE_FRAME_KEY.to_owned(), frame.to_string())]
                } else {
                    Vec::new()
                },
                ..Dump::default()
            });
        }
        if !dumps.is_empty() {
            files.0.insert(MEMORY.to_owned(), file.into());
        }
        dumps
    }
}

/// Whether a name can be a key of an .ini file.
fn plain(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    !name.is_empty() && name.chars().all(fits)
}

fn register(name: &str, bytes: usize, value: &[u8]) -> Register {
    let bits = bytes as u32 * 8;
    Register {
        name: name.to_owned(),
        size: Some(bits),
        value: RegisterValue(value[..bytes.min(value.len())].to_vec()).canonical(Some(bits)),
        ..Register::default()
    }
}

/// The `type` of a core of which only the architecture is known.
const fn kind(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::AArch64 => "ARM-AA64",
        Architecture::AArch32 => "ARM-AA32",
        Architecture::MProfile => "ARMv7-M",
    }
}
