//! The signal that stopped a thread of a program, as a fault.

use super::memory_map::what;
use super::{DataAddress, Fault, Halted, Note, Relation, access};
use crate::snapshot::signals::Signal;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::Location;

/// SIGSEGV and SIGBUS: an access failed.
const ACCESSES: [u32; 2] = [11, 7];

/// Describes the signal; `value` gives a general register.
pub(super) fn fault(
    core: &Halted<'_>,
    signal: &Signal,
    isa: Isa,
    value: impl Fn(Location) -> Option<u64>,
) -> Fault {
    let is_64bit = core.registers.architecture() == Architecture::AArch64;
    let mut fault = Fault::new(signal.describe(is_64bit), true);
    let Some(pc) = core.registers.pc() else {
        return fault;
    };
    let is_access = ACCESSES.contains(&signal.number);
    let reported = signal.address(is_64bit);
    let cause = signal.is_raised_by_the_program();
    let no_code = reported.map_or(!core.has_memory(pc), |address| address == pc);
    let relation = match cause {
        Some(true) | None if is_access && no_code => Relation::NotFetched,
        Some(true) => Relation::Faulted,
        None if is_access => Relation::Faulted,
        Some(false) | None => Relation::Interrupted,
    };
    if cause.is_none() && is_access {
        fault.notes.push(Note::SignalWithoutInformation);
    }
    fault.instruction = Some(core.instruction(pc, isa, relation));
    if !is_access || relation != Relation::Faulted {
        return fault;
    }
    let accesses = access::of(core, pc, isa, &value);
    let accesses =
        accesses.filter(|accesses| reported.is_none_or(|address| accesses.touches(address)));
    let first = accesses
        .as_ref()
        .and_then(|accesses| accesses.ranges.first());
    let computed = first.map(|(address, _)| *address);
    let names = accesses.iter().flat_map(|accesses| &accesses.registers);
    let from = names.filter_map(|number| {
        let name = match isa {
            Isa::A64 => format!("x{number}"),
            _ => format!("r{number}"),
        };
        Some((name, value(Location::general(*number))?))
    });
    let from = from.collect();
    fault.address = reported.or(computed).map(|address| DataAddress {
        address,
        what: what(core, address),
        from,
        computed: reported.is_none(),
    });
    fault
}
