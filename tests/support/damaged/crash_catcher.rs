//! Dumps of CrashCatcher: binary, and in a log.

use super::Whole;
use crate::support::gdb::testdata;
use crate::support::inputs::crash_catcher::{log, of_saved_system};
use armsnap::import::{NamedProgram, Options};
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let program = testdata("mps2-m4/program.elf");
    let dump = of_saved_system();
    let forms = [("dump", dump.clone()), ("log", log(&dump).into_bytes())];
    let all = forms.map(|(name, bytes)| {
        let options = Options {
            elf: vec![NamedProgram::from(program.clone())],
            ..Options::default()
        };
        let mut whole = Whole::new(name, bytes, directory, options);
        whole.beside = fs::metadata(&program).unwrap().len();
        whole
    });
    all.into()
}
