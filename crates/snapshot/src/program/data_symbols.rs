//! The data symbols of a program, by their addresses.

use super::elf::Elf;
use super::symbols::shown;
use object::{Object, ObjectSymbol, SymbolKind};

/// Returns the variable that contains an address, with the offset in it: `ring` or `ring+0x8`.
pub fn at(program: &Elf, address: u64) -> Option<String> {
    let file = object::File::parse(program.bytes()).ok()?;
    let wanted = address.wrapping_sub(program.offset);
    let symbol = file.symbols().find(|symbol| {
        symbol.kind() == SymbolKind::Data
            && symbol.is_definition()
            && wanted
                .checked_sub(symbol.address())
                .is_some_and(|offset| offset < symbol.size())
    })?;
    let name = shown(symbol.name().ok()?);
    Some(match wanted - symbol.address() {
        0 => name,
        offset => format!("{name}+{offset:#x}"),
    })
}
