#![no_main]

use armsnap::convert::snapshot::{Options, RestoredSnapshot, read};
use armsnap::convert::with_trace;
use armsnap::snapshot::write;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.to_vec().into();
    for frame in [None, Some(0), Some(1)] {
        for merge in [false, true] {
            let options = Options {
                frame,
                merge,
                ..Options::default()
            };
            match read(&bytes, "x.tf", &options, &mut Vec::new()) {
                Ok(RestoredSnapshot::Carried(carried)) => {
                    assert!(frame.is_none() && !merge);
                    let _ = carried.open();
                }
                Ok(RestoredSnapshot::Made(snapshot, dumps)) => {
                    // A snapshot made from a frame can be written.
                    write::texts(&snapshot).unwrap();
                    let files = snapshot.devices[0].dumps.iter().map(|dump| &dump.file);
                    assert!(files.into_iter().all(|file| dumps.0.contains_key(file)));
                }
                Err(_) => {}
            }
        }
    }
    let options = Options::default();
    let traced = with_trace::read(
        &bytes,
        "x.tf",
        &options,
        &[],
        &mut Vec::new(),
        &mut |_, _| {},
    );
    if let Ok(RestoredSnapshot::Made(snapshot, _)) = traced {
        assert!(snapshot.trace.is_some());
    }
});
