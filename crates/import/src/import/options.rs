//! What the user specifies about an input.

use std::path::PathBuf;

/// A program that the user names, and its load address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedProgram {
    /// The file.
    pub path: PathBuf,
    /// The load address of its lowest loadable page; `None` for the addresses in the file.
    pub address: Option<u64>,
}

impl From<PathBuf> for NamedProgram {
    fn from(path: PathBuf) -> Self {
        Self {
            path,
            address: None,
        }
    }
}

/// Selects parts of an input, and names further files that belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Directories that contain the programs of the recorded system under their recorded paths.
    pub symfs: Vec<PathBuf>,
    /// perf's build-id cache (`~/.debug`).
    pub build_id_cache: Option<PathBuf>,
    /// Programs.
    pub elf: Vec<NamedProgram>,
    /// The kernel with its symbols.
    pub vmlinux: Option<PathBuf>,
    /// Processes; all if empty.
    pub pids: Vec<u32>,
    /// Threads; all if empty.
    pub tids: Vec<u32>,
    /// CPUs; all if empty.
    pub cpus: Vec<u32>,
    /// Names of threads; all if empty.
    pub comms: Vec<String>,
    /// Whether histories are those of CPUs rather than of threads.
    pub by_cpu: bool,
    /// Dumps of memory: raw bytes at an address, or records with addresses of their own, to which
    /// the address is added.
    pub memory: Vec<NamedProgram>,
    /// A dump of RAM with the packets of an MTB, and the address of the RAM.
    pub mtb: Option<NamedProgram>,
    /// The metadata of the panic buffers of Linux, in the order of the buffers.
    pub crash_metadata: Vec<PathBuf>,
    /// Lists of registers as debuggers print them, one for each core.
    pub register_lists: Vec<PathBuf>,
    /// Registers of trace units.
    pub registers: Vec<(String, u64)>,
    /// A copy of the directories of trace units in Linux's sysfs.
    pub sysfs: Option<PathBuf>,
    /// The type of the cores (`Cortex-A53`).
    pub core_type: Option<String>,
}
