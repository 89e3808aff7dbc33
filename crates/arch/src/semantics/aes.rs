//! The steps of AES (FIPS 197) on halves of its state: the bytes of a vector, column by column.

use super::operation::AesStep;

/// The product of two bytes as polynomials modulo x^8 + x^4 + x^3 + x + 1 (FIPS 197, 4.2).
const fn product(mut a: u8, mut b: u8) -> u8 {
    let mut out = 0;
    while b != 0 {
        if b & 1 != 0 {
            out ^= a;
        }
        let carry = a >> 7;
        a = (a << 1) ^ (carry * 0x1b);
        b >>= 1;
    }
    out
}

/// SubBytes (5.1.1), or with `inverse` InvSubBytes (5.3.2), of each byte.
const fn table(inverse: bool) -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // The multiplicative inverse is the 254th power.
        let (mut power, mut count) = (1, 0);
        while count < 254 {
            power = product(power, byte as u8);
            count += 1;
        }
        let rotated = power.rotate_left(1)
            ^ power.rotate_left(2)
            ^ power.rotate_left(3)
            ^ power.rotate_left(4);
        let substituted = power ^ rotated ^ 0x63;
        if inverse {
            table[substituted as usize] = byte as u8;
        } else {
            table[byte] = substituted;
        }
        byte += 1;
    }
    table
}

static SUBSTITUTED: [u8; 256] = table(false);
static RESTORED: [u8; 256] = table(true);

/// The half of the state after a step, from the low and the high half before it.
pub(super) fn step(step: AesStep, low: u64, high: u64) -> u64 {
    let state = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
    match step {
        AesStep::Encrypt { high } => half(high, |column, row| {
            SUBSTITUTED[usize::from(state[4 * ((column + row) % 4) + row])]
        }),
        AesStep::Decrypt { high } => half(high, |column, row| {
            RESTORED[usize::from(state[4 * ((column + 4 - row) % 4) + row])]
        }),
        AesStep::Mix => mixed(low, [2, 3, 1, 1]),
        AesStep::Unmix => mixed(low, [14, 11, 13, 9]),
    }
}

/// Two columns of the state.
fn half(high: bool, byte: impl Fn(usize, usize) -> u8) -> u64 {
    let first = if high { 2 } else { 0 };
    u64::from_le_bytes(std::array::from_fn(|at| byte(first + at / 4, at % 4)))
}

/// MixColumns (5.1.3) or InvMixColumns (5.3.3) of two columns, by the first row of their matrix.
fn mixed(columns: u64, factors: [u8; 4]) -> u64 {
    let bytes = columns.to_le_bytes();
    u64::from_le_bytes(std::array::from_fn(|at| {
        let (column, row) = (at / 4 * 4, at % 4);
        (0..4).fold(0, |sum, from| {
            sum ^ product(bytes[column + from], factors[(from + 4 - row) % 4])
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(of: fn(bool) -> AesStep, state: [u64; 2]) -> [u64; 2] {
        [false, true].map(|high| step(of(high), state[0], state[1]))
    }

    /// FIPS 197, appendix B, round 1.
    #[test]
    fn a_round_is_as_in_the_example_of_the_standard() {
        let state = |bytes: u128| {
            let bytes = bytes.to_be_bytes();
            u128::from_le_bytes(bytes)
        };
        let halves = |state: u128| [state as u64, (state >> 64) as u64];
        let start = halves(state(0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808));
        let shifted = halves(state(0xd4bf_5d30_e0b4_52ae_b841_11f1_1e27_98e5));
        let mixed = halves(state(0x0466_81e5_e0cb_199a_48f8_d37a_2806_264c));
        assert_eq!(both(|high| AesStep::Encrypt { high }, start), shifted);
        assert_eq!(both(|high| AesStep::Decrypt { high }, shifted), start);
        assert_eq!(shifted.map(|half| step(AesStep::Mix, half, 0)), mixed);
        assert_eq!(mixed.map(|half| step(AesStep::Unmix, half, 0)), shifted);
    }
}
