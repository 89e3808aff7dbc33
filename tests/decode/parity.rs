//! Every capture with a reference listing decodes to the same packets and elements.
//!
//! The remaining differences, where the reference is wrong, are listed in
//! docs/reference-differences.md, and here with the number of different lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The differences in the packets of a snapshot: numbers of lines that only armsnap or only the
/// reference lists (`ID packet OFFSET BYTES`).
const DIFFERENT: [(&str, &[&str], &[&str]); 2] = [
    (
        "itm_only_raw",
        &[
            "00 packet 201 9482cffa77",
            "00 packet 219 94baa48e5a",
            "00 packet 248 94b2fceb41",
        ],
        &[
            "00 packet 201 9482cffa17",
            "00 packet 219 94baa48e1a",
            "00 packet 248 94b2fceb01",
        ],
    ),
    ("juno_r1_1", &["20 packet 896 8add2b"], &[]),
];

/// Prints the lines that only one of two listings has: `+` for armsnap's, `-` for the reference's.
const DIFFERENCE: &str = "
import sys
sys.path.insert(0, sys.argv[1])
import compare, elements
want = {f'{i:02x} {l}' for i, ls in compare.expected(sys.argv[2]).items() for l in ls}
read = elements.read('jsonl-packets', sys.argv[3])
have = {f'{i:02x} {l}' for i, ls in read.items() for l in ls}
for line in sorted(have - want):
    print('+' + line)
for line in sorted(want - have):
    print('-' + line)
";

fn shared() -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if path.is_dir() {
        return Some(path.to_owned());
    }
    crate::support::skip::missing("../shared is not there");
    None
}

fn python(arguments: &[&std::ffi::OsStr]) -> String {
    let output = Command::new("python3")
        .arg("-B")
        .args(arguments)
        .output()
        .expect("python3 is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn decode(shared: &Path, name: &str, level: &str) -> tempfile::NamedTempFile {
    let listing = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new(crate::support::armsnap())
        .args(["decode", "--format", "jsonl", "--level", level])
        .arg(shared.join("snapshots").join(name))
        .stdout(listing.reopen().unwrap())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{name}: {status}");
    listing
}

/// The output of compare.py if there is a difference.
fn disagreement(shared: &Path, name: &str, level: &str) -> Option<String> {
    let listing = decode(shared, name, level);
    let script = shared.join("parity/compare.py");
    let expected = shared.join(format!("parity/expected/{name}.{level}.gz"));
    let mut arguments = vec![script.as_os_str()];
    if level == "packets" {
        arguments.push("--packets".as_ref());
    }
    arguments.extend([expected.as_os_str(), listing.path().as_os_str()]);
    let text = python(&arguments);
    let last = text.lines().last().unwrap();
    let mut words = last.split(' ');
    let (agree, total) = (words.next().unwrap(), words.nth(1).unwrap());
    (agree != total || total == "0").then(|| format!("{name} {level}:\n{text}"))
}

fn every_capture_agrees(level: &str) {
    let Some(shared) = shared() else {
        return;
    };
    let suffix = format!(".{level}.gz");
    let mut names: Vec<String> = std::fs::read_dir(shared.join("parity/expected"))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(&suffix).map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 18, "{names:?}");
    let wrong: String = names
        .iter()
        .filter(|name| level != "packets" || !DIFFERENT.iter().any(|(n, _, _)| n == name))
        .filter_map(|name| disagreement(&shared, name, level))
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn packets_agree_with_the_reference() {
    every_capture_agrees("packets");
}

#[test]
fn elements_agree_with_the_reference() {
    every_capture_agrees("elements");
}

#[test]
fn packets_differ_only_where_the_reference_is_wrong() {
    let Some(shared) = shared() else {
        return;
    };
    for (name, ours, theirs) in DIFFERENT {
        let listing = decode(&shared, name, "packets");
        let text = python(&[
            "-c".as_ref(),
            DIFFERENCE.as_ref(),
            shared.join("parity").as_os_str(),
            shared
                .join(format!("parity/expected/{name}.packets.gz"))
                .as_os_str(),
            listing.path().as_os_str(),
        ]);
        let only = |sign: char| -> Vec<&str> {
            text.lines()
                .filter_map(|line| line.strip_prefix(sign))
                .collect()
        };
        assert_eq!(only('+'), *ours, "{name}: only ours");
        assert_eq!(only('-'), *theirs, "{name}: only theirs");
    }
}
