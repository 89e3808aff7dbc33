//! Call frame information: where the frame of a function begins, given the registers inside it.
//!
//! Read from `.eh_frame` (Linux Standard Base Core 5.0, 10.6.1) and `.debug_frame` (DWARF 5, 6.4).

use super::elf::Elf;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian,
    UnwindContext, UnwindOffset, UnwindSection,
};
use object::{CompressionFormat, Object, ObjectSection};
use std::ops::Range;

type Bytes<'d> = EndianSlice<'d, LittleEndian>;

/// Maximum number of functions of all programs.
const MOST: usize = 1 << 20;

/// The canonical frame address at an instruction: the value of a register plus a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAddress {
    /// The DWARF number of the register.
    pub register: u16,
    /// The number that is added to it.
    pub offset: i64,
}

/// The call frame information of some programs.
#[derive(Clone, Debug, Default)]
pub struct CallFrames {
    tables: Vec<Table>,
    /// Sorted by their starts.
    functions: Vec<Function>,
}

/// A section of a program.
#[derive(Clone, Debug)]
struct Table {
    program: Elf,
    bytes: Range<usize>,
    address: u64,
    address_size: u8,
    for_exceptions: bool,
}

#[derive(Clone, Debug)]
struct Function {
    range: Range<u64>,
    table: usize,
    offset: usize,
}

impl CallFrames {
    /// Reads the information of programs, at the addresses where they are loaded.
    pub fn new<'e>(programs: impl IntoIterator<Item = &'e Elf>) -> Self {
        let mut all = Self::default();
        for program in programs.into_iter().filter(|elf| elf.little_endian) {
            all.add(program);
        }
        all.functions.sort_by_key(|function| function.range.start);
        all
    }

    /// Returns where the frame begins at an instruction; `None` if it is not known or does not have
    /// this form.
    pub fn at(&self, pc: u64) -> Option<FrameAddress> {
        let after = self
            .functions
            .partition_point(|function| function.range.start <= pc);
        let function = self.functions[..after].last()?;
        if !function.range.contains(&pc) {
            return None;
        }
        let table = self.tables.get(function.table)?;
        let pc = pc.wrapping_sub(table.program.offset);
        match table.for_exceptions {
            true => table.rule(&table.eh_frame()?, function.offset, pc),
            false => table.rule(&table.debug_frame()?, function.offset, pc),
        }
    }

    fn add(&mut self, program: &Elf) {
        let Ok(file) = object::File::parse(program.bytes()) else {
            return;
        };
        for (name, for_exceptions) in [(".eh_frame", true), (".debug_frame", false)] {
            let Some(section) = file.section_by_name(name) else {
                continue;
            };
            let plain = section.compressed_file_range();
            let Some((start, length)) = plain
                .ok()
                .filter(|range| range.format == CompressionFormat::None)
                .and_then(|_| section.file_range())
            else {
                continue;
            };
            let end = start.saturating_add(length);
            let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
                continue;
            };
            let table = Table {
                program: program.clone(),
                bytes: start..end,
                address: section.address(),
                address_size: if file.is_64() { 8 } else { 4 },
                for_exceptions,
            };
            let number = self.tables.len();
            let _ = match for_exceptions {
                true => table
                    .eh_frame()
                    .map(|section| table.list(&section, number, &mut self.functions)),
                false => table
                    .debug_frame()
                    .map(|section| table.list(&section, number, &mut self.functions)),
            };
            self.tables.push(table);
        }
    }
}

impl Table {
    fn bytes(&self) -> Option<&[u8]> {
        self.program.bytes().get(self.bytes.clone())
    }

    fn eh_frame(&self) -> Option<EhFrame<Bytes<'_>>> {
        let mut section = EhFrame::new(self.bytes()?, LittleEndian);
        section.set_address_size(self.address_size);
        Some(section)
    }

    fn debug_frame(&self) -> Option<DebugFrame<Bytes<'_>>> {
        let mut section = DebugFrame::new(self.bytes()?, LittleEndian);
        section.set_address_size(self.address_size);
        Some(section)
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address)
    }

    /// Lists the functions of a section, up to the first error.
    fn list<'d, S>(&self, section: &S, table: usize, functions: &mut Vec<Function>)
    where
        S: UnwindSection<Bytes<'d>>,
        S::Offset: UnwindOffset<usize>,
    {
        let bases = self.bases();
        let mut entries = section.entries(&bases);
        while functions.len() < MOST
            && let Ok(Some(entry)) = entries.next()
        {
            let CieOrFde::Fde(function) = entry else {
                continue;
            };
            let Ok(function) = function.parse(S::cie_from_offset) else {
                continue;
            };
            let start = function.initial_address().wrapping_add(self.program.offset);
            functions.push(Function {
                range: start..start.saturating_add(function.len()),
                table,
                offset: function.offset(),
            });
        }
    }

    fn rule<'d, S>(&self, section: &S, offset: usize, pc: u64) -> Option<FrameAddress>
    where
        S: UnwindSection<Bytes<'d>>,
        S::Offset: UnwindOffset<usize>,
    {
        let bases = self.bases();
        let function = section
            .fde_from_offset(&bases, S::Offset::from(offset), S::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let row = function
            .unwind_info_for_address(section, &bases, &mut context, pc)
            .ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some(FrameAddress {
                register: register.0,
                offset: *offset,
            }),
            CfaRule::Expression(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The expected rows are the output of readelf.
    #[test]
    fn frames_begin_where_other_tools_say() {
        let top = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let program = Elf::open(&top.join("testdata/virt-a57/program.elf")).unwrap();
        let frames = CallFrames::new([&program]);
        let sp = |offset| {
            Some(FrameAddress {
                register: 31,
                offset,
            })
        };
        for (pc, wanted) in [
            (0x4010_01a0, sp(0)),
            (0x4010_01a4, sp(16)),
            (0x4010_01e0, sp(16)),
            (0x4010_01e4, sp(0)),
            (0x4010_0297, sp(0)),
            (0x4010_0298, sp(64)),
            (0x4010_0347, sp(64)),
            (0x4010_0348, sp(0)),
            (0x4010_0000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(frames.at(pc), wanted, "{pc:#x}");
        }
        let moved = CallFrames::new([&program.moved(0x1000)]);
        assert_eq!(moved.at(0x4010_0298), None);
        assert_eq!(moved.at(0x4010_1298), sp(64));
        assert_eq!(CallFrames::default().at(0x4010_01a4), None);
    }
}
