//! The Debian package: contents, installation, removal; the bill of materials.

use super::help::commands;
use crate::support::gdb::{armsnap, need_gdb, run, run_within, testdata, text};
use crate::support::skip;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(here) = waiting.pop() {
        for entry in fs::read_dir(here).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_debian_package_works_where_it_is_installed_and_leaves_nothing() {
    if !has("dpkg-deb") {
        return skip::unavailable("dpkg-deb");
    }
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let (out, root) = (directory.path().join("out"), directory.path().join("root"));
    let mut package = Command::new(format!("{TOP}/scripts/package"));
    package
        .arg("--binary")
        .arg(armsnap().get_program())
        .arg("--out")
        .arg(&out);
    package.arg("--fast").env("SOURCE_DATE_EPOCH", "1700000000");
    let made = run_within(&mut package, Duration::from_secs(300));
    assert!(made.status.success(), "{}", text(&made));
    let version = env!("CARGO_PKG_VERSION");
    let deb = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let deb = deb
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .unwrap();
    assert!(
        deb.to_string_lossy()
            .contains(&format!("armsnap_{version}_")),
        "{deb:?}"
    );

    // Installed in a directory, with dpkg's own database there.
    for part in ["var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "").unwrap();
    }
    let dpkg = |words: &[&str], deb: Option<&Path>| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display()));
        command.args([
            "--force-depends",
            "--force-not-root",
            "--force-script-chrootless",
        ]);
        command.arg(format!("--log={}", directory.path().join("log").display()));
        let done = run_within(command.args(words).args(deb), Duration::from_secs(120));
        assert!(done.status.success(), "{words:?}: {}", text(&done));
    };
    dpkg(&["--install"], Some(&deb));
    let share = root.join("usr/share");
    let installed = files(&root.join("usr"));
    let pages = installed
        .iter()
        .filter(|path| path.starts_with(share.join("man/man1")));
    assert_eq!(pages.count(), commands().len() + 1);
    for file in [
        "bash-completion/completions/armsnap",
        "zsh/vendor-completions/_armsnap",
        "fish/vendor_completions.d/armsnap.fish",
        "doc/armsnap/changelog.gz",
    ] {
        assert!(share.join(file).is_file(), "{file}");
    }
    let copyright = fs::read_to_string(share.join("doc/armsnap/copyright")).unwrap();
    for part in [
        "Permission is hereby granted",
        "Apache License",
        "gimli 0.",
        "capstone-sys",
    ] {
        assert!(copyright.contains(part), "{part}");
    }

    // The program and its commands, outside of the checkout.
    let program = root.join("usr/bin/armsnap");
    let mut gdb = Command::new(&program);
    gdb.current_dir("/").arg("gdb").arg(testdata("demo"));
    let shown = text(&run(gdb.args([
        "--",
        "-nx",
        "-batch",
        "-ex",
        "armsnap where",
    ])));
    assert!(shown.contains("cpu_0 at 0+99"), "{shown}");
    let mut gdb = Command::new("gdb-multiarch");
    let script = format!("source {}", share.join("armsnap/armsnap.py").display());
    gdb.current_dir("/")
        .args(["-nx", "-batch", "-ex", &script, "-ex", "help armsnap"]);
    let shown = text(&run(&mut gdb));
    assert!(
        shown.contains("armsnap goto -- Go to a position"),
        "{shown}"
    );

    dpkg(&["--remove", "armsnap"], None);
    dpkg(&["--purge", "armsnap"], None);
    let left = if root.join("usr").is_dir() {
        files(&root.join("usr"))
    } else {
        Vec::new()
    };
    assert!(left.is_empty(), "{left:?}");

    // The bill of materials names the crates of Cargo.lock, with their checksums.
    let bill = fs::read(out.join("armsnap.cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let lock = fs::read_to_string(format!("{TOP}/Cargo.lock")).unwrap();
    let components = bill["components"].as_array().unwrap();
    let names: Vec<&str> = components
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    for name in ["clap", "gimli", "capstone", "gdbstub", "serde_json"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    // Only for tests.
    assert!(!names.contains(&"proptest"), "{names:?}");
    // Crates of the workspace come from no registry.
    let own = |name: &str| name.starts_with("armsnap-");
    for component in components
        .iter()
        .filter(|c| !own(c["name"].as_str().unwrap()))
    {
        let digest = component["hashes"][0]["content"].as_str().unwrap();
        assert!(lock.contains(digest), "{component}");
    }
}
