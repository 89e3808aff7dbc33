//! A headless Chromium, driven through its DevTools protocol over a pipe.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Whether Debian's Chromium is installed; otherwise the caller skips.
pub fn is_available() -> bool {
    let there = Path::new("/usr/bin/chromium").exists();
    if !there {
        super::skip::missing("chromium");
    }
    there
}

/// A browser with one page, without a network.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Events not asked for yet.
    events: VecDeque<Value>,
    session: Option<String>,
    next: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens a page of this size from disk, and waits until it is loaded.
    pub fn open(page: &Path, (width, height): (u32, u32)) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The pipe is on the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
                "sh",
            ])
            .args(["/usr/bin/chromium", "--headless", "--no-sandbox"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--remote-debugging-pipe", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let message = std::mem::take(&mut message);
                if sender
                    .send(serde_json::from_slice(&message).unwrap())
                    .is_err()
                {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            input,
            messages,
            events: VecDeque::new(),
            session: None,
            next: 0,
            _profile: profile,
        };
        browser.start(page, width, height);
        browser
    }

    fn start(&mut self, page: &Path, width: u32, height: u32) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", target);
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        let offline =
            json!({"offline": true, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0});
        self.call("Network.emulateNetworkConditions", offline);
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.visit(page);
    }

    /// Loads another page from disk. What was reported before is forgotten.
    pub fn visit(&mut self, page: &Path) {
        self.events.clear();
        let url = format!("file://{}", page.canonicalize().unwrap().display());
        self.call("Page.navigate", json!({"url": url}));
        self.event("Page.loadEventFired");
    }

    fn receive(&mut self) -> Value {
        self.messages
            .recv_timeout(PATIENCE)
            .expect("the browser answers")
    }

    /// Calls a method and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let mut answer = self.receive();
            if answer["id"] == json!(self.next) {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return answer["result"].take();
            }
            self.events.push_back(answer);
        }
    }

    /// Waits for an event; it stays among the events.
    fn event(&mut self, method: &str) {
        while !self.events.iter().any(|event| event["method"] == method) {
            let event = self.receive();
            self.events.push_back(event);
        }
    }

    /// Evaluates an expression in the page and returns its value.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut result = self.call("Runtime.evaluate", parameters);
        assert_eq!(result["exceptionDetails"], Value::Null, "{expression}");
        result["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(expression) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks at a point of the window.
    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key, by its name and its text, if it writes one.
    pub fn press(&mut self, key: &str, text: Option<&str>) {
        let mut down = json!({"type": "keyDown", "key": key});
        if let Some(text) = text {
            down["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key}),
        );
    }

    /// Chooses the dark or the light colours.
    pub fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Errors and warnings of the console, exceptions, and requests other than for the page.
    pub fn complaints(&mut self) -> Vec<String> {
        // Everything reported so far has arrived after this.
        self.evaluate("new Promise((done) => setTimeout(done, 50))");
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") => true,
            Some("Network.requestWillBeSent") => {
                let url = event["params"]["request"]["url"]
                    .as_str()
                    .unwrap_or_default();
                !url.starts_with("file://")
            }
            Some("Page.javascriptDialogOpening") => true,
            _ => false,
        };
        let complaints = self.events.iter().filter(is_complaint);
        complaints.map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self
            .input
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
