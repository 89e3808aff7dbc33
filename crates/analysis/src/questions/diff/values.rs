//! The values that differ at an instruction, and where they came from.

use super::super::answer::{Hex, Link};
use super::super::core::Core;
use super::super::note::AskError;
use super::super::origin;
use super::difference::{Causes, Difference, Differing, Kind, Place};
use super::places::Correspondence;
use super::system_calls::Calls;
use super::{DiffError, reads, system_calls};
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::{Control, Location};
use armsnap_history::recover::What;
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;

/// The most links of a cause.
const MOST_LINKS: usize = 100;
/// Numbers below this are not treated as addresses.
const LEAST_ADDRESS: u64 = 1 << 16;

/// A value in both recordings: before which instruction, and where.
pub(super) type Sites = [(Position, What); 2];

/// A register in both recordings: before which instruction, and its location.
pub(super) type Register = ((Position, Location), (Position, Location));

/// A value that differs.
pub(super) struct Found {
    pub shown: Differing,
    pub sites: Sites,
}

/// The courses differ at an instruction.
pub(super) fn at(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    at: [Position; 2],
    kind: Kind,
    same: &mut Correspondence,
    cancel: &Cancel,
) -> Result<Difference, DiffError> {
    let [first, second] = [reads::deciding(a, at[0]), reads::deciding(b, at[1])];
    let mut sites: Vec<_> = first.into_iter().zip(second).collect();
    sites.retain(|(first, second)| first.1 == second.1);
    let mut found = differing((a, b), &sites, same, cancel)?;
    if kind == Kind::End && found.is_empty() {
        found = system_calls::differing((a, b), at, same, cancel)?;
    }
    let otherwise = sites.first().map(|&((x, location), (y, _))| {
        [(x, What::Location(location)), (y, What::Location(location))]
    });
    Ok(difference((a, b), at, kind, (found, otherwise), cancel)?)
}

/// Both courses have ended, `last` being their last instructions: compares where they stopped, and the
/// final registers.
pub(super) fn at_end(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    last: Option<[Position; 2]>,
    (same, calls): (&mut Correspondence, &mut Calls),
    cancel: &Cancel,
) -> Result<Option<Difference>, DiffError> {
    let at = [a.history.end(), b.history.end()];
    if let (Some(x), Some(y)) = (a.history.halted(), b.history.halted())
        && !same.place((a, b), (x.0, y.0))
    {
        let at = last.unwrap_or(at);
        return self::at((a, b), at, Kind::Branch, same, cancel).map(Some);
    }
    let next = reads::instruction(a, at[0]);
    let found = match next.map(|next| next.semantics.control) {
        Some(Control::SystemCall) => system_calls::differing((a, b), at, same, cancel)?,
        // Other code leaves other values in registers.
        _ if same.are_builds() => Vec::new(),
        _ => {
            let last = if a.architecture == Architecture::AArch64 {
                30
            } else {
                14
            };
            let sites: Vec<_> = (0..=last)
                .map(Location::general)
                .map(|location| ((at[0], location), (at[1], location)))
                .collect();
            let known = [a.registers(at[0], cancel)?, b.registers(at[1], cancel)?];
            let is_known = |(_, (_, location)): &Register| {
                known.iter().all(|known| known.get(*location).is_some())
            };
            if !sites.iter().all(is_known) {
                calls.unknown.get_or_insert(at);
            }
            differing((a, b), &sites, same, cancel)?
        }
    };
    if found.is_empty() {
        return Ok(None);
    }
    let found = (found, None);
    Ok(Some(difference((a, b), at, Kind::Value, found, cancel)?))
}

/// The registers whose values are known in both recordings, and differ.
pub(super) fn differing(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    sites: &[Register],
    same: &mut Correspondence,
    cancel: &Cancel,
) -> Result<Vec<Found>, DiffError> {
    let mut found = Vec::new();
    let mut known = None;
    for &((x, location), (y, _)) in sites {
        let registers = match known.take() {
            Some((at, registers)) if at == [x, y] => registers,
            _ => [a.registers(x, cancel)?, b.registers(y, cancel)?],
        };
        let values = [registers[0].get(location), registers[1].get(location)];
        known = Some(([x, y], registers));
        let (Some(first), Some(second)) = (values[0], values[1]) else {
            continue;
        };
        let values = [first.value, second.value];
        let Some(name) = reads::name(a.architecture, location) else {
            continue;
        };
        if matters((a, b), ([x, y], values), same, cancel)? {
            found.push(Found {
                shown: Differing {
                    name,
                    a: Hex(values[0].into()),
                    b: Hex(values[1].into()),
                },
                sites: [(x, What::Location(location)), (y, What::Location(location))],
            });
        }
    }
    Ok(found)
}

/// Whether two values before instructions differ, except in that they are addresses of the same place
/// of a program, or of memory outside of programs, such as the stack.
pub(super) fn matters(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    (at, values): ([Position; 2], [u64; 2]),
    same: &mut Correspondence,
    cancel: &Cancel,
) -> Result<bool, AskError> {
    if values[0] == values[1] {
        return Ok(false);
    }
    if same.place((a, b), (values[0], values[1])) {
        return Ok(false);
    }
    let are_addresses =
        is_address(a, at[0], values[0], cancel)? && is_address(b, at[1], values[1], cancel)?;
    Ok(!are_addresses)
}

/// Whether a value is the address of known memory outside of programs.
fn is_address(
    core: &mut Core<'_>,
    at: Position,
    value: u64,
    cancel: &Cancel,
) -> Result<bool, AskError> {
    Ok(value >= LEAST_ADDRESS
        && core.symbols.file(value).is_none()
        && core.memory(at, value, 1, cancel)?[0].is_some())
}

/// Describes a difference with the values that were found, and the cause of the first of them, or
/// of another value if none is known to differ.
pub(super) fn difference(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    at: [Position; 2],
    kind: Kind,
    (found, otherwise): (Vec<Found>, Option<Sites>),
    cancel: &Cancel,
) -> Result<Difference, AskError> {
    let sites = found.first().map(|found| found.sites).or(otherwise);
    let cause = match sites {
        Some([x, y]) => Causes {
            a: links(a, x, cancel)?,
            b: links(b, y, cancel)?,
        },
        None => Causes::default(),
    };
    Ok(Difference {
        thread: a.name.to_owned(),
        a: place(a, at[0], kind),
        b: place(b, at[1], kind),
        values: found.into_iter().map(|found| found.shown).collect(),
        cause,
    })
}

fn links(
    core: &mut Core<'_>,
    (at, what): (Position, What),
    cancel: &Cancel,
) -> Result<Vec<Link>, AskError> {
    let way = core
        .recovery
        .origin(core.history, at, what, MOST_LINKS, cancel);
    let way = way.ok_or(AskError::Interrupted)?;
    Ok(origin::links(core, &way))
}

fn place(core: &mut Core<'_>, at: Position, kind: Kind) -> Place {
    Place {
        position: at,
        code: core.place(at),
        kind,
    }
}
