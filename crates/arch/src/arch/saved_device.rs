//! A core with saved registers, for tests.

use super::{SavedCore, SavedRegister};

#[derive(Default)]
pub(crate) struct Device {
    pub kind: String,
    pub registers: Vec<Register>,
}

#[derive(Default)]
pub(crate) struct Register {
    pub name: String,
    pub size: Option<u32>,
    pub value: RegisterValue,
}

/// A value, least significant byte first.
#[derive(Default)]
pub(crate) struct RegisterValue(pub Vec<u8>);

impl SavedCore for Device {
    fn core_type(&self) -> &str {
        &self.kind
    }

    fn saved_registers(&self) -> impl Iterator<Item = SavedRegister<'_>> {
        self.registers.iter().map(|register| SavedRegister {
            name: &register.name,
            size: register.size,
            value: &register.value.0,
        })
    }
}
