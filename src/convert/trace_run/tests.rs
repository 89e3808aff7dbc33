//! The limits of trace runs with more frames than a real capture contains.

use super::*;
use crate::tfile::{Block, ByteOrder, File};
use armsnap_arch::quantity::BufferOffset;
use armsnap_snapshot::snapshot::files::InMemory;
use std::collections::HashMap;
use std::sync::Arc;

fn loaded() -> OpenSnapshot {
    let mut files = InMemory::default();
    let mut add = |name: &str, text: &str| {
        let bytes = text.as_bytes().to_vec();
        files.0.insert(name.to_owned(), bytes.into());
    };
    add(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\nd=d.ini\n",
    );
    add(
        "d.ini",
        "[device]\nname=c\nclass=core\ntype=ARM-AA64\n[regs]\nPC(size:64)=0x4000\n",
    );
    OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
}

/// Executes `addresses` instructions at distinct addresses, twice in a row.
fn run(loaded: &OpenSnapshot, addresses: u64, options: &Options) -> TraceRun {
    let mut kept = KeptInstructions::new(options.limits());
    for n in (0..addresses).chain(0..addresses) {
        kept.push(ExecutedInstruction {
            pc: Address(0x1000 + 4 * n),
            isa: Isa::A64,
            offset: BufferOffset(n),
            ..ExecutedInstruction::default()
        });
    }
    TraceRun {
        name: "c".to_owned(),
        core: 0,
        state: State::of(loaded, 0, true),
        kept,
        kind: options.frames,
        protocol: None,
        definitions: options.tracepoints,
        defined: Defined::default(),
        past: Vec::new(),
    }
}

fn written(run: &mut TraceRun) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &run.description(), ByteOrder::Little).unwrap();
    for frame in 0..run.frames() {
        run.write(frame, &run.state.block, &run.state.memory(), &mut writer)
            .unwrap();
    }
    writer.finish().unwrap()
}

/// Writes and reads a trace file; every frame contains its address.
fn frames(run: &mut TraceRun) -> Vec<u64> {
    let bytes = written(run);
    let file = File::open(&bytes, None).unwrap();
    let tracepoints = &file.description().tracepoints;
    let places: HashMap<u32, u64> = tracepoints.iter().map(|t| (t.number, t.address)).collect();
    assert_eq!(places.len(), tracepoints.len());
    let frames = file.frames().map(|frame| {
        let frame = frame.unwrap();
        let address = places[&u32::from(frame.tracepoint)];
        let found = frame.blocks().find_map(|block| match block {
            Block::Variable { number: 8, value } => Some(0x1000 + 4 * value as u64),
            _ => None,
        });
        assert_eq!(found.unwrap_or(0x4000), address);
        address
    });
    frames.collect()
}

#[test]
fn without_a_window_the_last_frames_are_kept() {
    let loaded = loaded();
    let options = Options::default();
    let few = ADDRESSES as u64;
    let mut notes = Vec::new();
    let mut all = run(&loaded, few, &options);
    all.choose(&options, &Symbols::default(), &mut notes)
        .unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(frames(&mut all).len(), 1 + 2 * ADDRESSES);

    let mut some = run(&loaded, few + 1, &options);
    some.choose(&options, &Symbols::default(), &mut notes)
        .unwrap();
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0]
            .to_string()
            .starts_with("c: the last 5000 of 10002 trace frames are written"),
        "{notes:?}"
    );
    let kept = frames(&mut some);
    assert_eq!(kept.len(), 1 + ADDRESSES);
    assert_eq!(kept[1], 0x1004);
}

#[test]
fn a_chosen_window_may_use_all_tracepoint_numbers() {
    let loaded = loaded();
    let options = Options {
        last: Some(100_000),
        ..Options::default()
    };
    let mut notes = Vec::new();
    let mut most = run(&loaded, MAX_ADDRESSES as u64, &options);
    most.choose(&options, &Symbols::default(), &mut notes)
        .unwrap();
    let addresses = 32765;
    let note = CoreNote::ManyAddresses { addresses };
    assert_eq!(notes, [Note::of_core("c", note)]);
    assert_eq!(frames(&mut most).len(), 1 + 2 * MAX_ADDRESSES);

    let mut beyond = run(&loaded, MAX_ADDRESSES as u64 + 1, &options);
    let error = beyond
        .choose(&options, &Symbols::default(), &mut notes)
        .unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("32766 addresses"), "{error}");
}

#[test]
fn a_frame_without_a_tracepoint_has_no_pc() {
    let mut loaded = loaded();
    loaded.snapshot.devices[0].registers.clear();
    let options = Options::default();
    let bytes = written(&mut run(&loaded, 1, &options));
    let file = File::open(&bytes, None).unwrap();
    let frame = file.frame(0).unwrap().unwrap();
    assert_eq!(frame.tracepoint, NOWHERE);
    let tracepoints = &file.description().tracepoints;
    assert!(tracepoints.iter().all(|t| t.number != u32::from(NOWHERE)));
}
