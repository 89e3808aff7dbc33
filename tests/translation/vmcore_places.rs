//! Core files of whole systems that lack information: 32-bit kernels, whose VMCOREINFO has no
//! offset, and files in which VMCOREINFO is in memory only.

use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use crate::support::inputs::vmcore::{file, kernel32, kernel64, note, status};
use std::fs;
use std::path::Path;

fn check(directory: &Path, bytes: &[u8], commands: &[&str], wanted: &[&str]) {
    let core = directory.join("vmcore");
    fs::write(&core, bytes).unwrap();
    let snapshot = directory.join("snapshot");
    let mut import = armsnap();
    let output = run(import.args(["import", "--force"]).arg(&core).arg(&snapshot));
    assert!(output.status.success(), "{}", text(&output));
    for path in [&core, &snapshot] {
        let said = session(path, &[], commands);
        for wanted in wanted {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}

#[test]
fn kernels_of_32_bits() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    for (base, address, long) in [
        (0xc000_0000, 0xc000_0000, false),
        (0xc000_0000, 0, false),
        (0x8000_0000, 0, false),
        (0xc000_0000, 0xc000_0000, true),
        (0x4000_0000, 0, true),
    ] {
        let (memory, info) = kernel32(base, long);
        let mut notes = status(false, base + 0x10_0040);
        notes.extend(note("VMCOREINFO", 0, info.as_bytes()));
        let image = format!("x/s {:#x}", base + 0x10_0000);
        let bytes = file(false, &notes, address, &memory);
        // Addresses of processes are not translated.
        let commands = [&*image, "x/s 0xf0800000", "x/b 0x10000"];
        let wanted = ["\"in the image\"", "\"in vmalloc\"", "Cannot access memory"];
        check(scratch.path(), &bytes, &commands, &wanted);
    }
    // The table is not where it should be: only what the headers say.
    let (mut memory, info) = kernel32(0xc000_0000, false);
    memory[0x4000..0x8000].fill(0);
    let mut notes = status(false, 0xc010_0040);
    notes.extend(note("VMCOREINFO", 0, info.as_bytes()));
    let bytes = file(false, &notes, 0xc000_0000, &memory);
    let wanted = ["\"in the image\"", "virtual addresses are not translated"];
    check(
        scratch.path(),
        &bytes,
        &["x/s 0xc0100000", "monitor info"],
        &wanted[..1],
    );
    let core = scratch.path().join("vmcore");
    let said = text(&run(armsnap().arg("info").arg(&core)));
    assert!(said.contains(wanted[1]), "{said}");
}

#[test]
fn vmcoreinfo_in_memory_only() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let (address, memory, info) = kernel64();
    let notes = status(true, address);
    // VMCOREINFO is kept as a note, and as the text from which the kernel makes the note.
    for kept in [
        note("VMCOREINFO", 0, info.as_bytes()),
        info.clone().into_bytes(),
    ] {
        let mut memory = memory.clone();
        memory[0x30_0000..0x30_0000 + kept.len()].copy_from_slice(&kept);
        for direct in [0xffff_0000_0000_0000, 0] {
            let bytes = file(true, &notes, direct, &memory);
            let command = format!("x/s {address:#x}");
            check(scratch.path(), &bytes, &[&command], &["\"mapped ok\""]);
        }
    }
}
