//! The code that a history is read with.

use crate::decode::Image;
use crate::element::Context;
use crate::flow::{CodeImage, ContextKey, Range, View, fetch};
use crate::quantity::{Address, Isa};
use crate::snapshot::memory::CoreMemory;
use std::sync::Arc;

/// The memory of a core, shared with whoever else looks at it.
#[derive(Clone, Debug)]
pub(super) struct Code(pub Arc<CoreMemory>);

impl CodeImage for Code {
    fn view(&self, context: &ContextKey) -> View {
        Image(Some(&self.0)).view(context)
    }

    fn slice(&self, view: View, address: Address) -> &[u8] {
        let image = Image(Some(&*self.0));
        let space = image.space(view);
        self.0.slice(address, space)
    }
}

impl Code {
    /// The view of a context; the widest where none is known.
    pub fn seen(&self, context: Option<&Context>) -> View {
        let key = context.map_or_else(ContextKey::default, ContextKey::from);
        self.view(&key)
    }

    /// The address of the instruction after the one at `here`.
    fn next(&self, view: View, isa: Isa, here: Address) -> Address {
        let size = match isa {
            // T32: 0b11101, 0b11110 and 0b11111 begin an instruction of two halfwords
            // (Arm ARM DDI 0487, F3.1).
            Isa::T32 if fetch(self, view, here).0[1] >> 3 < 0b11101 => 2,
            _ => 4,
        };
        let next = here.0.wrapping_add(size);
        Address(match isa {
            Isa::A64 => next,
            _ => next & 0xffff_ffff,
        })
    }

    /// The address of instruction `number` of a range, counted from 0.
    pub fn instruction(&self, view: View, range: &Range, number: u64) -> Address {
        match range.isa {
            Isa::T32 => (0..number).fold(range.start, |here, _| self.next(view, Isa::T32, here)),
            Isa::A64 => Address(range.start.0.wrapping_add(4 * number)),
            _ => Address(range.start.0.wrapping_add(4 * number) & 0xffff_ffff),
        }
    }

    /// The addresses of all instructions of a range.
    pub fn addresses(&self, view: View, range: &Range) -> Vec<(Address, Isa)> {
        let mut here = range.start;
        (0..range.instructions)
            .map(|_| {
                let address = here;
                here = self.next(view, range.isa, here);
                (address, range.isa)
            })
            .collect()
    }

    /// The numbers of the instructions in a range that begin at one of `addresses`, ascending.
    pub fn visits(&self, view: View, range: &Range, addresses: &[u64]) -> Vec<u32> {
        let first = addresses.partition_point(|&address| address < range.start.0);
        let inside: Vec<u64> = addresses[first..]
            .iter()
            .copied()
            .take_while(|&address| address < range.end.0)
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
                        here = self.next(view, Isa::T32, here);
                        visited
                    })
                    .collect()
            }
            _ => inside
                .iter()
                .map(|address| address - range.start.0)
                .filter(|distance| distance % 4 == 0)
                .map(|distance| (distance / 4) as u32)
                .collect(),
        }
    }
}
