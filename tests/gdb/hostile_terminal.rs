//! Names and texts of a snapshot that control terminals: no command prints them
//! unescaped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::gdb::{Server, armsnap, attach, run, session, testdata, text};
use armsnap::text::is_plain;

/// A window title, DEL, a C1 control, reversed text, and an invisible character.
const HOSTILE: &str = "\x1b]0;t\x07\u{7f}\u{9b}2J\u{202e}\u{2066}\u{200b}";

/// A recording with such texts in all its files.
fn snapshot() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("s");
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(testdata("recorded/etmv4")).unwrap() {
        let entry = entry.unwrap();
        let path = to.join(entry.file_name());
        fs::copy(entry.path(), &path).unwrap();
        if path.extension().is_some_and(|extension| extension == "ini") {
            let mut ini = fs::read_to_string(&path).unwrap();
            for name in ["Cortex-A57_0", "ETMV4_0", "ETB_0", "by armsnap", "cluster0"] {
                ini = ini.replace(name, &format!("{name}{HOSTILE}"));
            }
            if path.ends_with("cpu_0.ini") {
                let more = format!(
                    "EVIL{HOSTILE}(size:64)=1\nBAD{HOSTILE}=x{HOSTILE}\n\n[dump_{HOSTILE}]\n\
                     file=no{HOSTILE}.bin\naddress=0x100\nlength=x{HOSTILE}\n[odd{HOSTILE}]\nx=1\n"
                );
                ini = ini.replace("[regs]\n", "[regs]\nX{HOSTILE}\n");
                let (head, rest) = ini.split_once("\n\n[dump").unwrap();
                ini = format!("{head}\n{more}\n[dump{rest}");
            }
            fs::write(&path, ini).unwrap();
        }
    }
    let status = Command::new("aarch64-linux-gnu-objcopy")
        .args(["--redefine-sym", &format!("main=main{HOSTILE}\n")])
        .args(["--redefine-sym", &format!("work=work{HOSTILE}\n")])
        .arg(to.join("program.elf"))
        .status();
    assert!(
        status
            .expect("install binutils-aarch64-linux-gnu")
            .success()
    );
    // Not used as the program: GDB would print its name.
    fs::copy(to.join("program.elf"), to.join(format!("a{HOSTILE}"))).unwrap();
    (directory, to)
}

fn is_harmless(what: &str, output: &Output) -> String {
    let shown = text(output);
    let odd: String = shown
        .chars()
        .filter(|c| !is_plain(*c) && *c != '\n')
        .collect();
    assert!(odd.is_empty(), "{what}: {odd:?}: {shown:?}");
    shown
}

fn command(words: &[&str], snapshot: &Path) -> Output {
    let mut command = armsnap();
    command.arg(words[0]).arg(snapshot).args(&words[1..]);
    run(&mut command)
}

#[test]
fn reports_escape_controls() {
    let (_directory, snapshot) = snapshot();
    for words in [
        &["info"][..],
        &["info", "--json"],
        &["check"],
        &["check", "--json"],
    ] {
        let shown = is_harmless(&words.join(" "), &command(words, &snapshot));
        assert!(shown.contains("202e"), "{words:?}: {shown}");
        if words.len() > 1 {
            let output = command(words, &snapshot);
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(json.to_string().contains('\u{202e}'), "{json}");
        }
    }
}

#[test]
fn listings_escape_controls() {
    let (_directory, snapshot) = snapshot();
    for level in ["packets", "elements", "branches", "instructions"] {
        for format in ["text", "jsonl"] {
            let words = ["decode", "--level", level, "--format", format];
            let shown = is_harmless(&words.join(" "), &command(&words, &snapshot));
            assert!(shown.contains("202e"), "{words:?}: {shown}");
        }
    }
}

#[test]
fn conversions_escape_controls() {
    let (directory, snapshot) = snapshot();
    let at = |name: &str| directory.path().join(name);
    let file = at("out.tf");
    let output = run(armsnap()
        .arg("convert")
        .arg(&snapshot)
        .arg(&file)
        .arg("--force"));
    let shown = is_harmless("convert", &output);
    assert!(output.status.success(), "{shown}");
    let files = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
    assert!(!files.is_empty());
    for file in files {
        let output = run(armsnap()
            .arg("convert")
            .arg(&file)
            .arg(at("back"))
            .arg("--force"));
        is_harmless("convert back", &output);
        let shown = session(&file, &[], &["tstatus", "info tvariables", "monitor info"]);
        assert!(
            !shown.contains(['\x1b', '\x7f', '\u{9b}', '\u{202e}', '\u{200b}']),
            "{shown:?}"
        );
    }
    // The name of a missing item is printed.
    for words in ["info", "serve", "decode", "gdb", "record"] {
        let output = command(&[words], &at(&format!("no{HOSTILE}")));
        let shown = is_harmless(words, &output);
        assert!(shown.contains("202e"), "{words}: {shown}");
    }
}

#[test]
fn sessions_escape_controls() {
    let (_directory, snapshot) = snapshot();
    let server = Server::start(&snapshot, &[], 1);
    let lines = server.lines.join("\n");
    assert!(lines.chars().all(|c| is_plain(c) || c == '\n'), "{lines:?}");
    assert!(lines.contains("202e"), "{lines}");
    let commands = [
        "monitor info",
        "monitor registers EVIL",
        "monitor where",
        "monitor history",
        "monitor calls",
        "monitor exceptions",
        "monitor trace",
        "monitor space",
        "monitor goto begin",
        "monitor nothing \x1b[2J\u{202e}",
        "info threads",
        "info registers system",
        "tstatus",
    ];
    for shown in [
        attach(&server.addresses[0], &commands),
        session(
            &snapshot,
            &[],
            &["armsnap info", "armsnap where", "armsnap history"],
        ),
    ] {
        // GDB prints function names of the program itself.
        let ours = shown
            .lines()
            .filter(|line| !line.contains("in ?? ()") && !line.contains(" in "));
        for line in ours {
            assert!(
                !line.contains(['\x1b', '\x7f', '\u{9b}', '\u{202e}', '\u{200b}']),
                "{line:?}"
            );
        }
        assert!(shown.contains("202e"), "{shown}");
    }
}
