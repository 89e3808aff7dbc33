//! Where variables are (DWARF 5, 2.5 and 2.6).

use super::Slice;
use super::debug_info::{DebugInfo, Die};
use gimli::AttributeValue;

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
}

impl DebugInfo {
    /// Returns where a variable is at an instruction of a function, by the addresses in the file.
    pub(crate) fn place(
        &self,
        die: &Die<'_>,
        (function, pc): (Option<&Die<'_>>, u64),
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        if let Some((_, value)) = self.attribute(die, gimli::DW_AT_const_value) {
            let number = value.udata_value();
            return number
                .or_else(|| Some(value.sdata_value()?.cast_unsigned()))
                .map(Placement::Value);
        }
        let (unit, value) = self.attribute(die, gimli::DW_AT_location)?;
        let expression = self.expression(unit, value, pc)?;
        self.evaluate(unit, expression, (function, pc), machine)
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
        unit: usize,
        expression: gimli::Expression<Slice>,
        (function, pc): (Option<&Die<'_>>, u64),
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        use gimli::{EvaluationResult, Location, Value};
        /// The most operations of an expression.
        const MOST: u32 = 1000;
        let encoding = self.units()[unit].encoding();
        let mask = u64::MAX >> (64 - 8 * u32::from(encoding.address_size).clamp(1, 8));
        let mut evaluation = expression.evaluation(encoding);
        evaluation.set_max_iterations(MOST);
        let mut state = evaluation.evaluate().ok()?;
        loop {
            let next = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = machine.register(register.0)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let value = machine.memory(address, size)?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    evaluation.resume_with_call_frame_cfa(machine.frame()?)
                }
                EvaluationResult::RequiresFrameBase => {
                    let function = function?;
                    let (unit, value) = self.attribute(function, gimli::DW_AT_frame_base)?;
                    let expression = self.expression(unit, value, pc)?;
                    let base = match self.evaluate(unit, expression, (None, pc), machine)? {
                        Placement::Register(number) => machine.register(number)?,
                        Placement::Memory(address) | Placement::Value(address) => address,
                    };
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
        if piece.bit_offset.is_some_and(|offset| offset != 0) {
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
