//! Snapshot → trace file.
//!
//! Trace frame 0 is the halted state of a core, the others are its decoded trace in order of
//! time. Behind them the snapshot's files travel along (see [`super::carrier`]).

use super::carrier::{Cargo, FIELD};
use super::state::State;
use super::visits::{Kind, Visit};
use super::window::{Bound, Limits, Window};
use super::{Error, history};
use crate::arch::Architecture;
use crate::quantity::{Address, Isa};
use crate::report::symbols::Symbols;
use crate::snapshot::Loaded;
use crate::snapshot::elf::Elf;
use crate::snapshot::memory::{CoreMemory, Space};
use crate::snapshot::model::DeviceClass;
use crate::tfile::{
    ByteOrder, Description, SourceString, Status, StopReason, TRACEPOINT_LIMIT, Tracepoint,
    Variable, Writer, memory_size,
};
use std::collections::HashMap;
use std::io::Write;

/// The most trace frames, unless the user says how many.
pub const FRAMES: usize = 1_000_000;

/// The most distinct addresses, unless the user chooses a window: GDB's time to load them grows
/// with their square, and these take seconds.
pub const ADDRESSES: usize = 5_000;

/// The most distinct addresses that a trace file can hold: a tracepoint for each, one for the
/// halted state, and one number that stands for no tracepoint.
pub const MOST_ADDRESSES: usize = TRACEPOINT_LIMIT as usize - 2;

/// The most bytes of a trace frame: GDB counts them with 31 bits.
const FRAME_LIMIT: usize = i32::MAX as usize;

/// The tracepoint of the halted state, if its program counter is known.
const HALTED: u16 = 1;

/// The number of no tracepoint: GDB shows the program counter of its frame as unavailable.
const NOWHERE: u16 = TRACEPOINT_LIMIT;

/// What to convert, and how.
#[derive(Default)]
pub struct Options {
    /// Name of the core; all if `None`.
    pub core: Option<String>,
    /// Which executed instructions become trace frames.
    pub frames: Kind,
    /// Begin here.
    pub from: Option<Bound>,
    /// End here.
    pub to: Option<Bound>,
    /// The last so many.
    pub last: Option<usize>,
    /// Without the trace.
    pub state_only: bool,
    /// Programs: code where no dump has any, and names of functions.
    pub elfs: Vec<Elf>,
}

impl Options {
    fn limits(&self) -> Limits {
        Limits {
            from: self.from,
            to: self.to,
            last: self.last.unwrap_or(FRAMES),
        }
    }

    fn window_chosen(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.last.is_some()
    }
}

/// The trace state variables. Their numbers are 1 and up, in this order.
const VARIABLES: [&str; 9] = [
    "cycles",
    "timestamp",
    "context_id",
    "vmid",
    "el",
    "exception",
    "core",
    "offset",
    "thumb",
];

/// The number of `core`.
const CORE: i32 = 7;

fn values(visit: &Visit, core: usize) -> [Option<i64>; VARIABLES.len()] {
    [
        visit.cycles.map(u64::cast_signed),
        visit.timestamp.map(u64::cast_signed),
        visit.context_id.map(i64::from),
        visit.vmid.map(i64::from),
        visit.el.map(|level| i64::from(level.0)),
        visit.exception.map(i64::from),
        Some(core as i64),
        Some(visit.offset.0.cast_signed()),
        match visit.isa {
            Isa::A64 => None,
            Isa::A32 => Some(0),
            Isa::T32 => Some(1),
            Isa::ThumbEe | Isa::Jazelle => None,
        },
    ]
}

/// A trace file to be: of one core, or of a snapshot that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The core's place in the device list.
    pub core: Option<usize>,
    /// It is the only one asked for by name.
    alone: bool,
}

/// The trace files that a snapshot becomes: one for each core, or for the one that `options`
/// name. A snapshot without cores becomes one that only carries it.
pub fn parts(loaded: &Loaded, options: &Options) -> Result<Vec<Part>, Error> {
    let devices = loaded.snapshot.devices.iter().enumerate();
    let cores: Vec<usize> = devices
        .filter(|(_, device)| device.class == DeviceClass::Core)
        .map(|(index, _)| index)
        .collect();
    let name = |core: usize| loaded.snapshot.devices[core].name.trim();
    let Some(wanted) = &options.core else {
        let mut parts: Vec<Part> = cores
            .iter()
            .map(|&core| Part {
                core: Some(core),
                alone: false,
            })
            .collect();
        if parts.is_empty() {
            parts.push(Part {
                core: None,
                alone: true,
            });
        }
        return Ok(parts);
    };
    let same = |core: &&usize| name(**core).eq_ignore_ascii_case(wanted.trim());
    match cores.iter().find(same) {
        Some(&core) => Ok(vec![Part {
            core: Some(core),
            alone: true,
        }]),
        None => {
            let names: Vec<&str> = cores.iter().map(|&core| name(core)).collect();
            Err(Error::Usage(format!(
                "expected the name of a core, found {wanted:?}: {}",
                names.join(", ")
            )))
        }
    }
}

/// Writes the trace file of `part` to `out`. What the user should know goes to `notes`.
pub fn write<W: Write>(
    loaded: &Loaded,
    part: Part,
    options: &Options,
    out: W,
    notes: &mut Vec<String>,
) -> Result<W, Error> {
    let cargo = if options.state_only {
        Cargo::without_trace(loaded, notes)?
    } else {
        Cargo::whole(loaded, notes)
    };
    match part.core {
        Some(core) => Joined::of(loaded, core, part.alone, options, notes)?.write(&cargo, out),
        None => {
            notes.push(
                "no device of class core: the trace file carries the snapshot, and has nothing for GDB"
                    .to_owned(),
            );
            carry_only(&cargo, out)
        }
    }
}

/// A file with one empty trace frame: GDB warns of a file without any.
fn carry_only<W: Write>(cargo: &Cargo, out: W) -> Result<W, Error> {
    let loading = cargo.load(&[]);
    let description = Description {
        // GDB reads no file without a size.
        register_bytes: 4,
        status: Some(status(
            1,
            1,
            loading.length(),
            "a snapshot without cores".to_owned(),
        )),
        target: Some("<?xml version=\"1.0\"?>\n<target version=\"1.0\"></target>\n".to_owned()),
        ..Description::default()
    };
    let mut writer = Writer::new(out, &description, ByteOrder::Little)?;
    writer.end_frame(NOWHERE)?;
    let mut out = writer.finish()?;
    loading.write(&mut out)?;
    Ok(out)
}

fn status(frames: u64, created: u64, carrier: usize, notes: String) -> Status {
    Status {
        stop: Some(StopReason::Command("snapshot".to_owned())),
        frames: Some(frames),
        created: Some(created),
        notes: Some(notes),
        other: vec![(FIELD.to_owned(), format!("{carrier:x}"))],
        ..Status::default()
    }
}

/// What of a core goes into its file.
struct Joined<'a> {
    loaded: &'a Loaded,
    core: usize,
    state: State,
    window: Window,
    kind: Kind,
}

impl<'a> Joined<'a> {
    fn of(
        loaded: &'a Loaded,
        core: usize,
        alone: bool,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let state = State::of(loaded, core, alone);
        let name = &loaded.snapshot.devices[core].name;
        notes.extend(state.notes.iter().map(|note| format!("{name}: {note}")));
        notes.extend(register_note(&state).map(|note| format!("{name}: {note}")));
        let mut window = Window::new(options.limits());
        if !options.state_only {
            if loaded.snapshot.trace.is_none() {
                notes.push("the snapshot has no trace".to_owned());
            } else {
                window = decode(loaded, core, options, notes)?;
            }
        }
        let mut joined = Self {
            loaded,
            core,
            state,
            window,
            kind: options.frames,
        };
        joined.choose(options, notes)?;
        Ok(joined)
    }

    fn name(&self) -> &str {
        &self.loaded.snapshot.devices[self.core].name
    }

    /// Meets the limit of addresses, and tells what is left out.
    fn choose(&mut self, options: &Options, notes: &mut Vec<String>) -> Result<(), Error> {
        let name = self.name().to_owned();
        if let Some(missed) = self.window.missed().filter(|_| self.window.total() > 0) {
            let place = match missed {
                Bound::Address(address) => format!("at {address}"),
                Bound::Offset(offset) => format!("at or behind offset {:#x}", offset.0),
            };
            return Err(Error::Usage(format!(
                "{name}: none of {} trace frames is {place}, where the window should {}",
                self.window.total(),
                if Some(missed) == options.from {
                    "begin"
                } else {
                    "end"
                },
            )));
        }
        let addresses = self.addresses().len();
        if options.window_chosen() {
            if addresses > MOST_ADDRESSES {
                return Err(Error::Usage(format!(
                    "{name}: {} trace frames at {addresses} addresses: a trace file has tracepoints for \
                     {MOST_ADDRESSES}: choose a smaller window with --last, --from, --to, or \
                     --frames functions",
                    self.window.visits().len()
                )));
            }
            if addresses > ADDRESSES {
                notes.push(format!(
                    "{name}: {addresses} tracepoints: GDB's time to load them grows with their square"
                ));
            }
        } else {
            self.window.keep_addresses(ADDRESSES);
        }
        let (kept, total) = (self.window.visits().len() as u64, self.window.total());
        if kept < total && !options.window_chosen() {
            notes.push(format!(
                "{name}: the last {kept} of {total} trace frames are written (up to {FRAMES}, at up to \
                 {ADDRESSES} addresses): --last, --from, --to choose others, --frames functions \
                 makes fewer"
            ));
        }
        if let Some(hint) = self.mode_hint() {
            notes.push(format!("{name}: {hint}"));
        }
        Ok(())
    }

    /// Distinct addresses, in order of their first visit, with their tracepoints' numbers.
    fn addresses(&self) -> HashMap<Address, u16> {
        let mut numbers = HashMap::new();
        for visit in self.window.visits() {
            let next = (numbers.len() + 1 + usize::from(HALTED)).min(usize::from(NOWHERE));
            numbers.entry(visit.pc).or_insert(next as u16);
        }
        numbers
    }

    /// In A- and R-profile GDB takes the instruction set from symbols, or else from a CPSR that
    /// frames of the trace do not have.
    fn mode_hint(&self) -> Option<&'static str> {
        let a_profile = self.state.description.architecture() == Architecture::AArch32;
        (a_profile && !self.window.visits().is_empty()).then_some(
            "without symbols GDB disassembles frames of the trace after: set arm fallback-mode \
             thumb (or arm), as $thumb says",
        )
    }

    fn write<W: Write>(&self, cargo: &Cargo, out: W) -> Result<W, Error> {
        let memory = self.state.memory();
        let bytes: usize = memory
            .iter()
            .map(|(_, bytes)| memory_size(bytes.len()))
            .sum();
        let room = FRAME_LIMIT - self.state.block.len() - 64;
        if bytes > room {
            return Err(Error::Input(format!(
                "{}: its dumps hold {bytes} bytes: GDB reads trace frames of up to {FRAME_LIMIT}",
                self.name()
            )));
        }
        let loading = cargo.load(&memory);
        let numbers = self.addresses();
        let description = self.description(&numbers, loading.length());
        let mut writer = Writer::new(out, &description, ByteOrder::Little)?;
        if !self.state.block.is_empty() {
            writer.registers(&self.state.block)?;
        }
        writer.variable(CORE, self.core as i64);
        let halted = if self.state.pc.is_some() {
            HALTED
        } else {
            NOWHERE
        };
        writer.end_frame_with(halted, &memory)?;
        for visit in self.window.visits() {
            if visit.code_bytes > 0 {
                let code = &visit.code[..usize::from(visit.code_bytes)];
                writer.memory(visit.pc.0, code);
            }
            for (number, value) in (1..).zip(values(visit, self.core)) {
                if let Some(value) = value {
                    writer.variable(number, value);
                }
            }
            writer.end_frame(numbers.get(&visit.pc).copied().unwrap_or(NOWHERE))?;
        }
        let mut out = writer.finish()?;
        loading.write(&mut out)?;
        Ok(out)
    }

    fn description(&self, numbers: &HashMap<Address, u16>, carrier: usize) -> Description {
        let frames = self.window.visits().len() as u64 + 1;
        let created = self.window.total() + 1;
        let short = !self.state.block.is_empty();
        let register_bytes = if short {
            self.state.block.len() as u32
        } else {
            self.state.block_bytes
        };
        let mut tracepoints: Vec<Tracepoint> = Vec::with_capacity(numbers.len() + 1);
        if let Some(pc) = self.state.pc {
            tracepoints.push(tracepoint(HALTED, pc, "collect $regs"));
        }
        let collected = self.collected();
        let visited = numbers.iter();
        tracepoints.extend(visited.map(|(&pc, &number)| tracepoint(number, pc, &collected)));
        // GDB numbers them from the last one on: this way its numbers are ours.
        tracepoints.sort_by_key(|tracepoint| std::cmp::Reverse(tracepoint.number));
        // GDB shows them, too, from the last one on.
        let variables = (1..).zip(VARIABLES).map(|(number, name)| Variable {
            number,
            name: name.to_owned(),
            ..Variable::default()
        });
        let mut variables: Vec<Variable> = variables.collect();
        variables.reverse();
        Description {
            register_bytes,
            status: Some(status(frames, created, carrier, self.summary())),
            variables,
            tracepoints,
            target: Some(self.state.description.xml()),
            unknown: Vec::new(),
        }
    }

    /// What `tdump` shows of a frame of the trace: the variables that any of them has.
    fn collected(&self) -> String {
        let mut any = [false; VARIABLES.len()];
        for visit in self.window.visits() {
            for (any, value) in any.iter_mut().zip(values(visit, self.core)) {
                *any |= value.is_some();
            }
        }
        let there = VARIABLES.iter().zip(any).filter(|(_, any)| *any);
        let names: String = there.map(|(name, _)| format!(", ${name}")).collect();
        format!("collect $pc{names}")
    }

    /// For GDB's `tstatus`.
    fn summary(&self) -> String {
        let kept = self.window.visits().len();
        let mut text = format!("frame 0 is {} as saved", self.name());
        if kept > 0 {
            let what = match self.kind {
                Kind::Waypoints => "waypoints",
                Kind::Functions => "functions entered",
                Kind::Instructions => "instructions",
                Kind::Exceptions => "exceptions taken",
            };
            text += &format!("; frames 1 to {kept} are {what} of its trace, oldest first");
        }
        if (kept as u64) < self.window.total() {
            text += &format!(" ({kept} of {})", self.window.total());
        }
        if let Some(hint) = self.mode_hint() {
            text += "; ";
            text += hint;
        }
        // Its hex shares a line of limited length.
        let end = text
            .char_indices()
            .map(|(at, _)| at)
            .take_while(|&at| at <= 300);
        let end = end.last().unwrap_or(0);
        if text.len() > 300 {
            text.truncate(end);
        }
        text
    }
}

fn tracepoint(number: u16, pc: Address, collect: &str) -> Tracepoint {
    let source = |kind: &str, text: String| SourceString {
        kind: kind.to_owned(),
        text,
    };
    Tracepoint {
        // GDB warns of a tracepoint without a source location.
        sources: vec![
            source("at", format!("*{pc}")),
            source("cmd", collect.to_owned()),
        ],
        ..Tracepoint::at(u32::from(number), pc.0)
    }
}

/// What a register block cannot say.
fn register_note(state: &State) -> Option<String> {
    const LISTED: usize = 8;
    let list = |names: &[String]| {
        let more = names.len().saturating_sub(LISTED);
        let mut text = names[..names.len() - more].join(", ");
        if more > 0 {
            text += &format!(" and {more} more");
        }
        text
    };
    if state.unknown.is_empty() {
        return None;
    }
    let unknown = list(&state.unknown);
    Some(if state.left_out.is_empty() {
        format!("not known: {unknown}: GDB shows them as unavailable")
    } else {
        format!(
            "not known: {unknown}: a trace file cannot say so of registers in between, so GDB \
             shows {} as unavailable too; they are kept for the way back",
            list(&state.left_out)
        )
    })
}

fn decode(
    loaded: &Loaded,
    core: usize,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Window, Error> {
    let mut memory = CoreMemory::new(loaded, &loaded.snapshot.devices[core]);
    let mut symbols = Symbols::default();
    for elf in &options.elfs {
        let path = elf.path.display().to_string();
        for segment in &elf.segments {
            // Virtual memory of either security state, and no physical memory.
            for space in [Space::N, Space::S] {
                memory.add_region(Address(segment.address), elf.mapped(segment), space, &path);
            }
        }
        if let Err(reason) = symbols.add(elf.bytes()) {
            notes.push(format!("{path}: {reason}"));
        }
    }
    let symbols = (!symbols.is_empty()).then_some(&symbols);
    let limits = options.limits();
    history::decode(
        loaded,
        core,
        &memory,
        options.frames,
        symbols,
        limits,
        notes,
    )
    .map_err(Error::Input)
}
