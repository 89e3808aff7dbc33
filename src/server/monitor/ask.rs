//! `monitor ask`: questions over the whole history of the selected core.

use std::sync::Arc;

use super::history;
use super::output::Output;
use crate::server::asked;
use crate::server::target::SnapshotTarget;
use armsnap_analysis::questions::{Answer, AskError, Outcome, Question, Scope, ask};
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;

/// The most answers, unless `--most` says otherwise.
const MOST: usize = 200;

/// What stands for the position of the core in a question.
const HERE: &str = "here";

/// Answers a question.
pub(super) fn run(target: &mut SnapshotTarget, words: &str, cancel: &Cancel) -> Output {
    match answers(target, words, cancel) {
        Ok(output) => output,
        Err(message) => format!("{}\n", message.trim_end()).into(),
    }
}

/// Answers a question; the error is a message.
fn answers(target: &mut SnapshotTarget, words: &str, cancel: &Cancel) -> Result<Output, String> {
    let (thread, _) = history::core(target)?;
    let here = target.positions.position(thread);
    let (question, scope) = read(words, here)?;
    let (endpoint, symbols) = (Arc::clone(&target.endpoint), target.symbols());
    let call_frames = target.call_frames();
    let frames = || Arc::clone(&call_frames);
    let known = (&mut target.positions, &mut target.past_values);
    let mut core = asked::core(&endpoint, known, (&symbols, &frames), thread)
        .ok_or("values of the past are not recovered")?;
    let mut output = Output::default();
    let mut sink = |answer: Answer| {
        output.text(&answer.to_string());
        Ok(())
    };
    let outcome = ask(&mut core, &question, scope, cancel, &mut sink);
    match outcome {
        Ok(Outcome { unknown, .. }) => unknown.iter().for_each(|unknown| output.note(unknown)),
        // What was found before the interrupt is shown.
        Err(AskError::Interrupted) => output.text(super::STOPPED),
        Err(error) => return Err(error.to_string()),
    }
    Ok(output)
}

/// Reads a question with the options `--from`, `--to` and `--most`; the error is a message.
fn read(words: &str, here: Option<Position>) -> Result<(Question, Scope), String> {
    let here = here.map(|here| here.to_string());
    let named = |word| match (&here, word) {
        (Some(here), HERE) => here.clone(),
        _ => word.to_owned(),
    };
    let mut words = words.split_whitespace();
    let mut scope = Scope {
        most: MOST,
        ..Scope::default()
    };
    let mut question: Vec<String> = Vec::new();
    while let Some(word) = words.next() {
        if !matches!(word, "--from" | "--to" | "--most") {
            // Elsewhere, `here` may be a variable.
            let begun: Vec<&str> = question.iter().map(String::as_str).collect();
            let is_position = matches!(begun[..], ["where" | "values" | "memory" | "why" | "uses"]);
            question.push(if is_position {
                named(word)
            } else {
                word.to_owned()
            });
            continue;
        }
        let value = words.next().map(named).unwrap_or_default();
        let position = || {
            let position = value.parse::<Position>();
            position.map_err(|_| format!("{word}: expected a position or here, found {value:?}"))
        };
        match word {
            "--from" => scope.from = Some(position()?),
            "--to" => scope.to = Some(position()?),
            _ => {
                let number = value.parse().ok().filter(|number| *number > 0);
                scope.most =
                    number.ok_or_else(|| format!("--most: expected 1 or more, found {value:?}"))?;
            }
        }
    }
    let question: Vec<&str> = question.iter().map(String::as_str).collect();
    let question = Question::parse(&question);
    Ok((question.map_err(|error| error.to_string())?, scope))
}
