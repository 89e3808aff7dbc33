//! What armsnap's commands in GDB write: they never overwrite input, or files that armsnap did not
//! write.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A copy of a snapshot, in a directory with room for more.
fn copy(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = directory.path().join("snap");
    fs::create_dir(&snapshot).unwrap();
    for entry in fs::read_dir(testdata(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, snapshot.join(path.file_name().unwrap())).unwrap();
        }
    }
    (directory, snapshot)
}

/// All files below a directory, with their contents.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn the_open_snapshot_is_not_overwritten() {
    let (directory, snapshot) = copy("recorded/etmv4");
    std::os::unix::fs::symlink(&snapshot, directory.path().join("link")).unwrap();
    fs::create_dir(directory.path().join("outer")).unwrap();
    fs::hard_link(
        snapshot.join("trace.bin"),
        directory.path().join("outer/snapshot.ini"),
    )
    .unwrap();
    let before = contents(directory.path());
    let mut commands: Vec<String> = Vec::new();
    for entry in fs::read_dir(&snapshot).unwrap() {
        let path = entry.unwrap().path();
        commands.push(format!("generate-core-file {}", path.display()));
    }
    for name in ["snap", "snap/.", "snap/../snap", "outer"] {
        let path = directory.path().join(name);
        commands.push(format!("armsnap save {} --force", path.display()));
    }
    let through = directory.path().join("link/memory_40000000.bin");
    commands.push(format!("generate-core-file {}", through.display()));
    for command in &commands {
        let text = session(&snapshot, &[], &[command]);
        assert!(
            text.contains("is input: it is not overwritten"),
            "{command}: {text}"
        );
        assert!(!text.contains("Traceback"), "{command}: {text}");
        assert!(contents(directory.path()) == before, "{command}");
    }
    let out = run(armsnap().arg("decode").arg(&snapshot));
    assert!(out.status.success());
}

#[test]
fn files_of_others_are_not_removed_with_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let save = format!("armsnap save {}", at("snap").display());
    session(&testdata("virt-a57"), &[], &[&save]);
    fs::create_dir(at("snap/thesis")).unwrap();
    fs::write(at("snap/thesis/notes.txt"), "important").unwrap();
    let before = contents(directory.path());
    let text = session(&testdata("virt-a57"), &[], &[&format!("{save} --force")]);
    assert!(
        text.contains("no part of the snapshot that is to be replaced"),
        "{text}"
    );
    assert!(contents(directory.path()) == before);
    fs::remove_dir_all(at("snap/thesis")).unwrap();
    let text = session(&testdata("virt-a57"), &[], &[&format!("{save} --force")]);
    assert!(text.contains("snap: "), "{text}");
    assert_eq!(contents(directory.path()).len(), before.len() - 1);
}

#[test]
fn a_core_file_replaces_a_core_file_only() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("notes"), "important").unwrap();
    fs::copy(testdata("virt-a57/firmware.elf"), at("program")).ok();
    let write = |name: &str| {
        let command = format!("generate-core-file {}", at(name).display());
        session(&testdata("virt-a57"), &[], &[&command])
    };
    assert!(write("core.1").contains("Saved corefile"));
    assert!(write("core.1").contains("Saved corefile"));
    let text = write("notes");
    assert!(text.contains("exists and is not a core file"), "{text}");
    assert_eq!(fs::read(at("notes")).unwrap(), b"important");
    // Nothing incomplete remains.
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert!(names.len() <= 3, "{names:?}");
}

/// In a GDB that armsnap did not start, the program that is set decides by the same rule; without
/// one, nothing is replaced.
#[test]
fn without_armsnap_nothing_is_replaced() {
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let commands = run(armsnap().arg("gdb-commands"));
    fs::write(at("armsnap.py"), commands.stdout).unwrap();
    fs::create_dir(at("old")).unwrap();
    fs::write(at("old/snapshot.ini"), "[snapshot]\n").unwrap();
    let core = testdata("linux-core/program.core");
    let gdb = |program: &Path| {
        let mut command = Command::new("gdb-multiarch");
        command.args(["-nx", "-batch", "-ex"]);
        command.arg(format!("source {}", at("armsnap.py").display()));
        command.arg("-ex");
        command.arg(format!("set armsnap-program {}", program.display()));
        command
            .arg("-ex")
            .arg(format!("core-file {}", core.display()));
        command.arg("-ex");
        command.arg(format!("armsnap save {} --force", at("old").display()));
        text(&run(&mut command))
    };
    let text = gdb(&at("nowhere"));
    assert!(
        text.contains("which decides whether it may be replaced"),
        "{text}"
    );
    assert_eq!(contents(&at("old")).len(), 1);
    let text = gdb(Path::new(armsnap().get_program()));
    assert!(text.contains("old: "), "{text}");
    assert!(contents(&at("old")).len() > 1);
}
