//! Trace files, raw and well-formed: read, rewritten, and converted to snapshots.
#![no_main]

use armsnap::tfile::{Block, ByteOrder, File, Writer};
use armsnap_fuzz::build::{Choices, trace_file};
use armsnap_fuzz::exercise::trace_file_back;
use libfuzzer_sys::fuzz_target;

fn there_and_back(bytes: &[u8]) {
    let Ok(file) = File::open(bytes, None) else {
        return;
    };
    let mut description = file.description().clone();
    description.register_bytes = description.register_bytes.clamp(1, 4096);
    let frames = file.frames().filter(Result::is_ok).count();
    assert_eq!(file.count(), frames);
    let Ok(mut writer) = Writer::new(Vec::new(), &description, ByteOrder::Little) else {
        return;
    };
    let mut written = 0;
    for frame in file.frames().flatten() {
        for block in frame.blocks() {
            match block {
                Block::Memory { address, bytes } => writer.memory(address, bytes),
                Block::Variable { number, value } => writer.variable(number, value),
                Block::Registers(bytes) => {
                    let _ = writer.registers(bytes);
                }
                Block::Unreadable { .. } => {}
            }
        }
        if frame.tracepoint <= armsnap::tfile::TRACEPOINT_LIMIT {
            writer.end_frame(frame.tracepoint).unwrap();
            written += 1;
        } else {
            break;
        }
    }
    let again = writer.finish().unwrap();
    let again = File::open(&again, Some(ByteOrder::Little)).unwrap();
    assert_eq!(again.count(), written);
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes);
    let made;
    let bytes = match choices.below(4) {
        0 => choices.0,
        _ => {
            made = trace_file(&mut choices);
            &made
        }
    };
    there_and_back(bytes);
    trace_file_back(bytes.to_vec());
});
