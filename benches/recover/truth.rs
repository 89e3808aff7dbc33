//! The true states of a program: the emulator's log of all registers before each instruction.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The registers before an instruction.
#[derive(Clone, Copy)]
pub struct State {
    pub pc: u64,
    /// x0 to x30, and sp.
    pub registers: [u64; 32],
    /// N, Z, C, V from bit 3 down.
    pub flags: u8,
}

/// The emulator for AArch64 programs, with the same random numbers in each run.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.env("QEMU_RAND_SEED", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Runs a program and returns the last `keep` states of its first thread, oldest first. The last one
/// is the state before the instruction that ended the program.
pub fn states(program: &Path, keep: usize) -> io::Result<Vec<State>> {
    let mut command = command("qemu-aarch64");
    command.args(["-singlestep", "-d", "cpu,nochain,exec", "-D", "/dev/stderr"]);
    if is_dynamic(program)? {
        command.args(["-L", "/usr/aarch64-linux-gnu"]);
    }
    let mut emulator = command.arg(program).stderr(Stdio::piped()).spawn()?;
    let log = emulator.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut log = BufReader::with_capacity(1 << 20, log);
    let mut states: VecDeque<State> = VecDeque::with_capacity(keep);
    let mut line = Vec::new();
    let mut state: Option<State> = None;
    loop {
        line.clear();
        if log.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Some(core) = line.strip_prefix(b"Trace ") {
            state = core.starts_with(b"0:").then_some(State {
                pc: 0,
                registers: [0; 32],
                flags: 0,
            });
        } else if let Some(at) = &mut state
            && values(&line, at)
        {
            if states.len() == keep {
                states.pop_front();
            }
            states.push_back(*at);
            state = None;
        }
    }
    emulator.wait()?;
    Ok(states.into())
}

/// Whether a program needs a dynamic linker.
fn is_dynamic(program: &Path) -> io::Result<bool> {
    let bytes = std::fs::read(program)?;
    let linker = b"/lib/ld-linux-aarch64.so.1\0";
    Ok(bytes.windows(linker.len()).any(|window| window == linker))
}

/// Reads a line of registers; returns whether it is the last one of a state.
fn values(line: &[u8], state: &mut State) -> bool {
    if let Some(rest) = line.strip_prefix(b"PSTATE=") {
        let digit = rest.first().copied().map(char::from);
        state.flags = digit.and_then(|digit| digit.to_digit(16)).unwrap_or(0) as u8;
        return true;
    }
    for word in line.split(|byte| *byte == b' ' || *byte == b'\n') {
        let Some(equals) = word.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let hex = |text: &[u8]| {
            text.iter().try_fold(0_u64, |value, &byte| {
                Some(value << 4 | u64::from(char::from(byte).to_digit(16)?))
            })
        };
        let (name, Some(value)) = (&word[..equals], hex(&word[equals + 1..])) else {
            continue;
        };
        match name {
            b"PC" => state.pc = value,
            b"SP" => state.registers[31] = value,
            [b'X', tens @ b'0'..=b'3', ones @ b'0'..=b'9'] => {
                let number = usize::from(10 * (tens - b'0') + (ones - b'0'));
                state.registers[number.min(30)] = value;
            }
            _ => {}
        }
    }
    false
}
