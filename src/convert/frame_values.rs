//! What trace reports about an executed instruction besides its address, as values and as the trace
//! state variables of a trace frame.

use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
use armsnap_trace::element::Context;
use std::ops::{Index, IndexMut};

/// The names of the variables. Their numbers are 1 and up, in this order.
pub const VARIABLES: [&str; 14] = [
    "cycles",
    "timestamp",
    "context_id",
    "vmid",
    "el",
    "exception",
    "core",
    "offset",
    "thumb",
    "security",
    "line",
    "gap",
    "exception_return",
    "taken",
];

/// A trace state variable, an index of [`VARIABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// Cycles counted.
    Cycles,
    /// The last timestamp.
    Timestamp,
    /// Context identifier.
    ContextId,
    /// Virtual machine identifier.
    Vmid,
    /// Exception level.
    El,
    /// Number of an exception.
    Exception,
    /// The core's index in the device list.
    Core,
    /// Offset in the trace buffer.
    Offset,
    /// AArch32: T32.
    Thumb,
    /// Security state.
    Security,
    /// Start of the straight line.
    Line,
    /// Execution before this instruction is unknown.
    Gap,
    /// Where an exception returns to.
    ExceptionReturn,
    /// Whether a waypoint was taken.
    Taken,
}

impl Variable {
    /// Its number in a trace file.
    pub const fn number(self) -> i32 {
        self as i32 + 1
    }
}

/// The variables of a trace frame that have a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variables(pub [Option<i64>; VARIABLES.len()]);

impl Index<Variable> for Variables {
    type Output = Option<i64>;

    fn index(&self, variable: Variable) -> &Option<i64> {
        &self.0[variable as usize]
    }
}

impl IndexMut<Variable> for Variables {
    fn index_mut(&mut self, variable: Variable) -> &mut Option<i64> {
        &mut self.0[variable as usize]
    }
}

/// Values reported for an executed instruction. `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameValues {
    /// The start of the straight line that ends with it. If present, only this line was executed
    /// since the previous reported instruction, unless there is a gap.
    pub line: Option<Address>,
    /// Whether execution before it is unknown.
    pub gap: bool,
    /// The exception taken since the previous reported instruction, as numbered in the trace.
    pub exception: Option<u16>,
    /// The preferred return address of that exception, or the address reached if the trace does not
    /// contain it (ETMv3).
    pub exception_return: Option<Address>,
    /// If execution after this waypoint is unknown: whether it was taken.
    pub taken: Option<bool>,
    /// Cycles counted up to it.
    pub cycles: Option<u64>,
    /// The last timestamp before it.
    pub timestamp: Option<u64>,
    /// The core's state, except for the instruction set and register width.
    pub state: Context,
}

impl FrameValues {
    /// Sets the core's state; returns whether it changed.
    pub fn set_state(&mut self, context: &Context) -> bool {
        let state = Context {
            isa: Isa::default(),
            is_64bit: None,
            ..*context
        };
        state != std::mem::replace(&mut self.state, state)
    }

    /// The values as variables.
    pub fn variables(&self) -> Variables {
        let number = |value: Option<u64>| value.map(u64::cast_signed);
        let address = |address: Option<Address>| address.map(|address| address.0.cast_signed());
        let mut values = Variables::default();
        values[Variable::Line] = address(self.line);
        values[Variable::Gap] = self.gap.then_some(1);
        values[Variable::Exception] = self.exception.map(i64::from);
        values[Variable::ExceptionReturn] = address(self.exception_return);
        values[Variable::Taken] = self.taken.map(i64::from);
        values[Variable::Cycles] = number(self.cycles);
        values[Variable::Timestamp] = number(self.timestamp);
        values[Variable::ContextId] = self.state.context_id.map(i64::from);
        values[Variable::Vmid] = self.state.vmid.map(i64::from);
        values[Variable::El] = self.state.el.map(|level| i64::from(level.0));
        values[Variable::Security] = self.state.security.map(|security| match security {
            Security::NonSecure => 0,
            Security::Secure => 1,
            Security::Realm => 2,
            Security::Root => 3,
        });
        values
    }

    /// Reads the values from variables.
    pub fn from_variables(values: &Variables) -> Self {
        let word = |of: Variable| values[of].and_then(|value| u32::try_from(value).ok());
        let number = |of: Variable| values[of].map(i64::cast_unsigned);
        Self {
            line: number(Variable::Line).map(Address),
            gap: values[Variable::Gap].is_some_and(|gap| gap != 0),
            exception: word(Variable::Exception).and_then(|number| u16::try_from(number).ok()),
            exception_return: number(Variable::ExceptionReturn).map(Address),
            taken: values[Variable::Taken].map(|taken| taken != 0),
            cycles: number(Variable::Cycles),
            timestamp: number(Variable::Timestamp),
            state: Context {
                context_id: word(Variable::ContextId),
                vmid: word(Variable::Vmid),
                el: word(Variable::El).map(|el| ExceptionLevel(el as u8 & 3)),
                security: match values[Variable::Security] {
                    Some(0) => Some(Security::NonSecure),
                    Some(1) => Some(Security::Secure),
                    Some(2) => Some(Security::Realm),
                    Some(3) => Some(Security::Root),
                    _ => None,
                },
                ..Context::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_preserve_all_values() {
        assert_eq!(VARIABLES[Variable::Taken as usize], "taken");
        assert_eq!(VARIABLES[Variable::Offset as usize], "offset");
        assert_eq!(Variable::Core.number(), 7);
        let all = FrameValues {
            line: Some(Address(u64::MAX)),
            gap: true,
            exception: Some(14),
            exception_return: Some(Address(0x8000)),
            taken: Some(false),
            cycles: Some(u64::MAX),
            timestamp: Some(1 << 63),
            state: Context {
                context_id: Some(u32::MAX),
                vmid: Some(3),
                el: Some(ExceptionLevel(2)),
                security: Some(Security::Realm),
                ..Context::default()
            },
        };
        assert_eq!(FrameValues::from_variables(&all.variables()), all);
        let count = all.variables().0.iter().flatten().count();
        assert_eq!(
            count,
            VARIABLES.len() - 3,
            "core, offset and thumb are not set"
        );
        assert_eq!(
            FrameValues::from_variables(&Variables::default()),
            FrameValues::default()
        );
        assert_eq!(FrameValues::default().variables(), Variables::default());
    }

    #[test]
    fn the_instruction_set_does_not_change_the_state() {
        let context = |isa, el| Context {
            isa,
            el: Some(ExceptionLevel(el)),
            is_64bit: Some(isa == Isa::A64),
            ..Context::default()
        };
        let mut values = FrameValues::default();
        assert!(values.set_state(&context(Isa::A32, 0)));
        assert!(!values.set_state(&context(Isa::T32, 0)));
        assert!(values.set_state(&context(Isa::T32, 1)));
    }
}
