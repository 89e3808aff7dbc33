//! The tools: what they are called, what they need, and what runs them.

use super::answer;
use super::arguments;
use super::message::{Code, Refusal};
use crate::server::Histories;
use armsnap_snapshot::stop::Cancel;
use serde_json::{Map, Value, json};

/// An argument of a tool.
pub(super) struct Argument {
    pub name: &'static str,
    /// `string` or `integer`.
    pub kind: &'static str,
    text: &'static str,
}

/// A tool: a question, with the arguments that it needs in the order of its words.
pub(super) struct Tool {
    pub name: &'static str,
    text: &'static str,
    pub needs: &'static [Argument],
    pub options: &'static [Argument],
}

const fn string(name: &'static str, text: &'static str) -> Argument {
    Argument {
        name,
        kind: "string",
        text,
    }
}

const fn integer(name: &'static str, text: &'static str) -> Argument {
    Argument {
        name,
        kind: "integer",
        text,
    }
}

const POSITION: Argument = string(
    "position",
    "A position as answers name it, such as 0+1234: just before that instruction",
);
const EXPRESSION: Argument = string(
    "expression",
    "As in C: total, table[3], head->next->key, *pointer; or a register: $x0",
);
const CORE: Argument = string("core", "The name of a core, as describe lists them");
const WINDOW: &[Argument] = &[
    string("from", "Only from this position on"),
    string("to", "Only before this position"),
    integer("most", "The most answers: 1 to 1000, otherwise 50"),
    CORE,
];

/// The tool that is no question.
const DESCRIBE: &str = "describe";

const TOOLS: &[Tool] = &[
    Tool {
        name: DESCRIBE,
        text: "What was recorded: cores, the first and the last position of their histories, \
               programs, and what is missing. Ask this first.",
        needs: &[],
        options: &[],
    },
    Tool {
        name: "where",
        text: "Where a core was at a position: address, function, source file and line.",
        needs: &[POSITION],
        options: &[CORE],
    },
    Tool {
        name: "values",
        text: "The registers at a position. Those that are absent are unknown.",
        needs: &[POSITION],
        options: &[CORE],
    },
    Tool {
        name: "memory",
        text: "Memory at a position, as hexadecimal digits; .. is an unknown byte.",
        needs: &[
            POSITION,
            string("address", "The first address, such as 0x20000000"),
            integer("length", "The number of bytes: 1 to 4096"),
        ],
        options: &[CORE],
    },
    Tool {
        name: "calls",
        text: "Each call of a function: arguments, caller, where it ended, what it returned.",
        needs: &[string(
            "function",
            "A function's name, or its address with 0x",
        )],
        options: WINDOW,
    },
    Tool {
        name: "accesses",
        text: "Each load and store of an address range or a variable: value, instruction, line. \
               Answers who wrote it, and who read it.",
        needs: &[string(
            "of",
            "ADDRESS or ADDRESS+LENGTH, such as 0x20000010+4, or an expression as in C",
        )],
        options: WINDOW,
    },
    Tool {
        name: "variable",
        text: "Each change of the value of a variable or expression, with the line of the store. \
               For local variables, from must be in their function.",
        needs: &[EXPRESSION],
        options: WINDOW,
    },
    Tool {
        name: "why",
        text: "Where a value at a position came from: an instruction each, the oldest first.",
        needs: &[
            POSITION,
            string(
                "expression",
                "A register, a variable or expression as in C, or an address with 0x",
            ),
        ],
        options: &[
            integer("most", "The most instructions: 1 to 1000, otherwise 50"),
            CORE,
        ],
    },
    Tool {
        name: "uses",
        text: "What became of a value at a position: the instructions that used it, the first one first.",
        needs: &[
            POSITION,
            string(
                "expression",
                "A register, a variable or expression as in C, or an address with 0x",
            ),
        ],
        options: &[
            integer("most", "The most instructions: 1 to 1000, otherwise 50"),
            CORE,
        ],
    },
];

/// Lists the tools for the client.
pub(super) fn list() -> Vec<Value> {
    TOOLS.iter().map(Tool::described).collect()
}

impl Tool {
    fn described(&self) -> Value {
        let all = self.needs.iter().chain(self.options);
        let properties: Map<String, Value> = all
            .map(|Argument { name, kind, text }| {
                let schema = json!({ "type": kind, "description": text });
                ((*name).to_owned(), schema)
            })
            .collect();
        let needed: Vec<&str> = self.needs.iter().map(|argument| argument.name).collect();
        json!({
            "name": self.name,
            "description": self.text,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": needed,
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        })
    }
}

/// Runs a tool. What it cannot answer is a result too, which says what to ask instead.
pub(super) fn call(
    histories: &mut [Histories],
    name: &str,
    given: &Map<String, Value>,
    cancel: &Cancel,
) -> Result<Value, Refusal> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        let message = format!("no tool {name:?}; there are {}", names.join(", "));
        return Err(Refusal::new(Code::Parameters, message));
    };
    let found = match tool.name {
        DESCRIBE => arguments::check(tool, given).map(|()| answer::describe(histories, cancel)),
        _ => arguments::read(tool, given).and_then(|asked| answer::to(histories, &asked, cancel)),
    };
    let (text, is_error) = match found {
        Ok(answer) => (answer, false),
        Err(message) => (message, true),
    };
    Ok(json!({
        "content": [{ "type": "text", "text": text }],
        "isError": is_error,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_but_describe_is_a_question() {
        for tool in TOOLS.iter().filter(|tool| tool.name != DESCRIBE) {
            let value = |name: &str| match name {
                "position" => Value::from("0+12"),
                "length" => Value::from(16),
                _ => Value::from("0x10"),
            };
            let needed = tool.needs.iter();
            let given: Map<String, Value> = needed
                .map(|argument| (argument.name.to_owned(), value(argument.name)))
                .collect();
            let read = arguments::read(tool, &given);
            assert!(read.is_ok(), "{}: {read:?}", tool.name);
        }
    }
}
