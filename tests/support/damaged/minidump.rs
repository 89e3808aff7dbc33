//! Minidumps: of a program with its files, and of registers alone.

use super::Whole;
use crate::support::gdb::testdata;
use crate::support::inputs::minidump::{Form, of_linux};
use armsnap::import::Options;
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let root = testdata("linux-core/root");
    let size = |name: &str| fs::metadata(root.join(name)).unwrap().len();
    let forms = [("minidump", Form::Arm64), ("old minidump", Form::OldArm64)];
    let all = forms.map(|(name, form)| {
        let options = Options {
            symfs: vec![root.clone()],
            ..Options::default()
        };
        let mut whole = Whole::new(name, of_linux(form), directory, options);
        whole.beside = size("program") + size("lib/libwork.so");
        whole
    });
    all.into()
}
