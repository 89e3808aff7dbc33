//! `armsnap import`: an input of another format becomes a snapshot.

use super::progress::Progress;
use super::{Failure, say};
use armsnap::import::{self, ImportError, Imported, NamedProgram, Options};
use armsnap::mapped;
use armsnap::snapshot::registers::parse_u64;
use armsnap::snapshot::write::{self, WriteError};
use armsnap::text::{self, Form, PlainStream};
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make a snapshot from a perf.data file, a core file, a minidump, a core dump of Zephyr, or raw trace
/// buffers
#[derive(Args)]
pub struct Arguments {
    /// A perf.data file of perf or simpleperf with CoreSight or TRBE trace, a core file, a minidump, a
    /// core dump of Zephyr, or an archive of a snapshot; and the snapshot directory to write. With --raw or --mtb, the input may be omitted;
    /// it is a core file or core dump of the same system
    #[arg(required = true, num_args = 1..=2, value_name = "INPUT> <DIR")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    options: ImportArguments,

    /// A trace buffer: from a TMC, an ETB, a trace port, a DSTREAM or SWO (repeatable). Its format
    /// and its contents are detected
    #[arg(long, value_name = "BUFFER")]
    raw: Vec<PathBuf>,

    /// Memory of the cores: raw bytes at an address, Intel HEX, S-records, LiME or ELF (repeatable). With
    /// --raw, or alone
    #[arg(long, value_name = "FILE[@ADDRESS]", value_parser = program)]
    memory: Vec<NamedProgram>,

    /// The registers of a core, as a debugger prints them: OpenOCD and pyOCD (reg), J-Link Commander
    /// (regs), GDB (info registers), the monitor of QEMU (repeatable, in the order of the cores).
    /// With --memory, --raw or --mtb
    #[arg(long, value_name = "FILE")]
    registers: Vec<PathBuf>,

    /// RAM with the trace of an MTB (Cortex-M0+, M23, M33), and its address. Name its registers
    /// POSITION and MASTER with --register, and BASE, FLOW, VTOR and PC if they are known
    #[arg(long, value_name = "FILE@ADDRESS", value_parser = program, conflicts_with = "raw")]
    mtb: Option<NamedProgram>,

    /// --raw: the tmc_crash_metadata of a Linux panic buffer; its checksums are verified
    /// (repeatable, in the order of --raw)
    #[arg(long, value_name = "FILE", requires = "raw")]
    crash_metadata: Vec<PathBuf>,

    /// --raw: a copy of the trace units' directories in the sysfs of Linux (etm0 with mgmt and
    /// trcidr)
    #[arg(long, value_name = "DIR", requires = "raw")]
    sysfs: Option<PathBuf>,

    /// --raw, --mtb: a register of the trace unit, such as TRCCONFIGR=0x41 (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = register)]
    register: Vec<(String, u64)>,

    /// --raw, --memory: the type of the cores, such as Cortex-A53
    #[arg(long, value_name = "TYPE")]
    core: Option<String>,

    /// A program, and the address of its lowest page if it was not loaded at its own addresses.
    /// perf.data: used where a file with its build-id or name was mapped (repeatable)
    #[arg(long, value_name = "FILE[@ADDRESS]", value_parser = program)]
    elf: Vec<NamedProgram>,

    /// Overwrite an existing snapshot
    #[arg(long)]
    force: bool,

    /// Print as JSON what was recognised, assumed and left out
    #[arg(long)]
    json: bool,
}

/// How an input that is not a snapshot is read.
#[derive(Args, Clone, Debug, Default)]
pub struct ImportArguments {
    /// perf.data, core file, minidump: a directory with the mapped files, by recorded path, name or build-id,
    /// or an archive made by perf archive (repeatable)
    #[arg(long, value_name = "DIR", visible_alias = "sysroot")]
    pub symfs: Vec<PathBuf>,

    /// perf.data, core file of a whole system, log of a kernel: the kernel that ran
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,

    /// perf.data: this process only (repeatable)
    #[arg(long, value_name = "N")]
    pub pid: Vec<u32>,

    /// perf.data: this thread only (repeatable)
    #[arg(long, value_name = "N")]
    pub tid: Vec<u32>,

    /// perf.data: threads of this name only (repeatable)
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<String>,

    /// perf.data: trace of this CPU only (repeatable)
    #[arg(long, value_name = "N")]
    pub cpu: Vec<u32>,

    /// perf.data: what a core of the snapshot represents [default: thread]
    #[arg(long, value_enum, value_name = "thread|cpu")]
    pub by: Option<By>,
}

/// What a core of the snapshot represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// A thread, on all CPUs
    Thread,
    /// A CPU, with all its threads
    Cpu,
}

impl ImportArguments {
    /// Returns the options of the reader.
    pub fn options(&self) -> Options {
        Options {
            symfs: self.symfs.clone(),
            build_id_cache: build_id_cache(),
            vmlinux: self.vmlinux.clone(),
            pids: self.pid.clone(),
            tids: self.tid.clone(),
            cpus: self.cpu.clone(),
            comms: self.comm.clone(),
            by_cpu: self.by == Some(By::Cpu),
            ..Options::default()
        }
    }

    /// Returns the first option that was given.
    pub fn given(&self) -> Option<&'static str> {
        // A new option has to be placed.
        let Self {
            symfs,
            vmlinux,
            pid,
            tid,
            comm,
            cpu,
            by,
        } = self;
        let options = [
            (!symfs.is_empty(), "--symfs"),
            (vmlinux.is_some(), "--vmlinux"),
            (!pid.is_empty(), "--pid"),
            (!tid.is_empty(), "--tid"),
            (!comm.is_empty(), "--comm"),
            (!cpu.is_empty(), "--cpu"),
            (by.is_some(), "--by"),
        ];
        let given = options.into_iter().find(|(given, _)| *given);
        given.map(|(_, name)| name)
    }

    /// Returns these options as words of a command line.
    pub fn words(&self) -> Vec<std::ffi::OsString> {
        let mut out = Vec::new();
        let mut add = |name: &str, value: &std::ffi::OsStr| {
            let mut word = std::ffi::OsString::from(format!("--{name}="));
            word.push(value);
            out.push(word);
        };
        for directory in &self.symfs {
            add("symfs", directory.as_os_str());
        }
        if let Some(vmlinux) = &self.vmlinux {
            add("vmlinux", vmlinux.as_os_str());
        }
        for (name, numbers) in [("pid", &self.pid), ("tid", &self.tid), ("cpu", &self.cpu)] {
            for number in numbers {
                add(name, number.to_string().as_ref());
            }
        }
        for comm in &self.comm {
            add("comm", comm.as_ref());
        }
        match self.by {
            Some(By::Thread) => add("by", "thread".as_ref()),
            Some(By::Cpu) => add("by", "cpu".as_ref()),
            None => {}
        }
        out
    }
}

/// Returns perf's build-id cache, which its user may have moved.
fn build_id_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let moved = set("PERF_BUILDID_DIR").map(PathBuf::from);
    moved.or_else(|| Some(Path::new(&set("HOME")?).join(".debug")))
}

/// The contents of the JSON report.
#[derive(Serialize)]
struct Report<'a> {
    inputs: &'a [String],
    recognised: &'a str,
    output: String,
    cores: Vec<&'a str>,
    sources: Vec<&'a str>,
    buffers: usize,
    trace_bytes: u64,
    notes: Vec<String>,
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match &error {
            ImportError::Usage(_)
            | ImportError::Write(WriteError::Exists(_) | WriteError::InTheWay(_)) => {
                Self::Usage(error.to_string())
            }
            _ => Self::Input(error.to_string()),
        }
    }
}

/// `NAME=VALUE`.
fn register(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = parse_u64(value.trim()).ok_or("expected a number, such as 0x41")?;
    Ok((name.trim().to_owned(), value))
}

/// `FILE[@ADDRESS]`.
fn program(text: &str) -> Result<NamedProgram, String> {
    let at = text.rsplit_once('@').and_then(|(path, address)| {
        let hex = address.strip_prefix("0x").or(address.strip_prefix("0X"))?;
        Some((path, u64::from_str_radix(hex, 16).ok()?))
    });
    Ok(match at {
        Some((path, address)) => NamedProgram {
            path: path.into(),
            address: Some(address),
        },
        None => NamedProgram {
            path: text.into(),
            address: None,
        },
    })
}

/// Imports an input.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let options = Options {
        elf: arguments.elf.clone(),
        memory: arguments.memory.clone(),
        mtb: arguments.mtb.clone(),
        crash_metadata: arguments.crash_metadata.clone(),
        register_lists: arguments.registers.clone(),
        registers: arguments.register.clone(),
        sysfs: arguments.sysfs.clone(),
        core_type: arguments.core.clone(),
        ..arguments.options.options()
    };
    let traced = !arguments.raw.is_empty() || arguments.mtb.is_some();
    let raw = traced || !arguments.memory.is_empty() || !arguments.registers.is_empty();
    let (input, output) = match &arguments.paths[..] {
        [output] if raw => (None, output),
        [input, output] if traced || !raw => (Some(input), output),
        [input] => {
            return Err(Failure::Usage(format!(
                "expected, after {}, the snapshot directory to write",
                input.display()
            )));
        }
        _ => {
            return Err(Failure::Usage(
                "--memory and --registers give the input: expected only the snapshot directory to write"
                    .to_owned(),
            ));
        }
    };
    if !traced && !arguments.register.is_empty() {
        let text = "--register: expected --raw or --mtb, whose trace unit has it";
        return Err(Failure::Usage(text.to_owned()));
    }
    write::may_write(output, arguments.force).map_err(ImportError::from)?;
    if input.is_some() && arguments.core.is_some() {
        let text = "--core: the input says what its cores are";
        return Err(Failure::Usage(text.to_owned()));
    }
    if let (None, Some(option)) = (input, arguments.options.given()) {
        return Err(Failure::Usage(format!("{option}: --raw has no processes")));
    }
    let mut imported = None;
    if let Some(input) = input {
        imported = Some(import::import(input, &options)?);
    }
    let imported = match imported {
        Some(imported) if !raw => imported,
        state => import::import_raw(state, &arguments.raw, &options)?,
    };
    let mut progress = Progress::new(0);
    imported.write(output, arguments.force, &mut |done, total| {
        progress.of(done, total);
    })?;
    drop(progress);
    mapped::whole()?;
    let memory = arguments.mtb.iter().chain(&arguments.memory);
    let memory = memory.map(|memory| &memory.path);
    let inputs = input.into_iter().chain(&arguments.raw).chain(memory);
    let inputs = inputs.chain(&arguments.registers);
    let inputs: Vec<String> = inputs.map(|path| path.display().to_string()).collect();
    print(arguments.json, &inputs, output, &imported)?;
    Ok(ExitCode::SUCCESS)
}

fn print(json: bool, inputs: &[String], output: &Path, imported: &Imported) -> Result<(), Failure> {
    use armsnap::snapshot::model::DeviceClass;
    let devices = &imported.snapshot.devices;
    let named = |class: DeviceClass| {
        let devices = devices.iter().filter(move |device| device.class == class);
        devices.map(|device| &*device.name).collect::<Vec<_>>()
    };
    let (cores, sources) = (named(DeviceClass::Core), named(DeviceClass::TraceSource));
    let trace = imported.snapshot.trace.iter();
    let buffers: Vec<_> = trace.flat_map(|trace| &trace.buffers).collect();
    let files = buffers.iter().flat_map(|buffer| &buffer.files);
    let lengths = files.filter_map(|file| Some(imported.files.get(file)?.len() as u64));
    let trace_bytes: u64 = lengths.sum();
    if json {
        let report = Report {
            inputs,
            recognised: &imported.kind,
            output: output.display().to_string(),
            cores,
            sources,
            buffers: buffers.len(),
            trace_bytes,
            notes: imported.notes.iter().map(ToString::to_string).collect(),
        };
        let mut out = PlainStream::new(io::stdout().lock(), Form::Json);
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    super::print_notes(&imported.notes);
    say(text::one_line(&format!(
        "{}: {}: {}{}, {} with {}, written to {}",
        inputs.join(", "),
        imported.kind,
        text::count(cores.len() as u64, "core"),
        some(&cores),
        text::count(buffers.len() as u64, "trace buffer"),
        text::count(trace_bytes, "byte"),
        output.display()
    )));
    Ok(())
}

/// Returns the first names of a list, in brackets; nothing if it is empty.
fn some(names: &[&str]) -> String {
    const NAMED: usize = 8;
    let mut named: Vec<&str> = names.iter().take(NAMED).copied().collect();
    named.extend((names.len() > NAMED).then_some("…"));
    match named.is_empty() {
        true => String::new(),
        false => format!(" ({})", named.join(", ")),
    }
}
