//! The memory of processes: the files that they had mapped, and the kernel.

use super::modules::{self, Kernel};
use super::processes::{KERNEL, Mapping};
use super::recording::Recording;
use crate::import::claims::Claims;
use crate::import::images::{self, Images};
use crate::import::note::PerfNote;
use crate::import::wanted::Wanted;
use crate::import::{Imported, jitdump, programs};
use crate::program::elf::{Elf, Segment};
use crate::snapshot::model::Dump;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The most mappings of a process that are used.
const MAX_MAPPINGS: usize = 1 << 16;
/// The most mappings and generated functions of all cores together.
const MAX_IN_ALL: usize = 1 << 22;

/// The memory of a core.
#[derive(Debug, Default)]
pub struct Memory {
    /// Parts of the mapped files.
    pub dumps: Vec<Dump>,
    /// The mapped files, by their paths in the snapshot, each with the offset of its load address.
    pub programs: Vec<(String, u64)>,
    known: HashSet<String>,
    claims: Claims,
}

impl Memory {
    /// Adds the bytes from `offset` of a file at a range of addresses.
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
    /// The files so far.
    pub images: Images<'a>,
    kernel: Option<Rc<[Kernel]>>,
    /// The file with the addresses of the kernel's straight code.
    pub straight: Option<String>,
    kcore: Option<Elf>,
    /// The jitdump files read so far; `None` if one cannot be read.
    made: HashMap<Wanted, Option<Rc<JitCode>>>,
    /// How many of [`MAX_IN_ALL`] are left.
    left: usize,
}

impl<'a> MemoryBuilder<'a> {
    /// For a recording; `kcore` is the memory of its kernel.
    pub fn new(recording: &'a Recording, images: Images<'a>, kcore: Option<Elf>) -> Self {
        Self {
            recording,
            images,
            kernel: None,
            straight: None,
            kcore,
            made: HashMap::new(),
            left: MAX_IN_ALL,
        }
    }

    /// The memory of a core that ran some process images. The mappings of earlier images in the list
    /// take precedence.
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
        let mappings = self.recording.processes.mappings(image, MAX_MAPPINGS);
        let most = MAX_MAPPINGS.min(self.left);
        if mappings.len() > self.left && self.left > 0 {
            let limit = MAX_IN_ALL;
            out.notes.push(PerfNote::ManyMappings { limit }.into());
        }
        self.left = self.left.saturating_sub(mappings.len());
        let mut used = HashSet::new();
        for mapping in mappings.iter().rev().take(most) {
            if jitdump::is_jitdump(&mapping.path) && used.insert(&*mapping.path) {
                self.jitdump(mapping, memory, out);
            }
        }
        for mapping in mappings.into_iter().rev().take(most) {
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

    /// Adds the code that a process generated, the newest first. A mapping of the jitdump file in the
    /// process names it.
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
                limit: MAX_IN_ALL,
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
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = out.add("images", &name, bytes, path.clone());
        Some(JitCode { file, code })
    }

    /// The kernel's code, if its file is known. The path of the kernel's mapping ends with a symbol
    /// after `]`, and its offset is the address of that symbol.
    fn kernel(&mut self, out: &mut Imported) -> Vec<Kernel> {
        let processes = &self.recording.processes;
        let image = processes.current(KERNEL);
        let mappings = image.map_or_else(Vec::new, |image| processes.mappings(image, MAX_MAPPINGS));
        let mut found = Vec::new();
        let kcore = self.kcore.take();
        let is_whole = kcore.is_some();
        if let Some(kcore) = kcore {
            // What was in memory: modules and changed code too.
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
        for mapping in mappings {
            let Some((name, symbol)) = mapping.path.split_once(']') else {
                if !is_whole {
                    let wanted = self.wanted(mapping);
                    self.images.missing.insert(wanted);
                }
                continue;
            };
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
        let mut files = Vec::new();
        // Of mappings at the same addresses the last one is used.
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
        let known = modules::Known {
            kernel: kernel.as_ref(),
            kallsyms: kallsyms.as_deref(),
        };
        let (linked, straight) = modules::linked(&files, &known, is_whole, out);
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
