//! Registers and stack memory in the trace frames of a snapshot, as far as [`armsnap_history::recover`] knows
//! them; `convert --values` writes the same values into trace files.

use std::time::Duration;

use gdbstub::common::Tid;

use super::endpoint::Endpoint;
use super::past_values::PastValues;
use super::positions::Positions;
use super::trace_frames::FramePlace;
use armsnap_arch::arch::RegisterDescription;
use armsnap_arch::arch::registers::Bytes;
use armsnap_history::recover::{Known, Level, RegisterLocations, Registers};
use armsnap_history::timeline::Numbers;
use armsnap_snapshot::stop::Cancel;

/// Size of the stack memory in a frame, and how far below the stack pointer it starts: at a return,
/// the locals are there.
const STACK: usize = 8 << 10;
const BELOW: u64 = 512;
/// Pieces of memory: address and bytes of each.
type Pieces = Vec<(u64, Vec<u8>)>;

/// What is known in a trace frame.
#[derive(Debug)]
pub(super) struct FrameValues {
    place: FramePlace,
    level: Level,
    registers: Registers,
    /// The known pieces of the stack.
    pub stack: Pieces,
    /// The time limit within which they could not be computed.
    too_short: Option<Duration>,
}

impl FrameValues {
    /// Returns a register, if all of it is known.
    pub fn register(&self, endpoint: &Endpoint, register: &RegisterDescription) -> Option<Bytes> {
        RegisterLocations::of(endpoint.architecture(), &register.name)?
            .bytes(&self.registers, register)
    }
}

/// The values of the trace frames that a client selects.
#[derive(Debug, Default)]
pub(super) struct TraceValues {
    /// A core, and the numbers of its instructions.
    numbers: Option<(usize, Numbers)>,
    /// The values of the last frame.
    last: Option<FrameValues>,
}

impl TraceValues {
    /// Returns the values of the last frame, if they were computed.
    pub fn last(&self) -> Option<&FrameValues> {
        self.last.as_ref()
    }

    /// Computes the values of a frame, unless they are those of the last frame and either were computed,
    /// or could not be computed within at least this time limit. Without a place, no values are known.
    pub fn find(
        &mut self,
        place: Option<FramePlace>,
        endpoint: &Endpoint,
        (past, positions): (&mut PastValues, &mut Positions),
        patience: Duration,
    ) {
        let level = past.level();
        let last = self.last.take();
        let Some(place) = place else { return };
        let is_same = |last: &FrameValues| {
            (last.place, last.level) == (place, level)
                && last.too_short.is_none_or(|before| patience <= before)
        };
        self.last = last.filter(is_same);
        if self.last.is_none() {
            let cancel = Cancel::after(patience);
            let found = self.known(place, endpoint, (past, positions), &cancel);
            let is_cancelled = found.is_none() && cancel.is_requested();
            let (registers, stack) = found.unwrap_or_else(|| (Registers::unknown(), Vec::new()));
            self.last = Some(FrameValues {
                place,
                level,
                registers,
                stack,
                too_short: is_cancelled.then_some(patience),
            });
        }
    }

    fn known(
        &mut self,
        place: FramePlace,
        endpoint: &Endpoint,
        (past, positions): (&mut PastValues, &mut Positions),
        cancel: &Cancel,
    ) -> Option<(Registers, Pieces)> {
        let thread = Tid::new(place.core + 1)?;
        let (recovery, history) = past.of(endpoint, positions, thread)?;
        if !matches!(&self.numbers, Some((core, _)) if *core == place.core) {
            self.numbers = Some((place.core, Numbers::of(history, cancel)?));
        }
        let (_, numbers) = self.numbers.as_ref()?;
        // Trace decoded from its start may differ from trace decoded from the middle.
        let numbers = Some(numbers).filter(|n| n.count() == place.executed)?;
        let position = numbers.position(place.number)?;
        if history.place(position)?.pc() != Some(place.pc) {
            return None;
        }
        let registers = recovery.registers(history, position, cancel)?;
        let mut pieces = Vec::new();
        let stack = RegisterLocations::of(endpoint.architecture(), "sp");
        if let Some(stack) = stack.and_then(|stack| registers.get(stack.low())) {
            let from = stack.value.saturating_sub(BELOW);
            let mut bytes = vec![None; STACK];
            recovery.memory(history, position, from, &mut bytes, cancel)?;
            pieces = Known::pieces(from, &bytes);
        }
        Some((registers, pieces))
    }
}
