//! The report on a hundred million instructions: bounded, and drawn on every axis.

use crate::support::browser::{self, Browser};
use crate::support::program::program;
use crate::support::program::record::Recording;
use std::process::Command;

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn the_page_of_a_long_recording_is_bounded() {
    let recording = Recording::of(program("sieve-a64"), &["--timestamps", "--cycles"]);
    let page = recording.place("page.html");
    let report = Command::new(crate::support::armsnap())
        .arg("report")
        .arg(recording.snapshot())
        .arg("--html")
        .arg(&page)
        .output()
        .unwrap();
    assert!(report.status.success(), "{report:?}");
    let bytes = page.metadata().unwrap().len();
    assert!(bytes < 20_000_000, "{bytes}");
    if !browser::is_available() {
        return;
    }
    let mut browser = Browser::open(&page, (1200, 900));
    browser.wait_for("page.canvases.length === 1");
    let own = "page.functions.reduce((sum, called) => sum + called.self, 0)";
    let own = browser.evaluate(own).as_u64().unwrap();
    assert_eq!(browser.evaluate("page.data.instructions"), own);
    assert!(own > 100_000_000, "{own}");
    for axis in ["instructions", "time", "cycles"] {
        browser.evaluate(&format!("page.view.measure('{axis}')"));
        browser.evaluate(
            "(() => { for (let i = 0; i < 60; i++) { page.view.zoom(i < 30 ? 0.7 : 1.4); \
             page.canvases[0].draw(); page.view.pan(0.01); } return true; })()",
        );
    }
    assert_eq!(browser.complaints(), [""; 0]);
}
