//! The help of every command fits a terminal of 80 columns, and has examples that the program takes.

use crate::support::gdb::{armsnap, run};
use std::process::Stdio;

/// The help of the program, or of a subcommand.
pub fn help(arguments: &[&str]) -> String {
    let output = run(armsnap().args(arguments).arg("--help"));
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The subcommands that the help lists.
pub fn commands() -> Vec<String> {
    let main = help(&[]);
    let commands = main.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<String> = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .map(str::to_owned)
        .collect();
    assert!(commands.len() >= 12, "{commands:?}");
    commands
}

/// The commands below `Examples:`, without the remarks after them.
fn examples(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.map(|line| line.strip_prefix("  ").unwrap_or_default());
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| line.split("  ").next().unwrap_or_default())
        .collect()
}

#[test]
fn help_fits_80_columns() {
    let texts = commands()
        .iter()
        .map(|command| help(&[command]))
        .collect::<Vec<_>>();
    for text in texts.iter().chain([&help(&[])]) {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
}

#[test]
fn every_command_has_examples_that_it_takes() {
    let nowhere = tempfile::tempdir().unwrap();
    for command in commands() {
        let text = help(&[&command]);
        let found = examples(&text);
        assert!(
            !found.is_empty(),
            "armsnap {command} --help has no examples"
        );
        for example in found {
            let words: Vec<&str> = example.split_whitespace().collect();
            assert_eq!(words[..2], ["armsnap", &command], "{example}");
            // Without its inputs it fails, but not because of its arguments.
            let mut run_here = armsnap();
            run_here.current_dir(nowhere.path()).stdin(Stdio::null());
            let words = words[1..].iter().take_while(|word| **word != ">");
            let output = run(run_here.args(words).env("PATH", nowhere.path()));
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!told.contains("Usage:"), "{example}: {told}");
        }
    }
}
