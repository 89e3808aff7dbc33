//! The names of a Linux kernel's functions as an ELF file, made of its own symbol table.

use super::frames::{self, Code};
use super::kallsyms::Kallsyms;
use super::symbol_file::{self, Function};

/// Returns the ELF file with the functions of the kernel that runs at `text`, and how their callers
/// are found. `image` is its code from there on, in memory or as unpacked; `signed`: return addresses
/// may have authentication codes. `None` if the table has no base.
pub fn write(symbols: &Kallsyms, image: &[u8], text: u64, signed: bool) -> Option<Vec<u8>> {
    let (first, start) = symbols.base()?;
    let first = text.checked_add(first - start)?;
    let symbols = symbols.symbols();
    // A symbol ends where the next one starts; the last one has no known end.
    let end_of = |index: usize, offset| {
        // They are sorted, and many may have the same offset.
        let rest = &symbols[index..];
        let after = rest.partition_point(|symbol| symbol.offset <= offset);
        rest.get(after).map_or(offset, |symbol| symbol.offset)
    };
    let functions = symbols.iter().enumerate();
    let functions = functions.filter(|(_, symbol)| symbol.is_code());
    let functions: Vec<Function> = functions
        .map(|(index, symbol)| Function {
            name: symbol.name.clone(),
            address: first.wrapping_add(symbol.offset.into()),
            size: u64::from(end_of(index, symbol.offset) - symbol.offset),
        })
        .collect();
    let end = first.checked_add(u64::from(symbols.last()?.offset) + 4)?;
    let code = |function: &Function| {
        let from = usize::try_from(function.address.checked_sub(text)?).ok()?;
        let to = from.checked_add(usize::try_from(function.size).ok()?)?;
        image.get(from..to)
    };
    // Several names of one function follow each other.
    let mut code: Vec<Code<'_>> = functions
        .iter()
        .filter_map(|function| {
            Some(Code {
                name: &function.name,
                start: function.address,
                bytes: code(function)?,
            })
        })
        .collect();
    code.dedup_by_key(|code| code.start);
    let frames = frames::debug_frame(&code, signed);
    Some(symbol_file::write(&functions, first, end, &frames))
}
