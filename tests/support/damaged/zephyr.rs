//! Core dumps of Zephyr: plain, in the log of a console, and in a partition of flash.

use super::Whole;
use crate::support::gdb::testdata;
use crate::support::inputs::zephyr::{
    ARM64, CORTEX_M, build, log, of_saved_system, partition, threads_of_a_cortex_m,
    threads_of_an_arm64,
};
use armsnap::import::{NamedProgram, Options};
use std::fs;
use std::path::Path;

/// All of them.
pub fn all(directory: &Path) -> Vec<Whole> {
    let mut all = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>, program: &Path| {
        let options = Options {
            elf: vec![NamedProgram {
                path: program.to_owned(),
                address: None,
            }],
            ..Options::default()
        };
        let mut whole = Whole::new(name, bytes, directory, options);
        whole.beside = fs::metadata(program).unwrap().len();
        all.push(whole);
    };
    let saved = of_saved_system();
    let program = testdata("mps2-m4/program.elf");
    add("dump", saved.clone(), &program);
    add("log", log(&saved).into_bytes(), &program);
    add("partition", partition(&saved), &program);
    for (name, layout, dump) in [
        ("cortex-m", &CORTEX_M, threads_of_a_cortex_m()),
        ("arm64", &ARM64, threads_of_an_arm64()),
    ] {
        let own = directory.join(format!("{name}.program"));
        fs::create_dir(&own).unwrap();
        if let Some(program) = build(&own, layout) {
            add(&format!("threads of {name}"), dump.clone(), &program);
            add(&format!("log of {name}"), log(&dump).into_bytes(), &program);
        }
    }
    all
}
