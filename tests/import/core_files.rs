//! Core files: GDB shows the same in the core file itself and through armsnap.

use crate::perf_builder::words;
use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
pub use crate::support::inputs::core::*;
use armsnap::import::{NamedProgram, Options};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Lines of a back trace and of registers.
fn shown(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_end);
    let shown = lines.filter(|line| {
        line.starts_with('#') && !line.contains("warning")
            || line.starts_with("x29 ")
            || line.starts_with("$")
    });
    shown.map(str::to_owned).collect()
}

const COMMANDS: [&str; 6] = [
    "bt",
    "info registers x29",
    "p $v0.q.u",
    "p/x *(unsigned int *)0x40100000",
    "thread 2",
    "bt",
];

#[test]
fn gdb_shows_the_same_as_in_the_core_file_itself() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("opt")).unwrap();
    let program = tree.join("opt/program.elf");
    fs::copy(testdata("recorded/etmv4/program.elf"), &program).unwrap();
    let core = core_file(scratch.path());
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).arg(&program).arg(&core);
    for command in COMMANDS {
        gdb.args(["-ex", command]);
    }
    let own = shown(&text(&run(&mut gdb)));
    let sysroot = ["--sysroot", tree.to_str().unwrap()];
    let direct = session(&core, &sysroot, &COMMANDS);
    let written = scratch.path().join("snapshot");
    let mut import = armsnap();
    import.arg("import").arg(&core).arg(&written).args(sysroot);
    let output = run(&mut import);
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("core file: 2 cores (prog-500, prog-501)"),
        "{}",
        text(&output)
    );
    let imported = session(&written, &[], &COMMANDS);
    // GDB prints the first frame when it opens a core file.
    let own: Vec<&String> = own
        .iter()
        .skip_while(|line| !line.starts_with("#0"))
        .skip(1)
        .collect();
    assert!(own.iter().any(|line| line.contains("in main")), "{own:?}");
    assert!(own.iter().any(|line| line.starts_with("$2")), "{own:?}");
    for (name, ours) in [("direct", direct), ("imported", imported)] {
        let ours = shown(&ours);
        assert_eq!(ours.iter().collect::<Vec<_>>(), own, "{name}");
    }
}

#[test]
fn what_is_missing_is_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let core = core_file(scratch.path());
    let output = run(armsnap().arg("info").arg(&core));
    let said = text(&output);
    assert!(
        said.contains("missing image: /opt/program.elf (no build-id recorded)"),
        "{said}"
    );
    let whole = fs::read(&core).unwrap();
    for (bytes, says) in [
        (whole[..100].to_vec(), "core file without a thread"),
        (whole[..30].to_vec(), "core file cut in its headers"),
        (
            [&whole[..18], &[62], &whole[19..]].concat(),
            "machine 62 of ELF: expected AArch64",
        ),
    ] {
        fs::write(&core, bytes).unwrap();
        let output = run(armsnap().arg("info").arg(&core));
        assert_eq!(output.status.code(), Some(1), "{says}");
        assert!(text(&output).contains(says), "{says}: {}", text(&output));
    }
    fs::write(&core, &whole[..whole.len() - 100]).unwrap();
    let said = text(&run(armsnap().arg("info").arg(&core)));
    assert!(said.contains("1 part of the memory cut off"), "{said}");
}

#[test]
fn unknown_memory_is_not_that_of_mapped_files() {
    let scratch = tempfile::tempdir().unwrap();
    let whole = fs::read(core_file(scratch.path())).unwrap();
    // The program is mapped where its data is, too.
    let file = words(&[CODE, CODE + 0x1000, 1]);
    let at = whole.windows(file.len()).position(|part| part == file);
    let at = at.unwrap();
    let mut whole = whole;
    whole[at..at + 24].copy_from_slice(&words(&[CODE, DATA + 0x1000, 1]));
    // The flags of the last segment, and its bytes in the file.
    let (flags, in_file) = (64 + 2 * 56 + 4, 64 + 2 * 56 + 32);
    let options = Options {
        symfs: vec![testdata("recorded/etmv4")],
        ..Options::default()
    };
    for (cut, writable, in_file_bytes, of_program) in [
        (false, true, None, CODE..DATA),
        (true, false, None, CODE..DATA),
        (false, true, Some(0), CODE..DATA),
        (false, false, Some(0), CODE..DATA + 0x1000),
    ] {
        let mut bytes = whole.clone();
        bytes[flags] = if writable { 6 } else { 4 };
        if let Some(count) = in_file_bytes {
            bytes[in_file..in_file + 8].copy_from_slice(&u64::to_le_bytes(count));
        }
        if cut {
            bytes.truncate(bytes.len() - 0x1800);
        }
        let imported =
            armsnap::import::core_file::import_bytes(Path::new("core"), bytes.into(), &options);
        let dumps = &imported.unwrap().snapshot.devices[0].dumps;
        let found: Vec<_> = dumps
            .iter()
            .filter(|dump| dump.file.ends_with("program.elf"))
            .map(|dump| dump.address..dump.address + dump.length.unwrap())
            .collect();
        let name = format!("cut {cut}, writable {writable}, in the file {in_file_bytes:?}");
        assert_eq!(found, [of_program], "{name}");
    }
}

#[test]
fn notes_that_are_cut_short_are_counted_in_core_files_of_systems_too() {
    let scratch = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(core_file(scratch.path())).unwrap();
    let find = |bytes: &[u8], part: &[u8]| {
        let mut places = bytes.windows(part.len());
        places.rposition(|place| place == part).unwrap()
    };
    // More mapped files than the note has, and a note with VMCOREINFO instead of the last one.
    let files = find(&bytes, &words(&[1, 4096, CODE]));
    bytes[files..files + 8].copy_from_slice(&words(&[1000]));
    let header = |numbers: [u32; 3]| numbers.map(u32::to_le_bytes).concat();
    let last = find(&bytes, &header([5, 528, NT_FPREGSET]));
    bytes[last..last + 12].copy_from_slice(&header([11, 524, 0]));
    bytes[last + 12..last + 24].copy_from_slice(b"VMCOREINFO\0\0");
    bytes[last + 24..last + 548].fill(b'\n');
    let options = Options::default();
    let imported =
        armsnap::import::core_file::import_bytes(Path::new("vmcore"), bytes.into(), &options);
    let imported = imported.unwrap();
    assert_eq!(imported.kind, "core file of a Linux system");
    let notes: Vec<String> = imported.notes.iter().map(ToString::to_string).collect();
    let wanted = "1 note of the core file cut short: left out";
    assert!(notes.iter().any(|note| note == wanted), "{notes:?}");
}

#[test]
fn a_program_that_no_mapping_names_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let core = core_file(scratch.path());
    let program = testdata("recorded/etmv4/program.elf");
    let renamed = scratch.path().join("renamed.elf");
    fs::copy(&program, &renamed).unwrap();
    let said = |elf: &Path| {
        let into = scratch.path().join("snapshot");
        let mut import = armsnap();
        import.args(["import", "--force"]).arg(&core).arg(into);
        text(&run(import.arg("--elf").arg(elf)))
    };
    let note = "no mapping of the threads in the snapshot has its name or its build-id";
    assert!(!said(&program).contains(note));
    // At the addresses of the mapping, and at others.
    let taken = said(&renamed);
    let wanted = format!("{}: used as /opt/program.elf", renamed.display());
    assert!(taken.contains(&wanted), "{taken}");
    assert!(!taken.contains("missing image"), "{taken}");
    assert!(!taken.contains(note), "{taken}");
    let shown = session(&core, &["--elf", renamed.to_str().unwrap()], &["bt"]);
    assert!(shown.contains("in main"), "{shown}");
    let mut bytes = fs::read(&program).unwrap();
    // A shared object.
    bytes[16] = 3;
    fs::write(&renamed, bytes).unwrap();
    let said = said(&renamed);
    assert!(
        said.contains(&format!("{}: {note}", renamed.display())),
        "{said}"
    );
    assert!(said.contains("missing image: /opt/program.elf"), "{said}");
}

#[test]
fn a_core_file_without_mapped_files_asks_for_the_program() {
    let scratch = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(core_file(scratch.path())).unwrap();
    let said = |bytes: &[u8], elf: Vec<NamedProgram>| {
        let options = Options {
            elf,
            ..Options::default()
        };
        let read = armsnap::import::core_file::import_bytes(
            Path::new("core"),
            bytes.to_vec().into(),
            &options,
        );
        let notes: Vec<String> = read
            .unwrap()
            .notes
            .iter()
            .map(ToString::to_string)
            .collect();
        notes.join("\n")
    };
    let note = "the core file does not list the mapped files: --elf FILE names the program";
    assert!(!said(&bytes, Vec::new()).contains(note));
    // NT_FILE becomes a note of another kind.
    let kind = NT_FILE.to_le_bytes();
    let at = bytes.windows(4).position(|word| word == kind).unwrap();
    bytes[at] ^= 1;
    assert!(said(&bytes, Vec::new()).contains(note));
    let program = NamedProgram {
        path: testdata("recorded/etmv4/program.elf"),
        address: None,
    };
    assert!(!said(&bytes, vec![program]).contains(note));
}
