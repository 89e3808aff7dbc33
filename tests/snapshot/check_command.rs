//! The output, streams and exit status of `armsnap check`.

use std::path::Path;
use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    let program = crate::support::armsnap();
    Command::new(program)
        .arg("check")
        .args(arguments)
        .output()
        .unwrap()
}

fn snapshot(dir: &Path, version: &str, dump: &str) {
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write(
        "snapshot.ini",
        &format!("[snapshot]\nversion={version}\n[device_list]\na=m.ini\n"),
    );
    write(
        "m.ini",
        &format!("[device]\nname=m\nclass=memory_space\n[dump]\nfile={dump}\naddress=0\n"),
    );
    write("f.bin", "abc");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn exit_status_distinguishes_errors_from_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for (version, dump, status, expected) in [
        ("1.0", "f.bin", 0, ""),
        (
            "1",
            "f.bin",
            0,
            "snapshot.ini:2: warning (advice): version 1: expected 1.0 [section 3.1.1]\n",
        ),
        (
            "1.0",
            "g.bin",
            1,
            "m.ini:5: error (required): [dump] file \"g.bin\": no such file [section 3.2.3]\n",
        ),
    ] {
        snapshot(dir.path(), version, dump);
        let output = check(&[path]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(text(&output.stdout), expected);
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn json_is_an_array_of_findings() {
    let dir = tempfile::tempdir().unwrap();
    snapshot(dir.path(), "3", "f.bin");
    let output = check(&[dir.path().join("snapshot.ini").to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!([{
        "file": "snapshot.ini", "line": 2, "severity": "error", "need": "required",
        "text": "version: expected 1.0, found \"3\": read as 1.0", "section": "3.1.1",
    }]);
    assert_eq!(json, expected);
}

#[test]
fn paths_outside_the_snapshot_need_permission() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("snapshot");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(dir.path().join("out.bin"), "x").unwrap();
    snapshot(&inside, "1.0", "../out.bin");
    let path = inside.to_str().unwrap();
    let output = check(&[path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("leads outside the snapshot's directory"));
    let output = check(&[path, "--allow-outside"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), String::new())
    );
}

#[test]
fn wrong_usage_and_missing_snapshots_fail() {
    assert_eq!(check(&[]).status.code(), Some(2));
    assert_eq!(check(&["a", "--no-such-option"]).status.code(), Some(2));
    let output = check(&["/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("no such file"), "{output:?}");
}
