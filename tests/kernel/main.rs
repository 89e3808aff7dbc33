//! Recordings of a Linux kernel: the start of a boot. Whole boots, to the panic, are in tests/long.

#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::kernel::{Traced, boot, compare, debian_kernel};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A recording of the kernel.
struct Recorded {
    directory: tempfile::TempDir,
    output: Output,
}

impl Recorded {
    /// Records it with options; `None` where the kernel cannot be had.
    fn of(options: &[&str]) -> Option<Self> {
        let kernel = debian_kernel()?;
        let directory = tempfile::tempdir().unwrap();
        let witness = directory.path().join("witness");
        let options = [options, &["--witness", witness.to_str().unwrap()]].concat();
        let output = boot(&kernel, &directory.path().join("snapshot"), &options);
        Some(Self { directory, output })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn compare(&self) -> Vec<Traced> {
        compare(&self.place("snapshot"), &self.place("witness"))
    }
}

#[test]
fn a_kernel_stops_at_its_own_function_after_it_has_moved_itself() {
    let Some(recorded) = Recorded::of(&["--until", "setup_arch"]) else {
        return;
    };
    let text = said(&recorded.output);
    assert!(text.contains("stopped at setup_arch, PC 0xffff"), "{text}");
    assert!(text.contains("from where it was linked (KASLR)"), "{text}");
    // PC is where the symbols of the snapshot say.
    let pc = text.rsplit_once("PC 0x").unwrap().1.trim();
    let symbol = symbol(
        &recorded.place("snapshot").join("kernel-symbols"),
        "setup_arch",
    );
    assert_eq!(u64::from_str_radix(pc, 16).unwrap(), symbol);
    // Callers are found without debug information.
    let trace = support::gdb::session(&recorded.place("snapshot"), &[], &["bt"]);
    let frames = trace.lines().filter(|line| line.starts_with('#'));
    let names = frames.map(|line| line.split_once(" in ").unwrap().1);
    let names: Vec<&str> = names.collect();
    let wanted = ["setup_arch ()", "start_kernel ()", "__primary_switched ()"];
    assert_eq!(names, wanted, "{trace}");
    // So early, the kernel has not described itself.
    let log = support::gdb::session(
        &recorded.place("snapshot"),
        &[],
        &["monitor dmesg", "monitor tasks"],
    );
    let none = "no Linux kernel: its VMCOREINFO is not in the snapshot's memory";
    assert_eq!(log.matches(none).count(), 2, "{log}");
    let cores = recorded.compare();
    assert_eq!(cores.len(), 1);
    assert!(cores[0].instructions() > 1_000_000, "{cores:?}");
}

#[test]
fn a_trace_that_begins_late_has_only_what_follows() {
    let options = ["--from", "setup_arch", "--until", "early_ioremap_init"];
    let Some(recorded) = Recorded::of(&options) else {
        return;
    };
    let cores = recorded.compare();
    let first = armsnap::record::witness::Reader::new(std::io::BufReader::new(
        std::fs::File::open(recorded.place("witness")).unwrap(),
    ));
    let places = first.unwrap().places(1 << 24).unwrap();
    let symbols = recorded.place("snapshot").join("kernel-symbols");
    assert_eq!(places[&0][0].address.0, symbol(&symbols, "setup_arch"));
    assert_eq!(places[&0].len() as u64, cores[0].instructions());
}

#[test]
fn places_that_a_kernel_does_not_have_are_errors() {
    let Some(kernel) = debian_kernel() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (option, value, why) in [
        ("--until", "no_such_function", "no symbol has this name"),
        ("--from", "no_such_function", "no symbol has this name"),
        ("--initrd", "/nowhere/at/all", "/nowhere/at/all"),
    ] {
        let run = Command::new(crate::support::armsnap())
            .args(["record", "--system", "virt", option, value, "-o"])
            .arg(directory.path().join("snapshot"))
            .arg("--")
            .arg(&kernel)
            .output()
            .unwrap();
        assert!(!run.status.success(), "{run:?}");
        assert!(said(&run).contains(why), "{run:?}");
    }
}

fn symbol(file: &Path, name: &str) -> u64 {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(file).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut symbols = file.symbols();
    symbols
        .find(|symbol| symbol.name() == Ok(name))
        .unwrap()
        .address()
}
