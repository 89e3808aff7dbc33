//! What the kernel writes into a module's code when it loads the module or later.
//!
//! In the file, these instructions are as the compiler wrote them; it is not known which ones ran.

use super::code::{Code, Word};
use super::{Linker, flags, is_straight};
use armsnap_arch::quantity::Isa;
use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, SectionIndex};
use std::collections::BTreeMap;

/// A64 `NOP`, `BTI` with its variants, `PACIASP` and `AUTIASP` (Arm ARM DDI 0487, C6.2).
const NOP: u32 = 0xd503_201f;
const BTI: u32 = 0xd503_241f;
const BTI_VARIANTS: u32 = 0xc0;
const PACIASP: u32 = 0xd503_233f;
const AUTIASP: u32 = 0xd503_23bf;
/// The maximum number of instructions for which a compiler leaves space at the start of a function;
/// Linux has four.
const MAX_NOPS: u64 = 8;
/// The number of these that are inside the function (arch/arm64/Makefile:
/// `-fpatchable-function-entry=2`, or 4 with 2 before it).
const IN_FUNCTION: usize = 2;
/// The size of `struct alt_instr` (Linux, arch/arm64/include/asm/alternative.h).
const ALTERNATIVE: usize = 12;

/// Instructions that the kernel may replace.
#[derive(Debug, Default)]
pub(super) struct Patched {
    /// By section: offset, length, and what is known about the instructions.
    places: BTreeMap<usize, Vec<(u64, u64, PatchKind)>>,
    /// Whether the function tracer may call from the code.
    pub traced: bool,
    /// Whether signing of return addresses may be replaced.
    signing: bool,
}

/// What the kernel writes at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchKind {
    /// Unknown instructions.
    Any,
    /// Other instructions that do not change the flow, provided that those in the file do not
    /// change it.
    Alike,
    /// Space for the function tracer: without the tracer, instructions that do not change the flow.
    Tracer,
    /// A call of the function tracer, which the kernel removes.
    Call,
}

impl Patched {
    /// Reads the sections in which a module lists them.
    pub(super) fn of(linker: &Linker<'_, '_>) -> Self {
        let mut out = Self::default();
        let is_64bit = linker.module.file.is_64();
        out.alternatives(linker);
        // `struct jump_entry` starts with the code address. Its members are three relative ones of
        // 4, 4 and 8 bytes, or three absolute words (include/linux/jump_label.h).
        let entry = if is_64bit { 16 } else { 12 };
        for (at, place) in linker.references("__jump_table") {
            if at % entry == 0 {
                out.add(place, 4, PatchKind::Any);
            }
        }
        for (_, place) in linker.references("__patchable_function_entries") {
            out.add(place, 4, PatchKind::Tracer);
            out.traced = true;
        }
        for (_, place) in linker.references("__mcount_loc") {
            out.add(place, 4, PatchKind::Call);
            out.traced = true;
        }
        // arch/arm/include/asm/assembler.h: ALT_UP; arch/arm/include/asm/memory.h: __pv_stub.
        for (at, place) in linker.references(".alt.smp.init") {
            if at % 8 == 0 {
                out.add(place, 4, PatchKind::Any);
            }
        }
        for (_, place) in linker.references(".pv_table") {
            out.add(place, 4, PatchKind::Alike);
        }
        // arch/arm64/kernel/pi/patch-scs.c: a shadow call stack is used where signing is not
        // available.
        out.signing = linker
            .module
            .file
            .section_by_name(".init.eh_frame")
            .is_some();
        out
    }

    fn add(&mut self, (section, offset): (SectionIndex, u64), length: u64, what: PatchKind) {
        let places = self.places.entry(section.0).or_default();
        places.push((offset, length, what));
    }

    /// Adds alternatives that depend on the features of the processor.
    fn alternatives(&mut self, linker: &Linker<'_, '_>) {
        let file = &linker.module.file;
        let Some(section) = file.section_by_name(".altinstructions") else {
            return;
        };
        let references = linker.references(".altinstructions");
        let entries = section.data().unwrap_or(&[]).as_chunks::<ALTERNATIVE>().0;
        for (entry, at) in entries.iter().zip((0_u64..).step_by(ALTERNATIVE)) {
            let Some(place) = references.get(&at) else {
                continue;
            };
            let (length, other) = (u64::from(entry[10]), u64::from(entry[11]));
            let straight = references.get(&(at + 4)).is_some_and(|(section, offset)| {
                let Ok(section) = file.section_by_index(*section) else {
                    return false;
                };
                let code = flags(&section) & SHF_EXECINSTR.0 != 0;
                let bytes = section.data().unwrap_or(&[]);
                let from = usize::try_from(*offset).unwrap_or(usize::MAX);
                let bytes = bytes
                    .get(from..)
                    .and_then(|rest| rest.get(..other as usize));
                let words = bytes.map(|bytes| bytes.as_chunks::<4>().0);
                // Replacements of length 0 are written by a function of the kernel.
                let all = words.filter(|words| !words.is_empty());
                let straight = |word: &[u8; 4]| is_straight(Isa::A64, u32::from_le_bytes(*word));
                code && all.is_some_and(|words| words.iter().all(straight))
            });
            // An empty replacement means one by a function of the kernel, of any length.
            let what = if straight {
                PatchKind::Alike
            } else {
                PatchKind::Any
            };
            self.add(*place, length.max(4), what);
        }
    }

    /// Marks the unknown instructions of a section.
    pub(super) fn mark(&self, section: SectionIndex, code: &mut Code<'_>) {
        for &(offset, length, what) in self.places.get(&section.0).into_iter().flatten() {
            match what {
                PatchKind::Any => code.mark(offset, length, Word::Unknown),
                PatchKind::Alike => {
                    let mut words = (offset..offset.saturating_add(length)).step_by(4);
                    let straight = words.all(|at| code.is_straight(at));
                    let what = if straight {
                        Word::Straight
                    } else {
                        Word::Unknown
                    };
                    code.mark(offset, length, what);
                }
                PatchKind::Call => code.mark(offset, length, Word::Straight),
                PatchKind::Tracer => {
                    let mut nops = Vec::new();
                    for at in (offset..).step_by(4).take(MAX_NOPS as usize) {
                        match code.word(at) {
                            Some(NOP) => nops.push(at),
                            Some(word) if word & !BTI_VARIANTS == BTI => {}
                            _ => break,
                        }
                    }
                    // Those before the last two are before the function, where the kernel stores an
                    // address.
                    let before = nops.len().saturating_sub(IN_FUNCTION);
                    for (number, at) in nops.into_iter().enumerate() {
                        let what = match number < before {
                            true => Word::Unknown,
                            false => Word::Straight,
                        };
                        code.mark(at, 4, what);
                    }
                }
            }
        }
        if self.signing {
            for at in (0..code.bytes.len() as u64).step_by(4) {
                if matches!(code.word(at), Some(PACIASP | AUTIASP)) {
                    code.mark(at, 4, Word::Straight);
                }
            }
        }
    }
}
