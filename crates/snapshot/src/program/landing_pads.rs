//! Landing pads: the positions at which a function continues when a C++ exception or a Rust panic
//! passes through it.
//!
//! The call frame information of a function refers to its language-specific data area (Linux
//! Standard Base Core 5.0, 10.6.1), in which GCC and LLVM keep a table of call sites: address
//! ranges of calls and their landing pads. In AArch32 the area is in the function's
//! exception-handling table entry (EHABI32), after its unwinding instructions.

use super::elf::Elf;
use gimli::{
    BaseAddresses, CieOrFde, DwEhPe, EhFrame, EndianSlice, LittleEndian, Pointer, Reader,
    UnwindSection,
};
use object::{File, Object, ObjectSection};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

type Bytes<'d> = EndianSlice<'d, LittleEndian>;

/// The landing pads of some programs, read on first use.
#[derive(Clone, Debug, Default)]
pub struct LandingPads {
    programs: Vec<Elf>,
    table: OnceLock<Table>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// The calls with a landing pad, by address, and their landing pads.
    calls: Vec<(Range<u64>, u64)>,
    pads: BTreeSet<u64>,
}

impl LandingPads {
    /// Creates the landing pads of programs, at the addresses where they are loaded.
    pub fn new<'e>(programs: impl IntoIterator<Item = &'e Elf>) -> Self {
        let programs = programs.into_iter().filter(|elf| elf.little_endian);
        Self {
            programs: programs.cloned().collect(),
            table: OnceLock::new(),
        }
    }

    /// Returns where execution continues if the call that returns to an address throws; `None` if
    /// its function has no landing pad for it, or the landing pad cannot be read.
    pub fn of_call(&self, return_address: u64) -> Option<u64> {
        let call = return_address.checked_sub(1)?;
        let calls = &self.table().calls;
        let after = calls.partition_point(|(calls, _)| calls.start <= call);
        let (calls, pad) = &calls[after.checked_sub(1)?];
        calls.contains(&call).then_some(*pad)
    }

    /// Returns whether an address is a landing pad.
    pub fn contains(&self, address: u64) -> bool {
        self.table().pads.contains(&address)
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| {
            let mut table = Table::default();
            for elf in &self.programs {
                table.add(elf.bytes(), elf.offset);
            }
            table.calls.sort_by_key(|(calls, _)| calls.start);
            table
        })
    }
}

impl Table {
    /// Adds those landing pads of a program that can be read.
    fn add(&mut self, file: &[u8], offset: u64) {
        let Ok(file) = File::parse(file) else {
            return;
        };
        self.add_frames(&file, offset);
        self.add_index(&file, offset);
    }

    /// Adds the landing pads of functions with call frame information.
    fn add_frames(&mut self, file: &File<'_>, offset: u64) -> Option<()> {
        let frames = file.section_by_name(".eh_frame")?;
        let bases = BaseAddresses::default().set_eh_frame(frames.address());
        let areas = file.section_by_name(".gcc_except_table")?;
        let (at, areas) = (areas.address(), areas.data().ok()?);
        let mut frames = EhFrame::new(frames.data().ok()?, LittleEndian);
        frames.set_address_size(if file.is_64() { 8 } else { 4 });
        let mut entries = frames.entries(&bases);
        // A limit: functions do not share an area, and a call site takes several bytes.
        let mut sites = areas.len();
        while let Some(entry) = entries.next().ok()?
            && sites > 0
        {
            let CieOrFde::Fde(function) = entry else {
                continue;
            };
            let Ok(function) = function.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            let Some(Pointer::Direct(area)) = function.lsda() else {
                continue;
            };
            let bytes = usize::try_from(area.wrapping_sub(at)).ok();
            if let Some(bytes) = bytes.and_then(|from| areas.get(from..)) {
                let start = function.initial_address().wrapping_add(offset);
                // Call sites before an error are used.
                let _ = self.add_calls(EndianSlice::new(bytes, LittleEndian), start, &mut sites);
            }
        }
        Some(())
    }

    /// Adds the landing pads of functions in the index table of AArch32 (EHABI32, 6: a
    /// place-relative address of the function, and one of its entry unless the entry is in the
    /// index itself).
    fn add_index(&mut self, file: &File<'_>, offset: u64) -> Option<()> {
        let index = file
            .section_by_name(".ARM.exidx")
            .filter(|_| !file.is_64())?;
        let entries = file.section_by_name(".ARM.extab")?;
        let (at, entries) = (entries.address(), entries.data().ok()?);
        let mut sites = entries.len();
        let places = (0..).map(|number: u64| index.address().wrapping_add(8 * number));
        for (place, words) in places.zip(index.data().ok()?.as_chunks::<8>().0) {
            let [function, entry] = [0, 4].map(|from| word(words, from).unwrap_or(0));
            if entry == CANNOT_UNWIND || entry & COMPACT != 0 {
                continue;
            }
            let function = relative(place, function) & !1;
            let entry = relative(place.wrapping_add(4), entry).wrapping_sub(at);
            let entry = usize::try_from(entry).ok();
            if let Some(area) = entry.and_then(|from| own_area(entries.get(from..)?)) {
                let start = function.wrapping_add(offset);
                let _ = self.add_calls(EndianSlice::new(area, LittleEndian), start, &mut sites);
            }
        }
        Some(())
    }

    /// Adds the calls of a function, from its language-specific data area. `left` is the number of call
    /// sites that may still be read.
    fn add_calls(
        &mut self,
        mut area: Bytes<'_>,
        function: u64,
        left: &mut usize,
    ) -> gimli::Result<()> {
        // GCC and LLVM use addresses relative to the start of the function.
        if DwEhPe(area.read_u8()?) != gimli::DW_EH_PE_omit {
            return Ok(());
        }
        if DwEhPe(area.read_u8()?) != gimli::DW_EH_PE_omit {
            area.read_uleb128()?;
        }
        let form = DwEhPe(area.read_u8()?);
        let length = area.read_uleb128()?;
        let mut sites = area.split(usize::try_from(length).unwrap_or(usize::MAX))?;
        while !sites.is_empty() && *left > 0 {
            *left -= 1;
            let mut next = || number(&mut sites, form);
            let (start, length, pad) = (next()?, next()?, next()?);
            sites.read_uleb128()?;
            if pad != 0 {
                let start = function.wrapping_add(start);
                let pad = function.wrapping_add(pad);
                self.calls.push((start..start.saturating_add(length), pad));
                self.pads.insert(pad);
            }
        }
        Ok(())
    }
}

/// The second word in the index entry of a function that cannot be unwound (EHABI32, 6:
/// EXIDX_CANTUNWIND).
const CANNOT_UNWIND: u32 = 1;
/// The bit that marks a word with unwinding instructions instead of an address (EHABI32, 7.2).
const COMPACT: u32 = 1 << 31;

fn word(bytes: &[u8], from: usize) -> Option<u32> {
    let bytes = bytes.get(from..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Returns an address that is relative to the position of its word, with 31 signed bits
/// (R_ARM_PREL31).
fn relative(place: u64, word: u32) -> u64 {
    let distance = (word << 1).cast_signed() >> 1;
    u64::from((place as u32).wrapping_add_signed(distance))
}

/// Returns the language-specific data area of an entry for a language's own personality routine.
/// The address of the routine is followed by unwinding instructions: three in a word whose highest
/// byte is the number of further words, as GCC and LLVM arrange them.
fn own_area(entry: &[u8]) -> Option<&[u8]> {
    if word(entry, 0)? & COMPACT != 0 {
        return None;
    }
    let further = word(entry, 4)? >> 24;
    entry.get(8 + 4 * further as usize..)
}

/// Reads a number of the table, in its encoding (Linux Standard Base Core 5.0, 10.5.1).
fn number(bytes: &mut Bytes<'_>, form: DwEhPe) -> gimli::Result<u64> {
    match form.format() {
        gimli::DW_EH_PE_uleb128 => bytes.read_uleb128(),
        gimli::DW_EH_PE_udata2 => bytes.read_u16().map(u64::from),
        gimli::DW_EH_PE_udata4 | gimli::DW_EH_PE_sdata4 => bytes.read_u32().map(u64::from),
        gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_sdata8 => bytes.read_u64(),
        _ => Err(gimli::Error::UnsupportedPointerEncoding(form)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function at 0x1000 with a landing pad for its second call only.
    const AREA: [u8; 13] = [
        0xff, 0xff, 0x01, 8, 0x10, 0x04, 0, 0, 0x20, 0x08, 0x30, 1, 0xaa,
    ];

    fn pad(area: &[u8], return_address: u64) -> Option<u64> {
        let mut table = Table::default();
        let _ = table.add_calls(EndianSlice::new(area, LittleEndian), 0x1000, &mut 100);
        let pads = LandingPads {
            programs: Vec::new(),
            table: OnceLock::from(table),
        };
        assert_eq!(pads.contains(0x1030), pads.of_call(0x1021).is_some());
        pads.of_call(return_address)
    }

    #[test]
    fn the_table_of_call_sites_is_read() {
        for (call, wanted) in [
            (0, None),
            (0x1010, None),
            (0x1011, None),
            (0x1014, None),
            (0x1020, None),
            (0x1021, Some(0x1030)),
            (0x1028, Some(0x1030)),
            (0x1029, None),
        ] {
            assert_eq!(pad(&AREA, call), wanted, "{call:#x}");
        }
    }

    /// An entry with instructions in a further word, and one in the compact form.
    #[test]
    fn areas_of_aarch32_are_behind_instructions() {
        let entry = [
            &[0xf0, 0xff, 0xff, 0x7f, 0xb0, 0xb0, 0xb0, 0x01][..],
            &[0xb0; 4],
            &AREA,
        ]
        .concat();
        assert_eq!(own_area(&entry), Some(&AREA[..]));
        assert_eq!(own_area(&entry[..11]), None);
        let compact = [&[0xb0, 0xb0, 0xb0, 0x80][..], &entry[4..]].concat();
        assert_eq!(own_area(&compact), None);
        assert_eq!(relative(0x1_0010, 0x7fff_fff0), 0x1_0000);
        assert_eq!(relative(0x1_0010, 0x10), 0x1_0020);
    }

    /// Functions may refer to the same area; the number of call sites read is limited.
    #[test]
    fn call_sites_are_read_within_a_limit() {
        let mut table = Table::default();
        let mut left = 1000;
        for function in 0..1000 {
            let area = EndianSlice::new(&AREA, LittleEndian);
            table.add_calls(area, function, &mut left).unwrap();
        }
        assert_eq!((left, table.calls.len()), (0, 500));
    }

    #[test]
    fn what_is_cut_or_strange_has_no_landing_pad() {
        for length in 0..AREA.len() - 1 {
            pad(&AREA[..length], 0x1021);
        }
        assert_eq!(pad(&AREA[..11], 0x1021), None);
        assert_eq!(pad(&[0xff; 40], 0x1021), None);
        assert_eq!(LandingPads::default().of_call(0), None);
        assert!(!LandingPads::default().contains(0));
    }
}
