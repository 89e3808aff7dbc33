//! Lists of registers as debuggers print them, beside dumps of memory: OpenOCD (`reg`), pyOCD
//! (`reg`), J-Link Commander (`regs`), GDB (`info registers`), QEMU's monitor, and other text with
//! `NAME = VALUE`.

use armsnap_snapshot::snapshot::model::{Register, RegisterValue};
use std::collections::BTreeMap;

/// The number of bytes of a file that are read, and the longest line that is looked at.
const READ: usize = 4 << 20;
const LONGEST_LINE: usize = 1024;
/// The least number of registers of a list, and not of a line that says where the core halted.
const LEAST: usize = 8;
/// The bits of CPSR with the mode.
const MODE: u128 = 0x1f;

/// The architecture of a list of registers, as far as their names tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// AArch64.
    Wide,
    /// A microcontroller.
    Micro,
    /// AArch32, or a microcontroller whose list has no register of its own.
    Narrow,
}

/// A list of registers.
#[derive(Clone, Debug)]
pub struct List {
    /// The architecture.
    pub kind: Kind,
    /// The registers.
    pub registers: Vec<Register>,
}

impl List {
    /// Reads the last list in a text; `None` if there is none. A session may list them several
    /// times: the last is that of the state when its memory was saved.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (mut last, mut list) = (BTreeMap::new(), BTreeMap::new());
        // What the lines just before repeated of the list: the start of another one.
        let mut again = BTreeMap::new();
        for line in bytes[..bytes.len().min(READ)].split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
            let values = values(&line);
            if values.is_empty() {
                again.clear();
            }
            for (name, value) in values {
                // Another value is that of another list.
                if list.get(&name).is_some_and(|known| *known != value) {
                    let ended = std::mem::replace(&mut list, std::mem::take(&mut again));
                    if ended.len() >= LEAST {
                        last = ended;
                    }
                }
                if list.insert(name.clone(), value).is_some() {
                    again.insert(name, value);
                }
            }
        }
        let is_whole = list.len() >= LEAST || last.is_empty();
        Self::of(if is_whole { list } else { last }, None)
    }

    /// A list of values by the names in snapshots; `None` if there are none. `kind` is the
    /// architecture, if the names need not tell it.
    pub fn of(mut values: BTreeMap<String, u128>, kind: Option<Kind>) -> Option<Self> {
        let has = |name: &str| values.contains_key(name);
        let is_wide = (0..31).any(|number| has(&format!("X{number}")));
        let micro = ["xPSR", "MSP", "PSP", "PRIMASK", "BASEPRI", "FAULTMASK"];
        let told = match is_wide {
            true => Kind::Wide,
            false if micro.into_iter().any(has) => Kind::Micro,
            false => Kind::Narrow,
        };
        let kind = kind.unwrap_or(told);
        if kind == Kind::Wide
            && let Some(link) = values.remove("LR")
        {
            values.entry("X30".to_owned()).or_insert(link);
        }
        banked(&mut values);
        let has_doubles = values
            .keys()
            .any(|name| size(name, kind) == Some(Size::Double));
        let registers = values.iter().filter_map(|(name, value)| {
            let size = size(name, kind)?;
            if size == Size::Single && has_doubles {
                return None;
            }
            let bytes = value.to_le_bytes();
            let (low, high) = bytes.split_at(size.bytes());
            high.iter().all(|byte| *byte == 0).then(|| Register {
                name: name.clone(),
                size: Some(8 * size.bytes() as u32),
                value: RegisterValue(low.to_vec()),
                ..Register::default()
            })
        });
        let registers: Vec<Register> = registers.collect();
        (!registers.is_empty()).then_some(Self { kind, registers })
    }
}

/// The size of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Word,
    Long,
    Single,
    Double,
    Quad,
}

impl Size {
    const fn bytes(self) -> usize {
        match self {
            Self::Word | Self::Single => 4,
            Self::Long | Self::Double => 8,
            Self::Quad => 16,
        }
    }
}

/// The size of a register by its name; `None` if the architecture has none of this name.
fn size(name: &str, kind: Kind) -> Option<Size> {
    let wide = kind == Kind::Wide;
    Some(match name {
        "PC" | "SP" if wide => Size::Long,
        "PC" | "SP" | "LR" | "CPSR" | "FPSCR" => Size::Word,
        "FPSR" | "FPCR" if wide => Size::Word,
        "xPSR" | "MSP" | "PSP" | "CONTROL" | "PRIMASK" | "BASEPRI" | "FAULTMASK"
            if kind == Kind::Micro =>
        {
            Size::Word
        }
        _ if name.contains('_') && wide => Size::Long,
        _ => match (name.as_bytes()[0], wide) {
            (b'X', true) => Size::Long,
            (b'V', true) => Size::Quad,
            (b'R', false) => Size::Word,
            (b'D', false) => Size::Double,
            (b'S', false) if name.as_bytes()[1].is_ascii_digit() => Size::Single,
            _ => return None,
        },
    })
}

/// Replaces the banked registers of AArch32 by those of the mode in which the core was.
fn banked(values: &mut BTreeMap<String, u128>) {
    let mode = values.get("CPSR").map(|state| state & MODE);
    let bank = match mode {
        Some(0x10 | 0x1f) => "USR",
        Some(0x11) => "FIQ",
        Some(0x12) => "IRQ",
        Some(0x13) => "SVC",
        Some(0x16) => "MON",
        Some(0x17) => "ABT",
        Some(0x1a) => "HYP",
        Some(0x1b) => "UND",
        _ => "",
    };
    let is_banked = |name: &str| {
        let bank = name.rsplit('_').next().unwrap_or_default();
        BANKS.contains(&bank) && name.contains('_')
    };
    let all: Vec<String> = values
        .keys()
        .filter(|name| is_banked(name))
        .cloned()
        .collect();
    for name in all {
        let value = values.remove(&name);
        let own = name
            .strip_suffix(bank)
            .and_then(|name| name.strip_suffix('_'));
        if let (Some(own), Some(value), false) = (own, value, bank.is_empty()) {
            values.insert(own.to_owned(), value);
        }
    }
}

/// The banks of registers of AArch32.
pub const BANKS: [&str; 8] = ["USR", "FIQ", "IRQ", "SVC", "MON", "ABT", "HYP", "UND"];

/// The registers in a line, by the names in snapshots.
fn values(line: &str) -> Vec<(String, u128)> {
    let trimmed = line.trim();
    // The banks of other modes, as J-Link lists them.
    if trimmed.get(3..4) == Some(":") && BANKS.contains(&&trimmed[..3]) {
        return Vec::new();
    }
    if let Some((name, rest)) = trimmed.split_once(char::is_whitespace)
        && let Some(found) = name_of(name)
        && let Some(value) = of_gdb(rest.trim_start())
    {
        return vec![(found, value)];
    }
    pairs(trimmed.as_bytes())
}

/// The value in a line of GDB, after the name of the register.
fn of_gdb(rest: &str) -> Option<u128> {
    if rest.starts_with("0x") {
        return hex(rest).map(|(value, _)| value);
    }
    // A vector: its whole; a floating-point number: its bits.
    let marks = match rest.starts_with('{') {
        true => &["u64 = ", "u = {"][..],
        false => &["(raw "],
    };
    let at = marks
        .iter()
        .find_map(|mark| Some(rest.rfind(mark)? + mark.len()));
    hex(rest.get(at?..)?).map(|(value, _)| value)
}

/// A number with `0x`, and its length.
fn hex(text: &str) -> Option<(u128, usize)> {
    let digits = text.strip_prefix("0x")?;
    let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    let value = u128::from_str_radix(&digits[..length], 16).ok()?;
    Some((value, length + 2))
}

/// `r0 (/32): 0x1`, `R0 = 00000001`, `SP(R13)= 20000400`, `PC: (R15) = 0`, `r15/pc): 0x8000`.
fn pairs(line: &[u8]) -> Vec<(String, u128)> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word = |from: usize| line[from..].iter().take_while(|byte| is_word(byte)).count();
    let mut out = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let length = word(at);
        if length == 0 {
            at += 1;
            continue;
        }
        let name = std::str::from_utf8(&line[at..at + length]).unwrap_or_default();
        at += length;
        let Some(name) = name_of(name) else {
            continue;
        };
        if let Some((value, end)) = value(line, at) {
            out.push((name, value));
            at = end;
        }
    }
    out
}

/// The value after a name that ends at `at`, and where it ends.
fn value(line: &[u8], mut at: usize) -> Option<(u128, usize)> {
    let (mut colon, mut equals, mut group) = (false, false, false);
    loop {
        match *line.get(at)? {
            b' ' | b'\t' => at += 1,
            b')' if !group => (group, at) = (true, at + 1),
            b':' if !colon && !equals => (colon, at) = (true, at + 1),
            b'=' if !equals => (equals, at) = (true, at + 1),
            b'(' if !group && !equals => {
                let length = line[at..].iter().take(12).position(|byte| *byte == b')')?;
                (group, at) = (true, at + length + 1);
            }
            // Another name of the same register.
            b'/' if !group && !colon && !equals => {
                let rest = &line[at + 1..];
                at += 1 + rest
                    .iter()
                    .take_while(|byte| byte.is_ascii_alphanumeric())
                    .count();
            }
            _ => break,
        }
    }
    let has_prefix = line[at..].starts_with(b"0x") || line[at..].starts_with(b"0X");
    if !(colon && has_prefix || equals) {
        return None;
    }
    let begin = at + if has_prefix { 2 } else { 0 };
    let digits = &line[begin..];
    let length = digits
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let ends = digits
        .get(length)
        .is_none_or(|byte| !byte.is_ascii_alphanumeric());
    let digits = std::str::from_utf8(&digits[..length]).ok()?;
    let value = u128::from_str_radix(digits, 16).ok()?;
    ends.then_some((value, begin + length))
}

/// The name of a register in snapshots; `None` if it is not one.
pub fn name_of(printed: &str) -> Option<String> {
    if printed.len() > 16 || !printed.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let upper = printed.to_ascii_uppercase();
    let plain = |name: &str| Some(name.to_owned());
    match &*upper {
        "PC" | "SP" | "LR" | "MSP" | "PSP" | "CONTROL" | "PRIMASK" | "BASEPRI" | "FAULTMASK"
        | "CPSR" | "FPSCR" | "FPSR" | "FPCR" => return Some(upper),
        "XPSR" => return plain("xPSR"),
        "PSTATE" | "PSR" => return plain("CPSR"),
        "SL" => return plain("R10"),
        "IP" => return plain("R12"),
        "R13" => return plain("SP"),
        "R14" => return plain("LR"),
        "R15" => return plain("PC"),
        _ => {}
    }
    if let Some((base, bank)) = upper.rsplit_once('_') {
        let is_level = matches!(bank, "EL0" | "EL1" | "EL2" | "EL3");
        if is_level && base.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Some(upper);
        }
        let own = BANKS.contains(&bank).then(|| name_of(base)).flatten()?;
        return Some(format!("{own}_{bank}"));
    }
    let (letters, most) = match upper.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "X" => ("X", 30),
        "R" => ("R", 12),
        "V" => ("V", 31),
        "D" => ("D", 31),
        "S" => ("S", 31),
        // J-Link's name of S0.
        "FPS" => ("S", 31),
        _ => return None,
    };
    let digits = upper.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let number: u32 = digits.parse().ok()?;
    (number <= most && digits.len() <= 2).then(|| format!("{letters}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Kind, Vec<(String, u64, u32)>) {
        let list = List::read(text.as_bytes()).unwrap();
        let registers = list.registers.into_iter().map(|register| {
            let value = register.value.as_u64().unwrap_or(u64::MAX);
            (register.name, value, register.size.unwrap())
        });
        (list.kind, registers.collect())
    }

    #[track_caller]
    fn holds(text: &str, kind: Kind, wanted: &[(&str, u64, u32)]) {
        let (found, registers) = read(text);
        assert_eq!(found, kind, "{registers:?}");
        for (name, value, size) in wanted {
            let register = registers.iter().find(|(known, ..)| known == name);
            assert_eq!(register, Some(&((*name).to_owned(), *value, *size)));
        }
        assert_eq!(registers.len(), wanted.len(), "{registers:?}");
    }

    #[test]
    fn lists_of_debuggers() {
        let openocd = "> halt\n[chip.cpu] halted due to debug-request, current mode: Thread\n\
            xPSR: 0x61000000 pc: 0x00011434 msp: 0x200022a8\n> reg\n===== arm v7m registers\n\
            (0) r0 (/32): 0x20000093\n(1) r1 (/32): 0x0000003B (dirty)\n(2) r2 (/32)\n\
            (3) r3 (/32): 0x3\n(13) sp (/32): 0x200022A8\n(15) pc (/32): 0x00011434\n\
            (16) xPSR (/32): 0x61000000\n(17) msp (/32): 0x200022A8\n(20) primask (/1): 0x00\n\
            (23) control (/3): 0x02\n(42) d0 (/64): 0x4000000000000001\n\
            ===== Cortex-M DWT registers\n(60) dwt_ctrl (/32)\n";
        holds(
            openocd,
            Kind::Micro,
            &[
                ("R0", 0x2000_0093, 32),
                ("R1", 0x3b, 32),
                ("R3", 3, 32),
                ("SP", 0x2000_22a8, 32),
                ("PC", 0x1_1434, 32),
                ("xPSR", 0x6100_0000, 32),
                ("MSP", 0x2000_22a8, 32),
                ("PRIMASK", 0, 32),
                ("CONTROL", 2, 32),
                ("D0", 0x4000_0000_0000_0001, 64),
            ],
        );
        let jlink = "J-Link>regs\nPC = 0000046A, CycleCnt = 035D0347\n\
            R0 = 11111111, R1 = 0001100F, R10= 40000000, R11= FFFFFFFE\nR12= E0001000\n\
            SP(R13)= 20100CB0, MSP= 20100CB0, PSP= 00000000, R14(LR) = 0000036D\n\
            XPSR = 01000000: APSR = nzcvq, EPSR = 01000000, IPSR = 000 (NoException)\n\
            CFBP = 02000001, CONTROL = 02, FAULTMASK = 00, BASEPRI = 00, PRIMASK = 01\n\n\
            FPS0 = 3EAB5CE1, FPS10= 00000000\nFPSCR= 02000000\n";
        holds(
            jlink,
            Kind::Micro,
            &[
                ("PC", 0x46a, 32),
                ("R0", 0x1111_1111, 32),
                ("R1", 0x1_100f, 32),
                ("R10", 0x4000_0000, 32),
                ("R11", 0xffff_fffe, 32),
                ("R12", 0xe000_1000, 32),
                ("SP", 0x2010_0cb0, 32),
                ("MSP", 0x2010_0cb0, 32),
                ("PSP", 0, 32),
                ("LR", 0x36d, 32),
                ("xPSR", 0x0100_0000, 32),
                ("CONTROL", 2, 32),
                ("FAULTMASK", 0, 32),
                ("BASEPRI", 0, 32),
                ("PRIMASK", 1, 32),
                ("S0", 0x3eab_5ce1, 32),
                ("S10", 0, 32),
                ("FPSCR", 0x0200_0000, 32),
            ],
        );
        let gdb = "x0             0x1                 1\nx30            0xffff  65535\n\
            sp             0x7fd37b1fd0        0x7fd37b1fd0\n\
            pc             0x400600            0x400600 <main+4>\n\
            cpsr           0x60001000          [ EL=0 BTYPE=0 SSBS C Z ]\n\
            v0             {d = {f = {0x0}, u = {0x9, 0x0}}, q = {u = {0x9}, s = {0x9}}}\n\
            v1             <unavailable>\nfpsr           0x0                 [ ]\n";
        holds(
            gdb,
            Kind::Wide,
            &[
                ("X0", 1, 64),
                ("X30", 0xffff, 64),
                ("SP", 0x7f_d37b_1fd0, 64),
                ("PC", 0x40_0600, 64),
                ("CPSR", 0x6000_1000, 32),
                ("V0", 9, 128),
                ("FPSR", 0, 32),
            ],
        );
        let gdb = "r0  0x1  1\nd0  {u8 = {0x1, 0x2}, u32 = {0x1, 0x0}, u64 = 0x201, f64 = 0}\n\
            s0             7.18e-43 (raw 0x00000201)\n";
        holds(gdb, Kind::Narrow, &[("R0", 1, 32), ("D0", 0x201, 64)]);
        let qemu = "R00=00000001 R01=00000002 R13=20000fd0\nR14=00000067 R15=0000004c\n\
            XPSR=61000000 -ZC- T priv-thread\n";
        holds(
            qemu,
            Kind::Micro,
            &[
                ("R0", 1, 32),
                ("R1", 2, 32),
                ("SP", 0x2000_0fd0, 32),
                ("LR", 0x67, 32),
                ("PC", 0x4c, 32),
                ("xPSR", 0x6100_0000, 32),
            ],
        );
        let zephyr = "E: r0/a1:  0x00000001  r1/a2:  0x00000002  r14/lr:  0x000000ab\n\
            E:  xpsr:  0x61000000\nE: Faulting instruction address (r15/pc): 0x000001b2\n";
        holds(
            zephyr,
            Kind::Micro,
            &[
                ("R0", 1, 32),
                ("R1", 2, 32),
                ("LR", 0xab, 32),
                ("xPSR", 0x6100_0000, 32),
                ("PC", 0x1b2, 32),
            ],
        );
    }

    #[test]
    fn banked_registers_are_those_of_the_mode() {
        let list = |mode: &str| {
            format!(
                "(0) r0 (/32): 0x1\n(8) r8 (/32): 0x8\n(13) sp_usr (/32): 0x10\n\
                 (14) lr_usr (/32): 0x11\n(20) r8_fiq (/32): 0x88\n(21) sp_fiq (/32): 0x20\n\
                 (22) sp_svc (/32): 0x30\n(31) cpsr (/32): 0x600001{mode}\n"
            )
        };
        for (mode, r8, sp) in [("10", 8, 0x10), ("d1", 0x88, 0x20), ("d3", 8, 0x30)] {
            let (_, found) = read(&list(mode));
            let value = |name: &str| found.iter().find(|(known, ..)| known == name).unwrap().1;
            assert_eq!((value("R8"), value("SP")), (r8, sp), "{mode}");
            assert!(found.iter().all(|(name, ..)| !name.contains('_')));
        }
        let jlink = "PC: (R15) = 00000100, CPSR = 000001D3 (SVC mode, ARM FIQ dis. IRQ dis.)\n\
            Current:\n     R0 =00000001, R13=00000030\nUSR: R8 =00000009, R13=00000010\n";
        let (_, found) = read(jlink);
        assert!(found.contains(&("SP".to_owned(), 0x30, 32)), "{found:?}");
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn the_last_list_of_a_session_is_used() {
        let list = |pc: u32, r0: u32| {
            let more: String = (2..9).map(|n| format!("R{n} = 00000000, ")).collect();
            format!("PC = {pc:08X}, CycleCnt = 0\nR0 = {r0:08X}, R1 = 00000005\n{more}\n")
        };
        let text = list(0x100, 1) + &list(0x102, 1) + "pc: 0x00000200\n";
        let (_, found) = read(&text);
        assert!(found.contains(&("PC".to_owned(), 0x102, 32)), "{found:?}");
        assert_eq!(found.len(), 10);
        // Only the last registers are others.
        let list = |pc: u32| {
            let all: String = (0..13).map(|n| format!("r{n}  0x{n:x}  {n}\n")).collect();
            format!("(gdb) info registers\n{all}pc  0x{pc:x}  0x{pc:x} <main>\n")
        };
        let text = list(0x100) + "(gdb) stepi\n" + &list(0x102);
        for (text, pc) in [
            (text.clone(), 0x102),
            (text + "(gdb) c\npc = 0x200\n", 0x102),
        ] {
            let (_, found) = read(&text);
            assert!(found.contains(&("PC".to_owned(), pc, 32)), "{found:?}");
            assert_eq!(found.len(), 14, "{found:?}");
        }
        assert!(List::read(b"PC = nothing, ABCD = 12, x99 = 1, nothing: 0x12").is_none());
        assert!(List::read(b"pc: 12\nr0: abc\nr0 = 12345678z").is_none());
    }
}
