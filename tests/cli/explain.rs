//! `armsnap explain`: what a message means, by its text, some of its words, or its name.

use crate::support::gdb::{armsnap, run, text};
use std::process::Output;

fn explain(arguments: &[&str]) -> Output {
    run(armsnap().arg("explain").args(arguments))
}

/// The names of the explanations for a text, best first.
fn names(arguments: &[&str]) -> Vec<String> {
    let output = explain(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = found.as_array().unwrap().iter();
    found
        .map(|explanation| explanation["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_a_user_saw_is_found() {
    for (said, name) in [
        (
            "execution continued at 0xffff0000, where no code is known",
            "no-code",
        ),
        ("armsnap: warning: Tracing was OFF", "tracing-off"),
        (
            "cpu_1.ini:39: error (required): PC: expected a number, found \"0xZZ\" [section 3.2.2]",
            "register-syntax",
        ),
        (
            "cpu_1.ini:218: error (required): [dump_data] file \"dta.bin\": no such file [section 3.2.3]",
            "file-not-opened",
        ),
        // On two lines of a terminal.
        ("older than the\n    searched history", "why-ends"),
        (
            "--until nowhere: expected an address, or a function or FILE:LINE of the program a.elf",
            "until-unknown",
        ),
        (
            "warning: --register FOO: is no register that --mtb needs: POSITION, MASTER, BASE",
            "mtb-registers",
        ),
        (
            "buffer ETB_0: trace IDs of no source are left out: 0x10",
            "trace-id-without-source",
        ),
        // What GDB prints.
        ("$1 = <unavailable>", "unavailable"),
    ] {
        assert_eq!(names(&[said])[0], name, "{said}");
    }
    // Without quotes.
    assert_eq!(
        names(&["the", "trace", "is", "damaged"])[0],
        "trace-damaged"
    );
    let reached = [
        "--from", "main:", "not", "reached,", "so", "nothing", "was", "traced;", "it",
    ];
    assert_eq!(names(&reached)[0], "from-not-reached");
}

#[test]
fn several_messages_in_a_text_are_all_explained() {
    let both = "tracing was off\n0x40: trace was lost in an overflow";
    let mut found = names(&[both]);
    found.sort();
    assert_eq!(found, ["trace-lost", "tracing-off"]);
}

#[test]
fn words_and_names_find_messages() {
    assert_eq!(names(&["psp-inferred"]), ["psp-inferred"]);
    let found = names(&["overflow"]);
    assert!(found.contains(&"trace-lost".to_owned()), "{found:?}");
    let found = names(&["CODE", "known"]);
    assert!(found.len() > 1 && found.len() <= 4, "{found:?}");
    assert!(found.contains(&"no-code".to_owned()), "{found:?}");
}

#[test]
fn explanations_are_text_for_a_terminal() {
    let output = explain(&["no-kernel"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("no-kernel\n\n    no kernel: "), "{said}");
    assert!(said.contains("docs/linux.md"), "{said}");
    let prose = said.lines().filter(|line| !line.starts_with(' '));
    for line in prose {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn all_messages_are_listed_with_their_names() {
    let listed = explain(&[]);
    assert!(listed.status.success());
    assert_eq!(listed.stdout, explain(&["--list"]).stdout);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.lines().count() > 700);
    assert!(listed.contains("\ntracing-off: tracing was off\n"));
    assert_eq!(explain(&["--list", "overflow"]).status.code(), Some(2));
}

#[test]
fn unknown_texts_get_the_nearest_messages() {
    let output = explain(&["trecing wes of\x1b[31m\u{202e}"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("\n  tracing-off: tracing was off\n"),
        "{said}"
    );
    assert!(!said.contains(['\x1b', '\u{202e}']), "{said:?}");
    let long = "no such words ".repeat(800);
    assert_eq!(explain(&[&long]).status.code(), Some(1));
}

#[cfg(unix)]
#[test]
fn texts_that_are_not_unicode_are_searched() {
    use std::os::unix::ffi::OsStrExt;
    let said = std::ffi::OsStr::from_bytes(b"\xff.ini: tracing was off");
    let output = run(armsnap().arg("explain").arg(said));
    assert!(
        text(&output).starts_with("tracing-off\n"),
        "{}",
        text(&output)
    );
}

#[test]
fn options_come_before_the_message() {
    for option in ["--json", "--list", "--help"] {
        let output = explain(&["trace", "damaged", option]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        let wanted = format!("{option} after the message: options come before it");
        assert!(text(&output).contains(&wanted), "{}", text(&output));
    }
}

#[test]
fn long_texts_are_searched_fast() {
    let unknown = "zq ".repeat(40_000);
    let output = explain(&[&unknown]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
