//! `armsnap explain`: what a message means, and what to do.

mod pages;
mod search;

use super::listing::Lines;
use super::{Failure, OutputArguments};
use clap::Args;
use pages::Explanation;
use search::Found;
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

/// The width of explanations, in characters.
const WIDTH: usize = 80;

/// The arguments of `explain`.
#[derive(Args)]
pub struct Arguments {
    /// A message as it was printed, some of its words, or its name. Options come before it
    #[arg(allow_hyphen_values = true)]
    text: Vec<OsString>,
    /// List all messages with their names, as without TEXT
    #[arg(long, conflicts_with = "text")]
    list: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options that are probably not meant as words of a message.
const OPTIONS: [&str; 5] = ["--help", "--json", "--list", "--color", "--no-pager"];

/// Prints the explanations of the messages that a text is or contains, or lists all messages. Fails
/// with the most similar messages if the text contains none.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let after = arguments.text.iter().skip(1);
    if let Some(option) = OPTIONS
        .iter()
        .find(|option| after.clone().any(|word| word == **option))
    {
        return Err(Failure::Usage(format!(
            "{option} after the message: options come before it"
        )));
    }
    let all = pages::explanations();
    let words = arguments.text.iter().map(|word| word.to_string_lossy());
    let text = words.collect::<Vec<_>>().join(" ");
    if arguments.list || text.trim().is_empty() {
        arguments.output.print(&all, list(&all), Lines::Plain)?;
        return Ok(ExitCode::SUCCESS);
    }
    let found = search::find(&all, &text);
    if found.is_empty() {
        let mut told = String::from("no such message; armsnap explain lists all, the nearest are:");
        for (name, message) in search::nearest(&all, &text) {
            let _ = write!(told, "\n  {name}: {message}");
        }
        return Err(Failure::Input(told));
    }
    let explanations: Vec<&Explanation> = found.iter().map(|found| found.explanation).collect();
    let shown: Vec<String> = found.iter().map(show).collect();
    let shown = shown.join("\n");
    arguments.output.print(&explanations, shown, Lines::Plain)?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each message, with its name.
fn list(all: &[Explanation]) -> String {
    let mut out = String::new();
    for explanation in all {
        for message in &explanation.messages {
            let _ = writeln!(out, "{}: {message}", explanation.name);
        }
    }
    out
}

/// The name, the messages that were found, and the explanation.
fn show(found: &Found<'_>) -> String {
    let mut out = format!("{}\n\n", found.explanation.name);
    for message in &found.messages {
        let _ = writeln!(out, "    {message}");
    }
    out.push('\n');
    let mut width = 0;
    for word in found.explanation.text.split(' ') {
        let length = word.chars().count();
        if width > 0 {
            let fits = width + 1 + length <= WIDTH;
            out.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
    out
}
