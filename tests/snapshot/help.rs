//! The help of every command fits a terminal of 80 columns.

use std::process::Command;

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_armsnap"))
        .args(arguments)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_fits_80_columns() {
    let main = help(&[]);
    let commands = main.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.len() >= 8, "{commands:?}");
    let texts = commands.iter().map(|command| help(&[command]));
    for text in texts.chain([main.clone()]) {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
}
