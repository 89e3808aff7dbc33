//! Logs of Linux kernels that failed.

use super::Whole;
use crate::support::gdb::testdata;
use crate::support::inputs::kernel_log::{of_arm, of_arm64, of_old_arm64};
use armsnap::import::Options;
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let program = testdata("recorded/etmv4/program.elf");
    let mut all = Vec::new();
    for (name, log, kernel) in [
        ("log of ARM64", of_arm64(), Some(&program)),
        ("old log of ARM64", of_old_arm64(), Some(&program)),
        ("log of ARM", of_arm(), None),
    ] {
        let options = Options {
            vmlinux: kernel.cloned(),
            ..Options::default()
        };
        let mut whole = Whole::new(name, log.into_bytes(), directory, options);
        whole.beside = kernel.map_or(0, |path| fs::metadata(path).unwrap().len());
        all.push(whole);
    }
    all
}
