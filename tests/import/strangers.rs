//! Directories from an untrusted source: only regular files in them are read; anything else is
//! refused.
#![cfg(unix)]

use crate::perf_builder::PerfData;
use crate::perf_generated::{ETMV4, at, etmv4, frames, process, recorded};
use crate::support::gdb::{armsnap, testdata};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Much longer than any of these commands takes; a command that waits for a pipe waits for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn recording() -> PerfData {
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let mut file = process();
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    file
}

/// A directory as `perf record --kcore` writes it.
fn directory(scratch: &Path) -> PathBuf {
    let directory = scratch.join("perf.data");
    fs::create_dir_all(directory.join("kcore_dir")).unwrap();
    fs::write(directory.join("data"), recording().file()).unwrap();
    directory
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn appended(file: &tempfile::NamedTempFile) -> fs::File {
    fs::File::options().append(true).open(file).unwrap()
}

/// Runs armsnap; returns whether it succeeded, and its messages.
fn said(arguments: &[&str]) -> (bool, String) {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut child = armsnap()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(appended(&said))
        .stderr(appended(&said))
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{arguments:?} waits");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    (status.success(), fs::read_to_string(&said).unwrap())
}

#[test]
fn pipes_in_a_recordings_directory_are_not_waited_for() {
    for name in ["kcore_dir/kcore", "data", "data.0"] {
        let scratch = tempfile::tempdir().unwrap();
        let recording = directory(scratch.path());
        let _ = fs::remove_file(recording.join(name));
        pipe(&recording.join(name));
        let (_, said) = said(&["info", recording.to_str().unwrap()]);
        let text = if name == "data" { "data" } else { "not a file" };
        assert!(said.contains(text), "{name}: {said}");
    }
}

#[test]
fn pipes_in_a_snapshot_are_not_waited_for() {
    let scratch = tempfile::tempdir().unwrap();
    let snapshot = scratch.path().join("snapshot");
    fs::create_dir(&snapshot).unwrap();
    for entry in fs::read_dir(testdata("recorded/etmv4")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, snapshot.join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::create_dir(snapshot.join("libraries")).unwrap();
    for name in ["libraries/libc.so.6", "other.elf", "more.ini"] {
        pipe(&snapshot.join(name));
    }
    let path = snapshot.to_str().unwrap();
    let (good, text) = said(&["info", path]);
    assert!(good, "{text}");
    let (_, text) = said(&["check", path]);
    assert!(!text.contains("panicked"), "{text}");
    for name in ["program.elf", "trace.bin", "snapshot.ini"] {
        fs::remove_file(snapshot.join(name)).unwrap();
        pipe(&snapshot.join(name));
        let (_, text) = said(&["info", path]);
        assert!(
            name == "program.elf" || text.contains("not a file"),
            "{name}: {text}"
        );
    }
    // A shard whose file is a pipe.
    let shard = scratch.path().join("shard");
    fs::create_dir(&shard).unwrap();
    pipe(&shard.join("course.shard"));
    let recorded = testdata("recorded/etmv4");
    let out = scratch.path().join("out");
    let (good, text) = said(&[
        "export",
        recorded.to_str().unwrap(),
        "--as",
        "folded",
        "--join",
        shard.to_str().unwrap(),
        "-o",
        out.to_str().unwrap(),
    ]);
    assert!(!good && text.contains("not a file"), "{text}");
    // The pipe as the input itself.
    let itself = shard.join("course.shard");
    for command in ["info", "convert", "import", "decode"] {
        let out = scratch.path().join(format!("out-{command}"));
        let arguments = match command {
            "convert" | "import" => vec![command, itself.to_str().unwrap(), out.to_str().unwrap()],
            _ => vec![command, itself.to_str().unwrap()],
        };
        let (good, text) = said(&arguments);
        assert!(!good, "{command}: {text}");
    }
}

#[test]
fn links_do_not_lead_out_of_a_recordings_directory() {
    for name in ["kcore_dir/kcore", "data", "data.0", "kcore_dir"] {
        let scratch = tempfile::tempdir().unwrap();
        let recording = directory(scratch.path());
        let secret = scratch.path().join("secret");
        match name {
            "kcore_dir" => {
                fs::create_dir(&secret).unwrap();
                fs::copy(testdata("linux-core/program.core"), secret.join("kcore")).unwrap();
            }
            "data" => fs::write(&secret, fs::read(recording.join("data")).unwrap()).unwrap(),
            _ => drop(fs::copy(testdata("linux-core/program.core"), &secret).unwrap()),
        }
        let link = recording.join(name);
        let _ = fs::remove_file(&link);
        let _ = fs::remove_dir(&link);
        symlink(&secret, &link).unwrap();
        let out = scratch.path().join("out");
        let (good, text) = said(&["import", recording.to_str().unwrap(), out.to_str().unwrap()]);
        assert!(!good && !out.exists(), "{name}: {text}");
        let wanted = "is a link that leads out of the recording's directory";
        assert!(text.contains(wanted), "{name}: {text}");
        // Links within the directory are files of the recording.
        fs::remove_file(&link).unwrap();
        if name == "data" {
            fs::rename(&secret, recording.join("first")).unwrap();
            symlink("first", &link).unwrap();
            let (good, text) = said(&["info", recording.to_str().unwrap()]);
            assert!(good, "{text}");
        }
    }
}
