//! The saved systems in `testdata/` in GDB: cores, registers, back traces, arguments and
//! local variables are the same as on the live machine (`testdata/*/expected`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands whose output is in `expected/DEVICE/NAME.txt`.
const COMMANDS: [(&str, &str); 4] = [
    ("bt", "bt"),
    ("bt-full", "bt -full"),
    ("args", "info args"),
    ("locals", "info locals"),
];

/// A core in `expected/threads.txt`.
struct Core {
    thread: String,
    device: String,
    function: String,
}

fn system(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn cores(directory: &Path) -> Vec<Core> {
    let cores: Vec<Core> = read(directory.join("expected/threads.txt"))
        .lines()
        .map(|line| {
            let mut words = line.split(' ').map(String::from);
            let mut word = || words.next().expect("number, device, function");
            Core {
                thread: word(),
                device: word(),
                function: word(),
            }
        })
        .collect();
    assert!(!cores.is_empty());
    cores
}

/// Runs `armsnap gdb` with some commands; returns the output of each.
fn session(directory: &Path, commands: &[(String, String)]) -> BTreeMap<String, String> {
    let mut gdb = Command::new(crate::support::armsnap());
    gdb.arg("gdb").arg(directory).args(["--", "-batch", "-nx"]);
    gdb.args(["-ex", "set width 0", "-ex", "set confirm off"]);
    for (name, command) in commands {
        gdb.args(["-ex", &format!("echo \\n@@ {name}\\n"), "-ex", command]);
    }
    gdb.args(["-ex", "echo \\n@@ end\\n"]);
    let output = gdb.stdin(Stdio::null()).output().expect("armsnap runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    let mut printed = BTreeMap::new();
    for section in text.split("\n@@ ").skip(1) {
        let (name, body) = section.split_once('\n').expect("a name line");
        printed.insert(name.to_string(), body.to_string());
    }
    for (name, _) in commands {
        assert!(
            printed.contains_key(name),
            "no output of {name}:\n{text}\n{errors}"
        );
    }
    printed
}

/// The GDB command that shows a register's bits, and the text before them in its output.
fn register_command(name: &str) -> (String, &'static str) {
    let number = name.get(1..).is_some_and(|n| n.parse::<u32>().is_ok());
    match name.chars().next() {
        Some('v') if number => (format!("print/x $q{}.u", &name[1..]), "= "),
        Some('d') if number => (format!("info registers {name}"), "(raw "),
        _ => (format!("print/x ${name}"), "= "),
    }
}

fn parse_hex(text: &str) -> u128 {
    let digits = text
        .trim()
        .strip_prefix("0x")
        .unwrap_or_else(|| panic!("no number: {text:?}"));
    let end = digits
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(digits.len());
    u128::from_str_radix(&digits[..end], 16).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// `like`: the system with the expected output.
fn same_as_live(name: &str, like: &str) {
    let directory = system(name);
    let mut commands = vec![("threads".to_string(), "info threads".to_string())];
    let like = system(like);
    let cores = cores(&like);
    for core in &cores {
        for (file, command) in COMMANDS {
            let key = format!("{}/{file}", core.device);
            commands.push((key, format!("thread apply {} -q {command}", core.thread)));
        }
    }
    let printed = session(&directory, &commands);

    let threads: Vec<&str> = printed["threads"]
        .lines()
        .filter(|line| line.contains("Thread"))
        .collect();
    assert_eq!(threads.len(), cores.len(), "{}", printed["threads"]);
    for (core, line) in cores.iter().zip(threads) {
        let line = line.trim_start_matches(['*', ' ']);
        assert!(line.starts_with(&format!("{} ", core.thread)), "{line}");
        assert!(line.contains(&core.device), "{line}");
        assert!(line.contains(&format!("{} (", core.function)), "{line}");
        for (file, command) in COMMANDS {
            let expected = read(like.join(format!("expected/{}/{file}.txt", core.device)));
            let shown = &printed[&format!("{}/{file}", core.device)];
            assert_eq!(shown.trim(), expected.trim(), "{}: {command}", core.device);
        }
    }
}

fn same_registers_as_live(name: &str) {
    let directory = system(name);
    for core in cores(&directory) {
        let expected = read(directory.join(format!("expected/{}/registers.txt", core.device)));
        let registers: Vec<(&str, u128)> = expected
            .lines()
            .map(|line| line.split_once(' ').expect("name and value"))
            .map(|(register, value)| (register, parse_hex(value)))
            .collect();
        let mut commands = vec![("-".to_string(), format!("thread {}", core.thread))];
        commands.extend(
            registers
                .iter()
                .map(|(register, _)| (register.to_string(), register_command(register).0)),
        );
        let printed = session(&directory, &commands);
        for (register, value) in registers {
            let text = &printed[register];
            let before = register_command(register).1;
            let (_, bits) = text
                .split_once(before)
                .unwrap_or_else(|| panic!("{}: {register}: {text:?}", core.device));
            assert_eq!(parse_hex(bits), value, "{}: {register}", core.device);
        }
    }
}

#[test]
fn two_cortex_a57_show_the_back_traces_of_the_live_machine() {
    same_as_live("virt-a57", "virt-a57");
}

#[test]
fn two_cortex_a57_show_the_registers_of_the_live_machine() {
    same_registers_as_live("virt-a57");
}

#[test]
fn a_cortex_m4_shows_the_back_trace_through_its_exception() {
    same_as_live("mps2-m4", "mps2-m4");
}

#[test]
fn recorded_systems_show_the_back_traces_of_the_live_machines() {
    same_as_live("recorded/etmv4", "virt-a57");
    same_as_live("recorded/etmv3", "mps2-m4");
}

#[test]
fn a_cortex_m4_shows_the_registers_of_the_live_machine() {
    same_registers_as_live("mps2-m4");
}
