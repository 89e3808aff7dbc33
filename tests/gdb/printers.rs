//! `--printers`: libstdc++'s printers, from GDB's own data directory and from nowhere else.

use crate::support::gdb::{armsnap, need_gdb, run, text};
use crate::support::record::installed;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

const SOURCE: &str = r#"
#include <map>
#include <memory>
#include <string>
#include <vector>
struct Reading { std::string name; std::vector<int> values; };
__attribute__((noinline)) void mark(const std::map<std::string, long> &ages, const Reading &reading,
                                    const std::unique_ptr<int> &owned)
{
    __asm__ volatile("" :: "r"(&ages), "r"(&reading), "r"(&owned) : "memory");
}
int main()
{
    std::map<std::string, long> ages;
    Reading reading{"volts", {}};
    auto owned = std::make_unique<int>(7);
    for (int i = 1; i < 4; i++) {
        ages["age" + std::to_string(i)] = 10 * i;
        reading.values.push_back(i);
        mark(ages, reading, owned);
    }
    reading.values.clear();
    ages.clear();
    return 3;
}
"#;

/// A recorded program; `None` without a compiler.
fn recorded(compiler: &str, options: &[&str]) -> Option<TempDir> {
    need_gdb();
    if !installed(&[compiler, "qemu-aarch64", "qemu-arm"]) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("data.cpp"), SOURCE).unwrap();
    let mut build = std::process::Command::new(compiler);
    build
        .args(["-g", "-O0", "-o", "data", "data.cpp"])
        .args(options);
    let built = build.current_dir(directory.path()).status().unwrap();
    assert!(built.success());
    let mut record = armsnap();
    record.args([
        "record",
        "--data-addresses",
        "--until",
        "mark",
        "--count",
        "3",
    ]);
    record.args(["-o", "saved", "--", "./data"]);
    let output = run(record.current_dir(directory.path()).stdin(Stdio::null()));
    assert!(output.status.success(), "{}", text(&output));
    Some(directory)
}

/// What GDB prints with the switch or without it, and with these commands.
fn shown(directory: &Path, switch: &[&str], commands: &[&str]) -> String {
    let mut gdb = armsnap();
    gdb.args(["gdb", "saved"]).args(switch);
    gdb.args(["--", "-nx", "-batch", "-iex", "set width 0"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    text(&run(gdb.current_dir(directory).stdin(Stdio::null())))
}

const LOOK: [&str; 7] = [
    "up",
    "print ages",
    "print owned",
    "info pretty-printer global libstdc",
    "break mark",
    "reverse-continue",
    "print reading",
];

/// At the end of the recording, and at a past position.
#[test]
fn containers_are_shown_by_their_elements() {
    for (compiler, options) in [
        ("aarch64-linux-gnu-g++", &[][..]),
        ("aarch64-linux-gnu-g++", &["-static"]),
        ("arm-linux-gnueabihf-g++", &[]),
    ] {
        let Some(directory) = recorded(compiler, options) else {
            return;
        };
        // The switch, and the command in a session; a second time nothing happens.
        let with = shown(directory.path(), &["--printers"], &LOOK);
        let mut later = vec!["armsnap printers", "armsnap printers"];
        later.extend(LOOK);
        let later = shown(directory.path(), &[], &later);
        for wanted in [
            r#"std::map with 3 elements = {["age1"] = 10, ["age2"] = 20, ["age3"] = 30}"#,
            r#"{name = "volts", values = std::vector of length 2, capacity 2 = {1, 2}}"#,
            "std::unique_ptr<int> = {get() = 0x",
            "libstdc++-v6",
        ] {
            assert!(with.contains(wanted), "{options:?}: {wanted}: {with}");
            assert!(later.contains(wanted), "{options:?}: {wanted}: {later}");
        }
        let without = shown(directory.path(), &[], &LOOK);
        assert!(without.contains("_M_impl"), "{without}");
        assert!(!without.contains("std::map with"), "{without}");
    }
}

/// A snapshot with what GDB, and the printers' own starter, would load for its libraries.
#[test]
fn printers_of_a_snapshot_do_not_run() {
    let Some(directory) = recorded("aarch64-linux-gnu-g++", &[]) else {
        return;
    };
    let at = |name: &str| directory.path().join(name);
    let ran = at("ran");
    let script = format!("open({:?}, 'w')\n", ran.display().to_string());
    let package = format!("{script}def register_libstdcxx_printers(of):\n    pass\n");
    let libraries = at("saved/libraries");
    let library = { fs::read_dir(&libraries).unwrap() }
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .find(|name| name.starts_with("libstdc++"))
        .unwrap();
    fs::write(libraries.join(format!("{library}-gdb.py")), &script).unwrap();
    fs::write(libraries.join("libstdc++.so.6.0.99-gdb.py"), &script).unwrap();
    fs::write(at("saved/data-gdb.py"), &script).unwrap();
    // Relative to the library, in the current directory, and beside the program.
    for place in [
        "share/gcc/python",
        ".",
        "saved",
        "saved/libraries",
        "usr/share/gcc/python",
    ] {
        for module in ["libstdcxx", "libstdcxx/v6"] {
            let folder = at(place).join(module);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("__init__.py"), &package).unwrap();
        }
    }
    let with = shown(directory.path(), &["--printers"], &LOOK);
    assert!(with.contains("std::map with 3 elements"), "{with}");
    assert!(!ran.exists(), "{with}");
}

#[test]
fn a_data_directory_without_printers_is_reported() {
    let Some(directory) = recorded("aarch64-linux-gnu-g++", &["-static"]) else {
        return;
    };
    let folder = directory.path().join("none");
    fs::create_dir_all(folder.join("auto-load")).unwrap();
    let set = format!("set data-directory {}", folder.display());
    let said = shown(directory.path(), &[], &[&set, "armsnap printers"]);
    assert!(said.contains("has no printers of libstdc++"), "{said}");
    let said = shown(directory.path(), &[], &["armsnap printers now"]);
    assert!(said.contains("takes no argument"), "{said}");
}
