//! Fields that ETMv3 (ARM IHI 0014Q) and PFT (ARM IHI 0035B) share in ETMCR, ETMCCER, ETMIDR and
//! ETMTRACEIDR. The versions that introduced them differ.

use super::{Row, common, rule, switch, table};

/// The tables of a protocol.
pub(super) struct Tables {
    pub control: &'static [Row],
    pub configuration_extension: &'static [Row],
    pub id: &'static [Row],
}

impl Tables {
    /// The table of a register.
    pub(super) fn rows(&self, name: &str) -> Option<&'static [Row]> {
        Some(match name {
            "ETMCR" => self.control,
            "ETMCCER" => self.configuration_extension,
            "ETMIDR" => self.id,
            "ETMTRACEIDR" => TRACE_ID,
            _ => return None,
        })
    }
}

// ETMCR (IHI 0014Q table 3.5, IHI 0035B table 3.17).
pub(super) const VMID: Row = switch(30, "VMID trace", "off", "VMIDs are traced");
pub(super) const TIMESTAMP: Row = switch(28, "timestamp", "off", "timestamps are traced");
pub(super) const PROCESSOR: Row = rule(27, 25, "processor select", |value| {
    format!("processor {value}").into()
});
pub(super) const INSTRUMENTATION_ACCESS: Row = switch(
    24,
    "instrumentation resources access",
    "privileged and user mode",
    "privileged modes only",
);
pub(super) const SOFTWARE_WRITES: Row = switch(
    23,
    "software writes disabled",
    "off",
    "software cannot write",
);
pub(super) const DEBUGGER_WRITES: Row = switch(
    22,
    "debugger writes disabled",
    "off",
    "a debugger cannot write",
);
pub(super) const CONTEXT_ID_SIZE: Row = table(
    15,
    14,
    "context ID size",
    &[
        "not traced",
        "8 bits are traced",
        "16 bits are traced",
        "32 bits are traced",
    ],
);
pub(super) const CYCLE_ACCURATE: Row = switch(
    12,
    "cycle-accurate tracing",
    "off",
    "cycle counts are traced",
);
pub(super) const DEBUG_REQUEST: Row = switch(
    9,
    "debug request",
    "off",
    "the trigger event halts the processor",
);

// ETMCCER (IHI 0014Q table 3.52, IHI 0035B table 3.45).
pub(super) const TIMESTAMP_SIZE: Row = switch(29, "timestamp size", "48 bits", "64 bits");
pub(super) const TIMESTAMP_ENCODING: Row =
    switch(28, "timestamp encoding", "Gray code", "natural binary");
pub(super) const REDUCED_COUNTER: Row = switch(
    27,
    "reduced function counter",
    "none",
    "counter 1 is reduced",
);
pub(super) const VIRTUALIZATION: Row = switch(
    26,
    "Virtualization Extensions",
    "not implemented",
    "implemented",
);
pub(super) const TIMESTAMPING: Row = switch(22, "timestamping", "not implemented", "implemented");
pub(super) const INSTRUMENTATION: Row = rule(15, 13, "instrumentation resources", common::number);
pub(super) const READABLE: Row = switch(11, "registers readable", "some", "all");
pub(super) const EXTERNAL_INPUTS: Row = rule(10, 3, "extended external inputs", common::number);
pub(super) const EXTERNAL_INPUT_SELECTORS: Row =
    rule(2, 0, "extended external input selectors", common::number);

// ETMIDR (IHI 0014Q 3.5.40, IHI 0035B table 3.44).
pub(super) const IMPLEMENTER: Row = rule(31, 24, "implementer", common::implementer);
pub(super) const SECURITY: Row = switch(
    19,
    "Security Extensions",
    "not implemented: always Secure",
    "implemented",
);
pub(super) const THUMB: Row = switch(
    18,
    "32-bit Thumb instructions",
    "traced as two instructions",
    "traced as one instruction",
);
pub(super) const MINOR_VERSION: Row = rule(7, 4, "minor architecture version", common::number);
pub(super) const REVISION: Row = rule(3, 0, "implementation revision", common::revision);

/// CoreSight Trace ID Register, ETMTRACEIDR (IHI 0014Q 3.5.53; IHI 0035B has the same).
const TRACE_ID: &[Row] = &[rule(6, 0, "trace ID", common::trace_id)];
