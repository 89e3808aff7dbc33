//! Core files of whole systems: a kernel of ours in QEMU, whose `dump-guest-memory` writes its memory;
//! and the same in the form of makedumpfile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::gdb::{armsnap, run, session, text};
use crate::support::skip;
use crate::support::translation::Emulator;

/// A built kernel, and the core file that QEMU wrote of it when it had panicked.
struct Dumped {
    directory: tempfile::TempDir,
    kernel: PathBuf,
    core: Vec<u8>,
}

fn dumped() -> Option<&'static Dumped> {
    static DUMPED: OnceLock<Option<Dumped>> = OnceLock::new();
    DUMPED.get_or_init(dump).as_ref()
}

fn dump() -> Option<Dumped> {
    for tool in ["aarch64-linux-gnu-gcc", "qemu-system-aarch64"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skip::missing(tool);
            return None;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let kernel = directory.path().join("vmlinux");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/translation");
    let built = Command::new("aarch64-linux-gnu-gcc")
        .args([
            "-O1",
            "-g",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fno-pic",
            "-no-pie",
        ])
        .args([
            "-mgeneral-regs-only",
            "-nostdlib",
            "-static",
            "-fno-optimize-sibling-calls",
        ])
        .args(["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"])
        .args([
            "-Wl,--build-id=none",
            "-Wl,-z,max-page-size=4096",
            "-T",
            "kernel.ld",
        ])
        .args(["kernel.S", "kernel.c", "-o"])
        .arg(&kernel)
        .current_dir(sources)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let mut qemu = Emulator::start(
        Command::new("qemu-system-aarch64")
            .args(["-M", "virt", "-cpu", "cortex-a57", "-m", "16", "-kernel"])
            .arg(&kernel),
    );
    // It has panicked when it stays at a high address.
    let (started, mut last) = (Instant::now(), String::new());
    loop {
        let line = serde_json::json!({"command-line": "info registers"});
        let registers = qemu.execute("human-monitor-command", &line);
        let now = registers.as_str().unwrap().to_owned();
        if now.contains("PC=ffff") && now == last {
            break;
        }
        last = now;
        assert!(started.elapsed() < Duration::from_secs(60), "{last}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let core = directory.path().join("core");
    let to = format!("file:{}", core.display());
    qemu.execute(
        "dump-guest-memory",
        &serde_json::json!({"paging": false, "protocol": to}),
    );
    let core = std::fs::read(&core).unwrap();
    Some(Dumped {
        directory,
        kernel,
        core,
    })
}

/// Imports a core file, and returns what was reported.
fn import(dumped: &Dumped, name: &str, core: &[u8], options: &[&str]) -> (PathBuf, String, bool) {
    let input = dumped.directory.path().join(name);
    std::fs::write(&input, core).unwrap();
    let output = dumped.directory.path().join(format!("{name}.snapshot"));
    let mut command = armsnap();
    command.arg("import").arg(&input).arg(&output).args(options);
    let ran = run(&mut command);
    (output, text(&ran), ran.status.success())
}

fn in_gdb(snapshot: &Path) -> String {
    session(
        snapshot,
        &[],
        &[
            "bt",
            "print why",
            "print vmcoreinfo.name",
            "monitor translate 0xffff800009280010",
        ],
    )
}

/// What GDB shows of every form.
fn check(shown: &str) {
    // Some compilers describe arguments at the entry too.
    let shown = shown
        .replace("tries@entry=", "")
        .replace("reason@entry=", "");
    let shown = shown
        .replace("reason=reason=", "reason=")
        .replace("tries=tries=", "tries=");
    for wanted in [
        "panic (reason=19) at kernel.c:2",
        "in mount_root (tries=0)",
        "in mount_root (tries=1)",
        "in mount_root (tries=2)",
        "in start_kernel () at ",
        "$1 = 19",
        "$2 = \"VMCOREINFO",
        "physical address 0x40080010 (non-secure)",
    ] {
        assert!(shown.contains(wanted), "{wanted}\n{shown}");
    }
    let order = [
        "#0  panic (",
        "(tries=0)",
        "(tries=1)",
        "(tries=2)",
        "in start_kernel (",
    ];
    let places: Vec<_> = order.iter().map(|name| shown.find(name)).collect();
    assert!(places.is_sorted(), "{shown}");
}

#[test]
fn qemu_s_dump_of_a_kernel_at_a_random_address() {
    let Some(dumped) = dumped() else { return };
    let vmlinux = dumped.kernel.to_str().unwrap();
    let (snapshot, said, done) = import(dumped, "qemu", &dumped.core, &["--vmlinux", vmlinux]);
    assert!(done, "{said}");
    assert!(
        said.contains("KERNELOFFSET: the kernel ran 0x1200000 above its link address"),
        "{said}"
    );
    assert!(
        said.contains("table is at physical 0x40100000: high addresses of 48 bits"),
        "{said}"
    );
    check(&in_gdb(&snapshot));
    let (_, said, done) = import(dumped, "nameless", &dumped.core, &[]);
    assert!(
        done && said.contains("--vmlinux FILE names its program"),
        "{said}"
    );
}

/// An ELF note.
fn note(name: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [name.len() as u32 + 1, text.len() as u32, kind] {
        out.extend(word.to_le_bytes());
    }
    for part in [&[name, b"\0"].concat(), text] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

/// Makedumpfile's ELF form of the same: VMCOREINFO in a note, segments at the addresses of the linear
/// map, no note in memory.
fn vmcore(core: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap()) as usize;
    // QEMU's headers: a note and a segment.
    let headers = word(32);
    let (notes, notes_size) = (word(headers + 8), word(headers + 32));
    let (ram, ram_size) = (word(headers + 56 + 8), word(headers + 56 + 32));
    let mut memory = core[ram..ram + ram_size].to_vec();
    let name = b"VMCOREINFO\0\0";
    let at = memory
        .windows(name.len())
        .position(|bytes| bytes == name)
        .unwrap();
    let size = u32::from_le_bytes(memory[at - 8..at - 4].try_into().unwrap()) as usize;
    let text = memory[at + 12..at + 12 + size].to_vec();
    memory[at + 12] = b'x';
    let mut all = core[notes..notes + notes_size].to_vec();
    all.extend(note(b"VMCOREINFO", 0, &text));
    let mut out = core[..64].to_vec();
    out[32..40].copy_from_slice(&64_u64.to_le_bytes());
    let first = 64 + 2 * 56;
    let segment = |kind: u64, at: usize, address: u64, physical: u64, size: usize| {
        [
            kind,
            at as u64,
            address,
            physical,
            size as u64,
            size as u64,
            0,
        ]
        .map(u64::to_le_bytes)
        .concat()
    };
    out.extend(segment(4, first, 0, 0, all.len()));
    let after = first + all.len();
    out.extend(segment(
        1,
        after,
        0xffff_0000_0000_0000,
        0x4000_0000,
        memory.len(),
    ));
    out.extend(all);
    out.extend(memory);
    out
}

/// The pieces of a file, in the order in which makedumpfile writes them to a pipe: headers last.
fn flattened(file: &[u8]) -> Vec<u8> {
    let mut out = b"makedumpfile\0\0\0\0".to_vec();
    out.extend(1_u64.to_be_bytes());
    out.extend(1_u64.to_be_bytes());
    out.resize(4096, 0);
    for (at, piece) in file
        .chunks(1 << 20)
        .enumerate()
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        out.extend(((at as u64) << 20).to_be_bytes());
        out.extend((piece.len() as u64).to_be_bytes());
        out.extend(piece);
    }
    out.extend(u64::MAX.to_be_bytes());
    out.extend(u64::MAX.to_be_bytes());
    out
}

#[test]
fn a_core_file_in_makedumpfile_s_form() {
    let Some(dumped) = dumped() else { return };
    let vmlinux = dumped.kernel.to_str().unwrap();
    let core = vmcore(&dumped.core);
    for (name, core) in [("vmcore", core.clone()), ("vmcore.flat", flattened(&core))] {
        let (snapshot, said, done) = import(dumped, name, &core, &["--vmlinux", vmlinux]);
        assert!(done && said.contains("Linux 0.1-small"), "{said}");
        check(&in_gdb(&snapshot));
    }
    let flat = flattened(&core);
    let (_, said, done) = import(dumped, "cut", &flat[..flat.len() - 40], &[]);
    assert!(
        !done && said.contains("flattened core file cut at byte"),
        "{said}"
    );
}

#[test]
fn the_cpu_that_panicked_is_selected() {
    use object::{Object, ObjectSymbol};
    let Some(dumped) = dumped() else { return };
    let vmlinux = dumped.kernel.to_str().unwrap();
    let core = vmcore(&dumped.core);
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap()) as usize;
    let (notes, size, ram) = (word(64 + 8), word(64 + 32), word(64 + 56 + 8));
    let elf = std::fs::read(&dumped.kernel).unwrap();
    let elf = object::File::parse(&*elf).unwrap();
    let mut symbols = elf.symbols();
    let place = symbols.find(|symbol| symbol.name() == Ok("panic_cpu"));
    // KERNELOFFSET and kimage_voffset of the kernel.
    let place = place.unwrap().address() + 0x120_0000 - 0xffff_7fff_c920_0000;
    let place = ram + (place - 0x4000_0000) as usize;
    assert_eq!(core[place..place + 4], [0; 4]);
    for (panicked, first) in [(1, "cpu_1"), (0, "cpu_0"), (-1, "cpu_0"), (2, "cpu_0")] {
        // A second CPU with the same registers: its note follows those of the first one.
        let mut core = core.clone();
        let own = core[notes..notes + size].to_vec();
        let prstatus = own[..12 + 8 + 392].to_vec();
        core[place..place + 4].copy_from_slice(&i32::to_le_bytes(panicked));
        let at = core.len() as u64;
        core.extend([own, prstatus].concat());
        let length = core.len() as u64 - at;
        core[64 + 8..64 + 16].copy_from_slice(&at.to_le_bytes());
        core[64 + 32..64 + 40].copy_from_slice(&length.to_le_bytes());
        let name = format!("panicked{panicked}");
        let (snapshot, said, done) = import(dumped, &name, &core, &["--vmlinux", vmlinux]);
        assert!(done, "{said}");
        let says = format!("panic_cpu: {first} panicked");
        assert_eq!(said.contains(&says), (0..2).contains(&panicked), "{said}");
        let shown = session(&snapshot, &[], &["info threads"]);
        let selected = shown.lines().find(|line| line.starts_with("* "));
        assert!(selected.unwrap_or_default().contains(first), "{shown}");
    }
}
