//! Exceptions of the emulator → their numbers in the trace protocol.

use super::log::Taken;
use crate::record::protocol::Protocol;

/// What determines the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The protocol.
    pub protocol: Protocol,
    /// Whether the core is a Cortex-M.
    pub microcontroller: bool,
}

/// How an exception relates to the last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The instruction faulted: it will be executed again.
    Faulted,
    /// The instruction was executed; it requested the exception or is unrelated.
    Executed,
}

impl Numbers {
    /// Returns the trace protocol's number of an exception.
    pub fn of(self, taken: &Taken) -> u16 {
        match taken.number.filter(|_| self.microcontroller) {
            Some(number) => self.of_microcontroller(number),
            None => self.of_application(taken),
        }
    }

    /// Returns the trace protocol's number of a Cortex-M exception.
    pub fn of_microcontroller(self, number: u16) -> u16 {
        match (self.protocol, number) {
            // IHI 0064H, "Exception packet", TYPE: interrupts 0 to 7, and all others.
            (Protocol::Etmv4, 0..24) => number,
            (Protocol::Etmv4, _) => (0x200 | (number - 16)).min(0x3ff),
            // IHI 0014Q, 7.5, exception encodings of Armv7-M.
            (_, 1) => 17,
            (_, 2) => 10,
            (_, 3) => 19,
            (_, 4) => 13,
            (_, 5) => 21,
            (_, 6) => 9,
            (_, 16) => 8,
            (_, 17..24) => number - 16,
            (_, 0..16) => number,
            (_, _) => number.min(0x1ff),
        }
    }

    fn of_application(self, taken: &Taken) -> u16 {
        /// QEMU's cause (`EXCP_…`), ETMv4 (IHI 0064H, "Exception packet", TYPE), ETMv3 and PTM
        /// (IHI 0014Q, 7.3.5; IHI 0035B, 4.5.4).
        const NUMBERS: [(u16, u16, u16); 13] = [
            (1, 3, 9),    // undefined instruction
            (2, 2, 10),   // SVC
            (3, 11, 11),  // prefetch abort
            (4, 12, 12),  // data abort
            (5, 14, 14),  // IRQ
            (6, 15, 15),  // FIQ
            (7, 6, 11),   // BKPT
            (11, 2, 3),   // HVC
            (12, 3, 3),   // trapped to EL2
            (13, 2, 2),   // SMC
            (14, 14, 14), // virtual IRQ
            (15, 15, 15), // virtual FIQ
            (24, 4, 4),   // virtual SError
        ];
        if taken.alignment && self.protocol == Protocol::Etmv4 {
            return 10;
        }
        let found = NUMBERS.iter().find(|row| row.0 == taken.cause);
        match (self.protocol, found) {
            (Protocol::Etmv4, found) => found.map_or(3, |row| row.1),
            (_, found) => found.map_or(9, |row| row.2),
        }
    }

    /// Returns how an exception relates to the last started instruction.
    pub fn relation(taken: &Taken) -> Relation {
        match taken.cause {
            // SVC, prefetch abort, IRQ, FIQ, HVC, SMC, virtual IRQ, FIQ and SError
            2 | 3 | 5 | 6 | 11 | 13 | 14 | 15 | 24 => Relation::Executed,
            _ => Relation::Faulted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::Profile;
    use armsnap_trace::etmv3;
    use armsnap_trace::etmv4;

    #[test]
    fn exception_numbers_of_microcontrollers_have_the_decoders_names() {
        let numbers = |protocol| Numbers {
            protocol,
            microcontroller: true,
        };
        for (number, name) in [
            (2, "NMI"),
            (3, "HardFault"),
            (4, "MemManage"),
            (5, "BusFault"),
            (6, "UsageFault"),
            (11, "SVC"),
            (12, "DebugMonitor"),
            (14, "PendSV"),
            (15, "SysTick"),
        ] {
            let etmv4 = numbers(Protocol::Etmv4).of_microcontroller(number);
            assert_eq!(etmv4::exceptions::name(Profile::M, etmv4), name);
            let etmv3 = numbers(Protocol::Etmv3).of_microcontroller(number);
            let information = etmv3::Information {
                exception: etmv3,
                deprecated: false,
                cancel: false,
                non_secure: None,
                hyp: None,
                resume: 0,
            };
            assert_eq!(information.exception_name(Profile::M), name);
        }
        for (interrupt, etmv4, etmv3) in [(0, 16, 8), (7, 23, 7), (8, 0x208, 24), (100, 0x264, 116)]
        {
            let number = interrupt + 16;
            assert_eq!(numbers(Protocol::Etmv4).of_microcontroller(number), etmv4);
            assert_eq!(numbers(Protocol::Etmv3).of_microcontroller(number), etmv3);
        }
    }
}
