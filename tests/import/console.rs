//! `armsnap console`: the text in raw SWO, from bytes made by hand from the Armv7-M Architecture
//! Reference Manual (DDI 0403E), appendix D4.

use crate::capture;
use crate::perf_generated::frames;
use crate::support::gdb::{armsnap, run, session, testdata, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

/// The output of the console for a file with these bytes.
fn console(bytes: &[u8], options: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("capture.swo");
    fs::write(&file, bytes).unwrap();
    let output = run(armsnap().arg("console").arg(&file).args(options));
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// D4.2.8: bytes written to a port.
fn written(port: u8, text: &str) -> Vec<u8> {
    let packets = text.bytes().flat_map(|byte| [port << 3 | 1, byte]);
    packets.collect()
}

/// D4.2.1.
const SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];
/// D4.2.3.
const OVERFLOW: u8 = 0x70;

#[test]
fn lines_are_those_of_each_port() {
    let bytes = [
        &SYNC[..],
        &written(0, "first\nsec"),
        &written(3, "other\r\n"),
        &written(0, "ond\nopen"),
    ]
    .concat();
    assert_eq!(console(&bytes, &[]), "first\n[3] other\nsecond\nopen\n");
    assert_eq!(console(&bytes, &["--port", "3"]), "other\n");
    let both = ["--port", "0", "--port", "3"];
    assert_eq!(console(&bytes, &both), console(&bytes, &[]));
    let raw = console(&bytes, &["--raw"]);
    assert_eq!(raw, "first\nsecother\r\nond\nopen");
    // D4.2.6: page 1 of stimulus ports.
    let bytes = [&SYNC[..], &[0x18], &written(2, "paged\n")].concat();
    assert_eq!(console(&bytes, &[]), "[34] paged\n");
}

#[test]
fn words_are_text_or_numbers() {
    // Two and four bytes to port 0; "ä" in two packets; a padded word; numbers.
    let bytes = [
        &SYNC[..],
        &[0x02, b'a', b'b', 0x03, b'c', b'd', b'e', 0xc3],
        &[0x01, 0xa4, 0x03, b'!', 0, 0, 0],
        &[0x03, 2, 0, 0, 0, 0x02, 0xeb, 0, 0x03, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(console(&bytes, &[]), "abcdeä!<0x2><0xeb><0x0>\n");
}

#[test]
fn losses_are_marked_and_terminals_are_safe() {
    let bytes = [
        &SYNC[..],
        &[OVERFLOW],
        &written(0, "a\x1b[2J\tb\u{202e}"),
        &[OVERFLOW, OVERFLOW],
        &written(0, "c\n"),
        &[0x01, 0xff],
    ]
    .concat();
    let wanted = "[overflow]\na\\u{1b}[2J\tb\\u{202e}[overflow]c\n\u{fffd}\n";
    assert_eq!(console(&bytes, &[]), wanted);
    assert!(
        console(&bytes, &["--format", "jsonl"])
            .starts_with("{\"source\":\"ITM\",\"lost\":\"overflow\"}\n")
    );
}

#[test]
fn the_write_before_a_damaged_packet_is_left_out() {
    // The value of the second write is lost, and the next byte that arrived is in its place; 0x04 is
    // reserved (D4.1.1).
    let bytes = [
        &SYNC[..],
        &written(0, "a line of text that is long enough\na"),
        &[0x01, b'?', 0x04],
        &SYNC,
        &written(0, "b\nanother line of text that is long enough\n"),
    ]
    .concat();
    let lines = |text: String| text.lines().nth(1).unwrap().to_owned();
    for options in [&[][..], &["--port", "0"]] {
        let text = console(&bytes, options);
        assert_eq!(lines(text), "a[trace lost]b", "{options:?}");
    }
    assert_eq!(lines(console(&bytes, &["--raw"])), "ab");
}

#[test]
fn a_line_has_the_time_of_the_timestamp_after_its_first_byte() {
    // D4.2.4: format 2 with 2 ticks; format 1 with 200, and with 5 after an overflow.
    let bytes = [
        &SYNC[..],
        &written(0, "one\n"),
        &[0x20],
        &written(0, "t"),
        &[0xc0, 0xc8, 0x01],
        &written(0, "wo\n"),
        &[OVERFLOW],
        &written(0, "three\n"),
        &[0x50],
        &written(0, "four\n"),
    ]
    .concat();
    let shown = |options: &[&str]| {
        let options = [&["--times"], options].concat();
        let text = console(&bytes, &options);
        let lines = text.lines().map(|line| line.trim_start().to_owned());
        lines.collect::<Vec<String>>()
    };
    let wanted = [
        "-  one",
        "202  two",
        "≥207  [overflow]",
        "≥207  three",
        "-  four",
    ];
    assert_eq!(shown(&[])[1..], wanted[1..]);
    let scaled = shown(&["--prescaler", "16", "--clock", "1M"]);
    assert_eq!(scaled[1], "0.003232  two");
    let json = console(&bytes, &["--format", "jsonl", "--clock", "1k"]);
    assert!(
        json.contains("\"time\":202,\"seconds\":0.202,\"text\":\"two\""),
        "{json}"
    );
    assert!(
        json.contains("\"time\":207,\"seconds\":0.207,\"after_losses\":1,\"text\":\"three\""),
        "{json}"
    );
}

#[test]
fn sources_in_formatter_frames_are_named() {
    let lines: Vec<(u8, Vec<u8>)> = (0..20)
        .map(|n| (1 + n % 2, written(0, "a line of one of two sources\n")))
        .collect();
    let lines: Vec<(u8, &[u8])> = lines.iter().map(|(id, bytes)| (*id, &bytes[..])).collect();
    let shown = console(&frames(&lines), &[]);
    for source in ["ITM_01", "ITM_02"] {
        let line = format!("[{source} 0] a line of one of two sources");
        assert_eq!(
            shown.lines().filter(|shown| **shown == line).count(),
            10,
            "{shown}"
        );
    }
    let shown = console(&frames(&lines), &["--source", "ITM_02"]);
    assert_eq!(shown, "a line of one of two sources\n".repeat(10));
}

#[test]
fn text_is_shown_as_it_arrives() {
    let mut child = armsnap()
        .args(["console", "-", "--port", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = child.stdout.take().unwrap();
    to.write_all(&SYNC).unwrap();
    for part in ["> ", "ready", "\nmore\n"] {
        to.write_all(&written(0, part)).unwrap();
        let mut shown = vec![0; part.len()];
        from.read_exact(&mut shown).unwrap();
        assert_eq!(shown, part.as_bytes());
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn a_growing_file_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("swo");
    let mut file = File::create(&path).unwrap();
    let before = [&SYNC[..], &written(0, "there before\n")].concat();
    file.write_all(&before).unwrap();
    let mut child = armsnap()
        .args(["console", "-f"])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "there before");
    file.write_all(&written(0, "added\n")).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "added");
    drop(file);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_text_of_a_capture_is_found() {
    let Some(directory) = capture("swo-etmv3-stm32f105") else {
        return;
    };
    let bytes = fs::read(directory.join("swo.bin")).unwrap();
    let shown = console(&bytes, &["--port", "0"]);
    assert_eq!(shown.matches("On").count(), 5, "{shown}");
    assert_eq!(shown.matches("Off").count(), 5, "{shown}");
    let shown = console(&bytes, &["--port", "1"]);
    assert_eq!(
        shown.matches("Sort<0x2><0x2><0xb>#<0xeb>").count(),
        8,
        "{shown}"
    );
}

#[test]
fn gdb_shows_the_last_lines() {
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(testdata("mps2-m4")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, place.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let add = |file: &str, text: &str| {
        let path = place.path().join(file);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, before + text).unwrap();
    };
    let none = session(place.path(), &[], &["monitor console"]);
    assert!(none.contains("has no trace of an ITM or STM"), "{none}");
    add(
        "snapshot.ini",
        "device2=itm.ini\n[trace]\nmetadata=trace.ini\n",
    );
    add(
        "itm.ini",
        "[device]\nname=ITM_0\nclass=trace_source\ntype=ITM\n[regs]\nITMTCR=0x00010001\n",
    );
    add(
        "trace.ini",
        "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=SWO\nfile=swo.bin\nformat=source_data\n\
         [source_buffers]\nITM_0=SWO\n",
    );
    let bytes = [
        &SYNC[..],
        &written(0, "one\ntwo\n\x1b[2Jthree\n"),
        &written(4, "four\n"),
    ];
    fs::write(place.path().join("swo.bin"), bytes.concat()).unwrap();
    let shown = session(place.path(), &[], &["monitor console"]);
    assert!(
        shown.contains("one\ntwo\n\\u{1b}[2Jthree\n[4] four\n"),
        "{shown}"
    );
    let shown = session(
        place.path(),
        &[],
        &["monitor console 1", "monitor console x"],
    );
    assert!(shown.contains("-- 3 lines left out\n[4] four\n"), "{shown}");
    assert!(shown.contains("expected a number, found \"x\""), "{shown}");
}

#[test]
fn losses_do_not_fill_the_memory() {
    // All ports have an open line; each byte on one of them is followed by a loss.
    let pages = (0..8).flat_map(|page| {
        let ports = (0..32).flat_map(|port| written(port, "x"));
        [0x08 | page << 4].into_iter().chain(ports)
    });
    let losses = [&written(0, "y")[..], &[OVERFLOW]].concat().repeat(20_000);
    let bytes = [&SYNC[..], &pages.collect::<Vec<u8>>(), &losses].concat();
    let shown = console(&bytes, &[]);
    assert!(shown.len() < 1 << 20, "{}", shown.len());
}
