//! Trace files served with a program, and sparse ones of gigabytes, which take
//! some megabytes on disk.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::support::gdb::{Server, armsnap, attach, peak_memory, run, session, testdata, text};

/// Size of a frame with its header, in bytes.
const FRAME: u64 = 4 << 20;
const FRAMES: u64 = 1100;
const PLACE: u64 = 0x40_0000;

/// A file of 4.3 GiB: each frame has a variable, a block of memory, and then zeros, which are not a
/// block. `None` if the file system does not support sparse files.
fn sparse() -> Option<(tempfile::TempDir, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.tf");
    let mut file = File::create(&path).unwrap();
    let mut head = b"\x7fTRACE0\nR 10c\n".to_vec();
    let registers: String = (0..31)
        .map(|n| format!("tdesc <reg name=\"x{n}\" bitsize=\"64\"/>\n"))
        .collect();
    write!(
        head,
        "tdesc <?xml version=\"1.0\"?>\ntdesc <target><architecture>aarch64</architecture>\n\
         tdesc <feature name=\"org.gnu.gdb.aarch64.core\">\n{registers}\
         tdesc <reg name=\"sp\" bitsize=\"64\"/><reg name=\"pc\" bitsize=\"64\"/>\n\
         tdesc <reg name=\"cpsr\" bitsize=\"32\"/></feature></target>\n\
         status 0;tstop::0;tframes:{FRAMES:x}\ntsv 1:0:0:6379636c6573\n\
         tp T1:{PLACE:x}:E:0:0\n\n"
    )
    .unwrap();
    file.write_all(&head).unwrap();
    let first = head.len() as u64;
    let length = first + FRAMES * FRAME;
    if file.set_len(length).is_err() {
        crate::support::skip::unavailable("no files of 4 GiB here");
        return None;
    }
    for frame in 0..FRAMES {
        let mut bytes = 1_u16.to_le_bytes().to_vec();
        bytes.extend((FRAME as u32 - 6).to_le_bytes());
        bytes.push(b'V');
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend((3 * frame).to_le_bytes());
        bytes.push(b'M');
        bytes.extend(PLACE.to_le_bytes());
        bytes.extend(u16::MAX.to_le_bytes());
        bytes.extend(0xd503_201f_u32.to_le_bytes());
        file.seek(SeekFrom::Start(first + frame * FRAME)).unwrap();
        file.write_all(&bytes).unwrap();
        if frame == 16 && file.metadata().unwrap().blocks() * 512 > 16 << 20 {
            crate::support::skip::unavailable("no sparse files here");
            return None;
        }
    }
    Some((directory, path))
}

#[test]
fn a_trace_file_of_gigabytes_is_served_in_little_memory() {
    let Some((_directory, path)) = sparse() else {
        return;
    };
    let server = Server::start(&path, &[], 1);
    let commands = [
        "tstatus",
        "tfind 5",
        "x/i $pc",
        "p $cycles",
        "tfind 1090",
        "p $trace_frame",
        "p $cycles",
        "tfind",
        "p $cycles",
        "tfind pc 0x400000",
        "p $trace_frame",
        "tfind none",
        "tfind outside 0x400000, 0x400004",
    ];
    let found = attach(&server.addresses[0], &commands);
    let wanted = [
        "Collected 1100 trace frames",
        "Found trace frame 5, tracepoint 1",
        "=> 0x400000:\tnop",
        "$1 = 15\n",
        "Found trace frame 1090, tracepoint 1",
        "$2 = 1090\n",
        "$3 = 3270\n",
        "Found trace frame 1091, tracepoint 1",
        "$4 = 3273\n",
        "$5 = 1092\n",
    ];
    let mut rest = &found[..];
    for wanted in wanted {
        let at = rest.find(wanted);
        rest = &rest[at.unwrap_or_else(|| panic!("{wanted}: {found}"))..];
    }
    assert!(rest.contains("No trace frame found"), "{found}");
    // The whole process, with a page or two of the file for each frame.
    let peak = peak_memory(server.id());
    assert!(peak < 200 << 10, "{peak} kB");
}

#[test]
fn a_frame_of_a_trace_file_of_gigabytes_becomes_a_snapshot() {
    let Some((directory, path)) = sparse() else {
        return;
    };
    let snapshot = directory.path().join("snapshot");
    let mut convert = armsnap();
    convert.arg("convert").args(["--frame", "1090"]);
    let output = run(convert.arg(&path).arg(&snapshot));
    assert!(output.status.success(), "{}", text(&output));
    let core = std::fs::read_dir(&snapshot).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        std::fs::read(path).unwrap()
    });
    let dump = core.max_by_key(Vec::len).unwrap();
    assert_eq!(dump.len(), usize::from(u16::MAX));
    assert_eq!(dump[..4], 0xd503_201f_u32.to_le_bytes());
}

#[test]
fn frames_have_source_lines_of_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a57.tf");
    let snapshot = testdata("virt-a57");
    let mut convert = armsnap();
    convert.args(["convert", "--core", "Cortex-A57_0"]);
    let output = run(convert.arg(&snapshot).arg(&file));
    assert!(output.status.success(), "{}", text(&output));
    let program = snapshot.join("program.elf");
    let options = ["--elf", program.to_str().unwrap()];
    let found = session(&file, &options, &["tfind 0", "bt 2", "info symbol $pc"]);
    assert!(found.contains("in discount (order=0x401010a8"), "{found}");
    assert!(found.contains("receipt + 64"), "{found}");
    let output = run(armsnap()
        .args(["serve", "--stdio", "--elf"])
        .args([&file, &file]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("expected an ELF file"),
        "{}",
        text(&output)
    );
}
