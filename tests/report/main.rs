//! Reports: the page in a browser, the summary, and their figures.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod command;
mod figures;
mod made_page;
mod timeline;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const TESTDATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots");

/// Runs `armsnap report`.
fn report(snapshot: &Path, arguments: &[&str]) -> Output {
    Command::new(crate::support::armsnap())
        .arg("report")
        .arg(snapshot)
        .args(arguments)
        .output()
        .unwrap()
}

/// A page with its summary.
struct Report {
    path: PathBuf,
    summary: String,
    _directory: TempDir,
}

impl Report {
    /// Reports on a snapshot, which must succeed.
    #[track_caller]
    fn of(snapshot: &Path, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.html");
        let output = report(
            snapshot,
            &[&["--html", path.to_str().unwrap()], arguments].concat(),
        );
        assert!(output.status.success(), "{output:?}");
        Self {
            path,
            summary: String::from_utf8(output.stdout).unwrap(),
            _directory: directory,
        }
    }

    /// What the page's script reads.
    fn data(&self) -> Value {
        let page = std::fs::read_to_string(&self.path).unwrap();
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    }

    /// A total, as on the page and in the summary.
    #[track_caller]
    fn total(&self, data: &Value, name: &str) -> u64 {
        let totals = data["totals"].as_array().unwrap();
        let total = totals.iter().find(|total| total[0] == name).unwrap();
        let (value, title) = (total[1].as_u64().unwrap(), total[2].as_str().unwrap());
        let shown = |line: &str| {
            line.split_once("  ").is_some_and(|(_, rest)| {
                let (number, named) = rest.trim().split_once("  ").unwrap_or_default();
                number == value.to_string() && named == title
            })
        };
        assert!(self.summary.lines().any(shown), "{name}: {}", self.summary);
        value
    }
}

/// A recorded snapshot in the repository.
fn recorded(name: &str) -> PathBuf {
    Path::new(TESTDATA).join("recorded").join(name)
}

/// The real captures; none where they are not there.
fn captures() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(CAPTURES) else {
        support::skip::missing("the real captures");
        return Vec::new();
    };
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("snapshot.ini").exists())
        .collect();
    all.sort();
    assert!(all.len() > 10, "{all:?}");
    all
}
