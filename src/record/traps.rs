//! Places at which a Linux program must stop: instructions that trap are put there, as debuggers
//! do. The emulator's own breakpoints would make it crawl through the whole page.

use crate::arch::t32;
use crate::quantity::Isa;

/// A number that no other debugger uses: `brk #0xa55a`, `bkpt #0xa55a` and `bkpt #0xa5`.
const A64: [u8; 4] = 0xd434_ab40_u32.to_le_bytes();
const A32: [u8; 4] = 0xe12a_557a_u32.to_le_bytes();
const T32: [u8; 2] = 0xbea5_u16.to_le_bytes();

/// The trap of an instruction set.
pub fn trap(isa: Isa) -> &'static [u8] {
    match isa {
        Isa::A64 => &A64,
        Isa::A32 | Isa::Jazelle => &A32,
        Isa::T32 | Isa::ThumbEe => &T32,
    }
}

/// What a system call instruction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It ends the program: exit_group.
    ExitGroup,
    /// It ends the thread: exit.
    Exit,
    /// Its number comes from elsewhere.
    Unknown,
}

/// The numbers of exit and exit_group.
const fn exits(isa: Isa) -> (u32, u32) {
    match isa {
        Isa::A64 => (93, 94),
        _ => (1, 248),
    }
}

/// What a number in the register for system calls does.
pub fn call_of(isa: Isa, number: u64) -> Option<Call> {
    let (exit, exit_group) = exits(isa);
    match number {
        n if n == u64::from(exit_group) => Some(Call::ExitGroup),
        n if n == u64::from(exit) => Some(Call::Exit),
        _ => None,
    }
}

/// How far before a call its number is looked for, in instructions.
const BEFORE: usize = 8;

/// System calls in code at `address` that may end the program or a thread.
pub fn calls(isa: Isa, address: u64, code: &[u8]) -> Vec<(u64, Call)> {
    match isa {
        Isa::A64 => fixed(address, code, isa, |word| word == 0xd400_0001, number_a64),
        Isa::A32 => fixed(address, code, isa, |word| word == 0xef00_0000, number_a32),
        _ => calls_t32(address, code),
    }
}

/// What an instruction does to the register of the call's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// Nothing.
    Kept,
    /// It holds this now.
    Is(u32),
    /// It holds something else.
    Other,
    /// Execution may have come from elsewhere.
    Branch,
}

/// `mov x8, #n` or `mov w8, #n`, and what else has X8 for its destination as far as that is seen.
fn number_a64(word: u32) -> Number {
    if word & 0x7fe0_001f == 0x5280_0008 {
        return Number::Is(word >> 5 & 0xffff);
    }
    // Branches: B, BL, B.cond, CBZ, TBZ and to registers.
    if word & 0x7c00_0000 == 0x1400_0000
        || word & 0xfe00_0000 == 0x5400_0000
        || word & 0x7c00_0000 == 0x3400_0000
        || word & 0xfe00_0000 == 0xd600_0000
    {
        return Number::Branch;
    }
    if word & 0x1f == 8 {
        Number::Other
    } else {
        Number::Kept
    }
}

/// `mov r7, #n`.
fn number_a32(word: u32) -> Number {
    if word & 0x0fff_f000 == 0x03a0_7000 {
        return Number::Is((word & 0xff).rotate_right((word >> 8 & 0xf) * 2));
    }
    // movw r7, #n
    if word & 0x0ff0_f000 == 0x0300_7000 {
        return Number::Is(word >> 4 & 0xf000 | word & 0xfff);
    }
    if word & 0x0e00_0000 == 0x0a00_0000 || word & 0x0fff_ffd0 == 0x012f_ff10 {
        return Number::Branch;
    }
    if word >> 12 & 0xf == 7 {
        Number::Other
    } else {
        Number::Kept
    }
}

fn fixed(
    address: u64,
    code: &[u8],
    isa: Isa,
    is_call: fn(u32) -> bool,
    number: fn(u32) -> Number,
) -> Vec<(u64, Call)> {
    let words: Vec<u32> = code
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let mut found = Vec::new();
    for (index, _) in words.iter().enumerate().filter(|(_, word)| is_call(**word)) {
        let before = words[index.saturating_sub(BEFORE)..index].iter().rev();
        let known = before
            .map(|&word| number(word))
            .find(|number| *number != Number::Kept);
        let call = judge(isa, known);
        found.extend(call.map(|call| (address.wrapping_add(4 * index as u64), call)));
    }
    found
}

fn judge(isa: Isa, known: Option<Number>) -> Option<Call> {
    match known {
        Some(Number::Is(number)) => call_of(isa, number.into()),
        _ => Some(Call::Unknown),
    }
}

/// T32 is read from its begin, so that halves of instructions are not taken for others.
fn calls_t32(address: u64, code: &[u8]) -> Vec<(u64, Call)> {
    let mut found = Vec::new();
    let mut known = None;
    let mut at = 0;
    let half = |at: usize| {
        let bytes = code.get(at..at + 2)?;
        Some(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    };
    while let Some(first) = half(at) {
        let place = address.wrapping_add(at as u64);
        at += 2;
        let next = match first {
            0xdf00 => {
                found.extend(judge(Isa::T32, known).map(|call| (place, call)));
                Number::Kept
            }
            _ if first & 0xff00 == 0x2700 => Number::Is(first & 0xff),
            // B, conditional B, CBZ, BX and BLX.
            _ if first & 0xf800 == 0xe000
                || first & 0xf000 == 0xd000
                || first & 0xf500 == 0xb100
                || first & 0xff00 == 0x4700 =>
            {
                Number::Branch
            }
            _ if t32::is_wide(first as u16) => {
                let second = half(at).unwrap_or(0);
                at += 2;
                // mov.w r7, #n without rotation; movw r7, #n
                if first == 0xf04f && second & 0xff00 == 0x0700 {
                    Number::Is(second & 0xff)
                } else if first & 0xfbf0 == 0xf240 && second & 0x8f00 == 0x0700 {
                    let high = (first & 0xf) << 12 | (first & 0x400) << 1;
                    Number::Is(high | (second & 0x7000) >> 4 | second & 0xff)
                } else if second & 0xf000 >= 0x8000 && first & 0xf800 == 0xf000 {
                    Number::Branch
                } else if second >> 8 & 0xf == 7 || second >> 12 == 7 {
                    Number::Other
                } else {
                    Number::Kept
                }
            }
            // pop with r7, ldr r7, mov r7, rN …
            _ if first & 7 == 7 || first & 0xff80 == 0xbc80 => Number::Other,
            _ => Number::Kept,
        };
        match next {
            Number::Kept => {}
            Number::Branch | Number::Other => known = None,
            Number::Is(_) => known = Some(next),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn calls_of_a64() {
        // mov x8, #94; mov x0, #0; svc #0; mov w8, #64; svc #0; mov x8, x1; svc #0; mov x8, #93;
        // b .; svc #0
        let code = words(&[
            0xd280_0bc8,
            0xd280_0000,
            0xd400_0001,
            0x5280_0808,
            0xd400_0001,
            0xaa01_03e8,
            0xd400_0001,
            0xd280_0ba8,
            0x1400_0000,
            0xd400_0001,
        ]);
        assert_eq!(
            calls(Isa::A64, 0x1000, &code),
            [
                (0x1008, Call::ExitGroup),
                (0x1018, Call::Unknown),
                (0x1024, Call::Unknown),
            ]
        );
    }

    #[test]
    fn calls_of_a32() {
        // mov r7, #248; svc #0; mov r7, #1; svc #0; mov r7, #4; svc #0; ldr r7, [r1]; svc #0
        let code = words(&[
            0xe3a0_70f8,
            0xef00_0000,
            0xe3a0_7001,
            0xef00_0000,
            0xe3a0_7004,
            0xef00_0000,
            0xe591_7000,
            0xef00_0000,
        ]);
        assert_eq!(
            calls(Isa::A32, 0, &code),
            [(4, Call::ExitGroup), (12, Call::Exit), (28, Call::Unknown),]
        );
    }

    #[test]
    fn calls_of_t32() {
        // movs r7, #248; svc #0; movs r7, #4; svc #0; mov r7, r1; svc #0;
        // mov.w r7, #1; svc #0; movw r7, #0x148; svc #0
        let halves: [u16; 12] = [
            0x27f8, 0xdf00, 0x2704, 0xdf00, 0x460f, 0xdf00, 0xf04f, 0x0701, 0xdf00, 0xf240, 0x1748,
            0xdf00,
        ];
        let code: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        assert_eq!(
            calls(Isa::T32, 0, &code),
            [(2, Call::ExitGroup), (10, Call::Unknown), (16, Call::Exit)]
        );
    }
}
