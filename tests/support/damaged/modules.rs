//! Files of a kernel's modules beside a recording, plain and compressed.

use super::{Whole, gzip, zstandard};
use crate::support::inputs::module::{BASE, built, tool};
use crate::support::inputs::perf::{ETMV4, at, etmv4, frames, recorded};
use crate::support::inputs::perf_builder::{At, PerfData};
use crate::support::record::installed;
use armsnap::import::Options;
use std::fs;
use std::path::Path;

/// All of them; none without a compiler.
pub fn all(directory: &Path) -> Vec<Whole> {
    let Some(plain) = built() else {
        return Vec::new();
    };
    let forms = [
        ("", plain.clone()),
        (".gz", gzip(&plain)),
        (".zst", zstandard(&plain)),
    ];
    let mut forms = Vec::from(forms);
    if installed(&["xz"]) {
        fs::write(directory.join("module.ko"), &plain).unwrap();
        tool("xz", &["module.ko"], directory);
        forms.push((".xz", fs::read(directory.join("module.ko.xz")).unwrap()));
    }
    let forms = forms.into_iter().map(|(ending, bytes)| {
        // A tree for each: all files of a module are searched.
        let tree = directory.join(format!("tree{ending}"));
        let modules = tree.join("lib/modules/6.1");
        fs::create_dir_all(&modules).unwrap();
        let input = tree.join("perf.data");
        let recording = recording("/lib/modules/6.1/test-module.ko");
        let beside = recording.len() as u64;
        fs::write(&input, recording).unwrap();
        let options = Options {
            symfs: vec![tree.clone()],
            ..Options::default()
        };
        Whole {
            name: format!("module{ending}"),
            bytes,
            file: modules.join(format!("test-module.ko{ending}")),
            input: Some(input),
            options,
            beside,
            unpacked: if ending.is_empty() { 1 } else { 24 },
            read: armsnap::import::import,
        }
    });
    forms.collect()
}

/// A recording of the kernel with the module, whose trace is of something else.
fn recording(path: &str) -> Vec<u8> {
    let mut file = PerfData::default();
    let kernel = At {
        pid: u32::MAX,
        tid: 0,
        time: 0,
        cpu: 0,
    };
    file.map(path, BASE, 0x1_0000, 0, &[], kernel);
    file.comm("prog", true, at(100, 1, 0));
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    let trace = frames(&[(0x10, &recorded("etmv4", 0x10))]);
    file.trace(0, 0, 0, &trace);
    file.aux(0, trace.len() as u64, 0, at(100, 5, 0));
    file.file()
}
