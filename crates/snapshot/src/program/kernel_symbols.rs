//! ELF files with the names of the functions of a Linux kernel and of its modules, made from the
//! kernel's own symbol tables.

use super::frames::{self, Code};
use super::kallsyms::Kallsyms;
use super::symbol_file::{self, Function};
use std::ops::Range;

/// Returns the symbols of the kernel that runs at `text`: name, address and size. `None` if the
/// table has no base.
pub fn placed(
    symbols: &Kallsyms,
    text: u64,
) -> Option<impl Iterator<Item = (&super::kallsyms::Symbol, u64, u64)>> {
    let (first, start) = symbols.base()?;
    let first = text.checked_add(first - start)?;
    let symbols = symbols.symbols();
    Some(symbols.iter().enumerate().map(move |(index, symbol)| {
        // A symbol ends where the next one starts; the end of the last one is not known. Symbols
        // are sorted, and many may have the same offset.
        let rest = &symbols[index..];
        let after = rest.partition_point(|next| next.offset <= symbol.offset);
        let end = rest.get(after).map_or(symbol.offset, |next| next.offset);
        let size = end - symbol.offset;
        let address = first.wrapping_add(symbol.offset.into());
        (symbol, address, u64::from(size))
    }))
}

/// Returns the ELF file with the functions of the kernel that runs at `text`, and with the call
/// frame information of their code. `image` is the code from this address, in memory or as
/// unpacked. With `signed`, return addresses may have authentication codes. `None` if the table has
/// no base.
pub fn write(symbols: &Kallsyms, image: &[u8], text: u64, signed: bool) -> Option<Vec<u8>> {
    let (first, start) = symbols.base()?;
    let first = text.checked_add(first - start)?;
    let functions = placed(symbols, text)?.filter(|(symbol, ..)| symbol.is_code());
    let functions: Vec<Function> = functions
        .map(|(symbol, address, size)| Function {
            name: symbol.name.clone(),
            address,
            size,
        })
        .collect();
    let last = symbols.symbols().last()?.offset;
    let end = first.checked_add(u64::from(last) + 4)?;
    let code = |function: &Function| {
        let from = usize::try_from(function.address.checked_sub(text)?).ok()?;
        let to = from.checked_add(usize::try_from(function.size).ok()?)?;
        image.get(from..to)
    };
    // Several names of one function are adjacent.
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
    let text = (".text".to_owned(), first..end);
    Some(symbol_file::write(&functions, &[text], &frames))
}

/// A module of a kernel.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The address ranges of its code, and the known bytes of each.
    pub code: Vec<(Range<u64>, Vec<u8>)>,
    /// Its functions, by address. A size may be 0.
    pub functions: Vec<Function>,
}

/// Returns the ELF file with the functions of modules, as [`write()`] does for the kernel; `None`
/// if the modules have no functions.
pub fn of_modules(modules: Vec<Module>, signed: bool) -> Option<Vec<u8>> {
    let mut functions = Vec::new();
    let mut texts = Vec::new();
    let mut pieces = Vec::new();
    for module in modules {
        let ranges: Vec<Range<u64>> = module.code.iter().map(|code| code.0.clone()).collect();
        functions.extend(sized(module.functions, &ranges));
        for (index, (range, bytes)) in module.code.into_iter().enumerate() {
            let kind = if index == 0 { ".text" } else { ".init.text" };
            texts.push((format!("{kind}.{}", module.name), range.clone()));
            pieces.push((range.start, bytes));
        }
    }
    functions.sort_by_key(|function: &Function| function.address);
    pieces.sort_by_key(|piece| piece.0);
    let bytes = |function: &Function| {
        let after = pieces.partition_point(|piece| piece.0 <= function.address);
        let (start, bytes) = &pieces[after.checked_sub(1)?];
        let from = usize::try_from(function.address - start).ok()?;
        let to = from.checked_add(usize::try_from(function.size).ok()?)?;
        bytes.get(from..to)
    };
    let mut code: Vec<Code<'_>> = Vec::new();
    for function in &functions {
        // Functions in damaged tables may overlap.
        let end = |code: &Code<'_>| code.start + code.bytes.len() as u64;
        if code.last().is_none_or(|last| end(last) <= function.address)
            && let Some(bytes) = bytes(function)
        {
            let (name, start) = (&*function.name, function.address);
            code.push(Code { name, start, bytes });
        }
    }
    let frames = frames::debug_frame(&code, signed);
    (!functions.is_empty()).then(|| symbol_file::write(&functions, &texts, &frames))
}

/// Limits the sizes of functions: each ends, at the latest, where the next function starts or the
/// code ends. A function without a size ends there.
fn sized(mut functions: Vec<Function>, code: &[Range<u64>]) -> Vec<Function> {
    let mut next = u64::MAX;
    let mut after = u64::MAX;
    for function in functions.iter_mut().rev() {
        if function.address < next {
            after = next;
            next = function.address;
        }
        let around = code.iter().find(|range| range.contains(&next));
        let most = after.min(around.map_or(next, |range| range.end)) - next;
        function.size = match function.size {
            0 => most,
            size => size.min(most),
        };
    }
    functions
}
