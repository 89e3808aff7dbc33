#![no_main]

use armsnap::import::{NamedProgram, Options, import_raw};
use armsnap::snapshot::OpenOptions;
use libfuzzer_sys::fuzz_target;
use std::fs;

// Raw buffers, panic buffers with metadata, dumps of memory in all forms, and RAM with an MTB.
fuzz_target!(|bytes: &[u8]| {
    let Some((form, bytes)) = bytes.split_first() else {
        return;
    };
    let directory = std::env::temp_dir().join(format!("armsnap-fuzz-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (first, second) = (directory.join("first"), directory.join("second"));
    let (head, rest) = bytes.split_at(bytes.len().min(96));
    let named = |path: &std::path::Path| NamedProgram {
        path: path.to_owned(),
        address: Some(0x2000_0000),
    };
    let mut options = Options::default();
    let mut buffers = Vec::new();
    match form % 4 {
        0 => {
            fs::write(&first, bytes).unwrap();
            buffers.push(first.clone());
        }
        1 => {
            fs::write(&first, rest).unwrap();
            fs::write(&second, head).unwrap();
            buffers.push(first.clone());
            options.crash_metadata = vec![second.clone()];
        }
        2 => {
            fs::write(&first, bytes).unwrap();
            options.memory = vec![named(&first)];
        }
        _ => {
            fs::write(&first, rest).unwrap();
            options.mtb = Some(named(&first));
            let base = head.get(16..24).and_then(|base| base.try_into().ok());
            if let (Some(base), Some(mtb)) = (base, &mut options.mtb) {
                mtb.address = Some(u64::from_le_bytes(base));
            }
            let word = |at: usize| {
                let word = head.get(at..at + 4).and_then(|word| word.try_into().ok());
                u64::from(u32::from_le_bytes(word.unwrap_or_default()))
            };
            options.registers = ["POSITION", "MASTER", "VTOR", "PC"]
                .iter()
                .enumerate()
                .map(|(index, name)| ((*name).to_owned(), word(4 * index)))
                .collect();
        }
    }
    if let Ok(imported) = import_raw(None, &buffers, &options) {
        imported.open(&first, &OpenOptions::default()).unwrap();
    }
});
