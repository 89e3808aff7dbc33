//! Endpoints: the cores of one architecture, served at one address. Debuggers call a core a
//! "thread".

mod chosen;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use gdbstub::common::Tid;

use super::cores::{Core, Cores, MemoryDevice};
use super::history_registers::HistoryRegisters;
use super::note::{CoreNote, Note};
use super::process_stack;
use super::tasks::Tasks;
use super::trace_runs::Traces;
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::arch::{Architecture, RegisterDescription, RegisterFile, TargetDescription};
use armsnap_history::decode;
use armsnap_history::timeline::{self, Timeline, TracedCore};
use armsnap_snapshot::cache::Cache;
use armsnap_snapshot::check;
use armsnap_snapshot::fault::{Fault, Halted};
use armsnap_snapshot::program::call_frames::CallFrames;
use armsnap_snapshot::program::elf::{Elf, ElfError};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::libraries;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::{DeviceClass, Severity};
use armsnap_snapshot::snapshot::program::{Program, Seen};
use armsnap_snapshot::snapshot::recording::Recording;
use armsnap_snapshot::snapshot::signals::Signal;
use armsnap_snapshot::svd::{PeripheralValues, Svd};

/// Maximum number of cores with notes on shared memory: their cost grows with all dumps.
const SHARING_NOTES: usize = 64;

/// How history is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryMode {
    /// Reverse execution: the server moves.
    #[default]
    Replay,
    /// A branch trace, which GDB fetches and replays by itself.
    Btrace,
    /// None.
    None,
}

/// Options for serving a snapshot.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the cores; all if empty.
    pub cores: Vec<String>,
    /// Name of a cluster: only its cores.
    pub cluster: Option<String>,
    /// Programs of the cores.
    pub elfs: Vec<PathBuf>,
    /// Whether the program serves as memory where there is no dump.
    pub elf_memory: bool,
    /// How history is offered.
    pub history: HistoryMode,
    /// Number of threads used by a search; `None` for all processor cores.
    pub jobs: Option<NonZero<usize>>,
    /// Where indexes of long traces are kept.
    pub cache: Option<Arc<Cache>>,
    /// The description of the peripherals.
    pub svd: Option<Arc<Svd>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cores: Vec::new(),
            cluster: None,
            elfs: Vec::new(),
            elf_memory: true,
            history: HistoryMode::Replay,
            jobs: None,
            cache: None,
            svd: None,
        }
    }
}

/// An error that prevents serving.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The snapshot has no core.
    #[error("no device of class core: nothing to serve; armsnap decode lists its trace")]
    NoCore,
    /// A core does not exist.
    #[error("expected the name of a core, found {found:?}: {}", known.join(", "))]
    UnknownCore {
        /// The requested name.
        found: String,
        /// The existing cores.
        known: Vec<String>,
    },
    /// A cluster does not exist.
    #[error("expected the name of a cluster, found {found:?}: {}", known.join(", "))]
    UnknownCluster {
        /// The requested name.
        found: String,
        /// The existing clusters.
        known: Vec<String>,
    },
    /// No core matches the options.
    #[error("no core matches both --core and --cluster: give one of them")]
    NothingLeft,
    /// A program that the user named cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// The cores of one architecture.
#[derive(Debug)]
pub struct Endpoint {
    /// The snapshot's description and path.
    pub title: String,
    /// The cores; thread N is the core at N - 1.
    pub cores: Vec<Core>,
    /// Memory devices of the whole snapshot.
    pub devices: Arc<Vec<MemoryDevice>>,
    /// Faults of the snapshot, with file and line.
    pub faults: Vec<Note>,
    /// The registers of the cores.
    pub description: TargetDescription,
    /// Number of general registers in a reply to `g`.
    block: usize,
    /// The target description as XML.
    pub xml: String,
    /// The target description for old versions of GDB, if it differs.
    pub(super) xml_for_old_gdb: Option<String>,
    /// The registers of the history, if there is one.
    pub(super) history_registers: Option<HistoryRegisters>,
    /// The tasks of its kernel, found when they are first needed.
    pub(super) tasks: OnceLock<Tasks>,
    /// The program reported to clients.
    pub program: Option<Arc<Program>>,
    /// Whether clients load further programs themselves: no note on them is needed.
    pub clients_load_programs: bool,
    /// Further programs named by the user.
    pub further: Vec<Arc<Program>>,
    /// How history is offered.
    pub history: HistoryMode,
    /// How it is decoded.
    pub(super) timeline: timeline::Options,
    /// Where indexes of long traces are kept.
    pub(super) cache: Option<Arc<Cache>>,
    /// The description of the peripherals.
    pub(super) svd: Option<Arc<Svd>>,
    /// Whether tracepoints are reported when a client connects.
    pub reports_tracepoints: bool,
    /// The snapshot.
    pub(super) loaded: OpenSnapshot,
    /// The finished trace runs of its cores.
    pub(super) traces: Option<Traces>,
}

impl Endpoint {
    /// Returns the files of the program's libraries, as they were loaded.
    pub(super) fn library_files(&self) -> Vec<Elf> {
        let (Some(program), Some(core)) = (&self.program, self.cores.first()) else {
            return Vec::new();
        };
        let memory = (&*core.memory, core.space.space);
        libraries::of_program(&self.loaded, &program.elf, memory)
    }

    /// Returns the symbols of all programs and of their libraries in the snapshot. Unreadable files
    /// are skipped.
    #[must_use]
    pub fn symbols(&self) -> Symbols {
        let mut symbols = Symbols::default();
        for program in self.programs() {
            let _ = symbols.add_file(&program.elf);
        }
        for library in self.library_files() {
            let _ = symbols.add_file(&library);
        }
        symbols
    }

    /// Returns the call frame information of all programs and libraries.
    pub(super) fn call_frames(&self) -> CallFrames {
        let libraries = self.library_files();
        let programs = self.programs().map(|program| &program.elf);
        CallFrames::new(programs.chain(&libraries))
    }

    /// Returns why a core faulted, if its registers or its memory tell of a fault.
    #[must_use]
    pub fn fault(&self, core: &Core, symbols: &Symbols) -> Option<Fault> {
        let programs: Vec<&Elf> = self.programs().map(|program| &program.elf).collect();
        Fault::of(&Halted {
            registers: &core.registers,
            memory: &core.memory,
            space: core.space.space,
            signal: self.signal(core).as_ref(),
            symbols,
            programs: &programs,
            svd: self.svd.as_deref(),
        })
    }

    /// Returns the peripherals and registers that a name selects, with what the memory of a core has
    /// of them (see [`Svd::values`]). Returns `None` without a description.
    #[must_use]
    pub fn peripherals(&self, core: &Core, name: &str) -> Option<Vec<PeripheralValues>> {
        let svd = self.svd.as_ref()?;
        Some(svd.values(name, &core.memory, core.space.space))
    }

    /// Returns the architecture of its cores.
    pub fn architecture(&self) -> Architecture {
        self.description.architecture()
    }

    /// Returns its cores with their registers.
    pub(super) fn described_cores(&self) -> Cores<'_> {
        Cores {
            all: &self.cores,
            description: &self.description,
            general: self.block,
        }
    }

    /// Returns the registers in a reply to `g`; clients request others one by one.
    pub(super) fn block(&self) -> impl Iterator<Item = &RegisterDescription> {
        self.described_cores().block()
    }

    /// Whether clients expect registers with the most significant byte first: they use the byte
    /// order of the program.
    pub(super) fn is_big_endian(&self) -> bool {
        let mut programs = self.program.iter();
        programs.any(|program| !program.elf.little_endian)
    }

    /// Returns the bytes of a register in the order in which they are sent.
    pub(super) fn in_order(&self, mut bytes: Bytes) -> Bytes {
        if self.is_big_endian() {
            // A scalable vector is sent in parts of 128 bits.
            bytes.chunks_mut(16).for_each(<[_]>::reverse);
        }
        bytes
    }

    /// Returns the thread reported to clients as stopped: the one that ended the recording, if
    /// known; otherwise the first with a known program counter.
    pub(super) fn stopped_thread(&self) -> Tid {
        let stopped = Recording::of(&self.loaded.snapshot).stopped;
        let mut threads = self.threads().zip(&self.cores);
        let named = threads.find(|(_, core)| Some(&core.name) == stopped.as_ref());
        let found = named.or_else(|| {
            let mut threads = self.threads().zip(&self.cores);
            threads.find(|(_, core)| core.rests || core.registers.pc().is_some())
        });
        found.map_or(Tid::MIN, |(thread, _)| thread)
    }

    /// Returns the signal that stopped a core's thread, if known.
    pub(super) fn signal(&self, core: &Core) -> Option<Signal> {
        Signal::of(&self.loaded.snapshot.devices[core.device])
    }

    /// Returns the tasks of the kernel that its cores run.
    pub(super) fn tasks(&self) -> &Tasks {
        self.tasks.get_or_init(|| {
            let programs: Vec<&Elf> = self.programs().map(|program| &program.elf).collect();
            Tasks::of(&self.cores, &programs)
        })
    }

    /// Returns the core, or the task, of a thread.
    pub(super) fn thread(&self, thread: Tid) -> Option<&Core> {
        let index = thread.get() - 1;
        self.cores.get(index).or_else(|| {
            let (_, task) = self.tasks().threads.get(index - self.cores.len())?;
            Some(task)
        })
    }

    /// Returns all threads: those of its cores, and those of tasks that do not run.
    pub(super) fn all_threads(&self) -> impl Iterator<Item = Tid> + use<> {
        (1..=self.cores.len() + self.tasks().threads.len()).filter_map(Tid::new)
    }

    /// Returns the threads of its cores.
    pub(super) fn threads(&self) -> impl Iterator<Item = Tid> + use<> {
        (1..=self.cores.len()).filter_map(Tid::new)
    }

    /// Returns the names of its cores for display.
    pub fn core_names(&self) -> String {
        let names: Vec<&str> = self.cores.iter().map(|core| core.name.as_str()).collect();
        names.join(", ")
    }

    /// Returns all programs, starting with the one reported to clients.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.program
            .iter()
            .chain(&self.further)
            .map(|program| &**program)
    }

    /// Returns where the first segment of a position-independent program was loaded.
    pub(super) fn first_segment(&self) -> Option<u64> {
        let mut program = self.program.iter();
        let program = program.find(|program| program.elf.offset != 0)?;
        Some(program.elf.segments.first()?.address)
    }

    /// Returns the notes: assumptions, contradictions, faults.
    pub fn notes(&self) -> Vec<Note> {
        self.notes_of(|_| true)
    }

    /// Same as [`Self::notes`] without notes on programs that agree with the dumps.
    pub fn remarks(&self) -> Vec<Note> {
        let has_dumps = self.cores.iter().any(|core| !core.dumps.is_empty());
        self.notes_of(|program| {
            let compared = &program.comparison;
            compared.differing > 0 || compared.compared == 0 && has_dumps
        })
    }

    fn notes_of(&self, wanted: impl Fn(&Program) -> bool) -> Vec<Note> {
        let mut notes = self.faults.clone();
        for core in &self.cores {
            let detected = &core.detected;
            let assumed = detected.assumed.then(|| CoreNote::AssumedArchitecture {
                architecture: detected.architecture,
                from: detected.from.clone(),
            });
            let registers = core.registers.notes().iter().cloned();
            let own = assumed
                .into_iter()
                .chain(registers.map(CoreNote::Registers))
                .chain(core.notes.iter().cloned());
            notes.extend(own.map(|note| Note::Core {
                name: core.name.clone(),
                note,
            }));
        }
        let programs = self.programs().filter(|program| wanted(program));
        notes.extend(programs.flat_map(Program::notes).map(Note::Program));
        if !self.clients_load_programs {
            notes.extend(self.further.iter().map(|program| Note::FurtherProgram {
                path: program.elf.path.clone(),
                offset: program.elf.offset,
            }));
        }
        notes
    }

    /// Returns the text of `monitor info`.
    pub fn info(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let _ = writeln!(text, "position: the state at which the snapshot was taken");
        for (core, thread) in self.cores.iter().zip(self.threads()) {
            let _ = writeln!(
                text,
                "thread {thread}: {} ({}), {} from {}",
                core.name,
                core.summary(),
                core.detected.architecture.name(),
                core.detected.from
            );
            if let Some(cluster) = &core.cluster {
                let _ = writeln!(text, "  cluster {cluster}");
            }
            if let Some(space) = core.space.name {
                let _ = writeln!(text, "  address space {space}: {}", core.space.reason);
            }
            for dump in &core.dumps {
                let _ = writeln!(text, "  {dump}");
            }
        }
        for device in self.devices.iter() {
            let _ = writeln!(
                text,
                "memory device {}: {} dumps",
                device.name,
                device.memory.regions().count()
            );
        }
        for note in self.notes() {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

/// Creates the endpoints of a snapshot: one for each architecture among the selected cores.
///
/// # Errors
///
/// If no core matches the options, or a program that they name cannot be read.
pub fn endpoints(loaded: &OpenSnapshot, options: &Options) -> Result<Vec<Endpoint>, EndpointError> {
    let snapshot = &loaded.snapshot;
    let elfs = options.elfs.iter();
    let named: Vec<Elf> = elfs.map(|path| Elf::open(path)).collect::<Result<_, _>>()?;
    let devices = snapshot.devices.iter();
    let devices: Vec<MemoryDevice> = devices
        .filter(|device| device.class == DeviceClass::MemorySpace)
        .map(|device| MemoryDevice {
            name: device.name.clone(),
            memory: CoreMemory::new(loaded, device),
        })
        .collect();
    let devices = Arc::new(devices);
    let mut groups: BTreeMap<Architecture, Vec<(usize, Core)>> = BTreeMap::new();
    let placeholders = check::Placeholders::new(loaded);
    for index in chosen::choose(snapshot, options)? {
        let core = chosen::core(loaded, index, &placeholders);
        let group = groups.entry(core.detected.architecture).or_default();
        group.push((index, core));
    }
    let root = loaded.root.display();
    let title = match &snapshot.description {
        Some(description) => format!("{description} ({root})"),
        None => root.to_string(),
    };
    let faults = loaded.notes.iter();
    let faults = faults.filter(|note| note.severity == Severity::Error);
    let mut faults: Vec<Note> = faults.cloned().map(Note::Snapshot).collect();
    if options.history != HistoryMode::None {
        let look = decode::first_look(loaded);
        faults.extend(look.into_iter().map(Note::Decode));
    }
    let names: Vec<&str> = groups.keys().map(|group| group.name()).collect();
    let unfit = named
        .iter()
        .filter(|elf| !groups.keys().any(|group| elf.fits(*group)));
    faults.extend(unfit.map(|elf| Note::OtherArchitecture {
        path: elf.path.clone(),
        found: elf.architecture_name(),
        wanted: names.join(", "),
    }));
    let endpoints = groups.into_iter().map(|(architecture, cores)| {
        let (places, mut cores): (Vec<usize>, Vec<Core>) = cores.into_iter().unzip();
        let memories: Vec<Seen> = cores
            .iter()
            .map(|core| (&*core.memory, core.space.space))
            .collect();
        let programs = Program::of_cores(loaded, &named, architecture, &memories);
        if options.elf_memory {
            for core in &mut cores {
                core.add_programs(programs.iter());
            }
        }
        for (number, core) in cores.iter_mut().enumerate() {
            core.share(loaded, number < SHARING_NOTES);
        }
        process_stack::complete(&mut cores, |cores| timeline(loaded, cores, options));
        let kinds: Vec<&str> = cores.iter().map(|core| core.kind.as_str()).collect();
        let files: Vec<&RegisterFile> = cores.iter().map(|core| &core.registers).collect();
        let description = TargetDescription::new(architecture, &kinds, &files);
        let code = programs.iter().filter(|_| options.elf_memory);
        let code = code.map(|program| program.elf.clone()).collect();
        let mut programs = programs.into_iter().map(Arc::new);
        let traces = Traces::of(loaded, &places, code);
        if options.history != HistoryMode::None {
            for traced in traces.iter().flat_map(Traces::cores) {
                rest(&mut cores[traced]);
            }
        }
        for core in &mut cores {
            if !core.rests && core.registers.pc().is_none() {
                core.notes.push(CoreNote::NoPc);
            }
        }
        note_faults(&mut cores);
        let mut xml = description.xml();
        let history = traces.is_some() && options.history != HistoryMode::None;
        let history_registers = history
            .then(|| HistoryRegisters::add_to(&mut xml, &description, architecture))
            .flatten();
        let mut xml_for_old_gdb = description.xml_for_old_gdb(history_registers.is_some());
        if let Some(xml) = &mut xml_for_old_gdb
            && history_registers.is_some()
        {
            HistoryRegisters::add_to(xml, &description, architecture);
        }
        Endpoint {
            title: title.clone(),
            faults: faults.clone(),
            devices: Arc::clone(&devices),
            history_registers,
            xml,
            xml_for_old_gdb,
            block: block(&description, &cores),
            description,
            tasks: OnceLock::new(),
            program: programs.next(),
            further: programs.collect(),
            clients_load_programs: false,
            history: options.history,
            timeline: timeline_options(options),
            cache: options.cache.clone(),
            svd: options.svd.clone(),
            reports_tracepoints: true,
            loaded: loaded.clone(),
            traces,
            cores,
        }
    });
    Ok(endpoints.collect())
}

fn timeline_options(options: &Options) -> timeline::Options {
    let mut out = timeline::Options::default();
    out.jobs = options.jobs.map_or(out.jobs, NonZero::get);
    out
}

/// Opens the histories of some cores, unless none are wanted.
fn timeline(loaded: &OpenSnapshot, cores: &[Core], options: &Options) -> Option<Timeline> {
    if options.history == HistoryMode::None {
        return None;
    }
    let cores: Vec<TracedCore> = cores.iter().map(Core::traced).collect();
    let sizes = timeline_options(options);
    Some(match &options.cache {
        Some(cache) => Timeline::cached(loaded, &cores, &sizes, cache),
        None => Timeline::with(loaded, &cores, &sizes),
    })
}

/// Adds a note on each core that is handling a fault.
fn note_faults(cores: &mut [Core]) {
    let symbols = Symbols::default();
    for core in cores {
        if core.notes.iter().any(is_placeholder) {
            continue;
        }
        let fault = Fault::of(&Halted {
            registers: &core.registers,
            memory: &core.memory,
            space: core.space.space,
            // Debuggers report signals themselves.
            signal: None,
            symbols: &symbols,
            programs: &[],
            svd: None,
        });
        let active = fault.filter(|fault| fault.active);
        core.notes.extend(active.map(|fault| CoreNote::Fault {
            summary: fault.summary,
        }));
    }
}

fn is_placeholder(note: &CoreNote) -> bool {
    matches!(note, CoreNote::Placeholders { .. })
}

/// Sets a core with trace but without state to the end of its trace.
fn rest(core: &mut Core) {
    let stateless = core.registers.pc().is_none();
    if !stateless && !core.notes.iter().any(is_placeholder) {
        return;
    }
    core.registers.forget_placeholders();
    core.rests = true;
    core.notes.push(CoreNote::NoHaltedState);
}

/// Returns the number of general registers before the first one that is unknown in some core; all,
/// if the program counter is not among them. Clients that save trace frames write register blocks
/// of this length, which cannot mark a register as unknown.
fn block(description: &TargetDescription, cores: &[Core]) -> usize {
    let general: Vec<_> = description.registers().filter(|r| r.general).collect();
    let known = |core: &Core, register| core.register(register).iter().all(Option::is_some);
    let known = general
        .iter()
        .position(|register| !cores.iter().all(|core| known(core, register)));
    let has_pc = |count: &usize| {
        general[..*count]
            .iter()
            .any(|register| register.name == "pc")
    };
    known.filter(has_pc).unwrap_or(general.len())
}
