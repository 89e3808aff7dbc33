//! `armsnap ask`: questions over the whole history of a snapshot.

use super::serve::Selection;
use super::{Failure, SnapshotArguments, say};
use armsnap::questions::{AskError, Form, MOST, NoQuestion, Question, Scope, Writer};
use armsnap::server::{Histories, NO_HISTORY};
use armsnap::stop::Cancel;
use armsnap::text::{self, PlainStream};
use armsnap::timeline::Position;
use clap::{Args, ValueEnum};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// A JSON object a line
    Jsonl,
    /// Comma-separated values, with a header line
    Csv,
}

impl Format {
    fn form(self) -> Form {
        match self {
            Self::Text => Form::Text,
            Self::Jsonl => Form::Jsonl,
            Self::Csv => Form::Csv,
        }
    }
}

/// Reads the most answers.
fn at_least_one(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("expected 1 or more")
}

/// The arguments of `ask`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot.
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// calls FUNCTION; accesses ADDRESS[+LENGTH] or EXPRESSION; variable EXPRESSION; where
    /// POSITION; values POSITION; memory POSITION ADDRESS LENGTH; why POSITION EXPRESSION; uses POSITION
    /// EXPRESSION. `monitor where` in GDB prints positions
    #[arg(required = true, value_name = "QUESTION")]
    question: Vec<String>,
    /// How answers are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Calls, accesses and changes from this position on
    #[arg(long, value_name = "POSITION")]
    from: Option<Position>,
    /// Calls, accesses and changes before this position
    #[arg(long, value_name = "POSITION")]
    to: Option<Position>,
    /// The most answers for each core
    #[arg(long, value_name = "N", default_value_t = MOST, value_parser = at_least_one)]
    most: usize,
    /// Only this core (repeatable). Default: all cores; where a position is given, the one that
    /// stopped
    #[arg(long, value_name = "NAME")]
    core: Vec<String>,
    /// A program that the cores run. Default: an ELF file in the snapshot's directory that
    /// matches the dumps.
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,
}

/// Answers a question. The exit status is 0 with answers, 1 with none, also where the snapshot
/// cannot be opened, and 2 for a question that cannot be understood.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let words: Vec<&str> = arguments.question.iter().map(String::as_str).collect();
    let usage = |error: NoQuestion| Failure::Usage(error.to_string());
    let question = Question::parse(&words).map_err(usage)?;
    let scope = Scope {
        from: arguments.from,
        to: arguments.to,
        most: arguments.most,
    };
    let selection = Selection::of(&arguments.core, &arguments.elf);
    let endpoints = selection.endpoints(&arguments.snapshot)?;
    let form = match arguments.format {
        Format::Text => text::Form::Text,
        Format::Jsonl | Format::Csv => text::Form::Json,
    };
    let out = PlainStream::new(BufWriter::new(io::stdout().lock()), form);
    let mut writer = Writer::new(arguments.format.form(), &question, out);
    let (mut answers, mut refused, mut has_history) = (0, None, false);
    for endpoint in endpoints {
        let mut histories = Histories::new(endpoint);
        for thread in histories.cores(&question, scope) {
            has_history = true;
            let sink = &mut |answer| writer.put(&answer).and_then(|()| writer.flush());
            match histories.ask(thread, &question, scope, &Cancel::default(), sink) {
                Ok(outcome) => {
                    answers += outcome.answers;
                    for unknown in &outcome.unknown {
                        say(text::one_line(&unknown.to_string()));
                    }
                }
                Err(AskError::Io(error)) => return Err(error.into()),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    writer.into_inner().into_inner().flush()?;
    if answers > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    match refused {
        Some(AskError::Interrupted) => Err(Failure::Input(AskError::Interrupted.to_string())),
        Some(error) => Err(Failure::Usage(error.to_string())),
        None => {
            if !has_history {
                say(NO_HISTORY);
            }
            Ok(ExitCode::FAILURE)
        }
    }
}
