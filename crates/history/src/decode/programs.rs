//! The programs of the traced cores: code where there is no dump, and symbols.

use super::note::Note;
use armsnap_arch::arch::Space;
use armsnap_arch::arch::{Architecture, CoreType, RegisterFile, state};
use armsnap_snapshot::capture::{Capture, core_memory};
use armsnap_snapshot::program::elf::{Elf, ElfError};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::libraries;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::program::{Program, Seen};
use armsnap_snapshot::snapshot::{MemoryNote, OpenSnapshot};
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
    architecture: Architecture,
    both_states: bool,
    memory: CoreMemory,
    space: Space,
}

impl TracedCore {
    fn runs(&self, architecture: Architecture) -> bool {
        runs(self.architecture, self.both_states, architecture)
    }
}

/// Whether a core that halted in a state of `own` may have been in a state of `architecture`.
fn runs(own: Architecture, both_states: bool, architecture: Architecture) -> bool {
    let of_m = |architecture| architecture == Architecture::MProfile;
    own == architecture || both_states && !of_m(own) && !of_m(architecture)
}

/// A traced core with its code.
struct CompleteCore {
    name: String,
    architecture: Architecture,
    both_states: bool,
    memory: Arc<CoreMemory>,
}

/// The memory of the traced cores and the symbols of their programs.
pub struct Programs {
    cores: BTreeMap<usize, CompleteCore>,
    symbols: Vec<(Architecture, Symbols)>,
    images: Vec<(Architecture, Elf)>,
}

impl Programs {
    /// Loads the memory of each core traced in `capture`, by device index, and its programs.
    /// Returns notes on assumptions and oddities.
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
        let mut notes = Vec::new();
        let mut found = Vec::new();
        for architecture in Architecture::ALL {
            let memories: Vec<Seen> = cores
                .values()
                .filter(|core| core.architecture == architecture)
                .map(|core| (&core.memory, core.space))
                .collect();
            // A 64-bit core may run a 32-bit program named by the user.
            let wanted = !memories.is_empty() || named.iter().any(|elf| elf.fits(architecture));
            let programs = if wanted {
                Program::of_cores(loaded, &named, architecture, &memories)
            } else {
                Vec::new()
            };
            let about = programs.iter().flat_map(Program::notes);
            notes.extend(
                about
                    .map(Note::Program)
                    .filter(|note| !notes.contains(note))
                    .collect::<Vec<_>>(),
            );
            found.push((architecture, programs));
        }
        if options.as_memory {
            for core in cores.values_mut() {
                // Own programs come before those of the other state.
                for own in [true, false] {
                    let fitting = found.iter().filter(|(architecture, _)| {
                        let is_own = *architecture == core.architecture;
                        is_own == own && core.runs(*architecture)
                    });
                    let programs = fitting.flat_map(|(_, programs)| programs);
                    let programs = programs.filter(|program| own || program.named);
                    for program in programs.collect::<Vec<_>>() {
                        let added = program.add_to(&mut core.memory, core.space);
                        notes.extend(added.into_iter().map(|note| Note::OfProgram {
                            core: core.name.clone(),
                            note,
                        }));
                    }
                }
            }
        }
        let (mut symbols, mut images) = (Vec::new(), Vec::new());
        for (architecture, programs) in found.iter().filter(|(_, found)| !found.is_empty()) {
            images.extend(
                programs
                    .iter()
                    .map(|program| (*architecture, program.elf.clone())),
            );
            if !options.symbols {
                continue;
            }
            let mut names = Symbols::default();
            for program in programs {
                if let Err(error) = names.add_file(&program.elf) {
                    let program = program.elf.path.clone();
                    let note = Note::Symbols { program, error };
                    notes.extend((!notes.contains(&note)).then_some(note));
                }
            }
            let core = cores
                .values()
                .find(|core| core.architecture == *architecture);
            if let (Some(program), Some(core)) = (programs.first(), core) {
                let memory = (&core.memory, core.space);
                for library in libraries::of_program(loaded, &program.elf, memory) {
                    // An unreadable library provides no names.
                    let _ = names.add_file(&library);
                    images.push((*architecture, library));
                }
            }
            symbols.push((*architecture, names));
        }
        let cores = cores.into_iter().map(|(index, mut core)| {
            core.memory.share(loaded, index);
            let core = CompleteCore {
                name: core.name,
                architecture: core.architecture,
                both_states: core.both_states,
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

    /// Returns a note for each core that takes code from other cores.
    pub fn taken_from_others(&self) -> Vec<Note> {
        self.of_memories(CoreMemory::taken_from_others)
    }

    /// Returns the programs and, if symbols are shown, the libraries of the first program of each
    /// architecture.
    pub fn images(&self) -> impl Iterator<Item = &Elf> {
        self.images.iter().map(|(_, elf)| elf)
    }

    /// Returns the images that a core, given by device index, may have run, those of its own state
    /// first; without a core, all.
    pub fn images_of(&self, core: Option<usize>) -> Vec<&Elf> {
        let images = of_core(core.and_then(|core| self.cores.get(&core)), &self.images);
        images.collect()
    }

    /// Returns a note for each core with processes whose code is missing.
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

    /// Returns the symbols of a core's programs, preferring those for its own state.
    pub fn symbols(&self, core: usize) -> Option<&Symbols> {
        let symbols = of_core(Some(self.cores.get(&core)?), &self.symbols).next();
        symbols.filter(|symbols| !symbols.is_empty())
    }
}

/// The items of programs that a core may have run, those of its own state first; without a core,
/// all items.
fn of_core<'a, T>(
    core: Option<&'a CompleteCore>,
    all: &'a [(Architecture, T)],
) -> impl Iterator<Item = &'a T> {
    let wanted = move |architecture, first: bool| match core {
        None => first,
        Some(core) => {
            let own = core.architecture == architecture;
            own == first && runs(core.architecture, core.both_states, architecture)
        }
    };
    let of = move |first| {
        let all = all.iter().filter(move |(of, _)| wanted(*of, first));
        all.map(|(_, item)| item)
    };
    of(true).chain(of(false))
}

fn core(loaded: &OpenSnapshot, index: usize) -> TracedCore {
    let device = &loaded.snapshot.devices[index];
    let architecture = Architecture::detect(device).architecture;
    let registers = RegisterFile::read(device, architecture);
    let memory = core_memory(loaded, index);
    TracedCore {
        name: device.name.clone(),
        architecture,
        both_states: CoreType::parse(&device.kind).is_none_or(|kind| kind.both_states),
        memory,
        space: state::current_space(&registers).space,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_elf::small_elf;
    use armsnap_arch::quantity::Address;
    use armsnap_snapshot::snapshot::files::InMemory;

    /// Cores of different architectures have different programs at the same addresses.
    #[test]
    fn each_core_has_its_own_program() {
        let core = |name: &str, kind: &str| {
            format!("[device]\nname={name}\nclass=core\ntype={kind}\n[regs]\nPC=0x1000\n")
        };
        let source = |name: &str, id: u8| {
            format!(
                "[device]\nname={name}\nclass=trace_source\ntype=ETM4.2\n[regs]\nTRCTRACEIDR(0x10)={id}\n"
            )
        };
        let trace = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=x\nformat=coresight\n\
                     [core_trace_sources]\na=ea\nm=em\n";
        let list = "[device_list]\n1=a.ini\n2=m.ini\n3=ea.ini\n4=em.ini\n[trace]\nmetadata=t.ini\n";
        let mut files = InMemory::default();
        for (name, text) in [
            ("snapshot.ini", list),
            ("a.ini", &core("a", "Cortex-A53")),
            ("m.ini", &core("m", "Cortex-M4")),
            ("ea.ini", &source("ea", 1)),
            ("em.ini", &source("em", 2)),
            ("t.ini", trace),
            ("x", "0123456789abcdef"),
        ] {
            files.0.insert(name.into(), text.as_bytes().to_vec().into());
        }
        let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
        let (capture, _) = Capture::open(&loaded);
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().canonicalize().unwrap().join(name);
        let (a64, arm) = (path("a64.elf"), path("arm.elf"));
        std::fs::write(&a64, small_elf(b"code", b"data")).unwrap();
        let mut of_arm = small_elf(b"CODE", b"DATA");
        of_arm[18] = 40; // EM_ARM
        std::fs::write(&arm, of_arm).unwrap();
        for named in [[a64.clone(), arm.clone()], [arm.clone(), a64.clone()]] {
            let options = ProgramOptions {
                named: &named,
                as_memory: true,
                symbols: false,
            };
            let (programs, _) = Programs::of(&loaded, &capture, &options).unwrap();
            for (core, code, images) in [(0, b"code", vec![&a64, &arm]), (1, b"CODE", vec![&arm])] {
                let mut found = [0; 4];
                let memory = programs.memory(core).unwrap();
                memory.read(Address(0x1000), Space::El1N, &mut found);
                assert_eq!(&found, code);
                let paths = programs.images_of(Some(core)).into_iter();
                assert_eq!(paths.map(|elf| &elf.path).collect::<Vec<_>>(), images);
            }
        }
    }
}
