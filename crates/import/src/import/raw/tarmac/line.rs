//! A line of a Tarmac trace: an executed instruction, a register, an access to memory, an exception.
//!
//! The lines are those of Fast Models' plugin and of gem5 (`IT`, `R`, `MW4`), and of RTL and Cycle
//! Models (`ES`, `LD`, `ST`), as Arm's Tarmac Trace Utilities document them.

use armsnap_arch::quantity::Isa;

/// Units of times.
const UNITS: [&str; 7] = ["clk", "ns", "cs", "cyc", "tic", "ps", "us"];

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An instruction was executed, or failed its condition.
    Executed(Executed<'a>),
    /// The name of a register, the bank after it, and the value; `None` if not all of it is known.
    Register(&'a str, &'a str, Option<u128>),
    /// An access to memory.
    Memory(Access),
    /// An exception.
    Exception(&'a str),
    /// Something that precedes an exception, or a change of the mode alone.
    Change,
    /// Something else.
    Other,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed<'a> {
    /// Its address.
    pub address: u64,
    /// Its bytes, in the order of memory, as a number.
    pub word: u32,
    /// Its size in bytes.
    pub size: u8,
    /// Its instruction set.
    pub isa: Isa,
    /// The mode of the core, such as `svc_s` or `EL3h_n`.
    pub mode: &'a str,
}

/// An access to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether it is a store.
    pub store: bool,
    /// The address of the first byte.
    pub address: u64,
    /// The bytes; unknown ones are `None`.
    pub bytes: Vec<Option<u8>>,
}

/// The core of a line, by its number, and what it says; `None` if it is no line of a trace.
/// `continues` is whether the line before was a load (`false`) or store (`true`) of the form that
/// further lines continue.
pub fn read(line: &str, continues: Option<bool>) -> Option<(u32, Event<'_>)> {
    let mut words = line.split_whitespace().peekable();
    if let Some(store) = continues
        && let Some(access) = block(&mut words.clone(), store)
    {
        return Some((0, Event::Memory(access)));
    }
    let first = *words.peek()?;
    if first.starts_with(|first: char| first.is_ascii_digit()) {
        words.next();
        let digits = first.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let is_time = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let unit = &first[digits.len()..];
        if !is_time || !unit.is_empty() && !UNITS.contains(&unit) {
            return None;
        }
        words.next_if(|word| unit.is_empty() && UNITS.contains(word));
    } else if !line.starts_with([' ', '\t']) {
        // Lines of RTL continue the one before, and are indented.
        return first.starts_with("Tarmac").then_some((0, Event::Other));
    }
    let core = match words.next_if(|word| word.starts_with("cpu")) {
        Some("cpu") => 0,
        // One of another form is another core, of which only the number is not known.
        Some(name) => name[3..].parse().ok()?,
        None => 0,
    };
    let kind = words.next()?;
    let event = match kind {
        "IT" | "IS" | "IF" => model_instruction(&mut words)?,
        "ES" => rtl_instruction(&mut words)?,
        "R" => register(&mut words)?,
        "LD" | "ST" => Event::Memory(block(&mut words, kind == "ST")?),
        "E" | "EXC" => {
            let text = words.find(|word| word.starts_with("CoreEvent_"));
            match text {
                Some("CoreEvent_ModeChange") => Event::Change,
                Some(text) => Event::Exception(text),
                None if kind == "EXC" => Event::Exception(""),
                // `DebugEvent_HaltingDebugState`.
                None => Event::Other,
            }
        }
        // `CADI`, `CACHE`, `TTW`, `BR`, `SIGNAL:` and those of other tools.
        _ if kind
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || b"_:".contains(&byte)) =>
        {
            Event::Other
        }
        _ => memory(kind, &mut words)?,
    };
    Some((core, event))
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn hex(digits: &str) -> Option<u64> {
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

fn isa(word: &str) -> Option<Isa> {
    Some(match word {
        "A" => Isa::A32,
        "T" | "T16" | "T32" => Isa::T32,
        "O" => Isa::A64,
        _ => return None,
    })
}

/// `(index) address opcode set mode : text`, or `(address) opcode set …`.
fn model_instruction<'a>(words: &mut Words<'a>) -> Option<Event<'a>> {
    let bracket = words.next_if(|word| word.starts_with('('));
    let bracket = bracket.map(|word| word.trim_matches(['(', ')']));
    let (first, second) = (words.next()?, words.next()?);
    let (address, opcode, set) = match isa(second) {
        Some(set) => (bracket?, first, set),
        None => (first, second, isa(words.next()?)?),
    };
    // A physical address may follow.
    let address = address.split(':').next()?;
    instruction(hex(address)?, opcode, set, words.next().unwrap_or_default())
}

/// `(address:opcode) set mode: text`, or `EXC …`.
fn rtl_instruction<'a>(words: &mut Words<'a>) -> Option<Event<'a>> {
    let place = words.next()?;
    if matches!(place, "EXC" | "Reset") {
        return Some(Event::Exception(""));
    }
    let (address, opcode) = place
        .strip_prefix('(')?
        .strip_suffix(')')?
        .split_once(':')?;
    let set = isa(words.next()?)?;
    instruction(hex(address)?, opcode, set, words.next().unwrap_or_default())
}

fn instruction<'a>(address: u64, opcode: &str, isa: Isa, mode: &'a str) -> Option<Event<'a>> {
    let value = u32::try_from(hex(opcode)?).ok()?;
    let (word, size) = match (opcode.len(), isa) {
        (8, Isa::T32) => (value.rotate_right(16), 4),
        (8, _) => (value, 4),
        (4, Isa::T32) => (value, 2),
        _ => return None,
    };
    let mode = mode.trim_end_matches(':');
    Some(Event::Executed(Executed {
        address,
        word,
        size,
        isa,
        mode,
    }))
}

/// `name value`, where the value may be in several words.
fn register<'a>(words: &mut Words<'a>) -> Option<Event<'a>> {
    let name = words.next()?;
    // `R13 (USR)` is of a bank.
    let bank = words.next_if(|word| word.starts_with('('));
    let bank = bank.map_or("", |word| word.trim_matches(['(', ')']));
    let first = words.next()?;
    let digits: String = first.chars().filter(|c| !matches!(c, '_' | ':')).collect();
    let value = match hex_of_any_length(&digits) {
        // Vectors may be in two words.
        Some(value) if digits.len() == 16 && is_vector(name) => {
            let second = words.next().map(|word| word.replace('_', ""));
            let second = second.filter(|word| word.len() == 16);
            second.and_then(|low| Some(value << 64 | hex_of_any_length(&low)?))
        }
        value => value,
    };
    Some(Event::Register(name, bank, value))
}

fn is_vector(name: &str) -> bool {
    name.starts_with(['V', 'v', 'Q', 'q'])
}

fn hex_of_any_length(digits: &str) -> Option<u128> {
    let is_hex = (1..=32).contains(&digits.len());
    let is_hex = is_hex && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u128::from_str_radix(digits, 16).ok())
        .flatten()
}

/// `MW4 address[:physical] value`; the value is a number of this size.
fn memory<'a>(kind: &str, words: &mut Words<'a>) -> Option<Event<'a>> {
    let letters = kind.strip_prefix('M').unwrap_or(kind);
    let store = match letters.as_bytes().first()? {
        b'R' => false,
        b'W' => true,
        _ => return None,
    };
    let digits = letters[1..].trim_end_matches(|c: char| c.is_ascii_uppercase());
    let size: usize = digits.parse().ok()?;
    words.next_if(|word| *word == "X");
    let address = words.next()?.split(':').next()?;
    let address = hex(address)?;
    let value: String = words
        .take(2)
        .flat_map(str::chars)
        .filter(|c| *c != '_')
        .collect();
    if !matches!(size, 1 | 2 | 4 | 8 | 16) {
        return None;
    }
    let value = hex_of_any_length(&value).filter(|_| value.len() == 2 * size);
    let bytes = match value {
        Some(value) => value.to_le_bytes()[..size]
            .iter()
            .copied()
            .map(Some)
            .collect(),
        // Aborted, or not known.
        None => vec![None; size],
    };
    Some(Event::Memory(Access {
        store,
        address,
        bytes,
    }))
}

/// `address` and 16 bytes, that of the highest address first: `..` is not accessed, `##` not known.
fn block(words: &mut Words<'_>, store: bool) -> Option<Access> {
    let base = words.next()?;
    let base = hex(base).filter(|_| matches!(base.len(), 8 | 16))?;
    let mut bytes = Vec::new();
    while bytes.len() < 16 {
        let word = words.next()?.as_bytes();
        for pair in word.chunks(2) {
            bytes.push(match pair {
                b".." => None,
                b"##" => Some(None),
                _ => Some(Some(hex(std::str::from_utf8(pair).ok()?)? as u8)),
            });
        }
    }
    bytes.truncate(16);
    bytes.reverse();
    let first = bytes.iter().position(Option::is_some)?;
    let last = bytes.iter().rposition(Option::is_some)?;
    let accessed = &bytes[first..=last];
    Some(Access {
        store,
        address: base.checked_add(first as u64)?,
        bytes: accessed.iter().map(|byte| byte.flatten()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(line: &str) -> (u64, u32, u8, Isa, String) {
        match read(line, None) {
            Some((_, Event::Executed(found))) => {
                let mode = found.mode.to_owned();
                (found.address, found.word, found.size, found.isa, mode)
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn instructions() {
        for (line, address, word, size, isa, mode) in [
            (
                "0 clk IT (0) 00008000 fa000000 A svc_s : BLX {pc}+8",
                0x8000,
                0xfa00_0000,
                4,
                Isa::A32,
                "svc_s",
            ),
            (
                "12 clk IS (12) 0000802c 1afb T svc_s : SUBNE r3,r7,r3",
                0x802c,
                0x1afb,
                2,
                Isa::T32,
                "svc_s",
            ),
            (
                "3 clk cpu1 IT (3) 0000800a:00000000800a_NS,00000000800c_NS e8900c00 T hyp_n : LDM",
                0x800a,
                0x0c00_e890,
                4,
                Isa::T32,
                "hyp_n",
            ),
            (
                "   41000 ns  ES  (0000000000000004:d3483c20) O el3h_s:         UBFX     x0,x1",
                4,
                0xd348_3c20,
                4,
                Isa::A64,
                "el3h_s",
            ),
            (
                "5 cyc IT (00000100) d503201f O EL1h_n : NOP",
                0x100,
                0xd503_201f,
                4,
                Isa::A64,
                "EL1h_n",
            ),
        ] {
            let wanted = (address, word, size, isa, mode.to_owned());
            assert_eq!(executed(line), wanted, "{line}");
        }
    }

    #[test]
    fn registers_and_memory() {
        let value = |line: &str| match read(line, None) {
            Some((_, Event::Register(name, bank, value))) => (format!("{name}{bank}"), value),
            other => panic!("{line}: {other:?}"),
        };
        let is = |name: &str, value| (name.to_owned(), value);
        assert_eq!(value("9 clk R r0 0000ab34"), is("r0", Some(0xab34)));
        assert_eq!(value("  R R1 (USR) 00000800"), is("R1USR", Some(0x800)));
        let line = "1 clk R V0 0000000000000001 0000000000000002";
        assert_eq!(value(line), is("V0", Some(1 << 64 | 2)));
        assert_eq!(value("1 clk R X0 --------00000000"), is("X0", None));
        let access = |line: &str| match read(line, None) {
            Some((_, Event::Memory(access))) => access,
            other => panic!("{line}: {other:?}"),
        };
        let found = access("4 clk MW8 000fffe8:0000000fffe8 00000000_002105e0");
        assert_eq!((found.store, found.address), (true, 0xf_ffe8));
        assert_eq!(found.bytes[..3], [Some(0xe0), Some(0x05), Some(0x21)]);
        let found = access("4 clk MR16 400171e0 400f731b40000000 3ff87cc460000001");
        assert_eq!((found.bytes.len(), found.bytes[0]), (16, Some(1)));
        assert_eq!(found.bytes[15], Some(0x40));
        assert_eq!(access("1 clk MR4 dfdfdfcf (ABORTED)").bytes, [None; 4]);
        let line = "   LD 00000370  ........ ......48 ........ ........     0000000370    NM ISH";
        let found = access(line);
        let wanted = Access {
            store: false,
            address: 0x378,
            bytes: vec![Some(0x48)],
        };
        assert_eq!(found, wanted);
        let next = "      00000380  ........ ........ ........ ......49     0000000380    NM ISH";
        let found = read(next, Some(false));
        assert!(matches!(found, Some((0, Event::Memory(access))) if access.address == 0x380));
        assert_eq!(read("Jun 1 12:00 board kernel: R r0 00000000", None), None);
        let signal = "0 clk SIGNAL: SIGNAL=DebugReset STATE=N";
        assert_eq!(read(signal, None), Some((0, Event::Other)));
        assert_eq!(read("0 clk cpu_1 R r0 00000000", None), None);
        assert_eq!(read("12 apples R r0 00000000", None), None);
    }
}
