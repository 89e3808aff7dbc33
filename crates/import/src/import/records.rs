//! Intel HEX and Motorola S-records.

/// The size of a segment, at whose end offsets wrap to its start (Intel, Hexadecimal Object File
/// Format Specification, "Extended Segment Address Record").
const SEGMENT: u64 = 1 << 16;
/// The size of the linear address space, which wraps in the same way.
const LINEAR: u64 = 1 << 32;

/// The format of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Intel HEX.
    IntelHex,
    /// Motorola S-records.
    SRecords,
}

/// Returns the format of a file whose first non-empty line is a record: `:` or `S`, and hexadecimal
/// digits.
pub fn format(bytes: &[u8]) -> Option<Format> {
    let line = bytes[..bytes.len().min(2000)].trim_ascii_start();
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let (&first, rest) = line.split_first()?;
    let digits = rest.len() >= 8 && rest.iter().all(u8::is_ascii_hexdigit);
    match first {
        b':' if digits => Some(Format::IntelHex),
        b'S' if digits => Some(Format::SRecords),
        _ => None,
    }
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The memory: runs of bytes by address, with gaps between them. Where records overlap, the
    /// later one takes precedence, as if they were loaded in order.
    pub runs: Vec<(u64, Vec<u8>)>,
    /// The line of the end record. `None` if it is missing: the file may be cut short.
    pub end: Option<usize>,
    /// Whether there are lines after the end record.
    pub more: bool,
}

impl Records {
    /// Reads records, one per line, up to the end record.
    ///
    /// # Errors
    ///
    /// If a record is damaged; the error is its line, and what was expected.
    pub fn read(bytes: &[u8], format: Format) -> Result<Self, String> {
        let mut reader = Reader::default();
        let mut end = None;
        let mut more = false;
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            // Old tools pad the last block of a file.
            if line.iter().all(|byte| matches!(byte, 0 | 0x1A)) {
                continue;
            }
            if end.is_some() {
                more = true;
                break;
            }
            let is_end = match format {
                Format::IntelHex => reader.hex(line),
                Format::SRecords => reader.s_record(line),
            };
            if is_end.map_err(|text| format!("line {}: {text}", number + 1))? {
                end = Some(number + 1);
            }
        }
        let runs = runs(reader.data);
        Ok(Self { runs, end, more })
    }
}

/// Combines records in the order of the file into runs by address.
fn runs(records: Vec<(u64, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&index| records[index].0);
    let end = |index: usize| records[index].0 + records[index].1.len() as u64;
    let mut out = Vec::new();
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let start = records[first].0;
        let (mut last, mut count) = (end(first), 1);
        while let Some(&next) = rest.get(count).filter(|&&next| records[next].0 <= last) {
            last = last.max(end(next));
            count += 1;
        }
        let (run, after) = rest.split_at(count);
        rest = after;
        let mut run = run.to_vec();
        run.sort_unstable();
        let mut bytes = vec![0; (last - start) as usize];
        for index in run {
            let (address, data) = &records[index];
            let at = (address - start) as usize;
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        out.push((start, bytes));
    }
    out
}

/// The base of the address of a data record.
#[derive(Clone, Copy, Debug)]
enum Base {
    /// A 32-bit base address.
    Linear(u64),
    /// The start of a segment.
    Segment(u64),
}

impl Default for Base {
    fn default() -> Self {
        Self::Linear(0)
    }
}

/// The records read so far.
#[derive(Debug, Default)]
struct Reader {
    data: Vec<(u64, Vec<u8>)>,
    base: Base,
    /// The number of data records in a file of S-records.
    count: u64,
}

impl Reader {
    fn add(&mut self, address: u64, data: &[u8]) {
        if !data.is_empty() {
            self.data.push((address, data.to_owned()));
        }
    }

    /// Adds the data of an Intel HEX record, which may wrap to the start of its address space.
    fn add_to_base(&mut self, offset: u64, data: &[u8]) {
        let (base, offset, size) = match self.base {
            Base::Linear(base) => (0, (base + offset) % LINEAR, LINEAR),
            Base::Segment(base) => (base, offset, SEGMENT),
        };
        let before = data.len().min((size - offset) as usize);
        let (before, after) = data.split_at(before);
        self.add(base + offset, before);
        self.add(base, after);
    }

    /// `:` count, 16-bit address, type, data, checksum: the sum of all bytes is 0. Returns whether it
    /// is the end record.
    fn hex(&mut self, line: &[u8]) -> Result<bool, String> {
        let text = line
            .strip_prefix(b":")
            .ok_or("expected a record that starts with :")?;
        let bytes = digits(text)?;
        let [count, high, low, kind, rest @ ..] = &bytes[..] else {
            return Err("record cut short".to_owned());
        };
        let Some((checksum, data)) = rest.split_last() else {
            return Err("record cut short".to_owned());
        };
        if data.len() != usize::from(*count) {
            return Err(format!("{} bytes of data: expected {count}", data.len()));
        }
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        if sum != 0 {
            let wanted = checksum.wrapping_sub(sum);
            return Err(format!("checksum {checksum:02x}: expected {wanted:02x}"));
        }
        let wanted = match kind {
            0 => None,
            1 => Some(0),
            2 | 4 => Some(2),
            // The entry point, which is ignored.
            3 | 5 => Some(4),
            _ => return Err(format!("record of type {kind:02x}: expected 00 to 05")),
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != data.len()) {
            let found = data.len();
            return Err(format!(
                "record of type {kind:02x} with {found} bytes of data: expected {wanted}"
            ));
        }
        match kind {
            0 => self.add_to_base(u64::from(*high) << 8 | u64::from(*low), data),
            2 => self.base = Base::Segment(big_endian(data) << 4),
            4 => self.base = Base::Linear(big_endian(data) << 16),
            _ => {}
        }
        Ok(*kind == 1)
    }

    /// `S`, type, count, address of 2 to 4 bytes, data, checksum: the sum of all bytes is 0xFF.
    /// Returns whether it is the end record.
    fn s_record(&mut self, line: &[u8]) -> Result<bool, String> {
        let text = line
            .strip_prefix(b"S")
            .ok_or("expected a record that starts with S")?;
        let (&kind, text) = text.split_first().ok_or("record cut short")?;
        let bytes = digits(text)?;
        let (Some((&count, rest)), Some(checksum)) = (bytes.split_first(), bytes.last()) else {
            return Err("record cut short".to_owned());
        };
        if rest.len() != usize::from(count) {
            return Err(format!("{} bytes: expected {count}", rest.len()));
        }
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        if sum != 0xFF {
            let wanted = checksum.wrapping_sub(sum).wrapping_add(0xFF);
            return Err(format!("checksum {checksum:02x}: expected {wanted:02x}"));
        }
        let address_bytes = match kind {
            b'0' | b'1' | b'5' | b'9' => 2,
            b'2' | b'6' | b'8' => 3,
            b'3' | b'7' => 4,
            _ => {
                let kind = (kind as char).escape_default();
                return Err(format!("record S{kind}: expected S0 to S3 or S5 to S9"));
            }
        };
        let Some((address, data)) = rest.split_at_checked(address_bytes) else {
            return Err("record cut short".to_owned());
        };
        let address = big_endian(address);
        let Some((_checksum, data)) = data.split_last() else {
            return Err("record cut short".to_owned());
        };
        match kind {
            b'1'..=b'3' => {
                self.add(address, data);
                self.count += 1;
            }
            // The address is the number of data records, truncated to its size.
            b'5' | b'6' if address != self.count % (1 << (8 * address_bytes)) => {
                return Err(format!(
                    "S{} says that {address} data records precede it: found {}",
                    kind as char, self.count
                ));
            }
            _ => {}
        }
        Ok(matches!(kind, b'7'..=b'9'))
    }
}

/// Decodes pairs of hexadecimal digits.
fn digits(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pairs = text.chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.ok_or_else(|| "expected pairs of hexadecimal digits".to_owned())
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of Intel HEX.
    fn hex(address: u16, kind: u8, data: &[u8]) -> String {
        let [high, low] = address.to_be_bytes();
        let mut bytes = vec![data.len() as u8, high, low, kind];
        bytes.extend(data);
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        bytes.push(sum.wrapping_neg());
        let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        format!(":{digits}\r\n")
    }

    fn intel(text: &str) -> Result<Records, String> {
        Records::read(text.as_bytes(), Format::IntelHex)
    }

    fn motorola(text: &str) -> Result<Records, String> {
        Records::read(text.as_bytes(), Format::SRecords)
    }

    #[test]
    fn intel_hex_with_segments_and_linear_addresses() {
        let text = ":020000040800F2\r\n:0400100001020304E2\n:0200140005 06DF\n".replace(' ', "");
        let text = text + ":020000021000EC\n:01000000AA55\n:00000001FF\nrest";
        let read = intel(&text).unwrap();
        assert_eq!(
            read.runs,
            [
                (0x1_0000, vec![0xAA]),
                (0x0800_0010, vec![1, 2, 3, 4, 5, 6])
            ]
        );
        assert_eq!((read.end, read.more), (Some(6), true));
        let wrong = intel(":0400100001020304E3\n").unwrap_err();
        assert_eq!(wrong, "line 1: checksum e3: expected e2");
        assert!(intel(":0400\n").is_err());
        let wrong = intel(":05001000010203E5\n").unwrap_err();
        assert!(wrong.contains("expected 5"), "{wrong}");
        let wrong = intel(&hex(0, 4, &[1])).unwrap_err();
        assert!(wrong.contains("1 bytes of data: expected 2"), "{wrong}");
        let wrong = intel(&hex(0, 6, &[])).unwrap_err();
        assert!(wrong.contains("type 06"), "{wrong}");
    }

    #[test]
    fn later_records_replace_parts_of_earlier_ones() {
        let text = hex(0x100, 0, &[1; 16]) + &hex(0x110, 0, &[2; 4]);
        let text = text + &hex(0x100, 0, &[3; 2]) + &hex(0x10E, 0, &[4; 4]) + &hex(0, 1, &[]);
        let read = intel(&text).unwrap();
        let bytes = [&[3; 2][..], &[1; 12], &[4; 4], &[2; 2]].concat();
        assert_eq!(read.runs, [(0x100, bytes)]);
        assert_eq!((read.end, read.more), (Some(5), false));
    }

    #[test]
    fn records_in_any_order_are_one_run() {
        let places = [0x30_u16, 0x20, 0x00, 0x10];
        let text: String = places.map(|at| hex(at, 0, &[at as u8; 16])).concat();
        let read = intel(&text).unwrap();
        let bytes = [[0x00; 16], [0x10; 16], [0x20; 16], [0x30; 16]].concat();
        assert_eq!(read.runs, [(0, bytes)]);
        assert_eq!(read.end, None);
    }

    #[test]
    fn offsets_wrap_in_their_segment_and_in_32_bits() {
        let segment = hex(0, 2, &[0x10, 0]) + &hex(0xFFFE, 0, &[1, 2, 3, 4]);
        assert_eq!(
            intel(&segment).unwrap().runs,
            [(0x1_0000, vec![3, 4]), (0x1_FFFE, vec![1, 2])]
        );
        let linear = hex(0, 4, &[0, 1]) + &hex(0xFFFE, 0, &[1, 2, 3, 4]);
        assert_eq!(intel(&linear).unwrap().runs, [(0x1_FFFE, vec![1, 2, 3, 4])]);
        let top = hex(0, 4, &[0xFF, 0xFF]) + &hex(0xFFFE, 0, &[1, 2, 3, 4]);
        assert_eq!(
            intel(&top).unwrap().runs,
            [(0, vec![3, 4]), (0xFFFF_FFFE, vec![1, 2])]
        );
    }

    #[test]
    fn s_records_of_all_lengths() {
        let text =
            "S00600004844521B\nS1051000AABB85\nS205010000CC2D\nS30620000000DDFC\nS9030000FC\n\x1A";
        let read = motorola(text).unwrap();
        assert_eq!(
            read.runs,
            [
                (0x1000, vec![0xAA, 0xBB]),
                (0x1_0000, vec![0xCC]),
                (0x2000_0000, vec![0xDD])
            ]
        );
        assert_eq!((read.end, read.more), (Some(5), false));
        let wrong = motorola("S1051000AABB86\n").unwrap_err();
        assert!(wrong.contains("expected 85"), "{wrong}");
        for (line, kind) in [("SX051000AABB85\n", "SX"), ("S4051000AABB85\n", "S4")] {
            assert!(motorola(line).unwrap_err().contains(kind));
        }
    }

    #[test]
    fn s_records_are_counted() {
        assert!(motorola("S1051000AABB85\nS5030001FB\n").is_ok());
        let wrong = motorola("S1051000AABB85\nS5030002FA\n").unwrap_err();
        assert_eq!(
            wrong,
            "line 2: S5 says that 2 data records precede it: found 1"
        );
    }

    #[test]
    fn what_is_no_record_is_raw() {
        assert_eq!(format(b":0400100001020304E2\n"), Some(Format::IntelHex));
        assert_eq!(format(b"\r\n\nS1051000AABB85\n"), Some(Format::SRecords));
        assert_eq!(format(b"S\0\x01"), None);
        assert_eq!(format(b""), None);
    }
}
