//! The names of exceptions as ETMv4 and ETE number them (IHI 0064, "Exception packet", TYPE;
//! DDI 0487, part D).

use crate::protocol::Profile;

/// The name of exception `number` of a core of this profile.
pub const fn name(profile: Profile, number: u16) -> &'static str {
    match profile {
        Profile::A | Profile::R => application(number),
        Profile::M => microcontroller(number),
    }
}

const fn application(number: u16) -> &'static str {
    match number {
        0 => "PE reset",
        1 => "debug halt",
        2 => "call",
        3 => "trap",
        4 => "system error",
        6 => "instruction debug",
        7 => "data debug",
        10 => "alignment",
        11 => "instruction fault",
        12 => "data fault",
        14 => "IRQ",
        15 => "FIQ",
        16..=23 => "implementation defined",
        24 => "transaction failure",
        _ => "reserved",
    }
}

const fn microcontroller(number: u16) -> &'static str {
    match number {
        1 => "PE reset",
        2 => "NMI",
        3 => "HardFault",
        4 => "MemManage",
        5 => "BusFault",
        6 => "UsageFault",
        7 => "SecureFault",
        11 => "SVC",
        12 => "DebugMonitor",
        14 => "PendSV",
        15 => "SysTick",
        16..=23 | 0x208..=0x3ef => "IRQ",
        24 => "debug halt",
        25 => "lazy FP push",
        26 => "lockup",
        _ => "reserved",
    }
}
