//! The code that a history is decoded with.

use crate::decode::Image;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_trace::element::Context;
use armsnap_trace::flow::{CodeImage, ContextKey, Range, View, next};
use std::sync::Arc;

/// The memory of a core, shared with its other readers.
#[derive(Clone, Debug)]
pub(super) struct Code(pub Arc<CoreMemory>);

impl CodeImage for Code {
    fn view(&self, context: &ContextKey) -> View {
        Image(Some(&self.0)).view(context)
    }

    fn slice(&self, view: View, address: Address) -> &[u8] {
        let image = Image(Some(&*self.0));
        let (space, moment) = (image.space(view), image.moment(view));
        self.0.code(moment, address, space)
    }

    fn is_straight(&self, _: View, address: Address) -> bool {
        self.0.is_straight(address)
    }
}

impl Code {
    /// Returns the view of a context; without one, the widest view.
    pub fn seen(&self, context: Option<&Context>) -> View {
        let key = context.map_or_else(ContextKey::default, ContextKey::from);
        self.view(&key)
    }

    /// Returns the address of the instruction at index `number` of a range.
    pub fn instruction(&self, view: View, range: &Range, number: u64) -> Address {
        match range.isa {
            Isa::T32 => (0..number).fold(range.start, |here, _| next(self, view, Isa::T32, here)),
            isa => range.start.after(4 * number, isa),
        }
    }

    /// Returns the addresses of all instructions of a range.
    pub fn addresses(&self, view: View, range: &Range) -> Vec<(Address, Isa)> {
        let mut here = range.start;
        (0..range.instructions)
            .map(|_| {
                let address = here;
                here = next(self, view, range.isa, here);
                (address, range.isa)
            })
            .collect()
    }

    /// Returns the ascending indices of the instructions in a range that start at one of
    /// `addresses`, which are sorted.
    pub fn visits(&self, view: View, range: &Range, addresses: &[u64]) -> Vec<u32> {
        let first = addresses.partition_point(|&address| address < range.start.0);
        // A range up to the last address ends at 0.
        let last = range.end.0.wrapping_sub(1);
        let inside: Vec<u64> = addresses[first..]
            .iter()
            .copied()
            .take_while(|&address| range.instructions > 0 && address <= last)
            .collect();
        if inside.is_empty() {
            return Vec::new();
        }
        match range.isa {
            Isa::T32 => {
                let mut here = range.start;
                (0..range.instructions)
                    .filter(|_| {
                        let visited = inside.binary_search(&here.0).is_ok();
                        here = next(self, view, Isa::T32, here);
                        visited
                    })
                    .collect()
            }
            _ => inside
                .iter()
                .map(|address| address - range.start.0)
                .filter(|distance| distance % 4 == 0)
                .map(|distance| distance / 4)
                .filter(|index| *index < u64::from(range.instructions))
                .map(|index| index as u32)
                .collect(),
        }
    }
}
