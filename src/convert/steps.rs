//! The trace frames of a file as steps of a program: program counter and trace state variables.
//!
//! Independent of trace protocols and code.

use super::frame_values::{FrameValues, VARIABLES, Variable, Variables};
use super::trace_run::{ADDRESS, PROTOCOL};
use crate::remote_protocol::hex;
use crate::tfile::{Block, ByteOrder, Description, File, TraceFrame};
use armsnap_arch::arch::Architecture;
use armsnap_arch::arch::target::Target;
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa};
use armsnap_snapshot::capture::Protocol;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::program::instruction_sets::InstructionSets;
use armsnap_trace::encode::CodeAddress;
use std::collections::{HashMap, HashSet};

/// The contents of a trace frame. `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectedFrame {
    /// The executed instruction.
    pub place: Option<CodeAddress>,
    /// The values of the variables, and the exception level in CPSR.
    pub values: FrameValues,
}

/// A register in a register block.
#[derive(Clone, Copy, Debug)]
struct Field {
    begin: usize,
    bytes: usize,
}

/// The steps of a file.
pub struct Steps<'f, 'a> {
    file: &'f File<'a>,
    architecture: Architecture,
    pc: Option<Field>,
    status: Option<Field>,
    /// By variable number: the index in [`VARIABLES`].
    variables: HashMap<i32, usize>,
    /// The number of the variable with the address of a frame.
    address: Option<i32>,
    /// The address of each tracepoint that is also the program counter of its frames.
    addresses: HashMap<u32, Option<u64>>,
    watched: HashSet<u64>,
    /// The instruction sets in the programs, for frames that do not contain theirs.
    sets: Vec<InstructionSets<'f>>,
    /// Whether the file was written by this program: then frames without an offset in the trace are
    /// the halted state.
    own: bool,
}

/// The number of the variable with the address of a frame, in files of this program that have it.
pub(super) fn address_variable(description: &Description) -> Option<i32> {
    let number = |name: &str| {
        let mut variables = description.variables.iter();
        let found = variables.find(|variable| variable.name == name)?;
        Some(found.number.cast_signed())
    };
    for own in [Variable::Core, Variable::Offset] {
        number(VARIABLES[own as usize])?;
    }
    number(ADDRESS)
}

/// The value of a variable in a frame, as an address.
pub(super) fn variable(frame: &TraceFrame<'_>, wanted: i32) -> Option<u64> {
    frame.blocks().find_map(|block| match block {
        Block::Variable { number, value } if number == wanted => Some(value.cast_unsigned()),
        _ => None,
    })
}

/// The addresses of all frames; the number of their variable is `address`.
fn frames_at(file: &File<'_>, address: i32) -> HashSet<u64> {
    let frames = file.frames().map_while(Result::ok);
    frames
        .filter_map(|frame| variable(&frame, address))
        .collect()
}

impl<'f, 'a> Steps<'f, 'a> {
    /// Reads the steps of `file`, whose target description is `target`; `elfs` are its programs.
    pub fn new(file: &'f File<'a>, target: &Target, elfs: &'f [Elf]) -> Self {
        let field = |names: &[&str]| {
            let mut begin = 0;
            target.registers.iter().find_map(|(name, bytes)| {
                let field = Field {
                    begin,
                    bytes: *bytes,
                };
                begin += bytes;
                let same = names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted));
                (same && *bytes <= 8).then_some(field)
            })
        };
        let description = file.description();
        let known = description.variables.iter().filter_map(|variable| {
            let index = VARIABLES.iter().position(|name| *name == variable.name)?;
            Some((variable.number.cast_signed(), index))
        });
        let variables: HashMap<i32, usize> = known.collect();
        let address = address_variable(description);
        let certain = description.tracepoints.iter().filter(|point| {
            let condition = point.options.iter().any(|option| option.starts_with('X'));
            point.enabled && !condition
        });
        Self {
            file,
            architecture: target.architecture,
            pc: field(&["pc"]),
            status: field(&["cpsr"]),
            own: [Variable::Core, Variable::Offset]
                .iter()
                .all(|own| variables.values().any(|index| *index == *own as usize)),
            variables,
            sets: match target.architecture {
                Architecture::AArch32 => elfs.iter().map(InstructionSets::of).collect(),
                _ => Vec::new(),
            },
            address,
            addresses: description.addresses(),
            watched: match address {
                Some(address) => frames_at(file, address),
                None => certain.map(|point| point.address).collect(),
            },
        }
    }

    /// Addresses whose execution always produces a frame.
    pub fn watched(&self) -> HashSet<u64> {
        self.watched.clone()
    }

    /// The protocol whose exception numbers the file uses, if the file names it.
    pub fn protocol(&self) -> Option<Protocol> {
        let fields = &self.file.description().status.as_ref()?.other;
        let (_, value) = fields.iter().find(|(name, _)| name == PROTOCOL)?;
        let name = String::from_utf8(hex::decode(value)?).ok()?;
        Protocol::FOLLOWING
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }

    /// The index of the frames' core in the device list.
    pub fn core(&self) -> Option<usize> {
        let first = self.file.frame(0)?.ok()?;
        let core = self.values(&first)[Variable::Core]?;
        usize::try_from(core).ok().filter(|_| self.own)
    }

    /// Where the core is halted, if a frame contains it.
    pub fn halted(&self) -> Option<CodeAddress> {
        let first = self.file.frame(0)?.ok()?;
        let values = self.values(&first);
        self.is_halted(&values)
            .then(|| self.place(&first, &values))
            .flatten()
    }

    fn is_halted(&self, values: &Variables) -> bool {
        self.own && values[Variable::Offset].is_none()
    }

    /// The steps, oldest first, each with its frame.
    pub fn iter(&self) -> impl Iterator<Item = (TraceFrame<'a>, CollectedFrame)> + '_ {
        let frames = self.file.frames().map_while(Result::ok);
        frames.filter_map(|frame| {
            let values = self.values(&frame);
            (!self.is_halted(&values)).then(|| (frame, self.step(&frame, &values)))
        })
    }

    fn values(&self, frame: &TraceFrame<'_>) -> Variables {
        let mut values = Variables::default();
        for block in frame.blocks() {
            if let Block::Variable { number, value } = block
                && let Some(&index) = self.variables.get(&number)
            {
                values.0[index] = Some(value);
            }
        }
        values
    }

    fn step(&self, frame: &TraceFrame<'_>, variables: &Variables) -> CollectedFrame {
        let status = self.register(frame, self.status);
        let level = status
            .filter(|status| self.architecture == Architecture::AArch64 && status & 0x10 == 0)
            .map(|status| ExceptionLevel((status >> 2) as u8 & 3));
        let mut values = FrameValues::from_variables(variables);
        values.state.el = values.state.el.or(level);
        CollectedFrame {
            place: self.place(frame, variables),
            values,
        }
    }

    /// The program counter and its instruction set.
    fn place(&self, frame: &TraceFrame<'_>, values: &Variables) -> Option<CodeAddress> {
        let collected = self.register(frame, self.pc);
        let number = u32::from(frame.tracepoint);
        let collected = collected.or_else(|| variable(frame, self.address?));
        let address = collected.or_else(|| *self.addresses.get(&number)?)?;
        let isa = match self.architecture {
            Architecture::AArch64 => Isa::A64,
            Architecture::MProfile => Isa::T32,
            Architecture::AArch32 => {
                let thumb = values[Variable::Thumb].map(|thumb| thumb != 0);
                // CPSR.T (DDI 0406, B1.3.3).
                let status = || Some(self.register(frame, self.status)? & 0x20 != 0);
                let set = |thumb| if thumb { Isa::T32 } else { Isa::A32 };
                // A32 instructions are word-aligned.
                let odd = || (address & 3 != 0).then_some(Isa::T32);
                let here = address & 0xffff_fffe;
                let named = || self.sets.iter().find_map(|sets| sets.at(here));
                let known = thumb.or_else(status).map(set);
                known.or_else(odd).or_else(named).unwrap_or(Isa::A32)
            }
        };
        let address = match isa {
            Isa::A64 => address,
            Isa::T32 => address & 0xffff_fffe,
            _ => address & 0xffff_ffff,
        };
        Some(CodeAddress {
            address: Address(address),
            isa,
        })
    }

    /// A register of the frame's register block.
    fn register(&self, frame: &TraceFrame<'_>, field: Option<Field>) -> Option<u64> {
        let field = field?;
        let block = frame.blocks().find_map(|block| match block {
            Block::Registers(bytes) => Some(bytes),
            _ => None,
        })?;
        let bytes = block.get(field.begin..field.begin.checked_add(field.bytes)?)?;
        let little = self.file.order() == ByteOrder::Little;
        let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match little {
            true => bytes.iter().rev().fold(0, join),
            false => bytes.iter().fold(0, join),
        })
    }
}
