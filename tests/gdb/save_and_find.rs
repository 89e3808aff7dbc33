//! GDB's own commands and displays with a recording: locations as in `break`, traces saved in CTF,
//! core files, and the position in the TUI.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::record::forget_start;

/// A program, recorded to its end.
fn recording(directory: &Path, source: &str, options: &[&str]) -> PathBuf {
    std::fs::write(directory.join("file.c"), source).unwrap();
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-g", "-O0", "-o", "program", "file.c"])
        .args(options)
        .current_dir(directory)
        .status()
        .expect("aarch64-linux-gnu-gcc is not installed: install gcc-aarch64-linux-gnu");
    assert!(status.success());
    let recorded = directory.join("recorded");
    let mut record = armsnap();
    record.args(["record", "--exit-zero", "-o"]).arg(&recorded);
    let output = run(record.arg("--").arg(directory.join("program")));
    assert!(output.status.success(), "{}", text(&output));
    recorded
}

#[test]
fn find_takes_the_locations_that_break_takes() {
    let directory = tempfile::tempdir().unwrap();
    // A function with a C++ name.
    let source = "#include <stdlib.h>\n\
                  int area(int s) __asm__(\"_ZNK2Sq4areaEv\");\n\
                  __attribute__((noinline)) int area(int s) { return s * s; }\n\
                  volatile int sink;\n\
                  int main(void) {\n  sink = area(3);\n  sink = area(4);\n  abort();\n}\n";
    let recorded = recording(directory.path(), source, &["-static"]);
    for (location, wanted) in [
        ("Sq::area", "_ZNK2Sq4areaEv (s="),
        ("Sq::area() const", "_ZNK2Sq4areaEv (s="),
        ("file.c:7", "main () at file.c:7\n"),
        ("7", "main () at file.c:7\n"),
        ("*main", "main () at file.c:5\n"),
        ("&main", "main () at file.c:5\n"),
        ("*main + 4", " in main () at file.c:5\n"),
        ("nosuch", "Function \"nosuch\" not defined.\n"),
        ("nosuch.c:3", "No source file named nosuch.c.\n"),
    ] {
        let find = format!("armsnap find {location} back");
        let shown = session(&recorded, &[], &[&find]);
        assert!(shown.contains(wanted), "{location}: {shown}");
    }
    // The nearest of several locations.
    let shown = session(&recorded, &[], &["echo at:", "output (long)&main"]);
    let (_, address) = shown.split_once("at:").expect(&shown);
    let digits: String = address.chars().take_while(char::is_ascii_digit).collect();
    let address: u64 = digits.parse().expect(&shown);
    let find = format!("monitor find 0,{address:#x},8 back");
    let shown = session(&recorded, &[], &[&find]);
    assert!(shown.contains("<main>; monitor goto"), "{shown}");
}

#[test]
fn a_trace_saved_in_ctf_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    // Its memory is larger than the pieces in which the server writes the buffer.
    let source = "volatile char all[200000] = {1};\n\
                  void _start(void) {\n  for (int i = 0; i < 200; i++)\n    all[i * 1000] = i;\n\
                  *(volatile int *)8 = 0;\n}\n";
    let recorded = recording(
        directory.path(),
        source,
        &["-static", "-nostdlib", "-ffreestanding"],
    );
    let (ctf, tf) = (directory.path().join("ctf"), directory.path().join("tf"));
    let saved = session(
        &recorded,
        &[],
        &[
            &format!("tsave -ctf {}", ctf.display()),
            &format!("tsave {}", tf.display()),
        ],
    );
    assert!(std::fs::metadata(&tf).unwrap().len() > 200_000, "{saved}");
    let look = |target: &str, path: &Path| {
        need_gdb();
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"]).arg(recorded.join("program"));
        gdb.args(["-ex", &format!("target {target} {}", path.display())]);
        for frame in ["0", "5", "100"] {
            gdb.args([
                "-ex",
                &format!("tfind {frame}"),
                "-ex",
                "echo at:",
                "-ex",
                "output $pc",
            ]);
        }
        let shown = text(&run(&mut gdb));
        let places = shown
            .split("at:")
            .skip(1)
            .map(|rest| rest.lines().next().unwrap().to_owned());
        let places: Vec<String> = places.collect();
        assert!(
            places.iter().all(|place| place.contains("0x")),
            "{saved}{shown}"
        );
        places
    };
    let places = look("ctf", &ctf);
    assert_eq!(places.len(), 3, "{places:?}");
    assert_eq!(places, look("tfile", &tf));
}

#[test]
fn front_ends_are_notified_of_moves() {
    need_gdb();
    // The TUI's status line follows the notification of a selected frame, as in MI.
    let mut gdb = armsnap();
    gdb.arg("gdb").arg(testdata("recorded/etmv4"));
    gdb.args(["--", "-nx", "-i=mi3", "-ex", "armsnap find price_tree back"]);
    gdb.args(["-ex", "armsnap goto begin", "-ex", "quit"]);
    let shown = text(&run(&mut gdb));
    let selected = shown
        .lines()
        .filter(|line| line.starts_with("=thread-selected"));
    let selected: Vec<&str> = selected.collect();
    assert_eq!(selected.len(), 2, "{shown}");
    assert!(selected[0].contains("func=\"price_tree\""), "{shown}");
    assert!(selected[1].contains("func=\"_start\""), "{shown}");
}

#[test]
fn memory_unknown_in_the_past_stays_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <stdlib.h>\nvolatile int value = 4711;\nconst int constant = 815;\n\
                  int main(void) {\n  value = 1;\n  abort();\n}\n";
    let recorded = recording(directory.path(), source, &["-static"]);
    forget_start(&recorded);
    let saved = directory.path().join("saved");
    let looks = ["print value", "print constant", "print $pc"];
    let save = format!("armsnap save {}", saved.display());
    let before = session(
        &recorded,
        &[],
        &[&["armsnap find main back"], &looks[..], &[&save]].concat(),
    );
    let after = session(&saved, &[], &looks);
    for shown in [&before, &after] {
        assert!(shown.contains("Cannot access memory"), "{shown}");
        assert!(
            shown.contains("= 815\n") && shown.contains("<main>\n"),
            "{shown}"
        );
    }
    // The snapshot requires this; otherwise the program's initial value would be shown.
    let list = saved.join("snapshot.ini");
    let text = std::fs::read_to_string(&list).unwrap();
    assert!(text.contains("\nmemory=read-only\n"), "{text}");
    std::fs::write(&list, text.replace("memory=read-only\n", "")).unwrap();
    assert!(session(&saved, &[], &looks).contains("= 4711\n"));
    assert!(
        before.contains("left out: the trace, which stays"),
        "{before}"
    );
    assert!(before.contains(" that cannot be read, at 0x"), "{before}");
}

#[test]
fn a_saved_recording_keeps_its_libraries() {
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <stdlib.h>\nint main(void) {\n  abort();\n}\n";
    let recorded = recording(directory.path(), source, &[]);
    let saved = directory.path().join("saved");
    let save = format!("armsnap save {}", saved.display());
    let before = session(&recorded, &[], &["backtrace", &save]);
    assert!(before.contains(" 2 libraries\n"), "{before}");
    let after = session(&saved, &[], &["backtrace", "info sharedlibrary"]);
    assert!(
        after.contains("in abort () from ") && after.contains("saved/libraries/libc.so.6"),
        "{after}"
    );
    assert!(after.contains("in main () at file.c:3"), "{after}");
}

/// GDB's output for a core file made from a snapshot, and for the snapshot.
fn core_file(snapshot: &Path, program: Option<&str>) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let core = directory.path().join("made.core");
    let generate = format!("generate-core-file {}", core.display());
    let before = session(
        snapshot,
        &[],
        &[&generate, "echo at:\\n", "thread apply all -q backtrace"],
    );
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]);
    let libraries = snapshot.join("libraries");
    gdb.args([
        "-ex",
        &format!("set solib-search-path {}", libraries.display()),
    ]);
    // A core file of a glibc program has the kernel's thread numbers, unlike a snapshot.
    gdb.args(["-ex", "set libthread-db-search-path /nowhere"]);
    if let Some(program) = program {
        gdb.args(["-ex", &format!("file {}", snapshot.join(program).display())]);
    }
    gdb.args(["-ex", &format!("core-file {}", core.display())]);
    gdb.args(["-ex", "echo at:\\n", "-ex", "thread apply all -q backtrace"]);
    let after = text(&run(&mut gdb));
    let frames = |text: &str| -> String {
        let (_, shown) = text.split_once("at:\n").expect(text);
        let frames = shown.lines().filter(|line| line.starts_with('#'));
        frames.map(|line| format!("{line}\n")).collect()
    };
    (frames(&before), frames(&after))
}

#[test]
fn core_files_show_the_same_as_snapshots() {
    for (name, program, last) in [
        ("mps2-m4", "program.elf", "#7  0x0000017e in main ()"),
        (
            "virt-a57",
            "program.elf",
            "#7  0x00000000401007ac in main ()",
        ),
        (
            "recorded/ptm",
            "cores-a15-bare-a15.elf",
            "#1  0x4008015e in count (core=0)",
        ),
    ] {
        let (before, after) = core_file(&testdata(name), Some(program));
        assert!(before.contains(last), "{before}");
        assert_eq!(before, after);
    }
    // With libraries, at an address chosen by the system; and without a program.
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <stdlib.h>\nint main(void) {\n  abort();\n}\n";
    let recorded = recording(directory.path(), source, &["-fPIE", "-pie"]);
    let (before, after) = core_file(&recorded, Some("program"));
    assert!(before.contains("in main () at file.c:3"), "{before}");
    assert_eq!(before, after);
    let bare = directory.path().join("bare");
    std::fs::create_dir(&bare).unwrap();
    for entry in std::fs::read_dir(testdata("virt-a57")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if entry.file_type().unwrap().is_file() && name != "program.elf" {
            std::fs::copy(entry.path(), bare.join(name)).unwrap();
        }
    }
    let (before, after) = core_file(&bare, None);
    assert!(
        before.contains("#0  0x00000000401004fc in ?? ()"),
        "{before}"
    );
    assert_eq!(before, after);
}
