//! Traps in the program: at its entry, at `--until`, and at its exit.

use super::checkpoints::Checkpoints;
use super::run::RunningProgram;
use super::steps::StepLog;
use super::{Error, Request, Session, memory};
use crate::record::device_state;
use crate::record::plugin::send;
use crate::record::remote::{self, number_of};
use crate::record::replay_file::Start;
use crate::record::stream::{Command, Exit};
use crate::record::traps;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::encode::CodeAddress;
use std::collections::{BTreeMap, BTreeSet};

/// The reason for a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrapReason {
    /// The program's entry, where its libraries have been loaded.
    Entry,
    /// The location named by `--until`.
    Until,
    /// The system call that exits the program.
    Exit,
}

/// A trap in the program.
#[derive(Clone, Debug)]
pub(super) struct Trap {
    pub reason: TrapReason,
    pub isa: Isa,
    /// The replaced code; `None` for a breakpoint of the emulator.
    pub original: Option<Vec<u8>>,
}
impl RunningProgram {
    /// Prepares the run, before the first instruction.
    pub fn new(session: &mut Session, request: &mut Request) -> Result<Self, Error> {
        let entry = session.entry()?;
        session.moved = entry.wrapping_sub(session.program.entry & !1);
        session.base = session.find_base(request)?;
        if request.options.trace.last.is_none() {
            let mut registers = device_state::registers(&mut session.emulator.remote)?;
            registers.append(&mut session.start.registers);
            let memory = memory::read(session, request.options.memory, memory::Moment::Start);
            // Without space for it, the program is recorded without its start.
            let start = memory.map(|memory| Start { registers, memory });
            session.start = start.unwrap_or_default();
        }
        let mut run = Self {
            traps: BTreeMap::new(),
            removed: BTreeSet::new(),
            passing: None,
            exit: None,
            leaves: None,
            children: 0,
            steps: match request.registers.take() {
                Some(file) => Some(StepLog::new(file, session)?),
                None => None,
            },
            until: request.options.until.clone(),
            reached: 0,
            instructions: request.options.instructions,
            limit_reached: false,
            checkpoints: Checkpoints::new(session, request.options.memory),
            checkpoint_asked: false,
            stepping: false,
            executed: 0,
            handlers: BTreeMap::new(),
            blocked: BTreeSet::new(),
        };
        if run.until.is_some() && session.program.interpreter.is_some() {
            let isa = match (session.program.is_64bit, session.program.entry & 1) {
                (true, _) => Isa::A64,
                (false, 1) => Isa::T32,
                (false, _) => Isa::A32,
            };
            let place = CodeAddress {
                address: Address(entry),
                isa,
            };
            run.set(session, place, TrapReason::Entry)?;
        }
        let dynamic = session.program.interpreter.is_some();
        run.set_until(session, !dynamic)?;
        Ok(run)
    }

    /// Inserts traps for `--until`. With `all` libraries loaded, fails if no location matches.
    pub(super) fn set_until(&mut self, session: &mut Session, all: bool) -> Result<(), Error> {
        let Some(until) = self.until.clone() else {
            return Ok(());
        };
        let places = session.until(&until)?;
        let mut set = false;
        for place in &places {
            set |= self.set(session, *place, TrapReason::Until)?;
        }
        if set || !all {
            return Ok(());
        }
        let text = &until.text;
        Err(Error::Usage(match (places.is_empty(), until.number()) {
            (false, _) => {
                format!("--until {text}: no memory is mapped there when the program starts")
            }
            (true, Some(_)) => format!(
                "--until {text}: no instruction is there in the program, or in the libraries loaded at \
                 its start: a place in data, or within an instruction, is never reached"
            ),
            (true, None) => format!(
                "--until {text}: expected an address, or a function or FILE:LINE of the program or of \
                 the libraries loaded at its start: no function or label has this name, and no code \
                 belongs to this line"
            ),
        }))
    }

    /// Inserts a trap; returns false if no memory is mapped there.
    pub(super) fn set(
        &mut self,
        session: &mut Session,
        place: CodeAddress,
        reason: TrapReason,
    ) -> Result<bool, Error> {
        let address = place.address.0;
        if let Some(there) = self.traps.get_mut(&address) {
            // A location named by the user takes precedence.
            if reason == TrapReason::Until {
                there.reason = reason;
            }
            return Ok(true);
        }
        let code = traps::trap(place.isa);
        let original = match &session.memory {
            Some(memory) => {
                let mut bytes = vec![0; code.len()];
                let at = address.wrapping_add(session.base);
                if memory.read(at, &mut bytes) < bytes.len() {
                    return Ok(false);
                }
                let note = |bytes: &[u8]| Command::Trap {
                    address,
                    code: number_of(bytes) as u32,
                    bytes: bytes.len() as u32,
                };
                send(&session.emulator.plugin, &note(&bytes))?;
                if memory.write(at, code).is_err() {
                    send(&session.emulator.plugin, &note(&[]))?;
                    return Ok(false);
                }
                Some(bytes)
            }
            None => {
                let set = session
                    .emulator
                    .remote
                    .insert_breakpoint(address, code.len() as u8);
                match set {
                    Ok(()) => None,
                    Err(remote::Error::Unexpected { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let isa = place.isa;
        self.removed.remove(&address);
        self.traps.insert(
            address,
            Trap {
                reason,
                isa,
                original,
            },
        );
        Ok(true)
    }

    pub(super) fn remove(
        &mut self,
        session: &mut Session,
        address: u64,
    ) -> Result<Option<Trap>, Error> {
        let Some(trap) = self.traps.remove(&address) else {
            return Ok(None);
        };
        self.removed.insert(address);
        match (&trap.original, &session.memory) {
            (Some(bytes), Some(memory)) => {
                memory.write(address.wrapping_add(session.base), bytes)?;
                let gone = Command::Trap {
                    address,
                    code: 0,
                    bytes: 0,
                };
                send(&session.emulator.plugin, &gone)?;
            }
            _ => {
                let length = traps::trap(trap.isa).len() as u8;
                session.emulator.remote.remove_breakpoint(address, length)?;
            }
        }
        Ok(Some(trap))
    }

    /// Inserts a trap at the system call that exits the program, in which its thread waits.
    pub(super) fn trap_exit(&mut self, session: &mut Session, exit: Exit) -> Result<(), Error> {
        let isa = match (session.program.is_64bit, exit.bytes) {
            (true, _) => Isa::A64,
            (false, 2) => Isa::T32,
            (false, _) => Isa::A32,
        };
        let address = Address(exit.address);
        // The emulator's breakpoints cannot be inserted while it runs; a signal also stops it.
        if session.memory.is_some() {
            self.set(session, CodeAddress { address, isa }, TrapReason::Exit)?;
        }
        Ok(())
    }
}
