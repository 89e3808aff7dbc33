//! Signals of Linux, and GDB's numbers for them (GDB manual, "Signals"; include/gdb/signals.def).

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
        assert!(ends_program(11) && ends_program(34) && !ends_program(17));
    }
}
