//! One core of a Tarmac trace: its course as trace of an ETMv4, its registers, and the addresses of
//! its loads and stores.
//!
//! The effects of an instruction follow it. Those of the last one may be cut off, so the trace ends
//! before it.

use super::image::Image;
use super::line::{self, Executed};
use super::state::{Mode, State, Step};
use armsnap_arch::arch::branch;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::data_addresses::{Access, Writer};
use armsnap_trace::element::TraceOnReason;
use armsnap_trace::encode::{CodeAddress, Tracer};
use armsnap_trace::etmv4::{TraceUnit, TraceUnitOptions};
use armsnap_trace::flow::Pieces;
use armsnap_trace::protocol::Core;
use std::collections::{BTreeMap, HashMap};

/// The number of bytes of trace between synchronisation points.
const SYNC_BYTES: usize = 4096;
/// The number of instructions without accesses that are written at once.
const AT_ONCE: u64 = 1 << 12;
/// Numbers of exceptions in ETMv4 of the A-profile (IHI 0064H, "Exception packet", TYPE).
const CALL: u16 = 2;
const TRAP: u16 = 3;
const SYSTEM_ERROR: u16 = 4;
const INSTRUCTION_FAULT: u16 = 11;
const DATA_FAULT: u16 = 12;
const IRQ: u16 = 14;
const FIQ: u16 = 15;
/// Reserved in the M-profile: the number is not known.
const UNKNOWN: u16 = 0;
/// The code of DC ZVA, without its register.
const ZERO_BLOCK: u32 = 0xd50b_7420;

/// An instruction whose effects are being read.
#[derive(Clone, Copy, Debug)]
struct Last {
    address: u64,
    word: u32,
    size: u8,
    isa: Isa,
}

/// What a core did.
#[derive(Debug)]
pub struct Course {
    tracer: Tracer<TraceUnit, Pieces>,
    trace: Vec<u8>,
    last: Option<Last>,
    /// The effects of the last instruction.
    written: Vec<(String, Option<u128>)>,
    accessed: Vec<line::Access>,
    /// How many of them are of the instruction, and not of the exception that follows it.
    own: Option<usize>,
    excepted: Option<String>,
    /// The mode of the last instruction, and the one in the trace.
    pub mode: Mode,
    traced: Option<(Mode, Isa)>,
    state: State,
    /// The number of executed instructions, and their accesses: number, address of the
    /// instruction, access.
    executed: u64,
    accesses: Vec<(u64, u64, Access)>,
}

/// What is known of a core at the end.
#[derive(Debug)]
pub struct Done {
    /// Its trace.
    pub trace: Vec<u8>,
    /// The file of its data addresses.
    pub addresses: Option<Vec<u8>>,
    /// Its registers before the last instruction.
    pub registers: BTreeMap<String, u128>,
    /// The instruction set of the last instruction.
    pub isa: Option<Isa>,
    /// The number of executed instructions.
    pub executed: u64,
}

impl Course {
    /// The options of the trace unit of a core.
    pub fn unit(mode: Mode) -> TraceUnitOptions {
        TraceUnitOptions {
            core: match mode.is_micro {
                true => Core::microcontroller(7),
                false => Core::default(),
            },
            ..TraceUnitOptions::default()
        }
    }

    /// A core that begins in a mode and an instruction set.
    pub fn new(mode: &str, isa: Isa) -> Self {
        let mode = Mode::read(mode);
        let unit = TraceUnit::new(Self::unit(mode));
        Self {
            tracer: Tracer::new(unit, Pieces::default(), SYNC_BYTES),
            trace: Vec::new(),
            last: None,
            written: Vec::new(),
            accessed: Vec::new(),
            own: None,
            excepted: None,
            mode,
            traced: None,
            state: State::new(isa),
            executed: 0,
            accesses: Vec::new(),
        }
    }

    /// Adds an instruction. Returns whether a load of the one before returned what no store wrote.
    pub fn executed(&mut self, next: &Executed<'_>, image: &mut Image) -> bool {
        let mode = Mode::read(next.mode);
        let others = self.settle(mode, image);
        self.mode = mode;
        self.state.enter(next.isa);
        self.last = Some(Last {
            address: next.address,
            word: next.word,
            size: next.size,
            isa: next.isa,
        });
        image.execute(next.address, &next.word.to_le_bytes()[..next.size.into()]);
        others
    }

    /// Adds the value of a register, of a bank if one is named.
    pub fn register(&mut self, name: &str, bank: &str, value: Option<u128>) {
        let name = match bank {
            "" => name.to_owned(),
            bank => format!("{name}_{bank}"),
        };
        self.written.push((name, value));
    }

    /// Adds an access to memory.
    pub fn access(&mut self, access: line::Access) {
        self.accessed.push(access);
    }

    /// Adds an exception, which follows the last instruction.
    pub fn exception(&mut self, text: &str) {
        self.excepted.get_or_insert_with(|| text.to_owned());
        self.change();
    }

    /// Adds a change of the mode, which an exception may follow. What is accessed after it is not of
    /// the last instruction.
    pub fn change(&mut self) {
        self.own.get_or_insert(self.accessed.len());
    }

    /// Ends the last instruction: its effects are known, and the mode of the next one. Returns
    /// whether one of its loads returned what no store wrote.
    fn settle(&mut self, next: Mode, image: &mut Image) -> bool {
        let mut others = false;
        let excepted = self.excepted.take();
        let written = std::mem::take(&mut self.written);
        let mut accessed = std::mem::take(&mut self.accessed);
        let own = self.own.take().unwrap_or(accessed.len());
        let own = if excepted.is_some() {
            own
        } else {
            accessed.len()
        };
        // The order in which an instruction with several accesses makes them.
        accessed[..own].sort_by_key(|access| (access.store, access.address));
        if !self.mode.is_micro && self.state.is_big_endian() {
            // The numbers in the lines are not the bytes in the order of memory.
            for access in &mut accessed {
                access.bytes.fill(None);
            }
        }
        if let Some(last) = self.last.take() {
            let number = excepted.as_ref().map(|text| self.number(text, last));
            let link = number.and_then(|_| link(&written, last));
            // An instruction that failed is executed after the exception, if at all.
            let failed = number.is_some() && link == Some(last.address);
            let is_open = link.is_none()
                && number.is_some_and(|number| {
                    !matches!(number, CALL | SYSTEM_ERROR | IRQ | FIQ) && !self.mode.is_micro
                });
            if is_open {
                // Whether it failed is not known.
                self.tracer.gap(TraceOnReason::BeginOrFilter);
                self.traced = None;
            } else if !failed {
                self.run(last, &accessed[..own]);
            }
            if let Some(number) = number.filter(|_| !is_open) {
                let after = last.address.wrapping_add(last.size.into());
                let return_to = CodeAddress {
                    address: Address(link.unwrap_or(after)),
                    isa: last.isa,
                };
                self.tracer.exception(number, return_to);
            }
            let has_stored = accessed.iter().any(|access| access.store);
            if last.isa == Isa::A64 && last.word & !0x1f == ZERO_BLOCK && !failed && !has_stored {
                match self.state.zeroed(last.word) {
                    Some(range) => image.forget(range),
                    None => others = true,
                }
            }
            if self.mode.is_micro && excepted.is_some() && !has_stored {
                for range in self.state.frames() {
                    image.forget(range);
                }
            }
        }
        for access in accessed {
            let changed = image.set(access.address, access.bytes);
            others |= changed && !access.store;
        }
        self.state.step(
            &written,
            &Step {
                mode: self.mode,
                next,
                excepted: excepted.is_some(),
            },
        );
        others
    }

    fn run(&mut self, last: Last, accessed: &[line::Access]) {
        if self.traced != Some((self.mode, last.isa)) {
            self.traced = Some((self.mode, last.isa));
            self.tracer.context(self.mode.context(last.isa));
        }
        let at = CodeAddress {
            address: Address(last.address),
            isa: last.isa,
        };
        match branch::decode(last.isa, at.address, last.word) {
            Some(instruction) => self.tracer.run_decoded(at, &[instruction]),
            None => self.tracer.gap(TraceOnReason::BeginOrFilter),
        }
        if self.tracer.pending_bytes() >= SYNC_BYTES {
            self.tracer.take(&mut self.trace);
        }
        for access in accessed {
            let (address, bytes, store) = (access.address, access.bytes.len() as u32, access.store);
            let access = Access {
                address,
                bytes,
                store,
            };
            self.accesses.push((self.executed, last.address, access));
        }
        self.executed += 1;
    }

    fn number(&self, text: &str, last: Last) -> u16 {
        let text = text.to_ascii_uppercase();
        let is = |part: &str| text.contains(part);
        let is_call = match last.isa {
            Isa::A64 => last.word & 0xffe0_001c == 0xd400_0000,
            Isa::A32 => last.word & 0x0f00_0000 == 0x0f00_0000,
            _ => last.size == 2 && last.word & 0xff00 == 0xdf00,
        };
        match () {
            () if self.mode.is_micro => UNKNOWN,
            () if is("FIQ") => FIQ,
            () if is("IRQ") => IRQ,
            () if is("SERROR") => SYSTEM_ERROR,
            () if is("PREFETCH") => INSTRUCTION_FAULT,
            () if is("DATA") => DATA_FAULT,
            () if is_call => CALL,
            () => TRAP,
        }
    }

    /// Ends the course before its last instruction.
    pub fn finish(mut self) -> Done {
        let end = self.last;
        let mut registers = self.state.finish(self.mode);
        if let Some(last) = end {
            registers.insert("PC".to_owned(), last.address.into());
        }
        let next = end.map(|last| CodeAddress {
            address: Address(last.address),
            isa: last.isa,
        });
        self.tracer.finish(next);
        self.tracer.take(&mut self.trace);
        Done {
            trace: self.trace,
            addresses: written(self.executed, &self.accesses),
            registers,
            isa: end.map(|last| last.isa),
            executed: self.executed,
        }
    }
}

/// Where an exception returns to, by the link register that its entry wrote.
fn link(written: &[(String, Option<u128>)], last: Last) -> Option<u64> {
    written.iter().rev().find_map(|(name, value)| {
        let name = name.to_ascii_uppercase().replace("R14_", "LR_");
        let value = (*value)? as u64;
        let failed = |back: u64| {
            let at = value.wrapping_sub(back) & 0xffff_ffff;
            Some(at).filter(|at| *at == last.address)
        };
        let before = value.wrapping_sub(4) & 0xffff_ffff;
        match &*name {
            _ if name.starts_with("ELR_") => Some(value),
            // Data aborts, and prefetch aborts of the next instruction.
            "LR_ABT" => failed(8).or(Some(before)),
            "LR_UND" => failed(last.size.into()).or(Some(before)),
            "LR_IRQ" | "LR_FIQ" => Some(before),
            _ => None,
        }
    })
}

/// The file of data addresses; `None` if there are no accesses, or too many.
fn written(executed: u64, accesses: &[(u64, u64, Access)]) -> Option<Vec<u8>> {
    if accesses.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out).ok()?;
    let mut keys = HashMap::new();
    let mut done = 0;
    let skip = |writer: &mut Writer<_>, from: u64, to: u64| {
        let mut from = from;
        while from < to {
            let count = (to - from).min(AT_ONCE);
            writer.ran(0, count as usize, &[], |_| 0).ok()?;
            from += count;
        }
        Some(())
    };
    for group in accesses.chunk_by(|one, next| one.0 == next.0) {
        let (number, pc, _) = group[0];
        skip(&mut writer, done, number)?;
        let next = keys.len() as u32;
        let key = *keys.entry(pc).or_insert(next);
        let group: Vec<(u32, Access)> = group.iter().map(|access| (0, access.2)).collect();
        writer.ran(key, 1, &group, |_| pc).ok()?;
        done = number + 1;
    }
    skip(&mut writer, done, executed)?;
    writer.finish().ok()?;
    Some(out)
}
