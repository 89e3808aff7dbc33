//! `monitor console`: the text that software wrote to an ITM or STM.

use std::collections::VecDeque;
use std::convert::Infallible;

use super::history::number;
use crate::server::target::SnapshotTarget;
use armsnap_analysis::report::software::{
    Clock, Console, Said, decoder, is_software, prescaler, text_line,
};
use armsnap_arch::quantity::TraceId;
use armsnap_history::decode::{Decoding, decode_buffer};
use armsnap_snapshot::capture::{Capture, CaptureSource};

/// The number of lines shown, unless the user asks for others.
const LINES: u64 = 40;
/// The most lines that are shown.
const MOST: u64 = 100_000;
/// The number of bytes of trace decoded at once.
const PIECE: usize = 16 << 10;

/// Returns the last lines of all ports.
pub(super) fn run(target: &SnapshotTarget, count: &str) -> String {
    let count = match (count, number(count)) {
        ("", _) => LINES,
        (_, Some(count)) => count.min(MOST),
        _ => return format!("expected a number, found {count:?}: monitor console [N]\n"),
    };
    let (mut capture, _) = Capture::open(&target.endpoint.loaded);
    for buffer in &mut capture.buffers {
        buffer.sources.retain(is_software);
    }
    capture.buffers.retain(|buffer| !buffer.sources.is_empty());
    let sources: usize = capture
        .buffers
        .iter()
        .map(|buffer| buffer.sources.len())
        .sum();
    if sources == 0 {
        return "the snapshot has no trace of an ITM or STM\n".to_owned();
    }
    let mut last: VecDeque<(String, Said)> = VecDeque::new();
    let mut all: u64 = 0;
    for buffer in &capture.buffers {
        let made = |source: &CaptureSource| -> (TraceId, Box<dyn Decoding<Console>>) {
            let console = Console::new(Vec::new(), false, Clock::new(prescaler(source)));
            (source.trace_id, decoder(source, console))
        };
        let mut decoders: Vec<_> = buffer.sources.iter().map(made).collect();
        let decoded = decode_buffer(buffer, &mut decoders, PIECE, |index, console| {
            target.unwind.check();
            for said in console.take() {
                all += 1;
                last.push_back((buffer.sources[index].name.clone(), said));
                if last.len() as u64 > count {
                    last.pop_front();
                }
            }
            Ok::<(), Infallible>(())
        });
        let Ok(_) = decoded;
    }
    let mut text = match all.saturating_sub(last.len() as u64) {
        0 => String::new(),
        left_out => format!("-- {left_out} lines left out\n"),
    };
    for (source, said) in &last {
        let source = (sources > 1).then_some(&**source);
        text.push_str(&text_line(source, said));
        text.push('\n');
    }
    match all {
        0 => "no text was written to the ITM or STM\n".to_owned(),
        _ => text,
    }
}
