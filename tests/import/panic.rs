//! The panic buffers of Linux: the trace is put in order, and its checksums are verified.

use crate::support::gdb::{armsnap, run, testdata, text};
use std::fs;
use std::path::Path;

/// Linux' `crc32_le`, by its definition.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0xEDB8_8320 * (sum & 1))
        })
    })
}

/// `struct tmc_crash_metadata` for a region with the oldest byte at `offset`, in a page.
fn metadata(region: &[u8], full: bool, offset: u64, length: u64) -> Vec<u8> {
    const DBA: u64 = 0x8_F000_0000;
    let mut out = crc32(region).to_le_bytes().to_vec();
    for word in [
        1 << 16,
        1,
        region.len() as u32 / 4,
        u32::from(full),
        0,
        3,
        2,
        0,
    ] {
        out.extend(word.to_le_bytes());
    }
    for address in [DBA + offset, DBA + offset + length, DBA, DBA, 0, 0, 0] {
        out.extend(address.to_le_bytes());
    }
    let mut whole = crc32(&out).to_le_bytes().to_vec();
    whole.extend(out);
    assert_eq!(whole.len(), 96);
    whole.resize(4096, 0xEE);
    whole
}

/// Imports a buffer with its metadata; returns the status and the messages.
fn import(buffer: &[u8], metadata: &[u8], into: &Path) -> (Option<i32>, String) {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = scratch.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut command = armsnap();
    command
        .args(["import", "--force", "--raw"])
        .arg(file("trace.bin", buffer));
    command
        .arg("--crash-metadata")
        .arg(file("metadata.bin", metadata))
        .arg(into);
    let output = run(&mut command);
    (output.status.code(), text(&output))
}

/// The packets of the imported trace.
fn packets(snapshot: &Path) -> Vec<u8> {
    let output = run(armsnap()
        .args(["decode", "--level", "packets"])
        .arg(snapshot));
    assert!(output.status.success(), "{}", text(&output));
    assert!(output.stdout.len() > 1000);
    output.stdout
}

#[test]
fn panic_buffers_are_put_in_order_and_checked() {
    let trace = fs::read(testdata("recorded/etmv4/trace.bin")).unwrap();
    let length = trace.len();
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("snapshot");
    let plain = scratch.path().join("plain");
    let mut command = armsnap();
    command
        .arg("import")
        .arg("--raw")
        .arg(testdata("recorded/etmv4/trace.bin"))
        .arg(&plain);
    assert!(run(&mut command).status.success());
    let wanted = packets(&plain);

    // A full ring, whose oldest byte is in the middle; as memory and as the device gives it.
    let mut ring = trace.clone();
    ring.rotate_right(4 * 16);
    let full = metadata(&ring, true, 64, length as u64);
    for (bytes, says) in [
        (&ring, "the region of a panic, checksum correct"),
        (&trace, "the oldest byte first, checksum correct"),
    ] {
        let (status, said) = import(bytes, &full, &into);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(says), "{said}");
        assert!(packets(&into) == wanted, "{says}");
    }
    // A ring that is not full: what follows the trace is older than it.
    let region = [&trace[..], &[0x5A; 256]].concat();
    let partial = metadata(&region, false, 0, length as u64);
    for (bytes, says) in [
        (
            &region,
            format!("checksum correct: {length} bytes from 0x0 on are valid"),
        ),
        (&trace, "not checked: the checksum is that of".to_owned()),
    ] {
        let (status, said) = import(bytes, &partial, &into);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(&says), "{said}");
        assert!(packets(&into) == wanted, "{says}");
    }

    // Flipped bytes: in the trace, and anywhere in the metadata that is checked.
    let mut flipped = ring.clone();
    flipped[length / 2] ^= 0x10;
    let (status, said) = import(&flipped, &full, &into);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("damaged: its checksum is"), "{said}");
    for place in [0, 4, 12, 17, 40, 63, 95] {
        let mut bytes = full.clone();
        bytes[place] ^= 1;
        let (status, said) = import(&ring, &bytes, &into);
        assert_eq!(status, Some(1), "{place}: {said}");
        assert!(
            said.contains("the metadata is damaged: its checksum is"),
            "{place}: {said}"
        );
    }
}

#[test]
fn metadata_that_makes_no_sense_is_refused() {
    let trace = fs::read(testdata("recorded/etmv4/trace.bin")).unwrap();
    let length = trace.len() as u64;
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("snapshot");
    let good = metadata(&trace, true, 0, length);
    let signed = |change: fn(&mut [u8])| {
        let mut bytes = good[..96].to_vec();
        change(&mut bytes);
        let sum = crc32(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    for (buffer, metadata, says) in [
        (
            &trace[..],
            good[..95].to_vec(),
            "95 bytes: expected the 96 of a tmc_crash_metadata",
        ),
        (
            &trace,
            signed(|bytes| bytes[10] = 2),
            "version 2.0, expected 1.0",
        ),
        (
            &trace,
            signed(|bytes| bytes[12] = 0),
            "the kernel kept no trace",
        ),
        (
            &trace,
            signed(|bytes| bytes[44] = 1),
            "its pointers are not within the",
        ),
        (&trace[..100], good.clone(), "100 bytes: expected the"),
        (&[], good.clone(), "0 bytes: expected the"),
    ] {
        let (status, said) = import(buffer, &metadata, &into);
        assert_eq!(status, Some(1), "{says}: {said}");
        assert!(said.contains(says), "{says}: {said}");
        assert!(!into.exists());
    }
}
