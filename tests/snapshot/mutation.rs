//! Damaged .ini files never make the reader, the memory, the topology, the check or the writer
//! panic, and every message has a file and line.

use crate::support::mutation::{Dice, mutate};
use armsnap::arch::Space;
use armsnap::check::check;
use armsnap::quantity::Address;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::topology::sources;
use armsnap::snapshot::write::{canonical, texts};
use std::path::Path;
use std::sync::Arc;

/// A snapshot that uses all features of the format.
const RICH: &[(&str, &str)] = &[
    (
        "snapshot.ini",
        "; comment\n[snapshot]\nversion=1.0\ndescription=Example snapshot\n[device_list]\n\
         device0=cpu_0.ini\ndevice1=sub/cpu_1.ini\ndevice2=etm.ini\ndevice3=stm.ini\n\
         [clusters]\nCluster 0=cpu_0,cpu_1\n[trace]\nmetadata=trace.ini\n",
    ),
    (
        "cpu_0.ini",
        "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A57\nlocation=dap:2,ap:1,address:0x80010000\n\
         [regs]\nX0(size:64)=0x1234000012340000\nPC(size:64)=0x1000\nSP(size:64)=0\nCPSR=0x1C5\n\
         Q0(id:0x100,size:128)=0x00112233445566778899aabbccddeeff\nD1(92,size:64)=12\n\
         [dump1]\nfile=code.bin\naddress=0x1000\nlength=0x10\nspace=EL1N\n\
         [dump2]\nfile=code.bin\naddress=0x1008\noffset=4\nspace=S\n[dump.z]\nfile=sub\\data.bin\naddress=0xFFFFFFFFFFFFFFF8\n",
    ),
    (
        "sub/cpu_1.ini",
        "[global]\ncore=Cortex-M3\n[regs]\nR15=0x1000\nR13=0\nxPSR=0x1\n[extendregs]\n37=5\n[dump]\nfile=data.bin\naddress=4096\n",
    ),
    (
        "etm.ini",
        "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4.2\n[regs]\nTRCCONFIGR(0x004)=0xC1\n\
         TRCTRACEIDR(id:0x10)=0x10\nTRCIDR0(0x1E0)=0x28000EA1\n",
    ),
    (
        "stm.ini",
        "[device]\nname=STM\nclass=trace_source\ntype=STM\n[regs]\nSTMTCSR(0x3A0)=0x00A00007\n",
    ),
    (
        "trace.ini",
        "[timestamp]\nfrequency=25000000\n[trace_buffers]\nbuffers=buffer0,buffer1,\n[buffer0]\nname=ETB_0\n\
         file=code.bin,sub/data.bin\nformat=coresight\n[buffer1]\nname=ETB_1\nfile=code.bin\nformat=source_data\n\
         [core_trace_sources]\ncpu_0=ETM_0\ncpu_1=@address:0x1\n[source_buffers]\nETM_0=ETB_0\nETM_0(stream:1)=ETB_1\nSTM=etb_1\n",
    ),
    ("code.bin", "0123456789abcdef"),
    ("sub/data.bin", "zyxwvutsrqponmlk"),
];

/// Uses everything that reads a loaded snapshot. Returns the number of findings.
fn use_all(files: InMemory, write: bool) -> usize {
    let loaded = match OpenSnapshot::from_files(Arc::new(files), "snapshot.ini") {
        Ok(loaded) => loaded,
        Err(error) => {
            assert!(error.place.line > 0, "{error}");
            return 1;
        }
    };
    for note in &loaded.notes {
        assert!(
            note.place.line > 0 && !note.place.file.as_os_str().is_empty(),
            "{note}"
        );
    }
    let findings = check(&loaded);
    for finding in &findings {
        let place = &finding.place;
        assert!(
            place.line > 0 && !place.file.as_os_str().is_empty(),
            "{finding}"
        );
    }
    for source in sources(&loaded.snapshot) {
        assert!(loaded.snapshot.devices.get(source.device).is_some());
        let _ = loaded.buffer_parts(source.buffer);
    }
    for device in &loaded.snapshot.devices {
        let memory = CoreMemory::new(&loaded, device);
        let dumps = device.dumps.iter().map(|dump| dump.address);
        for address in dumps.flat_map(|a| [a.wrapping_sub(1), a, a.wrapping_add(15)]) {
            for space in [Space::Any, Space::El1N, Space::S] {
                let known = memory.slice(Address(address), space).first().copied();
                let mut out = [0; 40];
                let count = memory.read(Address(address), space, &mut out);
                assert_eq!(known, Some(out[0]).filter(|_| count > 0));
            }
        }
    }
    // A snapshot that was read can be written, unless its paths are invalid.
    if write && let Ok(files) = texts(&loaded.snapshot) {
        let back = OpenSnapshot::from_files(Arc::new(InMemory(files)), "snapshot.ini").unwrap();
        assert_eq!(canonical(&back.snapshot), canonical(&loaded.snapshot));
    }
    findings.len()
}

fn run(base: &InMemory, rounds: usize, seed: u64) -> usize {
    let names: Vec<&String> = base
        .0
        .keys()
        .filter(|name| name.ends_with(".ini"))
        .collect();
    let mut dice = Dice(seed);
    let mut found = 0;
    for round in 0..rounds {
        let mut files = base.clone();
        for _ in 0..=dice.below(4) {
            let name = names[dice.below(names.len())];
            let mut text = files.0[name].to_vec();
            mutate(&mut text, &mut dice);
            files.0.insert(name.clone(), text.into());
        }
        found += usize::from(use_all(files, round % 8 == 0) > 0);
    }
    found
}

/// 12,000 in all, divided to run in parallel.
fn rich(seed: u64) {
    let mut base = InMemory::default();
    for (name, text) in RICH {
        let bytes = text.as_bytes().to_vec();
        base.0.insert((*name).into(), bytes.into());
    }
    assert!(use_all(base.clone(), true) > 0);
    assert_eq!(run(&base, 3000, seed), 3000);
}

#[test]
fn mutations_of_a_rich_snapshot_1() {
    rich(0x9E37_79B9_7F4A_7C15);
}

#[test]
fn mutations_of_a_rich_snapshot_2() {
    rich(0xBF58_476D_1CE4_E5B9);
}

#[test]
fn mutations_of_a_rich_snapshot_3() {
    rich(0x94D0_49BB_1331_11EB);
}

#[test]
fn mutations_of_a_rich_snapshot_4() {
    rich(0xD6E8_FEB8_6659_FD93);
}

#[test]
fn mutations_of_real_snapshots() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots");
    if !Path::new(shared).is_dir() {
        crate::support::skip::missing("../shared is not there");
        return;
    }
    for name in [
        "juno_r1_1",
        "TC2",
        "ete-ite-instr",
        "itm_only_raw",
        "stm_only",
    ] {
        let mut base = InMemory::default();
        for entry in std::fs::read_dir(Path::new(shared).join(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                base.0.insert(name, std::fs::read(&path).unwrap().into());
            }
        }
        run(&base, 100, 0xDEAD_BEEF_0BAD_F00D);
    }
}
