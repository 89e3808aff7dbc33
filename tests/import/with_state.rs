//! A core file and trace of the same system make one snapshot.

use crate::core_files::core_file;
use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::record::decoded;
use std::fs;
use std::process::Command;

#[test]
fn a_core_file_and_a_buffer_make_one_snapshot() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("opt")).unwrap();
    fs::copy(
        testdata("recorded/etmv4/program.elf"),
        tree.join("opt/program.elf"),
    )
    .unwrap();
    let core = core_file(scratch.path());
    let recorded = testdata("recorded/etmv4");
    let written = scratch.path().join("snapshot");
    // The registers of both units are the same, except for the trace ID.
    let devices = scratch.path().join("devices");
    for unit in 0..2 {
        let device = devices.join(format!("etm{unit}"));
        crate::raw::sysfs(&recorded.join(format!("trace_{unit}.ini")), &device, unit);
    }
    let mut command = armsnap();
    command
        .arg("import")
        .arg(&core)
        .arg("--raw")
        .arg(recorded.join("trace.bin"));
    command
        .arg("--sysfs")
        .arg(&devices)
        .arg("--sysroot")
        .arg(&tree)
        .arg(&written);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains("core file with raw trace: 2 cores (prog-500, prog-501)"),
        "{said}"
    );

    // The trace, and what GDB shows, are those of the recorded snapshot, from which the state
    // comes.
    let flow = |snapshot: &std::path::Path| decoded(snapshot).into_values().collect::<Vec<_>>();
    assert!(flow(&written) == flow(&recorded));
    let commands = [
        "bt",
        "reverse-stepi",
        "p/x $pc",
        "reverse-stepi",
        "p/x $pc",
        "p/x $sp",
    ];
    let frames = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with(['#', '$']));
        lines.map(str::to_owned).collect()
    };
    let own = frames(session(&recorded, &[], &commands));
    assert!(
        own.len() > 8 && own.iter().any(|line| line.starts_with("$3")),
        "{own:?}"
    );
    assert_eq!(frames(session(&written, &[], &commands)), own);
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"])
        .arg(tree.join("opt/program.elf"))
        .arg(&core)
        .args(["-ex", "bt"]);
    let itself = frames(text(&run(&mut gdb)));
    let trace: Vec<&String> = itself.iter().skip(1).collect();
    assert_eq!(trace, own.iter().take(trace.len()).collect::<Vec<_>>());
}

#[test]
fn trace_beyond_the_state_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let core = core_file(scratch.path());
    let trace = testdata("recorded/etmv4/trace.bin");
    let written = scratch.path().join("snapshot");
    let mut command = armsnap();
    command
        .arg("import")
        .arg(&core)
        .arg("--raw")
        .arg(&trace)
        .arg(&written);
    let said = text(&run(&mut command));
    assert!(
        said.contains("is assumed to have traced prog-500"),
        "{said}"
    );
    let perf = scratch.path().join("perf.data");
    fs::write(&perf, crate::perf_generated::every_record().0).unwrap();
    let written = scratch.path().join("other");
    let mut command = armsnap();
    command
        .arg("import")
        .arg(&perf)
        .arg("--raw")
        .arg(&trace)
        .arg(&written);
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains("has trace of its own: expected a core file"),
        "{}",
        text(&output)
    );
}
