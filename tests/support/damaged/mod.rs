//! Inputs with damage anywhere: each is read or refused, with memory, processor time and output in proportion to
//! its size, and what is read can be opened.

pub mod cores;
pub mod crash_catcher;
pub mod kernel_log;
pub mod measured;
pub mod minidump;
pub mod modules;
pub mod perf;
pub mod tarmac;
pub mod tombstone;
pub mod zephyr;

use measured::{Taken, is_alone, measured, processor_time};

use crate::support::mutation::{Dice, damage};
use armsnap::budget::Budget;
use armsnap::check::check;
use armsnap::import::{self, ImportError, Imported, Options};
use armsnap::report::info::{Info, text::Text};
use armsnap::snapshot::OpenOptions;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Memory for each byte of an input, and for any input.
const MEMORY: (u64, u64) = (64, 128 << 20);
/// Bytes that are written for each byte of an input, and for any input.
const WRITTEN: (u64, u64) = (4, 1 << 20);
/// Nanoseconds for each byte of an input, and for any input: many times what reading takes, but a loop in a loop
/// takes longer.
const TIME: (u64, u64) = (2_000, 5_000_000_000);
/// A large input, of which each round has one.
const LARGE: usize = 1 << 20;

/// An input that is read without damage.
pub struct Whole {
    /// What it is, for messages.
    pub name: String,
    /// What is damaged, and the file that holds it.
    pub bytes: Vec<u8>,
    pub file: PathBuf,
    /// What is imported, if that is another file.
    pub input: Option<PathBuf>,
    pub options: Options,
    /// The bytes of other files that are read with it.
    pub beside: u64,
    /// What a byte may be unpacked to: the limit for compressed files.
    pub unpacked: u64,
    pub read: Read,
}

/// Reads an input.
pub type Read = fn(&Path, &Options) -> Result<Imported, ImportError>;

impl Whole {
    /// An input that is a file of its own, which is recognised.
    pub fn new(name: &str, bytes: Vec<u8>, directory: &Path, options: Options) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            file: directory.join(name.replace(' ', "-")),
            input: None,
            options,
            beside: 0,
            unpacked: 1,
            read: import::import,
        }
    }

    /// Uses the bytes as the input; returns the bytes that were written, or nothing if it is refused.
    fn used(&self, bytes: &[u8], into: &Path) -> Option<u64> {
        fs::write(&self.file, bytes).unwrap();
        let input = self.input.as_ref().unwrap_or(&self.file);
        let imported = (self.read)(input, &self.options).ok()?;
        imported
            .write(into, true, &mut |_, _| ())
            .expect("what is imported can be written");
        let opened = imported.open(input, &OpenOptions::default());
        let opened = opened.expect("what is imported can be opened");
        check(&opened);
        assert!(!Text(&Info::new(&opened)).to_string().is_empty());
        Some(size_of(into))
    }
}

/// The bytes in the files of a directory.
fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.metadata().unwrap() {
        there if there.is_dir() => size_of(&entry.path()),
        there => there.len(),
    });
    sizes.sum()
}

/// What was seen of all inputs of a kind.
#[derive(Default)]
struct Seen {
    most: Taken,
    written: u64,
    /// Nanoseconds for each byte, and the bytes of memory, of inputs of some size.
    per_byte: (f64, f64),
    read: usize,
}

/// Damages inputs of a kind `count` times in all, each in turn, and uses them.
pub fn damaged(count: usize, make: impl FnOnce(&Path) -> Vec<Whole>) {
    if !is_alone() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("into");
    let all = make(scratch.path());
    for whole in &all {
        assert!(
            whole.used(&whole.bytes, &into).is_some(),
            "{} is not read",
            whole.name
        );
    }
    if all.is_empty() {
        return;
    }
    let (large, small): (Vec<&Whole>, _) = all.iter().partition(|whole| whole.bytes.len() > LARGE);
    let round = small.len() + large.len().min(1);
    let case = watched();
    let (mut seen, mut failed) = (Seen::default(), Vec::new());
    for number in 0..count {
        let small = small.get(number % round).copied();
        let whole = small.unwrap_or_else(|| large[number / round % large.len()]);
        let mut dice = Dice((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut bytes = whole.bytes.clone();
        for _ in 0..=dice.below(4) {
            damage(&mut bytes, &mut dice);
        }
        case.store(number as u64, Ordering::Relaxed);
        let one = || measured(|| whole.used(&bytes, &into));
        let fault = match catch_unwind(AssertUnwindSafe(one)) {
            Ok((written, taken)) => whole.within(bytes.len(), written, taken, &mut seen).err(),
            Err(_) => Some("panic".to_owned()),
        };
        failed.extend(fault.map(|fault| format!("{}, number {number}: {fault}", whole.name)));
    }
    case.store(u64::MAX, Ordering::Relaxed);
    eprintln!(
        "{count} inputs, {} read: most {} bytes of memory ({:.1} for each byte), {:?} ({:.0} ns for each byte), \
         {} bytes written",
        seen.read, seen.most.memory, seen.per_byte.1, seen.most.time, seen.per_byte.0, seen.written
    );
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    // Otherwise little would be tested after the first header.
    assert!(seen.read * 32 > count, "{} of {count} are read", seen.read);
}

impl Whole {
    /// Whether what was used for damaged bytes of a length is in proportion.
    fn within(
        &self,
        length: usize,
        written: Option<u64>,
        taken: Taken,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let size = length as u64 * self.unpacked + self.beside;
        seen.read += usize::from(written.is_some());
        let written = written.unwrap_or(0);
        seen.most.memory = seen.most.memory.max(taken.memory);
        seen.most.time = seen.most.time.max(taken.time);
        seen.written = seen.written.max(written);
        if size > 4096 {
            let of = |amount: u64| amount as f64 / size as f64;
            let (time, memory) = (of(taken.time.as_nanos() as u64), of(taken.memory));
            seen.per_byte = (seen.per_byte.0.max(time), seen.per_byte.1.max(memory));
        }
        for (what, amount, (times, least)) in [
            ("bytes of memory", taken.memory, MEMORY),
            ("bytes written", written, WRITTEN),
            ("nanoseconds", taken.time.as_nanos() as u64, TIME),
        ] {
            let budget = Budget::of(size as usize, times, least);
            if !budget.take(amount) {
                return Err(format!(
                    "{amount} {what} for {size} bytes: expected at most {}",
                    budget.left()
                ));
            }
        }
        Ok(())
    }
}

/// Ends the process if one of the inputs takes for ever, and says which. The number of the input is to be set.
fn watched() -> &'static AtomicU64 {
    /// Processor time that no input takes.
    const FOR_EVER: Duration = Duration::from_secs(300);
    static CASE: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(|| {
        let (mut last, mut since) = (u64::MAX, Duration::ZERO);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let (now, time) = (CASE.load(Ordering::Relaxed), processor_time());
            if now != last {
                (last, since) = (now, time);
            }
            if time - since > FOR_EVER && now != u64::MAX {
                eprintln!("number {now} does not end");
                std::process::abort();
            }
        }
    });
    &CASE
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}
