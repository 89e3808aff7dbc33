//! Epilogues of functions, as their last instructions show them.

use armsnap_arch::arch::Architecture;

/// The number of bytes from an instruction on in which a return is looked for.
pub(super) const LENGTH: usize = 12;

/// Whether a function returns within the instructions from one on: its frame may be gone there before
/// call frame information says so. Other instructions may look like a return.
pub(super) fn is_near_return(architecture: Architecture, code: &[u8]) -> bool {
    let halves = |from: usize| {
        let pair = |at: usize| {
            let bytes = code.get(at..at + 2)?;
            Some(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        };
        let low = pair(from)?;
        Some((low, pair(from + 2)))
    };
    let returns = |(low, high): (u32, Option<u32>)| {
        let word = high.map(|high| high << 16 | low);
        match architecture {
            // RET, RETAA, RETAB.
            Architecture::AArch64 => word.is_some_and(|word| {
                word & 0xFFFF_FC1F == 0xD65F_0000 || word & 0xFFFF_FBFF == 0xD65F_0BFF
            }),
            Architecture::AArch32 | Architecture::MProfile => {
                // BX LR and POP {…, PC} of T32; POP {…, PC} of 32 bits.
                low == 0x4770
                    || low & 0xFF00 == 0xBD00
                    || low == 0xE8BD && high.is_some_and(|high| high & 0x8000 != 0)
                    // BX LR, and loads of several registers with PC, of A32.
                    || word.is_some_and(|word| {
                        word & 0x0FFF_FFFF == 0x012F_FF1E || word & 0x0E50_8000 == 0x0810_8000
                    })
            }
        }
    };
    let step = match architecture {
        Architecture::AArch64 => 4,
        Architecture::AArch32 | Architecture::MProfile => 2,
    };
    (0..code.len())
        .step_by(step)
        .filter_map(halves)
        .any(returns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_recognised() {
        let code = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        for (architecture, words, wanted) in [
            // add sp, sp, #16; ret
            (Architecture::AArch64, &[0x9100_43FF, 0xD65F_03C0][..], true),
            (Architecture::AArch64, &[0x9100_43FF, 0xD65F_0BFF], true),
            (Architecture::AArch64, &[0x9100_43FF, 0xB900_0FE0], false),
            // sub sp, r11, #0; bx lr
            (Architecture::AArch32, &[0xE24B_D000, 0xE12F_FF1E], true),
            // pop {r11, pc}
            (Architecture::AArch32, &[0xE8BD_8800], true),
            (Architecture::AArch32, &[0xE51B_3008, 0xE51B_2010], false),
            // add sp, #8; bx lr
            (Architecture::MProfile, &[0x4770_B002], true),
        ] {
            assert_eq!(
                is_near_return(architecture, &code(words)),
                wanted,
                "{words:x?}"
            );
        }
    }
}
