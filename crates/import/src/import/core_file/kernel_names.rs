//! The names of a Linux kernel, read from the symbol table in its own memory (kallsyms) if no
//! program with names is given.

use super::vmcore::{held, physical};
use super::{PT_LOAD, ProgramHeaders};
use crate::import::claims::Claims;
use armsnap_snapshot::linux::vmcoreinfo::Info;
use armsnap_snapshot::program::kallsyms::Kallsyms;
use armsnap_snapshot::program::kernel_symbols;
use std::borrow::Cow;

/// The alignment of a kernel's image (Linux, Documentation/arch/arm64/booting.rst).
const ALIGNED: u64 = 2 << 20;
/// The size of the header of an image in bytes.
const HEADER: usize = 64;
/// The maximum size of an image.
const LARGEST: u64 = 256 << 20;
/// The size of the part that is searched if the size of the image is not known.
const SEARCHED: u64 = 64 << 20;

/// The names of a kernel.
pub struct KernelNames {
    /// An ELF file with its functions at the addresses at which they ran.
    pub file: Vec<u8>,
    /// The address of the kernel's image.
    pub text: u64,
    /// The number of its symbols.
    pub symbols: usize,
    /// Its symbols.
    pub table: Kallsyms,
}

/// Finds the names of the kernel whose memory is in a core file; `None` if it contains none that
/// can be read.
pub fn find(bytes: &[u8], layout: &ProgramHeaders, info: &Info) -> Option<KernelNames> {
    let first_code = info.address("SYMBOL(_stext)")?;
    let text = first_code & !(ALIGNED - 1);
    let offset = info.image_offset()?;
    let at = text.wrapping_sub(offset);
    // The kernel frees the memory before `_stext`, which contains the header, for other uses.
    let header = memory(bytes, layout, at, HEADER as u64);
    let header = header.filter(|header| header.get(56..60) == Some(b"ARM\x64"));
    let size =
        header.and_then(|header| Some(u64::from_le_bytes(*header.get(16..)?.first_chunk()?)));
    let image = memory(bytes, layout, at, size.unwrap_or(SEARCHED).min(LARGEST))?;
    let symbols = Kallsyms::find(&image)?;
    // The base in the table is the run-time address, because the kernel has relocated it.
    let (first, start) = symbols.base()?;
    let mut found = symbols.offsets("_stext");
    if !found.any(|offset| first.checked_add(offset.into()) == Some(first_code)) {
        return None;
    }
    drop(found);
    // If the boot loader aligned the image less strictly, the image starts in the preceding block.
    let (text, image) = match start == text {
        true => (text, image),
        false => {
            let length = image.len() as u64;
            (
                start,
                memory(bytes, layout, start.wrapping_sub(offset), length)?,
            )
        }
    };
    Some(KernelNames {
        file: kernel_symbols::write(&symbols, &image, text, signed(info))?,
        text,
        symbols: symbols.symbols().len(),
        table: symbols,
    })
}

/// Whether return addresses may contain authentication codes.
pub fn signed(info: &Info) -> bool {
    info.number("NUMBER(KERNELPACMASK)").unwrap_or(0) != 0
}

/// Reads physical memory. Memory that is not in the file reads as zero: makedumpfile omits zero
/// pages.
fn memory<'b>(
    bytes: &'b [u8],
    layout: &ProgramHeaders,
    address: u64,
    length: u64,
) -> Option<Cow<'b, [u8]>> {
    let end = address.checked_add(length)?;
    let length = usize::try_from(length).ok()?;
    let loads = layout.of_kind(PT_LOAD);
    let physical = physical(layout);
    let loads = loads.filter_map(|load| Some((physical(load)?, held(bytes, load))));
    let mut copy = Vec::new();
    let mut claims = Claims::default();
    for (start, held) in loads {
        let from = start.max(address);
        let to = start.saturating_add(held.len() as u64).min(end);
        if from >= to {
            continue;
        }
        let whole = (from, to) == (address, end);
        if whole && copy.is_empty() {
            let skipped = (from - start) as usize;
            return held.get(skipped..skipped + length).map(Cow::Borrowed);
        }
        copy.resize(length, 0);
        for range in claims.take(from..to) {
            let part = (range.start - start) as usize..(range.end - start) as usize;
            let place = (range.start - address) as usize;
            copy[place..place + part.len()].copy_from_slice(&held[part]);
        }
    }
    (!copy.is_empty()).then_some(Cow::Owned(copy))
}

#[cfg(test)]
mod tests {
    use super::super::Header;
    use super::*;

    #[test]
    fn memory_of_several_segments() {
        let load = |physical, offset, in_file| Header {
            kind: PT_LOAD,
            offset,
            address: 0,
            physical,
            in_file,
            ..Header::default()
        };
        let layout = ProgramHeaders {
            big: false,
            is_64bit: true,
            machine: super::super::EM_AARCH64,
            // The second segment overlaps the first, and the file ends within the fourth.
            headers: vec![
                load(0x1000, 0, 4),
                load(0x1002, 4, 4),
                load(0x1008, 8, 4),
                load(0x100c, 14, 4),
            ],
        };
        let bytes: Vec<u8> = (1..=16).collect();
        let read = |address, length| memory(&bytes, &layout, address, length).map(Cow::into_owned);
        assert_eq!(read(0x1001, 3), Some(vec![2, 3, 4]));
        assert_eq!(
            read(0x1000, 16),
            Some(vec![1, 2, 3, 4, 7, 8, 0, 0, 9, 10, 11, 12, 15, 16, 0, 0])
        );
        assert_eq!(read(0x2000, 4), None);
        assert_eq!(read(u64::MAX, 4), None);
    }
}
