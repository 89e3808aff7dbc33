//! What is made from private files is private.
#![cfg(unix)]

use crate::support::gdb::{armsnap, run, testdata, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// The modes of all files and directories below one, for others than the owner.
fn shown(path: &Path) -> Vec<String> {
    let own = (mode(path) & 0o077 != 0).then(|| path.display().to_string());
    let mut found: Vec<String> = own.into_iter().collect();
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        // What is in a private directory cannot be reached; its files have their own mode.
        let below = entries.map(|entry| entry.unwrap().path());
        found.extend(
            below
                .filter(|path| path.is_file())
                .flat_map(|path| shown(&path)),
        );
    }
    found
}

#[test]
fn what_is_made_of_private_files_is_private() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let core = at("program.core");
    fs::copy(testdata("linux-core/program.core"), &core).unwrap();
    let snapshot = at("private");
    fs::create_dir(&snapshot).unwrap();
    for entry in fs::read_dir(testdata("recorded/etmv4")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let to = snapshot.join(path.file_name().unwrap());
            fs::copy(&path, &to).unwrap();
            fs::set_permissions(&to, PermissionsExt::from_mode(0o600)).unwrap();
        }
    }
    let [core, snapshot, out] =
        [&core, &snapshot, &at("out")].map(|path| path.to_str().unwrap().to_owned());
    for (private, is_private) in [(0o644, false), (0o600, true), (0o400, true)] {
        fs::set_permissions(&core, PermissionsExt::from_mode(private)).unwrap();
        let done = run(armsnap().args(["import", &core, &out]));
        assert!(done.status.success(), "{}", text(&done));
        assert_eq!(shown(Path::new(&out)).is_empty(), is_private, "{private:o}");
        fs::remove_dir_all(&out).unwrap();
    }
    let mut commands = vec![
        vec!["decode", &snapshot, "-o", &out],
        vec!["export", &snapshot, "--as", "folded", "-o", &out],
        vec!["export", &snapshot, "--as", "ctf", "-o", &out],
        vec!["convert", &snapshot, &out, "--core", "Cortex-A57_0"],
        vec!["report", &snapshot, "--html", &out],
    ];
    if cfg!(feature = "parquet") {
        commands.push(vec!["export", &snapshot, "--as", "parquet", "-o", &out]);
    }
    for command in commands {
        let done = run(armsnap().args(&command));
        assert!(done.status.success(), "{command:?}: {}", text(&done));
        assert_eq!(shown(Path::new(&out)), [""; 0], "{command:?}");
        match Path::new(&out).is_dir() {
            true => fs::remove_dir_all(&out).unwrap(),
            false => fs::remove_file(&out).unwrap(),
        }
    }
}
