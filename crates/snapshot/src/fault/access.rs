//! The memory that the faulting instruction accesses, from its registers.

use super::Halted;
use crate::program::disassembly::Disassembler;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::t32::ItState;
use armsnap_arch::semantics::{
    Location, Machine, Operand, Operation, Semantics, Values, a32, a64, execute, t32,
};

/// The accesses of one instruction whose addresses are known, and the registers in them.
pub(super) struct Accesses {
    /// The address and size in bytes of each access, in order.
    pub ranges: Vec<(u64, u8)>,
    /// The general registers that the addresses are computed from, by number.
    pub registers: Vec<u8>,
}

impl Accesses {
    /// Whether one of the accesses touches an address. The address that is reported may lie anywhere
    /// in the access, or be that of its first aligned word.
    pub(super) fn touches(&self, address: u64) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(start, size)| {
            let aligned = start & !3;
            address.wrapping_sub(aligned) < start - aligned + u64::from(*size)
        })
    }
}

/// Up to four bytes of code; fewer if no more are known.
fn code(core: &Halted<'_>, address: u64) -> Vec<u8> {
    let mut bytes = [0; 4];
    let known = core.memory.read(Address(address), core.space, &mut bytes);
    bytes[..known].to_vec()
}

/// The text of the instruction at an address, if its code is known.
pub(super) fn text(core: &Halted<'_>, address: u64, isa: Isa) -> Option<String> {
    let code = code(core, address);
    let is_m_profile = core.registers.architecture() == Architecture::MProfile;
    let needed = armsnap_arch::arch::branch::size(isa, [*code.first()?, *code.get(1)?]);
    if code.len() < needed {
        return None;
    }
    let disassembler = Disassembler::new(is_m_profile).ok()?;
    Some(disassembler.text(isa, address, &code))
}

/// What the instruction at an address does, if its code is known.
fn semantics(core: &Halted<'_>, address: u64, isa: Isa) -> Option<Semantics> {
    let code = code(core, address);
    let word = code.first_chunk().map(|word| u32::from_le_bytes(*word));
    let halves = code.chunks_exact(2);
    let mut halves = halves.map(|half| u16::from_le_bytes([half[0], half[1]]));
    match isa {
        Isa::A64 => Some(a64::decode(word?, address)),
        Isa::A32 => Some(a32::decode(word?, address)),
        Isa::T32 => {
            let first = halves.next()?;
            let second = match t32::is_wide(first) {
                true => halves.next()?,
                false => 0,
            };
            // An instruction that faults in an IT block was executed, so its condition held.
            Some(t32::decode(first, second, address, ItState::OUTSIDE))
        }
        Isa::ThumbEe | Isa::Jazelle => None,
    }
}

/// Computes what the instruction at an address accesses. `value` gives the general registers before
/// it, and the stack pointer by [`Location::SP`] in A64.
pub(super) fn of(
    core: &Halted<'_>,
    address: u64,
    isa: Isa,
    value: impl Fn(Location) -> Option<u64>,
) -> Option<Accesses> {
    struct Watch(Vec<(u64, u8)>);
    impl Machine for Watch {
        fn load(&mut self, address: u64, size: u8) -> Option<u64> {
            self.0.push((address, size));
            None
        }
        fn store(&mut self, address: Option<u64>, size: u8, _: Option<u64>) {
            self.0.extend(address.map(|address| (address, size)));
        }
        fn may_store_anywhere(&mut self) {}
    }
    let semantics = semantics(core, address, isa)?;
    let mut values: Values = [None; Location::KEPT];
    for number in 0..=30 {
        let location = Location::general(number);
        values[location.index()] = value(location);
    }
    values[Location::SP.index()] = value(Location::SP);
    let mut watch = Watch(Vec::new());
    execute(&semantics, address, &mut values, &mut watch);
    Some(Accesses {
        ranges: watch.0,
        registers: registers(&semantics),
    })
}

/// The general registers in the addresses of loads and stores.
fn registers(semantics: &Semantics) -> Vec<u8> {
    let mut wanted: Vec<Operand> = Vec::new();
    for relation in semantics.relations.iter().rev() {
        if let Some(at) = wanted
            .iter()
            .position(|operand| *operand == Operand::Location(relation.destination))
        {
            wanted.remove(at);
            wanted.extend([relation.a, relation.b]);
        }
        if matches!(
            relation.operation,
            Operation::Load { .. } | Operation::Store { .. }
        ) {
            wanted.push(relation.a);
        }
    }
    let general = |number: &u8| wanted.contains(&Operand::Location(Location::general(*number)));
    (0..=30).filter(general).collect()
}
