//! Elements + code → blocks: which instructions were executed.
//!
//! The flow owns the code image, the return stack and the cache of blocks. It knows neither packets
//! nor protocols: [`FlowConfig`] and the elements contain the differences between protocols.
//!
//! ```
//! use armsnap_trace::element::{Atoms, Element, Exception, Mark};
//! use armsnap_trace::flow::{Flow, FlowConfig, FlowSink, Gap, Pieces, QRange, Range};
//! use armsnap_arch::quantity::{Address, BufferOffset, Isa};
//!
//! /// Counts instructions.
//! #[derive(Default)]
//! struct Count(u64);
//!
//! impl FlowSink for Count {
//!     fn range(&mut self, _: BufferOffset, range: &Range, _: Option<u32>) {
//!         self.0 += u64::from(range.instructions);
//!     }
//!     fn q_range(&mut self, _: BufferOffset, range: &QRange) {
//!         self.0 += u64::from(range.instructions.unwrap_or(0));
//!     }
//!     fn exception(&mut self, _: BufferOffset, _: &Exception) {}
//!     fn gap(&mut self, _: BufferOffset, _: Gap) {}
//!     fn mark(&mut self, _: BufferOffset, _: &Mark) {}
//! }
//!
//! // 0x1000: add x0, x0, #1; cbnz x1, 0x1000
//! let mut code = Pieces::default();
//! code.add(Address(0x1000), [0x9100_0400_u32, 0xb5ff_ffe1].map(u32::to_le_bytes).concat());
//! let mut flow = Flow::new(FlowConfig::default(), code);
//! let mut count = Count::default();
//! let at = BufferOffset(0);
//! flow.element(at, Element::Address { address: Address(0x1000), isa: Isa::A64 }, &mut count);
//! flow.element(at, Element::WaypointAtoms(Atoms { bits: 0b011, count: 3 }), &mut count);
//! assert_eq!(count.0, 6);
//! ```

mod atoms;
mod blocks;
mod code;
mod counted;
mod follow;
mod instruction_run;
mod instructions;
mod lines;
mod memo;
mod output;
mod range;
mod return_stack;
mod sink;
mod state;
mod successors;
mod walk;

#[cfg(test)]
mod tests;

pub use blocks::{BlockId, Blocks};
pub use code::{CodeImage, ContextKey, Pieces, View};
pub use code::{fetch, instruction, instruction_bytes, next};
pub use follow::{Flow, FlowConfig, FlowDriver};
pub use instruction_run::{InstructionRun, InstructionStep};
pub use memo::Run;
pub use range::{InstructionKind, LastInstruction, Range};
pub use sink::{Executed, FlowSink, Gap, QRange};
pub use state::{Below, FlowState};
pub use walk::Waypoints;
