//! Program status registers in words: `EL2h, AArch64, NZCV=0010, DAIF=1111`.
//!
//! Uses only the value; independent of snapshots.

use std::borrow::Cow;

/// CPSR, or PSTATE as an AArch64 core saves it, in words (Arm ARM DDI 0487, C5.2.19 SPSR_EL1;
/// DDI 0406, B1.3.3).
pub fn cpsr(value: u64) -> String {
    if value & 1 << 4 == 0 {
        aarch64(value)
    } else {
        aarch32(value)
    }
}

fn aarch64(value: u64) -> String {
    let level = value >> 2 & 3;
    let stack = match (value & 3, level) {
        (0, _) => "t",
        (1, 1..=3) => "h",
        _ => " with reserved mode bits",
    };
    let mut out = format!(
        "EL{level}{stack}, AArch64, NZCV={:04b}, DAIF={:04b}",
        value >> 28 & 0xF,
        value >> 6 & 0xF
    );
    for (bit, name) in [
        (25, "TCO"),
        (24, "DIT"),
        (23, "UAO"),
        (22, "PAN"),
        (21, "SS"),
        (20, "IL"),
        (12, "SSBS"),
    ] {
        if value >> bit & 1 != 0 {
            out.push_str(", ");
            out.push_str(name);
        }
    }
    match value >> 10 & 3 {
        0 => {}
        btype => out.push_str(&format!(", BTYPE={btype:02b}")),
    }
    out
}

fn aarch32(value: u64) -> String {
    let mode = match value & 0xF {
        0x0 => "User",
        0x1 => "FIQ",
        0x2 => "IRQ",
        0x3 => "Supervisor",
        0x6 => "Monitor",
        0x7 => "Abort",
        0xA => "Hyp",
        0xB => "Undefined",
        0xF => "System",
        _ => "reserved",
    };
    let set = match (value >> 24 & 1, value >> 5 & 1) {
        (0, 0) => "A32",
        (0, _) => "T32",
        (_, 0) => "Jazelle",
        (_, _) => "ThumbEE",
    };
    let mut out = format!(
        "{mode} mode, {set}, NZCV={:04b}, AIF={:03b}",
        value >> 28 & 0xF,
        value >> 6 & 7
    );
    if value >> 9 & 1 != 0 {
        out.push_str(", big-endian data");
    }
    push_flags(&mut out, value, "IT");
    out
}

/// Fields that CPSR and xPSR have in the same bits: Q, GE, and the state of an IT block.
fn push_flags(out: &mut String, value: u64, it_name: &str) {
    if value >> 27 & 1 != 0 {
        out.push_str(", Q");
    }
    match value >> 16 & 0xF {
        0 => {}
        ge => out.push_str(&format!(", GE={ge:04b}")),
    }
    match value >> 8 & 0xFC | value >> 25 & 3 {
        0 => {}
        it => out.push_str(&format!(", {it_name}={it:08b}")),
    }
}

/// The M-profile's xPSR in words (ARM DDI 0403, B1.4.2).
pub fn xpsr(value: u64) -> String {
    let mode: Cow<'_, str> = match value & 0x1FF {
        0 => "Thread mode".into(),
        exception => format!("Handler mode, {}", m_exception(exception)).into(),
    };
    let mut out = format!("{mode}, NZCV={:04b}", value >> 28 & 0xF);
    push_flags(&mut out, value, "ICI/IT");
    if value >> 24 & 1 == 0 {
        out.push_str(", T bit clear: the next instruction faults");
    }
    out
}

/// An M-profile exception by its number (ARM DDI 0403, B1.5.2; DDI 0553, B3.8).
pub fn m_exception(number: u64) -> Cow<'static, str> {
    match number {
        1 => "Reset".into(),
        2 => "NMI".into(),
        3 => "HardFault".into(),
        4 => "MemManage".into(),
        5 => "BusFault".into(),
        6 => "UsageFault".into(),
        7 => "SecureFault".into(),
        11 => "SVCall".into(),
        12 => "DebugMonitor".into(),
        14 => "PendSV".into(),
        15 => "SysTick".into(),
        16.. => format!("IRQ {}", number - 16).into(),
        _ => format!("reserved exception {number}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aarch64_states() {
        assert_eq!(cpsr(0x2000_03C9), "EL2h, AArch64, NZCV=0010, DAIF=1111");
        assert_eq!(cpsr(0x0000_01C5), "EL1h, AArch64, NZCV=0000, DAIF=0111");
        assert_eq!(cpsr(0), "EL0t, AArch64, NZCV=0000, DAIF=0000");
        assert_eq!(
            cpsr(0x8040_0004),
            "EL1t, AArch64, NZCV=1000, DAIF=0000, PAN"
        );
        assert!(cpsr(0x2).contains("reserved mode"));
        assert!(cpsr(0x1).contains("reserved mode"));
    }

    #[test]
    fn aarch32_states() {
        assert_eq!(
            cpsr(0x6000_01D3),
            "Supervisor mode, A32, NZCV=0110, AIF=111"
        );
        assert_eq!(cpsr(0x0000_0030), "User mode, T32, NZCV=0000, AIF=000");
        assert_eq!(
            cpsr(0x0800_021F),
            "System mode, A32, NZCV=0000, AIF=000, big-endian data, Q"
        );
        assert!(cpsr(0x14).starts_with("reserved mode"));
        // ITSTATE 1000_1000: IT[7:2] in bits 15:10, IT[1:0] in bits 26:25.
        assert!(cpsr(0x0000_8830).ends_with("IT=10001000"));
        assert!(cpsr(0x0600_0030).ends_with("IT=00000011"));
    }

    #[test]
    fn m_profile_states() {
        assert_eq!(xpsr(0x6100_0000), "Thread mode, NZCV=0110");
        assert_eq!(xpsr(0x0100_0003), "Handler mode, HardFault, NZCV=0000");
        assert_eq!(xpsr(0x0100_0010), "Handler mode, IRQ 0, NZCV=0000");
        assert!(xpsr(0).contains("T bit clear"));
    }
}
