//! Finds the tables of a 32-bit kernel, whose VMCOREINFO does not contain the address of its memory
//! (`arch/arm` of Linux).
//!
//! The kernel maps its image and all low memory at one offset: from the virtual address
//! PAGE_OFFSET, determined by one of the configurations VMSPLIT_*, to the physical address
//! PHYS_OFFSET. An offset is used only if the kernel's table, read at this offset, maps itself
//! there.

use super::physical::Pieces;
use super::vmcoreinfo::{Info, NoValue};
use armsnap_arch::translation::{KernelForm, KernelTables};

/// The values of PAGE_OFFSET: VMSPLIT_1G, 2G, 3G_OPT and 3G.
const PAGE_OFFSETS: [u64; 4] = [0x4000_0000, 0x8000_0000, 0xb000_0000, 0xc000_0000];
/// Modules are below PAGE_OFFSET.
const MODULES: u64 = 16 << 20;
/// PHYS_OFFSET may be the start of memory aligned down to one of these units: not aligned, to 2 MiB
/// for a boot loader that loads the kernel higher, or to 128 MiB by AUTO_ZRELADDR.
const ALIGNED: [u64; 3] = [1, 2 << 20, 128 << 20];
/// Maximum number of segments that are tried.
const TRIED: usize = 256;

/// A segment of a core file: virtual address (if it has one), physical address, bytes.
pub type KernelSegment<'b> = (Option<u64>, u64, &'b [u8]);

/// Finds the tables of the kernel that VMCOREINFO describes and the offset of its image, and sets
/// them in `info`.
///
/// # Errors
///
/// Returns an error if VMCOREINFO does not name the table, or the table is not found.
pub fn place(info: &mut Info, segments: &[KernelSegment<'_>]) -> Result<(), NoValue> {
    let (tables, offset) = find(info, segments)?;
    info.place(tables, offset);
    Ok(())
}

fn find(info: &Info, segments: &[KernelSegment<'_>]) -> Result<(KernelTables, u64), NoValue> {
    let key = "SYMBOL(swapper_pg_dir)";
    let table = info.address(key).ok_or_else(|| NoValue(key.to_owned()))?;
    let mut bases = PAGE_OFFSETS.iter().rev();
    let base = bases.find(|base| **base <= table);
    let base = *base.ok_or_else(|| NoValue("possible address of swapper_pg_dir".to_owned()))?;
    let first = base - MODULES;
    let form = match info.text("CONFIG_ARM_LPAE") {
        Some("y") => KernelForm::Long { first },
        _ => KernelForm::Short { first },
    };
    let of_segment = |(start, physical, bytes): &KernelSegment<'_>| {
        let start = start.filter(|start| (*start..*start + bytes.len() as u64).contains(&table))?;
        Some(start.wrapping_sub(*physical))
    };
    let linear = segments.iter().filter_map(of_segment);
    let named = ["NUMBER(PHYS_OFFSET)", "PHYS_OFFSET"];
    let named = named.iter().filter_map(|key| info.number(key));
    let starts = segments.iter().take(TRIED);
    let starts = starts.flat_map(|(_, start, _)| ALIGNED.map(|unit| start & !(unit - 1)));
    let others = named.chain(starts).map(|start| base.wrapping_sub(start));
    let pieces = segments
        .iter()
        .map(|(_, physical, bytes)| (*physical, *bytes));
    let pieces = Pieces::new(pieces.collect());
    let maps_itself = |offset: &u64| {
        let tables = tables(table.wrapping_sub(*offset), form);
        let found = tables.regime().and_then(|regime| {
            let found = regime.translate(table, &pieces, &mut |_| {});
            Some(found.ok()?.physical)
        });
        found == Some(tables.high_table)
    };
    let offset = linear.chain(others).find(maps_itself);
    let offset = offset.ok_or_else(|| {
        NoValue("PHYS_OFFSET, and its table is at no place that the segments suggest".to_owned())
    })?;
    Ok((tables(table.wrapping_sub(offset), form), offset))
}

/// Returns the reason why big-endian kernels are not read.
pub fn big_endian() -> NoValue {
    NoValue("little-endian tables".to_owned())
}

const fn tables(high_table: u64, form: KernelForm) -> KernelTables {
    KernelTables {
        high_table,
        granule: 4096,
        high_bits: 32,
        form,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4 << 20;

    /// Returns memory with a table that maps it at an address, in sections or blocks.
    fn memory(base: u64, physical: u64, table: usize, long: bool) -> Vec<u8> {
        let mut out = vec![0; SIZE];
        if long {
            for index in 0..4 {
                let next = physical + table as u64 + 0x1000 * (index + 1);
                let at = table + 8 * index as usize;
                out[at..at + 8].copy_from_slice(&(next | 3).to_le_bytes());
            }
            for index in 0..2_u64 {
                let at = table + 0x1000 + 8 * (base as usize / (2 << 20) + index as usize);
                let block = (physical + (index << 21)) | 0x711;
                out[at..at + 8].copy_from_slice(&block.to_le_bytes());
            }
        } else {
            for index in 0..4_u64 {
                let at = table + 4 * (base as usize / (1 << 20) + index as usize);
                let section = (physical + (index << 20)) as u32 | 0x40e;
                out[at..at + 4].copy_from_slice(&section.to_le_bytes());
            }
        }
        out
    }

    fn info(table: u64, more: &str) -> Info {
        Info::read(format!("PAGESIZE=4096\nSYMBOL(swapper_pg_dir)={table:x}\n{more}").as_bytes())
    }

    #[test]
    fn all_splits_and_both_forms() {
        for base in PAGE_OFFSETS {
            for (long, table) in [(false, 0x4000), (true, 0x3000)] {
                for physical in [0x8000_0000, 0x4000_0000, 0] {
                    let bytes = memory(base, physical, table, long);
                    let more = if long { "CONFIG_ARM_LPAE=y\n" } else { "" };
                    let info = info(base + table as u64, more);
                    let segment = (None, physical, &bytes[..]);
                    let (tables, offset) = find(&info, &[segment]).unwrap();
                    assert_eq!(tables.high_table, physical + table as u64);
                    assert_eq!(offset, base.wrapping_sub(physical));
                    // Memory before the kernel's.
                    let other = (None, physical + 0x1000_0000, &bytes[..16]);
                    assert!(find(&info, &[other, segment]).is_ok());
                }
            }
        }
    }

    #[test]
    fn a_table_that_does_not_map_itself_is_not_used() {
        let bytes = memory(0xc000_0000, 0x8000_0000, 0x4000, false);
        let info = info(0xc000_4000, "");
        let error = find(&info, &[(Some(0xc000_0000), 0x9000_0000, &bytes)]).unwrap_err();
        assert!(error.to_string().contains("no PHYS_OFFSET"), "{error}");
        assert!(find(&info, &[]).is_err());
        assert!(find(&Info::read(b"OSRELEASE=1\n"), &[]).is_err());
    }
}
