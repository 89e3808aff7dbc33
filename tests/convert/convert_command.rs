//! `armsnap convert` and the file system: names, refused output, incomplete files.

use crate::support::convert::convert;
use crate::support::gdb::{armsnap, run, testdata, text};
use armsnap::tfile::File;
use std::path::Path;

#[test]
fn nothing_is_overwritten_and_no_incomplete_files_remain() {
    let path = testdata("mps2-m4");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out.tf");
    convert(&[], [&path, &file]);
    let status = |arguments: &[&Path], options: &[&str]| {
        let output = run(armsnap().arg("convert").args(arguments).args(options));
        (output.status.code().unwrap(), text(&output))
    };
    let back = directory.path().join("back");
    for (arguments, options, code, told) in [
        ([&*path, &*file], &[][..], 2, "--force"),
        ([&*path, &*file], &["--force"], 0, ""),
        (
            [&*path, &*file],
            &["--frame", "1", "--force"],
            2,
            "--frame: the input is a snapshot",
        ),
        (
            [&*file, &*back],
            &["--last", "1"],
            2,
            "--last: the input is a trace file",
        ),
        (
            [&*file, &*back],
            &["--symfs", "/"],
            2,
            "--symfs: the input is a trace file",
        ),
        (
            [&*path, &*back.join("x.core")],
            &["--elf", "x"],
            2,
            "--elf: the output is a core file",
        ),
        (
            [&*path, &*back.join("perf.data")],
            &["--last", "1"],
            2,
            "--last: the output is a perf.data file",
        ),
        (
            [&*path, &*back.join("x.core")],
            &["--frame", "1"],
            2,
            "--frame: the input is a snapshot",
        ),
        (
            [&*path, &*back.join("x.tf")],
            &["--perf-version", "2"],
            2,
            "--perf-version: the output is a trace file",
        ),
        (
            [&*file, &*back],
            &["--frame", "7"],
            2,
            "from 0 to 0, found 7",
        ),
        ([&*file, &*back], &[], 0, ""),
        ([&*file, &*back], &[], 2, "--force"),
        ([&*file, &*back], &["--force", "--frame", "0"], 0, ""),
        (
            [&*file, &*file],
            &["--force"],
            2,
            "exists and is not a snapshot",
        ),
        ([Path::new("no such"), &*back], &["--force"], 1, "no such: "),
        (
            [&*path, &*back.join("x.tf")],
            &["--core", "nobody"],
            2,
            "found \"nobody\": Cortex-M4_0",
        ),
        (
            [&*path, &*back.join("x.tf")],
            &["--from", "x"],
            2,
            "expected an address",
        ),
    ] {
        let (found, text) = status(&arguments, options);
        assert_eq!(found, code, "{options:?}: {text}");
        assert!(text.contains(told), "{told} not in {text}");
    }
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["back", "out.tf"]);
    let mut names: Vec<_> = std::fs::read_dir(&back).unwrap().collect();
    names.retain(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "ini");
    assert_eq!(names.len(), 2);
}

#[test]
fn each_core_has_its_own_file() {
    let device = "class=core\ntype=ARM-AA64\n[regs]\nPC(size:64)=0x10\n";
    let directory = crate::support::gdb::write_snapshot(&[("a", device), ("b", device)], &[]);
    let same = format!("[device]\nname=c/0\n{device}");
    for name in ["a.ini", "b.ini"] {
        std::fs::write(directory.path().join(name), &same).unwrap();
    }
    let out = directory.path().join("out.tf");
    convert(&[], [directory.path(), &out]);
    for name in ["out.c_0.tf", "out.c_0.1.tf"] {
        let bytes = std::fs::read(directory.path().join(name)).unwrap();
        assert_eq!(File::open(&bytes, None).unwrap().count(), 1);
    }
    assert!(!out.exists());
    let two = testdata("virt-a57");
    convert(&[], [&two, &out]);
    for name in ["out.Cortex-A57_0.tf", "out.Cortex-A57_1.tf"] {
        assert!(directory.path().join(name).is_file(), "{name}");
    }
}
