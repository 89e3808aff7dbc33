//! Sessions on a long trace with one synchronisation point: its index is kept for the next session.

use crate::support::gdb::{armsnap, need_gdb, run, text};
use armsnap::element::Context;
use armsnap::encode::{CodeAddress, Tracer};
use armsnap::etmv4::{TraceUnit, TraceUnitOptions};
use armsnap::flow::Pieces;
use armsnap::quantity::{Address, ExceptionLevel, Isa, Security};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Bytes of trace: more than 32 times 64 KiB.
const BYTES: usize = 2400 << 10;
/// Two lines so far apart that each branch takes several bytes.
const LINES: [u64; 2] = [0x40_0000, 0x1_2340_0000];

/// A snapshot of a core that went back and forth between two lines.
fn snapshot() -> TempDir {
    // nop; br x0
    let code: Vec<u8> = [0xd503_201f_u32, 0xd61f_0000]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let mut pieces = Pieces::default();
    for line in LINES {
        pieces.add(Address(line), code.clone());
    }
    let options = TraceUnitOptions::default();
    let mut tracer = Tracer::new(TraceUnit::new(options), pieces, 0);
    tracer.context(Context {
        isa: Isa::A64,
        el: Some(ExceptionLevel(1)),
        security: Some(Security::NonSecure),
        is_64bit: Some(true),
        ..Context::default()
    });
    let place = |line: u64| CodeAddress {
        address: Address(line),
        isa: Isa::A64,
    };
    let (mut bytes, mut here) = (Vec::new(), 0);
    while bytes.len() < BYTES {
        tracer.run(place(LINES[here]), Address(LINES[here] + 8));
        here = 1 - here;
        tracer.take(&mut bytes);
    }
    tracer.finish(Some(place(LINES[here])));
    tracer.take(&mut bytes);
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("trace.bin", &bytes);
    write("code.bin", &code);
    write(
        "snapshot.ini",
        b"[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n[trace]\n\
          metadata=trace.ini\n",
    );
    let cpu = format!(
        "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[regs]\nPC(size:64)={:#x}\n\
         [dump1]\nfile=code.bin\naddress={:#x}\n[dump2]\nfile=code.bin\naddress={:#x}\n",
        LINES[here], LINES[0], LINES[1]
    );
    write("cpu.ini", cpu.as_bytes());
    let mut etm = "[device]\nname=etm\nclass=trace_source\ntype=ETM4.2\n[regs]\n".to_owned();
    for (name, value) in options.registers() {
        etm += &format!("{name}={value:#x}\n");
    }
    write("etm.ini", etm.as_bytes());
    write(
        "trace.ini",
        b"[trace_buffers]\nbuffers=b\n[b]\nname=b\nfile=trace.bin\nformat=source_data\n\
          [core_trace_sources]\ncpu=etm\n[source_buffers]\netm=b\n",
    );
    directory
}

/// A walk back from the end, and a search for what was never executed.
fn walk(snapshot: &Path, cache: &Path, options: &[&str], variable: Option<&str>) -> String {
    need_gdb();
    let mut command = armsnap();
    command.env("XDG_CACHE_HOME", cache);
    command.env_remove("ARMSNAP_NO_CACHE");
    if let Some(value) = variable {
        command.env("ARMSNAP_NO_CACHE", value);
    }
    command.arg("gdb").arg(snapshot).args(options);
    command.args(["--", "-nx", "-batch"]);
    for gdb in [
        "reverse-stepi 3",
        "monitor where",
        "break *0x500000",
        "reverse-continue",
        "monitor where",
        "continue",
        "monitor where",
    ] {
        command.args(["-ex", gdb]);
    }
    let shown = text(&run(&mut command));
    assert!(shown.contains("0+"), "{shown}");
    shown
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "result"))
        .collect()
}

#[test]
fn sessions_are_the_same_with_and_without_an_index() {
    let snapshot = snapshot();
    let parent = tempfile::tempdir().unwrap();
    let cache = parent.path().join("cache");
    let kept = cache.join("armsnap");
    let wanted = walk(snapshot.path(), &cache, &["--no-cache"], None);
    assert_eq!(walk(snapshot.path(), &cache, &[], Some("1")), wanted);
    assert!(!cache.exists());
    let one = walk(snapshot.path(), &cache, &["--jobs", "1"], None);
    assert_eq!(one, wanted);
    let [index] = &files(&kept)[..] else {
        panic!("{:?}", files(&kept));
    };
    let written = index.metadata().unwrap().modified().unwrap();
    let bytes = fs::read(index).unwrap();
    assert_eq!(
        walk(snapshot.path(), &cache, &["--jobs", "3"], Some("")),
        wanted
    );
    assert_eq!(files(&kept), std::slice::from_ref(index));
    // It was read.
    assert!(index.metadata().unwrap().modified().unwrap() > written);
    // Damaged, it is made again.
    fs::write(index, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(walk(snapshot.path(), &cache, &[], None), wanted);
    assert_eq!(fs::read(index).unwrap(), bytes);
    // A directory that cannot be made is no error.
    let file = snapshot.path().join("code.bin");
    assert_eq!(walk(snapshot.path(), &file, &[], None), wanted);
}
