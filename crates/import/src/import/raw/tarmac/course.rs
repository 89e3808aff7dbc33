//! One core of a Tarmac trace: its course as trace of an ETMv4, its registers, and the addresses of
//! its loads and stores.
//!
//! The effects of an instruction follow it. Those of the last one may be cut off, so the trace ends
//! before it.

use super::image::Image;
use super::line::{self, Executed};
use crate::import::raw::registers;
use armsnap_arch::arch::branch;
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
use armsnap_trace::data_addresses::{Access, Writer};
use armsnap_trace::element::{Context, TraceOnReason};
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

/// The mode of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    level: Option<u8>,
    /// Whether it uses the stack pointer of its level.
    own_stack: bool,
    security: Option<Security>,
    /// Whether it is one of the M-profile.
    pub is_micro: bool,
    /// Whether it is the handler mode of the M-profile.
    is_handler: bool,
}

impl Mode {
    /// Reads `EL3h_s`, `svc_n`, `thread_s`.
    fn read(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let (name, security) = text.split_once('_').unwrap_or((&text, ""));
        let level = name.strip_prefix("el").and_then(|rest| rest.chars().next());
        let level = level.and_then(|level| level.to_digit(4));
        // The privilege level of AArch32.
        let level = level.or(match name {
            "usr" => Some(0),
            "svc" | "irq" | "fiq" | "abt" | "und" | "sys" => Some(1),
            "hyp" => Some(2),
            "mon" => Some(3),
            _ => None,
        });
        Self {
            level: level.map(|level| level as u8),
            own_stack: name.ends_with('h'),
            security: match security {
                "s" => Some(Security::Secure),
                "n" | "ns" => Some(Security::NonSecure),
                _ => None,
            },
            is_micro: matches!(name, "thread" | "handler"),
            is_handler: name == "handler",
        }
    }

    fn context(self, isa: Isa) -> Context {
        Context {
            isa,
            el: self.level.map(ExceptionLevel),
            security: self.security,
            is_64bit: Some(isa == Isa::A64),
            vmid: None,
            context_id: None,
        }
    }
}

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
    excepted: Option<String>,
    /// The mode of the last instruction, and the one in the trace.
    pub mode: Mode,
    traced: Option<(Mode, Isa)>,
    registers: BTreeMap<String, u128>,
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

    /// A core that begins in a mode.
    pub fn new(mode: &str) -> Self {
        let mode = Mode::read(mode);
        let unit = TraceUnit::new(Self::unit(mode));
        Self {
            tracer: Tracer::new(unit, Pieces::default(), SYNC_BYTES),
            trace: Vec::new(),
            last: None,
            written: Vec::new(),
            accessed: Vec::new(),
            excepted: None,
            mode,
            traced: None,
            registers: BTreeMap::new(),
            executed: 0,
            accesses: Vec::new(),
        }
    }

    /// Adds an instruction. Returns whether a load of the one before returned what no store wrote.
    pub fn executed(&mut self, next: &Executed<'_>, image: &mut Image) -> bool {
        let others = self.settle(image);
        self.mode = Mode::read(next.mode);
        self.last = Some(Last {
            address: next.address,
            word: next.word,
            size: next.size,
            isa: next.isa,
        });
        image.execute(next.address, &next.word.to_le_bytes()[..next.size.into()]);
        others
    }

    /// Adds the value of a register.
    pub fn register(&mut self, name: &str, value: Option<u128>) {
        self.written.push((name.to_owned(), value));
    }

    /// Adds an access to memory.
    pub fn access(&mut self, access: line::Access) {
        self.accessed.push(access);
    }

    /// Adds an exception, which follows the last instruction.
    pub fn exception(&mut self, text: &str) {
        self.excepted.get_or_insert_with(|| text.to_owned());
    }

    /// Ends the last instruction: its effects are known. Returns whether one of its loads returned
    /// what no store wrote.
    fn settle(&mut self, image: &mut Image) -> bool {
        let mut others = false;
        let excepted = self.excepted.take();
        let link = self.written.iter().find_map(|(name, value)| {
            let is_link = name.to_ascii_uppercase().starts_with("ELR_EL");
            value.filter(|_| is_link && excepted.is_some())
        });
        let link = link.map(|link| link as u64);
        let accessed = std::mem::take(&mut self.accessed);
        if let Some(last) = self.last.take() {
            // An instruction that failed is executed after the exception, if at all.
            let failed = excepted.is_some() && link == Some(last.address);
            if !failed {
                self.run(last, &accessed);
            }
            if let Some(text) = excepted {
                let after = last.address.wrapping_add(last.size.into());
                let return_to = CodeAddress {
                    address: Address(link.unwrap_or(after)),
                    isa: last.isa,
                };
                let number = self.number(&text, last);
                self.tracer.exception(number, return_to);
            }
        }
        for access in accessed {
            let changed = image.set(access.address, access.bytes);
            others |= changed && !access.store;
        }
        for (name, value) in std::mem::take(&mut self.written) {
            self.set(&name, value);
        }
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

    /// Sets a register by its printed name.
    fn set(&mut self, printed: &str, value: Option<u128>) {
        let upper = printed.to_ascii_uppercase();
        let wide =
            self.registers.contains_key("X0") || self.traced.is_some_and(|it| it.1 == Isa::A64);
        let split = upper.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
        let (letters, digits) = upper.split_at(split);
        let (name, value) = match (letters, digits.parse::<u8>()) {
            ("W", Ok(_)) => (Some(format!("X{digits}")), value),
            ("Q", Ok(_)) if wide => (Some(format!("V{digits}")), value),
            // The rest of the vector is not said.
            ("B" | "H" | "S" | "D", Ok(_)) if wide => (Some(format!("V{digits}")), None),
            ("S", Ok(number)) => (Some(format!("D{}", number / 2)), None),
            ("V", Err(_)) => {
                let name = upper.split('<').next().unwrap_or_default();
                (Some(name.to_owned()), None)
            }
            _ => match &*upper {
                "R13_MAIN" | "R13_MAIN_S" | "MSP_S" => (Some("MSP".to_owned()), value),
                "R13_PROCESS" | "R13_PROCESS_S" | "PSP_S" => (Some("PSP".to_owned()), value),
                _ => (registers::name_of(printed), value),
            },
        };
        let Some(name) = name else {
            return;
        };
        match value {
            // Some print more than the register has.
            Some(value) if name == "CPSR" => self.registers.insert(name, value & 0xffff_ffff),
            Some(value) => self.registers.insert(name, value),
            None => self.registers.remove(&name),
        };
    }

    /// Ends the course before its last instruction.
    pub fn finish(mut self) -> Done {
        let mut registers = self.registers;
        let end = self.last;
        if let Some(last) = end {
            registers.insert("PC".to_owned(), last.address.into());
        }
        let stack = match self.mode {
            Mode {
                is_handler: true, ..
            } => Some("MSP".to_owned()),
            Mode {
                level: Some(level),
                own_stack,
                ..
            } => Some(format!("SP_EL{}", if own_stack { level } else { 0 })),
            _ => None,
        };
        if let Some(value) = stack.and_then(|stack| registers.get(&stack).copied()) {
            registers.insert("SP".to_owned(), value);
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
            executed: self.executed,
        }
    }
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
