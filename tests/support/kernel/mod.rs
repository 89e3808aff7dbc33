//! A Debian kernel, recorded: fetched, booted, and its trace compared with the witness.

#![allow(dead_code, reason = "each binary uses a part of it")]

use super::following::Following;
use crate::support::skip;
use armsnap::capture::Capture;
use armsnap::decode::{Image, SourceSinks, decode_buffer};
use armsnap::element::{Exception, Mark};
use armsnap::flow::{FlowSink, Gap, QRange, Range};
use armsnap::quantity::BufferOffset;
use armsnap::record::witness::{Reader, Record};
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::read::OpenOptions;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The newest kernel of Debian's smallest flavour, unpacked once for all tests; `None` where it
/// cannot be had.
pub fn debian_kernel() -> Option<PathBuf> {
    unpacked("debian-kernel", &[])
}

/// The same of a later Debian release, whose kernels lay out modules as Linux does since 6.4.
pub fn later_kernel() -> Option<PathBuf> {
    unpacked("later-debian-kernel", &["--release", "trixie"])
}

fn unpacked(name: &str, options: &[&str]) -> Option<PathBuf> {
    if !super::record::installed(&["qemu-system-aarch64"]) {
        return None;
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let lock = File::create(root.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let directory = root.join(name);
    if let Some(image) = image_in(&directory) {
        return Some(image);
    }
    let unpacked = Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/unpack-packages"
    ))
    .args(options)
    .args(["--newest", "arm64"])
    .arg(&directory)
    .arg("linux-image-.*-cloud-arm64-unsigned")
    .output()
    .unwrap();
    if !unpacked.status.success() {
        let said = String::from_utf8_lossy(&unpacked.stderr).into_owned();
        skip::unavailable(&format!("Debian's kernel cannot be fetched: {said}"));
        return None;
    }
    Some(image_in(&directory).expect("the package contains a kernel"))
}

fn image_in(directory: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(directory.join("boot")).ok()?;
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("vmlinuz-")
    })
}

/// A module of the kernel, unpacked.
pub fn module(kernel: &Path, name: &str) -> Vec<u8> {
    // Below /lib/modules or /usr/lib/modules.
    let root = kernel.parent().unwrap().parent().unwrap();
    let mut find = Command::new("find");
    let listed = find
        .arg(root)
        .args(["-name", &format!("{name}.ko*")])
        .output();
    let listed = listed.unwrap();
    let path = String::from_utf8(listed.stdout).unwrap();
    let path = path.lines().next().expect("the module in the package");
    if !path.ends_with(".xz") {
        return std::fs::read(path).unwrap();
    }
    let unpacked = Command::new("xz").args(["-dc", path]).output().unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    unpacked.stdout
}

/// Boots a kernel under `armsnap record` with these further options.
pub fn boot(kernel: &Path, output: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "900", crate::support::armsnap(), "record"]);
    command.args([
        "--system",
        "virt",
        "--cpu",
        "cortex-a57",
        "--ram",
        "512M",
        "--append",
        "console=ttyAMA0 panic=-1",
    ]);
    command.arg("-o").arg(output).args(options);
    command.arg("--").arg(kernel).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// Builds a static program, and an initial RAM disk with it as `/init` (a newc archive,
/// Documentation/driver-api/early-userspace/buffer-format.rst). It can include `system_call.h`.
pub fn initrd(directory: &Path, source: &str) -> Option<(PathBuf, PathBuf)> {
    initrd_with(directory, source, &[])
}

/// The same with further files.
pub fn initrd_with(
    directory: &Path,
    source: &str,
    files: &[(&str, Vec<u8>)],
) -> Option<(PathBuf, PathBuf)> {
    if !super::record::installed(&["aarch64-linux-gnu-gcc"]) {
        return None;
    }
    let (code, program) = (directory.join("init.c"), directory.join("init"));
    std::fs::write(&code, source).unwrap();
    let header = include_str!("system_call.h");
    std::fs::write(directory.join("system_call.h"), header).unwrap();
    let built = Command::new("aarch64-linux-gnu-gcc")
        .args(["-g", "-O1", "-static", "-nostdlib", "-ffreestanding", "-o"])
        .arg(&program)
        .arg(&code)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let bytes = std::fs::read(&program).unwrap();
    let archive = directory.join("initrd");
    let mut out = Vec::new();
    let mut all = vec![
        ("proc", 0o40755, &[][..], 0),
        ("dev", 0o40755, &[], 0),
        // A character device, 5:1.
        ("dev/console", 0o20600, &[], 5),
        ("init", 0o100_755, &bytes, 0),
    ];
    all.extend(
        files
            .iter()
            .map(|(name, data)| (*name, 0o100_644, &data[..], 0)),
    );
    all.push(("TRAILER!!!", 0, &[], 0));
    for (name, mode, data, major) in all {
        let fields = [
            1,
            mode,
            0,
            0,
            1,
            0,
            data.len(),
            0,
            0,
            major,
            major / 5,
            name.len() + 1,
            0,
        ];
        out.extend(b"070701");
        out.extend(
            fields
                .iter()
                .flat_map(|field| format!("{field:08x}").into_bytes()),
        );
        out.extend(name.as_bytes());
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(data);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    std::fs::write(&archive, out).unwrap();
    Some((archive, program))
}

/// What the trace of a core contains.
#[derive(Debug, Default)]
pub struct Traced {
    /// The instructions at each exception level.
    pub at_level: [u64; 4],
    /// The context IDs.
    pub context_ids: BTreeMap<u32, u64>,
    level: usize,
    id: Option<u32>,
}

impl Traced {
    /// The number of instructions.
    pub fn instructions(&self) -> u64 {
        self.at_level.iter().sum()
    }
}

/// Compares the trace of each core with the witness, instruction by instruction, to the end.
pub fn compare(snapshot: &Path, witness: &Path) -> Vec<Traced> {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let (capture, notes) = Capture::open(&loaded);
    assert_eq!(notes, []);
    let mut all = Vec::new();
    let traced: Vec<usize> = {
        let sources = capture.buffers.iter().flat_map(|buffer| &buffer.sources);
        sources.map(|source| source.core.expect("a core")).collect()
    };
    for (number, device) in (0_u32..).zip(traced) {
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[device]);
        let mut found = None;
        for (buffer, source) in capture.following(&loaded.snapshot, device).0 {
            let make = Following {
                image: Image(Some(&memory)),
                sink: Compared {
                    executed: Executed::of(witness, number),
                    traced: Traced::default(),
                },
            };
            let mut decoders = [(source.trace_id, source.config.visit(make))];
            let Ok(_) = decode_buffer(buffer, &mut decoders, 1 << 20, |_, _| {
                Ok::<(), Infallible>(())
            });
            let sink = decoders[0].1.output();
            let count = sink.traced.instructions();
            assert_eq!(sink.executed.next(), None, "core {number} after {count}");
            found = Some(std::mem::take(&mut sink.traced));
        }
        all.push(found.expect("a source"));
    }
    all
}

/// The straight runs of a core in a witness.
struct Executed {
    reader: Reader<BufReader<File>>,
    core: u32,
    run: VecDeque<u64>,
    last: Vec<u64>,
    again: u64,
}

impl Executed {
    fn of(witness: &Path, core: u32) -> Self {
        let file = File::open(witness).unwrap();
        Self {
            reader: Reader::new(BufReader::with_capacity(1 << 18, file)).unwrap(),
            core,
            run: VecDeque::new(),
            last: Vec::new(),
            again: 0,
        }
    }

    fn next(&mut self) -> Option<u64> {
        while self.run.is_empty() {
            if self.again > 0 {
                self.again -= 1;
                self.run.extend(&self.last);
                continue;
            }
            if let Record::Ran {
                core,
                block,
                count,
                times,
            } = self.reader.read().unwrap()?
                && core == self.core
            {
                let places = self.reader.block(block).unwrap().places().take(count);
                self.last = places.map(|place| place.address.0).collect();
                self.again = times;
            }
        }
        self.run.pop_front()
    }
}

struct Compared {
    executed: Executed,
    traced: Traced,
}

impl FlowSink for Compared {
    fn range(&mut self, at: BufferOffset, range: &Range, _: Option<u32>) {
        let mut here = range.start.0;
        for number in 0..range.instructions {
            let next = self.executed.next();
            // The addresses inside of a range of T32 follow from their sizes.
            let same =
                next == Some(here) || number > 0 && next.is_some_and(|next| next < range.end.0);
            assert!(same, "{at:?}: {range:x?}, executed {next:x?}");
            here = next.unwrap_or_default() + 4;
        }
        let traced = &mut self.traced;
        traced.at_level[traced.level] += u64::from(range.instructions);
        if let Some(id) = traced.id {
            *traced.context_ids.entry(id).or_default() += u64::from(range.instructions);
        }
    }
    fn q_range(&mut self, _: BufferOffset, range: &QRange) {
        panic!("{range:?}");
    }
    fn exception(&mut self, _: BufferOffset, _: &Exception) {}
    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        panic!("{at:?}: {gap:x?}");
    }
    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        if let Mark::Context(context) = mark {
            self.traced.level = usize::from(context.el.unwrap_or_default().0 & 3);
            self.traced.id = context.context_id.or(self.traced.id);
        }
    }
}

impl SourceSinks<Self> for Compared {
    fn end(&mut self, _: BufferOffset) {}
    fn output(&mut self) -> &mut Self {
        self
    }
}
