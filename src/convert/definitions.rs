//! Which tracepoints a trace file defines, and which trace frames belong to each.
//!
//! GDB takes the program counter of a frame without registers from its tracepoint, unless that is
//! not defined or steps (`while-stepping`). GDB prints two lines for each definition when it opens
//! the file.

use crate::tfile::{SourceString, Tracepoint};
use armsnap_arch::arch::state::current_space;
use armsnap_arch::arch::{Architecture, RegisterFile};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::program::Program;
use std::collections::{HashMap, HashSet};

/// Selects the tracepoints that a trace file defines for the frames of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Definitions {
    /// One for each address.
    #[default]
    Addresses,
    /// One for each function.
    Functions,
    /// None: only that of the halted state.
    One,
}

impl Definitions {
    /// Whether some frames need a variable with their address, because they have no tracepoint at
    /// it.
    pub fn need_variable(self) -> bool {
        self != Self::Addresses
    }

    /// The address of the tracepoint for frames at `pc`. Without a symbol, an entry of a function
    /// (`entered`) is its start.
    fn place(self, pc: Address, symbols: &Symbols, entered: bool) -> Option<Address> {
        match self {
            Self::Addresses => Some(pc),
            Self::Functions => {
                let start = symbols.start(pc.0).map(Address);
                start.or_else(|| entered.then_some(pc))
            }
            Self::One => None,
        }
    }
}

/// The tracepoint of each address at which there are frames.
#[derive(Debug, Default)]
pub struct Defined {
    /// By the address of frames: the address of their tracepoint.
    places: HashMap<Address, Option<Address>>,
    /// By the address of a tracepoint: its number.
    numbers: HashMap<Address, u16>,
    /// The tracepoints with frames at other addresses than their own.
    stepping: HashSet<Address>,
}

impl Defined {
    /// The tracepoints of frames at `addresses`, which are numbered from `first` on, up to `most`.
    pub fn of(
        definitions: Definitions,
        addresses: impl Iterator<Item = Address>,
        symbols: &Symbols,
        entered: bool,
        (first, most): (u16, u16),
    ) -> Self {
        let mut defined = Self::default();
        for pc in addresses {
            if defined.places.contains_key(&pc) {
                continue;
            }
            let place = definitions.place(pc, symbols, entered);
            defined.places.insert(pc, place);
            let Some(place) = place else { continue };
            let next = (defined.numbers.len() + usize::from(first)).min(usize::from(most));
            defined.numbers.entry(place).or_insert(next as u16);
            if place != pc {
                defined.stepping.insert(place);
            }
        }
        defined
    }

    /// The number of tracepoints.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The address of the tracepoint for frames at `pc`.
    pub fn place(&self, pc: Address) -> Option<Address> {
        self.places.get(&pc).copied().flatten()
    }

    /// The number of the tracepoint for frames at `pc`.
    pub fn number(&self, pc: Address) -> Option<u16> {
        self.numbers.get(&self.place(pc)?).copied()
    }

    /// Each tracepoint: its number, its address, and whether it has frames at other addresses.
    pub fn tracepoints(&self) -> impl Iterator<Item = (u16, Address, bool)> {
        let all = self.numbers.iter();
        all.map(|(&place, &number)| (number, place, self.stepping.contains(&place)))
    }
}

/// Makes the frames of a tracepoint steps after it: then GDB does not take its address for the
/// program counter of the frames.
pub(super) fn stepping(tracepoint: &mut Tracepoint) {
    const STEPS: u64 = 65535;
    tracepoint.steps = STEPS;
    let command = |text: String| SourceString {
        kind: "cmd".to_owned(),
        text,
    };
    let at = tracepoint.sources.len() - 1;
    tracepoint
        .sources
        .insert(at, command(format!("while-stepping {STEPS}")));
    tracepoint.sources.push(command("end".to_owned()));
}

/// The functions of a core's programs.
pub(super) fn functions(
    loaded: &OpenSnapshot,
    (core, memory): (usize, &CoreMemory),
    elfs: &[Elf],
) -> Symbols {
    let device = &loaded.snapshot.devices[core];
    let architecture = Architecture::detect(device).architecture;
    let space = current_space(&RegisterFile::read(device, architecture)).space;
    let mut symbols = Symbols::default();
    for program in Program::of_cores(loaded, elfs, architecture, &[(memory, space)]) {
        let _ = symbols.add_file(&program.elf);
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(definitions: Definitions, entered: bool) -> Vec<(u64, Option<u16>)> {
        let symbols = Symbols::of(&[(0x1000, 0x1010, "f"), (0x1010, 0x1020, "g")]);
        let frames = [0x1004, 0x1010, 0x1008, 0x3000, 0x1010];
        let defined = Defined::of(
            definitions,
            frames.into_iter().map(Address),
            &symbols,
            entered,
            (2, 9),
        );
        let all = frames.map(|pc| (pc, defined.number(Address(pc))));
        all.to_vec()
    }

    #[test]
    fn frames_belong_to_the_tracepoint_of_their_address_or_function() {
        let numbers = |definitions, entered| -> Vec<Option<u16>> {
            let all = defined(definitions, entered).into_iter();
            all.map(|(_, number)| number).collect()
        };
        let all = |numbers: [u16; 5]| numbers.map(|n| (n > 0).then_some(n)).to_vec();
        assert_eq!(numbers(Definitions::Addresses, false), all([2, 3, 4, 5, 3]));
        assert_eq!(numbers(Definitions::Functions, false), all([2, 3, 2, 0, 3]));
        assert_eq!(numbers(Definitions::Functions, true), all([2, 3, 2, 4, 3]));
        assert_eq!(numbers(Definitions::One, true), all([0; 5]));
    }

    #[test]
    fn a_tracepoint_with_frames_elsewhere_steps() {
        let symbols = Symbols::of(&[(0x1000, 0x1010, "f"), (0x1010, 0x1020, "g")]);
        let frames = [0x1004, 0x1000, 0x1010].into_iter().map(Address);
        let found = Defined::of(Definitions::Functions, frames, &symbols, false, (2, 9));
        let mut all: Vec<_> = found.tracepoints().collect();
        all.sort_unstable();
        assert_eq!(
            all,
            [(2, Address(0x1000), true), (3, Address(0x1010), false)]
        );
        assert_eq!(found.count(), 2);
    }
}
