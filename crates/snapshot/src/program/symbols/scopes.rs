//! Functions, the blocks in them, and the variables of blocks (DWARF 5, 3.3 to 3.5).

use super::Slice;
use super::debug_info::{CHAIN, DebugInfo, Die};
use gimli::{AttributeValue, Unit};
use std::ops::Range;

/// The deepest nesting of blocks in which variables are searched for.
const DEEPEST: usize = 64;
/// The most blocks of a function in which a variable is searched for.
const MOST_BLOCKS: usize = 1 << 12;
/// The most rows of a line table that are read to find the end of a prologue.
const MOST_ROWS: usize = 1 << 20;

/// A variable or parameter of a function, and the block that contains it.
pub(super) struct Local<'i> {
    pub die: Die<'i>,
    pub block: Die<'i>,
}

/// The blocks around an instruction.
pub(super) struct Blocks<'i> {
    pub function: Die<'i>,
    /// From the function itself to the innermost one.
    all: Vec<Die<'i>>,
}

fn is_block(die: &Die<'_>) -> bool {
    matches!(
        die.entry.tag(),
        gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block
    )
}

impl DebugInfo {
    /// Whether an instruction is in a function or block, by its address in the file.
    pub(super) fn contains(&self, die: &Die<'_>, pc: u64) -> bool {
        let Ok(mut ranges) = self.dwarf.die_ranges(die.unit, &die.entry) else {
            return false;
        };
        std::iter::from_fn(|| ranges.next().ok().flatten())
            .any(|range| (range.begin..range.end).contains(&pc))
    }

    /// Returns the units that contain an address in the file, with their indices.
    pub(super) fn units_at(&self, pc: u64) -> impl Iterator<Item = (usize, &Unit<Slice>)> {
        self.units().iter().enumerate().filter(move |(_, unit)| {
            let Ok(mut ranges) = self.dwarf.unit_ranges(unit) else {
                return false;
            };
            std::iter::from_fn(|| ranges.next().ok().flatten())
                .any(|range| (range.begin..range.end).contains(&pc))
        })
    }

    /// Returns the function that contains an address in memory.
    pub(super) fn function(&self, address: u64) -> Option<Die<'_>> {
        let pc = address.wrapping_sub(self.moved);
        self.units_at(pc).find_map(|(number, unit)| {
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                let die = Die {
                    number,
                    unit,
                    entry: entry.clone(),
                };
                if self.contains(&die, pc) {
                    return Some(die);
                }
            }
            None
        })
    }

    /// Returns the blocks around an instruction, by its address in memory.
    pub(super) fn blocks(&self, address: u64) -> Option<Blocks<'_>> {
        let function = self.function(address)?;
        let pc = address.wrapping_sub(self.moved);
        let mut all = vec![function.clone()];
        while all.len() < DEEPEST
            && let Some(last) = all.last()
            && let Some(inner) = self
                .members(last)
                .into_iter()
                .find(|die| is_block(die) && self.contains(die, pc))
        {
            all.push(inner);
        }
        Some(Blocks { function, all })
    }

    /// Returns what a block contains, also in blocks within it that have no addresses of their own.
    fn members<'i>(&'i self, block: &Die<'i>) -> Vec<Die<'i>> {
        let mut found = Vec::new();
        let mut open = vec![(block.clone(), 0)];
        let mut left = MOST_BLOCKS;
        while let Some((block, depth)) = open.pop() {
            for die in self.all_children(&block) {
                let is_transparent = die.entry.tag() == gimli::DW_TAG_lexical_block
                    && !die.entry.has_attr(gimli::DW_AT_low_pc)
                    && !die.entry.has_attr(gimli::DW_AT_ranges);
                if is_transparent && depth < DEEPEST && left > 0 {
                    left -= 1;
                    open.push((die, depth + 1));
                } else {
                    found.push(die);
                }
            }
        }
        found
    }

    /// Returns the variable with a name in a block itself. One that is in the block's source only has
    /// no place, but hides others.
    fn named<'i>(&'i self, block: &Die<'i>, name: &str) -> Option<Local<'i>> {
        let mut at = Some(block.clone());
        for round in 0..CHAIN {
            let Some(die) = at else { break };
            // In the origin of a copy, no block has addresses.
            let mut found = match round {
                0 => self.members(&die),
                _ => self.all_children(&die),
            };
            found.retain(|die| {
                let is_variable = matches!(
                    die.entry.tag(),
                    gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter
                );
                is_variable && self.name(die).as_deref() == Some(name)
            });
            let is_placed = |die: &Die<'_>| {
                [gimli::DW_AT_location, gimli::DW_AT_const_value]
                    .into_iter()
                    .any(|attribute| self.attribute(die, attribute).is_some())
            };
            let placed = found.iter().position(is_placed).unwrap_or(0);
            if placed < found.len() {
                return Some(Local {
                    die: found.swap_remove(placed),
                    block: block.clone(),
                });
            }
            let origin = die.entry.attr_value(gimli::DW_AT_abstract_origin);
            at = origin.and_then(|origin| self.referred(die.number, &origin));
        }
        None
    }

    /// Returns the innermost variable with a name that is visible in the source there: not beyond a
    /// function that is inlined.
    pub(super) fn visible<'i>(&'i self, blocks: &Blocks<'i>, name: &str) -> Option<Local<'i>> {
        for block in blocks.all.iter().rev() {
            if let Some(local) = self.named(block, name) {
                return Some(local);
            }
            if block.entry.tag() == gimli::DW_TAG_inlined_subroutine {
                break;
            }
        }
        None
    }

    /// Returns the variable with a name in the blocks around an inlined function, otherwise the only
    /// one in the whole function.
    pub(super) fn elsewhere<'i>(&'i self, blocks: &Blocks<'i>, name: &str) -> Option<Local<'i>> {
        let around = blocks.all.iter().rev();
        if let Some(local) = around.filter_map(|block| self.named(block, name)).next() {
            return Some(local);
        }
        let mut all = self.within(blocks, name);
        let only = all.pop()?;
        all.is_empty().then_some(only)
    }

    /// Returns the variables with a name in all blocks of a function.
    pub(super) fn within<'i>(&'i self, blocks: &Blocks<'i>, name: &str) -> Vec<Local<'i>> {
        let mut open = vec![blocks.function.clone()];
        let mut found = Vec::new();
        let mut left = MOST_BLOCKS;
        while let Some(block) = open.pop()
            && left > 0
        {
            left -= 1;
            found.extend(self.named(&block, name));
            let is_inner = |die: &Die<'_>| {
                is_block(die) && die.entry.tag() != gimli::DW_TAG_inlined_subroutine
            };
            open.extend(self.members(&block).into_iter().filter(is_inner));
        }
        found
    }

    /// Returns whether a variable is declared only: it is defined elsewhere.
    pub(super) fn is_declared(die: &Die<'_>) -> bool {
        matches!(
            die.entry.attr_value(gimli::DW_AT_declaration),
            Some(AttributeValue::Flag(true))
        )
    }

    /// Returns the prologue of a function, which sets its frame and stores its parameters: up to the
    /// row of the line table that says so, otherwise up to the second row (GDB manual, "Frames").
    pub(super) fn prologue(&self, function: &Die<'_>) -> Option<Range<u64>> {
        let mut ranges = self.dwarf.die_ranges(function.unit, &function.entry).ok()?;
        let range = ranges.next().ok()??;
        let mut rows = function.unit.line_program.clone()?.rows();
        let (mut count, mut second) = (0, None);
        let mut left = MOST_ROWS;
        while let Ok(Some((_, row))) = rows.next_row() {
            left = left.checked_sub(1)?;
            let address = row.address();
            if row.end_sequence() || !(range.begin..range.end).contains(&address) {
                continue;
            }
            if row.prologue_end() {
                return Some(range.begin..address);
            }
            if row.is_stmt() && (count > 0 || address == range.begin) {
                count += 1;
                if count == 2 {
                    second = Some(address);
                }
            }
        }
        Some(range.begin..second?)
    }
}

impl<'i> Blocks<'i> {
    /// Returns the innermost function, which may be inlined.
    pub(super) fn innermost_function(&self) -> &Die<'i> {
        let is_inlined = |die: &&Die<'_>| die.entry.tag() == gimli::DW_TAG_inlined_subroutine;
        self.all
            .iter()
            .rev()
            .find(is_inlined)
            .unwrap_or(&self.function)
    }
}
