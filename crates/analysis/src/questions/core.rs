//! A core that is asked.

use super::answer::{CodePlace, Hex, Worth};
use super::note::AskError;
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{Known, Recovery, Registers, Status};
use armsnap_history::timeline::{History, PointKind, Position};
use armsnap_snapshot::program::call_frames::CallFrames;
use armsnap_snapshot::program::symbols::{SourceLine, Symbols};
use armsnap_snapshot::stop::Cancel;
use gimli::{AArch64, Arm, Register};
use std::sync::Arc;

/// A core with a history, and what answers rest on.
pub struct Core<'a> {
    /// Its name: that of its thread in answers.
    pub name: &'a str,
    /// Its architecture.
    pub architecture: Architecture,
    /// Whether its data has the most significant byte first.
    pub big_endian: bool,
    /// The names of its registers, as debuggers know them.
    pub registers: Vec<String>,
    /// Its history.
    pub history: &'a mut History,
    /// Its past values.
    pub recovery: &'a mut Recovery,
    /// The symbols and the debug information of its programs.
    pub symbols: &'a Symbols,
    /// Reads the call frame information of its programs.
    pub frames: &'a dyn Fn() -> Arc<CallFrames>,
}

impl Core<'_> {
    /// Fails if the history has no such position.
    pub(super) fn check(&mut self, position: Position) -> Result<(), AskError> {
        if self.history.contains(position) {
            return Ok(());
        }
        Err(AskError::NoSuchPosition {
            position,
            begin: self.history.begin(),
            end: self.history.end(),
        })
    }

    /// The registers before the instruction at a position.
    pub(super) fn registers(
        &mut self,
        at: Position,
        cancel: &Cancel,
    ) -> Result<Registers, AskError> {
        self.look_around(at, cancel)?;
        let found = self.recovery.registers(self.history, at, cancel);
        found.ok_or(AskError::Interrupted)
    }

    /// The memory before the instruction at a position.
    pub(super) fn memory(
        &mut self,
        at: Position,
        address: u64,
        length: usize,
        cancel: &Cancel,
    ) -> Result<Vec<Option<Known<u8>>>, AskError> {
        self.look_around(at, cancel)?;
        let mut bytes = vec![None; length];
        let (history, recovery) = (&mut *self.history, &mut *self.recovery);
        recovery
            .memory(history, at, address, &mut bytes, cancel)
            .and_then(|()| recovery.code(history, at, address, &mut bytes, cancel))
            .ok_or(AskError::Interrupted)?;
        Ok(bytes)
    }

    fn look_around(&mut self, at: Position, cancel: &Cancel) -> Result<(), AskError> {
        let looked = self.recovery.look_around(self.history, at, cancel);
        looked.ok_or(AskError::Interrupted)
    }

    /// A number in memory before the instruction at a position; unknown if it has more than 16
    /// bytes.
    pub(super) fn number(
        &mut self,
        at: Position,
        address: u64,
        length: u8,
        cancel: &Cancel,
    ) -> Result<Worth, AskError> {
        if length > 16 {
            return Ok(Worth::UNKNOWN);
        }
        let bytes = self.memory(at, address, length.into(), cancel)?;
        Ok(self.worth(&bytes))
    }

    /// The number that bytes of memory form; unknown unless all of them are known.
    pub(super) fn worth(&self, bytes: &[Option<Known<u8>>]) -> Worth {
        self.known(bytes).map_or(Worth::UNKNOWN, |(value, status)| {
            Worth::known(value, status)
        })
    }

    /// The number that bytes of memory form, and its status, if all of them are known.
    pub(super) fn known(&self, bytes: &[Option<Known<u8>>]) -> Option<(u128, Status)> {
        let mut known: Vec<Known<u8>> = bytes.iter().copied().collect::<Option<_>>()?;
        if !self.big_endian {
            known.reverse();
        }
        let all = known.iter();
        let value = all.fold(0, |value, byte| value << 8 | u128::from(byte.value));
        let status = known.iter().map(|byte| byte.status).max()?;
        Some((value, status))
    }

    /// The address of the instruction at a position, or of the one at which the core halted.
    pub(super) fn pc(&mut self, at: Position) -> Option<u64> {
        let pc = self.history.place(at).and_then(|place| match place.kind {
            PointKind::Halted => self.history.halted(),
            PointKind::Instruction { .. } | PointKind::Gap(_) => place.pc(),
        });
        pc.map(|pc| pc.0)
    }

    /// Where the instruction at a position, or the one at which the core halted, is in the program.
    pub(super) fn place(&mut self, at: Position) -> CodePlace {
        let Some(pc) = self.pc(at) else {
            return CodePlace::default();
        };
        let line = self.symbols.line(pc);
        let (file, line) = line.map_or((None, None), |SourceLine { file, line }| {
            (Some(file), Some(line))
        });
        CodePlace {
            pc: Some(Hex(pc.into())),
            function: self.function(pc),
            file,
            line,
        }
    }

    /// The name of the function that contains an address.
    pub(super) fn function(&self, address: u64) -> Option<String> {
        let (name, _) = self.symbols.function(address)?;
        Some(name.to_owned())
    }

    /// The register with a DWARF number (DWARF for the Arm Architecture, 4.1), except vector
    /// registers.
    pub(super) fn location(&self, number: u16) -> Option<Location> {
        let within = |first: Register, last: Register| {
            let is_within = (first.0..=last.0).contains(&number);
            is_within.then(|| (number - first.0) as u8)
        };
        match self.architecture {
            Architecture::AArch64 if number == AArch64::SP.0 => Some(Location::SP),
            Architecture::AArch64 => {
                let general = within(AArch64::X0, AArch64::X30).map(Location::general);
                let vector = || within(AArch64::V0, AArch64::V31).map(|at| Location::vector(at, 0));
                general.or_else(vector)
            }
            Architecture::AArch32 | Architecture::MProfile => {
                within(Arm::R0, Arm::R14).map(Location::general)
            }
        }
    }
}
