//! The known instructions of a section.

use super::{CodePart, ModuleFile, is_straight};
use crate::program::instruction_sets::Contents;
use armsnap_arch::quantity::Isa;
use object::{Object, ObjectSection, ObjectSymbol};
use std::ops::Range;

/// What is known about a halfword of code, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// Its bytes are known.
    Known,
    /// It is known to be part of an instruction that does not change the flow.
    Straight,
    /// Nothing is known.
    Unknown,
}

/// The code of a section.
#[derive(Debug)]
pub(super) struct Code<'c> {
    /// The address of the section.
    pub base: u64,
    /// Its bytes, without relocations.
    pub bytes: &'c [u8],
    words: Vec<Word>,
    /// The contents from each offset up to the next one.
    sets: Vec<(u64, Contents)>,
    usual: Isa,
}

impl<'c> Code<'c> {
    pub(super) fn new(
        module: &ModuleFile<'_>,
        section: &object::Section<'_, '_>,
        base: u64,
        bytes: &'c [u8],
    ) -> Self {
        let usual = if module.file.is_64() {
            Isa::A64
        } else {
            Isa::A32
        };
        let own = module.file.symbols();
        let own = own.filter(|symbol| symbol.section_index() == Some(section.index()));
        let marks = own.filter_map(|symbol| {
            let contents = Contents::marked_by(symbol.name_bytes().ok()?)?;
            Some((symbol.address(), contents))
        });
        let mut sets: Vec<(u64, Contents)> = marks.collect();
        sets.sort_by_key(|set| set.0);
        Self {
            base,
            bytes,
            words: vec![Word::Known; bytes.len().div_ceil(2)],
            sets,
            usual,
        }
    }

    /// Returns the instruction set at an offset; `None` for data.
    fn isa(&self, offset: u64) -> Option<Isa> {
        let after = self.sets.partition_point(|set| set.0 <= offset);
        after
            .checked_sub(1)
            .map_or(Some(self.usual), |last| self.sets[last].1.isa())
    }

    /// Returns the word at an offset.
    pub(super) fn word(&self, offset: u64) -> Option<u32> {
        let at = usize::try_from(offset).ok()?;
        Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Returns whether the file has, at an offset, an instruction that is neither a branch nor a
    /// barrier.
    pub(super) fn is_straight(&self, offset: u64) -> bool {
        let word = self.word(offset).filter(|_| offset.is_multiple_of(4));
        let set = self.isa(offset);
        set.zip(word)
            .is_some_and(|(isa, word)| is_straight(isa, word))
    }

    /// Marks bytes, unless even less is known about them.
    pub(super) fn mark(&mut self, offset: u64, length: u64, what: Word) {
        let last = self.words.len() as u64;
        let from = (offset / 2).min(last);
        let to = offset.saturating_add(length).div_ceil(2).min(last);
        for word in &mut self.words[from as usize..to as usize] {
            *word = what.max(*word);
        }
    }

    /// Adds the known code, and the address ranges of straight instructions. The section begins at
    /// `start` in the file.
    pub(super) fn parts(
        &self,
        start: usize,
        code: &mut Vec<CodePart>,
        straight: &mut Vec<Range<u64>>,
    ) {
        let mut from = 0;
        for run in self.words.chunk_by(|a, b| a == b) {
            let offset = from * 2;
            let end = ((from + run.len()) * 2).min(self.bytes.len());
            from += run.len();
            let address = self.base.wrapping_add(offset as u64);
            let last = self.base.wrapping_add(end as u64);
            match run[0] {
                Word::Known => code.push(CodePart {
                    address,
                    file: start + offset..start + end,
                }),
                Word::Straight if address < last => straight.push(address..last),
                _ => {}
            }
        }
    }
}
