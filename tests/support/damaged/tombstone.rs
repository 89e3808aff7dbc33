//! Tombstones of Android: as protobuf, as text, and in the log.

use super::Whole;
use crate::support::gdb::testdata;
use crate::support::inputs::tombstone::{as_log, as_text, of_linux};
use armsnap::import::Options;
use prost::Message;
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let root = testdata("linux-core/root");
    let size = |name: &str| fs::metadata(root.join(name)).unwrap().len();
    let tombstone = of_linux();
    let forms = [
        ("tombstone", tombstone.encode_to_vec()),
        ("tombstone text", as_text(&tombstone).into_bytes()),
        ("tombstone log", as_log(&tombstone).into_bytes()),
    ];
    let all = forms.map(|(name, bytes)| {
        let options = Options {
            symfs: vec![root.clone()],
            ..Options::default()
        };
        let mut whole = Whole::new(name, bytes, directory, options);
        whole.beside = size("program") + size("lib/libwork.so");
        whole
    });
    all.into()
}
