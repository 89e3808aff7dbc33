//! Dumps of CrashCatcher: GDB shows in them what it shows in the snapshot of the same state.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::inputs::crash_catcher::{log, of_saved_system};
use std::fs;

#[test]
fn gdb_shows_the_state_that_was_dumped() {
    need_gdb();
    let saved = testdata("mps2-m4");
    let program = saved.join("program.elf");
    let options = ["--elf", program.to_str().unwrap()];
    let commands = ["bt", "p/x $r0", "p/x $xpsr", "p boiler", "x/wx 0xe000ed28"];
    let frames = |said: &str| {
        let lines = said.lines().map(str::trim_end);
        let shown = lines.filter(|line| {
            ["#", "$", "0xe000"]
                .iter()
                .any(|begin| line.starts_with(begin))
        });
        // The frames before an exception are on another stack, whose pointer is not known.
        let shown = shown.filter(|line| {
            !["#5", "#6", "#7"]
                .iter()
                .any(|frame| line.starts_with(frame))
        });
        shown.map(str::to_owned).collect::<Vec<_>>()
    };
    let wanted = frames(&session(&saved, &[], &commands));
    assert!(wanted.len() > 7, "{wanted:?}");
    let scratch = tempfile::tempdir().unwrap();
    let dump = of_saved_system();
    for (name, bytes) in [
        ("crash.bin", dump.clone()),
        ("crash.log", log(&dump).into_bytes()),
    ] {
        let file = scratch.path().join(name);
        fs::write(&file, bytes).unwrap();
        assert_eq!(
            frames(&session(&file, &options, &commands)),
            wanted,
            "{name}"
        );
        let into = scratch.path().join("snapshot");
        let mut import = armsnap();
        import
            .arg("import")
            .arg(&file)
            .arg(&into)
            .args(options)
            .arg("--force");
        let output = run(&mut import);
        assert!(
            text(&output).contains("dump of CrashCatcher: 1 core"),
            "{}",
            text(&output)
        );
        assert_eq!(frames(&session(&into, &[], &commands)), wanted, "{name}");
    }
    fs::write(scratch.path().join("image.hex"), ":0400100001020304E2\n").unwrap();
    let alone = text(&run(armsnap().current_dir(scratch.path())));
    for wanted in [
        "crash.log: a dump of CrashCatcher",
        "image.hex: an image of memory",
        "armsnap import --memory image.hex --core TYPE snapshot",
    ] {
        assert!(alone.contains(wanted), "{alone}");
    }
}
