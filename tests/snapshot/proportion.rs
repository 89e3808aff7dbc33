//! Snapshots and trace files with very many small parts: time and memory are proportional to
//! their size. Memory and output are bounded; a timeout detects hangs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::gdb::{armsnap, run_within, text, write_snapshot};

/// Bytes of memory for each range that `convert --merge` makes, as in docs/limits.md.
const LIMIT: usize = 2560;
/// A timeout: quadratic work takes far longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the program with a limited address space; returns its output.
fn within(megabytes: usize, arguments: &[&str]) -> String {
    let mut command = Command::new("bash");
    let limit = format!("ulimit -v {}; exec \"$0\" \"$@\"", megabytes << 10);
    command
        .args(["-c", &limit])
        .arg(armsnap().get_program())
        .args(arguments);
    let output = run_within(&mut command, PATIENCE);
    let text = text(&output);
    assert!(output.status.success(), "{:?}: {text:.2000}", output.status);
    text
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An ELF file for AArch64 whose `segments` all contain the same `bytes` of the file, from address
/// 0x10000 on.
fn elf(segments: u16, bytes: usize) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let headers = 64 + 56 * u64::from(segments);
    file.extend(2_u16.to_le_bytes());
    file.extend(183_u16.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64, 56, segments, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for _ in 0..segments {
        file.extend(1_u32.to_le_bytes());
        file.extend(5_u32.to_le_bytes());
        for word in [headers, 0x1_0000, 0x1_0000, bytes as u64, bytes as u64, 1] {
            file.extend(word.to_le_bytes());
        }
    }
    file.resize(file.len() + bytes, 0x1f);
    file
}

/// A core with many dumps of one byte each, with a gap after each.
fn many_dumps(count: usize) -> String {
    let mut device = "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x10000\n".to_owned();
    for n in 0..count {
        let address = 0x1_0000 + 8 * n;
        device += &format!("[dump{n}]\nfile=x\naddress={address:#x}\nlength=1\n");
    }
    device
}

#[test]
fn many_dumps_with_many_programs() {
    const DUMPS: usize = 20_000;
    let snapshot = write_snapshot(&[("cpu_0", &many_dumps(DUMPS))], &[("x", b"\x1f")]);
    for n in 0..50 {
        let name = format!("p{n}.elf");
        std::fs::write(snapshot.path().join(name), elf(200, 8 * DUMPS)).unwrap();
    }
    let text = within(2000, &["info", path(snapshot.path())]);
    assert!(text.contains("program "), "{text:.2000}");
    // In the server, each gap in each segment would have a note.
    let mut serve = armsnap();
    serve.arg("serve").arg(snapshot.path()).arg("--stdio");
    let output = run_within(&mut serve, PATIENCE);
    assert!(
        output.stderr.len() < 100_000,
        "{} bytes",
        output.stderr.len()
    );
    let decode = run_within(armsnap().arg("check").arg(snapshot.path()), PATIENCE);
    assert!(decode.status.code().is_some());
}

/// Tables that map all addresses to memory that is not in the snapshot, beside dumps with gaps. The
/// next dump is near, so the tables need not be searched for the next mapped page.
#[test]
fn many_dumps_beside_translation_tables() {
    const DUMPS: usize = 20_000;
    // TCR_EL1: addresses of 48 bits, pages of 4 KiB. The table is the next table at each level but the
    // last (Arm ARM DDI 0487, D8.3).
    let mut device = many_dumps(DUMPS).replace(
        "[regs]\n",
        "[regs]\nSCTLR_EL1(size:64)=1\nTCR_EL1(size:64)=0x580100010\nTTBR0_EL1(size:64)=0x1000\n\
         TTBR1_EL1(size:64)=0x1000\nCPSR=0x3c5\n",
    );
    device += "[dump.tables]\nfile=table\naddress=0x1000\nspace=P\n";
    let table = 0x1003_u64.to_le_bytes().repeat(512);
    let hole = 0x9000_0003_u64.to_le_bytes();
    let table: Vec<u8> = (0..512)
        .flat_map(|n| {
            if n == 0 {
                table[..8].try_into().unwrap()
            } else {
                hole
            }
        })
        .collect();
    let snapshot = write_snapshot(&[("cpu_0", &device)], &[("x", b"\x1f"), ("table", &table)]);
    std::fs::write(snapshot.path().join("p.elf"), elf(4, 8 * DUMPS)).unwrap();
    let text = within(2000, &["info", path(snapshot.path())]);
    assert!(text.contains("program "), "{text:.2000}");
}

#[test]
fn many_trace_sources_with_locations() {
    const SOURCES: usize = 2000;
    let source = |n: usize| {
        let location = format!("location=dap:0,ap:1,address:{n:#010x}");
        format!("class=trace_source\ntype=ETM4.0\n{location}\n[regs]\nTRCTRACEIDR=1\n")
    };
    let names: Vec<String> = (0..SOURCES).map(|n| format!("etm_{n}")).collect();
    let sources: Vec<String> = (0..SOURCES).map(source).collect();
    let mut devices = vec![(
        "cpu_0",
        "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0\n",
    )];
    devices.extend(
        names
            .iter()
            .zip(&sources)
            .map(|(name, text)| (&**name, &**text)),
    );
    let mut trace = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=x\nformat=coresight\n\
                     [core_trace_sources]\n"
        .to_owned();
    for n in (0..SOURCES).rev().cycle().take(50 * SOURCES) {
        trace += &format!("cpu_0=@dap:0,ap:1,address:{n}\n");
    }
    let files = [("x", &[0; 16][..]), ("trace.ini", trace.as_bytes())];
    let snapshot = write_snapshot(&devices, &files);
    let list = snapshot.path().join("snapshot.ini");
    let text = std::fs::read_to_string(&list).unwrap() + "[trace]\nmetadata=trace.ini\n";
    std::fs::write(&list, text).unwrap();
    let text = within(2000, &["info", path(snapshot.path())]);
    assert!(text.contains("etm_1999"), "{text:.2000}");
    let checked = run_within(armsnap().arg("check").arg(snapshot.path()), PATIENCE);
    assert!(checked.status.code().is_some());
}

/// A file with more segments than are read, named by many dumps, has its headers read once.
#[test]
fn many_dumps_of_a_large_program() {
    let mut device = "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x10000\n".to_owned();
    for n in 0..20_000 {
        let name = if n % 2 == 0 { "p.out" } else { "./p.out" };
        device += &format!("[dump{n}]\nfile={name}\naddress={n:#x}\n");
    }
    let program = elf(60_000, 16);
    let snapshot = write_snapshot(&[("cpu_0", &device)], &[("p.out", &program)]);
    let text = within(2000, &["info", path(snapshot.path())]);
    let beyond = "have more than 262144 headers and segments";
    assert_eq!(text.matches(beyond).count(), 1, "{text:.2000}");
    assert!(
        text.contains("[dump3] \"./p.out\": the ELF files"),
        "{text:.2000}"
    );
}

#[test]
fn many_cores_with_many_programs() {
    let names: Vec<String> = (0..1500).map(|n| format!("cpu_{n}")).collect();
    let device = |n: usize| format!("class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)={n}\n");
    let devices: Vec<String> = (0..names.len()).map(device).collect();
    let devices: Vec<(&str, &str)> = names
        .iter()
        .zip(&devices)
        .map(|(name, device)| (&**name, &**device))
        .collect();
    let snapshot = write_snapshot(&devices, &[]);
    for n in 0..500 {
        std::fs::write(snapshot.path().join(format!("p{n}.elf")), elf(1, 100)).unwrap();
    }
    let text = within(2000, &["info", path(snapshot.path())]);
    assert!(text.contains("1500 cores"), "{text:.2000}");
}

#[test]
fn an_ini_file_takes_memory_proportional_to_its_size() {
    let mut device =
        "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x10000\n[other]\n".to_owned();
    // The shortest lines.
    let size = 8 << 20;
    device.extend(std::iter::repeat_n("a=\n", size / 3));
    let snapshot = write_snapshot(&[("cpu_0", &device)], &[]);
    // Some is for the program itself; 125 times the size would be a gigabyte.
    let text = within(850, &["info", path(snapshot.path())]);
    assert!(text.contains("1 core"), "{text:.2000}");
}

/// An AArch64 trace file with the memory blocks of some frames.
struct Frames(Vec<u8>);

impl Frames {
    fn new() -> Self {
        Self(
            b"\x7fTRACE0\nR 8\ntdesc <target><architecture>aarch64</architecture>\
              <feature name=\"x\"><reg name=\"pc\" bitsize=\"64\"/></feature></target>\n\
              status 0;tstop::0\ntp T1:1000:E:0:0\n\n"
                .to_vec(),
        )
    }

    fn frame<'a>(&mut self, blocks: impl Iterator<Item = (u64, &'a [u8])>) {
        let mut data = Vec::new();
        for (address, bytes) in blocks {
            data.push(b'M');
            data.extend(address.to_le_bytes());
            data.extend((bytes.len() as u16).to_le_bytes());
            data.extend_from_slice(bytes);
        }
        self.0.extend(1_u16.to_le_bytes());
        self.0.extend((data.len() as u32).to_le_bytes());
        self.0.extend(data);
    }

    /// Merges them within a memory limit; returns the snapshot.
    fn merged(&self, megabytes: usize) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.tf");
        std::fs::write(&file, &self.0).unwrap();
        let back = directory.path().join("back");
        within(megabytes, &["convert", "--merge", path(&file), path(&back)]);
        directory
    }
}

#[test]
fn many_frames_are_merged() {
    let mut frames = Frames::new();
    // Frames with the same memory, which the last one contains as single bytes.
    for _ in 0..20_000 {
        frames.frame([(0x1000, &[1; 4000][..])].into_iter());
    }
    let cut = (0x1000..0x1000 + 4000).rev();
    frames.frame(cut.map(|at| (at, &[2_u8][..])));
    let merged = frames.merged(1000);
    let dump = std::fs::read(merged.path().join("back/memory.bin")).unwrap();
    assert!(dump == [2; 4000]);
}

#[test]
fn many_frames_with_many_separate_ranges_are_merged() {
    // A debug build takes ten times as long for each.
    const FRAMES: u64 = if cfg!(debug_assertions) {
        30_000
    } else {
        300_000
    };
    let mut frames = Frames::new();
    for n in 0..FRAMES {
        frames.frame([(16 * n, &n.to_le_bytes()[..])].into_iter());
    }
    // The limit in docs/limits.md for each, and the memory of the program itself.
    let merged = frames.merged(100 + FRAMES as usize * LIMIT / (1 << 20));
    let dump = std::fs::read(merged.path().join("back/memory.bin")).unwrap();
    let numbers = dump
        .chunks(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()));
    assert!(numbers.eq(0..FRAMES));
}
