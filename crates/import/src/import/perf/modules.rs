//! The modules of the recorded kernel: their files, linked for the addresses where they were
//! loaded.

use super::processes::Mapping;
use crate::import::Imported;
use crate::import::images::kernel_module;
use crate::import::note::PerfNote;
use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::program::elf::{Elf, Segment};
use armsnap_snapshot::program::module_file::{Kallsyms, ModuleFile, Placement};
use armsnap_snapshot::snapshot::straight::Straight;
use object::{Object, ObjectSymbol};
use std::collections::HashMap;

/// The maximum total size in bytes of the files that are linked.
const MOST: usize = 512 << 20;
/// The file with the addresses of straight-line code in a snapshot.
const STRAIGHT: &str = "images/straight-code.txt";

/// A file with kernel code, at the addresses where it ran.
#[derive(Debug)]
pub struct Kernel {
    /// Its path in the snapshot.
    pub file: String,
    /// The offset of its load address; `None` if it is not a program.
    pub bias: Option<u64>,
    /// Its code.
    pub segments: Vec<Segment>,
}

/// The data that is known about the kernel that loaded the modules.
pub struct KernelData<'k> {
    /// Its program, at its address.
    pub kernel: Option<&'k Elf>,
    /// Its `/proc/kallsyms`.
    pub kallsyms: Option<&'k [u8]>,
}

/// Links the files of modules, whose mappings give the addresses of their code. Returns the linked
/// files, and the path of the file with the addresses of instructions that do not change the flow.
/// If `is_known`, the memory of the modules is known, and only their names are needed.
pub fn linked(
    files: &[(&Mapping, Elf)],
    known: &KernelData<'_>,
    is_known: bool,
    memory: &Budget,
    out: &mut Imported,
) -> (Vec<Kernel>, Option<String>) {
    if files.is_empty() {
        return (Vec::new(), None);
    }
    let kallsyms = known
        .kallsyms
        .map_or_else(Kallsyms::default, Kallsyms::read);
    let mut symbols = Symbols::of(known.kernel, &kallsyms);
    let (mut placed, mut left) = (Vec::new(), MOST);
    for (mapping, elf) in files {
        let rest = left.checked_sub(elf.bytes().len());
        let Some(rest) = rest.filter(|_| memory.take(elf.bytes().len() as u64)) else {
            out.notes.push(PerfNote::ManyModules { limit: MOST }.into());
            break;
        };
        left = rest;
        let module = ModuleFile::read(elf.bytes());
        let placement = module.as_ref().map(|module| {
            let mut placement = Placement::of_code(module, mapping.address);
            let name = kernel_module(&mapping.path);
            if let Some(listed) = name.and_then(|name| kallsyms.modules.get(&name)) {
                placement.correct(module, listed);
            }
            placement
        });
        match module.zip(placement.filter(|placement| !placement.is_empty())) {
            Some((module, placement)) => placed.push((mapping, elf, module, placement)),
            None => {
                let path = elf.path.clone();
                out.notes.push(PerfNote::UnplacedModule { path }.into());
            }
        }
    }
    for (_, _, module, placement) in &placed {
        symbols.add(module.exported(placement));
    }
    let (mut kernels, mut straight, mut traced) = (Vec::new(), Vec::new(), false);
    for (mapping, elf, module, placement) in &placed {
        let linked = module.link_within(placement, &|name| symbols.address(name), memory);
        traced |= linked.traced;
        let name = elf.path.file_name().unwrap_or_default().to_string_lossy();
        // No file has this path, so readers take the contents from the snapshot.
        let origin = elf.path.join(format!("at-{:x}", mapping.address));
        let file = out.add("images", &name, linked.file.into(), origin);
        let end = mapping.address.saturating_add(mapping.length);
        let is_mapped = |start, after| mapping.address <= start && after <= end;
        let segments = linked.code.into_iter().map(|part| Segment {
            address: part.address,
            file: part.file,
            writable: false,
        });
        kernels.push(Kernel {
            file,
            bias: Some(0),
            segments: segments
                .filter(|segment| is_mapped(segment.address, segment.end()) && !is_known)
                .collect(),
        });
        let inside = linked.straight.into_iter();
        straight.extend(inside.filter(|range| is_mapped(range.start, range.end)));
    }
    if is_known || kernels.is_empty() {
        return (kernels, None);
    }
    let count = kernels.len();
    out.notes.push(PerfNote::Modules { count }.into());
    if traced {
        out.notes.push(PerfNote::NoTracer.into());
    }
    let text = Straight::new(straight).text();
    let straight = text.map(|text| {
        out.files
            .insert(STRAIGHT.to_owned(), text.into_bytes().into());
        STRAIGHT.to_owned()
    });
    (kernels, straight)
}

/// The symbols that modules may refer to; `None` if several have the same name.
struct Symbols(HashMap<String, Option<u64>>);

impl Symbols {
    fn of(kernel: Option<&Elf>, kallsyms: &Kallsyms) -> Self {
        let mut out = Self(HashMap::new());
        let file = kernel.and_then(|elf| Some((elf, object::File::parse(elf.bytes()).ok()?)));
        if let Some((elf, file)) = &file {
            out.add(file.symbols().filter_map(|symbol| {
                let name = symbol.name().ok().filter(|_| symbol.is_global());
                let address = symbol.address().wrapping_add(elf.offset);
                Some((name?, address))
            }));
        }
        // The kernel's own list takes precedence.
        let listed = kallsyms
            .kernel
            .iter()
            .map(|(name, address)| (name.clone(), *address));
        out.0
            .extend(listed.filter(|(_, address)| address.is_some()));
        out
    }

    fn add<'s>(&mut self, symbols: impl Iterator<Item = (&'s str, u64)>) {
        for (name, address) in symbols {
            let known = self.0.entry(name.to_owned());
            known
                .and_modify(|known| *known = known.filter(|known| *known == address))
                .or_insert(Some(address));
        }
    }

    fn address(&self, name: &str) -> Option<u64> {
        *self.0.get(name)?
    }
}
