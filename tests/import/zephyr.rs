//! A core dump of Zephyr, written by a program from its registers: GDB shows the same in it as it
//! showed in the emulator.

use crate::support::gdb::{need_gdb, run, session, text};
use crate::support::record::installed;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Builds the program.
fn build(directory: &Path) {
    fs::write(directory.join("zephyr.c"), include_str!("zephyr.c")).unwrap();
    let mut compiler = Command::new("arm-none-eabi-gcc");
    compiler.current_dir(directory).args([
        "-mcpu=cortex-m3",
        "-mthumb",
        "-g",
        "-O1",
        "-ffreestanding",
        "-nostdlib",
        "-fno-optimize-sibling-calls",
        "-Wl,--section-start=.vectors=0",
        "-Wl,-Ttext=0x400",
        // The value of an initialised variable is the loader's.
        "-Wl,-Tdata=0x20000000",
        "-Wl,-e,start",
        "-o",
        "program.elf",
        "zephyr.c",
    ]);
    let output = run(&mut compiler);
    assert!(output.status.success(), "{}", text(&output));
}

/// What GDB shows of the state, without the lines that it prints at a stop.
fn shown(said: &str) -> Vec<String> {
    let lines = said.lines().map(str::trim_end);
    let lines = lines.skip_while(|line| *line != "shown from here");
    let lines = lines.take_while(|line| *line != "shown up to here");
    lines.map(str::to_owned).collect()
}

#[test]
fn a_dump_that_a_program_wrote_shows_what_its_emulator_showed() {
    need_gdb();
    if !installed(&["arm-none-eabi-gcc", "qemu-system-arm"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    build(scratch.path());
    let commands = [
        "echo shown from here\\n",
        "bt",
        "info registers r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12 sp lr pc",
        "info locals",
        "up",
        "info args",
        "p seed",
        "x/6xw $sp",
        "echo shown up to here\\n",
    ];
    let mut gdb = Command::new("timeout");
    gdb.current_dir(scratch.path())
        .args([
            "-k",
            "5",
            "60",
            "gdb-multiarch",
            "-nx",
            "-batch",
            "program.elf",
        ])
        .args(["-ex", "set confirm off", "-ex"])
        .arg(
            "target remote | exec qemu-system-arm -M mps2-an385 -display none -serial none \
             -monitor none -semihosting-config enable=on,target=native -kernel program.elf \
             -S -gdb stdio",
        )
        .args(["-ex", "break *&failing", "-ex", "continue"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    gdb.args(["-ex", "delete", "-ex", "continue"]);
    let said = text(&run(&mut gdb));
    let live = shown(&said);
    for frame in [
        "third (value=",
        "second (value=",
        "first (value=",
        "start (",
    ] {
        assert!(live.iter().any(|line| line.contains(frame)), "{said}");
    }
    let dump = scratch.path().join("zephyr.bin");
    assert!(dump.is_file(), "{said}");
    let program = scratch.path().join("program.elf");
    let options = ["--elf", program.to_str().unwrap()];
    let opened = session(&dump, &options, &commands);
    assert_eq!(shown(&opened), live, "{opened}");
    // The same holds for the snapshot.
    let snapshot = scratch.path().join("snapshot");
    let mut import = crate::support::gdb::armsnap();
    import.arg("import").arg(&dump).arg(&snapshot).args(options);
    let output = run(&mut import);
    assert!(output.status.success(), "{}", text(&output));
    let opened = session(&snapshot, &[], &commands);
    assert_eq!(shown(&opened), live, "{opened}");
}
