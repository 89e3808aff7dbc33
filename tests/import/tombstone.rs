//! Tombstones of Android: GDB shows in them what it shows in the core file of the same program.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::inputs::tombstone::{as_log, as_text, of_linux};
use prost::Message;
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
        "x/8xg $sp",
        "x/2i $pc",
        "p $_siginfo.si_signo",
    ];
    let core = directory.join("program.core");
    let wanted = shown(&session(&core, &options, &commands));
    assert!(
        wanted.iter().any(|line| line.contains("visit")),
        "{wanted:?}"
    );
    let scratch = tempfile::tempdir().unwrap();
    let tombstone = of_linux();
    for (name, bytes) in [
        ("tombstone_00.pb", tombstone.encode_to_vec()),
        ("tombstone_00", as_text(&tombstone).into_bytes()),
        ("logcat.txt", as_log(&tombstone).into_bytes()),
    ] {
        let file = scratch.path().join(name);
        fs::write(&file, bytes).unwrap();
        // Without the map, the program below the library is not found.
        let is_log = name == "logcat.txt";
        let commands = if is_log { &commands[1..] } else { &commands };
        let wanted = match is_log {
            true => shown(&session(&core, &options, commands)),
            false => wanted.clone(),
        };
        let said = session(&file, &options, commands);
        assert_eq!(shown(&said), wanted, "{name}: {said}");
        let into = scratch.path().join(format!("{name}-snapshot"));
        let mut import = armsnap();
        import.arg("import").arg(&file).arg(&into).args(options);
        let output = run(&mut import);
        let cores = if is_log { "1 core" } else { "2 cores" };
        let kind = format!("tombstone of Android: {cores}");
        assert!(text(&output).contains(&kind), "{}", text(&output));
        assert_eq!(shown(&session(&into, &[], commands)), wanted, "{name}");
        let output = run(armsnap().arg("check").arg(&into));
        assert!(output.status.success(), "{}", text(&output));
        let (known, said) = info(&file);
        assert!(known && !said.contains('\u{1b}'), "{said}");
        for wanted in [
            "the program says: no \\u{1b}[31mlevel",
            "Android says: null pointer dereference",
            "missing image: /program (build-id ",
            "main___31m-4711: stopped by SIGSEGV (11), SEGV_MAPERR at 0x10",
        ] {
            assert!(said.contains(wanted), "{name}: {wanted}: {said}");
        }
        if !is_log {
            let said = session(&file, &[], &["info threads", "thread 2", "p/x $x0"]);
            assert!(said.contains("worker-4712"), "{said}");
            assert!(said.contains("= 0x1234"), "{said}");
        }
    }
    let alone = text(&run(armsnap().current_dir(scratch.path())));
    assert!(
        alone.contains("tombstone_00.pb: a tombstone of Android"),
        "{alone}"
    );
}

/// The lines that Android 4.4 wrote to the log.
const OLD: &str = "
I/DEBUG   (  171): *** *** *** *** *** *** *** *** *** *** *** *** *** *** *** ***
I/DEBUG   (  171): Revision: '11'
I/DEBUG   (  171): pid: 4711, tid: 4712, name: Render Thread  >>> org.example.app <<<
I/DEBUG   (  171): signal 7 (SIGBUS), code 1 (BUS_ADRALN), fault addr 00001235
I/DEBUG   (  171):     r0 00001235  r1 00000001  r2 00000002  r3 00000003
I/DEBUG   (  171):     r8 00000008  r9 00000009  sl 0000000a  fp 0000000b
I/DEBUG   (  171):     ip 0000000c  sp 00001000  lr 00008005  pc 00009000  cpsr 00090030
I/DEBUG   (  171):     d0  6e65704f206f7420  d1  5041205345204c47
I/DEBUG   (  171):     scr 60000013
I/DEBUG   (  171): 
I/DEBUG   (  171): backtrace:
I/DEBUG   (  171):     #00  pc 00001000  /data/app-lib/libexample.so (draw(int)+4)
I/DEBUG   (  171): 
I/DEBUG   (  171): stack:
I/DEBUG   (  171):          00000ffc  11111111  [heap]
I/DEBUG   (  171):     #00  00001000  22222222  /data/app-lib/libexample.so
I/DEBUG   (  171):          ........  ........
I/DEBUG   (  171): 
I/DEBUG   (  171): memory near r0:
I/DEBUG   (  171):     00001214 33333333 -------- 55555555 66666666  
I/DEBUG   (  171): code around pc:
I/DEBUG   (  171):     00008ffc bf00bf00 bf00e7fe bf00bf00 bf00bf00  ................
";

#[test]
fn logs_of_old_versions() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("logcat.txt");
    fs::write(&file, OLD).unwrap();
    let (known, said) = info(&file);
    for wanted in [
        "Render_Thread-4712: stopped by SIGBUS (7), BUS_ADRALN at 0x1235",
        "missing image: /data/app-lib/libexample.so",
        "the tombstone has no memory map",
    ] {
        assert!(known && said.contains(wanted), "{said}");
    }
    let commands = [
        "p/x $r10",
        "p/x $d1",
        "p/x $fpscr",
        "x/2xw 0xffc",
        "x/xw 0x1214",
        "x/xw 0x1218",
        "x/2xw 0x121c",
        "x/i $pc",
    ];
    let said = session(&file, &[], &commands);
    for wanted in [
        "= 0xa\n",
        "0x5041205345204c47",
        "0x60000013",
        "0xffc:\t0x11111111\t0x22222222",
        "0x1214:\t0x33333333",
        "Cannot access memory at address 0x1218",
        "0x121c:\t0x55555555\t0x66666666",
        "0x9000:\tb.n\t0x9000",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn others_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("other");
    let mut tombstone = of_linux();
    let text = as_text(&tombstone).replace("'arm64'", "'x86_64'");
    tombstone.arch = 3;
    let wanted = "tombstone of a program for x86_64: expected arm64 or arm";
    let empty = "pid: 1, tid: 1, name: a  >>> b <<<\n".to_owned();
    for (bytes, wanted) in [
        (text.into_bytes(), wanted),
        (tombstone.encode_to_vec(), wanted),
        (
            empty.into_bytes(),
            "tombstone without registers of ARM64 or ARM",
        ),
    ] {
        fs::write(&file, bytes).unwrap();
        let (known, said) = info(&file);
        assert!(!known && said.contains(wanted), "{said}");
    }
}
