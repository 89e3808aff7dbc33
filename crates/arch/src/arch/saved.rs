//! The saved registers of a core, independent of the format in which they were saved.

/// A saved register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedRegister<'a> {
    /// Its name, as written.
    pub name: &'a str,
    /// Its size in bits, if it was written; 32 otherwise.
    pub size: Option<u32>,
    /// Its value, least significant byte first.
    pub value: &'a [u8],
}

/// A core with saved registers.
pub trait SavedCore {
    /// Its type: a product name or an architecture (`Cortex-A57`, `ARMv7-M`).
    fn core_type(&self) -> &str;

    /// Its registers, in the order in which they were written.
    fn saved_registers(&self) -> impl Iterator<Item = SavedRegister<'_>>;
}
