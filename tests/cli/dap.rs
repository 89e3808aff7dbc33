//! `armsnap dap`: an editor walks back, as the command line does.

use super::dap_client::{Client, gdbs};
use crate::support::gdb::{armsnap, run, testdata, text};
use crate::support::skip;
use serde_json::json;
use std::process::Command;

const SOURCE: &str = "demo.c";

fn source() -> serde_json::Value {
    json!({"path": testdata("demo").join(SOURCE)})
}

#[test]
fn an_old_gdb_is_named_with_the_remedy() {
    let version = Command::new("gdb-multiarch").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !version.is_ok_and(|version| version.contains(" 13.")) {
        return skip::unavailable("GDB 13");
    }
    let output = run(armsnap().arg("dap").arg(testdata("demo")));
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("GDB 13") && told.contains("16 or later") && told.contains("--gdb"),
        "{told}"
    );
    // Nothing reaches the editor as a message.
    assert!(output.stdout.is_empty());
}

/// What a test skips reaches `scripts/test`, which names it at the end.
#[test]
fn a_skipped_test_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("skipped");
    // There is no GDB in this PATH.
    let skips = "dap::an_old_gdb_is_named_with_the_remedy";
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", skips]).env("PATH", directory.path());
    let output = run(test.env("ARMSNAP_SKIPPED", &file));
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "GDB 13\n");
}

#[test]
fn an_editor_walks_back_to_the_fault() {
    for gdb in gdbs() {
        let mut editor = Client::new(&testdata("demo"), &gdb);
        let capabilities = editor.attach("launch", |_| ());
        for (name, supported) in [
            ("supportsStepBack", true),
            ("supportsGotoTargetsRequest", true),
            ("supportsDataBreakpoints", true),
            ("supportsReadMemoryRequest", true),
            ("supportsDisassembleRequest", true),
            ("supportsSetVariable", false),
            ("supportsWriteMemoryRequest", false),
        ] {
            let found = capabilities[name].as_bool().unwrap_or(false);
            assert_eq!(found, supported, "{name}: {capabilities}");
        }
        let threads = editor.ask("threads", json!({}));
        assert_eq!(threads["threads"].as_array().unwrap().len(), 1, "{threads}");
        let thread = threads["threads"][0]["id"].as_u64().unwrap();
        let at = |name: &str, line| (name.to_owned(), line);
        assert_eq!(
            editor.frames(thread)[..3],
            [at("price", 28), at("total", 35), at("shop", 45)]
        );
        assert_eq!(editor.fact(thread, "position"), "0+99");

        // A data breakpoint on the field that is wrong.
        let frame = editor.frame(thread);
        let arguments = json!({"name": "order->item", "frameId": frame});
        let watched = editor.ask("dataBreakpointInfo", arguments);
        assert_eq!(watched["dataId"], "0x401288,8", "{watched}");
        let arguments = json!({"name": "1 + 1", "frameId": frame});
        assert!(editor.ask("dataBreakpointInfo", arguments)["dataId"].is_null());
        let arguments =
            json!({"breakpoints": [{"dataId": watched["dataId"], "accessType": "write"}]});
        let set = editor.ask("setDataBreakpoints", arguments.clone());
        assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
        // The same field as a child of a variable, whose value is 0.
        let expression = json!({"expression": "*order", "frameId": frame, "context": "watch"});
        let order = editor.ask("evaluate", expression)["variablesReference"].clone();
        editor.ask("variables", json!({"variablesReference": order}));
        let child = json!({"name": "item", "variablesReference": order});
        let child = editor.ask("dataBreakpointInfo", child);
        assert_eq!(child["dataId"], watched["dataId"], "{child}");
        // One that the user deletes is made again.
        editor.ask(
            "evaluate",
            json!({"expression": "delete", "context": "repl"}),
        );
        let again = editor.ask("setDataBreakpoints", arguments);
        assert_eq!(again["breakpoints"][0]["verified"], true, "{again}");
        assert_ne!(again["breakpoints"][0]["id"], set["breakpoints"][0]["id"]);
        let stop = editor.go("reverseContinue", json!({"threadId": thread}));
        assert_eq!(stop["reason"], "data breakpoint", "{stop}");
        assert_eq!(editor.frames(thread)[0], at("cancel", 24));
        assert_eq!(editor.fact(thread, "position"), "0+60");
        let frame = editor.frame(thread);
        assert_eq!(
            editor.scope(frame, "Arguments"),
            [("number".to_owned(), "2".to_owned())]
        );
        editor.ask("setDataBreakpoints", json!({"breakpoints": []}));

        // By instructions, back and forth.
        let arguments = json!({"threadId": thread, "granularity": "instruction"});
        let stop = editor.go("stepBack", arguments.clone());
        assert_eq!(stop["reason"], "step", "{stop}");
        assert_eq!(editor.fact(thread, "position"), "0+59");
        editor.go("stepIn", arguments);
        assert_eq!(editor.fact(thread, "position"), "0+60");

        // Breakpoints with conditions, on the way back and forth.
        let place = json!([{"line": 17, "condition": "number == 2"}]);
        let arguments = json!({"source": source(), "breakpoints": place});
        let set = editor.ask("setBreakpoints", arguments);
        assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
        let stop = editor.go("reverseContinue", json!({"threadId": thread}));
        assert_eq!(stop["reason"], "breakpoint", "{stop}");
        let frame = editor.frame(thread);
        let arguments = editor.scope(frame, "Arguments");
        assert!(
            arguments.contains(&("number".to_owned(), "2".to_owned())),
            "{arguments:?}"
        );
        let arguments = json!({"source": source(), "breakpoints": []});
        editor.ask("setBreakpoints", arguments);
        let stop = editor.go("reverseContinue", json!({"threadId": thread}));
        assert_eq!(stop["reason"], "stopped", "{stop}");
        assert_eq!(editor.fact(thread, "position"), "0+0");
        let stop = editor.go("continue", json!({"threadId": thread}));
        assert_eq!(stop["reason"], "stopped", "{stop}");
        assert_eq!(editor.fact(thread, "position"), "0+99");

        // Positions at which a line ran: chosen, and by the command.
        let arguments = json!({"source": source(), "line": 23});
        let targets = editor.ask("gotoTargets", arguments);
        let targets = targets["targets"].as_array().unwrap().clone();
        assert_eq!(targets.len(), 1, "{targets:?}");
        let arguments = json!({"threadId": thread, "targetId": targets[0]["id"]});
        let stop = editor.go("goto", arguments);
        assert_eq!(stop["reason"], "goto", "{stop}");
        assert_eq!(editor.frames(thread)[0], at("cancel", 23));
        let arguments = json!({"expression": "armsnap goto begin", "context": "repl"});
        let stop = editor.go("evaluate", arguments);
        assert_eq!(stop["reason"], "goto", "{stop}");
        assert_eq!(editor.fact(thread, "position"), "0+0");
        let arguments = json!({"threadId": thread, "targetId": 77});
        let sequence = editor.send("goto", arguments);
        assert_eq!(editor.response(sequence)["success"], false);

        editor.ask("disconnect", json!({}));
        editor.ends();
    }
}

/// The lines that `reverse-next` reaches in GDB from the end, and those of `stepBack`.
#[test]
fn lines_memory_and_code_are_those_of_the_command_line() {
    for gdb in gdbs() {
        let mut command = armsnap();
        command
            .arg("gdb")
            .arg(testdata("demo"))
            .arg("--gdb")
            .arg(&gdb);
        command.args(["--", "-nx", "-batch"]);
        for _ in 0..12 {
            command.args([
                "-ex",
                "reverse-next",
                "-ex",
                "echo line:\\n",
                "-ex",
                "frame",
            ]);
        }
        let shown = text(&run(command.args(["-ex", "monitor where"])));
        let after = shown.split("line:\n").skip(1);
        let lines: Vec<u64> = after
            .map(|frame| {
                let frame = frame.lines().next().unwrap();
                frame.rsplit(':').next().unwrap().parse().unwrap_or(0)
            })
            .collect();
        let mut editor = Client::new(&testdata("demo"), &gdb);
        editor.attach("attach", |_| ());
        let thread = editor.ask("threads", json!({}))["threads"][0]["id"]
            .as_u64()
            .unwrap();
        let mut found = Vec::new();
        for _ in &lines {
            editor.go("stepBack", json!({"threadId": thread}));
            found.push(editor.frames(thread)[0].1);
        }
        assert_eq!(found, lines, "{shown}");
        assert_eq!(lines.len(), 12);
        let position = editor.fact(thread, "position");
        assert!(
            shown.contains(&format!("cpu_0 at {position}\n")),
            "{position}: {shown}"
        );

        let code = json!({"memoryReference": "0x400118", "offset": 0, "count": 16});
        let memory = editor.ask("readMemory", code);
        let elf = std::fs::read(testdata("demo/demo.elf")).unwrap();
        // The segment of code starts at the file's start, and at 0x400000.
        assert_eq!(memory["data"], base64(&elf[0x118..0x128]), "{memory}");
        let code = json!({"memoryReference": "0x400118", "instructionCount": 2});
        let code = editor.ask("disassemble", code);
        let first = code["instructions"][0]["instruction"].as_str().unwrap();
        assert!(first.starts_with("adrp\tx1, 0x401000"), "{code}");
        editor.ask("disconnect", json!({}));
        editor.ends();
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            let shown = digit <= three.len();
            out.push(if shown {
                char::from(DIGITS[value as usize])
            } else {
                '='
            });
        }
    }
    out
}

#[test]
fn several_threads_and_a_disconnection_in_the_middle() {
    for gdb in gdbs() {
        let mut editor = Client::new(&testdata("recorded/etmv4"), &gdb);
        editor.attach("attach", |editor| {
            let arguments = json!({"breakpoints": [{"name": "price_order"}]});
            editor.ask("setFunctionBreakpoints", arguments);
        });
        let threads = editor.ask("threads", json!({}));
        let mut threads: Vec<u64> = threads["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|thread| thread["id"].as_u64().unwrap())
            .collect();
        threads.sort_unstable();
        assert_eq!(threads, [1, 2]);
        let second = editor.frames(threads[1]);
        assert_eq!(second[0].0, "wait_for_reader", "{second:?}");
        assert_eq!(editor.fact(threads[1], "core"), "Cortex-A57_1");
        let stop = editor.go("reverseContinue", json!({"threadId": threads[0]}));
        assert_eq!(stop["reason"], "breakpoint", "{stop}");
        assert_eq!(stop["threadId"], threads[0]);
        let frames = editor.frames(threads[0]);
        assert_eq!(frames[0].0, "price_order", "{frames:?}");
        let own =
            json!({"threadId": threads[1], "singleThread": true, "granularity": "instruction"});
        let (first, before) = (
            editor.fact(threads[0], "position"),
            editor.fact(threads[1], "position"),
        );
        editor.go("stepBack", own);
        assert_eq!(editor.fact(threads[0], "position"), first);
        assert_ne!(editor.fact(threads[1], "position"), before);
        // Answered with success, no stop would follow.
        for command in ["stepBack", "reverseContinue"] {
            for arguments in [json!({"threadId": 99}), json!({"threadId": "1"}), json!({})] {
                let sequence = editor.send(command, arguments.clone());
                let answer = editor.response(sequence);
                assert_eq!(answer["success"], false, "{command} {arguments}: {answer}");
            }
        }
        // Without waiting for the end of the move.
        editor.send("reverseContinue", json!({"threadId": threads[0]}));
        let sequence = editor.send("disconnect", json!({}));
        assert_eq!(editor.response(sequence)["success"], true);
        editor.ends();

        let mut editor = Client::new(&testdata("recorded/etmv4"), &gdb);
        editor.attach("attach", |_| ());
        editor.send("reverseContinue", json!({"threadId": 1}));
        editor.vanishes();
    }
}

/// The thread of GDB that reads would end, and GDB would wait for ever, even after the editor has
/// gone.
#[test]
fn what_is_no_request_ends_the_session_with_a_message() {
    let framed = |text: &str| format!("Content-Length: {}\r\n\r\n{text}", text.len());
    for gdb in gdbs() {
        for text in [
            "hello\r\n\r\n".to_owned(),
            framed(r#"{"seq": 1, "#),
            framed(r#"{"seq": 1, "type": "request"}"#),
        ] {
            let mut editor = Client::new(&testdata("demo"), &gdb);
            editor.send_text(&text);
            // The console has other lines before this one. If it does not come, the test runs into
            // its timeout.
            let mut refused = false;
            while !refused {
                let said = editor.event("output");
                refused = said["output"].to_string().contains("not a request");
            }
            editor.ends();
        }
        // Some editors write this where there are no arguments.
        let mut editor = Client::new(&testdata("demo"), &gdb);
        let sequence = editor.send("nonsense", serde_json::Value::Null);
        assert_eq!(editor.response(sequence)["success"], false);
        let sequence = editor.send("disconnect", serde_json::Value::Null);
        assert_eq!(editor.response(sequence)["success"], true);
        editor.ends();
    }
}

/// GDB takes no quotes in the name of a file.
#[test]
fn a_directory_may_have_quotes_in_its_name() {
    for gdb in gdbs() {
        for name in ["it's", "\"it\"", "a b"] {
            let directory = tempfile::tempdir().unwrap();
            let snapshot = directory.path().join(name);
            std::fs::create_dir(&snapshot).unwrap();
            for file in std::fs::read_dir(testdata("demo")).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), snapshot.join(file.file_name())).unwrap();
            }
            let mut editor = Client::new(&snapshot, &gdb);
            editor.attach("launch", |_| ());
            let here = json!({"source": {"path": snapshot.join(SOURCE)}, "line": 28});
            let targets = editor.ask("gotoTargets", here);
            assert_eq!(targets["targets"][0]["line"], 28, "{name}: {targets}");
            // The line of another file of the same name.
            let other = json!({"source": {"path": directory.path().join(SOURCE)}, "line": 28});
            let targets = editor.ask("gotoTargets", other);
            assert_eq!(targets["targets"], json!([]), "{name}");
        }
    }
}
