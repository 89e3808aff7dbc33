//! Numbers of functions in pieces, which do not know the numbers of a course.

use super::super::functions::FunctionId;
use armsnap_arch::hash::NumberMap;
use armsnap_arch::quantity::Address;
use armsnap_snapshot::program::symbols::Symbols;

/// The functions encountered, by their first instructions. Number 0 stands for none.
#[derive(Debug)]
pub(super) struct Names {
    starts: Vec<u64>,
    numbers: NumberMap<u64, u32>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            starts: vec![0],
            numbers: NumberMap::default(),
        }
    }
}

impl Names {
    /// Returns the function of the symbol that contains an address, and its first instruction.
    pub fn around(
        &mut self,
        symbols: Option<&Symbols>,
        address: Address,
    ) -> Option<(FunctionId, Address)> {
        let extent = symbols.and_then(|symbols| symbols.extent(address.0))?;
        let start = Address(extent.start);
        Some((self.starting(start), start))
    }

    /// Returns the function that starts at an address.
    pub fn starting(&mut self, address: Address) -> FunctionId {
        let next = self.starts.len() as u32;
        let number = *self.numbers.entry(address.0).or_insert(next);
        if number == next {
            self.starts.push(address.0);
        }
        FunctionId(number)
    }

    /// Returns the first instruction of a function; `None` for none.
    pub fn start(&self, function: FunctionId) -> Option<Address> {
        let known = function != FunctionId::UNKNOWN;
        known.then(|| Address(self.starts[function.index()]))
    }
}
