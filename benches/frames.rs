//! Measures the deformatter alone, silent.
//!
//! ```text
//! cargo bench --bench frames -- BUFFER COPIES    # prints JSON: bytes, payload, seconds
//! ```

use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::quantity::BufferOffset;
use std::time::Instant;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [path, copies] = &arguments[..] else {
        panic!("wanted: BUFFER COPIES");
    };
    let copies: u64 = copies.parse().expect("COPIES is a number");
    let buffer = std::fs::read(path).expect("BUFFER can be read");
    // Copies start at a frame.
    let buffer = &buffer[..buffer.len() & !15];
    let mut deformatter = Deformatter::new(FrameKind::Memory);
    let mut demux = Demux::new();
    let mut at = 0;
    let start = Instant::now();
    for _ in 0..copies {
        for piece in buffer.chunks(PIECE) {
            deformatter.feed(BufferOffset(at), piece, false, &mut demux);
            at += piece.len() as u64;
            demux.clear();
        }
    }
    deformatter.feed(BufferOffset(at), &[], true, &mut demux);
    let seconds = start.elapsed().as_secs_f64();
    let payload = deformatter.counts().payload;
    println!("{{\"bytes\": {at}, \"payload_bytes\": {payload}, \"cpu_seconds\": {seconds:.6}}}");
}
