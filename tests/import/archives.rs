//! Snapshots in tar archives, and compressed buffers and trace files: they show what the plain ones show.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::record::installed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that compresses, and the usual extension.
const TOOLS: [(&str, &str); 5] = [
    ("gzip", "gz"),
    ("bzip2", "bz2"),
    ("xz", "xz"),
    ("zstd", "zst"),
    ("lz4", "lz4"),
];

fn tar(directory: &Path, arguments: &[&str]) {
    let mut tar = Command::new("tar");
    let output = run(tar.current_dir(directory).args(arguments));
    assert!(output.status.success(), "{}", text(&output));
}

/// Compresses a file; `None` if the program is not installed.
fn packed(path: &Path, (tool, extension): (&str, &str)) -> Option<PathBuf> {
    if !installed(&[tool]) {
        return None;
    }
    let name = PathBuf::from(format!("{}.{extension}", path.display()));
    let output = run(Command::new(tool).args(["-c", "-q"]).arg(path));
    assert!(output.status.success(), "{tool}");
    fs::write(&name, output.stdout).unwrap();
    Some(name)
}

fn said(arguments: &[&str], path: &Path) -> String {
    let output = run(armsnap().args(arguments).arg(path));
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A copy of a snapshot in a new directory, as `board`.
fn board(scratch: &Path) -> PathBuf {
    let board = scratch.join("board");
    fs::create_dir(&board).unwrap();
    for entry in fs::read_dir(testdata("recorded/etmv4")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), board.join(entry.file_name())).unwrap();
    }
    board
}

#[test]
fn a_snapshot_in_an_archive_shows_the_same() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let board = board(scratch.path());
    let plain = scratch.path().join("board.tar");
    tar(scratch.path(), &["-cf", "board.tar", "board"]);
    tar(&board, &["-cf", "../flat.tar", "."]);
    let decode = ["decode", "--level", "instructions"];
    let listing = said(&decode, &board);
    let commands = [
        "bt",
        "info registers pc sp x0",
        "x/4xw $sp",
        "reverse-stepi",
    ];
    let shown = |path: &Path| {
        let said = session(path, &[], &commands);
        let lines = said.lines().map(str::to_owned);
        // GDB says where it reads the program.
        let lines =
            lines.filter(|line| !line.contains("target:") && !line.contains("remote target"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let wanted = shown(&board);
    assert!(wanted.contains("#1 "), "{wanted}");
    let mut archives = vec![plain.clone(), scratch.path().join("flat.tar")];
    archives.extend(TOOLS.iter().filter_map(|tool| packed(&plain, *tool)));
    for (index, archive) in archives.iter().enumerate() {
        assert!(said(&decode, archive) == listing, "{}", archive.display());
        let into = scratch.path().join(format!("into{index}"));
        let mut import = armsnap();
        let output = run(import.arg("import").arg(archive).arg(&into));
        assert!(output.status.success(), "{}", text(&output));
        for entry in fs::read_dir(&board).unwrap() {
            let entry = entry.unwrap();
            let there = fs::read(into.join(entry.file_name())).unwrap();
            assert_eq!(there, fs::read(entry.path()).unwrap());
        }
    }
    assert_eq!(shown(&archives[1]), wanted);
    assert_eq!(shown(archives.last().unwrap()), wanted);
    let alone = scratch.path().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(&plain, alone.join("board.tar")).unwrap();
    let alone = run(armsnap().current_dir(alone));
    let alone = text(&alone);
    assert!(
        alone.contains("board.tar: a snapshot in an archive"),
        "{alone}"
    );
}

#[test]
fn compressed_buffers_and_trace_files_are_opened() {
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace.bin");
    fs::copy(testdata("recorded/etmv4/trace.bin"), &trace).unwrap();
    let program = testdata("recorded/etmv4/program.elf");
    let listing = |raw: &Path, into: &str| {
        let into = scratch.path().join(into);
        let mut import = armsnap();
        import
            .args(["import", "--core", "Cortex-A53", "--raw"])
            .arg(raw);
        let output = run(import.arg("--elf").arg(&program).arg(&into));
        assert!(output.status.success(), "{}", text(&output));
        said(&["decode"], &into)
    };
    let wanted = listing(&trace, "plain");
    let file = scratch.path().join("board.tf");
    let mut convert = armsnap();
    convert.arg("convert").arg(testdata("recorded/etmv4"));
    let output = run(convert
        .args(["--state-only", "--core", "Cortex-A57_0"])
        .arg(&file));
    assert!(output.status.success(), "{}", text(&output));
    let snapshot = |from: &Path, into: &str| {
        let into = scratch.path().join(into);
        let output = run(armsnap().arg("convert").arg(from).arg(&into));
        assert!(output.status.success(), "{}", text(&output));
        said(&["info"], &into).replace(&into.display().to_string(), "")
    };
    let known = snapshot(&file, "from-plain");
    for tool in TOOLS {
        if let Some(raw) = packed(&trace, tool) {
            assert!(listing(&raw, tool.0) == wanted, "{}", tool.0);
            let file = packed(&file, tool).unwrap();
            assert_eq!(snapshot(&file, &format!("from-{}", tool.0)), known);
        }
    }
}

#[test]
fn archives_of_others_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let board = board(scratch.path());
    let shell = |script: &str| {
        let output = run(Command::new("sh")
            .current_dir(scratch.path())
            .args(["-c", script]));
        assert!(output.status.success(), "{}", text(&output));
    };
    shell("cp -r board other; tar -cf two.tar board other");
    shell("tar -cf none.tar board/trace.bin");
    shell(
        "head -c 160000000 /dev/zero | tr '\\0' a > board/zz; tar -cf - board | gzip -9 > large.tar.gz",
    );
    fs::remove_file(board.join("zz")).unwrap();
    for (name, wanted) in [
        (
            "two.tar",
            "is an archive of several snapshots (board/snapshot.ini, other/snapshot.ini)",
        ),
        ("none.tar", "is an archive: unpack it"),
        ("large.tar.gz", "out of proportion"),
    ] {
        let output = run(armsnap().arg("info").arg(scratch.path().join(name)));
        let said = text(&output);
        assert!(!output.status.success() && said.contains(wanted), "{said}");
    }
    shell(
        "cp -r board many; for n in $(seq 90); do ln -s program.elf many/$n.elf; done; tar -cf many.tar many",
    );
    let output = run(armsnap().arg("info").arg(scratch.path().join("many.tar")));
    assert!(
        text(&output).contains("whose links lead to"),
        "{}",
        text(&output)
    );
    // A link that leaves the archive leads nowhere, and is not followed on this machine.
    shell(
        "cp board/trace.bin outside.bin; ln -sf ../outside.bin board/trace.bin; tar -cf link.tar board",
    );
    shell("cd board; tar -cf ../flat.tar .");
    for (name, there) in [("link.tar", false), ("flat.tar", false)] {
        let output = run(armsnap().arg("check").arg(scratch.path().join(name)));
        assert_eq!(
            text(&output).contains("trace.bin"),
            !there,
            "{}",
            text(&output)
        );
    }
}
