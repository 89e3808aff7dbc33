//! ETMv3 packets → elements.
//!
//! An exception packet contains no return address: instructions that abort count as executed.

use super::config::Config;
use super::packet::{Branch, DataAddress, DataValue, ISync, Packet, Timing};
use crate::element::{
    Atoms, Context, Element, ElementSink, Exception, Mark, NoSyncReason, TraceOnReason,
};
use crate::etm::elements::{State, UNKNOWN, update};
use crate::protocol::ElementDecoder;
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// Turns the packets of one ETMv3 into elements.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Elements {
    config: Config,
    state: State,
    context: Context,
    /// An exception return that the next packet may cancel.
    returning: Option<BufferOffset>,
    /// Addresses of data that follow out of order, by tag.
    announced: [Option<Address>; 4],
}

fn address(data: Option<DataAddress>) -> Option<Address> {
    data.map(|address| Address(address.value.into()))
}

impl Elements {
    /// Creates a decoder for the start of a trace.
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            state: State::Start,
            context: UNKNOWN,
            returning: None,
            announced: [None; 4],
        }
    }

    fn desynchronise(&mut self) {
        self.state = State::ASync;
        self.context = UNKNOWN;
        self.announced = [None; 4];
    }

    /// Emits the exception return that was held back and not cancelled.
    fn settle(&mut self, out: &mut dyn ElementSink) {
        if let Some(at) = self.returning.take() {
            out.mark(at, Mark::ExceptionReturn);
        }
    }

    /// Applies the state in a packet; returns whether it changed.
    fn update(&mut self, non_secure: Option<bool>, hyp: Option<bool>) -> bool {
        let hyp = hyp.filter(|_| self.config.virtualization);
        update(&mut self.context, non_secure, hyp)
    }

    fn i_sync(&mut self, at: BufferOffset, sync: &ISync, first: bool, out: &mut dyn ElementSink) {
        if first || sync.reason.is_some() {
            let reason = sync.reason.unwrap_or(TraceOnReason::BeginOrFilter);
            out.mark(at, Mark::TraceOn(reason));
        }
        self.update(Some(sync.non_secure), Some(sync.hyp));
        if sync.context_id.is_some() {
            self.context.context_id = sync.context_id;
        }
        if let Some(place) = sync.place {
            self.context.isa = place.isa;
        }
        out.mark(at, Mark::Context(self.context));
        if let Some(cycles) = sync.cycles {
            out.mark(at, Mark::Cycles(cycles));
        }
        let Some(place) = sync.place else {
            return;
        };
        self.address(at, place.address, place.isa, out);
        if let Some(next) = place.next {
            // The load or store in progress was executed (7.10.5, LSiP).
            out.element(at, Element::InstructionAtoms(Atoms { bits: 1, count: 1 }));
            self.address(at, next, place.isa, out);
        }
    }

    fn address(&mut self, at: BufferOffset, to: u32, isa: Isa, out: &mut dyn ElementSink) {
        self.context.isa = isa;
        let address = Address(to.into());
        out.element(at, Element::Address { address, isa });
    }

    fn branch(&mut self, at: BufferOffset, branch: &Branch, out: &mut dyn ElementSink) {
        let cancel = branch.information.is_some_and(|info| info.cancel);
        if cancel {
            let returning = self.returning.take().is_some();
            // ARMv7-M: only the return is cancelled, the instruction was executed (7.5).
            if !returning || !self.config.core.is_microcontroller() {
                out.element(at, Element::CancelInstruction);
            }
        } else {
            self.settle(out);
        }
        if let Some(info) = branch.information {
            if self.update(info.non_secure, info.hyp) {
                self.context.isa = branch.address.isa;
                out.mark(at, Mark::Context(self.context));
            }
            if info.exception != 0 || info.deprecated {
                out.element(
                    at,
                    Element::Exception(Exception {
                        number: info.exception,
                        name: info.exception_name(self.config.core.profile),
                        return_address: None,
                    }),
                );
            }
        }
        self.address(at, branch.address.value, branch.address.isa, out);
    }

    #[inline(always)]
    fn atoms(
        at: BufferOffset,
        atoms: Atoms,
        timing: Timing,
        out: &mut (impl ElementSink + ?Sized),
    ) {
        let (first, each) = match timing {
            Timing::None if atoms.count == 0 => return,
            Timing::None => return out.element(at, Element::InstructionAtoms(atoms)),
            Timing::Each => (1, 1),
            Timing::Before(cycles) => (cycles, 0),
        };
        if atoms.count == 0 {
            out.element(at, Element::Mark(Mark::Cycles(first.into())));
        } else {
            out.element(at, Element::TimedInstructions { atoms, first, each });
        }
    }

    /// Handles atoms before the first I-sync: only their cycles are emitted.
    fn early_atoms(at: BufferOffset, atoms: Atoms, timing: Timing, out: &mut dyn ElementSink) {
        match timing {
            Timing::None => {}
            Timing::Each => out.mark(at, Mark::Cycles(atoms.count.into())),
            Timing::Before(cycles) => out.mark(at, Mark::Cycles(cycles.into())),
        }
    }

    fn data(
        at: BufferOffset,
        address: Option<Address>,
        value: Option<DataValue>,
        out: &mut dyn ElementSink,
    ) {
        out.mark(
            at,
            Mark::Data {
                address,
                value: value.map(|value| value.value.into()),
                bytes: value.map_or(0, |value| value.bytes),
                write: None,
            },
        );
    }

    /// Handles a packet before synchronisation.
    fn wait(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        self.state.begin(at, out);
        match (self.state, *packet) {
            (_, Packet::ASync) => self.state = State::ISync,
            (State::ISync, Packet::ISync(ref sync)) => {
                self.state = State::Decoding;
                self.i_sync(at, sync, true, out);
            }
            // Time is known even before the first I-sync.
            (State::ISync, Packet::Timestamp { value, .. }) => {
                out.mark(at, Mark::Timestamp(value));
            }
            (State::ISync, Packet::CycleCount(cycles)) => out.mark(at, Mark::Cycles(cycles)),
            (State::ISync, Packet::PHeader { atoms, timing }) => {
                Self::early_atoms(at, atoms, timing, out);
            }
            (_, Packet::NotSync | Packet::Reserved | Packet::BadSequence) => {
                self.state = State::ASync;
            }
            _ => {}
        }
    }

    /// Handles any packet outside the fast path.
    #[inline(never)]
    fn other(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        if self.state != State::Decoding {
            return self.wait(at, packet, out);
        }
        if self.returning.is_some() && !matches!(packet, Packet::Branch(_)) {
            self.settle(out);
        }
        match *packet {
            Packet::PHeader { atoms, timing } => Self::atoms(at, atoms, timing, out),
            Packet::Branch(ref branch) => self.branch(at, branch, out),
            Packet::ISync(ref sync) => self.i_sync(at, sync, false, out),
            Packet::CycleCount(cycles) => out.mark(at, Mark::Cycles(cycles)),
            Packet::ContextId(id) => {
                self.context.context_id = Some(id);
                out.mark(at, Mark::Context(self.context));
            }
            Packet::Vmid(vmid) => {
                self.context.vmid = Some(vmid.into());
                out.mark(at, Mark::Context(self.context));
            }
            Packet::NormalData {
                address: traced,
                value,
            } => Self::data(at, address(traced), value, out),
            Packet::OutOfOrderPlaceholder {
                tag,
                address: traced,
            } => {
                self.announced[usize::from(tag & 3)] = address(traced);
            }
            Packet::OutOfOrderData { tag, value } => {
                let address = self.announced[usize::from(tag & 3)].take();
                Self::data(at, address, Some(value), out);
            }
            Packet::ValueNotTraced { address: traced } => {
                Self::data(at, address(traced), None, out)
            }
            Packet::ExceptionExit => self.returning = Some(at),
            Packet::Timestamp { value, .. } => out.mark(at, Mark::Timestamp(value)),
            Packet::Trigger => out.mark(at, Mark::Trigger),
            Packet::ASync
            | Packet::ExceptionEntry
            | Packet::DataSuppressed
            | Packet::StoreFailed
            | Packet::Ignore
            | Packet::Incomplete => {}
            Packet::NotSync | Packet::Reserved | Packet::BadSequence => {
                out.mark(at, Mark::NoSync(NoSyncReason::BadPacket));
                self.desynchronise();
            }
        }
    }
}

impl ElementDecoder for Elements {
    type Packet = Packet;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &Packet, out: &mut impl ElementSink) {
        match *packet {
            Packet::PHeader { atoms, timing } => {
                if self.state == State::Decoding && self.returning.is_none() {
                    Self::atoms(at, atoms, timing, out);
                } else {
                    self.other(at, &Packet::PHeader { atoms, timing }, out);
                }
            }
            _ => self.other(at, packet, out),
        }
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        if self.state.lose() {
            self.settle(out);
            out.mark(at, Mark::NoSync(NoSyncReason::Discard));
            self.desynchronise();
        }
    }

    fn is_settled(&self) -> bool {
        self.state == State::Decoding && self.returning.is_none()
    }

    #[inline(always)]
    fn passes_atoms(&self) -> bool {
        self.is_settled()
    }

    #[inline(always)]
    fn targets(
        &mut self,
        _: &[u8],
        _: impl FnMut(usize) -> BufferOffset,
        _: &mut impl ElementSink,
    ) -> (usize, usize) {
        (0, 0)
    }

    fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        self.settle(out);
        out.mark(at, Mark::End);
    }
}
