//! Output files: input and unrelated files are not overwritten, incomplete files are removed.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::gdb::{armsnap, run, testdata, text, write_snapshot};

fn status(arguments: &[&str]) -> (i32, String) {
    let output = run(armsnap().args(arguments));
    (output.status.code().unwrap(), text(&output))
}

fn copy(from: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(testdata(from)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn force_does_not_overwrite_input() {
    let snapshot = copy("recorded/etmv4");
    let root = snapshot.path().to_str().unwrap();
    let before = names(snapshot.path());
    // A part of the memory is not searched for packets.
    for name in before.clone() {
        let path = snapshot.path().join(&name);
        let bytes = std::fs::read(&path).unwrap();
        let link = snapshot.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (path, link_path) = (path.to_str().unwrap(), link.to_str().unwrap());
        for output in [path, link_path] {
            for level in ["packets", "instructions"] {
                let (code, text) =
                    status(&["decode", root, "--level", level, "-o", output, "--force"]);
                assert_eq!(code, 2, "{output} {level}: {text}");
                assert!(text.contains("is input: it is not overwritten"), "{text}");
            }
            let (code, text) =
                status(&["convert", root, output, "--force", "--core", "Cortex-A57_0"]);
            assert_eq!(code, 2, "{output}: {text}");
        }
        std::fs::remove_file(link).unwrap();
        assert!(std::fs::read(path).unwrap() == bytes, "{name}");
    }
    assert_eq!(names(snapshot.path()), before);
}

#[test]
fn force_replaces_only_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (file, back) = (at("x.tf"), at("back"));
    let (file, back) = (file.to_str().unwrap(), back.to_str().unwrap());
    let snapshot = testdata("mps2-m4");
    assert_eq!(status(&["convert", snapshot.to_str().unwrap(), file]).0, 0);
    assert_eq!(status(&["convert", file, back]).0, 0);
    assert_eq!(
        status(&["convert", file, back, "--force", "--frame", "0"]).0,
        0
    );
    assert_eq!(status(&["convert", file, back, "--force"]).0, 0);
    std::fs::create_dir(at("back/sub")).unwrap();
    for name in [
        "back/notes.txt",
        "back/sub/notes.txt",
        "back/.hidden",
        "back/x.ini",
    ] {
        std::fs::write(at(name), "mine").unwrap();
        let (code, text) = status(&["convert", file, back, "--force"]);
        assert_eq!(code, 2, "{text}");
        assert!(
            text.contains(name) && text.contains("would be lost"),
            "{text}"
        );
        assert_eq!(std::fs::read(at(name)).unwrap(), b"mine");
        std::fs::remove_file(at(name)).unwrap();
    }
    // The input itself, even if the snapshot names it.
    let head = std::fs::read_to_string(at("back/snapshot.ini")).unwrap();
    std::fs::write(at("back/snapshot.ini"), head + "\n[other]\nfile=x.tf\n").unwrap();
    std::fs::copy(file, at("back/x.tf")).unwrap();
    let (code, text) = status(&["convert", &format!("{back}/x.tf"), back, "--force"]);
    assert_eq!(code, 2, "{text}");
    assert!(at("back/x.tf").is_file());
    assert_eq!(status(&["convert", file, back, "--force"]).0, 0);
    assert_eq!(names(directory.path()), ["back", "x.tf"]);
}

#[test]
fn an_interruption_leaves_no_incomplete_files() {
    let snapshot = copy("recorded/etmv4");
    let trace = File::options()
        .write(true)
        .open(snapshot.path().join("trace.bin"))
        .unwrap();
    if trace.set_len(64 << 30).is_err() {
        crate::support::skip::unavailable("no sparse files here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = armsnap()
            .arg("decode")
            .arg(snapshot.path())
            .args(["--level", "packets", "-o"])
            .arg(directory.path().join("out"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while names(directory.path()).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "no file appears");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(names(directory.path())[0].ends_with(".part"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

#[test]
fn a_recording_that_cannot_be_written_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("none/out");
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let mine = copy("recorded/etmv4");
    std::fs::write(mine.path().join("notes.txt"), "mine").unwrap();
    for (output, told) in [
        (missing.as_path(), "none"),
        (&file.join("out"), "file"),
        (&file, "is not a snapshot"),
        (mine.path(), "notes.txt"),
    ] {
        // The program does not exist: starting it would be an error.
        let output = output.to_str().unwrap();
        let arguments = ["record", "--force", "-o", output, "--", "/no/such/program"];
        let (code, text) = status(&arguments);
        assert_ne!(code, 0);
        assert!(text.contains(told) && !text.contains("/no/such"), "{text}");
    }
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn two_devices_outside_the_directory_stay_separate() {
    let device = "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x10\n";
    let outside = write_snapshot(&[("a", device), ("b", device)], &[]);
    let snapshot = outside.path().join("snapshot");
    std::fs::create_dir(&snapshot).unwrap();
    let absolute = outside.path().join("b.ini");
    let list = format!(
        "[snapshot]\nversion=1.0\n[device_list]\nd0=../a.ini\nd1={}\nd2=../a.ini\n",
        absolute.display()
    );
    std::fs::write(snapshot.join("snapshot.ini"), list).unwrap();
    let (code, text) = status(&["info", snapshot.to_str().unwrap(), "--allow-outside"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("2 cores") && text.contains("a, b:"), "{text}");
    assert!(text.contains("../a.ini again"), "{text}");
}
