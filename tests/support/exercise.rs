//! Everything that armsnap does with a snapshot, in one process: `info`, `check`, `decode` at all
//! levels, walks in history, `convert`, and a client of `serve`.
//!
//! Shared by the fuzz targets and by the tests of mutated snapshots. It has no result: callers detect
//! panics, overflows and hangs.

use armsnap::capture::Capture;
use armsnap::check::check;
use armsnap::convert::snapshot::{Options as ReadOptions, RestoredSnapshot, read};
use armsnap::convert::{trace_file, with_trace};
use armsnap::decode::{Decoding, ProgramOptions, Programs, decode_buffer};
use armsnap::remote_protocol::framing::write_packet;
use armsnap::report::info::{Info, text::Text};
use armsnap::report::listing::{Level, LineForm, decoder};
use armsnap::server::{Meanwhile, Session, endpoints};
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::DeviceClass;
use armsnap::snapshot::write::texts;
use armsnap::timeline::{Direction, Timeline, TracedCore};
use std::sync::Arc;

/// Snapshots with more bytes of trace than this are only checked.
const MAX_TRACE: usize = 1 << 20;

/// Steps in each history.
const STEPS: usize = 50;

/// Does everything with the snapshot in `files`; returns whether there was one.
pub fn snapshot(files: InMemory) -> bool {
    let Ok(loaded) = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini") else {
        return false;
    };
    for finding in check(&loaded) {
        assert!(finding.place.line > 0, "{finding}");
    }
    let info = Info::new(&loaded);
    let told = Text(&info).to_string();
    assert!(!told.is_empty());
    if let Ok(files) = texts(&loaded.snapshot) {
        assert!(OpenSnapshot::from_files(Arc::new(InMemory(files)), "snapshot.ini").is_ok());
    }
    let (capture, _) = Capture::open(&loaded);
    let parts = capture.buffers.iter().flat_map(|buffer| &buffer.parts);
    if parts.map(|part| part.len()).sum::<usize>() > MAX_TRACE {
        return true;
    }
    decode(&loaded, &capture);
    walk(&loaded);
    convert(&loaded);
    serve(&loaded);
    true
}

fn decode(loaded: &OpenSnapshot, capture: &Capture) {
    let options = ProgramOptions {
        named: &[],
        as_memory: false,
        symbols: false,
    };
    let Ok((programs, _)) = Programs::of(loaded, capture, &options) else {
        return;
    };
    for level in [
        Level::Packets,
        Level::Branches,
        Level::Elements,
        Level::Instructions,
    ] {
        for buffer in &capture.buffers {
            let mut decoders = Vec::new();
            for (number, source) in buffer.sources.iter().enumerate() {
                let form = match number % 2 {
                    0 => LineForm::JsonLines,
                    _ => LineForm::Text,
                };
                let decoder = decoder(loaded, &programs, (buffer, source), (level, form)).unwrap();
                let decoder: Box<dyn Decoding<_>> = decoder;
                decoders.push((source.trace_id, decoder));
            }
            let done = decode_buffer(buffer, &mut decoders, 4096, |_, listed| {
                listed.text().clear();
                Ok::<(), ()>(())
            });
            assert!(done.is_ok());
        }
    }
}

/// Goes to the start of each history, and a few steps forward and back.
fn walk(loaded: &OpenSnapshot) {
    let cores = loaded.snapshot.devices.iter().enumerate();
    let cores = cores.filter(|(_, device)| device.class == DeviceClass::Core);
    let cores: Vec<TracedCore> = cores
        .map(|(device, core)| TracedCore {
            device,
            memory: Arc::new(CoreMemory::new(loaded, core)),
        })
        .collect();
    let mut timeline = Timeline::open(loaded, &cores);
    for core in &cores {
        let Some(history) = timeline.history(core.device) else {
            continue;
        };
        for (mut here, direction) in [
            (history.begin(), Direction::Forward),
            (history.end(), Direction::Backward),
        ] {
            history.end_agrees();
            for _ in 0..STEPS {
                assert!(history.place(here).is_some());
                match history.step(here, direction) {
                    Some(next) => here = next,
                    None => break,
                }
            }
        }
    }
}

/// Converts to a trace file and back.
fn convert(loaded: &OpenSnapshot) {
    let options = trace_file::Options::default();
    let Ok(runs) = trace_file::core_runs(loaded, &options) else {
        return;
    };
    for run in runs {
        let mut notes = Vec::new();
        let written = trace_file::write(
            loaded,
            run,
            &options,
            Vec::new(),
            &mut notes,
            &mut |_, _| {},
        );
        if let Ok(bytes) = written {
            trace_file_back(bytes);
        }
    }
}

/// Converts a trace file to a snapshot in all ways.
pub fn trace_file_back(bytes: Vec<u8>) {
    let bytes = bytes.into();
    for (frame, merge) in [(None, false), (Some(0), false), (None, true)] {
        let options = ReadOptions {
            frame,
            merge,
            ..ReadOptions::default()
        };
        if let Ok(RestoredSnapshot::Made(snapshot, dumps)) =
            read(&bytes, "x.tf", &options, &mut Vec::new())
        {
            texts(&snapshot).unwrap();
            let files = snapshot.devices[0].dumps.iter().map(|dump| &dump.file);
            assert!(files.into_iter().all(|file| dumps.0.contains_key(file)));
        }
    }
    let options = ReadOptions::default();
    let mut told = |_, _| {};
    let traced = with_trace::read(&bytes, "x.tf", &options, &[], &mut Vec::new(), &mut told);
    if let Ok(RestoredSnapshot::Made(snapshot, _)) = traced {
        assert!(snapshot.trace.is_some());
    }
}

/// Sends requests of a client: registers, memory, moves, and monitor commands.
fn serve(loaded: &OpenSnapshot) {
    let Ok(endpoints) = endpoints(loaded, &armsnap::server::Options::default()) else {
        return;
    };
    for endpoint in endpoints {
        let mut session = Session::new(Arc::new(endpoint));
        let mut ask = |packet: &str| {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            write_packet(packet.as_bytes(), &mut bytes);
            for byte in bytes {
                let _ = session.push_while(byte, &mut out, &Meanwhile::Waits);
            }
        };
        for packet in [
            "QStartNoAckMode",
            "qSupported:multiprocess+;ReverseStep+;ReverseContinue+",
            "?",
            "qfThreadInfo",
            "qXfer:features:read:target.xml:0,ffff",
            "qXfer:threads:read::0,ffff",
            "qXfer:memory-map:read::0,ffff",
            "Hg1",
            "g",
            "m0,40",
            "m1000,40",
            "bs",
            "g",
            "Z0,1000,4",
            "bc",
            "m1000,40",
            "s",
            "c",
            "QTFrame:0",
            "g",
            "QTFrame:ffffffff",
        ] {
            ask(packet);
        }
        for command in [
            "info",
            "where",
            "history",
            "calls",
            "exceptions",
            "space",
            "goto begin",
            "where",
            "history",
            "find 0x1000",
            "memory final",
        ] {
            let digits: String = command.bytes().map(|byte| format!("{byte:02x}")).collect();
            ask(&format!("qRcmd,{digits}"));
        }
    }
}
