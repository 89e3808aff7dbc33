//! Man pages and completions contain what the help contains.

use super::help::{commands, help};
use crate::support::gdb::{armsnap, run, text};
use crate::support::skip;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn generate(what: &str, directory: &Path) {
    let output = run(armsnap().args(["generate", what]).arg(directory));
    assert!(output.status.success(), "{}", text(&output));
}

/// The long options in a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = text.split(|c: char| !is_part(c));
    let long = words.filter(|word| word.starts_with("--") && word.len() > 3);
    long.map(|word| word.trim_end_matches('-').to_owned())
        .collect()
}

/// The words of a text, without hyphens at line ends.
fn words(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { ' ' })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the options in a help are for, up to defaults and values.
fn purposes(help: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in help.lines() {
        match line.strip_prefix("          ") {
            Some(text) if !text.starts_with(' ') => found.last_mut().unwrap().push_str(text),
            _ => found.push(String::new()),
        }
        found.last_mut().unwrap().push(' ');
    }
    let found = found
        .iter()
        .map(|text| words(text.split('[').next().unwrap_or_default()));
    found.filter(|text| text.contains(' ')).collect()
}

#[test]
fn man_pages_say_what_the_help_says() {
    let directory = tempfile::tempdir().unwrap();
    generate("man", directory.path());
    let found = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(found, commands().len() + 1);
    let pages = commands()
        .into_iter()
        .map(|command| (format!("armsnap-{command}.1"), vec![command]));
    for (page, command) in pages.chain([("armsnap.1".to_owned(), Vec::new())]) {
        let path = directory.path().join(&page);
        let mut roff = Command::new("man");
        // Without hyphenation and adjustment.
        roff.args(["-E", "UTF-8", "--nh", "--nj", "-P", "cat", "-l"])
            .arg(&path);
        roff.env("MANWIDTH", "1000").env("MAN_KEEP_FORMATTING", "");
        let output = match roff.output() {
            Ok(output) => output,
            Err(_) => return skip::missing("man (package man-db)"),
        };
        assert!(output.status.success(), "{page}: {}", text(&output));
        assert!(output.stderr.is_empty(), "{page}: {}", text(&output));
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let help = help(&arguments);
        assert_eq!(options(&shown), options(&help), "{page}");
        // What options are for.
        let shown = words(&shown);
        let purposes = purposes(&help);
        assert!(!purposes.is_empty() || page != "armsnap-decode.1", "{help}");
        for purpose in purposes {
            assert!(shown.contains(&purpose), "{page}: {purpose}\n{shown}");
        }
    }
    // Nothing is overwritten.
    let output = run(armsnap().args(["generate", "man"]).arg(directory.path()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn completions_know_every_command_and_option() {
    let directory = tempfile::tempdir().unwrap();
    generate("completions", directory.path());
    let mut known = BTreeSet::new();
    for command in commands() {
        known.extend(options(&help(&[&command])));
    }
    for (shell, file) in [
        ("bash", "armsnap.bash"),
        ("zsh", "_armsnap"),
        ("fish", "armsnap.fish"),
    ] {
        let path = directory.path().join(file);
        let script = fs::read_to_string(&path).unwrap();
        for command in commands() {
            assert!(script.contains(&command), "{file}: {command}");
        }
        for option in &known {
            let name = option.trim_start_matches('-');
            let wanted = if shell == "fish" {
                format!("-l {name}")
            } else {
                option.clone()
            };
            assert!(script.contains(&wanted), "{file}: {option}");
        }
        // The shell itself reads it, where there is one.
        match Command::new(shell).arg("-n").arg(&path).output() {
            Ok(output) => assert!(output.status.success(), "{file}: {}", text(&output)),
            Err(_) => skip::unavailable(shell),
        }
    }
    // Bash completes by it.
    let script = format!(
        "source {}; COMP_WORDS=(armsnap dec); COMP_CWORD=1; _armsnap armsnap dec armsnap; \
         echo ${{COMPREPLY[@]}}; COMP_WORDS=(armsnap decode --lev); COMP_CWORD=2; \
         _armsnap armsnap --lev decode; echo ${{COMPREPLY[@]}}",
        directory.path().join("armsnap.bash").display()
    );
    let output = Command::new("bash").arg("-c").arg(script).output().unwrap();
    assert_eq!(text(&output), "decode\n--level\n");
}
