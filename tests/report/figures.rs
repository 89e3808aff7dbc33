//! The figures of reports: they agree with those of `decode --stats` and with each other.

use crate::support::browser::{self, Browser};
use crate::support::program::program;
use crate::support::program::record::Recording;
use crate::{Report, captures, recorded};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn stats(snapshot: &Path) -> Value {
    let output = Command::new(crate::support::armsnap())
        .arg("decode")
        .arg(snapshot)
        .args(["--format", "none", "--stats"])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn agree(snapshot: &Path) -> Report {
    let (report, stats) = (Report::of(snapshot, &[]), stats(snapshot));
    let data = report.data();
    for name in ["bytes", "packets", "elements", "instructions", "ranges"] {
        let total = report.total(&data, name);
        assert_eq!(stats[name], total, "{}: {name}", snapshot.display());
    }
    let functions = data["functions"].as_array().unwrap();
    let own: u64 = functions.iter().map(|row| row[4].as_u64().unwrap()).sum();
    // Instructions of Q elements belong to no function.
    assert!(own <= data["instructions"].as_u64().unwrap());
    report
}

#[test]
fn figures_are_those_of_decode() {
    for name in ["etmv3", "etmv4", "ptm"] {
        agree(&recorded(name));
    }
}

/// The same on the page; and the script handles every capture.
#[test]
fn real_captures_have_pages() {
    if !browser::is_available() {
        return;
    }
    let mut browser: Option<Browser> = None;
    for capture in captures() {
        let report = agree(&capture);
        let browser = browser.get_or_insert_with(|| Browser::open(&report.path, (1000, 800)));
        browser.visit(&report.path);
        browser.wait_for("page.canvases.length === page.data.tracks.length");
        assert_eq!(browser.complaints(), [""; 0], "{}", capture.display());
        let data = report.data();
        for name in ["bytes", "instructions", "gaps", "messages"] {
            let shown = browser.evaluate(&format!(
                "document.querySelector('[data-total={name}]').textContent.replaceAll(',', '')"
            ));
            let wanted = report.total(&data, name).to_string();
            assert_eq!(shown, wanted, "{}: {name}", capture.display());
        }
    }
}

/// Each function of the program is executed as often as the source says.
#[test]
fn functions_and_exceptions_of_a_recorded_program() {
    let recording = Recording::of(program("irq-a64-bare-a64"), &["--timestamps", "--cycles"]);
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/programs");
    let report = Report::of(&recording.snapshot(), &["--sources", sources]);
    let data = report.data();
    let functions = data["functions"].as_array().unwrap();
    let own: u64 = functions.iter().map(|row| row[4].as_u64().unwrap()).sum();
    assert_eq!(own, report.total(&data, "instructions"));
    let exceptions = data["exceptions"].as_array().unwrap();
    let of = |name: &str| {
        let row = exceptions.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name}: {exceptions:?}"))
    };
    // The program checks these numbers itself.
    assert_eq!(of("IRQ")["taken"], 6);
    assert_eq!(of("IRQ")["returned"], 6);
    for clock in ["instructions", "cycles", "time"] {
        let lengths = of("IRQ")[clock].as_array();
        let lengths = lengths.unwrap_or_else(|| panic!("{clock}: {exceptions:?}"));
        let lengths: Vec<u64> = lengths
            .iter()
            .map(|length| length.as_u64().unwrap())
            .collect();
        assert!(
            lengths.is_sorted() && lengths[0] > 0,
            "{clock}: {lengths:?}"
        );
    }
    let run = functions.iter().find(|row| row[0] == "run").unwrap();
    assert_eq!(run[6], 1, "it is called once");
    // The counts of lines, and those of their instructions.
    let file = &data["files"][run[2].as_u64().unwrap() as usize];
    assert!(file["name"].as_str().unwrap().ends_with("irq-a64.c"));
    let text = file["text"][0][1].as_str().expect("the source is found");
    let line = run[3].as_u64().unwrap();
    let shown = text.lines().nth(line as usize - 1).unwrap();
    assert!(shown.contains("run("), "{shown}");
    let counts = file["lines"].as_array().unwrap();
    let at = counts.chunks(2).find(|pair| pair[0] == line).unwrap();
    assert_eq!(at[1], 1);
}
