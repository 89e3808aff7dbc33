//! The image that a machine runs: an ELF file, or a Linux kernel.

use super::kernel::Kernel;
use crate::record::Error;
use crate::record::guest_program::Program;
use crate::record::until::Until;
use armsnap_arch::quantity::Isa;
use armsnap_snapshot::mapped::{self, Mapped};
use object::{Object, ObjectSegment};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// An ELF image, or a Linux kernel.
#[derive(Debug)]
pub(super) struct Image {
    /// The contents of the file.
    pub bytes: Mapped,
    /// The kernel, if it is one.
    pub kernel: Option<Kernel>,
    program: Option<Program>,
    /// The memory it occupies.
    pub segments: Vec<Range<u64>>,
    calls: Vec<(u64, Isa)>,
}

/// The maximum number of semihosting calls with breakpoints.
const MAX_CALLS: usize = 512;

impl Image {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |error: String| Error::of_file(path, error);
        let bytes = mapped::map(path).map_err(|error| failed(error.to_string()))?;
        if let Some(kernel) = Kernel::read(&bytes).map_err(failed)? {
            return Ok(Self {
                bytes,
                kernel: Some(kernel),
                program: None,
                segments: Vec::new(),
                calls: Vec::new(),
            });
        }
        let (program, bytes) = Program::open(path).map_err(failed)?;
        let file = object::File::parse(&*bytes).map_err(|error| failed(error.to_string()))?;
        let mut segments = Vec::new();
        let mut calls = Vec::new();
        for segment in file.segments() {
            let end = segment.address().saturating_add(segment.size());
            segments.push(segment.address()..end);
            let executable = matches!(segment.flags(),
                object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0);
            if executable {
                let code = segment.data().unwrap_or_default();
                semihosting(&program, segment.address(), code, &mut calls);
            }
        }
        calls.truncate(MAX_CALLS);
        Ok(Self {
            bytes,
            kernel: None,
            program: Some(program),
            segments,
            calls,
        })
    }

    pub fn is_64bit(&self) -> bool {
        let elf = self.program.as_ref();
        elf.is_none_or(|program| program.is_64bit)
    }

    pub fn emulator(&self) -> &'static str {
        if self.is_64bit() {
            "qemu-system-aarch64"
        } else {
            "qemu-system-arm"
        }
    }

    /// Returns the addresses that match `until`. Fails with the reason.
    pub fn until(&self, until: &Until) -> Result<Vec<u64>, String> {
        let found = match until.number() {
            Some(address) => BTreeSet::from([address]),
            None => match &self.program {
                Some(program) => until.addresses(program, &self.bytes)?,
                None => BTreeSet::new(),
            },
        };
        let bit = u64::from(!self.is_64bit());
        Ok(found.into_iter().map(|address| address & !bit).collect())
    }

    /// Returns the size in bytes of a breakpoint at an address.
    pub fn breakpoint_kind(&self, address: u64) -> u8 {
        match self
            .program
            .as_ref()
            .and_then(|program| program.isa(address))
        {
            None if self.is_64bit() => 4,
            Some(Isa::T32) => 2,
            None if !address.is_multiple_of(4) => 2,
            _ => 4,
        }
    }

    /// Returns the instructions that may be semihosting calls.
    pub fn calls(&self) -> &[(u64, Isa)] {
        &self.calls
    }
}

/// Finds semihosting calls (Semihosting for AArch32 and AArch64, "The semihosting interface").
/// Data that looks like a call is harmless.
fn semihosting(program: &Program, address: u64, code: &[u8], calls: &mut Vec<(u64, Isa)>) {
    let mut add = |offset: usize, isa: Isa| {
        let at = address.wrapping_add(offset as u64);
        if program.isa(at).is_none_or(|known| known == isa) {
            calls.push((at, isa));
        }
    };
    for (index, word) in code.chunks_exact(4).enumerate() {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if program.is_64bit {
            // HLT #0xf000
            if word == 0xd45e_0000 {
                add(4 * index, Isa::A64);
            }
        } else if word & 0x0fff_ffff == 0x0f12_3456 || word & 0x0fff_ffff == 0x010f_0070 {
            // SVC #0x123456, HLT #0xf000
            add(4 * index, Isa::A32);
        }
    }
    if !program.is_64bit {
        for (index, half) in code.chunks_exact(2).enumerate() {
            // SVC #0xab, HLT #0x3c, BKPT #0xab
            if matches!(
                u16::from_le_bytes([half[0], half[1]]),
                0xdfab | 0xbabc | 0xbeab
            ) {
                add(2 * index, Isa::T32);
            }
        }
    }
}
