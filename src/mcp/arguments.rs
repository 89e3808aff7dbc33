//! The arguments of a call of a tool.

use super::tools::{Argument, Tool};
use armsnap_analysis::questions::{Question, Scope};
use armsnap_history::timeline::Position;
use serde_json::{Map, Value};

/// The most answers, unless the assistant wants another number up to [`LARGEST`].
const MOST: usize = 50;
const LARGEST: usize = 1000;
/// The most bytes of memory in an answer.
const MOST_MEMORY: usize = 4096;

/// What is asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub question: Question,
    pub scope: Scope,
    /// Only of this core.
    pub core: Option<String>,
}

/// Checks that a tool has the arguments that are given, and those that it needs; the error is a
/// message.
pub(super) fn check(tool: &Tool, given: &Map<String, Value>) -> Result<(), String> {
    let all = || tool.needs.iter().chain(tool.options);
    let unknown = given
        .keys()
        .find(|name| all().all(|argument| argument.name != **name));
    if let Some(name) = unknown {
        let names: Vec<&str> = all().map(|argument| argument.name).collect();
        let names = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let tool = tool.name;
        return Err(format!(
            "{tool} has no argument {name:?}; its arguments: {names}"
        ));
    }
    Ok(())
}

/// Reads the arguments of a tool that is a question; the error is a message.
pub(super) fn read(tool: &Tool, given: &Map<String, Value>) -> Result<Asked, String> {
    check(tool, given)?;
    let mut words = vec![tool.name.to_owned()];
    for argument in tool.needs {
        words.push(needed(argument, given)?);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let question = Question::parse(&words).map_err(|error| error.to_string())?;
    if let Question::Memory(_, _, length) = question
        && length > MOST_MEMORY
    {
        return Err(format!(
            "length: expected 1 to {MOST_MEMORY}, found {length}"
        ));
    }
    let most = match text(given, "most")? {
        None => MOST,
        Some(text) => {
            let number = text.parse().ok();
            let wanted = number.filter(|number| (1..=LARGEST).contains(number));
            wanted.ok_or_else(|| format!("most: expected 1 to {LARGEST}, found {text:?}"))?
        }
    };
    let scope = Scope {
        from: position(given, "from")?,
        to: position(given, "to")?,
        most,
    };
    let core = text(given, "core")?;
    Ok(Asked {
        question,
        scope,
        core,
    })
}

fn needed(argument: &Argument, given: &Map<String, Value>) -> Result<String, String> {
    let Argument { name, kind, .. } = argument;
    let found = text(given, name)?.filter(|text| !text.trim().is_empty());
    found.ok_or_else(|| format!("{name}: expected a {kind}, found nothing"))
}

fn position(given: &Map<String, Value>, name: &str) -> Result<Option<Position>, String> {
    let Some(text) = text(given, name)? else {
        return Ok(None);
    };
    let position = text.parse::<Position>().ok();
    let position = position.ok_or_else(|| {
        format!("{name}: expected a position as answers name it, such as 0+1234, found {text:?}")
    });
    position.map(Some)
}

/// Returns an argument as text; also a number, which assistants write with and without quotes.
fn text(given: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match given.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => Err(format!(
            "{name}: expected a string or a number, found {other}"
        )),
    }
}
