//! Registers and memory at past positions, as far as [`armsnap_history::recover`] knows them.
//!
//! A register is shown only if all its bytes are known: GDB checks only its first byte for
//! availability, and treats other unknown bytes as 0.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gdbstub::common::Tid;

use super::endpoint::Endpoint;
use super::positions::Positions;
use armsnap_arch::arch::RegisterDescription;
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{
    FinalState, Known, Level, Limit, Options, Recovery, RegisterLocations, Registers,
    SnapshotMemory, Status,
};
use armsnap_history::timeline::{History, PointKind, Position};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::stop::Cancel;

/// Time limit of a request, independent of the number of registers and bytes in it; clients wait up
/// to two seconds for the reply.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);
/// Time limit of examining a stop: clients wait for a stop without limit, and can interrupt it. In
/// most cases, all history that fits into memory is solved by then.
const AT_STOP: Duration = Duration::from_secs(10);
/// Number of first stops that are examined for inferred values: each examination that finds none
/// takes time.
const EXAMINED: u8 = 3;
/// Message at a client's first stop in the past.
const INFERRED: &str = "values shown at past positions include inferred ones: `monitor recover proved` hides \
                        them\n";

/// Registers that were requested.
struct Asked {
    thread: Tid,
    position: Position,
    /// The version of the explored history when they were computed.
    looked_at: (u32, u32, u32),
    registers: Registers,
}

/// The values of past positions.
#[derive(Default)]
pub(super) struct PastValues {
    level: Level,
    /// Whether the client has received the message on inferred values.
    announced: bool,
    /// The number of stops examined for inferred values.
    examined: u8,
    cores: HashMap<Tid, Recovery>,
    /// The registers that were requested last.
    last: Option<Asked>,
    /// Whether inferred memory was requested.
    served: bool,
}

impl PastValues {
    /// Returns which values are shown.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Changes which values are shown.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
        self.last = None;
        for recovery in self.cores.values_mut() {
            recovery.set_level(level);
        }
    }

    /// Returns a message for the first stop in the past at which inferred values are shown; if the
    /// first few stops had none, for the first stop after the client received some.
    pub fn first_stop(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        thread: Tid,
        cancel: &Cancel,
    ) -> &'static str {
        if self.announced || self.level != Level::Inferred {
            return "";
        }
        let mut asked = self.last.iter().flat_map(|asked| &asked.registers.0);
        let shown = self.served
            || asked.any(|known| known.is_some_and(|known| known.status == Status::Inferred));
        self.announced = shown;
        if !shown
            && self.examined < EXAMINED
            && let Some(found) = self.statuses(endpoint, positions, thread, cancel)
        {
            self.examined += 1;
            self.announced = found.inferred;
        }
        if self.announced { INFERRED } else { "" }
    }

    /// Returns whether registers, or bytes of the stack near the stack pointer, are known at a core's
    /// position, by status; `None` if it was cancelled or took too long.
    pub fn statuses(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        thread: Tid,
        cancel: &Cancel,
    ) -> Option<Statuses> {
        let mut found = Statuses::default();
        let Some(position) = past_position(positions, thread) else {
            return Some(found);
        };
        if self.level == Level::Off {
            return Some(found);
        }
        let cancel = &cancel.within(AT_STOP);
        let registers = self.registers(endpoint, positions, (thread, position), cancel)?;
        let known = registers.0.iter().flatten();
        known.for_each(|known| found.add(known.status));
        let stack = RegisterLocations::of(endpoint.architecture(), "sp");
        if let Some(stack) = stack.and_then(|stack| registers.get(stack.low())) {
            let mut bytes = [None; 256];
            let (recovery, history) = self.of(endpoint, positions, thread)?;
            recovery.memory(history, position, stack.value, &mut bytes, cancel)?;
            let known = bytes.iter().flatten();
            known.for_each(|known| found.add(known.status));
        }
        Some(found)
    }

    /// Drops everything that was computed, after an interrupted request.
    pub fn forget(&mut self) {
        self.cores.clear();
        self.last = None;
    }

    /// Returns the recovery of a core, and its history.
    pub fn of<'a>(
        &'a mut self,
        endpoint: &Endpoint,
        positions: &'a mut Positions,
        thread: Tid,
    ) -> Option<(&'a mut Recovery, &'a mut History)> {
        let level = self.level;
        if level == Level::Off {
            return None;
        }
        let history = positions.history(thread)?;
        let recovery = self.cores.entry(thread).or_insert_with(|| {
            let options = Options {
                level,
                ..Options::default()
            };
            Recovery::new(facts(endpoint, thread), options)
        });
        Some((recovery, history))
    }

    /// Returns the known registers before the instruction at a position; `None` if they could not be
    /// computed in time.
    pub fn registers(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        (thread, position): (Tid, Position),
        cancel: &Cancel,
    ) -> Option<Registers> {
        if let Some(asked) = &self.last
            && (asked.thread, asked.position) == (thread, position)
            && self.cores.get(&thread).map(Recovery::looked_at) == Some(asked.looked_at)
        {
            return Some(asked.registers.clone());
        }
        let is_here = past_position(positions, thread) == Some(position);
        let (recovery, history) = self.of(endpoint, positions, thread)?;
        if is_here {
            recovery.look_around(history, position, cancel)?;
        }
        let registers = recovery.registers(history, position, cancel)?;
        self.last = Some(Asked {
            thread,
            position,
            looked_at: recovery.looked_at(),
            registers: registers.clone(),
        });
        Some(registers)
    }

    /// Returns a register of a core at its position, with `None` for bytes that are unknown or could
    /// not be computed in time.
    pub fn register(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        (thread, register): (Tid, &RegisterDescription),
        cancel: &Cancel,
    ) -> Option<Bytes> {
        let shown = positions.register(thread, register)?;
        let found = RegisterLocations::of(endpoint.architecture(), &register.name);
        let (Some(places), Some(position)) = (found, past_position(positions, thread)) else {
            return Some(shown);
        };
        if cancel.is_requested() {
            return Some(shown);
        }
        let Some(known) = self.registers(endpoint, positions, (thread, position), cancel) else {
            return Some(shown);
        };
        Some(places.bytes(&known, register).unwrap_or(shown))
    }

    /// Fills `out` with the memory at the position of a core, as far as it is known and could be
    /// computed in time.
    pub fn memory(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        (thread, address): (Tid, u64),
        out: &mut [Option<Known<u8>>],
        cancel: &Cancel,
    ) {
        let Some(position) = past_position(positions, thread) else {
            return;
        };
        let Some((recovery, history)) = self.of(endpoint, positions, thread) else {
            return;
        };
        let found = recovery
            .memory(history, position, address, out, cancel)
            .and_then(|()| recovery.code(history, position, address, out, cancel));
        if found.is_none() {
            out.fill(None);
        }
        let mut known = out.iter().map_while(|byte| byte.as_ref());
        self.served |= known.any(|byte| byte.status == Status::Inferred);
    }

    /// Returns what ends proof in the explored part of a core's history.
    pub fn limits(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        thread: Tid,
    ) -> Vec<Limit> {
        match self.of(endpoint, positions, thread) {
            Some((recovery, history)) => recovery.limits(history),
            None => Vec::new(),
        }
    }
}

/// Which kinds of values are known at a position, by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statuses {
    pub proved: bool,
    pub inferred: bool,
}

impl Statuses {
    fn add(&mut self, status: Status) {
        match status {
            Status::Proved => self.proved = true,
            Status::Inferred => self.inferred = true,
        }
    }
}

/// Returns the past position of a core at an instruction; nothing is known at a gap.
pub(super) fn past_position(positions: &Positions, thread: Tid) -> Option<Position> {
    let place = positions.past(thread)?.place;
    matches!(place.kind, PointKind::Instruction { .. }).then_some(place.position)
}

/// Collects what is known of a core besides its trace and code.
fn facts(endpoint: &Endpoint, thread: Tid) -> FinalState {
    let core = &endpoint.cores[thread.get() - 1];
    let programs: Vec<&Elf> = endpoint.programs().map(|program| &program.elf).collect();
    let libraries = endpoint.library_files();
    let code: Vec<&Elf> = programs.iter().copied().chain(&libraries).collect();
    let memory = SnapshotMemory::new(Arc::clone(&core.memory), core.space.space, programs);
    let facts = FinalState::of(&endpoint.loaded, &core.name, &core.registers, memory, code);
    if core.rests {
        let registers = [None; Location::KEPT];
        FinalState { registers, ..facts }
    } else {
        facts
    }
}
