//! Maps exception numbers of other trace protocols to those of ETMv4.

use armsnap_arch::quantity::Profile;
use armsnap_snapshot::capture::Protocol;

/// Returns the ETMv4 number for exception `number` of `protocol`, if ETMv4 has an equivalent (ETMv4
/// IHI 0064, "Exception packet", TYPE; ETMv3 IHI 0014, PFT IHI 0035, both "Exception information").
pub fn etmv4(protocol: Protocol, profile: Profile, number: u16) -> Option<u16> {
    match (protocol, profile) {
        (Protocol::Etmv4 | Protocol::Ete, _) => (number < 0x400).then_some(number),
        (Protocol::Ptm | Protocol::Etmv3, Profile::A | Profile::R) => application(number),
        (Protocol::Etmv3, Profile::M) => microcontroller(number),
        _ => None,
    }
}

/// Entry to Hyp mode and "generic" have no equivalent: they can have several numbers in ETMv4.
const fn application(number: u16) -> Option<u16> {
    Some(match number {
        1 => 1,            // halting debug
        2 | 10 => 2,       // SMC, SVC: call
        4 => 4,            // asynchronous abort: system error
        8 => 0,            // reset
        9 => 3,            // undefined: trap
        11 => 11,          // prefetch abort: instruction fault
        12 => 12,          // data abort: data fault
        14 | 15 => number, // IRQ, FIQ
        _ => return None,
    })
}

const fn microcontroller(number: u16) -> Option<u16> {
    Some(match number {
        1..=7 => 16 + number,              // IRQ1 to IRQ7
        8 => 16,                           // IRQ0
        9 => 6,                            // UsageFault
        10 => 2,                           // NMI
        11 | 12 | 14 | 15 => number,       // SVC, DebugMonitor, PendSV, SysTick
        13 => 4,                           // MemManage
        17 => 1,                           // reset
        19 => 3,                           // HardFault
        21 => 5,                           // BusFault
        24..=511 => 0x208 + (number - 24), // IRQ8 and up
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_exceptions_have_an_etmv4_number() {
        for (protocol, profile, number, wanted) in [
            (Protocol::Etmv4, Profile::A, 14, Some(14)),
            (Protocol::Ete, Profile::A, 0x400, None),
            (Protocol::Ptm, Profile::A, 14, Some(14)),
            (Protocol::Ptm, Profile::A, 10, Some(2)),
            (Protocol::Ptm, Profile::A, 3, None),
            (Protocol::Etmv3, Profile::R, 12, Some(12)),
            (Protocol::Etmv3, Profile::M, 8, Some(16)),
            (Protocol::Etmv3, Profile::M, 25, Some(0x209)),
            (Protocol::Etmv3, Profile::M, 511, Some(0x3ef)),
            (Protocol::Ptm, Profile::M, 1, None),
            (Protocol::Itm, Profile::M, 1, None),
        ] {
            let found = etmv4(protocol, profile, number);
            assert_eq!(found, wanted, "{protocol:?} {profile:?} {number}");
        }
    }
}
