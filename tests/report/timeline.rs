//! The timeline, by mouse and by keyboard.

use crate::support::browser::{self, Browser};
use crate::support::program::program;
use crate::support::program::record::Recording;
use crate::{Report, TESTDATA, recorded};
use serde_json::json;
use std::process::Command;

/// Finds the first slice of a function on a track: the middle of it in the window.
const FIND: &str = "(track, name) => {
    const canvas = page.canvases[track];
    for (const [number, row] of canvas.track.rows.entries()) {
        const slice = [...row.what].findIndex((what) => page.name(what) === name);
        if (slice < 0) continue;
        page.view.around(row.starts[slice], row.ends[slice]);
        canvas.canvas.scrollIntoView({ block: 'center' });
        const box = canvas.canvas.getBoundingClientRect();
        const middle = (canvas.x(row.starts[slice]) + canvas.x(row.ends[slice])) / 2;
        const y = MARKS + number * ROW + ROW / 2 - canvas.rows.scrollTop;
        return [box.x + middle, box.y + y];
    }
    return null;
}";

/// The line of a function's first instruction, as binutils read it.
fn line_of(browser: &mut Browser, name: &str) -> String {
    let start = browser.evaluate(&format!(
        "page.functions.find((called) => called.name === '{name}').start"
    ));
    let output = Command::new("aarch64-linux-gnu-addr2line")
        .args(["-e", &format!("{TESTDATA}/virt-a57/program.elf")])
        .arg(start.as_str().unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, line) = text.trim().rsplit_once(':').unwrap();
    line.split(' ').next().unwrap().to_owned()
}

fn open() -> Option<(Report, Browser)> {
    if !browser::is_available() {
        return None;
    }
    let sources = format!("{TESTDATA}/virt-a57");
    let report = Report::of(&recorded("etmv4"), &["--sources", &sources]);
    let browser = Browser::open(&report.path, (1200, 900));
    Some((report, browser))
}

const HERE: &str = "document.querySelector('#source tr.here')?.dataset.line ?? null";

#[test]
fn a_click_on_a_slice_leads_to_its_source_line() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    // The source of main begins below what fits into the view of the file.
    for name in ["insert", "receipt", "main"] {
        let point = browser.evaluate(&format!("({FIND})(0, '{name}')"));
        let (x, y) = (point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
        browser.click(x, y);
        browser.wait_for(&format!(
            "document.getElementById('code-name').textContent === '{name}'"
        ));
        let line = line_of(&mut browser, name);
        assert_eq!(browser.evaluate(HERE), line, "{name}");
        // It is in view, and has the focus.
        let visible = "(() => { const row = document.querySelector('#source tr.here'); \
            const box = row.getBoundingClientRect(); \
            const side = row.closest('.side').getBoundingClientRect(); \
            return document.activeElement === row && box.top >= Math.max(side.top, 0) && \
                box.bottom <= Math.min(side.bottom, innerHeight); })()";
        assert_eq!(browser.evaluate(visible), true, "{name}");
    }
    // Back to the previous one.
    browser.evaluate("history.back()");
    browser.wait_for("document.getElementById('code-name').textContent === 'receipt'");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A click on a block leads to its instruction and to the line of that.
#[test]
fn a_click_on_a_block_leads_to_its_instruction() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    let point = browser.evaluate(
        "(() => { const canvas = page.canvases[0]; const row = canvas.track.blocks; \
          const slice = [...row.what].lastIndexOf(page.functions.findIndex((f) => f.name === 'receipt')); \
          page.view.around(row.starts[slice], row.ends[slice]); \
          canvas.canvas.scrollIntoView({ block: 'center' }); \
          const box = canvas.canvas.getBoundingClientRect(); \
          const number = canvas.track.rows.indexOf(row); \
          return [box.x + canvas.x(row.starts[slice]) + 3, box.y + MARKS + number * ROW + 4, \
            page.data.blocks[row.blocks[slice]][0]]; })()",
    );
    browser.click(point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
    browser.wait_for("document.querySelector('#disassembly tr.here') !== null");
    let at = "document.querySelector('#disassembly tr.here .at').textContent";
    assert_eq!(browser.evaluate(at), point[2]);
    let line = "document.querySelector('#disassembly tr.here button').textContent";
    assert_eq!(browser.evaluate(line), browser.evaluate(HERE));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Wherever a line is drawn, also at the right edge, its label is not cut.
#[test]
fn the_labels_of_the_axis_are_whole() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    let cut = "(() => { \
        const ruler = document.getElementById('ruler'); \
        const text = CanvasRenderingContext2D.prototype.fillText; \
        const cut = []; \
        let drawn = 0; \
        CanvasRenderingContext2D.prototype.fillText = function (label, x, y) { \
            if (this.canvas !== ruler) return text.call(this, label, x, y); \
            drawn += 1; \
            const end = x + this.measureText(label).width; \
            if (x < 0 || end > ruler.clientWidth) cut.push([label, x, end]); \
        }; \
        for (let to = 1000; to < 1100; to += 1) { page.view.show(0, to); page.drawRuler(); } \
        CanvasRenderingContext2D.prototype.fillText = text; \
        return { cut, enough: drawn > 500 }; })()";
    let expected = json!({ "cut": [], "enough": true });
    assert_eq!(browser.evaluate(cut), expected);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_keyboard_reaches_everything() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    browser.evaluate("page.canvases[0].canvas.focus()");
    let status = "document.getElementById('selected').textContent";
    // main is called by the code that the trace starts in.
    for _ in 0..2 {
        browser.press("ArrowRight", None);
    }
    for _ in 0..2 {
        browser.press("ArrowDown", None);
    }
    let shown = browser.evaluate(status);
    assert!(shown.as_str().unwrap().contains("insert"), "{shown}");
    browser.press("ArrowUp", None);
    let shown = browser.evaluate(status);
    assert!(shown.as_str().unwrap().starts_with("main,"), "{shown}");
    let width = "page.view.to - page.view.from";
    let before = browser.evaluate(width).as_f64().unwrap();
    browser.press("+", Some("+"));
    assert_eq!(browser.evaluate(width).as_f64().unwrap(), before / 2.0);
    browser.press("-", Some("-"));
    browser.press("0", Some("0"));
    assert_eq!(browser.evaluate(width).as_f64().unwrap(), before);
    browser.press("Enter", Some("\r"));
    browser.wait_for("document.getElementById('code-name').textContent === 'main'");
    // Those who do not see the canvas read a table.
    browser.evaluate("document.getElementById('in-view').open = true");
    browser.wait_for("document.querySelectorAll('#in-view-table tbody tr').length > 10");
    let labels = "[...document.querySelectorAll('canvas:not([aria-hidden])')].every((canvas) => \
        canvas.tabIndex === 0 && canvas.getAttribute('aria-label').startsWith('Timeline of'))";
    assert_eq!(browser.evaluate(labels), true);
    let nameless = "[...document.querySelectorAll('main button, main input')].filter((control) => \
        !control.hidden && !control.textContent.trim() && !control.labels?.length).length";
    assert_eq!(browser.evaluate(nameless), 0);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn wheel_and_drag_zoom_and_pan() {
    let Some((_report, mut browser)) = open() else {
        return;
    };
    let view = "[page.view.from, page.view.to]";
    let point = browser.evaluate(&format!("({FIND})(0, 'main')"));
    let (x, y) = (point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
    browser.evaluate("page.view.whole()");
    let whole = browser.evaluate(view);
    let wheel =
        json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -200, "modifiers": 2});
    browser.call("Input.dispatchMouseEvent", wheel);
    browser.wait_for(&format!("page.view.to < {}", whole[1]));
    let zoomed = browser.evaluate(view);
    for (kind, x) in [
        ("mousePressed", x),
        ("mouseMoved", x - 100.0),
        ("mouseReleased", x - 100.0),
    ] {
        let event =
            json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1});
        browser.call("Input.dispatchMouseEvent", event);
    }
    let panned = browser.evaluate(view);
    let width = |view: &serde_json::Value| view[1].as_f64().unwrap() - view[0].as_f64().unwrap();
    assert!((width(&panned) - width(&zoomed)).abs() < 1e-6);
    assert!(panned[0].as_f64() > zoomed[0].as_f64(), "{zoomed} {panned}");
    // Dragging selects nothing.
    assert_eq!(browser.evaluate("location.hash"), "");
}

/// Exceptions nest, several axes, light and dark.
#[test]
fn exceptions_and_clocks_of_a_recorded_system() {
    if !browser::is_available() {
        return;
    }
    let recording = Recording::of(program("irq-a64-bare-a64"), &["--timestamps", "--cycles"]);
    let report = Report::of(&recording.snapshot(), &[]);
    let mut browser = Browser::open(&report.path, (1200, 900));
    // Callers in one context do not enclose the calls of another context.
    let nested = "(() => { const { rows } = page.canvases[0].track; \
        const count = rows.flatMap((row) => [...row.what]).filter((what, index) => page.name(what) === '[IRQ]').length; \
        const inside = rows.slice(1, -1).every((row, depth) => [...row.starts].every((start, slice) => { \
            const outer = rows[depth]; const around = after(outer.starts, start) - 1; \
            const end = around < 0 ? 0 : outer.ends[around]; \
            return end <= start || end >= row.ends[slice]; })); \
        return [count, inside]; })()";
    assert_eq!(browser.evaluate(nested), json!([6, true]));
    let axes = "[...document.querySelectorAll('#axis input')].map((input) => input.value)";
    assert_eq!(
        browser.evaluate(axes),
        json!(["instructions", "time", "cycles"])
    );
    for axis in ["time", "cycles"] {
        browser.evaluate(&format!(
            "document.querySelector('#axis [value={axis}]').click()"
        ));
        browser.wait_for(&format!("page.view.axis === '{axis}'"));
        let ascending = "(() => { const canvas = page.canvases[0]; const { track } = canvas; \
            const xs = Array.from({ length: 1000 }, (_, i) => page.view.at(track, track.length * i / 1000)); \
            return xs.every((x, i) => i === 0 || x >= xs[i - 1]) && xs[999] > xs[0]; })()";
        assert_eq!(browser.evaluate(ascending), true, "{axis}");
    }
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.evaluate(ground);
    browser.prefer("dark");
    browser.wait_for(&format!("{ground} !== {light}"));
    browser.wait_for("page.colours.ground === getComputedStyle(document.documentElement).getPropertyValue('--ground').trim()");
    assert_eq!(browser.complaints(), [""; 0]);
}
