//! Trace files in the forms of all releases of GDB, of its test suite and of tracers in kernels: read
//! and written again, GDB finds the same in them.

use crate::support::gdb::{need_gdb, run, text};
use armsnap::tfile::{Block, ByteOrder, File, Writer};
use std::path::Path;
use std::process::Command;

/// Descriptions, as "Trace File Format" and the packets that it refers to allow them.
const DESCRIPTIONS: [&str; 7] = [
    // The least that GDB 7.1 reads: no target description, no source text.
    "R 20\nstatus 0;tstop:0;tframes:2;tcreated:2;tfree:100;tsize:1000\ntp T1:4000:E:0:0\n\
     tp T2:4010:D:0:3\n",
    // Without a status; a tracepoint of each form.
    "R 20\ntp T1:4000:E:0:0:X3,220127\ntp T2:4010:E:5:0:F4\ntp T3:4020:E:0:0:S\n",
    // A run that goes on.
    "R 20\nstatus 1;tunknown:0;tframes:2;disconn:1;circular:1;starttime:4f1;username:726f6f74\n\
     tsv 1:0:0:636f756e74\ntsv 2:fffffffffffffff6:1:74726163655f74696d657374616d70\n",
    // Each reason for the end of a run.
    "R 20\nstatus 0;terror:6e6f206d656d6f7279:2;tframes:2;stoptime:5a;notes:6f6e65\n\
     tp T1:4000:E:0:0\ntp T2:4010:E:0:0\n",
    "R 20\nstatus 0;tpasscount:1;tframes:2\ntp T1:4000:E:0:1\ntp T1:4040:E:0:1\n",
    "R 20\nstatus 0;tfull:0;tframes:2;tcreated:9\ntp T1:4000:E:0:0\ntp A1:4000:RFFFF\n\
     tp A1:4000:M-1,8000,4\ntp A1:4000:X4,22012700\ntp S1:4000:R3\n",
    // With what the user typed, and the hits.
    "R 20\nstatus 0;tdisconnected:0;tframes:2\ntp T1:4000:E:0:0:X3,220127\n\
     tp Z1:4000:at:0:7:2a307834303030\ntp Z1:4000:cond:0:4:61203e31\n\
     tp Z1:4000:cmd:0:d:636f6c6c656374202472656773\ntp V1:4000:2:40\n",
];

/// The bytes of a number of 2, 4 or 8 bytes.
fn number(order: ByteOrder, value: u64, bytes: usize) -> Vec<u8> {
    match order {
        ByteOrder::Little => value.to_le_bytes()[..bytes].to_vec(),
        ByteOrder::Big => value.to_be_bytes()[8 - bytes..].to_vec(),
    }
}

/// A file with two frames, written by hand; `end` follows them.
fn file(description: &str, order: ByteOrder, end: &[u8]) -> Vec<u8> {
    let n = |value, bytes| number(order, value, bytes);
    let memory = |address, bytes: &[u8]| {
        let size = n(bytes.len() as u64, 2);
        [b"M".to_vec(), n(address, 8), size, bytes.to_vec()].concat()
    };
    let variable = [b"V".to_vec(), n(1, 4), n(7, 8)].concat();
    let frames = [
        [
            [b"R".to_vec(), vec![0x11; 0x20]].concat(),
            memory(0x8000, &[1, 2, 3, 4]),
            variable.clone(),
        ]
        .concat(),
        [memory(0x8004, &[5; 300]), variable].concat(),
    ];
    let frames = frames.iter().map(|frame| {
        let head = [n(1, 2), n(frame.len() as u64, 4)].concat();
        [head, frame.clone()].concat()
    });
    let frames: Vec<Vec<u8>> = frames.collect();
    let head = format!("\x7fTRACE0\n{description}\n");
    [head.into_bytes(), frames.concat(), end.to_vec()].concat()
}

/// The same, read and written.
fn again(bytes: &[u8]) -> Vec<u8> {
    let file = File::open(bytes, None).unwrap();
    assert!(file.notes().is_empty(), "{:?}", file.notes());
    assert!(file.description().unknown.is_empty());
    let mut writer = Writer::new(Vec::new(), file.description(), file.order()).unwrap();
    for frame in file.frames() {
        let frame = frame.unwrap();
        for block in frame.blocks() {
            match block {
                Block::Registers(bytes) => writer.registers(bytes).unwrap(),
                Block::Memory { address, bytes } => writer.memory(address, bytes),
                Block::Variable { number, value } => writer.variable(number, value),
                Block::Unreadable { kind, at } => panic!("{kind} at {at}"),
            }
        }
        writer.end_frame(frame.tracepoint).unwrap();
    }
    writer.finish().unwrap()
}

/// What GDB finds in a file.
fn found(path: &Path, bytes: &[u8]) -> String {
    std::fs::write(path, bytes).unwrap();
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "set pagination off"]);
    for command in [
        &format!("target tfile {}", path.display()),
        "tstatus",
        "info tracepoints",
        "info tvariables",
        "tfind 0",
        "info registers",
        "x/4xb 0x8000",
        "tfind",
        "x/4xb 0x8004",
        "tdump",
    ] {
        gdb.args(["-ex", command]);
    }
    text(&run(&mut gdb))
}

#[test]
fn gdb_finds_the_same_in_a_file_that_was_written_again() {
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.tf");
    for description in DESCRIPTIONS {
        // The program of a big-endian target decides the order in GDB, so that it reads only one.
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for end in [&[][..], &[0, 0], &[0, 0, 0, 0]] {
                let bytes = file(description, order, end);
                let back = again(&bytes);
                let (read, reread) = (File::open(&bytes, None), File::open(&back, None));
                let (read, reread) = (read.unwrap(), reread.unwrap());
                assert_eq!(read.description(), reread.description());
                assert_eq!((reread.order(), reread.count()), (order, 2));
                assert_eq!(
                    String::from_utf8_lossy(back.strip_suffix(&[0; 4]).unwrap()),
                    String::from_utf8_lossy(&file(description, order, &[]))
                );
                if order == ByteOrder::Little && end.len() == 4 {
                    let wanted = found(&path, &bytes);
                    assert!(wanted.contains("0x8004"), "{wanted}");
                    assert_eq!(found(&path, &back), wanted);
                }
            }
        }
    }
}
