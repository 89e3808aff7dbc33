//! Executed blocks by module and offset: version 2 of the format of DynamoRIO's drcov, as Lighthouse
//! and others read it.

use super::{Analysed, ExportError, clean, hidden};
use crate::program::elf::Elf;
use std::collections::BTreeSet;
use std::io::Write;

/// Code outside of programs is described in modules of this size.
const REGION: u64 = 1 << 32;
/// The longest block.
const LONGEST: u64 = 0xfffe;

struct Module {
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
    let mut modules: Vec<Module> = analysed
        .programs
        .images()
        .iter()
        .filter_map(module)
        .collect();
    let mut executed = BTreeSet::new();
    for (_, profile) in analysed.tracks {
        let blocks = profile.code.blocks();
        executed.extend(blocks.iter().map(|block| (block.start.0, block.end.0)));
        let parts = profile.code.parts();
        executed.extend(
            parts
                .iter()
                .map(|part| (part.range.start.0, part.range.end.0)),
        );
    }
    let mut blocks = Vec::new();
    for (start, end) in executed {
        let mut here = start;
        while here < end {
            let at = modules
                .iter()
                .position(|module| (module.base..module.end).contains(&here));
            let at = at.unwrap_or_else(|| {
                let base = here & !(REGION - 1);
                modules.push(Module {
                    base,
                    end: base.saturating_add(REGION - 1),
                    path: format!("[memory at {base:#x}]"),
                });
                modules.len() - 1
            });
            let size = (end - here).min(LONGEST);
            let offset = here - modules[at].base;
            let at = u16::try_from(at)
                .map_err(|_| ExportError::Unfit("more than 65536 modules".to_owned()))?;
            blocks.push((offset as u32, size as u16, at));
            here += size;
        }
    }
    for (track, profile) in analysed.tracks {
        if let Some(path) = hidden(track, profile) {
            let (base, end) = (0, 0);
            modules.push(Module { base, end, path });
        }
    }
    writeln!(out, "DRCOV VERSION: 2\nDRCOV FLAVOR: drcov")?;
    writeln!(out, "Module Table: version 2, count {}", modules.len())?;
    writeln!(
        out,
        "Columns: id, base, end, entry, checksum, timestamp, path"
    )?;
    for (id, module) in modules.iter().enumerate() {
        let Module { base, end, path } = module;
        let path = clean(path);
        writeln!(
            out,
            "{id:3}, {base:#018x}, {end:#018x}, 0x0000000000000000, 0x00000000, 0x00000000, {path}"
        )?;
    }
    writeln!(out, "BB Table: {} bbs", blocks.len())?;
    for (offset, size, module) in blocks {
        out.write_all(&offset.to_le_bytes())?;
        out.write_all(&size.to_le_bytes())?;
        out.write_all(&module.to_le_bytes())?;
    }
    Ok(())
}

/// The module of a program: from its lowest page to its end; `None` if it cannot be described.
fn module(elf: &Elf) -> Option<Module> {
    let base = elf.segments.iter().map(|segment| segment.address).min()? & !0xfff;
    let end = elf.segments.iter().map(|segment| segment.end()).max()?;
    (end - base < REGION).then(|| Module {
        base,
        end,
        path: elf.path.display().to_string(),
    })
}
