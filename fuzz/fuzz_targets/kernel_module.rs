#![no_main]

//! A kernel module's file and a list of symbols: placed, linked, and read again.

use armsnap::program::module_file::{Kallsyms, ModuleFile, Placement};
use libfuzzer_sys::fuzz_target;

/// Where the code starts.
const FIRST: u64 = 0xffff_8000_7a00_0000;

fuzz_target!(|bytes: &[u8]| {
    // The list of symbols follows the file; its length is at the end.
    let Some((rest, [low, high])) = bytes.split_last_chunk() else {
        return;
    };
    let listed = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (file, text) = rest.split_at(rest.len() - listed);
    let kallsyms = Kallsyms::read(text);
    let Some(module) = ModuleFile::read(file) else {
        return;
    };
    let mut placement = Placement::of_code(&module, FIRST);
    for symbols in kallsyms.modules.values() {
        placement.correct(&module, symbols);
    }
    assert!(
        module
            .exported(&placement)
            .all(|(name, _)| !name.contains('\0'))
    );
    // Names of any length: each leads somewhere, far or near.
    let symbol = |name: &str| (name.len() % 3 != 0).then_some(FIRST ^ ((name.len() as u64) << 24));
    let linked = module.link(&placement, &symbol);
    assert_eq!(linked.file.len(), file.len());
    for part in &linked.code {
        let code = linked.file.get(part.file.clone());
        assert!(code.is_some_and(|code| !code.is_empty()));
    }
    assert!(linked.straight.iter().all(|range| range.start < range.end));
});
