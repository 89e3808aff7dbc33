//! Core files: of programs and whole systems, of 32 and 64 bits, flattened and compressed.

use super::{Whole, gzip, zstandard};
use crate::support::gdb::testdata;
use crate::support::inputs::kdump::{Form, Kdump};
use crate::support::inputs::{core, vmcore};
use crate::support::skip;
use armsnap::import::Options;
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let options = Options {
        symfs: vec![testdata("recorded/etmv4")],
        ..Options::default()
    };
    let own = fs::read(core::core_file(directory)).unwrap();
    let plain = |name: &str, bytes: Vec<u8>| Whole::new(name, bytes, directory, Options::default());
    let with_programs = |name: &str, bytes: Vec<u8>| {
        let mut whole = Whole::new(name, bytes, directory, options.clone());
        whole.beside = size_of_programs();
        whole
    };
    let mut all = vec![
        with_programs("core", own.clone()),
        with_programs("flattened core", flattened(&own)),
        plain(
            "core of 32 bits",
            vmcore::file(false, &vmcore::status(false, 0x8000), 0x8000, &[7; 4096]),
        ),
    ];
    for (name, bytes) in [
        ("core of gzip", gzip(&own)),
        ("core of Zstandard", zstandard(&own)),
    ] {
        let mut whole = with_programs(name, bytes);
        whole.unpacked = 256;
        all.push(whole);
    }
    for long in [false, true] {
        let (memory, info) = vmcore::kernel32(0xc000_0000, long);
        let mut notes = vmcore::status(false, 0xc010_0040);
        notes.extend(vmcore::note("VMCOREINFO", 0, info.as_bytes()));
        let bytes = vmcore::file(false, &notes, 0xc000_0000, &memory);
        all.push(plain(&format!("vmcore of 32 bits {long}"), bytes));
    }
    let (address, memory, info) = vmcore::kernel64();
    let mut notes = vmcore::status(true, address);
    notes.extend(vmcore::note("VMCOREINFO", 0, info.as_bytes()));
    all.push(plain(
        "vmcore",
        vmcore::file(true, &notes, 0xffff_0000_0000_0000, &memory),
    ));
    for form in [Form::Zlib, Form::Lzo, Form::Snappy, Form::Zstandard] {
        let kdump = Kdump {
            wide: true,
            aligned: true,
            form,
            notes: notes.clone(),
            first: 0x40000,
            memory: &memory,
            saved: |page| page % 5 != 0,
            split: None,
        };
        let mut whole = plain(&format!("kdump {form:?}"), kdump.file());
        whole.unpacked = 256;
        all.push(whole);
    }
    if let Some(captures) = skip::capture("cores-lldb") {
        for name in [
            "linux-aarch64",
            "linux-aarch64-pac",
            "linux-aarch64-sve-full",
        ] {
            let bytes = fs::read(captures.join(name).with_extension("core")).unwrap();
            all.push(plain(name, bytes));
        }
    }
    all
}

/// What [`testdata`] has in the place of the programs.
pub fn size_of_programs() -> u64 {
    fs::metadata(testdata("recorded/etmv4/program.elf"))
        .unwrap()
        .len()
}

/// A core file as `makedumpfile -F` writes it, in pieces.
fn flattened(core: &[u8]) -> Vec<u8> {
    const PIECE: usize = 512;
    let mut out = b"makedumpfile\0".to_vec();
    out.resize(4096, 0);
    for (number, piece) in core.chunks(PIECE).enumerate() {
        out.extend(((number * PIECE) as u64).to_be_bytes());
        out.extend((piece.len() as u64).to_be_bytes());
        out.extend(piece);
    }
    out.extend([0xff; 8]);
    out.extend([0; 8]);
    out
}
