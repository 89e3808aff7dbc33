//! A client of the Debug Adapter Protocol: messages as an editor sends and gets them.

use crate::support::gdb::armsnap;
use crate::support::skip;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// The GDBs here whose adapter can be used: that in PATH, and those of `scripts/test-gdb-versions`.
pub fn gdbs() -> Vec<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/gdb");
    let unpacked =
        ["trixie", "forky"].map(|release| unpacked.join(release).join("bin/gdb-multiarch"));
    let able = |gdb: &PathBuf| {
        let words = ["-nx", "-batch", "-ex", "python print(gdb.VERSION)"];
        let output = Command::new(gdb).args(words).output();
        let version = output
            .ok()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major >= 16)
    };
    let found: Vec<PathBuf> = unpacked
        .into_iter()
        .chain(["gdb-multiarch".into()])
        .filter(able)
        .collect();
    if found.is_empty() {
        skip::unavailable("GDB 16 or later: scripts/test-gdb-versions unpacks it");
    }
    found
}

/// An editor, and the adapter that it started.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    sequence: u64,
    /// Events that nobody has waited for.
    events: Vec<Value>,
}

impl Client {
    /// Starts `armsnap dap`.
    pub fn new(snapshot: &Path, gdb: &Path) -> Self {
        let mut child = armsnap()
            .arg("dap")
            .arg(snapshot)
            .arg("--gdb")
            .arg(gdb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (send, messages) = channel();
        thread::spawn(move || {
            while let Some(message) = read(&mut output) {
                if send.send(message).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        Self {
            child,
            input,
            messages,
            sequence: 0,
            events: Vec::new(),
        }
    }

    /// Sends a request, without waiting for the response.
    pub fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.sequence += 1;
        let message = json!({
            "seq": self.sequence, "type": "request", "command": command, "arguments": arguments,
        })
        .to_string();
        self.send_text(&format!(
            "Content-Length: {}\r\n\r\n{message}",
            message.len()
        ));
        self.sequence
    }

    /// Sends bytes that need not be a message.
    pub fn send_text(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn next(&mut self) -> Value {
        self.messages
            .recv_timeout(PATIENCE)
            .expect("a message of the adapter")
    }

    /// Waits for a response, whether it is a success or not.
    pub fn response(&mut self, sequence: u64) -> Value {
        loop {
            let message = self.next();
            if message["type"] == "event" {
                self.events.push(message);
            } else if message["request_seq"] == sequence {
                return message;
            }
        }
    }

    /// Sends a request, and returns the body of the response to it.
    pub fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let sequence = self.send(command, arguments);
        let response = self.response(sequence);
        assert_eq!(response["success"], true, "{command}: {response}");
        response["body"].clone()
    }

    /// Waits for an event, and returns its body. Earlier ones are forgotten.
    pub fn event(&mut self, name: &str) -> Value {
        loop {
            let message = if self.events.is_empty() {
                self.next()
            } else {
                self.events.remove(0)
            };
            if message["event"] == name {
                return message["body"].clone();
            }
        }
    }

    /// Initialises the adapter, lets `configure` set breakpoints, and attaches.
    pub fn attach(&mut self, request: &str, configure: impl FnOnce(&mut Self)) -> Value {
        let capabilities = self.ask("initialize", json!({"adapterID": "armsnap"}));
        self.event("initialized");
        let attached = self.send(request, json!({}));
        configure(self);
        self.ask("configurationDone", json!({}));
        let response = self.response(attached);
        assert_eq!(response["success"], true, "{response}");
        let stop = self.event("stopped");
        assert_eq!(stop["reason"], "entry", "{stop}");
        capabilities
    }

    /// Moves, and returns the reason of the stop.
    pub fn go(&mut self, command: &str, arguments: Value) -> Value {
        self.events.clear();
        self.ask(command, arguments);
        self.event("stopped")
    }

    /// Function and line of a thread's frames.
    pub fn frames(&mut self, thread: u64) -> Vec<(String, u64)> {
        let stack = self.ask("stackTrace", json!({"threadId": thread}));
        let frames = stack["stackFrames"].as_array().unwrap().iter();
        let name = |frame: &Value| frame["name"].as_str().unwrap_or_default().to_owned();
        frames
            .map(|frame| (name(frame), frame["line"].as_u64().unwrap_or_default()))
            .collect()
    }

    /// The number of a thread's newest frame.
    pub fn frame(&mut self, thread: u64) -> u64 {
        let stack = self.ask("stackTrace", json!({"threadId": thread, "levels": 1}));
        stack["stackFrames"][0]["id"].as_u64().unwrap()
    }

    /// Name and value of the variables of a scope.
    pub fn scope(&mut self, frame: u64, scope: &str) -> Vec<(String, String)> {
        let scopes = self.ask("scopes", json!({"frameId": frame}));
        let scopes = scopes["scopes"].as_array().unwrap().clone();
        let found = scopes.iter().find(|found| found["name"] == scope);
        let found = found.unwrap_or_else(|| panic!("{scope}: {scopes:?}"));
        let reference = &found["variablesReference"];
        let variables = self.ask("variables", json!({"variablesReference": reference}));
        let variables = variables["variables"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        variables
            .map(|found| (text(&found["name"]), text(&found["value"])))
            .collect()
    }

    /// The value of a name in the scope `armsnap`.
    pub fn fact(&mut self, thread: u64, name: &str) -> String {
        let frame = self.frame(thread);
        let facts = self.scope(frame, "armsnap");
        let found = facts.iter().find(|(found, _)| found == name);
        found
            .unwrap_or_else(|| panic!("{name}: {facts:?}"))
            .1
            .clone()
    }

    /// Ends without a request, and waits until the adapter has ended.
    pub fn vanishes(mut self) {
        self.input = None;
        self.ends();
    }

    /// Waits until the adapter has ended.
    pub fn ends(mut self) {
        for _ in 0..PATIENCE.as_millis() / 50 {
            if self.child.try_wait().unwrap().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.child.kill().unwrap();
        panic!("the adapter does not end");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a message: a header with its length, and JSON.
fn read(input: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().strip_prefix("Content-Length: ") {
            Some(digits) => length = digits.parse().ok()?,
            None if line == "\r\n" => break,
            None => panic!("the adapter sent {line:?}"),
        }
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text).ok()?;
    Some(serde_json::from_slice(&text).expect("JSON"))
}
