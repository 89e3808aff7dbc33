//! What programs pass to the kernel: the number of each system call, and the arguments of those that
//! output something or end the program.

use super::super::answer::Hex;
use super::super::core::Core;
use super::DiffError;
use super::difference::{Difference, Differing, Kind};
use super::places::Correspondence;
use super::values::{self, Found};
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::What;
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;

/// The most bytes of a buffer that are compared.
const MOST_BYTES: u64 = 1 << 16;

/// The arguments of a system call that are compared.
enum Arguments {
    /// A file descriptor, a buffer that the kernel reads, and its length.
    Output,
    /// An exit status.
    Status,
    /// None.
    Unknown,
}

/// The calls by number (Linux: asm-generic/unistd.h, and the EABI of arch/arm/tools/syscall.tbl).
fn arguments(architecture: Architecture, number: u64) -> Arguments {
    match (architecture, number) {
        // write, pwrite64, sendto.
        (Architecture::AArch64, 64 | 68 | 206) | (Architecture::AArch32, 4 | 181 | 290) => {
            Arguments::Output
        }
        // exit, exit_group.
        (Architecture::AArch64, 93 | 94) | (Architecture::AArch32, 1 | 248) => Arguments::Status,
        _ => Arguments::Unknown,
    }
}

/// Compares the system calls of two courses.
#[derive(Default)]
pub(super) struct Calls {
    /// Where registers were not known: they are not asked for at later ones, which may take long.
    pub unknown: Option<[Position; 2]>,
}

impl Calls {
    /// Compares the system calls at two positions.
    pub fn compare(
        &mut self,
        (a, b): (&mut Core<'_>, &mut Core<'_>),
        at: [Position; 2],
        same: &mut Correspondence,
        cancel: &Cancel,
    ) -> Result<Option<Difference>, DiffError> {
        if self.unknown.is_some() {
            return Ok(None);
        }
        let number = number(a.architecture);
        let known = [a.registers(at[0], cancel)?, b.registers(at[1], cancel)?];
        if known.iter().any(|known| known.get(number).is_none()) {
            self.unknown = Some(at);
            return Ok(None);
        }
        let found = differing((a, b), at, same, cancel)?;
        if found.is_empty() {
            return Ok(None);
        }
        let found = (found, None);
        let difference = values::difference((a, b), at, Kind::Value, found, cancel)?;
        Ok(Some(difference))
    }
}

fn number(architecture: Architecture) -> Location {
    Location::general(if architecture == Architecture::AArch64 {
        8
    } else {
        7
    })
}

/// What differs in the system calls at two positions, as far as it is known.
pub(super) fn differing(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    at: [Position; 2],
    same: &mut Correspondence,
    cancel: &Cancel,
) -> Result<Vec<Found>, DiffError> {
    let architecture = a.architecture;
    let site = |location| ((at[0], location), (at[1], location));
    let found = values::differing((a, b), &[site(number(architecture))], same, cancel)?;
    let known = a.registers(at[0], cancel)?;
    let other = b.registers(at[1], cancel)?;
    let Some(call) = known.get(number(architecture)).filter(|_| found.is_empty()) else {
        return Ok(found);
    };
    let argument = Location::general;
    match arguments(architecture, call.value) {
        Arguments::Unknown => Ok(found),
        Arguments::Status => {
            // The kernel keeps 8 bits of it.
            let status = |registers: &armsnap_history::recover::Registers| {
                registers.get(argument(0)).map(|known| known.value as u8)
            };
            match status(&known) == status(&other) {
                true => Ok(found),
                false => values::differing((a, b), &[site(argument(0))], same, cancel),
            }
        }
        Arguments::Output => {
            let sites = [site(argument(0)), site(argument(2))];
            let mut found = values::differing((a, b), &sites, same, cancel)?;
            let value = |registers: &armsnap_history::recover::Registers, number| {
                registers.get(argument(number)).map(|known| known.value)
            };
            let lengths = [value(&known, 2), value(&other, 2)];
            let buffers = [value(&known, 1), value(&other, 1)];
            if let ([Some(x), Some(y)], [Some(first), Some(second)]) = (buffers, lengths) {
                let length = first.min(second).min(MOST_BYTES);
                found.extend(bytes((a, b), at, [x, y], length as usize, cancel)?);
            }
            Ok(found)
        }
    }
}

/// The first byte that differs between two buffers.
fn bytes(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    at: [Position; 2],
    buffers: [u64; 2],
    length: usize,
    cancel: &Cancel,
) -> Result<Option<Found>, DiffError> {
    let [x, y] = [
        a.memory(at[0], buffers[0], length, cancel)?,
        b.memory(at[1], buffers[1], length, cancel)?,
    ];
    let mut both = x.iter().zip(&y).enumerate();
    let first = both.find_map(|(offset, (x, y))| {
        let (x, y) = ((*x)?.value, (*y)?.value);
        (x != y).then_some((offset, x, y))
    });
    let register = if a.architecture == Architecture::AArch64 {
        "x1"
    } else {
        "r1"
    };
    Ok(first.map(|(offset, x, y)| Found {
        shown: Differing {
            name: format!("*(unsigned char *)({register} + {offset})"),
            a: Hex(x.into()),
            b: Hex(y.into()),
        },
        sites: [
            (at[0], What::Byte(buffers[0].wrapping_add(offset as u64))),
            (at[1], What::Byte(buffers[1].wrapping_add(offset as u64))),
        ],
    }))
}
