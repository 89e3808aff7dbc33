//! The bits of AArch64 pointers that are not part of the address: the pointer authentication code
//! (PAC), and the tag in the top byte (Arm ARM DDI 0487, D8.8 "Address tagging", D8.10 "Pointer
//! authentication").

use super::registers::RegisterFile;
use super::{Architecture, state};

/// The registers with the masks, under GDB's names: for data pointers, and for code pointers. The
/// set bits are those of the authentication code.
pub const MASKS: [&str; 2] = ["pauth_dmask", "pauth_cmask"];

/// Number of the first mask, after FPSR and FPCR.
pub(super) const FIRST_NUMBER: u32 = 68;
/// Bit 55, which selects the half of the address space.
const HALF: u64 = 1 << 55;
/// The top byte.
const TAG: u64 = 0xff << 56;

/// The bits of pointers that hold the authentication code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    /// The mask for data pointers.
    pub data: u64,
    /// The mask for code pointers.
    pub code: u64,
}

impl Masks {
    /// The masks in the registers of a core, or else those derived from its translation registers.
    pub fn of(registers: &RegisterFile) -> Option<Self> {
        if registers.architecture() != Architecture::AArch64 {
            return None;
        }
        let [data, code] = MASKS.map(|name| registers.value(name));
        match (data, code) {
            // Linux address spaces have at least 36 bits.
            (Some(data), Some(code)) if (data | code) << 32 == 0 => Some(Self { data, code }),
            _ => Self::described(registers),
        }
    }

    /// The masks that follow from the size of the address space, if the core has pointer
    /// authentication.
    fn described(registers: &RegisterFile) -> Option<Self> {
        let high = registers.pc().is_some_and(|pc| pc & HALF != 0);
        let layout = Layout::of(registers, high).filter(|_| has_authentication(registers))?;
        // Bit 55 is never part of the code.
        let lower = HALF - (1 << layout.bits.min(55));
        let mask = |tagged: bool| if tagged { lower } else { lower | TAG };
        Some(Self {
            data: mask(layout.tagged_data),
            code: mask(layout.tagged_code),
        })
    }

    /// The number of low bits of a pointer that hold its address.
    pub fn address_bits(self) -> u32 {
        (self.data | self.code | HALF).trailing_zeros()
    }

    /// The mask for a name in [`MASKS`].
    pub fn named(self, name: &str) -> u64 {
        if name == MASKS[0] {
            self.data
        } else {
            self.code
        }
    }
}

/// The layout of the pointers to one half of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// The number of bits of the address.
    bits: u32,
    /// Whether the top byte of data pointers is a tag.
    tagged_data: bool,
    /// Whether the top byte of code pointers is a tag.
    tagged_code: bool,
}

impl Layout {
    /// The layout given by TCR_ELx of the regime in which a core runs; `None` if that is not known.
    fn of(registers: &RegisterFile, high: bool) -> Option<Self> {
        let state = registers
            .value("cpsr")
            .or_else(|| registers.value("CurrentEL"));
        let level = state.map_or(1, |state| state >> 2 & 3);
        let hypervisor = registers.value("HCR_EL2").unwrap_or(0);
        // HCR_EL2.E2H, TGE: a host kernel at EL2 and its programs at EL0.
        let (host, traps) = (hypervisor >> 34 & 1 == 1, hypervisor >> 27 & 1 == 1);
        let (name, one_half) = match level {
            3 => ("TCR_EL3", true),
            2 => ("TCR_EL2", !host),
            _ if host && traps => ("TCR_EL2", false),
            _ => ("TCR_EL1", false),
        };
        let tcr = registers.value(name)?;
        let bit = |number: u32| tcr >> number & 1 == 1;
        let size = if high { tcr >> 16 } else { tcr } & 0x3f;
        let (tagged, data_only, wide) = match (one_half, high) {
            // TBI, TBID, DS.
            (true, _) => (bit(20), bit(29), bit(32)),
            // TBI0, TBID0, DS.
            (false, false) => (bit(37), bit(51), bit(59)),
            (false, true) => (bit(38), bit(52), bit(59)),
        };
        // TG0 and TG1: 64 KiB granules, for which FEAT_LVA allows 52-bit addresses.
        let granule = match (one_half, high) {
            (false, true) => tcr >> 30 & 3 == 3,
            _ => tcr >> 14 & 3 == 1,
        };
        let large = registers.value("ID_AA64MMFR2_EL1").map(|id| id >> 16 & 15);
        let least = match wide || granule && large != Some(0) {
            true => 12,
            false => 16,
        };
        // TnSZ above 39 selects a small address space (FEAT_TTST, ID_AA64MMFR2_EL1.ST); without
        // FEAT_TTST it is not valid.
        let small = registers.value("ID_AA64MMFR2_EL1").map(|id| id >> 28 & 15);
        if size > 39 && small.unwrap_or(0) == 0 || size > 48 {
            return None;
        }
        Some(Self {
            bits: 64 - (size as u32).max(least),
            tagged_data: tagged,
            tagged_code: tagged && !data_only,
        })
    }
}

/// Whether a core has pointer authentication, according to its ID registers (APA, API, APA3), or
/// else because it is enabled (SCTLR_EL1.EnIA, EnIB, EnDA, EnDB).
fn has_authentication(registers: &RegisterFile) -> bool {
    if let Some(id) = registers.value("ID_AA64ISAR1_EL1") {
        let third = registers.value("ID_AA64ISAR2_EL1").unwrap_or(0);
        return id >> 4 & 0xff != 0 || third >> 12 & 15 != 0;
    }
    let enabled = 1 << 31 | 1 << 30 | 1 << 27 | 1 << 13;
    let control = registers.value("SCTLR_EL1");
    control.is_some_and(|control| control & enabled != 0)
}

/// The memory address that a data pointer refers to: without the tag in its top byte, if the tag is
/// ignored, as it always is for Linux programs (Linux,
/// Documentation/arch/arm64/tagged-pointers.rst).
pub fn without_tag(registers: &RegisterFile, pointer: u64) -> u64 {
    let high = pointer & HALF != 0;
    let canonical = if high { pointer | TAG } else { pointer & !TAG };
    if canonical == pointer || registers.architecture() != Architecture::AArch64 {
        return pointer;
    }
    let tagged = match Layout::of(registers, high) {
        Some(layout) => layout.tagged_data,
        None if high => false,
        None => {
            let is_program = state::mode(registers).is_some();
            is_program || Masks::of(registers).is_some_and(|masks| masks.data & TAG == 0)
        }
    };
    if tagged { canonical } else { pointer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::saved_device::{Device, Register, RegisterValue};

    fn file(registers: &[(&str, u64)]) -> RegisterFile {
        let device = Device {
            registers: registers
                .iter()
                .map(|&(name, value)| Register {
                    name: name.to_owned(),
                    size: Some(64),
                    value: RegisterValue(value.to_le_bytes().to_vec()),
                })
                .collect(),
            ..Device::default()
        };
        RegisterFile::read(&device, Architecture::AArch64)
    }

    fn masks(registers: &[(&str, u64)]) -> Option<(u64, u64)> {
        Masks::of(&file(registers)).map(|masks| (masks.data, masks.code))
    }

    const HAS: (&str, u64) = ("ID_AA64ISAR1_EL1", 0x10);
    const KERNEL: (&str, u64) = ("PC", 0xffff_8000_0801_0000);

    #[test]
    fn masks_that_were_saved_come_first() {
        let saved = [("PAUTH_DMASK", 0x7f << 48), ("pauth_cmask", 0xff7f << 48)];
        assert_eq!(masks(&saved), Some((0x7f << 48, 0xff7f << 48)));
        assert_eq!(masks(&saved[..1]), None);
        let with_table = [saved[0], saved[1], HAS, ("TCR_EL1", 25)];
        assert_eq!(masks(&with_table), Some((0x7f << 48, 0xff7f << 48)));
    }

    #[test]
    fn masks_follow_from_the_size_of_the_address_space() {
        let (low, top) = (0x007f << 48, 0xff7f << 48);
        let tbi0 = 1 << 37;
        for (registers, wanted) in [
            (&[HAS, ("TCR_EL1", 16)][..], Some((top, top))),
            (&[HAS, ("TCR_EL1", 16 | tbi0)], Some((low, low))),
            // TBID0: the top byte is ignored for data only.
            (&[HAS, ("TCR_EL1", 16 | tbi0 | 1 << 51)], Some((low, top))),
            // Below the minimum of TnSZ, as QEMU sets it for programs.
            (&[HAS, ("TCR_EL1", 5 | tbi0)], Some((low, low))),
            // 52 bits: FEAT_LPA2, FEAT_LVA.
            (
                &[HAS, ("TCR_EL1", 12 | tbi0 | 1 << 59)],
                Some((0x70 << 48, 0x70 << 48)),
            ),
            (
                &[HAS, ("TCR_EL1", 12 | tbi0 | 1 << 14)],
                Some((0x70 << 48, 0x70 << 48)),
            ),
            (
                &[
                    HAS,
                    ("TCR_EL1", 12 | tbi0 | 1 << 14),
                    ("ID_AA64MMFR2_EL1", 0),
                ],
                Some((low, low)),
            ),
            // 39 bits, in the kernel's half, at EL1 and at EL2.
            (
                &[HAS, KERNEL, ("CPSR", 5), ("TCR_EL1", 16 | 25 << 16)],
                Some((0xff7f_ff80 << 32, 0xff7f_ff80 << 32)),
            ),
            (
                &[
                    HAS,
                    KERNEL,
                    ("CPSR", 9),
                    ("HCR_EL2", 1 << 34),
                    ("TCR_EL2", 25 << 16 | 1 << 38),
                    ("TCR_EL1", 0),
                ],
                Some((0x7f_ff80 << 32, 0x7f_ff80 << 32)),
            ),
            (
                &[HAS, ("CPSR", 9), ("TCR_EL2", 16 | 1 << 20)],
                Some((low, low)),
            ),
            // Enabled, or implemented with another algorithm.
            (&[("SCTLR_EL1", 1 << 31), ("TCR_EL1", 16)], Some((top, top))),
            (
                &[
                    ("ID_AA64ISAR1_EL1", 0),
                    ("ID_AA64ISAR2_EL1", 1 << 12),
                    ("TCR_EL1", 16),
                ],
                Some((top, top)),
            ),
            // Not implemented, or not known.
            (&[("ID_AA64ISAR1_EL1", 0), ("TCR_EL1", 16)], None),
            (&[("SCTLR_EL1", 1), ("TCR_EL1", 16)], None),
            (&[HAS], None),
            // Not a valid size, unless small address spaces are implemented.
            (&[HAS, ("TCR_EL1", 48)], None),
            (
                &[HAS, ("TCR_EL1", 40 | tbi0), ("ID_AA64MMFR2_EL1", 1 << 28)],
                Some((0x7f_ffff_ff00_0000, 0x7f_ffff_ff00_0000)),
            ),
        ] {
            assert_eq!(masks(registers), wanted, "{registers:x?}");
        }
        let bits = |registers: &[(&str, u64)]| Masks::of(&file(registers)).unwrap().address_bits();
        assert_eq!(bits(&[HAS, ("TCR_EL1", 16 | tbi0)]), 48);
        assert_eq!(bits(&[HAS, ("TCR_EL1", 25)]), 39);
    }

    #[test]
    fn tags_are_removed_where_they_are_ignored() {
        let tagged = 0x2a00_0000_0040_0000;
        for (registers, wanted) in [
            (&[("CPSR", 0x6000_0000)][..], 0x40_0000),
            (&[("CPSR", 5), ("TCR_EL1", 16 | 1 << 37)], 0x40_0000),
            (&[("CPSR", 5), ("TCR_EL1", 16)], tagged),
            (&[("CPSR", 0), ("TCR_EL1", 16)], tagged),
            (&[("CPSR", 5)], tagged),
            (&[], tagged),
            (
                &[("pauth_dmask", 0x7f << 48), ("pauth_cmask", 0x7f << 48)],
                0x40_0000,
            ),
        ] {
            assert_eq!(
                without_tag(&file(registers), tagged),
                wanted,
                "{registers:x?}"
            );
        }
        let high = file(&[("CPSR", 5), ("TCR_EL1", 1 << 38)]);
        let (signed, plain) = (0xabff_8000_0801_0000, 0xffff_8000_0801_0000);
        assert_eq!(without_tag(&high, signed), plain);
        assert_eq!(without_tag(&file(&[("CPSR", 0)]), signed), signed);
    }
}
