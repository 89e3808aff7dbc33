//! Register keys and values in .ini files, and lookup of registers by name or ID (Debug and Trace
//! Snapshot File Format 0.2, section 3.2.2).
//!
//! Independent of architectures and trace protocols.

use super::model::{Device, Register, RegisterValue};
use std::fmt;

/// A parsed register key: `NAME(id:0x80,size:64)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterKey {
    /// Name without the part in parentheses.
    pub name: String,
    /// `id`, or a number without a keyword.
    pub id: Option<u64>,
    /// `size` in bits.
    pub size: Option<u32>,
    /// Why parts in the parentheses were not understood.
    pub odd: Vec<String>,
}

/// The highest register ID: IDs count words in the 4 KiB of a CoreSight component.
pub const LAST_ID: u64 = 0x3FF;
/// The largest register in bits: the ZA array of SME at its largest vector length.
const MAX_BITS: u32 = 256 * 256 * 8;
/// White space around parts of .ini files; other white space belongs to names.
const SPACES: [char; 2] = [' ', '\t'];
/// The maximum number of digits of a decimal number, which takes quadratic time to parse.
const MAX_DECIMAL_DIGITS: usize = 1000;

/// Parses a register's key.
pub fn parse_key(key: &str) -> RegisterKey {
    let mut out = RegisterKey::default();
    let Some((name, extra)) = key.split_once('(') else {
        out.name = key.trim_matches(SPACES).to_owned();
        return out;
    };
    out.name = name.trim_matches(SPACES).to_owned();
    let extra = match extra.trim().strip_suffix(')') {
        Some(extra) => extra,
        None => {
            out.odd.push("expected ) at the end of the key".into());
            extra.split(')').next().unwrap_or(extra)
        }
    };
    for part in extra.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (what, number) = match part.split_once(':') {
            Some((what, number)) => (what.trim(), number.trim()),
            None => ("id", part),
        };
        let value = parse_u64(number);
        if what.eq_ignore_ascii_case("id") && value.is_some() {
            out.id = value;
        } else if what.eq_ignore_ascii_case("size") {
            match value.and_then(|bits| u32::try_from(bits).ok()) {
                Some(bits) if (1..=MAX_BITS).contains(&bits) => out.size = Some(bits),
                _ => out.odd.push(format!(
                    "expected a size in bits, found {}",
                    super::ini::quote(number)
                )),
            }
        } else {
            out.odd.push(format!(
                "expected an ID or a size, found {}",
                super::ini::quote(part)
            ));
        }
    }
    out
}

/// Parses a number of up to 64 bits, decimal or hexadecimal with 0x.
pub fn parse_u64(text: &str) -> Option<u64> {
    let text = number_part(text);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// Removes a comment: some writers put one right after a number, without a space.
fn number_part(text: &str) -> &str {
    text.split(['#', ';']).next().unwrap_or(text).trim()
}

impl RegisterValue {
    /// Creates a value of `bytes` bytes.
    pub fn from_u64(value: u64, bytes: usize) -> Self {
        let mut out = value.to_le_bytes().to_vec();
        out.resize(bytes.max(1), 0);
        Self(out)
    }

    /// Reads a number of any width, decimal or hexadecimal with 0x. The value has the number of
    /// bytes for `size` bits (32 if not given), or more if the number is larger.
    pub fn parse(text: &str, size: Option<u32>) -> Option<Self> {
        let text = number_part(text);
        let bytes = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => from_hex(hex)?,
            None => from_decimal(text)?,
        };
        Some(Self(bytes).canonical(size))
    }

    /// Returns the value with the number of bytes for `size` bits (32 if not given), or more if it
    /// is larger. Beyond the size of the largest vector register, only bytes up to the highest set
    /// bit are kept, because a short line could otherwise take 64 KiB.
    pub fn canonical(&self, size: Option<u32>) -> Self {
        const LARGEST_VECTOR: u32 = 2048;
        let wanted = size.unwrap_or(32).clamp(1, LARGEST_VECTOR).div_ceil(8) as usize;
        let needed = self.significant_bits().div_ceil(8) as usize;
        Self(self.to_bytes(wanted.max(needed)))
    }

    /// Returns the value, if it fits in 64 bits.
    pub fn as_u64(&self) -> Option<u64> {
        u64::try_from(self.as_u128()?).ok()
    }

    /// Returns the value, if it fits in 128 bits.
    pub fn as_u128(&self) -> Option<u128> {
        if self.significant_bits() > 128 {
            return None;
        }
        let mut out = [0; 16];
        for (to, from) in out.iter_mut().zip(&self.0) {
            *to = *from;
        }
        Some(u128::from_le_bytes(out))
    }

    /// Returns the value in `count` bytes, least significant first: zero-extended or truncated.
    pub fn to_bytes(&self, count: usize) -> Vec<u8> {
        let mut out = self.0.clone();
        out.resize(count, 0);
        out
    }

    /// Returns the number of bits up to the highest set bit.
    pub fn significant_bits(&self) -> u64 {
        match self.0.iter().rposition(|&byte| byte != 0) {
            Some(at) => at as u64 * 8 + u64::from(8 - self.0[at].leading_zeros()),
            None => 0,
        }
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    if hex.is_empty() || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    let bytes = hex.as_bytes().rchunks(2);
    Some(
        bytes
            .map(|pair| pair.iter().fold(0, |value, &byte| value << 4 | digit(byte)))
            .collect(),
    )
}

fn from_decimal(text: &str) -> Option<Vec<u8>> {
    let good = !text.is_empty() && text.len() <= MAX_DECIMAL_DIGITS;
    if !good || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut out: Vec<u8> = Vec::new();
    for digit in text.bytes().map(|b| b - b'0') {
        let mut carry = u16::from(digit);
        for byte in &mut out {
            let value = u16::from(*byte) * 10 + carry;
            *byte = value as u8;
            carry = value >> 8;
        }
        if carry != 0 {
            out.push(carry as u8);
        }
    }
    Some(out)
}

impl fmt::Display for RegisterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        if self.0.is_empty() {
            f.write_str("0")?;
        }
        self.0
            .iter()
            .rev()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Register {
    /// Returns the size in bits: as written, or 32 (section 3.2.2), or the width of the value if
    /// that is larger.
    pub fn bits(&self) -> u32 {
        self.size
            .unwrap_or(32)
            .max((self.value.0.len() as u32).saturating_mul(8) & !7)
            .max(1)
    }
}

impl Device {
    /// Returns the first register with this name, compared exactly or else ignoring case.
    pub fn register(&self, name: &str) -> Option<&Register> {
        let exact = self.registers.iter().find(|r| r.name == name);
        exact.or_else(|| {
            let mut registers = self.registers.iter();
            registers.find(|r| r.name.eq_ignore_ascii_case(name))
        })
    }

    /// Finds a register of a CoreSight component: by the first of `names` that exists, else by its
    /// ID, the offset in words (section 3.2.2), else by its offset in bytes, which some
    /// hand-written files give as the ID. A byte offset is accepted only if it is too large for an
    /// ID, because `0x10` is both TRCCONFIGR's offset and TRCTRACEIDR's ID.
    pub fn component_register(&self, names: &[&str], id: u64) -> Option<&Register> {
        let by_id = |id| self.registers.iter().find(move |r| r.id == Some(id));
        names
            .iter()
            .find_map(|name| self.register(name))
            .or_else(|| by_id(id))
            .or_else(|| by_id(id.checked_mul(4).filter(|&bytes| bytes > LAST_ID)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_in_every_written_form() {
        for (key, name, id, size) in [
            ("REG_A(77)", "REG_A", Some(77), None),
            ("REG_B(id:78)", "REG_B", Some(78), None),
            ("REG_C(id:0x80,size:64)", "REG_C", Some(0x80), Some(64)),
            ("REG_D(size:64,0x82)", "REG_D", Some(0x82), Some(64)),
            ("TRCCONFIGR(0x004)", "TRCCONFIGR", Some(4), None),
            ("SP(size:64)", "SP", None, Some(64)),
            ("D1 ( 92 , size : 64 )", "D1", Some(92), Some(64)),
            ("R0", "R0", None, None),
            ("Q0(SIZE:128)", "Q0", None, Some(128)),
        ] {
            let parsed = parse_key(key);
            assert_eq!(
                (parsed.name.as_str(), parsed.id, parsed.size),
                (name, id, size)
            );
            assert!(parsed.odd.is_empty(), "{key}: {:?}", parsed.odd);
        }
        for key in [
            "R(x)",
            "R(id:)",
            "R(size:0)",
            "R(size:99999999)",
            "R(4",
            "R(id:4)x",
        ] {
            let parsed = parse_key(key);
            assert_eq!(parsed.name, "R");
            assert_eq!(parsed.odd.len(), 1, "{key}");
        }
    }

    #[test]
    fn values_of_any_width() {
        let value = |text, size| RegisterValue::parse(text, size);
        assert_eq!(value("0", Some(64)).unwrap().0, [0; 8]);
        assert_eq!(value("0x1C5", None).unwrap().0, [0xC5, 1, 0, 0]);
        assert_eq!(value("4294967296", None).unwrap().0, [0, 0, 0, 0, 1]);
        let wide = value("0x0123456789abcdef00112233445566778", Some(128)).unwrap();
        assert_eq!(
            wide.as_u128(),
            Some(0x1234_5678_9abc_def0_0112_2334_4556_6778)
        );
        assert_eq!(wide.as_u64(), None);
        let wide = value("0x12340000123400000", Some(64)).unwrap();
        assert_eq!((wide.0.len(), wide.significant_bits()), (9, 65));
        assert_eq!(wide.to_bytes(2), [0, 0]);
        // The ZA array of SME has up to 64 KiB.
        assert!(value("0", Some(MAX_BITS)).unwrap().0.len() <= 256);
        let high = format!("0x1{}", "0".repeat(600));
        assert_eq!(value(&high, Some(MAX_BITS)).unwrap().0.len(), 301);
        let most = u128::MAX.to_string();
        assert_eq!(value(&most, None).unwrap().as_u128(), Some(u128::MAX));
        assert_eq!(value("0x80;halt", None).unwrap().as_u64(), Some(0x80));
        for bad in ["", "0x", "0xZZ", "-1", "+1", "12a", "0x-1", "1_000"] {
            assert_eq!(value(bad, None), None, "{bad}");
        }
        assert_eq!(RegisterValue::from_u64(0x1C5, 4).to_string(), "0x000001c5");
        assert_eq!(RegisterValue(vec![]).to_string(), "0x0");
    }

    #[test]
    fn registers_by_name_then_id_then_byte_offset() {
        let register = |name: &str, id| Register {
            name: name.into(),
            id,
            ..Register::default()
        };
        let device = Device {
            registers: vec![
                register("trcconfigr", None),
                register("odd", Some(0xE80)),
                register("TRACEIDR", Some(0x10)),
            ],
            ..Device::default()
        };
        let name = |names: &[&str], id| Some(&*device.component_register(names, id)?.name);
        assert_eq!(name(&["TRCCONFIGR"], 4), Some("trcconfigr"));
        assert_eq!(name(&["TRCTRACEIDR"], 0x10), Some("TRACEIDR"));
        assert_eq!(name(&["ITMTCR", "ITM_CTRL"], 0x3A0), Some("odd"));
        assert_eq!(name(&["TRCIDR0"], 0x78), None);
        assert_eq!(name(&["X"], u64::MAX), None);
        assert_eq!(
            name(&["TRCTSCTLR"], 4),
            None,
            "0x10 is an ID, not an offset"
        );
    }

    proptest! {
        #[test]
        fn display_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 1..80)) {
            let value = RegisterValue(bytes);
            let size = Some(value.0.len() as u32 * 8);
            prop_assert_eq!(RegisterValue::parse(&value.to_string(), size), Some(value));
        }

        #[test]
        fn decimal_equals_the_number(number: u128) {
            let value = RegisterValue::parse(&number.to_string(), Some(128)).unwrap();
            prop_assert_eq!(value.as_u128(), Some(number));
        }

        #[test]
        fn any_key_is_taken_apart(key in ".{0,40}") {
            parse_key(&key);
        }
    }
}
