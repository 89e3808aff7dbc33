//! The programs of the traced cores: code where there is no dump, and symbols.

use super::note::Note;
use crate::arch::Space;
use crate::arch::{Architecture, RegisterFile, state};
use crate::capture::{Capture, core_memory};
use crate::program::elf::{Elf, ElfError, Machine};
use crate::program::symbols::Symbols;
use crate::snapshot::libraries;
use crate::snapshot::memory::CoreMemory;
use crate::snapshot::program::{Program, Seen};
use crate::snapshot::{MemoryNote, OpenSnapshot};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How programs are used.
pub struct ProgramOptions<'a> {
    /// Programs named by the user; without any, the snapshot is searched for one.
    pub named: &'a [PathBuf],
    /// Whether programs provide code where there is no dump.
    pub as_memory: bool,
    /// Whether symbols are shown.
    pub symbols: bool,
}

/// A traced core, while its memory is completed.
struct TracedCore {
    name: String,
    machine: Machine,
    memory: CoreMemory,
    space: Space,
}

/// A traced core with its code.
struct CompleteCore {
    name: String,
    machine: Machine,
    memory: Arc<CoreMemory>,
}

/// The memory of the traced cores and the symbols of their programs.
pub struct Programs {
    cores: BTreeMap<usize, CompleteCore>,
    symbols: Vec<(Machine, Symbols)>,
    images: Vec<Elf>,
}

impl Programs {
    /// Loads the memory of each core traced in `capture`, by device index, and its programs.
    /// Returns notes about assumptions and oddities.
    ///
    /// # Errors
    ///
    /// If a program named by the user cannot be read.
    pub fn of(
        loaded: &OpenSnapshot,
        capture: &Capture,
        options: &ProgramOptions,
    ) -> Result<(Self, Vec<Note>), ElfError> {
        let named = options.named.iter().map(|path| Elf::open(path));
        let named: Vec<Elf> = named.collect::<Result<_, _>>()?;
        let sources = capture.buffers.iter().flat_map(|buffer| &buffer.sources);
        let mut cores: BTreeMap<usize, TracedCore> = sources
            .filter_map(|source| source.core)
            .map(|index| (index, core(loaded, index)))
            .collect();
        let (mut notes, mut symbols, mut images) = (Vec::new(), Vec::new(), Vec::new());
        for machine in [Machine::AArch64, Machine::Arm] {
            let memories: Vec<Seen> = cores
                .values()
                .filter(|core| core.machine == machine)
                .map(|core| (&core.memory, core.space))
                .collect();
            // A 64-bit core may run a 32-bit program named by the user.
            let programs = if memories.is_empty() && named.is_empty() {
                Vec::new()
            } else {
                Program::of_cores(loaded, &named, machine, &memories)
            };
            if programs.is_empty() {
                continue;
            }
            let about = programs.iter().flat_map(Program::notes);
            notes.extend(about.map(Note::Program));
            images.extend(programs.iter().map(|program| program.elf.clone()));
            if options.as_memory {
                for core in cores.values_mut() {
                    let own = core.machine == machine;
                    for program in programs.iter().filter(|program| own || program.named) {
                        let added = program.add_to(&mut core.memory, core.space);
                        notes.extend(added.into_iter().map(|note| Note::OfProgram {
                            core: core.name.clone(),
                            note,
                        }));
                    }
                }
            }
            if options.symbols {
                let mut found = Symbols::default();
                for program in &programs {
                    if let Err(error) = found.add_file(&program.elf) {
                        let program = program.elf.path.clone();
                        notes.push(Note::Symbols { program, error });
                    }
                }
                let core = cores.values().find(|core| core.machine == machine);
                if let (Some(program), Some(core)) = (programs.first(), core) {
                    let memory = (&core.memory, core.space);
                    for library in libraries::of_program(loaded, &program.elf, memory) {
                        // An unreadable library provides no names.
                        let _ = found.add_file(&library);
                        images.push(library);
                    }
                }
                symbols.push((machine, found));
            }
        }
        let cores = cores.into_iter().map(|(index, mut core)| {
            core.memory.share(loaded, index);
            let core = CompleteCore {
                name: core.name,
                machine: core.machine,
                memory: Arc::new(core.memory),
            };
            (index, core)
        });
        let programs = Self {
            cores: cores.collect(),
            symbols,
            images,
        };
        Ok((programs, notes))
    }

    /// Returns a note for each core whose code was taken from other cores.
    pub fn taken_from_others(&self) -> Vec<Note> {
        self.of_memories(CoreMemory::taken_from_others)
    }

    /// Returns the programs, and with symbols also the libraries of each first one.
    pub fn images(&self) -> &[Elf] {
        &self.images
    }

    /// Returns a note for each core on processes whose code is missing.
    pub fn missing_processes(&self) -> Vec<Note> {
        self.of_memories(|memory| memory.translated()?.missing_processes())
    }

    fn of_memories(&self, note: impl Fn(&CoreMemory) -> Option<MemoryNote>) -> Vec<Note> {
        let cores = self.cores.values();
        let notes = cores.filter_map(|core| {
            Some(Note::OfMemory {
                core: core.name.clone(),
                note: note(&core.memory)?,
            })
        });
        notes.collect()
    }

    /// Returns the memory of a core, by device index.
    pub fn memory(&self, core: usize) -> Option<&CoreMemory> {
        self.cores.get(&core).map(|core| &*core.memory)
    }

    /// Returns the memory of a core, by device index, to share it.
    pub fn shared_memory(&self, core: usize) -> Option<Arc<CoreMemory>> {
        self.cores.get(&core).map(|core| Arc::clone(&core.memory))
    }

    /// Returns the symbols of a core's programs, preferring those for its machine.
    pub fn symbols(&self, core: usize) -> Option<&Symbols> {
        let machine = self.cores.get(&core)?.machine;
        let own = self.symbols.iter().find(|(of, _)| *of == machine);
        own.or(self.symbols.first())
            .map(|(_, symbols)| symbols)
            .filter(|symbols| !symbols.is_empty())
    }
}

fn core(loaded: &OpenSnapshot, index: usize) -> TracedCore {
    let device = &loaded.snapshot.devices[index];
    let architecture = Architecture::detect(device).architecture;
    let registers = RegisterFile::read(device, architecture);
    let memory = core_memory(loaded, index);
    TracedCore {
        name: device.name.clone(),
        machine: architecture.machine(),
        memory,
        space: state::current_space(&registers).space,
    }
}
