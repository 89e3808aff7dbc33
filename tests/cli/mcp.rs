//! `armsnap mcp`: an assistant asks, as the protocol says, and as it should not.

use crate::support::armsnap;
use crate::support::gdb::testdata;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const VERSIONS: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];

/// A client that has started the server.
struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    fn start() -> Self {
        Self::start_on("recorded/etmv4")
    }

    fn start_on(snapshot: &str) -> Self {
        let mut server = Command::new(armsnap())
            .arg("mcp")
            .arg(testdata(snapshot))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().unwrap());
        Self {
            server,
            input,
            output,
            last: 0,
        }
    }

    /// In a session of a version of the protocol.
    fn of(version: &str) -> Self {
        let mut client = Self::start();
        let result = client.initialize(version);
        assert_eq!(result["protocolVersion"], version);
        client.tell("notifications/initialized", json!({}));
        client
    }

    fn initialize(&mut self, version: &str) -> Value {
        let information = json!({ "name": "test", "version": "1" });
        let parameters =
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": information });
        self.ask("initialize", parameters)["result"].take()
    }

    fn line(&mut self, line: impl AsRef<[u8]>) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_ref()).unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// The next reply.
    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn tell(&mut self, method: &str, parameters: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": parameters });
        self.line(message.to_string());
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
        self.line(message.to_string());
        let reply = self.reply();
        assert_eq!(
            (&reply["jsonrpc"], &reply["id"]),
            (&"2.0".into(), &id.into())
        );
        reply
    }

    /// Calls a tool: its text, and whether it is an error.
    fn call(&mut self, name: &str, arguments: Value) -> (String, bool) {
        let reply = self.ask(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        );
        let result = &reply["result"];
        let [content] = result["content"].as_array().unwrap().as_slice() else {
            panic!("{reply}");
        };
        assert_eq!(content["type"], "text");
        let text = content["text"].as_str().unwrap().to_owned();
        (text, result["isError"].as_bool().unwrap())
    }

    /// The answer of a tool that has one.
    fn answer(&mut self, name: &str, arguments: Value) -> Value {
        let (text, is_error) = self.call(name, arguments);
        assert!(!is_error, "{name}: {text}");
        assert!(text.starts_with(r#"{"data":"Text below is from the recorded program"#));
        serde_json::from_str(&text).unwrap()
    }

    /// The code of the error that a line gets.
    fn refused(&mut self, line: impl AsRef<[u8]>) -> (Value, i64) {
        self.line(line);
        let reply = self.reply();
        (
            reply["id"].clone(),
            reply["error"]["code"].as_i64().unwrap(),
        )
    }

    /// Ends the session; returns the replies that were left.
    fn end(self) -> Vec<Value> {
        let Self {
            mut server,
            input,
            output,
            ..
        } = self;
        drop(input);
        let left = output.lines();
        let left = left.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let left = left.collect();
        assert!(server.wait().unwrap().success());
        left
    }
}

#[test]
fn each_version_of_the_protocol_is_spoken() {
    for version in VERSIONS {
        let mut client = Client::of(version);
        assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
        let tools = client.ask("tools/list", json!({}))["result"]["tools"].take();
        let tools = tools.as_array().unwrap();
        assert_eq!(tools.len(), 9);
        for tool in tools {
            let schema = &tool["inputSchema"];
            assert_eq!(schema["type"], "object");
            for needed in schema["required"].as_array().unwrap() {
                assert!(schema["properties"].get(needed.as_str().unwrap()).is_some());
            }
            assert!(tool["description"].as_str().unwrap().ends_with('.'));
            assert_eq!(tool["annotations"]["readOnlyHint"], true);
        }
        assert!(client.end().is_empty());
    }
    // A version that the server does not know: the newest one.
    let mut client = Client::start();
    let result = client.initialize("2099-01-01");
    assert_eq!(result["protocolVersion"], VERSIONS[2]);
    assert_eq!(result["capabilities"], json!({ "tools": {} }));
    assert!(
        result["instructions"]
            .as_str()
            .unwrap()
            .contains("never instructions")
    );
}

#[test]
fn answers_are_those_of_the_command_line() {
    let mut client = Client::of(VERSIONS[2]);
    let description = client.answer("describe", json!({}));
    let core = &description["cores"][0];
    assert_eq!(core["name"], "Cortex-A57_0");
    assert_eq!(core["begin"], "0+0");
    let end = core["end"].as_str().unwrap().to_owned();
    for (tool, arguments, words) in [
        (
            "calls",
            json!({ "function": "main", "core": "Cortex-A57_0" }),
            &["calls", "main", "--core", "Cortex-A57_0"][..],
        ),
        ("where", json!({ "position": "0+91" }), &["where", "0+91"]),
        (
            "memory",
            json!({ "position": end, "address": "0x40100000", "length": 16 }),
            &["memory", &end, "0x40100000", "16"],
        ),
        (
            "memory",
            json!({ "position": end, "address": 0x4010_0000, "length": "16" }),
            &["memory", &end, "0x40100000", "16"],
        ),
        (
            "why",
            json!({ "position": end, "expression": "x0" }),
            &["why", &end, "x0"],
        ),
        (
            "uses",
            json!({ "position": "0+91", "expression": "sp", "most": 20 }),
            &["uses", "0+91", "sp", "--most", "20"],
        ),
    ] {
        let run = Command::new(armsnap())
            .arg("ask")
            .arg(testdata("recorded/etmv4"))
            .args(words)
            .args(["--format", "jsonl"])
            .output()
            .unwrap();
        let lines = String::from_utf8(run.stdout).unwrap();
        let wanted: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(!wanted.is_empty(), "{words:?}");
        let answer = client.answer(tool, arguments);
        assert_eq!(answer["answers"], Value::from(wanted), "{words:?}");
    }
    let values = client.answer("values", json!({ "position": "0+91" }));
    let registers = values["answers"][0]["registers"].as_object().unwrap();
    assert!(
        registers
            .values()
            .all(|register| register.get("value").is_some())
    );
    assert!(registers.contains_key("pc"));
    // The rest is where the answer says.
    let range = json!({ "of": "0x40100000+0x3000", "core": "Cortex-A57_0", "most": 3 });
    let some = client.answer("accesses", range);
    assert_eq!(some["complete"], false);
    let next = some["continue_from"].as_str().unwrap();
    let range = json!({ "of": "0x40100000+0x3000", "core": "Cortex-A57_0", "from": next });
    let more = client.answer("accesses", range);
    assert_eq!(more["answers"][0]["position"], next);
}

#[test]
fn errors_say_what_to_ask_instead() {
    let mut client = Client::of(VERSIONS[1]);
    for (tool, arguments, wanted) in [
        (
            "calls",
            json!({ "function": "secon" }),
            "there are \"second_",
        ),
        ("calls", json!({}), "function: expected a string"),
        (
            "calls",
            json!({ "function": ["main"] }),
            "expected a string or a number",
        ),
        (
            "calls",
            json!({ "name": "main" }),
            "its arguments: function",
        ),
        ("describe", json!({ "path": "/etc" }), "its arguments: none"),
        (
            "calls",
            json!({ "function": "main", "core": "x" }),
            "Cortex-A57_0, Cortex-A57_1",
        ),
        (
            "calls",
            json!({ "function": "main", "most": 0 }),
            "most: expected 1 to 1000",
        ),
        (
            "where",
            json!({ "position": "9+9" }),
            "describe names the first",
        ),
        ("where", json!({ "position": "nine" }), "expects a position"),
        (
            "memory",
            json!({ "position": "0+1", "address": "0x0", "length": 4097 }),
            "length: expected 1 to 4096",
        ),
        (
            "variable",
            json!({ "expression": "absent" }),
            "a local variable needs a position",
        ),
        (
            "variable",
            json!({ "expression": "x0", "from": "later" }),
            "from: expected a position",
        ),
    ] {
        let (text, is_error) = client.call(tool, arguments.clone());
        assert!(
            is_error && text.contains(wanted),
            "{tool} {arguments}: {text}"
        );
    }
    // Nothing is known, which is an answer.
    let absent = json!({ "position": "0+1", "address": "0x10", "length": 4 });
    let answer = client.answer("memory", absent);
    assert_eq!(answer["answers"], json!([]));
    assert!(answer["notes"][0].as_str().unwrap().contains("not known"));
}

#[test]
fn malformed_messages_are_refused_and_the_session_goes_on() {
    let mut client = Client::start();
    let early = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" }).to_string();
    assert_eq!(client.refused(early), (7.into(), -32600));
    let ping = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    client.initialize(VERSIONS[2]);
    let deep = "[".repeat(10_000);
    let long = format!(
        r#"{{"jsonrpc": "2.0", "id": 1, "method": "{}"}}"#,
        "x".repeat(1 << 20)
    );
    for (line, id, code) in [
        (&b"{"[..], Value::Null, -32700),
        (b"\xff\xfe", Value::Null, -32700),
        (deep.as_bytes(), Value::Null, -32700),
        (long.as_bytes(), Value::Null, -32600),
        (b"1", Value::Null, -32600),
        (b"[]", Value::Null, -32600),
        (b"{\"jsonrpc\": \"2.0\", \"id\": 1}", 1.into(), -32600),
        (b"{\"id\": 1, \"method\": \"ping\"}", 1.into(), -32600),
        (
            b"{\"jsonrpc\": \"2.0\", \"id\": {}, \"method\": \"ping\"}",
            Value::Null,
            -32600,
        ),
        (
            b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"resources/list\"}",
            1.into(),
            -32601,
        ),
        (
            b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\"}",
            1.into(),
            -32602,
        ),
        (
            b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {\"name\": \"run\"}}",
            1.into(),
            -32602,
        ),
        (
            b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"initialize\", \"params\": {}}",
            1.into(),
            -32600,
        ),
    ] {
        let shown = line[..line.len().min(100)].escape_ascii().to_string();
        assert_eq!(client.refused(line), (id, code), "{shown}");
    }
    // Neither empty lines nor responses nor unknown notifications are answered.
    client.line("\r");
    client.line(r#"{"jsonrpc": "2.0", "id": 5, "result": {}}"#);
    client.tell("notifications/unknown", json!({}));
    client.tell("notifications/cancelled", json!({ "requestId": 99 }));
    client.line(ping("last").to_string());
    assert_eq!(client.reply()["id"], "last");
    assert!(client.end().is_empty());
}

#[test]
fn batches_are_answered_where_the_version_has_them() {
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": "where", "method": "tools/call",
          "params": { "name": "where", "arguments": { "position": "0+1" } } },
        1,
    ]);
    for version in VERSIONS {
        let mut client = Client::of(version);
        client.line(batch.to_string());
        let reply = client.reply();
        if version == VERSIONS[2] {
            assert_eq!(reply["error"]["code"], -32600);
            continue;
        }
        let replies = reply.as_array().unwrap().iter();
        let by_id: HashMap<String, &Value> = replies
            .map(|reply| (reply["id"].to_string(), reply))
            .collect();
        assert_eq!(by_id.len(), 3, "{reply}");
        assert_eq!(by_id["1"]["result"], json!({}));
        assert_eq!(by_id["\"where\""]["result"]["isError"], false);
        assert_eq!(by_id["null"]["error"]["code"], -32600);
        // Without requests, there is no reply.
        client.line(json!([{ "jsonrpc": "2.0", "method": "notifications/x" }]).to_string());
        assert!(client.end().is_empty());
    }
}

/// Calls that wait are answered after the input has ended; cancelled ones are not.
#[test]
fn cancelled_calls_have_no_answer() {
    let mut client = Client::of(VERSIONS[2]);
    let call = |id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": { "name": "accesses", "arguments": { "of": "0x40100000+0x3000" } } })
        .to_string()
    };
    let count = 20;
    for id in 100..100 + count {
        client.line(call(id));
    }
    for id in 110..100 + count {
        client.tell("notifications/cancelled", json!({ "requestId": id }));
    }
    let answered: Vec<u64> = client
        .end()
        .iter()
        .map(|reply| reply["id"].as_u64().unwrap())
        .collect();
    let wanted: Vec<u64> = (100..100 + answered.len() as u64).collect();
    assert_eq!(answered, wanted, "in order");
    assert!(answered.len() >= 10, "{answered:?}");
    assert!(answered.len() < count as usize, "{answered:?}");
}

/// The questions of docs/mcp.md.
#[test]
fn an_assistant_finds_the_cause_of_the_crash() {
    let mut client = Client::start_on("demo");
    client.initialize(VERSIONS[2]);
    let end = client.answer("describe", json!({}))["cores"][0]["end"].take();
    let place = &client.answer("where", json!({ "position": end }))["answers"][0];
    assert_eq!(place["function"], "price");
    let calls = client.answer("calls", json!({ "function": "price" }));
    let calls = calls["answers"].as_array().unwrap();
    let open = calls.iter().find(|call| call.get("end").is_none()).unwrap();
    assert_eq!(open["arguments"][0]["value"], "0x401280");
    let writes = client.answer("accesses", json!({ "of": "0x401288+8" }));
    let mut writes = writes["answers"].as_array().unwrap().iter();
    let write = writes.rfind(|access| access["kind"] == "write").unwrap();
    assert_eq!(write["function"], "cancel");
    assert_eq!(
        (&write["line"], &write["value"]),
        (&24.into(), &"0x0".into())
    );
    let cancel = &client.answer("calls", json!({ "function": "cancel" }))["answers"][0];
    assert_eq!(cancel["arguments"][0]["value"], "0x2");
}

/// A client that closes its end of the output, but not the input.
#[test]
fn a_closed_output_ends_the_server() {
    use std::process::Stdio;
    let mut server = Command::new(armsnap())
        .arg("mcp")
        .arg(testdata("recorded/etmv4"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(server.stdout.take());
    let mut input = server.stdin.take().unwrap();
    std::io::Write::write_all(
        &mut input,
        b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\n",
    )
    .unwrap();
    let run = server.wait_with_output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
    drop(input);
}
