//! Listings on a terminal: colours, and a pager as git has. `script` provides the terminal.

use crate::support::gdb::{armsnap, run, testdata, text};
use std::process::Command;

/// What a shell command prints on a terminal of its own.
fn on_a_terminal(line: &str, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new("script");
    command.args(["-qec", line, "/dev/null"]);
    let program = armsnap();
    command
        .env("ARMSNAP", program.get_program())
        .env("TERM", "xterm");
    command.env_remove("NO_COLOR").env_remove("PAGER");
    command.envs(environment.iter().copied());
    command.current_dir(testdata(""));
    text(&run(&mut command)).replace('\r', "")
}

const RED: &str = "\x1b[1;31m";

#[test]
fn listings_are_coloured_on_terminals_only() {
    let decode = "\"$ARMSNAP\" decode recorded/etmv4 --no-pager";
    let colored = on_a_terminal(decode, &[]);
    assert!(colored.contains(&format!("{RED}no_sync")), "{colored}");
    for (line, environment) in [
        (decode.to_owned(), &[("NO_COLOR", "1")][..]),
        (decode.to_owned(), &[("TERM", "dumb")]),
        (format!("{decode} --color never"), &[]),
        (format!("{decode} --format jsonl"), &[]),
        (format!("{decode} | cat"), &[]),
    ] {
        let plain = on_a_terminal(&line, environment);
        assert!(!plain.contains('\x1b'), "{line}: {plain}");
        assert!(plain.contains("no_sync"), "{line}: {plain}");
    }
    let always = on_a_terminal(
        &format!("{decode} --color always | cat"),
        &[("NO_COLOR", "1")],
    );
    assert!(always.contains(&format!("{RED}no_sync")), "{always}");

    // Without the colours, the text is the same.
    let plain = run(armsnap().arg("decode").arg(testdata("recorded/etmv4")));
    let mut command = armsnap();
    command.arg("decode").arg(testdata("recorded/etmv4"));
    let colored = run(command.args(["--color", "always"])).stdout;
    let mut colored = String::from_utf8(colored).unwrap();
    for code in ["\x1b[2m", "\x1b[33m", "\x1b[36m", RED, "\x1b[0m"] {
        assert!(colored.contains(code), "{code:?}");
        colored = colored.replace(code, "");
    }
    assert_eq!(colored.as_bytes(), plain.stdout);
}

#[test]
fn findings_are_coloured() {
    let directory = tempfile::tempdir().unwrap();
    let ini = directory.path().join("snapshot.ini");
    std::fs::write(
        &ini,
        "[snapshot]\nversion=1.0\n[device_list]\nd=a: error (.ini\n",
    )
    .unwrap();
    let line = format!("\"$ARMSNAP\" check {} --no-pager; echo $?", ini.display());
    let colored = on_a_terminal(&line, &[]);
    assert!(colored.contains("\x1b[1msnapshot.ini:"), "{colored}");
    assert!(
        colored.contains(&format!(": {RED}error\x1b[0m (")),
        "{colored}"
    );
    assert!(colored.ends_with("1\n"), "{colored}");
}

#[test]
fn listings_go_through_the_pager() {
    let mark = &[("PAGER", "sed 's/^/paged: /'")][..];
    for (command, paged) in [
        (
            "decode recorded/ptm --level packets --color never",
            "paged:         0  10  async",
        ),
        ("check demo --json", "paged: []"),
        ("info mps2-m4", "paged: Snapshot, version 1.0"),
    ] {
        let shown = on_a_terminal(&format!("\"$ARMSNAP\" {command}"), mark);
        assert!(shown.starts_with("paged: "), "{command}: {shown}");
        assert!(shown.contains(paged), "{command}: {shown}");
        // Notes, which go to standard error, too.
        assert!(
            shown.lines().all(|line| line.starts_with("paged: ")),
            "{command}: {shown}"
        );
        for line in [
            format!("\"$ARMSNAP\" {command} --no-pager"),
            format!("\"$ARMSNAP\" {command} | cat"),
            format!("ARMSNAP_PAGER= \"$ARMSNAP\" {command}"),
            format!("PAGER=cat \"$ARMSNAP\" {command}"),
        ] {
            let shown = on_a_terminal(&line, mark);
            assert!(
                !shown.contains("paged: ") && !shown.is_empty(),
                "{line}: {shown}"
            );
        }
    }
    // Errors after the listing are shown, and the exit status is the command's.
    let shown = on_a_terminal("\"$ARMSNAP\" decode nowhere; echo $?", mark);
    assert!(
        shown.contains("nowhere") && shown.ends_with("1\n"),
        "{shown}"
    );
    // A pager that leaves early.
    let head = &[("PAGER", "head -n 1")][..];
    let line = "\"$ARMSNAP\" decode recorded/etmv4 --level instructions; echo $?";
    let shown = on_a_terminal(line, head);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.ends_with("\n0\n"), "{shown}");
    // A pager that reads nothing: what it did not take does not reach the terminal afterwards.
    let none = &[("PAGER", "exec 0</dev/null; sleep 1")][..];
    let shown = on_a_terminal("\"$ARMSNAP\" info mps2-m4; echo $?", none);
    assert_eq!(shown, "0\n");
    let shown = on_a_terminal(line, none);
    assert_eq!(shown, "0\n");
}
