//! `perf.data` of every form.

use super::Whole;
use super::cores::size_of_programs;
use crate::support::gdb::testdata;
use crate::support::inputs::perf::every_record;
use crate::support::skip;
use armsnap::import::Options;
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let (file, piped) = every_record();
    let mut inputs = vec![("perf.data", file), ("piped perf.data", piped)];
    if let Some(captures) = skip::capture("perf") {
        for name in ["perf_etm.data", "perf_with_unformatted_trace.data"] {
            inputs.push((name, fs::read(captures.join(name)).unwrap()));
        }
    }
    let inputs = inputs.into_iter().map(|(name, bytes)| {
        let options = Options {
            symfs: vec![testdata("recorded/etmv4")],
            ..Options::default()
        };
        let mut whole = Whole::new(name, bytes, directory, options);
        whole.beside = size_of_programs();
        whole
    });
    inputs.collect()
}
