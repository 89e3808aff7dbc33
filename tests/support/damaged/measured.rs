//! What a piece of work takes: memory and processor time.

use peak_alloc::PeakAlloc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::process::Command;
use std::time::Duration;

/// The allocator of binaries that measure.
pub const ALLOCATOR: PeakAlloc = PeakAlloc;

/// The address space of a process that measures: what is beyond fails there, and not on the whole machine.
const MOST: u64 = 4 << 30;

/// Set in a process that measures.
const ALONE: &str = "ARMSNAP_MEASURES_ALONE";

/// What some work took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// The most bytes that it had allocated at once.
    pub memory: u64,
    /// The time of all processors together: that of a busy machine is hardly longer.
    pub time: Duration,
}

/// Does some work, and measures it.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let before = ALLOCATOR.current_usage();
    assert!(before > 0, "the binary has another allocator");
    ALLOCATOR.reset_peak_usage();
    let started = processor_time();
    let done = work();
    let taken = Taken {
        memory: (ALLOCATOR.peak_usage() - before) as u64,
        time: processor_time() - started,
    };
    (done, taken)
}

/// The time of this process on all processors.
pub fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs a test again in a process of its own, so that what it measures is its own; returns whether this is that
/// process.
pub fn is_alone() -> bool {
    if std::env::var_os(ALONE).is_some() {
        let limits = getrlimit(Resource::As);
        let current = Some(limits.maximum.unwrap_or(MOST).min(MOST));
        setrlimit(Resource::As, Rlimit { current, ..limits }).unwrap();
        return true;
    }
    // The test runner names the thread of a test after it, unless it has only one.
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main");
    let name = named
        .map(str::to_owned)
        .or_else(|| std::env::args().find(|word| word.contains("::")));
    let name = name.expect("the name of the test");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            &*name,
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    let said = said.concat();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{:?}: {said}",
        output.status
    );
    eprintln!("{said}");
    false
}
