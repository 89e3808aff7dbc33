//! Where variables are (DWARF 5, 2.5 and 2.6).

use super::Slice;
use super::debug_info::{DebugInfo, Die};
use gimli::AttributeValue;
use std::ops::Range;

/// Where a variable is at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the register with this DWARF number.
    Register(u16),
    /// In memory, from this address on.
    Memory(u64),
    /// Nowhere, but it has this value.
    Value(u64),
}

/// Registers and memory that the location of a variable depends on.
pub trait Machine {
    /// Returns the value of the register with a DWARF number.
    fn register(&mut self, number: u16) -> Option<u64>;
    /// Returns a number of some bytes in memory.
    fn memory(&mut self, address: u64, bytes: u8) -> Option<u64>;
    /// Returns the canonical frame address of the function.
    fn frame(&mut self) -> Option<u64>;
    /// Returns whether registers hold the frame as they do at another instruction of the function,
    /// by its address in memory.
    fn keeps_frame(&mut self, _since: u64) -> bool {
        false
    }
}

/// The instruction for which a variable is placed, by the addresses in the file.
#[derive(Clone, Copy)]
pub(in crate::program) struct Scene<'s, 'i> {
    /// The function that contains the instruction and the variable.
    pub function: Option<&'s Die<'i>>,
    /// The prologue of the function.
    pub prologue: Option<&'s Range<u64>>,
    pub pc: u64,
}

impl Scene<'_, '_> {
    /// No instruction, for variables outside of functions.
    pub(crate) const NONE: Self = Self {
        function: None,
        prologue: None,
        pc: 0,
    };
}

impl DebugInfo {
    /// Returns where a variable is at an instruction.
    pub(crate) fn place(
        &self,
        die: &Die<'_>,
        scene: Scene<'_, '_>,
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        if let Some((_, value)) = self.attribute(die, gimli::DW_AT_const_value) {
            let number = value.udata_value();
            return number
                .or_else(|| Some(value.sdata_value()?.cast_unsigned()))
                .map(Placement::Value);
        }
        let (unit, value) = self.attribute(die, gimli::DW_AT_location)?;
        // Such a place also counts where it is not filled yet.
        let is_everywhere = value.exprloc_value().is_some();
        let expression = self.expression(unit, value, scene.pc)?;
        let found = self.evaluate((unit, expression), None, scene, machine)?;
        if is_everywhere
            && let Placement::Memory(address) = found
            && scene
                .prologue
                .is_some_and(|prologue| prologue.contains(&scene.pc))
            // The caller has filled what is before the frame.
            && machine.frame().is_none_or(|frame| address < frame)
        {
            return None;
        }
        Some(found)
    }

    /// Returns the offset of a member that does not depend on the object.
    pub(super) fn offset(&self, unit: usize, value: &AttributeValue<Slice>) -> Option<u64> {
        if let Some(expression) = value.exprloc_value() {
            let found = self.evaluate((unit, expression), Some(0), Scene::NONE, &mut Nothing)?;
            return match found {
                Placement::Memory(offset) => Some(offset),
                _ => None,
            };
        }
        value.udata_value()
    }

    /// Returns the address of a virtual base class of the object at an address.
    pub(super) fn base_class(
        &self,
        die: &Die<'_>,
        object: u64,
        machine: &mut dyn Machine,
    ) -> Option<u64> {
        let (unit, value) = self.attribute(die, gimli::DW_AT_data_member_location)?;
        let expression = value.exprloc_value()?;
        match self.evaluate((unit, expression), Some(object), Scene::NONE, machine)? {
            Placement::Memory(address) => Some(address),
            _ => None,
        }
    }

    /// Returns what the frame base of a function is.
    fn frame_base(&self, scene: Scene<'_, '_>, machine: &mut dyn Machine) -> Option<u64> {
        let (unit, value) = self.attribute(scene.function?, gimli::DW_AT_frame_base)?;
        let is_everywhere = value.exprloc_value().is_some();
        let expression = self.expression(unit, value, scene.pc)?;
        let encoding = self.units()[unit].encoding();
        let mut operations = expression.clone().operations(encoding);
        let is_exact =
            matches!(operations.next(), Ok(Some(gimli::Operation::CallFrameCFA))) || !is_everywhere;
        // A register that is not the frame's in the prologue, nor in the epilogue.
        if !is_exact && !machine.keeps_frame(scene.prologue?.end.wrapping_add(self.moved)) {
            return None;
        }
        let scene = Scene {
            function: None,
            ..scene
        };
        match self.evaluate((unit, expression), None, scene, machine)? {
            Placement::Register(number) => machine.register(number),
            Placement::Memory(address) | Placement::Value(address) => Some(address),
        }
    }

    /// Returns the expression of a location at an instruction.
    fn expression(
        &self,
        unit: usize,
        value: AttributeValue<Slice>,
        pc: u64,
    ) -> Option<gimli::Expression<Slice>> {
        if let Some(expression) = value.exprloc_value() {
            return Some(expression);
        }
        let mut list = self
            .dwarf
            .attr_locations(&self.units()[unit], value)
            .ok()??;
        while let Ok(Some(entry)) = list.next() {
            if (entry.range.begin..entry.range.end).contains(&pc) {
                return Some(entry.data);
            }
        }
        None
    }

    fn evaluate(
        &self,
        (unit, expression): (usize, gimli::Expression<Slice>),
        initial: Option<u64>,
        scene: Scene<'_, '_>,
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        use gimli::{EvaluationResult, Location, Value};
        /// The most operations of an expression.
        const MOST: u32 = 1000;
        /// No type: a number of the size of an address.
        const GENERIC: gimli::UnitOffset = gimli::UnitOffset(0);
        let encoding = self.units()[unit].encoding();
        let mask = u64::MAX >> (64 - 8 * u32::from(encoding.address_size).clamp(1, 8));
        let mut evaluation = expression.evaluation(encoding);
        evaluation.set_max_iterations(MOST);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            let next = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister {
                    register,
                    base_type: GENERIC,
                } => {
                    let value = machine.register(register.0)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory {
                    address,
                    size,
                    space: None,
                    base_type: GENERIC,
                } => {
                    let value = machine.memory(address, size)?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    evaluation.resume_with_call_frame_cfa(machine.frame()?)
                }
                EvaluationResult::RequiresFrameBase => {
                    let base = self.frame_base(scene, machine)?;
                    evaluation.resume_with_frame_base(base)
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address.wrapping_add(self.moved))
                }
                EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                    let address = self.dwarf.address(&self.units()[unit], index).ok()?;
                    let moved = if relocate { self.moved } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(moved))
                }
                _ => return None,
            };
            state = next.ok()?;
        }
        let [piece] = evaluation.as_result() else {
            return None;
        };
        // The rest of it is nowhere.
        if piece.bit_offset.is_some() || piece.size_in_bits.is_some() {
            return None;
        }
        match &piece.location {
            Location::Register { register } => Some(Placement::Register(register.0)),
            Location::Address { address } => Some(Placement::Memory(*address)),
            Location::Value { value } => value.to_u64(mask).ok().map(Placement::Value),
            _ => None,
        }
    }
}

/// No registers or memory: for variables with static storage, and members.
pub(in crate::program) struct Nothing;

impl Machine for Nothing {
    fn register(&mut self, _number: u16) -> Option<u64> {
        None
    }

    fn memory(&mut self, _address: u64, _bytes: u8) -> Option<u64> {
        None
    }

    fn frame(&mut self) -> Option<u64> {
        None
    }
}
