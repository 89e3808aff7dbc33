//! `armsnap record` on the programs, and the witness.

use super::Program;
use armsnap::encode::CodeAddress;
use armsnap::record::witness::{Reader, Record};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The trace ID of the first core; the others follow.
pub const FIRST_ID: u8 = 0x10;

/// Records a program; up to the label `halt_here` if it runs on a bare machine.
pub fn record(program: &Program, into: &Path, witness: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(crate::support::armsnap());
    command
        .args(["record", "--exit-zero", "-o"])
        .arg(into)
        .args(options);
    command.arg("--witness").arg(witness);
    if let Some(machine) = &program.machine {
        // QEMU's options: the machine's name, then `-cpu` and `-smp`.
        let options = machine[1..].iter();
        let options =
            options.map(|word| word.replacen('-', "--", usize::from(word.starts_with('-'))));
        command.arg("--system").arg(&machine[0]).args(options);
        command.args(["--until", "halt_here"]);
    }
    command.arg("--").arg(&program.elf);
    command.stdin(Stdio::null()).output().unwrap()
}

/// A recorded snapshot and its witness.
pub struct Recording {
    directory: TempDir,
}

impl Recording {
    /// Records a program, which must succeed.
    pub fn of(program: &Program, options: &[&str]) -> Self {
        let recording = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let output = record(
            program,
            &recording.snapshot(),
            &recording.witness(),
            options,
        );
        assert!(output.status.success(), "{output:?}");
        recording
    }

    pub fn snapshot(&self) -> PathBuf {
        self.place("snapshot")
    }

    pub fn witness(&self) -> PathBuf {
        self.place("witness")
    }

    /// The path of another file beside the two.
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn reader(witness: &Path) -> Reader<BufReader<File>> {
    Reader::new(BufReader::with_capacity(
        1 << 18,
        File::open(witness).unwrap(),
    ))
    .unwrap()
}

/// The executed instructions by core number.
pub fn executed(witness: &Path) -> BTreeMap<u32, Vec<u64>> {
    let cores = reader(witness).places(1 << 24).unwrap();
    let addresses = |places: Vec<CodeAddress>| places.iter().map(|place| place.address.0).collect();
    let cores = cores.into_iter();
    cores
        .map(|(core, places)| (core, addresses(places)))
        .collect()
}

/// The executed instructions, each with its core, in the order of the recording.
pub fn executed_in_order(witness: &Path) -> Vec<(u32, u64)> {
    let mut reader = reader(witness);
    let mut all = Vec::new();
    while let Some(said) = reader.read().unwrap() {
        let Record::Ran {
            core,
            block,
            count,
            times,
        } = said
        else {
            continue;
        };
        let places = reader.block(block).unwrap().places().take(count);
        let run: Vec<_> = places.map(|place| (core, place.address.0)).collect();
        for _ in 0..times {
            all.extend_from_slice(&run);
        }
    }
    all
}

/// The instructions of a witness of one core, one by one.
pub struct Instructions {
    reader: Reader<BufReader<File>>,
    run: Vec<u64>,
    /// The index in the run, and the remaining repetitions.
    next: usize,
    again: u64,
}

impl Instructions {
    /// Reads a witness.
    pub fn of(witness: &Path) -> Self {
        Self {
            reader: reader(witness),
            run: Vec::new(),
            next: 0,
            again: 0,
        }
    }
}

impl Iterator for Instructions {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.next >= self.run.len() {
            if self.again > 0 {
                self.again -= 1;
                self.next = 0;
                continue;
            }
            match self.reader.read().unwrap()? {
                Record::Ran {
                    core,
                    block,
                    count,
                    times,
                } => {
                    assert_eq!(core, 0, "a program of one core");
                    let places = self.reader.block(block).unwrap().places().take(count);
                    self.run = places.map(|place| place.address.0).collect();
                    self.next = 0;
                    self.again = times - 1;
                }
                Record::Exception { .. } => {}
            }
        }
        self.next += 1;
        Some(self.run[self.next - 1])
    }
}
