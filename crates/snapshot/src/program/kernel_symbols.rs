//! The names of the functions of a Linux kernel, and of its modules, as ELF files, made of their own
//! symbol tables.

use super::frames::{self, Code};
use super::kallsyms::Kallsyms;
use super::symbol_file::{self, Function};
use std::ops::Range;

/// Returns the functions of the kernel that runs at `text`: name, address and size. `None` if the table
/// has no base.
pub fn placed(
    symbols: &Kallsyms,
    text: u64,
) -> Option<impl Iterator<Item = (&super::kallsyms::Symbol, u64, u64)>> {
    let (first, start) = symbols.base()?;
    let first = text.checked_add(first - start)?;
    let symbols = symbols.symbols();
    Some(symbols.iter().enumerate().map(move |(index, symbol)| {
        // A symbol ends where the next one starts; the last one has no known end.
        // They are sorted, and many may have the same offset.
        let rest = &symbols[index..];
        let after = rest.partition_point(|next| next.offset <= symbol.offset);
        let end = rest.get(after).map_or(symbol.offset, |next| next.offset);
        let size = end - symbol.offset;
        let address = first.wrapping_add(symbol.offset.into());
        (symbol, address, u64::from(size))
    }))
}

/// Returns the ELF file with the functions of the kernel that runs at `text`, and how their callers
/// are found. `image` is its code from there on, in memory or as unpacked; `signed`: return addresses
/// may have authentication codes. `None` if the table has no base.
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
    let text = (".text".to_owned(), first..end);
    Some(symbol_file::write(&functions, &[text], &frames))
}

/// A module of a kernel.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The addresses of its code, and its bytes as far as they are known.
    pub code: Vec<(Range<u64>, Vec<u8>)>,
    /// Its functions, by address. A size may be 0.
    pub functions: Vec<Function>,
}

/// Returns the ELF file with the functions of modules, as [`write()`] does for the kernel; `None` if they
/// have none.
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
        // Functions of damaged tables may overlap.
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

/// Functions without a size end where the next one, or the code, ends.
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
