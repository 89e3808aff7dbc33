//! Executed blocks by module and offset: version 2 of DynamoRIO's drcov format, which Lighthouse
//! and others read.

use super::{Analysed, ExportError, clean, hidden};
use armsnap_snapshot::program::elf::Elf;
use std::collections::BTreeSet;
use std::io::Write;

/// Code outside programs is described in modules of this size.
const REGION: u64 = 1 << 32;
/// The longest block.
const LONGEST: u64 = 0xfffe;

struct Module<'a> {
    /// Its file; `None` for memory that belongs to no known file.
    elf: Option<&'a Elf>,
    base: u64,
    end: u64,
    path: String,
}

/// Writes the blocks that were executed, each once.
///
/// # Errors
///
/// If there are too many modules, or the output cannot be written.
pub fn write(analysed: &Analysed<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    let programs = analysed.programs;
    let mut modules: Vec<Module<'_>> = programs.images().filter_map(module).collect();
    let mut blocks = BTreeSet::new();
    for (track, profile) in analysed.tracks {
        let images = programs.images_of(track.core);
        let of_core = |elf: &Elf| images.iter().any(|image| std::ptr::eq(*image, elf));
        let lines = profile.code.blocks().into_iter();
        let lines = lines.map(|block| (block.start.0, block.end.0));
        let parts = profile.code.parts().into_iter();
        let parts = parts.map(|part| (part.range.start.0, part.range.end.0));
        let executed: BTreeSet<(u64, u64)> = lines.chain(parts).collect();
        for (start, end) in executed {
            let mut here = start;
            while here < end {
                let at = modules.iter().position(|module| {
                    let inside = (module.base..module.end).contains(&here);
                    inside && module.elf.is_none_or(of_core)
                });
                let at = at.unwrap_or_else(|| {
                    let base = here & !(REGION - 1);
                    modules.push(Module {
                        elf: None,
                        base,
                        end: base.saturating_add(REGION - 1),
                        path: format!("[memory at {base:#x}]"),
                    });
                    modules.len() - 1
                });
                let size = (end - here).min(LONGEST);
                let number = u16::try_from(at)
                    .map_err(|_| ExportError::Unfit("more than 65536 modules".to_owned()))?;
                blocks.insert((here, size as u16, number));
                here += size;
            }
        }
    }
    for (track, profile) in analysed.tracks {
        if let Some(path) = hidden(track, profile) {
            let (elf, base, end) = (None, 0, 0);
            modules.push(Module {
                elf,
                base,
                end,
                path,
            });
        }
    }
    writeln!(out, "DRCOV VERSION: 2\nDRCOV FLAVOR: drcov")?;
    writeln!(out, "Module Table: version 2, count {}", modules.len())?;
    writeln!(
        out,
        "Columns: id, base, end, entry, checksum, timestamp, path"
    )?;
    for (id, module) in modules.iter().enumerate() {
        let Module {
            base, end, path, ..
        } = module;
        let path = clean(path);
        writeln!(
            out,
            "{id:3}, {base:#018x}, {end:#018x}, 0x0000000000000000, 0x00000000, 0x00000000, {path}"
        )?;
    }
    writeln!(out, "BB Table: {} bbs", blocks.len())?;
    for (start, size, module) in blocks {
        let offset = (start - modules[usize::from(module)].base) as u32;
        out.write_all(&offset.to_le_bytes())?;
        out.write_all(&size.to_le_bytes())?;
        out.write_all(&module.to_le_bytes())?;
    }
    Ok(())
}

/// The module of a program: from its lowest page to its end; `None` if it cannot be described.
fn module(elf: &Elf) -> Option<Module<'_>> {
    let base = elf.segments.iter().map(|segment| segment.address).min()? & !0xfff;
    let end = elf.segments.iter().map(|segment| segment.end()).max()?;
    (end - base < REGION).then(|| Module {
        elf: Some(elf),
        base,
        end,
        path: elf.path.display().to_string(),
    })
}
