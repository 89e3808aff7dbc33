//! Large Go programs of Debian, whose threads come and go, are recorded: each once, or as often as `ARMSNAP_TIMES`
//! says. (Ten times take a quarter of an hour.)

use super::debian_programs::unpacked;
use crate::support::record::installed;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How often each program is recorded.
fn times() -> usize {
    let times = std::env::var("ARMSNAP_TIMES");
    times.map_or(1, |times| times.parse().expect("a number in ARMSNAP_TIMES"))
}

/// A program of a package, in a directory of its own.
struct Program {
    root: PathBuf,
    name: &'static str,
    directory: tempfile::TempDir,
}

impl Program {
    /// `None` where it cannot be downloaded or emulated.
    fn of(package: &'static str) -> Option<Self> {
        if !installed(&["qemu-aarch64"]) {
            return None;
        }
        Some(Self {
            root: unpacked("arm64", package)?,
            name: package,
            directory: tempfile::tempdir().unwrap(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Records it with these arguments; returns what the program wrote to its standard output.
    fn recorded(&self, arguments: &[&str]) -> String {
        let program = self.root.join("usr/bin").join(self.name);
        let run = Command::new("timeout")
            .args([
                "-k",
                "5",
                "300",
                crate::support::armsnap(),
                "record",
                "--force",
                "-o",
                "out",
            ])
            .arg("--sysroot")
            .args([&self.root, &program])
            .args(arguments)
            .current_dir(self.directory.path())
            .env("RESTIC_PASSWORD", "secret")
            .env("HOME", self.directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let what = format!("{} {arguments:?}: {:?}: {said}", self.name, run.status);
        assert!(run.status.success(), "{what}");
        assert!(
            said.contains("stopped about to exit with status 0, PC "),
            "{what}"
        );
        assert!(self.path("out/snapshot.ini").is_file(), "{what}");
        String::from_utf8_lossy(&run.stdout).into_owned()
    }
}

/// A small tree of files.
fn tree(directory: &Path) {
    for (name, text) in [("a/one", "first"), ("a/b/two", "second"), ("three", "")] {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.repeat(1000)).unwrap();
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn restic_makes_backups() {
    let Some(restic) = Program::of("restic") else {
        return;
    };
    tree(&restic.path("tree"));
    for number in 0..times() {
        let version = restic.recorded(&["version"]);
        assert!(version.starts_with("restic "), "{version}");
        let repository = format!("repository-{number}");
        let made = restic.recorded(&["--no-cache", "-r", &repository, "init"]);
        assert!(made.contains("created restic repository"), "{made}");
        let saved = restic.recorded(&["--no-cache", "-r", &repository, "backup", "tree"]);
        assert!(saved.contains("processed 3 files"), "{saved}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn rclone_copies_files() {
    let Some(rclone) = Program::of("rclone") else {
        return;
    };
    tree(&rclone.path("tree"));
    for number in 0..times() {
        let to = format!("copy-{number}");
        rclone.recorded(&["copy", "tree", &to]);
        let copied = std::fs::read(rclone.path(&to).join("a/b/two")).unwrap();
        assert_eq!(copied, b"second".repeat(1000));
    }
}
