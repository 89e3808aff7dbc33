//! The values that memory has of registers.

use super::{Field, Peripheral, Register, Svd};
use crate::snapshot::memory::CoreMemory;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use serde::{Serialize, Serializer};
use std::fmt;

/// A peripheral with values of its registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeripheralValues {
    /// Its name.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its address.
    #[serde(serialize_with = "hex")]
    pub base: u64,
    /// The number of its registers.
    pub count: usize,
    /// The number of them whose values are known.
    pub known: usize,
    /// The registers that were selected, by address.
    pub registers: Vec<RegisterValue>,
}

/// A register with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterValue {
    /// Its name in the peripheral.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its address.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// Its size in bits.
    pub bits: u32,
    /// Its value, if memory has all of it.
    #[serde(serialize_with = "hex_or_null")]
    pub value: Option<u64>,
    /// Its fields, from the least significant one on; none if its value is not known.
    pub fields: Vec<FieldValue>,
}

/// A field with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldValue {
    /// Its name.
    pub name: String,
    /// Its least significant bit.
    pub lowest: u32,
    /// The number of its bits.
    pub bits: u32,
    /// Its value.
    #[serde(serialize_with = "hex")]
    pub value: u64,
    /// What the value means, if the description says so.
    pub meaning: Option<String>,
}

fn hex<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}

fn hex_or_null<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => hex(number, serializer),
        None => serializer.serialize_none(),
    }
}

impl Svd {
    /// Reads the value of a register from memory. Returns `None` if any of its bytes is not known.
    #[must_use]
    pub fn value(&self, register: &Register, memory: &CoreMemory, space: Space) -> Option<u64> {
        let mut bytes = [0; 8];
        let own = &mut bytes[..register.bytes()];
        if memory.read(Address(register.address), space, own) < own.len() {
            return None;
        }
        if self.big_endian {
            own.reverse();
        }
        Some(u64::from_le_bytes(bytes) & ones(register.bits))
    }

    /// Reads the values of the peripherals and registers that a name selects (see [`Svd::find`]).
    /// Without a name, the registers are only counted.
    #[must_use]
    pub fn values(&self, name: &str, memory: &CoreMemory, space: Space) -> Vec<PeripheralValues> {
        let lists = !name.trim().is_empty();
        let found = self.find(name).into_iter();
        let values = found.map(|(peripheral, registers)| {
            let value = |register: &Register| self.value(register, memory, space);
            let all = peripheral.registers.iter();
            let shown = registers.into_iter().filter(|_| lists);
            PeripheralValues {
                known: all.filter(|register| value(register).is_some()).count(),
                registers: shown.map(|of| of.with(value(of))).collect(),
                ..peripheral.without_values()
            }
        });
        values.collect()
    }
}

impl Peripheral {
    fn without_values(&self) -> PeripheralValues {
        PeripheralValues {
            name: self.name.clone(),
            description: self.description.to_string(),
            base: self.base,
            count: self.registers.len(),
            known: 0,
            registers: Vec::new(),
        }
    }
}

impl Register {
    fn with(&self, value: Option<u64>) -> RegisterValue {
        let fields = value.map(|value| {
            let fields = self.fields.iter();
            let inside = fields.filter(|field| field.lowest + field.bits <= self.bits);
            inside.map(|field| field.of(value)).collect()
        });
        RegisterValue {
            name: self.name.clone(),
            description: self.description.to_string(),
            address: self.address,
            bits: self.bits,
            value,
            fields: fields.unwrap_or_default(),
        }
    }
}

impl Field {
    pub(super) fn of(&self, register: u64) -> FieldValue {
        let value = register.checked_shr(self.lowest).unwrap_or(0) & ones(self.bits);
        let exact = self.meanings.iter().find(|meaning| {
            let is = |wanted| (wanted ^ value) & meaning.mask == 0;
            meaning.value.is_some_and(is)
        });
        let others = || self.meanings.iter().find(|meaning| meaning.value.is_none());
        FieldValue {
            name: self.name.clone(),
            lowest: self.lowest,
            bits: self.bits,
            value,
            meaning: exact.or_else(others).map(|meaning| meaning.name.clone()),
        }
    }
}

/// Returns a number with as many low bits set.
fn ones(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits.min(64)).unwrap_or(0)
}

/// Peripherals as text: a table of them, or their registers with fields.
#[derive(Clone, Copy, Debug)]
pub struct Text<'v>(pub &'v [PeripheralValues]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self
            .0
            .iter()
            .all(|peripheral| peripheral.registers.is_empty())
        {
            return table(self.0, f);
        }
        for peripheral in self.0 {
            write!(f, "{} at {:#x}", peripheral.name, peripheral.base)?;
            described(&peripheral.description, f)?;
            for register in &peripheral.registers {
                list(register, f)?;
            }
        }
        Ok(())
    }
}

/// Writes a description after a name, and ends the line.
fn described(description: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match description {
        "" => writeln!(f),
        _ => writeln!(f, ": {description}"),
    }
}

fn table(peripherals: &[PeripheralValues], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "ADDRESS     REGISTERS  KNOWN  NAME")?;
    for peripheral in peripherals {
        let PeripheralValues {
            base, count, known, ..
        } = peripheral;
        write!(
            f,
            "{base:#010x}  {count:>9}  {known:>5}  {}",
            peripheral.name
        )?;
        described(&peripheral.description, f)?;
    }
    Ok(())
}

fn list(register: &RegisterValue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let RegisterValue { address, name, .. } = register;
    write!(f, "  {address:#010x}  ")?;
    match register.value {
        Some(value) => {
            let digits = register.bits.div_ceil(4) as usize;
            let value = format!("0x{value:0digits$x}");
            write!(f, "{value:<10}")?;
        }
        None => write!(f, "{:<10}", "unknown")?,
    }
    write!(f, "  {name}")?;
    described(&register.description, f)?;
    for field in &register.fields {
        let bits = match field.bits {
            1 => format!("[{}]", field.lowest),
            _ => format!("[{}:{}]", field.lowest + field.bits - 1, field.lowest),
        };
        write!(f, "    {bits:<7}  {:#x}  {}", field.value, field.name)?;
        match &field.meaning {
            Some(meaning) => writeln!(f, " = {meaning}")?,
            None => writeln!(f)?,
        }
    }
    Ok(())
}
