//! Signals of Linux, and GDB's numbers for them (GDB manual, "Signals"; include/gdb/signals.def).
//!
//! The signal that stopped a thread is in two entries of its device, which armsnap writes and other
//! readers ignore: `signal` is the Linux number, `siginfo` the bytes of the kernel's `siginfo_t` as
//! hexadecimal digits.

use super::model::Device;
use std::fmt::Write as _;

/// Linux number, GDB number, name.
const SIGNALS: [(u32, u8, &str); 31] = [
    (1, 1, "SIGHUP"),
    (2, 2, "SIGINT"),
    (3, 3, "SIGQUIT"),
    (4, 4, "SIGILL"),
    (5, 5, "SIGTRAP"),
    (6, 6, "SIGABRT"),
    (7, 10, "SIGBUS"),
    (8, 8, "SIGFPE"),
    (9, 9, "SIGKILL"),
    (10, 30, "SIGUSR1"),
    (11, 11, "SIGSEGV"),
    (12, 31, "SIGUSR2"),
    (13, 13, "SIGPIPE"),
    (14, 14, "SIGALRM"),
    (15, 15, "SIGTERM"),
    (16, 0, "SIGSTKFLT"),
    (17, 20, "SIGCHLD"),
    (18, 19, "SIGCONT"),
    (19, 17, "SIGSTOP"),
    (20, 18, "SIGTSTP"),
    (21, 21, "SIGTTIN"),
    (22, 22, "SIGTTOU"),
    (23, 16, "SIGURG"),
    (24, 24, "SIGXCPU"),
    (25, 25, "SIGXFSZ"),
    (26, 26, "SIGVTALRM"),
    (27, 27, "SIGPROF"),
    (28, 28, "SIGWINCH"),
    (29, 23, "SIGIO"),
    (30, 32, "SIGPWR"),
    (31, 12, "SIGSYS"),
];

/// Converts GDB's number of a signal to the Linux number.
pub fn from_gdb(number: u8) -> Option<u32> {
    let known = SIGNALS
        .iter()
        .find(|signal| signal.1 == number && number != 0);
    match (known, number) {
        (Some(signal), _) => Some(signal.0),
        // Real-time signals.
        (None, 77) => Some(32),
        (None, 45..=75) => Some(u32::from(number) - 45 + 33),
        (None, 78) => Some(64),
        _ => None,
    }
}

/// Converts the Linux number of a signal to GDB's number; 143 is its "unknown signal".
pub fn to_gdb(number: u32) -> u8 {
    let known = SIGNALS.iter().find(|signal| signal.0 == number);
    match (known, number) {
        (Some((_, gdb, _)), _) if *gdb != 0 => *gdb,
        (None, 32) => 77,
        (None, 33..=63) => number as u8 - 33 + 45,
        (None, 64) => 78,
        _ => 143,
    }
}

/// Returns the Linux number of a signal that GDB names, such as `SIGSEGV` or `SIG34`.
pub fn named(name: &str) -> Option<u32> {
    let known = SIGNALS.iter().find(|signal| signal.2 == name);
    known.map(|signal| signal.0).or_else(|| {
        let number = name.strip_prefix("SIG")?.parse().ok()?;
        (32..=64).contains(&number).then_some(number)
    })
}

/// The size of the kernel's `siginfo_t` (include/uapi/asm-generic/siginfo.h, `SI_MAX_SIZE`).
pub const INFORMATION: usize = 128;
/// Names of the keys.
const SIGNAL: &str = "signal";
const SIGINFO: &str = "siginfo";

/// The signal that stopped a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its Linux number.
    pub number: u32,
    /// Its `siginfo_t` from the kernel, in the byte order of the system; may be empty.
    pub information: Vec<u8>,
}

impl Signal {
    /// Reads the signal of a core, if its device has one.
    pub fn of(device: &Device) -> Option<Self> {
        let value = |name: &str| {
            let mut entries = device.other.iter();
            let entry = entries.find(|(key, _)| key.eq_ignore_ascii_case(name));
            entry.map(|(_, value)| value.trim())
        };
        let number = value(SIGNAL)?.parse().ok();
        let number = number.or_else(|| named(value(SIGNAL)?))?;
        let information = value(SIGINFO).and_then(bytes).unwrap_or_default();
        (1..=64).contains(&number).then_some(Self {
            number,
            information,
        })
    }

    /// A signal of a program by its number, `si_code` and the address that the kernel reported.
    /// `is_64bit` tells the layout of its information. `None` if it is not the number of a signal.
    pub fn raised(number: u32, code: i32, address: Option<u64>, is_64bit: bool) -> Option<Self> {
        if !(1..=64).contains(&number) {
            return None;
        }
        // Signal, error number (which is 0 for signals of the kernel), code, and, for signals that
        // have one, the address.
        let mut information = Vec::new();
        for word in [number, 0, code as u32] {
            information.extend(word.to_le_bytes());
        }
        let has_address = matches!(number, 4 | 5 | 7 | 8 | 11) && code > 0;
        if let Some(address) = address.filter(|_| has_address) {
            information.resize(fields(is_64bit), 0);
            let size = if is_64bit { 8 } else { 4 };
            information.extend(&address.to_le_bytes()[..size]);
        }
        Some(Self {
            number,
            information,
        })
    }

    /// Returns the entries of the device.
    pub fn entries(&self) -> Vec<(String, String)> {
        let mut out = vec![(SIGNAL.to_owned(), self.number.to_string())];
        if !self.information.is_empty() {
            let mut digits = String::new();
            for byte in &self.information {
                let _ = write!(digits, "{byte:02x}");
            }
            out.push((SIGINFO.to_owned(), digits));
        }
        out
    }

    /// Returns its name and what is known about its cause, for messages. `is_64bit` tells the
    /// layout of its information.
    pub fn describe(&self, is_64bit: bool) -> String {
        let mut text = match name(self.number) {
            name if name.starts_with("SIG") => format!("{name} ({})", self.number),
            name => name,
        };
        if let Some(cause) = self.cause(is_64bit) {
            let _ = write!(text, ", {cause}");
        }
        text
    }

    /// Returns the cause according to `si_code` (sigaction(2)).
    fn cause(&self, is_64bit: bool) -> Option<String> {
        let code = self.code()?;
        if is_sent(code) {
            return Some(format!("sent by process {}", self.word(fields(is_64bit))?));
        }
        let Some(named) = self.named_code() else {
            return Some(match code {
                0x80 => "raised by the kernel".to_owned(),
                _ => format!("code {code}"),
            });
        };
        Some(format!("{named} at {:#x}", self.address(is_64bit)?))
    }

    /// Returns the address that the kernel reported: of the memory that was accessed or of the
    /// instruction. `is_64bit` tells the layout of its information.
    #[must_use]
    pub fn address(&self, is_64bit: bool) -> Option<u64> {
        self.named_code()?;
        let at = fields(is_64bit);
        let (low, high) = (
            self.word(at)?,
            if is_64bit { self.word(at + 4)? } else { 0 },
        );
        let (low, high) = match self.is_big_endian()? && is_64bit {
            true => (high, low),
            false => (low, high),
        };
        Some(u64::from(high) << 32 | u64::from(low))
    }

    /// Returns whether an instruction of the program raised it, and not another process or the
    /// kernel for other reasons. `None` if that is not known.
    #[must_use]
    pub fn is_raised_by_the_program(&self) -> Option<bool> {
        // SIGILL, SIGTRAP, SIGBUS, SIGFPE and SIGSEGV; not a late tag check fault, SI_KERNEL, and
        // TRAP_TRACE and its like, whose address is that of the next instruction.
        Some(match (self.number, self.code()?) {
            (11, 8) => false,
            (5, code) => code == 1,
            (4 | 7 | 8 | 11, code) => (1..0x80).contains(&code),
            _ => false,
        })
    }

    /// The name of `si_code`, for signals with an address.
    fn named_code(&self) -> Option<&'static str> {
        let code = self.code()?;
        let mut codes = CODES.iter();
        let named = codes.find(|known| known.0 == self.number && known.1 == code);
        named.map(|known| known.2)
    }

    /// `si_code`.
    fn code(&self) -> Option<i32> {
        Some(self.word(8)? as i32)
    }

    /// Whether its information is big-endian, as its first word, the number, says.
    fn is_big_endian(&self) -> Option<bool> {
        let first = *self.information.first_chunk()?;
        match (u32::from_le_bytes(first), u32::from_be_bytes(first)) {
            (little, _) if little == self.number => Some(false),
            (_, big) if big == self.number => Some(true),
            _ => None,
        }
    }

    /// A word of its information.
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = *self.information.get(at..at + 4)?.first_chunk()?;
        Some(match self.is_big_endian()? {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }
}

/// Where the fields that depend on the signal begin.
fn fields(is_64bit: bool) -> usize {
    if is_64bit { 16 } else { 12 }
}

/// Whether a code says that a process sent the signal: SI_USER, SI_QUEUE, SI_TKILL.
fn is_sent(code: i32) -> bool {
    matches!(code, 0 | -1 | -6)
}

/// Decodes pairs of hexadecimal digits, at most [`INFORMATION`] bytes.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let pairs = digits.chunks(2).take(INFORMATION);
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    pairs.map(byte).collect()
}

/// Signal, `si_code` and its name (include/uapi/asm-generic/siginfo.h), of those signals that have
/// an address.
const CODES: [(u32, i32, &str); 28] = [
    (4, 1, "ILL_ILLOPC"),
    (4, 2, "ILL_ILLOPN"),
    (4, 3, "ILL_ILLADR"),
    (4, 4, "ILL_ILLTRP"),
    (4, 5, "ILL_PRVOPC"),
    (4, 6, "ILL_PRVREG"),
    (4, 7, "ILL_COPROC"),
    (4, 8, "ILL_BADSTK"),
    (5, 1, "TRAP_BRKPT"),
    (5, 2, "TRAP_TRACE"),
    (5, 4, "TRAP_HWBKPT"),
    (7, 1, "BUS_ADRALN"),
    (7, 2, "BUS_ADRERR"),
    (7, 3, "BUS_OBJERR"),
    (7, 4, "BUS_MCEERR_AR"),
    (8, 1, "FPE_INTDIV"),
    (8, 2, "FPE_INTOVF"),
    (8, 3, "FPE_FLTDIV"),
    (8, 4, "FPE_FLTOVF"),
    (8, 5, "FPE_FLTUND"),
    (8, 6, "FPE_FLTRES"),
    (8, 7, "FPE_FLTINV"),
    (11, 1, "SEGV_MAPERR"),
    (11, 2, "SEGV_ACCERR"),
    (11, 8, "SEGV_MTEAERR"),
    (11, 9, "SEGV_MTESERR"),
    (11, 10, "SEGV_CPERR"),
    (31, 1, "SYS_SECCOMP"),
];

/// Returns the name of a signal: `SIGSEGV`, or `signal 40`.
pub fn name(number: u32) -> String {
    match SIGNALS.iter().find(|signal| signal.0 == number) {
        Some(signal) => signal.2.to_owned(),
        None => format!("signal {number}"),
    }
}

/// Returns whether a signal without a handler ends the program (signal(7), "Standard signals").
pub fn ends_program(number: u32) -> bool {
    !matches!(number, 17..=23 | 28)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(from_gdb(11), Some(11));
        assert_eq!(from_gdb(10), Some(7));
        assert_eq!(from_gdb(20), Some(17));
        assert_eq!(from_gdb(46), Some(34));
        assert_eq!(from_gdb(0), None);
        assert_eq!(from_gdb(255), None);
        assert_eq!(name(6), "SIGABRT");
        assert_eq!(name(34), "signal 34");
        for number in (1..=64).filter(|number| *number != 16) {
            assert_eq!(from_gdb(to_gdb(number)), Some(number));
        }
        assert_eq!((to_gdb(16), to_gdb(99)), (143, 143));
        assert_eq!((named("SIGBUS"), named("SIG34")), (Some(7), Some(34)));
        assert_eq!(named("SIG9000"), None);
        assert!(ends_program(11) && ends_program(34) && !ends_program(17));
    }
    #[test]
    fn keys_of_a_device_and_the_cause() {
        let mut information = vec![0; INFORMATION];
        information[..12].copy_from_slice(&[11, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        information[16..20].copy_from_slice(&[0x10, 0, 0xff, 0xff]);
        let signal = Signal {
            number: 11,
            information,
        };
        let device = Device {
            other: signal.entries(),
            ..Device::default()
        };
        assert_eq!(Signal::of(&device), Some(signal.clone()));
        let text = "SIGSEGV (11), SEGV_MAPERR at 0xffff0010";
        assert_eq!(signal.describe(true), text);
        let text = "SIGSEGV (11), SEGV_MAPERR at 0x0";
        assert_eq!(signal.describe(false), text);
        for (number, digits, wanted) in [
            ("11", "zz", "SIGSEGV (11)"),
            ("11", "0b", "SIGSEGV (11)"),
            (
                "6",
                "0000000600000000fffffffa00000000000004d2",
                "SIGABRT (6), sent by process 1234",
            ),
            ("SIGBUS", "", "SIGBUS (7)"),
            ("34", "", "signal 34"),
        ] {
            let other = [("signal", number), ("siginfo", digits)];
            let device = Device {
                other: other.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
                ..Device::default()
            };
            let signal = Signal::of(&device).unwrap();
            assert_eq!(signal.describe(true), wanted);
        }
        for number in ["0", "65", "-1", "x", ""] {
            let device = Device {
                other: vec![("signal".to_owned(), number.to_owned())],
                ..Device::default()
            };
            assert_eq!(Signal::of(&device), None);
        }
    }
}
