//! The recorded systems in `testdata/recorded`: armsnap and the reference decoder decode
//! the same instructions, which end where the cores halted.

use crate::support::program::Code;
use crate::support::program::decode::{by_library, by_reference, cores};
use crate::support::program::same;
use armsnap::arch::{Architecture, RegisterFile};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use std::path::Path;

/// `counts`: its cores and their numbers of executed instructions. `branched`: whether the last
/// instruction branched to where the core halted.
fn reads(name: &str, program: &str, branched: bool, counts: &[(&str, usize)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let snapshot = root.join("testdata/recorded").join(name);
    let code = Code::of(&snapshot.join(program));
    let loaded = Snapshot::open(&snapshot, &OpenOptions::default()).unwrap();
    let cores = cores(&snapshot);
    assert_eq!(cores.len(), counts.len());
    for ((core, id), (wanted, count)) in cores.iter().zip(counts) {
        assert_eq!(core, wanted);
        let mut decoded = Vec::new();
        let beside = by_library(&snapshot, core, &code, &mut |address, _| {
            decoded.push(address);
            true
        });
        assert_eq!(beside.gaps, [], "{name} {core}");
        assert_eq!(decoded.len(), *count, "{name} {core}");
        let mut read = Vec::new();
        let trouble = by_reference(&snapshot, *id, &code, &mut |address, _| {
            read.push(address);
            true
        });
        assert_eq!(trouble, Vec::<String>::new(), "{name} {core}");
        same(&read, &decoded, &format!("{name} {core}: the reference"));
        // The next instruction is at the program counter.
        let devices = &loaded.snapshot.devices;
        let device = devices.iter().find(|device| device.name == *core).unwrap();
        let architecture = Architecture::detect(device).architecture;
        let pc = RegisterFile::read(device, architecture).pc().unwrap();
        let last = *decoded.last().unwrap();
        let after = last + code.length(last, code.isa(last));
        assert!(pc == after || branched, "{name} {core}");
    }
}

#[test]
fn etmv4() {
    let counts = [("Cortex-A57_0", 867), ("Cortex-A57_1", 449)];
    reads("etmv4", "program.elf", false, &counts);
}

#[test]
fn ptm() {
    let counts = [("Cortex-A15_0", 1426), ("Cortex-A15_1", 1425)];
    reads("ptm", "cores-a15-bare-a15.elf", true, &counts);
}

#[test]
fn etmv3() {
    reads("etmv3", "program.elf", false, &[("Cortex-M4_0", 193)]);
}
