//! The registers of a core, as the lines change them, and the modes that choose among their banks.
//!
//! What an exception or a change of the mode may have changed is not known unless a line says it.

use crate::import::raw::registers::{BANKS, name_of};
use armsnap_arch::quantity::{ExceptionLevel, Isa, Security};
use armsnap_trace::element::Context;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest block in bytes that DC ZVA zeroes.
const MOST_ZEROED: u64 = 2048;
/// More bytes than an exception of the M-profile stores.
const FRAME: u64 = 256;
/// The endianness of data in CPSR.
const BIG_ENDIAN: u128 = 1 << 9;
/// The bit of CONTROL that selects the stack pointer of threads.
const PROCESS_STACK: u128 = 2;

/// The mode of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    level: Option<u8>,
    /// Whether it uses the stack pointer of its level, if that is known.
    own_stack: Option<bool>,
    /// The bank of registers of AArch32.
    bank: Option<&'static str>,
    security: Option<Security>,
    /// Whether it is one of the M-profile.
    pub is_micro: bool,
    /// Whether it is the handler mode of the M-profile.
    is_handler: bool,
}

impl Mode {
    /// Reads `EL3h_s`, `svc_n`, `thread_s`.
    pub fn read(text: &str) -> Self {
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
            own_stack: match name {
                "el0" => Some(false),
                _ if name.ends_with('h') => Some(true),
                _ if name.ends_with('t') => Some(false),
                _ => None,
            },
            bank: match name {
                "sys" => Some("USR"),
                _ => BANKS
                    .into_iter()
                    .find(|bank| bank.eq_ignore_ascii_case(name)),
            },
            security: match security {
                "s" => Some(Security::Secure),
                "n" | "ns" => Some(Security::NonSecure),
                _ => None,
            },
            is_micro: matches!(name, "thread" | "handler"),
            is_handler: name == "handler",
        }
    }

    /// The context in the trace.
    pub fn context(self, isa: Isa) -> Context {
        Context {
            isa,
            el: self.level.map(ExceptionLevel),
            security: self.security,
            is_64bit: Some(isa == Isa::A64),
            vmid: None,
            context_id: None,
        }
    }

    /// The stack pointer of AArch64, by its own name.
    fn stack(self) -> Option<String> {
        let level = if self.own_stack? { self.level? } else { 0 };
        Some(format!("SP_EL{level}"))
    }
}

/// How an instruction ended.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its mode.
    pub mode: Mode,
    /// The mode of the next instruction.
    pub next: Mode,
    /// Whether an exception was taken after it.
    pub excepted: bool,
}

/// The registers of a core. Those of banks have the name of their bank, if the mode is known.
#[derive(Debug)]
pub struct State {
    isa: Isa,
    registers: BTreeMap<String, u128>,
}

impl State {
    /// A core without known registers.
    pub const fn new(isa: Isa) -> Self {
        Self {
            isa,
            registers: BTreeMap::new(),
        }
    }

    fn is_wide(&self) -> bool {
        self.isa == Isa::A64
    }

    /// Whether data is big-endian (AArch32 of the A- and R-profile).
    pub fn is_big_endian(&self) -> bool {
        let state = self.registers.get("CPSR").copied().unwrap_or(0);
        !self.is_wide() && state & BIG_ENDIAN != 0
    }

    /// The instruction set of the next instruction.
    pub fn enter(&mut self, isa: Isa) {
        if (isa == Isa::A64) != self.is_wide() {
            // The registers of the other state are partly these, by other names.
            self.registers.retain(|name, _| name.contains("_EL"));
        }
        self.isa = isa;
    }

    /// Where DC ZVA may have written; `None` if its address is not known.
    pub fn zeroed(&self, word: u32) -> Option<Range<u64>> {
        let address = *self.registers.get(&format!("X{}", word & 0x1f))? as u64;
        let address = address & !(MOST_ZEROED - 1);
        Some(address..address.saturating_add(MOST_ZEROED))
    }

    /// Where an exception of the M-profile may have stored its frame.
    pub fn frames(&self) -> impl Iterator<Item = Range<u64>> {
        let stacks = ["MSP", "PSP", "SP"].into_iter();
        let stacks = stacks.filter_map(|name| self.registers.get(name).copied());
        stacks.map(|stack| (stack as u64).saturating_sub(FRAME)..stack as u64)
    }

    /// Applies what an instruction, and an exception after it, wrote.
    pub fn step(&mut self, written: &[(String, Option<u128>)], step: &Step) {
        let moved = step.excepted || step.mode != step.next;
        let mut changed = Vec::new();
        for (name, value) in written {
            let from = changed.len();
            self.set(name, *value, step, &mut changed);
            if changed[from..].iter().any(|name| name == "CONTROL") {
                // The stack pointer may be another one.
                self.registers.remove("SP");
            }
        }
        if moved {
            self.forget(&changed, step);
        }
    }

    /// Forgets what a change of the mode changes, and no line says.
    fn forget(&mut self, changed: &[String], step: &Step) {
        let says = |name: &str| changed.iter().any(|known| known == name);
        let mut lost: Vec<String> = ["CPSR", "xPSR"].map(str::to_owned).into();
        if step.mode.is_micro {
            lost.push("SP".to_owned());
            if !says("MSP") && !says("PSP") {
                lost.extend(["MSP", "PSP"].map(str::to_owned));
            }
            if step.excepted || step.mode.is_handler != step.next.is_handler {
                lost.extend(["LR", "CONTROL"].map(str::to_owned));
            }
            if step.mode.is_handler && !step.next.is_handler {
                lost.extend(["R0", "R1", "R2", "R3", "R12"].map(str::to_owned));
            }
            if step.mode.security != step.next.security {
                let of_both = ["MSP", "PSP", "PRIMASK", "BASEPRI", "FAULTMASK", "CONTROL"];
                self.registers.retain(|name, _| !of_both.contains(&&**name));
            }
        }
        if let (true, Some(bank)) = (step.excepted, step.next.bank) {
            lost.push(format!("LR_{bank}"));
        }
        if let (true, Some(level)) = (step.excepted, step.next.level)
            && !says(&format!("ELR_EL{level}"))
        {
            let names = ["ELR", "SPSR", "ESR", "FAR"];
            lost.extend(names.map(|name| format!("{name}_EL{level}")));
        }
        for name in lost.iter().filter(|name| !says(name)) {
            self.registers.remove(name);
        }
    }

    /// Sets a register by its printed name.
    fn set(&mut self, printed: &str, value: Option<u128>, step: &Step, changed: &mut Vec<String>) {
        for (name, value) in self.named(printed, value, step) {
            match value {
                // Some print more than the register has.
                Some(value) if name == "CPSR" => {
                    self.registers.insert(name.clone(), value & 0xffff_ffff);
                }
                Some(value) => {
                    self.registers.insert(name.clone(), value);
                }
                None => {
                    self.registers.remove(&name);
                }
            }
            changed.push(name);
        }
    }

    /// The registers that a line is of, and their values.
    fn named(
        &self,
        printed: &str,
        value: Option<u128>,
        step: &Step,
    ) -> Vec<(String, Option<u128>)> {
        let upper = printed.to_ascii_uppercase();
        let split = upper.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
        let (letters, digits) = upper.split_at(split);
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
        let whole = value.filter(|_| rest.is_empty());
        let number = digits.parse::<u8>().ok().filter(|number| *number < 32);
        match (letters, number, self.is_wide()) {
            // `S3_0_C15_C2_0` is a system register.
            ("S", ..) if rest.starts_with('_') => return Vec::new(),
            ("W", Some(number), _) => return vec![(format!("X{number}"), whole)],
            ("Q" | "V", Some(number), true) => return vec![(format!("V{number}"), whole)],
            // The rest of the vector is not said.
            ("B" | "H" | "S" | "D" | "Z", Some(number), true) => {
                return vec![(format!("V{number}"), None)];
            }
            ("Q", Some(number), false) => {
                let halves = [
                    whole.map(|all| all & u128::from(u64::MAX)),
                    whole.map(|all| all >> 64),
                ];
                let name = |half: u8| format!("D{}", 2 * number + half);
                return vec![(name(0), halves[0]), (name(1), halves[1])];
            }
            ("S", Some(number), false) => return vec![(format!("D{}", number / 2), None)],
            ("D", Some(number), false) => return vec![(format!("D{number}"), whole)],
            _ => {}
        }
        let one = |name: &str, value| vec![(name.to_owned(), value)];
        let secure = step.mode.security;
        match &*upper {
            "WSP" => return self.banked("SP", value, step),
            "R13_MAIN" => return one("MSP", value),
            "R13_PROCESS" => return one("PSP", value),
            // Those of the other state are not seen.
            "R13_MAIN_S" | "MSP_S" if secure != Some(Security::NonSecure) => {
                return one("MSP", value);
            }
            "R13_PROCESS_S" | "PSP_S" if secure != Some(Security::NonSecure) => {
                return one("PSP", value);
            }
            "R13_MAIN_NS" | "MSP_NS" if secure == Some(Security::NonSecure) => {
                return one("MSP", value);
            }
            "R13_PROCESS_NS" | "PSP_NS" if secure == Some(Security::NonSecure) => {
                return one("PSP", value);
            }
            _ if upper.starts_with("R13_MAIN") || upper.starts_with("R13_PROCESS") => {
                return Vec::new();
            }
            // Parts of the state.
            "NZCV" | "DAIF" | "SPSEL" | "CURRENTEL" | "APSR" | "IPSR" | "EPSR" | "IEPSR" => {
                return vec![("CPSR".to_owned(), None), ("xPSR".to_owned(), None)];
            }
            _ => {}
        }
        match name_of(printed) {
            Some(name) => self.banked(&name, value, step),
            // A part of a register, or one of a bank that is not known.
            None => name_of(&format!("{letters}{digits}"))
                .map(|name| self.banked(&name, None, step))
                .unwrap_or_default(),
        }
    }

    /// A register by its name in snapshots: those of banks by the mode.
    fn banked(&self, name: &str, value: Option<u128>, step: &Step) -> Vec<(String, Option<u128>)> {
        let own = vec![(name.to_owned(), value)];
        if step.mode.is_micro {
            if name != "SP" {
                return own;
            }
            if step.excepted || step.mode != step.next {
                // Of which stack, the line does not say.
                return vec![(name.to_owned(), None)];
            }
            let stack = self.stack_of(step.mode);
            return own
                .into_iter()
                .chain(stack.map(|stack| (stack.to_owned(), value)))
                .collect();
        }
        if self.is_wide() {
            return match (name, step.mode.stack()) {
                ("LR", _) => vec![("X30".to_owned(), value)],
                ("SP", Some(stack)) if !step.excepted => vec![(stack, value)],
                ("SP", Some(stack)) => vec![(stack, None), ("SP".to_owned(), None)],
                _ => own,
            };
        }
        if let Some((base, bank)) = name
            .split_once('_')
            .filter(|(_, bank)| BANKS.contains(bank))
        {
            let is_shared = match base {
                "SP" => false,
                "LR" => bank == "HYP",
                _ => bank != "FIQ" || base.len() < 3 && base < "R8",
            };
            return match (is_shared, base) {
                (true, "LR") => vec![("LR_USR".to_owned(), value)],
                (true, _) => vec![(base.to_owned(), value)],
                (false, _) => own,
            };
        }
        let in_bank = |mode: Mode| mode.bank.and_then(|bank| bank_of(name, bank));
        let (bank, next) = (in_bank(step.mode), in_bank(step.next));
        match (bank, next) {
            (None, None) if !step.excepted || !matches!(name, "SP" | "LR") => own,
            // Of which of both, the line does not say.
            (bank, next) if step.excepted || bank != next => {
                let both = [bank, next].into_iter().flatten();
                let both = both.chain([name.to_owned()]);
                both.map(|name| (name, None)).collect()
            }
            (Some(name), _) => vec![(name, value)],
            (None, _) => own,
        }
    }

    /// The stack pointer of a mode of the M-profile.
    fn stack_of(&self, mode: Mode) -> Option<&'static str> {
        if mode.is_handler {
            return Some("MSP");
        }
        let control = self.registers.get("CONTROL")?;
        Some(match control & PROCESS_STACK {
            0 => "MSP",
            _ => "PSP",
        })
    }

    /// The registers that are seen in a mode.
    pub fn finish(mut self, mode: Mode) -> BTreeMap<String, u128> {
        let own = |name: &str| {
            if mode.is_micro {
                return self
                    .stack_of(mode)
                    .filter(|_| name == "SP")
                    .map(str::to_owned);
            }
            match self.is_wide() {
                true => mode.stack().filter(|_| name == "SP"),
                false => mode.bank.and_then(|bank| bank_of(name, bank)),
            }
        };
        let seen = ["SP", "LR", "R8", "R9", "R10", "R11", "R12"];
        let seen = seen.map(|name| (name, own(name)));
        for (name, bank) in seen {
            let Some(bank) = bank.filter(|bank| bank != name) else {
                continue;
            };
            match self.registers.get(&bank).copied() {
                Some(value) => self.registers.insert(name.to_owned(), value),
                // Without lines of its bank, the one that is seen was printed.
                None if mode.is_micro => None,
                None => self.registers.remove(name),
            };
        }
        self.registers.retain(|name, _| {
            let bank = name.split_once('_').map_or("", |(_, bank)| bank);
            mode.bank.is_none() || !BANKS.contains(&bank)
        });
        self.registers
    }
}

/// The name of a register of AArch32 with that of its bank.
fn bank_of(name: &str, bank: &str) -> Option<String> {
    let bank = match (name, bank) {
        ("LR", "HYP") => "USR",
        ("SP" | "LR", _) => bank,
        ("R8" | "R9" | "R10" | "R11" | "R12", "FIQ") => bank,
        _ => return None,
    };
    Some(format!("{name}_{bank}"))
}
