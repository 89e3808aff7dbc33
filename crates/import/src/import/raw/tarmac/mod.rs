//! Tarmac traces: the text in which models and RTL simulations list what their cores execute.
//!
//! [`line`] reads the lines, [`course`] follows a core, [`state`] keeps its registers, and [`image`] the
//! memory.

mod course;
mod image;
mod line;
mod state;

use super::registers::{Kind, List};
use super::snapshot::RawSnapshot;
use super::units::Unit;
use crate::import::imported::SECTION;
use crate::import::note::TarmacNote;
use crate::import::{ImportError, Imported, Options, programs};
use armsnap_arch::quantity::Isa;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::core_files;
use armsnap_snapshot::snapshot::model::Dump;
use armsnap_trace::data_addresses::Addresses;
use course::Course;
use image::Image;
use line::Event;
use std::collections::BTreeMap;
use std::path::Path;

/// The longest line that is looked at.
const LONGEST_LINE: usize = 1024;
/// The number of lines by which a trace is recognised, and the least number of those that list
/// registers, if no instruction is among them.
const LOOKED_AT: usize = 100;
const LEAST_REGISTERS: usize = 8;
/// The maximum number of cores.
const MAX_CORES: usize = 64;
/// The file of the memory.
const MEMORY: &str = "memory/tarmac.bin";
/// The maximum number of parts of memory in a small trace, for all cores together; each
/// [`BYTES_EACH`] bytes allow one more.
const LEAST_PARTS: usize = 1 << 12;
const BYTES_EACH: usize = 64;

fn lines(bytes: &[u8]) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.map(|line| String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]))
}

/// Whether bytes are the start of a Tarmac trace: nearly all lines are those of one.
pub fn is_tarmac(head: &[u8]) -> bool {
    if !crate::import::zephyr::is_text(head) {
        return false;
    }
    let (mut all, mut known, mut executed, mut registers) = (0, 0, 0, 0);
    // The last line may be cut.
    let whole = head.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    for line in lines(&head[..whole])
        .filter(|line| !line.trim().is_empty())
        .take(LOOKED_AT)
    {
        all += 1;
        let found = line::read(&line, None);
        known += usize::from(found.is_some());
        match found {
            Some((_, Event::Executed(_))) => executed += 1,
            Some((_, Event::Register(..))) => registers += 1,
            _ => {}
        }
    }
    known * 10 >= all * 9 && (executed > 1 || registers >= LEAST_REGISTERS)
}

/// Reads a Tarmac trace from its bytes; `path` is its name.
///
/// # Errors
///
/// If no instruction was executed, or a program that the user names cannot be read.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let nothing = || ImportError::input(path, "Tarmac trace without executed instructions");
    let first = lines(&bytes).find_map(|line| match line::read(&line, None) {
        Some((_, Event::Executed(found))) => Some((found.mode.to_owned(), found.isa)),
        _ => None,
    });
    let mut trace = Trace::new(first.ok_or_else(nothing)?);
    lines(&bytes).for_each(|line| trace.line(&line));
    let mut out = RawSnapshot::new(None, Vec::new(), options)?;
    let (mut made, mut files, mut executed) = (Vec::new(), Vec::new(), 0);
    for course in std::mem::take(&mut trace.cores).into_values() {
        let unit = Course::unit(course.mode);
        let is_micro = course.mode.is_micro;
        let done = course.finish();
        let kind = match done.isa {
            _ if is_micro => Kind::Micro,
            Some(Isa::A64) => Kind::Wide,
            _ => Kind::Narrow,
        };
        let list = List::of(done.registers, Some(kind)).filter(|_| done.executed > 0);
        let Some(list) = list else { continue };
        let core = out.cores.devices.len();
        let name = out.listed(list);
        executed += done.executed;
        if let Some(addresses) = done.addresses {
            let file = format!("data_addresses_{core}.bin");
            out.out.files.insert(file.clone(), addresses.into());
            files.push((name, file));
        }
        made.push((core, unit, done.trace));
    }
    if made.is_empty() {
        return Err(nothing());
    }
    let cores = made.len();
    let most = (LEAST_PARTS + bytes.len() / BYTES_EACH) / cores;
    let parts = trace.image.parts(most);
    let dumps = parts.ranges.into_iter().map(|(range, begin)| Dump {
        file: MEMORY.to_owned(),
        address: range.start,
        offset: Some(begin as u64),
        length: Some(range.end - range.start),
        ..Dump::default()
    });
    let mut dumps: Vec<Dump> = dumps.collect();
    out.out.files.insert(MEMORY.to_owned(), parts.bytes.into());
    dumps.extend(programs::dumps(&options.elf, &mut out.out)?);
    out.cores.add_memory(dumps);
    for (core, mut options, trace) in made {
        options.trace_id += core as u8;
        let mut unit = Unit::new("etm", "ETM4.2");
        for (name, value) in options.registers() {
            unit.set(name, value);
        }
        out.made(unit, core, trace);
    }
    let notes = [
        Some(TarmacNote::Read {
            instructions: executed,
            cores,
        }),
        trace.image.changed.then_some(TarmacNote::ChangedCode),
        trace.others.then_some(TarmacNote::OtherWriters),
        (trace.unread > 0).then_some(TarmacNote::Unread {
            lines: trace.unread,
        }),
        (parts.left_out > 0).then_some(TarmacNote::MoreMemory {
            parts: parts.left_out,
        }),
    ];
    out.out
        .notes
        .extend(notes.into_iter().flatten().map(Into::into));
    out.out.kind = "Tarmac trace".to_owned();
    let mut imported = out.imported();
    let sections = &mut imported.snapshot.other_sections;
    // All cores have the same memory.
    let own = sections.iter_mut().find(|section| section.name == SECTION);
    for (key, value) in own.into_iter().flat_map(|section| &mut section.entries) {
        if key == "memory" && (cores > 1 || trace.others) {
            "shared".clone_into(value);
        }
    }
    sections.extend(core_files::section::<Addresses<Mapped>>(files));
    Ok(imported)
}

/// What the lines say.
struct Trace {
    first: (String, Isa),
    cores: BTreeMap<u32, Course>,
    image: Image,
    /// Whether a load returned what no store of the trace wrote.
    others: bool,
    /// The number of lines that are not read.
    unread: u64,
    /// Whether the last line was a load or a store.
    continues: Option<bool>,
}

impl Trace {
    fn new(first: (String, Isa)) -> Self {
        Self {
            first,
            cores: BTreeMap::new(),
            image: Image::default(),
            others: false,
            unread: 0,
            continues: None,
        }
    }

    fn line(&mut self, line: &str) {
        let Some((number, event)) = line::read(line, self.continues.take()) else {
            self.unread += u64::from(!line.trim().is_empty());
            return;
        };
        if self.cores.len() >= MAX_CORES && !self.cores.contains_key(&number) {
            self.unread += 1;
            return;
        }
        let core = self.cores.entry(number);
        let core = core.or_insert_with(|| Course::new(&self.first.0, self.first.1));
        match event {
            Event::Executed(executed) => {
                self.others |= core.executed(&executed, &mut self.image);
            }
            Event::Register(name, bank, value) => core.register(name, bank, value),
            Event::Memory(access) => {
                self.continues = Some(access.store);
                core.access(access);
            }
            Event::Exception(text) => core.exception(text),
            Event::Change => core.change(),
            Event::Other => {}
        }
    }
}
