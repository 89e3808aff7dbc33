//! Recordings of perf, made from recorded trace.

use super::perf_builder::{At, LOST, PerfData, SWITCH_CPU_WIDE, framed, words};
use crate::support::gdb::testdata;
use armsnap::formatter::encode::Encoder;
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::quantity::{BufferOffset, TraceId};
use std::fs;

pub const ETMV4: u64 = 0x4040_4040_4040_4040;
/// The address of the program of testdata/recorded/etmv4, and its bytes in the file.
pub const PROGRAM: (u64, u64, u64) = (0x4010_0000, 0x1000, 0x1000);

/// The recorded trace of a trace ID.
pub fn recorded(name: &str, id: u8) -> Vec<u8> {
    let frames = fs::read(testdata("recorded").join(name).join("trace.bin")).unwrap();
    let mut demux = Demux::new();
    Deformatter::new(FrameKind::Memory).feed(BufferOffset(0), &frames, true, &mut demux);
    demux.stream(TraceId(id)).payload().to_vec()
}

pub fn frames(sources: &[(u8, &[u8])]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    for (id, bytes) in sources {
        encoder.write(TraceId(*id), bytes, &mut out);
    }
    encoder.finish(&mut out);
    out
}

/// The registers of the recorded unit, as perf has them, with an ID.
pub fn etmv4(id: u64) -> Vec<u64> {
    vec![0x1811, id, 0x2800_0EA1, 0x4100_F420, 0x1088, 0, 0xCC]
}

pub fn at(tid: u32, time: u64, cpu: u32) -> At {
    At {
        pid: 100,
        tid,
        time,
        cpu,
    }
}

/// A process 100 with the recorded program.
pub fn process() -> PerfData {
    program_of(PerfData::default())
}

pub fn program_of(mut file: PerfData) -> PerfData {
    file.comm("prog", true, at(100, 1, 0));
    let (address, length, offset) = PROGRAM;
    file.map(
        "/bin/program.elf",
        address,
        length,
        offset,
        &[],
        at(100, 2, 0),
    );
    file
}

/// A recording with a record of each kind, as a file and piped.
pub fn every_record() -> (Vec<u8>, Vec<u8>) {
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    let mut file = process();
    file.info(2, &[0, 1].map(|cpu| (ETMV4, cpu, etmv4(1 << 31 | 0x7F))));
    for cpu in 0..2 {
        file.hardware_id(1 << 56 | u64::from(cpu) << 8 | 0x10, at(100, 3, cpu));
    }
    file.fork(100, 100, 101, at(100, 4, 0));
    file.fork(200, 100, 200, at(100, 4, 0));
    file.comm("other", true, at(200, 5, 0));
    let mut inner = PerfData::default();
    inner.comm("worker", false, at(101, 5, 0));
    inner.event(LOST, 0, &words(&[1, 3]), at(100, 5, 0));
    for piece in stored(&[&inner.records[..20], &inner.records[20..]]) {
        file.records.extend(framed(81, 0, &piece));
    }
    file.trace(0, 0, 0, &trace);
    file.trace(0, 1, 0, &recorded("etmv4", 0x11));
    file.aux(0, 64, 1, at(100, 10, 0));
    file.aux(64, trace.len() as u64 - 64, 0, at(101, 11, 0));
    file.aux(0, 100, 0x100, at(100, 12, 1));
    file.event(SWITCH_CPU_WIDE, 0, &words(&[0]), at(0, 13, 0));
    (file.file(), file.piped())
}

/// A Zstandard stream as perf writes it, of blocks that are not compressed and without an end
/// (RFC 8878, 3.1.1): magic, descriptor, window of 64 KiB, blocks.
pub fn stored(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut start = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0x30];
    let pieces = pieces.iter().map(|piece| {
        let header = (piece.len() as u32) << 3;
        let mut out = std::mem::take(&mut start);
        out.extend(&header.to_le_bytes()[..3]);
        out.extend(*piece);
        out
    });
    pieces.collect()
}
