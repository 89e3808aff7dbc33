//! Notes on `perf.data`.

use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::text;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The owner of the trace in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceOf {
    /// A CPU.
    #[error("CPU {0}")]
    Cpu(u32),
    /// A thread.
    #[error("thread {0}")]
    Thread(u32),
    /// A thread before it executed another program.
    #[error("thread {0}, before it executed another program")]
    ReplacedThread(u32),
}

/// A note on `perf.data`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerfNote {
    /// A file ends within its records.
    #[error("{}at byte {at:#x}: {fault}: only what comes before is used", prefix(.file.as_deref()))]
    CutFile {
        /// The name of the file, if there are several.
        file: Option<String>,
        /// The offset in the file.
        at: u64,
        /// The fault.
        fault: String,
    },
    /// Records were lost during the recording.
    #[error(
        "{} lost during the recording: mappings may be missing",
        text::count(*.count, "record")
    )]
    LostRecords {
        /// Their number.
        count: u64,
    },
    /// Records are too short.
    #[error("{} shorter than the type requires: left out", text::count(*.count, "record"))]
    ShortRecords {
        /// Their number.
        count: u64,
    },
    /// `AUX_OUTPUT_HW_ID` records of an unknown version, left out.
    #[error(
        "{} with a major version other than 0: left out",
        text::count(*.count, "AUX_OUTPUT_HW_ID record")
    )]
    HardwareIdVersion {
        /// Their number.
        count: u64,
    },
    /// `AUX_OUTPUT_HW_ID` records without a CPU, left out.
    #[error("{} without a CPU: left out", text::count(*.count, "AUX_OUTPUT_HW_ID record"))]
    HardwareIdWithoutCpu {
        /// Their number.
        count: u64,
    },
    /// There are too many events.
    #[error("more than {limit} events: the later ones are left out")]
    ManyEvents {
        /// The maximum number of events.
        limit: usize,
    },
    /// The file ends within the trace of an AUXTRACE record.
    #[error("AUXTRACE at byte {at:#x} has {bytes} bytes of trace: the file ends within them")]
    CutTrace {
        /// The offset of the record.
        at: usize,
        /// The number of bytes of trace according to the record.
        bytes: usize,
    },
    /// AUX records are truncated.
    #[error("{} truncated: trace is missing after each", text::count(*.count, "AUX record"))]
    AuxTruncated {
        /// Their number.
        count: u64,
    },
    /// AUX records are partial.
    #[error("{} partial: trace is missing in each", text::count(*.count, "AUX record"))]
    AuxPartial {
        /// Their number.
        count: u64,
    },
    /// AUX records report a collision.
    #[error(
        "{} with a collision: another sample used the trace unit",
        text::count(*.count, "AUX record")
    )]
    AuxCollision {
        /// Their number.
        count: u64,
    },
    /// AUX records have an unknown format.
    #[error(
        "{} with an unknown format: formatter frames are assumed",
        text::count(*.count, "AUX record")
    )]
    AuxFormat {
        /// Their number.
        count: u64,
    },
    /// AUX records without a byte of trace.
    #[error("{} without a byte of trace", text::count(*.count, "AUX record"))]
    AuxEmpty {
        /// Their number.
        count: u64,
    },
    /// AUX records repeat trace of earlier ones.
    #[error("{} with trace of an earlier one: it is used once", text::count(*.count, "AUX record"))]
    AuxRepeated {
        /// Their number.
        count: u64,
    },
    /// AUX records describe trace that is not in the file.
    #[error(
        "{} with {bytes} bytes of trace that are not in the file (AUXTRACE records were lost)",
        text::count(*.count, "AUX record")
    )]
    AuxLost {
        /// Their number.
        count: u64,
        /// The number of bytes that are missing.
        bytes: u64,
    },
    /// Trace was overwritten by newer trace.
    #[error("{bytes} bytes of trace were overwritten by newer trace (snapshot mode)")]
    Overwritten {
        /// The number of bytes.
        bytes: u64,
    },
    /// No AUX record describes a buffer.
    #[error(
        "no AUX record describes the {bytes} bytes of trace of {of}: assumed to be one piece with \
         formatter frames"
    )]
    UndescribedBuffer {
        /// The owner of the trace.
        of: TraceOf,
        /// The number of its bytes.
        bytes: u64,
    },
    /// Bytes that no AUX record describes, left out.
    #[error("{bytes} bytes of trace that no AUX record describes are left out")]
    Undescribed {
        /// Their number.
        bytes: u64,
    },
    /// Timestamps of some CPUs may not be those of the virtual counter.
    #[error(
        "the recording does not say of all CPUs that their timestamps are those of the virtual \
         counter: these are not converted to perf's clock"
    )]
    OtherClocks,
    /// AUXTRACE_INFO has several blocks for one CPU.
    #[error("AUXTRACE_INFO has several trace units of CPU {}: the first one is used", list(.cpus))]
    RepeatedUnits {
        /// The CPUs.
        cpus: BTreeSet<u32>,
    },
    /// Two CPUs have the same trace ID.
    #[error(
        "trace ID {:#x} belongs to CPU {cpu} and to CPU {other}: CPU {cpu} is assumed",
        .trace_id.0
    )]
    SharedTraceId {
        /// The trace ID.
        trace_id: TraceId,
        /// The CPU that is assumed.
        cpu: u32,
        /// The other one.
        other: u32,
    },
    /// CPUs without a trace ID.
    #[error(
        "{} without a trace ID: AUX_OUTPUT_HW_ID records are missing",
        text::count(*.cpus, "CPU")
    )]
    CpusWithoutTraceId {
        /// Their number.
        cpus: u64,
    },
    /// The trace does not contain thread numbers.
    #[error(
        "the trace does not contain the numbers of threads: the kernel writes them to CONTEXTIDR \
         if it has CONFIG_PID_IN_CONTEXTIDR, and lets them be traced outside containers only"
    )]
    NoThreadNumbers,
    /// The trace of CPUs is divided by timestamps and records of switches.
    #[error(
        "trace of CPU {} is divided by timestamps and the records of switches: between the \
         timestamps around a switch it is left out",
        list(.cpus)
    )]
    DividedByTime {
        /// The CPUs.
        cpus: BTreeSet<u32>,
    },
    /// The trace of CPUs cannot be divided between threads.
    #[error(
        "several threads may have run in the time of an AUX record, and trace of CPU {} has no \
         context IDs: there its history is that of the CPU",
        list(.cpus)
    )]
    NotDivided {
        /// The CPUs.
        cpus: BTreeSet<u32>,
    },
    /// Trace in which nothing is executed is left out.
    #[error(
        "{of}: nothing is executed in its trace ({}): left out",
        text::count(*.buffers as u64, "buffer")
    )]
    Idle {
        /// The owner of the trace.
        of: TraceOf,
        /// The number of its buffers.
        buffers: usize,
    },
    /// There are too many mappings.
    #[error(
        "the cores have more than {limit} mappings: the oldest ones of later cores are left out"
    )]
    ManyMappings {
        /// The maximum number of mappings.
        limit: usize,
    },
    /// A process has too many mappings.
    #[error("process {pid} has more than {limit} mappings: the oldest ones are left out")]
    ManyMappingsOfProcess {
        /// The process.
        pid: u32,
        /// The maximum number of mappings.
        limit: usize,
    },
    /// There are too many threads in the trace.
    #[error("the trace has more than {limit} threads: further ones are left out")]
    ManyThreads {
        /// The maximum number of threads.
        limit: usize,
    },
    /// There are too many mappings and functions of a jitdump.
    #[error("{file}: the cores have more than {limit} mappings and functions: some are left out")]
    ManyFunctions {
        /// The jitdump, by its path in the snapshot.
        file: String,
        /// The maximum number of mappings and functions.
        limit: usize,
    },
    /// Functions of a jitdump were replaced by others.
    #[error(
        "{file}: {} replaced by others at the same addresses: only the newest are used",
        text::count(*.functions as u64, "function")
    )]
    ReplacedFunctions {
        /// The jitdump, by its path in the snapshot.
        file: String,
        /// The number of functions.
        functions: usize,
    },
    /// A jitdump is faulty.
    #[error("{path}: {fault}")]
    Jitdump {
        /// Its file.
        path: PathBuf,
        /// The fault.
        fault: String,
    },
    /// The kernel's program lacks the symbol that gives its address.
    #[error("{path}: has no symbol {symbol}, which gives the kernel's load address: not used")]
    NoSymbol {
        /// The program.
        path: PathBuf,
        /// The symbol.
        symbol: String,
    },
    /// The recording has no mapping of the kernel that the user named.
    #[error(
        "{path}: the recording does not say where the kernel was: not used; record as root, or \
         with kernel.kptr_restrict=0"
    )]
    NoKernelMapping {
        /// The kernel's file.
        path: PathBuf,
    },
    /// The recording does not contain the address of the kernel, whose program is not used.
    #[error("{path}: the recording does not give the kernel's load address: not used")]
    UnplacedKernel {
        /// The program.
        path: PathBuf,
    },
    /// The code of modules comes from their files.
    #[error(
        "the code of {} is from files; instructions that the kernel replaced, or may have, are \
         not known: perf record --kcore keeps them",
        text::count(*.count as u64, "module")
    )]
    Modules {
        /// Their number.
        count: usize,
    },
    /// The function tracer is assumed not to have been in use.
    #[error("assumed that the kernel's function tracer (ftrace) was not in use in modules")]
    NoTracer,
    /// A file is not a kernel module, or its code cannot be placed.
    #[error("{path}: is no module whose code can be placed in memory: not used")]
    UnplacedModule {
        /// The file.
        path: PathBuf,
    },
    /// There are more modules than can be linked.
    #[error(
        "the files of modules have more than {limit} bytes, or are out of proportion unpacked: \
         further ones are not used"
    )]
    ManyModules {
        /// The maximum total size of their files in bytes.
        limit: usize,
    },
}

/// The name of a file, if there are several.
fn prefix(file: Option<&str>) -> String {
    file.map_or_else(String::new, |file| format!("{file}: "))
}

fn list(cpus: &BTreeSet<u32>) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(", ")
}
