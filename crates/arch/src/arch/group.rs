//! Groups of the registers outside the core's own set.

/// A register group, which is also a group in GDB (`info registers timers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum RegisterGroup {
    /// Copies of general and status registers by mode or exception level.
    Banked,
    /// Debug and trace control.
    Debug,
    /// The GIC's CPU interface.
    InterruptController,
    /// Performance monitors.
    PerformanceMonitors,
    /// Generic timers.
    Timers,
    /// Everything else.
    System,
}

impl RegisterGroup {
    /// All groups, in the order in which they are shown.
    pub(super) const ALL: [Self; 6] = [
        Self::Banked,
        Self::System,
        Self::Timers,
        Self::PerformanceMonitors,
        Self::InterruptController,
        Self::Debug,
    ];

    /// Returns the name of the group in GDB.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Banked => "banked",
            Self::Debug => "debug",
            Self::InterruptController => "gic",
            Self::PerformanceMonitors => "pmu",
            Self::Timers => "timers",
            Self::System => "system",
        }
    }

    /// Returns the group of a register, determined by the prefix of its architectural name.
    pub(super) fn of(name: &str) -> Self {
        let name = name.to_ascii_uppercase();
        // Secure and non-secure copies as Arm DS names them: S_TTBR0, N_TTBR0.
        let name = ["S_", "N_"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(&name);
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let banked_general = name
            .strip_prefix('R')
            .and_then(|rest| rest.split_once('_'))
            .is_some_and(|(number, mode)| {
                number.bytes().all(|byte| byte.is_ascii_digit())
                    && ["USR", "FIQ", "IRQ", "SVC", "ABT", "UND", "MON", "HYP"].contains(&mode)
            });
        if banked_general || begins(&["SP_", "LR_", "SPSR", "ELR_", "MSP_", "PSP_"]) {
            Self::Banked
        } else if begins(&["CNT"]) {
            Self::Timers
        } else if begins(&["PM"]) {
            Self::PerformanceMonitors
        } else if begins(&["ICC_", "ICH_", "ICV_", "GICC_", "GICH_", "GICV_"]) {
            Self::InterruptController
        } else if begins(&[
            "DBG", "MDC", "MDR", "MDS", "OSDL", "OSDT", "OSEC", "OSL", "DSPSR", "DLR", "TRC", "TRF",
        ]) {
            Self::Debug
        } else {
            Self::System
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_real_names() {
        for (name, wanted) in [
            ("SP_EL1", RegisterGroup::Banked),
            ("R8_FIQ", RegisterGroup::Banked),
            ("SPSR_EL3", RegisterGroup::Banked),
            ("N_CNTP_CTL", RegisterGroup::Timers),
            ("CNTFRQ_EL0", RegisterGroup::Timers),
            ("PMCCNTR_EL0", RegisterGroup::PerformanceMonitors),
            ("S_ICC_SRE_EL1", RegisterGroup::InterruptController),
            ("DBGBVR0_EL1", RegisterGroup::Debug),
            ("MDSCR_EL1", RegisterGroup::Debug),
            ("SCTLR_EL1", RegisterGroup::System),
            ("S_TTBR0", RegisterGroup::System),
            ("SCR", RegisterGroup::System),
            ("RVBAR_EL3", RegisterGroup::System),
        ] {
            assert_eq!(RegisterGroup::of(name), wanted, "{name}");
        }
    }
}
