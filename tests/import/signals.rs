//! The signal that ended a program, and the state of its threads that only some systems have: GDB shows
//! what it shows in the core file itself, and conversions keep it.

use crate::core_files::note;
use crate::perf_builder::words;
use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ADDRESS: u64 = 0x40_0000;

/// A core file of one thread that accessed an address without memory.
fn core_file(directory: &Path, notes: &[(u32, Vec<u8>)], signal: u8) -> PathBuf {
    let mut status = vec![0; 392];
    status[12] = signal;
    status[32] = 77;
    let pc = (112 + 8 * 32)..(112 + 8 * 33);
    status[pc].copy_from_slice(&ADDRESS.to_le_bytes());
    let mut noted = note(1, &status);
    for (kind, contents) in notes {
        noted.extend(note(*kind, contents));
    }
    let memory = [0x1f, 0x20, 0x03, 0xd5].repeat(16);
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend([4, 0, 183, 0, 1, 0, 0, 0]);
    out.extend(words(&[0, 64, 0]));
    out.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let begin = 64 + 2 * 56;
    let (size, length) = (noted.len() as u64, memory.len() as u64);
    for (kind, flags, at, address, in_file) in [
        (4_u32, 4_u32, begin, 0, size),
        (1, 7, begin + size, ADDRESS, length),
    ] {
        out.extend(kind.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(words(&[at, address, 0, in_file, in_file, 1]));
    }
    out.extend(noted);
    out.extend(memory);
    let path = directory.join("given.core");
    fs::write(&path, out).unwrap();
    path
}

/// `siginfo_t` of a fault at an address.
fn information(signal: u8, address: u64) -> Vec<u8> {
    let mut out = vec![0; 128];
    (out[0], out[8]) = (signal, 1);
    out[16..24].copy_from_slice(&address.to_le_bytes());
    out
}

/// State of a thread: TLS, SVE in the form of FPSIMD with vectors of 32 bytes, FPMR, GCS, ZA.
fn state() -> Vec<(u32, Vec<u8>)> {
    let mut vectors: Vec<u8> = (0..32_u8).flat_map(|number| [number; 16]).collect();
    vectors.extend([0; 16]);
    let mut sve = [(16 + vectors.len()) as u32, 0x2000]
        .map(u32::to_le_bytes)
        .concat();
    sve.extend([32_u16, 32, 0, 0].map(u16::to_le_bytes).concat());
    sve.extend(&vectors);
    let mut za = vec![0; 16];
    za.extend([7; 256]);
    vec![
        (0x5349_4749, information(11, 0xbad_cafe)),
        (2, vectors),
        (0x401, words(&[0x1234_5678])),
        (0x406, words(&[0x7f << 48, 0x7f << 48])),
        (0x40e, words(&[0x55])),
        (0x405, sve),
        (0x40c, za),
        (0x410, words(&[1, 0, 0xffff_0008])),
    ]
}

const COMMANDS: [&str; 9] = [
    "set osabi GNU/Linux",
    "info program",
    "p $_siginfo.si_signo",
    "p $_siginfo._sifields._sigfault.si_addr",
    "p $tpidr",
    "p $vg",
    "p/x $z3",
    "p/x $p3",
    "info threads",
];

fn values(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|line| line.starts_with('$'));
    lines.collect()
}

#[test]
fn the_signal_and_the_state_of_the_thread() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let core = core_file(scratch.path(), &state(), 11);
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).arg("-c").arg(&core);
    for command in &COMMANDS[..6] {
        gdb.args(["-ex", command]);
    }
    let own = text(&run(&mut gdb));
    let own = values(&own);
    assert_eq!(own[..2], ["$1 = 11", "$2 = (void *) 0xbadcafe"]);
    let info = |path: &Path| text(&run(armsnap().arg("info").arg(path)));
    let said = info(&core);
    let stopped = "stopped by SIGSEGV (11), SEGV_MAPERR at 0xbadcafe";
    assert!(said.contains(stopped), "{said}");
    assert!(said.contains("registers of SME"), "{said}");
    // As it is, as a snapshot, as a trace file, as a core file again, and saved by GDB.
    let others =
        ["snapshot", "copy.tf", "copy.core", "saved"].map(|name| scratch.path().join(name));
    let [snapshot, trace_file, copy, saved] = &others;
    let output = run(armsnap().arg("import").arg(&core).arg(snapshot));
    assert!(text(&output).contains(stopped), "{}", text(&output));
    for (from, to) in [(&core, trace_file), (snapshot, copy)] {
        let output = run(armsnap().arg("convert").arg(from).arg(to));
        assert!(output.status.success(), "{}", text(&output));
        assert!(!text(&output).contains("no place"), "{}", text(&output));
    }
    let back = scratch.path().join("back");
    let output = run(armsnap().arg("convert").arg(trace_file).arg(&back));
    assert!(output.status.success(), "{}", text(&output));
    let save = format!("armsnap save {}", saved.display());
    session(&core, &[], &["set osabi GNU/Linux", &save]);
    for path in [&core, snapshot, &back, copy, saved] {
        let said = session(path, &[], &COMMANDS);
        assert!(said.contains("with signal SIGSEGV"), "{said}");
        let found = values(&said);
        assert_eq!(found[..2], own[..2], "{}: {said}", path.display());
        // GDB does not know the thread pointer of older versions by this name.
        assert!(found[2].ends_with("0x12345678"), "{said}");
        assert_eq!(found[3], "$4 = 4", "{said}");
        let vector = "{0x3 <repeats 16 times>, 0x0 <repeats 16 times>}";
        assert!(found[4].ends_with(vector), "{said}");
        let said = info(path);
        assert!(said.contains(stopped), "{said}");
        let said = session(path, &[], &["p/x $FPMR", "p/x $GCSPR_EL0"]);
        assert!(said.contains("$1 = 0x55\n$2 = 0xffff0008"), "{said}");
    }
}

#[test]
fn signals_have_other_numbers_in_gdb() {
    let scratch = tempfile::tempdir().unwrap();
    for (signal, name, line) in [
        (7, "SIGBUS", "Bus error"),
        (31, "SIGSYS", "Bad system call"),
    ] {
        let core = core_file(scratch.path(), &[], signal);
        let said = session(&core, &[], &["info program", "p $_siginfo"]);
        let wanted = format!("with signal {name}, {line}.");
        assert!(said.contains(&wanted), "{said}");
        assert!(said.contains("Unable to read siginfo"), "{said}");
    }
    let core = core_file(scratch.path(), &[], 5);
    let said = session(&core, &[], &["info program"]);
    assert!(said.contains("signal SIGTRAP"), "{said}");
    assert!(!said.contains("stopped by"), "{said}");
}

#[test]
fn state_without_a_place_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let mut breakpoints = vec![0; 24];
    (breakpoints[0], breakpoints[16]) = (6, 0xe5);
    let core = core_file(
        scratch.path(),
        &[(0x402, breakpoints), (0x4fe, vec![1])],
        11,
    );
    let snapshot = scratch.path().join("snapshot");
    let output = run(armsnap().arg("import").arg(&core).arg(&snapshot));
    let said = text(&output);
    assert!(said.contains("kinds is left out: 0x402, 0x4fe"), "{said}");
    let ini = snapshot.join("cpu_0.ini");
    let text_of = fs::read_to_string(&ini).unwrap();
    let more = text_of.replace("[regs]", "[regs]\nSCTLR_EL1=0x1\nvg(size:64)=0x4");
    fs::write(&ini, more).unwrap();
    let copy = scratch.path().join("copy.core");
    let said = text(&run(armsnap().arg("convert").arg(&snapshot).arg(&copy)));
    let wanted = "left out, as a core file has no place for them: SCTLR_EL1, vg";
    assert!(said.contains(wanted), "{said}");
}
