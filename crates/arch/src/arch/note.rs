//! Notes on the registers of a core.

/// What was combined or left out while the registers of a core were read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterNote {
    /// A register is larger than any Arm register.
    #[error("{register} has {bytes} bytes, more than any Arm register: left out")]
    TooLarge {
        /// Its name as written.
        register: String,
        /// Its size.
        bytes: usize,
    },
    /// A register occurs twice under one name with different values.
    #[error("{register} is given twice with different values: the first is shown")]
    Twice {
        /// Its name as written.
        register: String,
    },
    /// A register of the core occurs under several names with different values.
    #[error("{register} is given under several names with different values: {used} is shown")]
    Views {
        /// The register.
        register: String,
        /// The name whose value is used.
        used: String,
    },
    /// CPSR of AArch64 is combined from its parts.
    #[error("cpsr {value:#010x} is combined from CurrentEL, DAIF, NZCV and SPSel")]
    Cpsr {
        /// Its value.
        value: u64,
    },
    /// SP of AArch64 is the copy that CPSR selects.
    #[error("sp is SP_EL{level}, as cpsr selects it")]
    StackOfLevel {
        /// The exception level of the copy.
        level: u8,
    },
    /// xPSR of M-profile is combined from its parts.
    #[error("xpsr is combined from APSR, IPSR and EPSR")]
    Xpsr,
    /// SP of M-profile is the stack in use.
    #[error("sp is {register}, the stack in use")]
    StackInUse {
        /// The register of that stack: `msp` or `psp`.
        register: &'static str,
    },
    /// MSP of M-profile is SP.
    #[error("msp is sp: exceptions are handled on the main stack")]
    MainStack,
    /// LR of M-profile is shown under another name.
    #[error("pc is an EXC_RETURN code and lr is not, which makes GDB exit: lr is shown as {name}")]
    LinkRegister {
        /// The name.
        name: &'static str,
    },
    /// MSP and PSP of M-profile are those of the security state whose stack is in use.
    #[error("msp and psp are those of the {state} state, to which the stack in use belongs")]
    StacksOfState {
        /// The state: `secure` or `non-secure`.
        state: &'static str,
    },
}
