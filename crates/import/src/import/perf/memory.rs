//! The memory of processes: the files that they had mapped, and the kernel.

use super::modules::{self, Kernel};
use super::processes::{KERNEL, Mapping};
use super::recording::Recording;
use crate::import::claims::Claims;
use crate::import::images::{self, Images};
use crate::import::note::PerfNote;
use crate::import::wanted::Wanted;
use crate::import::{Imported, jitdump, programs};
use armsnap_snapshot::program::elf::{Elf, Machine, Segment};
use armsnap_snapshot::snapshot::model::Dump;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The maximum number of mappings of a process that are used.
const MAX_MAPPINGS: usize = 1 << 16;
/// The maximum number of mappings and generated functions of all cores together.
const MAX_IN_ALL: usize = 1 << 22;
/// The limit for a small recording; each [`BYTES_EACH`] bytes of it and of its jitdumps add one. A
/// limit is needed because each thread lists the whole memory of its process.
const LEAST_IN_ALL: usize = 1 << 16;
const BYTES_EACH: usize = 16;
/// The maximum number of kernel mappings whose file is looked for.
const MAX_KERNELS: usize = 8;

/// The memory of a core.
#[derive(Debug, Default)]
pub struct Memory {
    /// Parts of the mapped files.
    pub dumps: Vec<Dump>,
    /// The mapped files, by their paths in the snapshot, each with the offset of its load address.
    pub programs: Vec<(String, u64)>,
    known: HashSet<String>,
    claims: Claims,
    /// The machines of those mapped files that contain code.
    machines: HashSet<Machine>,
}

impl Memory {
    /// Whether all code in it is AArch32 code, which a kernel at 64-bit addresses is not.
    pub fn is_aarch32(&self) -> bool {
        let wide = |dump: &Dump| u32::try_from(dump.address).is_err();
        self.machines.len() == 1
            && self.machines.contains(&Machine::Arm)
            && !self.dumps.iter().any(wide)
    }

    /// Adds the bytes of a file from `offset` at a range of addresses.
    fn add(&mut self, file: &str, address: u64, offset: u64, length: u64) {
        if length > 0 {
            self.dumps.push(Dump {
                section: format!("dump{}", self.dumps.len() + 1),
                file: file.to_owned(),
                address,
                length: Some(length),
                offset: Some(offset),
                ..Dump::default()
            });
        }
    }

    fn program(&mut self, file: &str, bias: u64) {
        if self.known.insert(file.to_owned()) {
            self.programs.push((file.to_owned(), bias));
        }
    }
}

/// Code that a process generated.
#[derive(Debug)]
struct JitCode {
    file: String,
    code: Vec<jitdump::Code>,
}

/// Builds the memory of cores from the files that their processes mapped.
#[derive(Debug)]
pub struct MemoryBuilder<'a> {
    recording: &'a Recording,
    /// The files found so far.
    pub images: Images<'a>,
    kernel: Option<Rc<[Kernel]>>,
    /// The file with the addresses of the kernel's straight-line code.
    pub straight: Option<String>,
    kcore: Option<Elf>,
    /// The jitdump files read so far; `None` if one cannot be read.
    made: HashMap<Wanted, Option<Rc<JitCode>>>,
    /// The images with more mappings than are used.
    cut: HashSet<usize>,
    /// The number of mappings and generated functions that are left.
    left: usize,
    /// The initial number of these.
    most: usize,
}

impl<'a> MemoryBuilder<'a> {
    /// Creates a builder for a recording of `size` bytes; `kcore` is the memory of its kernel.
    pub fn new(
        recording: &'a Recording,
        size: usize,
        images: Images<'a>,
        kcore: Option<Elf>,
    ) -> Self {
        let most = (LEAST_IN_ALL + size / BYTES_EACH).min(MAX_IN_ALL);
        Self {
            recording,
            images,
            kernel: None,
            straight: None,
            kcore,
            made: HashMap::new(),
            cut: HashSet::new(),
            left: most,
            most,
        }
    }

    /// The memory of a core that ran some process images. The mappings of images that come first in
    /// the list take precedence.
    pub fn memory(&mut self, images: &[usize], out: &mut Imported) -> Memory {
        let mut memory = Memory::default();
        for &image in images {
            self.process(image, &mut memory, out);
        }
        let known = self.kernel.clone();
        let kernel = known.unwrap_or_else(|| self.kernel(out).into());
        self.kernel = Some(Rc::clone(&kernel));
        for kernel in &*kernel {
            for segment in &kernel.segments {
                for range in memory.claims.take(segment.address..segment.end()) {
                    let offset = segment.file.start as u64 + (range.start - segment.address);
                    memory.add(&kernel.file, range.start, offset, range.end - range.start);
                }
            }
            if let Some(bias) = kernel.bias {
                memory.program(&kernel.file, bias);
            }
        }
        memory
    }

    /// Adds the mapped files of an image, the last mapping first.
    fn process(&mut self, image: usize, memory: &mut Memory, out: &mut Imported) {
        if self.left == 0 {
            return;
        }
        let most = MAX_MAPPINGS.min(self.left);
        let processes = &self.recording.processes;
        let (mappings, is_cut) = processes.mappings(image, most);
        if is_cut && most < MAX_MAPPINGS {
            let limit = self.most;
            out.notes.push(PerfNote::ManyMappings { limit }.into());
        } else if is_cut && self.cut.insert(image) {
            let pid = processes.images[image].pid;
            let note = PerfNote::ManyMappingsOfProcess { pid, limit: most };
            out.notes.push(note.into());
        }
        self.left -= mappings.len();
        let mut used = HashSet::new();
        for mapping in mappings.iter().rev() {
            if jitdump::is_jitdump(&mapping.path) && used.insert(&*mapping.path) {
                self.jitdump(mapping, memory, out);
            }
        }
        for mapping in mappings.into_iter().rev() {
            if jitdump::is_jitdump(&mapping.path) {
                continue;
            }
            let end = mapping.address.saturating_add(mapping.length);
            let free = memory.claims.take(mapping.address..end);
            // Writable memory may differ from the file.
            if free.is_empty() || mapping.writable {
                continue;
            }
            let wanted = self.wanted(mapping);
            let Some(elf) = self.images.find(&wanted) else {
                if mapping.executable {
                    self.images.missing.insert(wanted);
                }
                continue;
            };
            if mapping.executable {
                memory.machines.insert(elf.machine);
            }
            let file = out.add_program(&elf);
            for range in free {
                let offset = mapping.offset.saturating_add(range.start - mapping.address);
                let there = (elf.bytes().len() as u64).saturating_sub(offset);
                let length = there.min(range.end - range.start);
                memory.add(&file, range.start, offset, length);
            }
            let range = mapping.offset..mapping.offset.saturating_add(mapping.length);
            let code = mapping.executable;
            if let Some(bias) = programs::bias(&elf, range, mapping.address, code) {
                memory.program(&file, bias);
            }
        }
    }

    /// Adds the code that a process generated, the newest first. The process names the jitdump file
    /// by a mapping of it.
    fn jitdump(&mut self, mapping: &Mapping, memory: &mut Memory, out: &mut Imported) {
        let wanted = self.wanted(mapping);
        let known = self.made.get(&wanted).cloned();
        let is_new = known.is_none();
        let Some(made) = known.unwrap_or_else(|| {
            let made = self.made(&wanted, out).map(Rc::new);
            self.made.insert(wanted, made.clone());
            made
        }) else {
            return;
        };
        let JitCode { file, code } = &*made;
        let mut replaced = 0_usize;
        for code in code.iter().rev().take(self.left) {
            let length = code.bytes.len() as u64;
            let end = code.address.saturating_add(length);
            let free = memory.claims.take(code.address..end);
            let left: u64 = free.iter().map(|range| range.end - range.start).sum();
            replaced += usize::from(left < length);
            for range in free {
                let offset = code.bytes.start as u64 + (range.start - code.address);
                memory.add(file, range.start, offset, range.end - range.start);
            }
        }
        if code.len() > self.left && self.left > 0 {
            let note = PerfNote::ManyFunctions {
                file: file.clone(),
                limit: self.most,
            };
            out.notes.push(note.into());
        }
        self.left = self.left.saturating_sub(code.len());
        // All threads of a process have the same code.
        if replaced > 0 && is_new {
            let note = PerfNote::ReplacedFunctions {
                file: file.clone(),
                functions: replaced,
            };
            out.notes.push(note.into());
        }
    }

    /// Reads the code that a process generated.
    fn made(&mut self, wanted: &Wanted, out: &mut Imported) -> Option<JitCode> {
        let Some((path, bytes)) = self.images.plain(wanted) else {
            self.images.missing.insert(wanted.clone());
            return None;
        };
        let read = jitdump::read(&bytes);
        let fault = match &read {
            Ok((_, cut)) => cut.as_ref(),
            Err(fault) => Some(fault),
        };
        if let Some(fault) = fault.cloned() {
            let path = path.clone();
            out.notes.push(PerfNote::Jitdump { path, fault }.into());
        }
        let (code, _) = read.ok()?;
        let more = (bytes.len() / BYTES_EACH).min(MAX_IN_ALL - self.most);
        self.most += more;
        self.left += more;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = out.add("images", &name, bytes, path.clone());
        Some(JitCode { file, code })
    }

    /// The kernel's code, if its file is known. The path of the kernel's mapping ends with the name
    /// of a symbol after `]`, and its offset is the address of that symbol.
    fn kernel(&mut self, out: &mut Imported) -> Vec<Kernel> {
        let processes = &self.recording.processes;
        let image = processes.current(KERNEL);
        let mappings = image.map(|image| processes.mappings(image, MAX_MAPPINGS).0);
        let mappings = mappings.unwrap_or_default();
        let mut found = Vec::new();
        let kcore = self.kcore.take();
        let is_whole = kcore.is_some();
        if let Some(kcore) = kcore {
            // The actual contents of memory, including modules and changed code.
            found.push(Kernel {
                file: out.add_program(&kcore),
                bias: None,
                segments: kcore.segments,
            });
        }
        let (modules, mappings): (Vec<&Mapping>, Vec<&Mapping>) = mappings
            .into_iter()
            .partition(|mapping| images::kernel_module(&mapping.path).is_some());
        let (mut kernel, mut kallsyms) = (None, None);
        let mut tried = 0;
        for mapping in mappings {
            let Some((name, symbol)) = mapping.path.split_once(']') else {
                if !is_whole {
                    let wanted = self.wanted(mapping);
                    self.images.missing.insert(wanted);
                }
                continue;
            };
            // There is usually one. Each of them may be read and may cause a note.
            tried += 1;
            if tried > MAX_KERNELS {
                break;
            }
            let mut wanted = self.wanted(mapping);
            wanted.path = format!("{name}]");
            let section = self.recording.build_ids.get(&wanted.path);
            wanted.build_id = wanted.build_id.or(section.cloned());
            kallsyms = kallsyms.or_else(|| self.images.kallsyms(&wanted));
            let Some(elf) = self.images.kernel(&wanted) else {
                if !is_whole {
                    self.images.missing.insert(wanted);
                }
                continue;
            };
            if symbol.is_empty() {
                let path = elf.path.clone();
                out.notes.push(PerfNote::UnplacedKernel { path }.into());
                continue;
            }
            let Some(linked) = symbol_address(&elf, symbol) else {
                let note = PerfNote::NoSymbol {
                    path: elf.path.clone(),
                    symbol: symbol.to_owned(),
                };
                out.notes.push(note.into());
                continue;
            };
            let elf = elf.moved(mapping.offset.wrapping_sub(linked));
            let file = out.add_program(&elf);
            let is_code = |segment: &Segment| !segment.writable || segment.address >> 63 == 1;
            let segments = elf.segments.iter().cloned();
            found.push(Kernel {
                file,
                bias: Some(elf.offset),
                segments: segments.filter(is_code).collect(),
            });
            kernel = Some(elf);
            // Only one kernel ran.
            break;
        }
        if let (0, Some(path)) = (tried, self.images.named_kernel()) {
            let path = path.to_owned();
            out.notes.push(PerfNote::NoKernelMapping { path }.into());
        }
        let mut files = Vec::new();
        // Of several mappings at the same addresses, the last one is used.
        for mapping in modules.into_iter().rev() {
            let wanted = self.wanted(mapping);
            match self.images.find(&wanted) {
                Some(elf) => files.push((mapping, elf)),
                None if is_whole => {}
                None => {
                    self.images.missing.insert(wanted);
                }
            }
        }
        let known = modules::KernelData {
            kernel: kernel.as_ref(),
            kallsyms: kallsyms.as_deref(),
        };
        let memory = self.images.memory();
        let (linked, straight) = modules::linked(&files, &known, is_whole, memory, out);
        found.extend(linked);
        self.straight = straight;
        found
    }

    fn wanted(&self, mapping: &Mapping) -> Wanted {
        let of_section = || self.recording.build_ids.get(&mapping.path).cloned();
        Wanted {
            path: mapping.path.clone(),
            build_id: mapping.build_id.clone().or_else(of_section),
        }
    }
}

/// The address of a symbol in a program.
fn symbol_address(elf: &Elf, name: &str) -> Option<u64> {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(elf.bytes()).ok()?;
    let symbol = file.symbol_by_name(name)?;
    Some(symbol.address())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Options;
    use crate::import::note::Note;
    use crate::import::perf::processes::Event;

    fn mapping(path: &str) -> Mapping {
        Mapping {
            address: 0x1000,
            length: 0x1000,
            offset: 0,
            path: path.to_owned(),
            build_id: None,
            executable: true,
            writable: false,
        }
    }

    /// The notes on the memory of a process with mappings.
    fn notes(pid: u32, mappings: impl Iterator<Item = Mapping>, cores: usize) -> Vec<Note> {
        let mut recording = Recording::default();
        for mapping in mappings {
            recording.processes.take(Event::Map { pid, mapping }, 0);
        }
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../testdata/recorded/etmv4/program.elf"
        );
        let options = Options {
            vmlinux: (pid == KERNEL).then(|| program.into()),
            ..Options::default()
        };
        let images = Images::new(&options).unwrap();
        let mut builder = MemoryBuilder::new(&recording, 1 << 30, images, None);
        let mut out = Imported::default();
        for _ in 0..cores {
            builder.memory(&[0], &mut out);
        }
        out.notes
    }

    #[test]
    fn few_mappings_of_the_kernel_are_tried() {
        let all = (0..100).map(|index| mapping(&format!("[kernel.kallsyms]none{index}")));
        assert_eq!(notes(KERNEL, all, 2).len(), MAX_KERNELS);
    }

    #[test]
    fn without_a_symbol_the_kernels_address_is_not_known() {
        let found = notes(KERNEL, [mapping("[kernel.kallsyms]")].into_iter(), 1);
        let unplaced = |note: &Note| matches!(note, Note::Perf(PerfNote::UnplacedKernel { path }) if path.ends_with("program.elf"));
        assert!(found.len() == 1 && unplaced(&found[0]), "{found:?}");
    }

    #[test]
    fn a_named_kernel_needs_a_mapping() {
        let found = notes(KERNEL, [mapping("[module]")].into_iter(), 2);
        let is_unused = |note: &&Note| matches!(note, Note::Perf(PerfNote::NoKernelMapping { path }) if path.ends_with("program.elf"));
        assert_eq!(found.iter().filter(is_unused).count(), 1, "{found:?}");
    }

    #[test]
    fn mappings_beyond_the_limit_are_noted_once() {
        let all = |count| {
            std::iter::repeat_n(
                Mapping {
                    executable: false,
                    ..mapping("[heap]")
                },
                count,
            )
        };
        assert_eq!(notes(1, all(MAX_MAPPINGS), 2), []);
        let note = PerfNote::ManyMappingsOfProcess {
            pid: 1,
            limit: MAX_MAPPINGS,
        };
        assert_eq!(notes(1, all(MAX_MAPPINGS + 1), 2), [Note::from(note)]);
    }
}
