//! Committed entries of the queue → elements.
//!
//! The last context emitted decides the instruction set of an address.

use super::super::exceptions;
use super::super::packet::{ContextInfo, InstructionSet};
use super::super::speculation::{Entry, Held};
use super::{Contradiction, Elements};
use crate::element::{Context, Element, ElementSink, Exception, Mark, TraceOnReason, Transaction};
use crate::protocol::Profile;
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// The value traced in place of the preferred return address of a tail-chained or late exception in
/// M-profile (IHI 0064, "Exceptions in M-profile").
const M_TAIL_CHAIN: u64 = 0xffff_fffe;

impl Elements {
    fn is_64bit(&self) -> bool {
        self.context.is_64bit == Some(true)
    }

    fn isa(&self, is: InstructionSet) -> Isa {
        match (self.is_64bit(), is) {
            (true, _) => Isa::A64,
            (false, InstructionSet::Is0) => Isa::A32,
            (false, InstructionSet::Is1) => Isa::T32,
        }
    }

    pub(super) fn address(&self, address: u64, is: InstructionSet) -> Element {
        Element::Address {
            address: Address(address),
            isa: self.isa(is),
        }
    }

    /// Emits a committed entry.
    pub(super) fn emit(
        &mut self,
        entry: Entry,
        out: &mut dyn ElementSink,
    ) -> Result<(), Contradiction> {
        let at = entry.at;
        match entry.held {
            Held::Unseen(_) | Held::FunctionReturn | Held::SameContext { .. } => {}
            Held::Atoms(atoms) => {
                if !self.needs_context {
                    out.element(at, Element::WaypointAtoms(atoms));
                }
            }
            Held::Exception { number, target } => self.emit_exception(at, number, target, out)?,
            Held::PeReset => out.element(
                at,
                Element::Exception(Exception {
                    number: 0,
                    name: exceptions::name(self.config.core.profile, 0),
                    return_address: None,
                }),
            ),
            Held::Q { count } => self.emit_q(at, count, out)?,
            Held::Source { address, is } => out.element(
                at,
                Element::SourceAddress {
                    address: Address(address),
                    isa: self.isa(is),
                },
            ),
            Held::ExceptionReturn { .. } => out.mark(at, Mark::ExceptionReturn),
            Held::TransactionInit => out.mark(at, Mark::Transaction(Transaction::Init)),
            Held::TransactionStart { .. } => out.mark(at, Mark::Transaction(Transaction::Start)),
            Held::TransactionCommit => out.mark(at, Mark::Transaction(Transaction::Commit)),
            Held::TransactionFailure => out.mark(at, Mark::Transaction(Transaction::Fail)),
            Held::TraceOn => {
                let reason = if std::mem::take(&mut self.overflow) {
                    TraceOnReason::Overflow
                } else {
                    TraceOnReason::BeginOrFilter
                };
                out.mark(at, Mark::TraceOn(reason));
            }
            Held::Address { address, is } => out.element(at, self.address(address, is)),
            Held::Context { info, is } => self.emit_context(at, info, is, out),
            Held::Event(_)
            | Held::Cycles(_)
            | Held::Timestamp { .. }
            | Held::TimestampMarker
            | Held::Instrumentation { .. } => self.emit_mark(entry, out),
        }
        Ok(())
    }

    /// Emits an entry that cannot be cancelled.
    pub(super) fn emit_mark(&mut self, entry: Entry, out: &mut dyn ElementSink) {
        let at = entry.at;
        match entry.held {
            Held::Event(events) => out.mark(at, Mark::Event(events)),
            Held::Cycles(cycles) => out.mark(at, Mark::Cycles(cycles)),
            // With markers, a timestamp before the first marker has no position in the trace.
            Held::Timestamp { .. } if self.config.timestamp_markers && !self.marker_seen => {}
            Held::Timestamp { value, cycles } => {
                out.mark(at, Mark::Timestamp(value));
                if self.config.cycle_counting {
                    out.mark(at, Mark::Cycles(cycles));
                }
            }
            Held::TimestampMarker => {
                self.marker_seen = true;
                out.mark(at, Mark::Marker(0));
            }
            Held::Instrumentation { el, value } => {
                out.mark(at, Mark::Instrumentation { el, value });
            }
            _ => {}
        }
    }

    fn emit_context(
        &mut self,
        at: BufferOffset,
        info: ContextInfo,
        is: InstructionSet,
        out: &mut dyn ElementSink,
    ) {
        self.context = Context {
            isa: Isa::A32,
            el: Some(info.el()),
            security: Some(info.security()),
            is_64bit: Some(info.is_64bit()),
            vmid: info.vmid().or(self.context.vmid),
            context_id: info.context_id().or(self.context.context_id),
        };
        self.emit_same_context(at, is, out);
    }

    fn emit_same_context(
        &mut self,
        at: BufferOffset,
        is: InstructionSet,
        out: &mut dyn ElementSink,
    ) {
        self.context.isa = self.isa(is);
        self.needs_context = false;
        out.mark(at, Mark::Context(self.context));
    }

    /// Takes the address that follows an exception or Q element, and the context before it, if any.
    /// If there is no address, the entries that follow stay in the queue.
    fn address_of(&mut self) -> Result<(Option<Entry>, u64, InstructionSet), Contradiction> {
        let context = self.queue.peek(0).copied().filter(|entry| {
            let held = entry.held;
            matches!(held, Held::Context { .. } | Held::SameContext { .. })
        });
        let next = self.queue.peek(context.iter().len());
        let Some(Held::Address { address, is }) = next.map(|entry| entry.held) else {
            return Err(Contradiction);
        };
        if context.is_some() {
            self.queue.pop();
        }
        self.queue.pop();
        Ok((context, address, is))
    }

    fn emit_exception(
        &mut self,
        at: BufferOffset,
        number: u16,
        target: bool,
        out: &mut dyn ElementSink,
    ) -> Result<(), Contradiction> {
        let (context, address, is) = self.address_of()?;
        match context.map(|entry| entry.held) {
            Some(Held::Context { info, is }) => self.emit_context(at, info, is, out),
            Some(Held::SameContext { is }) => self.emit_same_context(at, is, out),
            _ => {}
        }
        if target {
            out.element(at, self.address(address, is));
        }
        let profile = self.config.core.profile;
        let chained = profile == Profile::M && address == M_TAIL_CHAIN;
        out.element(
            at,
            Element::Exception(Exception {
                number,
                name: exceptions::name(profile, number),
                return_address: (!chained).then_some(Address(address)),
            }),
        );
        Ok(())
    }

    fn emit_q(
        &mut self,
        at: BufferOffset,
        instructions: Option<u32>,
        out: &mut dyn ElementSink,
    ) -> Result<(), Contradiction> {
        let (context, address, is) = self.address_of()?;
        out.element(at, Element::Q { instructions });
        out.element(at, self.address(address, is));
        if let Some(entry) = context {
            self.emit(entry, out)?;
        }
        Ok(())
    }
}
