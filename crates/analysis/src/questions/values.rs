//! `values` and `memory`: what is known at a position.

use super::Sink;
use super::answer::{Answer, Memory, Values, Worth};
use super::core::Core;
use super::note::{AskError, Unknown};
use armsnap_history::recover::{RegisterLocations, Status};
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;
use std::fmt::Write;

/// Answers with the registers at a position.
pub(super) fn registers(
    core: &mut Core<'_>,
    at: Position,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    core.check(at)?;
    let known = core.registers(at, cancel)?;
    let of = |name: &String| {
        let places = RegisterLocations::of(core.architecture, name)?;
        Some((name.clone(), Worth::from(places.value(&known))))
    };
    let mut registers: std::collections::BTreeMap<String, Worth> =
        core.registers.iter().filter_map(of).collect();
    let is_known = registers.values().any(|worth| worth.value.is_some());
    let place = core.history.place(at);
    let pc = place.and_then(|place| place.pc());
    let pc = pc.or_else(|| (at == core.history.end()).then(|| core.history.halted())?);
    if let Some(pc) = pc {
        registers.insert("pc".to_owned(), Worth::known(pc.0.into(), Status::Proved));
    }
    if is_known || pc.is_some() {
        sink(Answer::Values(Values { registers }))?;
    }
    Ok(match is_known {
        true => Vec::new(),
        false => vec![Unknown::Registers(at)],
    })
}

/// Answers with memory at a position.
pub(super) fn memory(
    core: &mut Core<'_>,
    at: Position,
    (address, length): (u64, usize),
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    core.check(at)?;
    let known = core.memory(at, address, length, cancel)?;
    let Some(status) = known.iter().flatten().map(|byte| byte.status).max() else {
        return Ok(vec![Unknown::Memory {
            position: at,
            address,
        }]);
    };
    let mut bytes = String::with_capacity(2 * length);
    for byte in &known {
        let _ = match byte {
            Some(byte) => write!(bytes, "{:02x}", byte.value),
            None => write!(bytes, ".."),
        };
    }
    sink(Answer::Memory(Memory {
        bytes,
        status: status.name(),
    }))?;
    let unknown = known.iter().position(Option::is_none);
    let unknown = unknown.map(|offset| Unknown::Memory {
        position: at,
        address: address.wrapping_add(offset as u64),
    });
    Ok(unknown.into_iter().collect())
}
