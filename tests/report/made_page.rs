//! Pages of made-up data: hostile names, and as much data as a page holds.

use crate::support::browser::{self, Browser};
use armsnap::page::blocks::{Block, BlockStretches, BlockTable};
use armsnap::page::clock::Clock;
use armsnap::page::data::{ExceptionRow, FileRow, FunctionRow, GapRow, PageData, TrackData};
use armsnap::page::marks::{MarkKind, Marks, Texts};
use armsnap::page::slices::{Slice, Slices};
use armsnap::page::write_page;
use serde_json::json;
use std::path::Path;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)><b>{{data}}&lt;`${1}'\"\u{202e}";

/// A page in which each text is this name, with `calls` calls of 3 instructions in one of all.
fn page(name: &str, calls: u64) -> PageData {
    let mut slices = Slices::new(400_000);
    let mut blocks = BlockStretches::new(1_000_000);
    let mut time = Clock::new(50_000);
    let mut marks = Marks::new(20_000);
    let slice = |start, end, function| Slice {
        start,
        end,
        function,
        flags: 0,
    };
    for call in 0..calls {
        let at = call * 3;
        slices.add(1, slice(at, at + 3, 1 + (call % 50) as u32));
        let block = Block {
            start: 0x2000 + call % 50 * 16,
            instructions: 3,
        };
        blocks.add(at, block);
        time.read(at, (1 << 60) + call * 7);
        if call % 1000 == 10 {
            marks.add(at, MarkKind::Gap, || name.to_owned());
        }
    }
    let length = calls * 3;
    slices.add(0, slice(0, length, 0));
    let function = |index: u64| FunctionRow {
        name: format!("{name} {index}"),
        start: 0x2000 + index * 16,
        file: Some(0),
        line: Some(index as u32 + 1),
        own: 51 - index,
        total: 51 - index,
        calls: 1,
        executed: 3,
        size: 4,
    };
    let table = BlockTable::of([&blocks].into_iter());
    let mut texts = Texts::default();
    let track = TrackData {
        name: name.to_owned(),
        note: Some(name.to_owned()),
        first: 0,
        length,
        unit: "instruction",
        rows: slices.pack(Some),
        blocks: blocks.pack(&table),
        marks: marks.pack(&mut texts),
        time: time.pack(1 << 60),
        cycles: String::new(),
    };
    let in_table = table.blocks().iter();
    PageData {
        title: name.to_owned(),
        made_by: name.to_owned(),
        totals: vec![("instructions", length, "instructions")],
        instructions: length,
        functions: (0..51).map(function).collect(),
        files: vec![FileRow {
            name: name.to_owned(),
            lines: (1..100).flat_map(|line| [line, line % 3]).collect(),
            covered: 66,
            known: 99,
            text: Some(vec![(1, vec![name; 100].join("\n"))]),
            note: Some(name.to_owned()),
        }],
        code: (0..51)
            .map(|index| {
                (
                    index,
                    vec![(0, 5, name.to_owned(), Some(index + 1), Some(0))],
                )
            })
            .collect(),
        blocks: in_table
            .map(|block| {
                (
                    format!("{:#x}", block.start),
                    3,
                    (block.start as i64 - 0x2000) / 16 + 1,
                )
            })
            .collect(),
        texts: texts.into_texts(),
        time_base: (1_u64 << 60).to_string(),
        tracks: vec![track],
        exceptions: vec![ExceptionRow {
            name: name.to_owned(),
            track: name.to_owned(),
            ..ExceptionRow::default()
        }],
        gaps: vec![GapRow {
            reason: name.to_owned(),
            track: 0,
            count: 1,
            place: 30,
        }],
        notes: vec![name.to_owned()],
    }
}

fn write(data: &PageData, path: &Path) -> u64 {
    let mut out = Vec::new();
    write_page(data, &mut out).unwrap();
    std::fs::write(path, &out).unwrap();

    out.len() as u64
}

#[test]
fn hostile_names_stay_text_everywhere() {
    if !browser::is_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    write(&page(HOSTILE, 100), &path);
    let mut browser = Browser::open(&path, (1200, 900));
    browser.wait_for("document.querySelectorAll('#functions-table tbody tr').length === 51");
    // Each function, its code and its source.
    browser.evaluate("document.querySelector('#functions-table td button').click()");
    browser.wait_for("document.querySelector('#source tr.here') !== null");
    assert_eq!(browser.complaints(), [""; 0]);
    assert_eq!(browser.evaluate("document.title"), HOSTILE);
    let elements = "document.querySelectorAll('img, b, main script, iframe, object').length";
    assert_eq!(browser.evaluate(elements), 0);
    let shown = browser.evaluate("document.querySelector('#source tr.here .text').textContent");
    assert_eq!(shown, HOSTILE);
    let name = browser.evaluate("document.getElementById('code-name').textContent");
    assert_eq!(name, format!("{HOSTILE} 0"));
}

/// The page of a part of a trace in which one core executed nothing.
#[test]
fn tracks_without_anything_do_not_widen_the_timeline() {
    if !browser::is_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    let mut data = page("function", 1000);
    data.tracks[0].first = 900;
    let empty = || TrackData {
        name: "empty".to_owned(),
        note: None,
        first: 0,
        length: 0,
        unit: "instruction",
        rows: Vec::new(),
        blocks: String::new(),
        marks: String::new(),
        time: String::new(),
        cycles: String::new(),
    };
    data.tracks.push(empty());
    write(&data, &path);
    let mut browser = Browser::open(&path, (1200, 900));
    let drawn = browser.evaluate("[page.view.first, page.view.last]");
    assert_eq!(drawn, json!([900, 3000]));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A core without timestamps is not on their axis, nor for the keyboard.
#[test]
fn keys_select_nothing_on_an_axis_that_the_core_lacks() {
    if !browser::is_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    let mut data = page("function", 1000);
    let mut other = page("function", 1000).tracks.remove(0);
    other.time = String::new();
    data.tracks.push(other);
    write(&data, &path);
    let mut browser = Browser::open(&path, (1200, 900));
    // Selected on one axis, and not moved to on the other.
    browser.evaluate("page.canvases[1].canvas.focus()");
    browser.press("ArrowRight", None);
    browser.evaluate("document.querySelector('#axis [value=time]').click()");
    let view = "[page.view.from, page.view.to]";
    let before = browser.evaluate(view);
    browser.evaluate("page.canvases[1].canvas.focus()");
    for key in ["z", "ArrowRight", "m", "Enter"] {
        browser.press(key, None);
    }
    assert_eq!(browser.evaluate(view), before);
    assert_eq!(browser.evaluate("location.hash"), "");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A call each 3 instructions, 3e6 calls: merged where a pixel cannot show them.
#[test]
fn a_full_page_is_bounded_and_moves_smoothly() {
    if !browser::is_available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    let bytes = write(&page("function", 3_000_000), &path);
    assert!(bytes < 20_000_000, "{bytes}");
    let mut browser = Browser::open(&path, (1200, 900));
    browser.wait_for("document.querySelectorAll('#functions-table tbody tr').length === 51");
    let milliseconds = browser.evaluate(
        "(() => { const start = performance.now(); \
         for (let i = 0; i < 100; i++) { page.view.zoom(i < 50 ? 0.8 : 1.25); \
         page.canvases.forEach((canvas) => canvas.draw()); page.view.pan(0.01); } \
         return (performance.now() - start) / 100; })()",
    );
    assert_eq!(browser.complaints(), [""; 0]);
    eprintln!("{bytes} bytes, {milliseconds} ms a picture");
}
