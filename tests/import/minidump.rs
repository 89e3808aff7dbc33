//! Minidumps: GDB shows in them what it shows in the core file of the same program.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::inputs::minidump::{Form, Writer, of_linux};
use std::fs;
use std::path::Path;

fn shown(said: &str) -> Vec<String> {
    let lines = said.lines().map(str::trim_end);
    let begins = ["#", "$", "pc ", "x29 ", "cpsr ", "0x"];
    let shown = lines.filter(|line| begins.iter().any(|begin| line.starts_with(begin)));
    shown.map(str::to_owned).collect()
}

fn info(path: &Path) -> (bool, String) {
    let output = run(armsnap().arg("info").arg(path));
    (output.status.success(), text(&output))
}

#[test]
fn gdb_shows_what_it_shows_in_the_core_file() {
    need_gdb();
    let directory = testdata("linux-core");
    let root = directory.join("root");
    let options = ["--symfs", root.to_str().unwrap()];
    let commands = [
        "bt",
        "info registers x29 pc cpsr",
        "p $v0.q.u",
        "p $fpcr",
        "p $_siginfo.si_signo",
        "p $_siginfo._sifields._sigfault.si_addr",
        "x/8xg $sp",
        "x/2i $pc",
    ];
    let wanted = shown(&session(
        &directory.join("program.core"),
        &options,
        &commands,
    ));
    assert!(
        wanted.iter().any(|line| line.contains("visit")),
        "{wanted:?}"
    );
    let scratch = tempfile::tempdir().unwrap();
    for form in [Form::Arm64, Form::OldArm64] {
        let file = scratch.path().join(format!("{form:?}.dmp"));
        fs::write(&file, of_linux(form)).unwrap();
        assert_eq!(
            shown(&session(&file, &options, &commands)),
            wanted,
            "{form:?}"
        );
        let into = scratch.path().join(format!("{form:?}"));
        let mut import = armsnap();
        import.arg("import").arg(&file).arg(&into).args(options);
        let output = run(&mut import);
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("minidump of a Linux program: 1 core"));
        assert_eq!(shown(&session(&into, &[], &commands)), wanted, "{form:?}");
        let (known, said) = info(&file);
        assert!(
            known && said.contains("missing image: /lib/libwork.so"),
            "{said}"
        );
        let output = run(armsnap().arg("check").arg(&into));
        assert!(output.status.success(), "{}", text(&output));
    }
    let alone = text(&run(armsnap().current_dir(scratch.path())));
    assert!(alone.contains("Arm64.dmp: a minidump"), "{alone}");
}

/// A minidump of a thread of an ARM program, with a stack at 0x1000.
fn of_arm(flags: u32, platform: u32, code: u32) -> Vec<u8> {
    let mut context: Vec<u8> = (0..92_u32).flat_map(u32::to_le_bytes).collect();
    context[..4].copy_from_slice(&flags.to_le_bytes());
    let mut out = Writer::new(3);
    out.system(5, platform);
    let stack = out.add(&[7; 64]);
    let context = out.add(&context);
    out.thread(42, (0x1000, stack), context);
    out.exception(42, [code, 1], 0x1234, context);
    out.file()
}

#[test]
fn registers_and_exceptions_of_arm() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("arm.dmp");
    for (flags, platform, code, stopped) in [
        (
            0x4000_0006,
            0x8203,
            11,
            "thread-42: stopped by SIGSEGV (11), SEGV_MAPERR at 0x1234",
        ),
        (
            0x0020_0007,
            2,
            0xC000_0005,
            "thread-42: stopped by SIGSEGV (11)",
        ),
        (
            0x4000_0006,
            0x8201,
            0x1234,
            "thread-42: exception 0x1234 at 0x1234",
        ),
    ] {
        fs::write(&file, of_arm(flags, platform, code)).unwrap();
        let (known, said) = info(&file);
        assert!(known && said.contains(stopped), "{said}");
        let said = session(
            &file,
            &[],
            &["p/x $r1", "p/x $sp", "p/x $d0", "x/xw 0x1000"],
        );
        for wanted in ["= 0x2", "= 0xe", "0x1500000014", "0x07070707"] {
            assert!(said.contains(wanted), "{said}");
        }
    }
    // Without the flag of floating-point registers they are not known.
    fs::write(&file, of_arm(0x4000_0002, 0x8203, 6)).unwrap();
    let said = session(&file, &[], &["p/x $r1", "p $d0"]);
    assert!(
        said.contains("= 0x2") && !said.contains("0x1500000014"),
        "{said}"
    );
}

#[test]
fn others_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("other.dmp");
    let mut x86 = Writer::new(1);
    x86.system(9, 0x8201);
    let mut empty = Writer::new(1);
    empty.system(12, 0x8201);
    for (bytes, wanted) in [
        (
            x86.file(),
            "minidump for processor architecture 9: expected ARM64",
        ),
        (empty.file(), "minidump without threads"),
        (
            Writer::new(0).file(),
            "minidump without the description of its system",
        ),
        (b"MDMP\x93\xa7\0\0".to_vec(), "minidump cut in its header"),
    ] {
        fs::write(&file, bytes).unwrap();
        let (known, said) = info(&file);
        assert!(!known && said.contains(wanted), "{said}");
    }
}
