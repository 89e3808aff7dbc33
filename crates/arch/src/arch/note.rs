//! Notes on the registers of a core.

use std::fmt;

/// What was combined or left out while the registers of a core were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterNote {
    /// A register is larger than any Arm register, and was left out.
    TooLarge {
        /// Its name as written.
        register: String,
        /// Its size.
        bytes: usize,
    },
    /// A register occurs twice under one name with different values; the first is used.
    Twice {
        /// Its name as written.
        register: String,
    },
    /// A register of the core occurs under several names with different values.
    Views {
        /// The register.
        register: String,
        /// The name whose value is used.
        used: String,
    },
    /// CPSR of AArch64 is combined from its parts.
    Cpsr {
        /// Its value.
        value: u64,
    },
    /// SP of AArch64 is the copy that CPSR selects.
    StackOfLevel {
        /// The exception level of the copy.
        level: u8,
    },
    /// xPSR of M-profile is combined from its parts.
    Xpsr,
    /// SP of M-profile is the stack in use.
    StackInUse {
        /// The register of that stack: `msp` or `psp`.
        register: &'static str,
    },
    /// MSP of M-profile is SP: the core is handling an exception.
    MainStack,
    /// LR of M-profile is shown under another name.
    LinkRegister {
        /// The name.
        name: &'static str,
    },
    /// MSP and PSP of M-profile are those of the security state whose stack is in use.
    StacksOfState {
        /// The state: `secure` or `non-secure`.
        state: &'static str,
    },
}

impl fmt::Display for RegisterNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { register, bytes } => write!(
                f,
                "{register} has {bytes} bytes, more than any Arm register: left out"
            ),
            Self::Twice { register } => write!(
                f,
                "{register} is given twice with different values: the first is shown"
            ),
            Self::Views { register, used } => write!(
                f,
                "{register} is given under several names with different values: {used} is shown"
            ),
            Self::Cpsr { value } => write!(
                f,
                "cpsr {value:#010x} is combined from CurrentEL, DAIF, NZCV and SPSel"
            ),
            Self::StackOfLevel { level } => {
                write!(f, "sp is SP_EL{level}, as cpsr selects it")
            }
            Self::Xpsr => f.write_str("xpsr is combined from APSR, IPSR and EPSR"),
            Self::StackInUse { register } => write!(f, "sp is {register}, the stack in use"),
            Self::MainStack => f.write_str("msp is sp: exceptions are handled on the main stack"),
            Self::LinkRegister { name } => write!(
                f,
                "pc is an EXC_RETURN code and lr is not, which makes GDB exit: lr is shown as {name}"
            ),
            Self::StacksOfState { state } => write!(
                f,
                "msp and psp are those of the {state} state, to which the stack in use belongs"
            ),
        }
    }
}
