//! Core files that other programs wrote, and the dumps of Zephyr: GDB shows the same back traces.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::inputs::zephyr::of_saved_system;
use crate::support::program::program;
use crate::support::record::installed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The frames of a back trace.
fn frames(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Imports an input, and returns the messages.
fn import(input: &Path, options: &[&str], into: &Path) -> String {
    let mut command = armsnap();
    command
        .args(["import", "--force"])
        .arg(input)
        .arg(into)
        .args(options);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// The core file that QEMU writes of a program that crashes.
fn crashed(elf: &Path, emulator: &str, directory: &Path) -> PathBuf {
    let mut shell = Command::new("sh");
    shell.current_dir(directory).args([
        "-c",
        "ulimit -c unlimited && exec \"$0\" \"$1\"",
        emulator,
    ]);
    let _ = shell.arg(elf).output().unwrap();
    let files = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut cores = files.filter(|path| path.extension().is_some_and(|end| end == "core"));
    cores.next().expect("QEMU writes a core file")
}

#[test]
fn core_files_of_crashed_programs_have_gdbs_back_trace() {
    need_gdb();
    if !installed(&["qemu-arm", "qemu-aarch64"]) {
        return;
    }
    for (name, emulator, registers) in [
        ("crash-a32", "qemu-arm", "info registers r0 sp lr cpsr"),
        ("crash-t32", "qemu-arm", "info registers r0 sp lr cpsr"),
        ("crash-a64", "qemu-aarch64", "info registers x0 sp x30"),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let elf = &program(name).elf;
        let core = crashed(elf, emulator, scratch.path());
        let commands = ["bt", registers];
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"]).arg(elf).arg(&core);
        for command in commands {
            gdb.args(["-ex", command]);
        }
        let own = text(&run(&mut gdb));
        let into = scratch.path().join("snapshot");
        import(&core, &["--elf", elf.to_str().unwrap()], &into);
        let ours = session(&into, &[], &commands);
        // GDB prints the first frame of a core file when it opens it.
        let own_frames = frames(&own)[1..].to_vec();
        assert!(own_frames.len() > 3, "{name}: {own}");
        assert_eq!(frames(&ours), own_frames, "{name}");
        for register in registers.split(' ').skip(2) {
            let line = |text: &str| {
                let start = format!("{register} ");
                text.lines()
                    .find(|line| line.starts_with(&start))
                    .map(str::to_owned)
            };
            let (own, ours) = (line(&own), line(&ours));
            assert!(own.is_some(), "{name}: {register}");
            // The meaning of CPSR's bits is shown in other words.
            let number =
                |line: Option<String>| line.unwrap().split_whitespace().nth(1).map(str::to_owned);
            assert_eq!(number(ours), number(own), "{name}: {register}");
        }
    }
}

#[test]
fn a_program_that_is_named_is_where_the_core_file_says() {
    need_gdb();
    if !installed(&["qemu-aarch64", "aarch64-linux-gnu-gcc"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("crash.c");
    let elf = scratch.path().join("crash");
    let text_of = "int deep(int n) { return n ? deep(n - 1) + 1 : *(volatile int *)8; }\n\
                   int main(void) { return deep(3); }\n";
    fs::write(&source, text_of).unwrap();
    let mut compiler = Command::new("aarch64-linux-gnu-gcc");
    compiler.args(["-g", "-O1", "-static-pie", "-o"]).arg(&elf);
    assert!(compiler.arg(&source).status().unwrap().success());
    let core = crashed(&elf, "qemu-aarch64", scratch.path());
    let commands = ["bt", "x/xb 0"];
    let into = scratch.path().join("snapshot");
    let options = ["--elf", elf.to_str().unwrap()];
    import(&core, &options, &into);
    let imported = session(&into, &[], &commands);
    let direct = session(&core, &options, &commands);
    // A name that is not the file's absolute path.
    std::fs::create_dir(scratch.path().join("other")).unwrap();
    let roundabout = scratch.path().join("other/../crash");
    let options = ["--elf", roundabout.to_str().unwrap()];
    let other = session(&core, &options, &commands);
    let all = [
        ("imported", &imported),
        ("direct", &direct),
        ("by another name", &other),
    ];
    for (how, shown) in all {
        let deep = frames(shown);
        let deep = deep.iter().filter(|frame| frame.contains("deep (")).count();
        assert_eq!(deep, 4, "{how}: {shown}");
        // It was not loaded at the addresses in the file.
        assert!(
            shown.contains("Cannot access memory at address 0x0"),
            "{how}: {shown}"
        );
    }
    assert_eq!(frames(&direct), frames(&imported));
}

#[test]
fn a_core_file_of_linux_with_a_library_has_gdbs_back_trace() {
    need_gdb();
    let directory = testdata("linux-core");
    let core = directory.join("program.core");
    let root = directory.join("root");
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex"])
        .arg(format!("set sysroot {}", root.display()));
    gdb.args(["-ex"])
        .arg(format!("file {}", root.join("program").display()));
    gdb.args(["-ex"])
        .arg(format!("core-file {}", core.display()));
    gdb.args(["-ex", "bt", "-ex", "info sharedlibrary"]);
    let own = text(&run(&mut gdb));
    let commands = ["bt", "info sharedlibrary"];
    let options = ["--sysroot", root.to_str().unwrap()];
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("snapshot");
    let said = import(&core, &options, &into);
    assert!(
        said.contains("missing image: /lib/ld-linux-aarch64.so.1 (build-id "),
        "{said}"
    );
    let own_frames = frames(&own)[1..].to_vec();
    assert!(
        own_frames.iter().any(|frame| frame.contains("visit")),
        "{own}"
    );
    assert!(own_frames.len() >= 5, "{own}");
    for (how, ours) in [
        ("written", session(&into, &[], &commands)),
        ("direct", session(&core, &options, &commands)),
    ] {
        assert_eq!(frames(&ours), own_frames, "{how}: {ours}");
        let library = ours
            .lines()
            .find(|line| line.contains("libwork.so"))
            .unwrap_or_default();
        let address = library.split_whitespace().next().unwrap_or("none");
        assert!(own.contains(address), "{how}: {ours}");
    }
}

#[test]
fn a_dump_of_zephyr_has_the_live_back_trace() {
    need_gdb();
    let saved = testdata("mps2-m4");
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("coredump.bin");
    fs::write(&file, of_saved_system()).unwrap();
    let into = scratch.path().join("snapshot");
    let program = saved.join("program.elf");
    let said = import(&file, &["--elf", program.to_str().unwrap()], &into);
    assert!(said.contains("core dump of Zephyr: 1 core"), "{said}");
    let wanted = fs::read_to_string(saved.join("expected/Cortex-M4_0/bt.txt")).unwrap();
    let wanted = frames(&wanted);
    assert!(wanted.len() > 4);
    assert_eq!(frames(&session(&into, &[], &["set width 0", "bt"])), wanted);
}
