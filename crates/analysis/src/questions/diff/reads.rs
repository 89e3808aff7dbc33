//! What an instruction reads.

use super::super::core::Core;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::t32::{self, ItState};
use armsnap_arch::semantics::{Control, Location, Operand, Semantics, a32, a64};
use armsnap_history::timeline::{Direction, PointKind, Position};

/// The most instructions back from a branch to the one that set its flags.
const FARTHEST: usize = 64;

/// An instruction.
pub(super) struct Instruction {
    pub pc: u64,
    /// Its bytes, in a T32 instruction of 16 bits with zeros.
    pub code: [u8; 4],
    pub semantics: Semantics,
}

/// The instruction at a position, or, at the end, the one that would be next; `None` if its code is
/// not known or not modelled.
pub(super) fn instruction(core: &mut Core<'_>, at: Position) -> Option<Instruction> {
    let place = core.history.place(at)?;
    let (pc, isa) = match place.kind {
        PointKind::Instruction { pc, isa, .. } => (pc, isa),
        PointKind::Halted => {
            let pc = core.history.halted()?;
            (pc, place.context?.isa)
        }
        PointKind::Gap(_) => return None,
    };
    let view = core.history.view(place.context.as_ref());
    let half = |bytes: &[u8]| Some(u16::from_le_bytes(*bytes.first_chunk()?));
    let bytes = core.history.code(view, Address(pc.0));
    let (code, semantics) = match (core.architecture, isa) {
        (Architecture::AArch64, Isa::A64) => {
            let code = *bytes.first_chunk::<4>()?;
            (code, a64::decode(u32::from_le_bytes(code), pc.0))
        }
        (Architecture::AArch32, Isa::A32) => {
            let code = *bytes.first_chunk::<4>()?;
            (code, a32::decode(u32::from_le_bytes(code), pc.0))
        }
        (Architecture::AArch32 | Architecture::MProfile, Isa::T32) => {
            let first = half(bytes)?;
            let second = match t32::is_wide(first) {
                true => half(&bytes[2..])?,
                false => 0,
            };
            let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
            let semantics = t32::decode(first, second, pc.0, block(core, at, pc));
            ([a, b, c, d], semantics)
        }
        _ => return None,
    };
    let pc = pc.0;
    Some(Instruction {
        pc,
        code,
        semantics,
    })
}

/// The state of IT blocks before an instruction: from an IT instruction that was executed at most four
/// instructions before it, in a straight line.
fn block(core: &mut Core<'_>, mut at: Position, mut pc: Address) -> ItState {
    let mut line = Vec::new();
    for _ in 0..4 {
        let Some(before) = core.history.step(at, Direction::Backward) else {
            break;
        };
        let Some(place) = core.history.place(before) else {
            break;
        };
        let PointKind::Instruction { pc: there, .. } = place.kind else {
            break;
        };
        let view = core.history.view(place.context.as_ref());
        let Some(first) = core.history.code(view, there).first_chunk() else {
            break;
        };
        let first = u16::from_le_bytes(*first);
        let size = if t32::is_wide(first) { 4 } else { 2 };
        if there.0.wrapping_add(size) != pc.0 {
            break;
        }
        line.push(first);
        if ItState::OUTSIDE.next(first).is_inside() {
            let line = line.iter().rev();
            return line.fold(ItState::OUTSIDE, |state, first| state.next(*first));
        }
        (at, pc) = (before, there);
    }
    ItState::OUTSIDE
}

/// The locations whose values before an instruction matter for it, in the order of its operands.
pub(super) fn locations(semantics: &Semantics) -> Vec<Location> {
    let mut found = Vec::new();
    let mut written = Vec::new();
    let mut read = |operand, written: &[Location]| {
        if let Operand::Location(location) = operand
            && location.is_kept()
            && !written.contains(&location)
            && !found.contains(&location)
        {
            found.push(location);
        }
    };
    for relation in &semantics.relations {
        for operand in [relation.a, relation.b, relation.c] {
            read(operand, &written);
        }
        written.push(relation.destination);
    }
    match semantics.control {
        Control::Conditional { condition, .. } => read(condition, &written),
        Control::Indirect {
            target, condition, ..
        } => {
            read(target, &written);
            read(condition, &written);
        }
        _ => {}
    }
    found
}

fn is_flag(location: Location) -> bool {
    [Location::N, Location::Z, Location::C, Location::V].contains(&location)
}

/// What decides about an instruction: what it reads; if that is flags, what the instruction reads that
/// set them.
pub(super) fn deciding(core: &mut Core<'_>, at: Position) -> Vec<(Position, Location)> {
    let Some(there) = instruction(core, at) else {
        return Vec::new();
    };
    let read = locations(&there.semantics);
    let mut found: Vec<_> = read.iter().map(|location| (at, *location)).collect();
    let Some(flag) = read.iter().copied().find(|location| is_flag(*location)) else {
        return found;
    };
    let mut before = at;
    for _ in 0..FARTHEST {
        let Some(position) = core.history.step(before, Direction::Backward) else {
            break;
        };
        before = position;
        let Some(setter) = instruction(core, position) else {
            break;
        };
        let mut relations = setter.semantics.relations.iter();
        if relations.any(|relation| relation.destination == flag) {
            let operands = locations(&setter.semantics).into_iter();
            let operands = operands.map(|location| (position, location));
            found = operands.chain(found).collect();
            break;
        }
    }
    found
}

/// The name of a location for debuggers.
pub(super) fn name(architecture: Architecture, location: Location) -> Option<String> {
    let is_64 = architecture == Architecture::AArch64;
    let flags = [
        (Location::N, "n"),
        (Location::Z, "z"),
        (Location::C, "c"),
        (Location::V, "v"),
    ];
    if let Some((_, name)) = flags.iter().find(|(flag, _)| *flag == location) {
        return Some((*name).to_owned());
    }
    if is_64 && location == Location::SP {
        return Some("sp".to_owned());
    }
    let general = (0..=30).find(|number| Location::general(*number) == location);
    if let Some(number) = general {
        return Some(match (is_64, number) {
            (true, _) => format!("x{number}"),
            (false, 13) => "sp".to_owned(),
            (false, 14) => "lr".to_owned(),
            (false, _) => format!("r{number}"),
        });
    }
    let halves = (0..32).flat_map(|number| [(number, 0), (number, 1)]);
    let mut halves = halves.filter(|(number, half)| Location::vector(*number, *half) == location);
    let (number, half) = halves.next()?;
    Some(match (is_64, half) {
        (true, 0) => format!("d{number}"),
        (true, _) => format!("v{number}.d[1]"),
        (false, half) => format!("d{}", 2 * number + half),
    })
}
