//! The true states of a program: the emulator's log of all registers before each instruction.

use armsnap::semantics::t32::ItState;
use armsnap::semantics::{Location, Semantics, a32, a64, t32};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The registers before an instruction.
#[derive(Clone, Copy)]
pub struct State {
    pub pc: u64,
    /// x0 to x30, and sp; in AArch32 r0 to r14.
    pub registers: [u64; 32],
    /// PSTATE or CPSR as logged.
    pub status: u64,
}

impl State {
    /// N, Z, C and V.
    pub fn flags(&self) -> [u64; 4] {
        [31, 30, 29, 28].map(|bit| self.status >> bit & 1)
    }

    /// What the instruction does, given the two words of code at its address.
    pub fn semantics(&self, guest: Guest, [first, second]: [u16; 2]) -> Semantics {
        let word = u32::from(second) << 16 | u32::from(first);
        match guest {
            Guest::A64 => a64::decode(word, self.pc),
            // Bit T, and IT[1:0] and IT[7:2] (DDI 0487, G1.9.1).
            Guest::Arm if self.status >> 5 & 1 == 1 => {
                let block = self.status >> 8 & 0xfc | self.status >> 25 & 3;
                t32::decode(first, second, self.pc, ItState::from_bits(block as u8))
            }
            Guest::Arm => a32::decode(word, self.pc),
        }
    }
}

/// The instruction sets of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    A64,
    Arm,
}

impl Guest {
    /// Returns the instruction sets of an ELF file.
    pub fn of(program: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(program)?;
        let file = object::File::parse(&*bytes).map_err(io::Error::other)?;
        Ok(match object::Object::architecture(&file) {
            object::Architecture::Arm => Self::Arm,
            _ => Self::A64,
        })
    }

    fn emulator(self) -> &'static str {
        match self {
            Self::A64 => "qemu-aarch64",
            Self::Arm => "qemu-arm",
        }
    }

    /// The general registers, without the stack pointer.
    pub fn general(self) -> Vec<Location> {
        let numbers: Vec<u8> = match self {
            Self::A64 => (0..31).collect(),
            Self::Arm => (0..13).chain([14]).collect(),
        };
        numbers.into_iter().map(Location::general).collect()
    }

    /// The stack pointer.
    pub fn stack(self) -> Location {
        match self {
            Self::A64 => Location::SP,
            Self::Arm => Location::general(13),
        }
    }
}

/// A command with the same random numbers in each run.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.env("QEMU_RAND_SEED", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Runs a program and returns the number of its process, and the last `keep` states of its first thread,
/// oldest first. The last one is the state before the instruction that ended the program.
pub fn states(program: &Path, keep: usize) -> io::Result<(u32, Vec<State>)> {
    let mut command = command(Guest::of(program)?.emulator());
    if Guest::of(program)? == Guest::A64 {
        // As in recordings: libc selects its functions by what the processor has.
        command.args(["-cpu", "max,sve=off"]);
    }
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
                status: 0,
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
    Ok((emulator.id(), states.into()))
}

/// Whether a program needs a dynamic linker.
fn is_dynamic(program: &Path) -> io::Result<bool> {
    let bytes = std::fs::read(program)?;
    let linker = b"/lib/ld-linux-aarch64.so.1\0";
    Ok(bytes.windows(linker.len()).any(|window| window == linker))
}

/// Reads a line of registers; returns whether it is the last one of a state.
fn values(line: &[u8], state: &mut State) -> bool {
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
            b"PSTATE" | b"PSR" => {
                state.status = value;
                return true;
            }
            b"PC" | b"R15" => state.pc = value,
            b"SP" => state.registers[31] = value,
            [b'X' | b'R', tens @ b'0'..=b'3', ones @ b'0'..=b'9'] => {
                let number = usize::from(10 * (tens - b'0') + (ones - b'0'));
                state.registers[number.min(30)] = value;
            }
            _ => {}
        }
    }
    false
}
