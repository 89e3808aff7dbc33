//! The code image: where the flow reads instructions.

use super::range::LastInstruction;
use crate::element::Context;
use armsnap_arch::arch::branch::{self, Instruction};
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};

/// The part of a core's state that selects the memory it sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContextKey {
    /// Exception level.
    pub el: Option<ExceptionLevel>,
    /// Security state.
    pub security: Option<Security>,
    /// AArch64 (true) or AArch32.
    pub is_64bit: Option<bool>,
    /// The context ID. Code may differ between context IDs.
    pub context_id: Option<u32>,
    /// The VMID. Code may differ between VMIDs.
    pub vmid: Option<u32>,
}

impl From<&Context> for ContextKey {
    fn from(context: &Context) -> Self {
        Self {
            el: context.el,
            security: context.security,
            is_64bit: context.is_64bit,
            context_id: context.context_id,
            vmid: context.vmid,
        }
    }
}

/// A view of memory. Contexts that see the same memory have the same view.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct View(pub u32);

/// The code of a core. Its contents must not change.
pub trait CodeImage {
    /// Returns the view that the core has in this context. Called when the context changes.
    fn view(&self, context: &ContextKey) -> View;

    /// Returns the contiguous bytes from `address` on; empty if there is no code. Called once per
    /// block, not each time it is executed.
    fn slice(&self, view: View, address: Address) -> &[u8];

    /// Whether some steps from one block to another are [watched](Self::watches).
    const WATCHES: bool = false;

    /// Whether the step from a block that starts at `from` and ends with `last` to one that starts
    /// at `to` is watched. Sinks that count blocks are notified of watched
    /// steps ([`FlowSink::arrives`]). Steps after indirect branches are always watched. Called once per
    /// step, not each time it is taken.
    ///
    /// [`FlowSink::arrives`]: super::FlowSink::arrives
    fn watches(&self, _from: Address, _last: &LastInstruction, _to: Address) -> bool {
        false
    }

    /// Whether the A64 or A32 instruction at `address`, whose bytes are unknown, is known not to
    /// change the flow: it is not a waypoint, and execution continues after it.
    fn is_straight(&self, _view: View, _address: Address) -> bool {
        false
    }
}

impl<C: CodeImage> CodeImage for &C {
    const WATCHES: bool = C::WATCHES;

    fn watches(&self, from: Address, last: &LastInstruction, to: Address) -> bool {
        (**self).watches(from, last, to)
    }

    fn view(&self, context: &ContextKey) -> View {
        (**self).view(context)
    }

    fn slice(&self, view: View, address: Address) -> &[u8] {
        (**self).slice(view, address)
    }

    fn is_straight(&self, view: View, address: Address) -> bool {
        (**self).is_straight(view, address)
    }
}

/// Pieces of memory, the same in every context. Where two overlap, the one added first is read.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Pieces {
    /// Adds the bytes at `address`.
    pub fn add(&mut self, address: Address, bytes: Vec<u8>) {
        self.pieces.push((address.0, bytes));
    }
}

impl CodeImage for Pieces {
    fn view(&self, _: &ContextKey) -> View {
        View(0)
    }

    fn slice(&self, _: View, address: Address) -> &[u8] {
        self.pieces
            .iter()
            .find_map(|(start, bytes)| {
                let offset = usize::try_from(address.0.checked_sub(*start)?).ok()?;
                bytes.get(offset..).filter(|rest| !rest.is_empty())
            })
            .unwrap_or_default()
    }
}

/// Returns up to four bytes at `address` and their number. Joins pieces of memory that meet in the
/// middle of an instruction.
pub fn fetch(code: &impl CodeImage, view: View, address: Address) -> ([u8; 4], usize) {
    let mut word = [0; 4];
    let mut count = 0;
    while count < 4 {
        let bytes = code.slice(view, Address(address.0.wrapping_add(count as u64)));
        let part = bytes.len().min(4 - count);
        if part == 0 {
            break;
        }
        word[count..count + part].copy_from_slice(&bytes[..part]);
        count += part;
    }
    (word, count)
}

/// Returns the instruction at `address`; `None` if its code is missing or its instruction set is not
/// followed.
pub fn instruction(
    code: &impl CodeImage,
    view: View,
    isa: Isa,
    address: Address,
) -> Option<Instruction> {
    let (word, count) = fetch(code, view, address);
    branch::decode(isa, address, u32::from_le_bytes(word))
        .filter(|instruction| usize::from(instruction.bytes) <= count)
}

/// Returns the address after the instruction at `address`.
pub fn next(code: &impl CodeImage, view: View, isa: Isa, address: Address) -> Address {
    let bytes = match isa {
        Isa::T32 => fetch(code, view, address).0,
        _ => [0; 4],
    };
    address.after(branch::size(isa, [bytes[0], bytes[1]]) as u64, isa)
}

/// Returns the bytes of the instruction at `address` and their number, which is smaller than its
/// size where memory is missing.
pub fn instruction_bytes(
    code: &impl CodeImage,
    view: View,
    isa: Isa,
    address: Address,
) -> ([u8; 4], usize) {
    let (bytes, known) = fetch(code, view, address);
    (bytes, known.min(branch::size(isa, [bytes[0], bytes[1]])))
}
