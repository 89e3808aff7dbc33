//! Notes on `perf.data`.

use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::text;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// The owner of the trace in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOf {
    /// A CPU.
    Cpu(u32),
    /// A thread.
    Thread(u32),
    /// A thread before it executed another program.
    ReplacedThread(u32),
}

impl fmt::Display for TraceOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Thread(tid) => write!(f, "thread {tid}"),
            Self::ReplacedThread(tid) => {
                write!(f, "thread {tid}, before it executed another program")
            }
        }
    }
}

/// A note on `perf.data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerfNote {
    /// A file ends within its records.
    CutFile {
        /// The name of the file, if there are several.
        file: Option<String>,
        /// The offset in the file.
        at: u64,
        /// The fault.
        fault: String,
    },
    /// Records were lost during the recording.
    LostRecords {
        /// Their number.
        count: u64,
    },
    /// Records are too short, and left out.
    ShortRecords {
        /// Their number.
        count: u64,
    },
    /// `AUX_OUTPUT_HW_ID` records of an unknown version, left out.
    HardwareIdVersion {
        /// Their number.
        count: u64,
    },
    /// `AUX_OUTPUT_HW_ID` records without a CPU, left out.
    HardwareIdWithoutCpu {
        /// Their number.
        count: u64,
    },
    /// There are too many events; later ones are left out.
    ManyEvents {
        /// The maximum number of events.
        limit: usize,
    },
    /// The file ends within the trace of an AUXTRACE record.
    CutTrace {
        /// The offset of the record.
        at: usize,
        /// The number of bytes of trace according to the record.
        bytes: usize,
    },
    /// AUX records are truncated.
    AuxTruncated {
        /// Their number.
        count: u64,
    },
    /// AUX records are partial.
    AuxPartial {
        /// Their number.
        count: u64,
    },
    /// AUX records report a collision.
    AuxCollision {
        /// Their number.
        count: u64,
    },
    /// AUX records have an unknown format; formatter frames are assumed.
    AuxFormat {
        /// Their number.
        count: u64,
    },
    /// AUX records without a byte of trace.
    AuxEmpty {
        /// Their number.
        count: u64,
    },
    /// AUX records repeat trace of earlier ones.
    AuxRepeated {
        /// Their number.
        count: u64,
    },
    /// AUX records describe trace that is not in the file.
    AuxLost {
        /// Their number.
        count: u64,
        /// The number of bytes that are missing.
        bytes: u64,
    },
    /// Trace was overwritten by newer trace.
    Overwritten {
        /// The number of bytes.
        bytes: u64,
    },
    /// No AUX record describes a buffer; it is assumed to be one piece with formatter frames.
    UndescribedBuffer {
        /// The owner of the trace.
        of: TraceOf,
        /// The number of its bytes.
        bytes: u64,
    },
    /// Bytes that no AUX record describes, left out.
    Undescribed {
        /// Their number.
        bytes: u64,
    },
    /// Timestamps of some CPUs may not be those of the virtual counter.
    OtherClocks,
    /// AUXTRACE_INFO has several blocks for one CPU.
    RepeatedUnits {
        /// The CPUs.
        cpus: BTreeSet<u32>,
    },
    /// Two CPUs have the same trace ID.
    SharedTraceId {
        /// The trace ID.
        trace_id: TraceId,
        /// The CPU that is assumed.
        cpu: u32,
        /// The other one.
        other: u32,
    },
    /// CPUs without a trace ID.
    CpusWithoutTraceId {
        /// Their number.
        cpus: u64,
    },
    /// The trace does not contain thread numbers.
    NoThreadNumbers,
    /// The trace of CPUs is divided by timestamps and records of switches.
    DividedByTime {
        /// The CPUs.
        cpus: BTreeSet<u32>,
    },
    /// The trace of CPUs cannot be divided between threads.
    NotDivided {
        /// The CPUs.
        cpus: BTreeSet<u32>,
    },
    /// Trace in which nothing is executed is left out.
    Idle {
        /// The owner of the trace.
        of: TraceOf,
        /// The number of its buffers.
        buffers: usize,
    },
    /// There are too many mappings; the oldest ones of later cores are left out.
    ManyMappings {
        /// The maximum number of mappings.
        limit: usize,
    },
    /// A process has too many mappings; the oldest ones are left out.
    ManyMappingsOfProcess {
        /// The process.
        pid: u32,
        /// The maximum number of mappings.
        limit: usize,
    },
    /// There are too many threads in the trace; some are left out.
    ManyThreads {
        /// The maximum number of threads.
        limit: usize,
    },
    /// There are too many mappings and functions of a jitdump; some are left out.
    ManyFunctions {
        /// The jitdump, by its path in the snapshot.
        file: String,
        /// The maximum number of mappings and functions.
        limit: usize,
    },
    /// Functions of a jitdump were replaced by others.
    ReplacedFunctions {
        /// The jitdump, by its path in the snapshot.
        file: String,
        /// The number of functions.
        functions: usize,
    },
    /// A jitdump is faulty.
    Jitdump {
        /// Its file.
        path: PathBuf,
        /// The fault.
        fault: String,
    },
    /// The kernel's program lacks the symbol that gives its address, and is not used.
    NoSymbol {
        /// The program.
        path: PathBuf,
        /// The symbol.
        symbol: String,
    },
    /// The recording has no mapping of the kernel that the user named.
    NoKernelMapping {
        /// The kernel's file.
        path: PathBuf,
    },
    /// The recording does not contain the address of the kernel, whose program is not used.
    UnplacedKernel {
        /// The program.
        path: PathBuf,
    },
    /// The code of modules comes from their files.
    Modules {
        /// Their number.
        count: usize,
    },
    /// The function tracer is assumed not to have been in use.
    NoTracer,
    /// A file is not a kernel module, or its code cannot be placed.
    UnplacedModule {
        /// The file.
        path: PathBuf,
    },
    /// There are more modules than can be linked.
    ManyModules {
        /// The maximum total size of their files in bytes.
        limit: usize,
    },
}

impl fmt::Display for PerfNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutFile { file, at, fault } => {
                if let Some(file) = file {
                    write!(f, "{file}: ")?;
                }
                write!(
                    f,
                    "at byte {at:#x}: {fault}: only what comes before is used"
                )
            }
            Self::LostRecords { count } => write!(
                f,
                "{} lost during the recording: mappings may be missing",
                text::count(*count, "record")
            ),
            Self::ShortRecords { count } => write!(
                f,
                "{} shorter than the type requires: left out",
                text::count(*count, "record")
            ),
            Self::HardwareIdVersion { count } => write!(
                f,
                "{} with a major version other than 0: left out",
                text::count(*count, "AUX_OUTPUT_HW_ID record")
            ),
            Self::HardwareIdWithoutCpu { count } => write!(
                f,
                "{} without a CPU: left out",
                text::count(*count, "AUX_OUTPUT_HW_ID record")
            ),
            Self::ManyEvents { limit } => {
                write!(f, "more than {limit} events: the later ones are left out")
            }
            Self::CutTrace { at, bytes } => write!(
                f,
                "AUXTRACE at byte {at:#x} has {bytes} bytes of trace: the file ends within them"
            ),
            Self::AuxTruncated { count } => write!(
                f,
                "{} truncated: trace is missing after each",
                text::count(*count, "AUX record")
            ),
            Self::AuxPartial { count } => write!(
                f,
                "{} partial: trace is missing in each",
                text::count(*count, "AUX record")
            ),
            Self::AuxCollision { count } => write!(
                f,
                "{} with a collision: another sample used the trace unit",
                text::count(*count, "AUX record")
            ),
            Self::AuxFormat { count } => write!(
                f,
                "{} with an unknown format: formatter frames are assumed",
                text::count(*count, "AUX record")
            ),
            Self::AuxEmpty { count } => {
                write!(
                    f,
                    "{} without a byte of trace",
                    text::count(*count, "AUX record")
                )
            }
            Self::AuxRepeated { count } => write!(
                f,
                "{} with trace of an earlier one: it is used once",
                text::count(*count, "AUX record")
            ),
            Self::AuxLost { count, bytes } => write!(
                f,
                "{} with {bytes} bytes of trace that are not in the file (AUXTRACE records were lost)",
                text::count(*count, "AUX record")
            ),
            Self::Overwritten { bytes } => write!(
                f,
                "{bytes} bytes of trace were overwritten by newer trace (snapshot mode)"
            ),
            Self::UndescribedBuffer { of, bytes } => write!(
                f,
                "no AUX record describes the {bytes} bytes of trace of {of}: assumed to be one \
                 piece with formatter frames"
            ),
            Self::Undescribed { bytes } => write!(
                f,
                "{bytes} bytes of trace that no AUX record describes are left out"
            ),
            Self::OtherClocks => f.write_str(
                "the recording does not say of all CPUs that their timestamps are those of the \
                 virtual counter: these are not converted to perf's clock",
            ),
            Self::RepeatedUnits { cpus } => write!(
                f,
                "AUXTRACE_INFO has several trace units of CPU {}: the first one is used",
                list(cpus)
            ),
            Self::SharedTraceId {
                trace_id,
                cpu,
                other,
            } => write!(
                f,
                "trace ID {:#x} belongs to CPU {cpu} and to CPU {other}: CPU {cpu} is assumed",
                trace_id.0
            ),
            Self::CpusWithoutTraceId { cpus } => write!(
                f,
                "{} without a trace ID: AUX_OUTPUT_HW_ID records are missing",
                text::count(*cpus, "CPU")
            ),
            Self::NoThreadNumbers => f.write_str(
                "the trace does not contain the numbers of threads: the kernel writes them to \
                 CONTEXTIDR if it has CONFIG_PID_IN_CONTEXTIDR, and lets them be traced outside \
                 containers only",
            ),
            Self::DividedByTime { cpus } => write!(
                f,
                "trace of CPU {} is divided by timestamps and the records of switches: between the \
                 timestamps around a switch it is left out",
                list(cpus)
            ),
            Self::NotDivided { cpus } => write!(
                f,
                "several threads may have run in the time of an AUX record, and trace of CPU {} \
                 has no context IDs: there its history is that of the CPU",
                list(cpus)
            ),
            Self::Idle { of, buffers } => write!(
                f,
                "{of}: nothing is executed in its trace ({}): left out",
                text::count(*buffers as u64, "buffer")
            ),
            Self::ManyMappings { limit } => write!(
                f,
                "the cores have more than {limit} mappings: the oldest ones of later cores are \
                 left out"
            ),
            Self::ManyMappingsOfProcess { pid, limit } => write!(
                f,
                "process {pid} has more than {limit} mappings: the oldest ones are left out"
            ),
            Self::ManyThreads { limit } => write!(
                f,
                "the trace has more than {limit} threads: further ones are left out"
            ),
            Self::ManyFunctions { file, limit } => write!(
                f,
                "{file}: the cores have more than {limit} mappings and functions: some are left out"
            ),
            Self::ReplacedFunctions { file, functions } => write!(
                f,
                "{file}: {} replaced by others at the same addresses: only the newest are used",
                text::count(*functions as u64, "function")
            ),
            Self::Jitdump { path, fault } => write!(f, "{}: {fault}", path.display()),
            Self::NoSymbol { path, symbol } => write!(
                f,
                "{}: has no symbol {symbol}, which gives the kernel's load address: not used",
                path.display()
            ),
            Self::NoKernelMapping { path } => write!(
                f,
                "{}: the recording does not say where the kernel was: not used; record as root, or \
                 with kernel.kptr_restrict=0",
                path.display()
            ),
            Self::UnplacedKernel { path } => write!(
                f,
                "{}: the recording does not give the kernel's load address: not used",
                path.display()
            ),
            Self::Modules { count } => write!(
                f,
                "the code of {} is from files; instructions that the kernel replaced, or may \
                 have, are not known: perf record --kcore keeps them",
                text::count(*count as u64, "module")
            ),
            Self::NoTracer => f.write_str(
                "assumed that the kernel's function tracer (ftrace) was not in use in modules",
            ),
            Self::UnplacedModule { path } => write!(
                f,
                "{}: is no module whose code can be placed in memory: not used",
                path.display()
            ),
            Self::ManyModules { limit } => write!(
                f,
                "the files of modules have more than {limit} bytes, or are out of proportion unpacked: further ones are not used"
            ),
        }
    }
}

fn list(cpus: &BTreeSet<u32>) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(", ")
}
