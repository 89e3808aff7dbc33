//! Small programs for the emulator, and its log of their execution.

#![allow(dead_code)] // Each test uses a part of it.

use armsnap::encode::CodeAddress;
use armsnap::quantity::{Address, Isa};
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A program for a Linux of another architecture.
pub struct Guest {
    /// Its path.
    pub program: PathBuf,
    /// `aarch64` or `arm`.
    pub architecture: &'static str,
    /// The temporary directory of the files.
    pub directory: TempDir,
}

impl Guest {
    /// The emulator for it.
    pub fn emulator(&self) -> String {
        format!("qemu-{}", self.architecture)
    }

    /// The value of a symbol.
    pub fn symbol(&self, name: &str) -> u64 {
        let bytes = std::fs::read(&self.program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let mut symbols = file.symbols();
        symbols
            .find(|symbol| symbol.name() == Ok(name))
            .unwrap_or_else(|| panic!("no symbol {name}"))
            .address()
    }
}

/// The compiler for an architecture.
pub fn compiler(architecture: &str) -> &'static str {
    match architecture {
        "aarch64" => "aarch64-linux-gnu-gcc",
        _ => "arm-linux-gnueabihf-gcc",
    }
}

/// Whether programs can be started.
pub fn installed(programs: &[&str]) -> bool {
    programs.iter().all(|program| {
        let run = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if run.is_err() {
            crate::support::skip::missing(&format!("{program} is not installed"));
        }
        run.is_ok()
    })
}

/// Builds a program from assembly without libraries. `None` if the tools are not installed.
pub fn assemble(architecture: &'static str, text: &str) -> Option<Guest> {
    build(architecture, "program.s", text, &["-nostdlib", "-static"])
}

/// Builds a program from one file.
pub fn build(
    architecture: &'static str,
    file: &str,
    text: &str,
    options: &[&str],
) -> Option<Guest> {
    let compiler = compiler(architecture);
    if !installed(&[compiler, &format!("qemu-{architecture}")]) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join(file);
    let program = directory.path().join("program");
    std::fs::write(&source, text).unwrap();
    let built = Command::new(compiler)
        .args(["-g", "-o"])
        .arg(&program)
        .arg(&source)
        .args(options)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    Some(Guest {
        program,
        architecture,
        directory,
    })
}

/// The addresses of all instructions that a program with one thread executes, from the emulator's
/// log.
pub fn logged(guest: &Guest) -> Vec<u64> {
    let log = guest.directory.path().join("exec.log");
    let run = Command::new(guest.emulator())
        .args(["-singlestep", "-d", "nochain,exec", "-D"])
        .arg(&log)
        .arg(&guest.program)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(log.is_file(), "{run:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    let mut places: Vec<u64> = Vec::new();
    for line in text.lines() {
        // Trace 0: 0x7f… [flags/address/flags/flags] symbol
        if let Some(rest) = line.strip_prefix("Trace ") {
            let inside = rest.split('[').nth(1).unwrap();
            let address = inside.split('/').nth(1).unwrap();
            places.push(u64::from_str_radix(address, 16).unwrap());
        } else if line.starts_with("Stopped execution") {
            places.pop();
        }
    }
    places
}

/// Starts the program in the emulator with these options, and passes `look` the
/// socket of its GDB server.
pub fn live<T>(
    guest: &Guest,
    options: &[&str],
    arguments: &[&str],
    look: impl FnOnce(&Path) -> T,
) -> T {
    let socket = guest.directory.path().join("live");
    let mut emulator = Command::new(guest.emulator())
        .args(options)
        .arg("-g")
        .args([&socket, &guest.program])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3000 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = look(&socket);
    let _ = emulator.kill();
    emulator.wait().unwrap();
    // The next one cannot listen on it.
    let _ = std::fs::remove_file(&socket);
    seen
}

/// Runs `armsnap record` with a program; the snapshot is the directory `name` beside it.
pub fn record(guest: &Guest, name: &str, options: &[&str], arguments: &[&str]) -> Output {
    Command::new(crate::support::armsnap())
        .args(["record", "--exit-zero", "-o"])
        .arg(guest.directory.path().join(name))
        .args(options)
        .arg("--")
        .arg(&guest.program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Removes from a recording what its replay needs, so that past values are found from the end only.
pub fn forget_start(snapshot: &Path) {
    let list = snapshot.join("snapshot.ini");
    let text = std::fs::read_to_string(&list).unwrap();
    let section = "[replay]\n";
    let start = text.find(section).expect("the recording has no replay");
    let rest = &text[start + section.len()..];
    let end = rest.find("\n[").map_or("", |end| &rest[end + 1..]);
    std::fs::write(&list, text[..start].to_owned() + end).unwrap();
    std::fs::remove_file(snapshot.join("replay.bin")).unwrap();
}

/// All instructions of a witness, by core.
pub fn places(witness: &Path) -> BTreeMap<u32, Vec<CodeAddress>> {
    let file = BufReader::new(File::open(witness).unwrap());
    let reader = armsnap::record::witness::Reader::new(file).unwrap();
    reader.places(100_000_000).unwrap()
}

/// The instructions that the trace of a snapshot decodes to, by source.
pub fn decoded(snapshot: &Path) -> BTreeMap<String, Vec<CodeAddress>> {
    let run = Command::new(crate::support::armsnap())
        .args(["decode", "--level", "instructions", "--format", "jsonl"])
        .arg(snapshot)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let mut sources: BTreeMap<String, Vec<CodeAddress>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&run.stdout).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let source = line["source"].as_str().unwrap().to_owned();
        let places = sources.entry(source).or_default();
        match line["kind"].as_str().unwrap() {
            "instruction" => {}
            "memory_missing" | "bad_packet" => panic!("{line}"),
            _ => continue,
        }
        let address = line["address"].as_str().unwrap().trim_start_matches("0x");
        places.push(CodeAddress {
            address: Address(u64::from_str_radix(address, 16).unwrap()),
            isa: match line["isa"].as_str().unwrap() {
                "A64" => Isa::A64,
                "A32" => Isa::A32,
                "T32" => Isa::T32,
                other => panic!("{other}"),
            },
        });
    }
    sources
}
