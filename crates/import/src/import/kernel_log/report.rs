//! The report in a log (Linux, arch/arm64/kernel/process.c and traps.c, arch/arm/kernel/process.c and
//! traps.c).

use crate::import::note::KernelLogNote;
use std::fmt;

/// The number of bytes of a log that are read.
const SEARCHED: usize = 64 << 20;
/// The longest line that is looked at, and the largest stack, in bytes.
const LONGEST_LINE: usize = 1024;
const LARGEST_STACK: usize = 64 << 10;
/// The least number of registers of a report.
const LEAST_REGISTERS: usize = 8;

/// A place that the kernel names: `function+0x14/0x1000 [module]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub function: String,
    /// The offset in it.
    pub offset: u64,
    /// Its size, up to the next function.
    pub size: u64,
}

impl Place {
    /// Reads a place in the kernel; a place in a module has no known address.
    fn read(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (function, offset) = place.split_once("+0x")?;
        let (offset, size) = offset.split_once("/0x")?;
        (!rest.starts_with('[')).then_some(Self {
            function: function.to_owned(),
            offset: u64::from_str_radix(offset, 16).ok()?,
            size: u64::from_str_radix(size, 16).ok()?,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.function, self.offset)
    }
}

/// What the kernel printed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether it is of ARM64.
    pub wide: bool,
    /// The registers whose values are printed.
    pub registers: Vec<(&'static str, u64)>,
    /// The registers that are printed as places.
    pub places: Vec<(&'static str, Place)>,
    /// Words of the stack: address, and bytes.
    pub stack: Vec<(u64, Vec<u8>)>,
    /// The code around the PC: the number of bytes before the PC, and the bytes.
    pub code: Option<(u64, Vec<u8>)>,
    /// The offset of the kernel from the addresses in its file (KASLR).
    pub offset: Option<u64>,
    /// The number of the CPU.
    pub cpu: Option<u32>,
    /// The name of the process.
    pub command: Option<String>,
    /// The cause, and what could not be read.
    pub notes: Vec<KernelLogNote>,
}

/// Names of registers: as printed, and of the register.
const NAMES: [(&str, &str); 7] = [
    ("pc", "PC"),
    ("sp", "SP"),
    ("pstate", "CPSR"),
    ("psr", "CPSR"),
    ("fp", "R11"),
    ("ip", "R12"),
    ("lr", "LR"),
];
const X: [&str; 31] = [
    "X0", "X1", "X2", "X3", "X4", "X5", "X6", "X7", "X8", "X9", "X10", "X11", "X12", "X13", "X14",
    "X15", "X16", "X17", "X18", "X19", "X20", "X21", "X22", "X23", "X24", "X25", "X26", "X27",
    "X28", "X29", "X30",
];
const R: [&str; 11] = [
    "R0", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10",
];

impl Report {
    /// Reads the first report in a log; `None` if there is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = &bytes[..bytes.len().min(SEARCHED)];
        let has = |text: &str| memchr::memmem::find(bytes, text.as_bytes()).is_some();
        if !has("pc :") || !(has("pstate") || has("psr:")) {
            return None;
        }
        let mut out = Self::default();
        let mut causes = Vec::new();
        let mut more = 0;
        // Whether what follows is of another report.
        let mut is_over = false;
        let mut stack = None;
        let (mut syndrome, mut address) = (None, None);
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
            let line = message(&line);
            if let Some(begin) = stack.take() {
                stack = out.stack_line(line, begin);
                if stack.is_some() {
                    continue;
                }
            }
            let is_cause = CAUSES.iter().any(|cause| line.starts_with(cause));
            if is_cause && causes.is_empty() && !line.starts_with(PANIC) {
                // What came before was a warning, after which the kernel went on.
                out = Self {
                    offset: out.offset,
                    ..Self::default()
                };
                (syndrome, address, more, is_over) = (None, None, 0, false);
            }
            let known = out.registers.len() + out.places.len();
            is_over |= known > 0 && line.starts_with("CPU: ");
            if is_cause {
                if known == 0 && line.starts_with(FIRST) {
                    // The log does not have the registers of an earlier one.
                    causes.clear();
                    (syndrome, address) = (None, None);
                }
                if let Some((_, text)) = line.split_once("virtual address ")
                    && known == 0
                {
                    address = address.or_else(|| hex(text.split_whitespace().next()?));
                }
                if known == 0 && causes.len() < 2 {
                    causes.push(line.to_owned());
                }
            } else if let Some(rest) = line.strip_prefix("ESR = ") {
                let value = rest.split_whitespace().next().and_then(hex);
                syndrome = syndrome.or(value.filter(|_| known == 0));
            } else if let Some(rest) = line.strip_prefix("Kernel Offset: ") {
                let offset = rest.split_whitespace().next().and_then(hex);
                out.offset = out.offset.or(offset);
                if rest.starts_with("disabled") {
                    out.offset = Some(0);
                }
            } else if let Some(rest) = line.strip_prefix("CPU: ") {
                out.process(rest, known);
            } else if let Some(rest) = line.strip_prefix("Code: ") {
                out.code = out.code.take().or_else(|| code(rest).filter(|_| !is_over));
            } else if let Some(rest) = line.strip_prefix("Stack: (") {
                let begin = rest.split_whitespace().next().and_then(hex);
                stack = begin
                    .filter(|_| out.stack.is_empty() && !is_over)
                    .map(|begin| (begin, true));
            } else if out.register_line(line, is_over) {
                more += 1;
                is_over = true;
            }
        }
        out.wide = out.registers.iter().any(|(name, _)| name.starts_with('X'));
        if !out.wide {
            out.registers.retain(|(_, value)| *value <= u32::MAX.into());
        }
        for (name, _) in &mut out.registers {
            if out.wide && *name == "LR" {
                *name = "X30";
            }
        }
        for (name, _) in &mut out.places {
            if out.wide && *name == "LR" {
                *name = "X30";
            }
        }
        // Words of a big-endian system (CPSR.E).
        let state = out.registers.iter().find(|(name, _)| *name == "CPSR");
        if !out.wide && state.is_some_and(|(_, state)| state & 1 << 9 != 0) {
            let words = out.stack.iter_mut();
            words.for_each(|(_, bytes)| bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse));
        }
        let mut notes: Vec<_> = causes.into_iter().map(KernelLogNote::Cause).collect();
        if more > 0 {
            notes.push(KernelLogNote::More { reports: more });
        }
        out.notes = notes;
        if out.wide {
            out.syndrome(syndrome, address);
        }
        (out.registers.len() >= LEAST_REGISTERS).then_some(out)
    }

    /// Adds the syndrome and the address of the fault, as registers of the exception level at which
    /// the kernel runs.
    fn syndrome(&mut self, syndrome: Option<u64>, address: Option<u64>) {
        let state = self.registers.iter().find(|(name, _)| *name == "CPSR");
        let [esr, far] = match state.map(|(_, state)| state & 0xc) {
            Some(4) => ["ESR_EL1", "FAR_EL1"],
            Some(8) => ["ESR_EL2", "FAR_EL2"],
            _ => return,
        };
        self.registers.extend(syndrome.map(|value| (esr, value)));
        self.registers.extend(address.map(|value| (far, value)));
    }

    /// Reads `N PID: 1 Comm: name …`.
    fn process(&mut self, rest: &str, known: usize) {
        if known > 0 {
            return;
        }
        let mut words = rest.split_whitespace();
        self.cpu = words.next().and_then(|cpu| cpu.parse().ok());
        // The name may contain spaces.
        self.command = rest.split_once("Comm: ").and_then(|(_, name)| {
            let end = [" Not tainted ", " Tainted: "].into_iter();
            let end = end.filter_map(|end| name.rfind(end)).max();
            let name = end.map_or(name.split_whitespace().next()?, |end| &name[..end]);
            Some(name.to_owned())
        });
    }

    /// Reads a line of registers; one of another report (`is_over`) is only recognised. Returns
    /// whether it begins another report.
    fn register_line(&mut self, line: &str, is_over: bool) -> bool {
        let spaced = line.replace(" :", ":");
        let mut words = spaced.split_whitespace().peekable();
        let mut is_more = false;
        let first = words.peek().and_then(|word| word.strip_suffix(':'));
        if first.and_then(name).is_none() {
            return false;
        }
        while let Some(word) = words.next() {
            let Some(name) = word.strip_suffix(':').and_then(name) else {
                continue;
            };
            let Some(value) = words.next() else {
                break;
            };
            let is_known = self.registers.iter().any(|(known, _)| *known == name)
                || self.places.iter().any(|(known, _)| *known == name);
            if is_known {
                is_more |= name == "PC";
                continue;
            }
            if is_over || is_more {
                continue;
            }
            // `pc : [<c0101234>]`.
            let plain = value.trim_start_matches("[<").trim_end_matches(">]");
            if let Some(value) = hex(plain) {
                self.registers.push((name, value));
            } else if let Some(place) =
                Place::read(spaced.split_once(": ").map_or("", |rest| rest.1))
            {
                self.places.push((name, place));
                break;
            }
        }
        is_more
    }

    /// Reads a line of the stack, `1f20: 00000000 …`. Returns the address of the next word; `None`
    /// after the stack.
    fn stack_line(&mut self, line: &str, (at, is_first): (u64, bool)) -> Option<(u64, bool)> {
        let (label, words) = line.split_once(':')?;
        let label = u64::from_str_radix(label, 16)
            .ok()
            .filter(|_| label.len() == 4)?;
        // The label is the lower half of the address of the line; lines may be lost.
        let mut next = match is_first && label == at & 0xffe0 {
            true => at,
            false => (at & !0xffff) | label,
        };
        if next < at {
            return None;
        }
        let held: usize = self.stack.iter().map(|(_, bytes)| bytes.len()).sum();
        if held >= LARGEST_STACK {
            return None;
        }
        for word in words.split_whitespace() {
            let size = word.len() / 2;
            if !matches!(word.len(), 8 | 16) {
                return None;
            }
            let at = next;
            next = at.checked_add(size as u64)?;
            if let Ok(value) = u64::from_str_radix(word, 16) {
                let bytes = &value.to_le_bytes()[..size];
                match self.stack.last_mut() {
                    Some((begin, held)) if begin.wrapping_add(held.len() as u64) == at => {
                        held.extend(bytes);
                    }
                    _ => self.stack.push((at, bytes.to_vec())),
                }
            }
        }
        Some((next, false))
    }
}

const PANIC: &str = "Kernel panic - not syncing";
/// What precedes the other lines that say what happened.
const FIRST: &str = "Unable to handle kernel";
/// The lines that say what happened.
const CAUSES: [&str; 7] = [
    FIRST,
    "Unhandled fault",
    "Internal error: ",
    "kernel BUG at ",
    PANIC,
    "Unexpected kernel BRK exception",
    "Bad mode in",
];

/// A line without what the kernel, a terminal or a log daemon put before the message.
fn message(line: &str) -> &str {
    let mut line = line.trim_end();
    if let Some((_, rest)) = line.split_once("kernel: ") {
        line = rest;
    }
    loop {
        line = line.trim_start();
        let end = match line.as_bytes().first() {
            Some(b'<') => line.find('>'),
            Some(b'[') => line.find(']'),
            // A colour.
            Some(0x1b) => line.find('m'),
            _ => None,
        };
        let Some(end) = end else {
            return line;
        };
        line = &line[end + 1..];
    }
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hex = digits.len() >= 8 || text.len() > digits.len();
    is_hex
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The name of a register.
fn name(printed: &str) -> Option<&'static str> {
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == printed) {
        return Some(name);
    }
    let (names, number): (&[&str], _) = match printed.split_at_checked(1)? {
        ("x", number) => (&X, number),
        ("r", number) => (&R, number),
        _ => return None,
    };
    names.get(number.parse::<usize>().ok()?).copied()
}

/// Reads `d2800000 (f9000001)`: the unit in brackets is at the PC. Units have 32 or 16 bits; those that the kernel
/// could not read are `????????`.
fn code(text: &str) -> Option<(u64, Vec<u8>)> {
    let (mut out, mut before) = (Vec::new(), None);
    for word in text.split_whitespace() {
        let digits = word.trim_start_matches('(').trim_end_matches(')');
        let is_unknown = !digits.is_empty() && digits.bytes().all(|byte| byte == b'?');
        if digits.len() < word.len() {
            before = Some(out.len() as u64);
        }
        if is_unknown {
            if before.is_some() {
                break;
            }
            out.clear();
            continue;
        }
        let unit = u32::from_str_radix(digits, 16).ok()?;
        match digits.len() {
            8 => out.extend(unit.to_le_bytes()),
            4 => out.extend(&unit.to_le_bytes()[..2]),
            _ => return None,
        }
    }
    before
        .filter(|_| !out.is_empty())
        .map(|before| (before, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARM64: &str = "\
[   12.3] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008
[   12.3] Mem abort info:
[   12.3]   ESR = 0x0000000096000004
[   12.3] Internal error: Oops: 0000000096000004 [#1] SMP
[   12.3] CPU: 1 PID: 123 Comm: insmod Tainted: G           O       6.1.0 #1
[   12.3] pstate: 60400005 (nZCv daif +PAN -UAO)
[   12.3] pc : foo_init+0x14/0x1000
[   12.3] lr : do_one_initcall+0x50/0x290 [foo]
[   12.3] sp : ffff80000a5abb50
[   12.3] x29: ffff80000a5abb50 x28: 0000000000000001 x27: ffff0000c0ffee00
[   12.3] x26: 0000000000000000 x25: 0000000000000000 x24: 0000000000000000
[   12.3] Call trace:
[   12.3]  foo_init+0x14/0x1000 [foo]
[   12.3] Code: d2800000 f9400001 (f9000001)
[   12.4] SMP: stopping secondary CPUs
[   12.4] Kernel Offset: 0x2b0000000000 from 0xffff800010000000
";

    #[test]
    fn a_report_of_arm64() {
        let report = Report::read(ARM64.as_bytes()).unwrap();
        assert!(report.wide);
        let value = |name: &str| {
            report
                .registers
                .iter()
                .find(|known| known.0 == name)
                .unwrap()
                .1
        };
        assert_eq!(value("CPSR"), 0x6040_0005);
        assert_eq!(value("SP"), 0xffff_8000_0a5a_bb50);
        assert_eq!(value("X28"), 1);
        assert_eq!((value("ESR_EL1"), value("FAR_EL1")), (0x9600_0004, 8));
        assert_eq!(report.registers.len(), 10);
        let place = Place {
            function: "foo_init".to_owned(),
            offset: 0x14,
            size: 0x1000,
        };
        // A place in a module is not known.
        assert_eq!(report.places, [("PC", place)]);
        assert_eq!(report.code.unwrap().0, 8);
        assert_eq!(report.offset, Some(0x2b00_0000_0000));
        assert_eq!(
            (report.cpu, report.command.as_deref()),
            (Some(1), Some("insmod"))
        );
        assert_eq!(report.notes.len(), 2);
        let twice = format!("{ARM64}{ARM64}");
        let twice = Report::read(twice.as_bytes()).unwrap();
        assert_eq!(twice.registers, report.registers);
        assert_eq!(twice.notes[2], KernelLogNote::More { reports: 1 });
        let warning = ARM64.replace("Internal error", "").replace("Unable", "");
        let after = warning.replace("x28: 0000000000000001", "x28: 0000000000000009") + ARM64;
        assert_eq!(
            Report::read(after.as_bytes()).unwrap().registers,
            report.registers
        );
        assert!(Report::read(b"printk(\"pc : %pS pstate: %08llx\\n\")").is_none());
    }

    /// What a second report adds to a first one: nothing but its number.
    #[test]
    fn reports_are_not_mixed() {
        let second = ARM64.replace("x25: 0000000000000000", "x20: 00000000deadbeef");
        let first = ARM64.replace("Code: ", "No: ").replace("lr :", "??");
        for second in [second.clone(), second.replace("CPU: ", "CPU ")] {
            let both = Report::read(format!("{first}{second}").as_bytes()).unwrap();
            let alone = Report::read(first.as_bytes()).unwrap();
            assert_eq!(both.registers, alone.registers);
            assert_eq!((both.code, both.places), (None, alone.places));
            assert_eq!(both.notes.last(), Some(&KernelLogNote::More { reports: 1 }));
        }
        // The registers of the first one were lost.
        let cut = "Unable to handle kernel paging request at virtual address 0000000000000777\n  ESR = 0x99\n";
        let after = Report::read(format!("{cut}{ARM64}").as_bytes()).unwrap();
        let whole = Report::read(ARM64.as_bytes()).unwrap();
        assert_eq!(after.registers, whole.registers);
        assert_eq!(after.notes, whole.notes);
    }

    #[test]
    fn words_of_the_stack_have_the_addresses_of_their_lines() {
        let registers = "pc : [<c0101234>]    lr : [<c0101220>]    psr: 60000013
r10: 00000010  r9 : c1000009  r8 : 1122334455667788
r7 : 00000007  r6 : 00000006  r5 : 00000005  r4 : 00000004
";
        let stack = |lines: &str| {
            let report = Report::read(format!("{registers}{lines}").as_bytes()).unwrap();
            assert!(report.registers.iter().all(|(name, _)| *name != "R8"));
            let places = report.stack.into_iter();
            places
                .map(|(at, bytes)| (at, bytes.len()))
                .collect::<Vec<_>>()
        };
        let first = "Stack: (0xc1001f18 to 0xc1002000)\n";
        for (lines, wanted) in [
            // The first line was lost.
            ("1f20: 00000001\n", &[(0xc100_1f20, 4)][..]),
            // Lines of another stack.
            (
                "1f00: 00000001 00000002\n1f40: 00000003 00000004\n1f40: 00000009\n1f60: 00000001\n",
                &[(0xc100_1f18, 8), (0xc100_1f40, 8)],
            ),
        ] {
            assert_eq!(stack(&format!("{first}{lines}")), wanted, "{lines}");
        }
        let last = "Stack: (0xfffffffffffffff8 to 0xffffffffffffffff)\n";
        let beyond = "ffe0: 0000000000000001 0000000000000002\n";
        assert_eq!(stack(&format!("{last}{beyond}")), []);
    }

    #[test]
    fn a_report_of_arm() {
        let text = "\
<1>[ 1.0] Unable to handle kernel paging request at virtual address dead0000
Nov 28 07:00:00 board kernel: [ 1.0] pc : [<c0101234>]    lr : [<c0101220>]    psr: 60000013
sp : c1001f18  ip : 00000001  fp : c1001f34
r10: 00000010  r9 : c1000009  r8 : 00000008
r7 : 00000007  r6 : 00000006  r5 : 00000005  r4 : 00000004
r3 : 00000003  r2 : 00000002  r1 : 00000001  r0 : 00000000
Stack: (0xc1001f18 to 0xc1002000)
1f00:                                                       00000018 0000001c
1f20: 00000020 ???????? 00000028
1f60: 00000060
Code: 46204620 bf00 4620 (681b)
";
        let report = Report::read(text.as_bytes()).unwrap();
        assert!(!report.wide);
        assert_eq!(report.registers.len(), 17);
        let value = |name: &str| {
            report
                .registers
                .iter()
                .find(|known| known.0 == name)
                .unwrap()
                .1
        };
        for (name, wanted) in [
            ("PC", 0xc010_1234),
            ("LR", 0xc010_1220),
            ("R11", 0xc100_1f34),
            ("R9", 0xc100_0009),
        ] {
            assert_eq!(value(name), wanted, "{name}");
        }
        let stack: Vec<(u64, usize)> = report
            .stack
            .iter()
            .map(|(at, bytes)| (*at, bytes.len()))
            .collect();
        assert_eq!(
            stack,
            [(0xc100_1f18, 12), (0xc100_1f28, 4), (0xc100_1f60, 4)]
        );
        assert_eq!(report.stack[0].1[8..], [0x20, 0, 0, 0]);
        assert_eq!(
            report.code,
            Some((
                8,
                vec![0x20, 0x46, 0x20, 0x46, 0, 0xbf, 0x20, 0x46, 0x1b, 0x68]
            ))
        );
        let big = text.replace("60000013", "60000213");
        let big = Report::read(big.as_bytes()).unwrap();
        assert_eq!(big.stack[0].1[8..], [0, 0, 0, 0x20]);
    }

    #[test]
    fn code_that_cannot_be_read() {
        let four = [4, 3, 2, 1];
        for (text, wanted) in [
            (
                "01020304 ???????? 01020304 (01020304)",
                Some((4, [four, four].concat())),
            ),
            (
                "01020304 (01020304) ????????",
                Some((4, [four, four].concat())),
            ),
            ("01020304 (????????)", Some((4, four.to_vec()))),
            ("???????? (????????)", None),
            ("bad PC value", None),
        ] {
            assert_eq!(code(text), wanted, "{text}");
        }
    }

    #[test]
    fn names_of_processes_with_spaces() {
        for (printed, wanted) in [
            (
                "Comm: Web Content Tainted: G           O       6.1.0 #1",
                "Web Content",
            ),
            ("Comm: a Tainted: b Not tainted 6.1.0 #1", "a Tainted: b"),
            ("Comm: insmod", "insmod"),
        ] {
            let log = ARM64.replace(
                "Comm: insmod Tainted: G           O       6.1.0 #1",
                printed,
            );
            let report = Report::read(log.as_bytes()).unwrap();
            assert_eq!(report.command.as_deref(), Some(wanted));
        }
    }
}
