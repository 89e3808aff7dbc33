//! PFT packets → elements.
//!
//! A branch address packet without an exception implies an E atom before it (ARM IHI 0035B 4.5.4,
//! Branch address packet). An exception returns to where execution continues after the preceding
//! waypoint, which only the flow knows.

use super::config::Config;
use super::packet::{Branch, ISync, Packet, exception_name};
use crate::element::{
    Atoms, Context, Element, ElementSink, Exception, Mark, NoSyncReason, TraceOnReason,
};
use crate::etm::elements::{State, UNKNOWN, update};
use crate::protocol::ElementDecoder;
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// Turns the packets of one PTM into elements.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Elements {
    state: State,
    /// Whether no I-sync was seen since synchronisation was lost.
    restart: bool,
    /// The last instruction set in a packet.
    isa: Option<Isa>,
    context: Context,
}

impl Elements {
    /// Creates a decoder for the start of a trace.
    pub fn new(_config: &Config) -> Self {
        Self {
            state: State::Start,
            restart: true,
            isa: None,
            context: UNKNOWN,
        }
    }

    fn desynchronise(&mut self) {
        self.state = State::ASync;
        self.restart = true;
    }

    fn context(&self, at: BufferOffset, isa: Isa, out: &mut dyn ElementSink) {
        // Not kept: the state would depend on what was emitted long ago.
        let context = Context {
            isa,
            ..self.context
        };
        out.mark(at, Mark::Context(context));
    }

    fn i_sync(&mut self, at: BufferOffset, sync: &ISync, out: &mut dyn ElementSink) {
        let first = std::mem::replace(&mut self.restart, false);
        if first || sync.reason.is_some() {
            let reason = sync.reason.unwrap_or(TraceOnReason::BeginOrFilter);
            out.mark(at, Mark::TraceOn(reason));
        }
        if let Some(cycles) = sync.cycles {
            out.mark(at, Mark::Cycles(cycles));
        }
        let mut emit = (first || sync.reason.is_some())
            && (self.isa != Some(sync.isa) || sync.context_id.is_some());
        emit |= update(&mut self.context, Some(sync.non_secure), Some(sync.hyp));
        if sync.context_id.is_some() {
            emit |= self.context.context_id != sync.context_id;
            self.context.context_id = sync.context_id;
        }
        self.isa = Some(sync.isa);
        if emit {
            self.context(at, sync.isa, out);
        }
        out.element(
            at,
            Element::Address {
                address: Address(sync.address.into()),
                isa: sync.isa,
            },
        );
    }

    fn branch(&mut self, at: BufferOffset, branch: &Branch, out: &mut dyn ElementSink) {
        match branch.information {
            Some(information) if information.exception != 0 => {
                out.element(
                    at,
                    Element::ExceptionHere(Exception {
                        number: information.exception,
                        name: exception_name(information.exception),
                        return_address: None,
                    }),
                );
                if let Some(cycles) = branch.cycles {
                    out.mark(at, Mark::Cycles(cycles));
                }
            }
            _ => out.element(
                at,
                match branch.cycles {
                    Some(cycles) => Element::TimedAtom {
                        taken: true,
                        cycles,
                    },
                    None => Element::WaypointAtoms(Atoms { bits: 1, count: 1 }),
                },
            ),
        }
        let isa = branch.address.isa;
        self.isa = Some(isa);
        if let Some(information) = branch.information
            && update(
                &mut self.context,
                Some(information.non_secure),
                information.hyp,
            )
        {
            self.context(at, isa, out);
        }
        out.element(
            at,
            Element::Address {
                address: Address(branch.address.value.into()),
                isa,
            },
        );
    }

    /// Handles a packet before synchronisation.
    #[inline(never)]
    fn wait(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        self.state.begin(at, out);
        match (self.state, packet) {
            (_, Packet::ASync) => self.state = State::ISync,
            (State::ISync, Packet::ISync(sync)) => {
                self.state = State::Decoding;
                self.i_sync(at, sync, out);
            }
            (_, Packet::NotSync | Packet::Reserved | Packet::BadSequence) => {
                self.state = State::ASync;
            }
            _ => {}
        }
    }

    /// Handles a packet while synchronised.
    #[inline(never)]
    fn decode(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        match *packet {
            Packet::Atoms(atoms) => out.element(at, Element::WaypointAtoms(atoms)),
            Packet::TimedAtom { taken, cycles } => {
                out.element(at, Element::TimedAtom { taken, cycles });
            }
            Packet::Branch(ref branch) => self.branch(at, branch, out),
            Packet::ISync(ref sync) => self.i_sync(at, sync, out),
            Packet::WaypointUpdate { address } => {
                self.isa = Some(address.isa);
                out.element(
                    at,
                    Element::RunTo {
                        end: Address(address.value.into()),
                        inclusive: true,
                    },
                );
            }
            Packet::Trigger => out.mark(at, Mark::Trigger),
            Packet::ContextId(id) => {
                if self.context.context_id.replace(id) != Some(id) {
                    self.context(at, self.isa.unwrap_or_default(), out);
                }
            }
            Packet::Vmid(vmid) => {
                let vmid = u32::from(vmid);
                if self.context.vmid.replace(vmid) != Some(vmid) {
                    self.context(at, self.isa.unwrap_or_default(), out);
                }
            }
            Packet::Timestamp(stamp) => {
                out.mark(at, Mark::Timestamp(stamp.value));
                if let Some(cycles) = stamp.cycles {
                    out.mark(at, Mark::Cycles(cycles));
                }
            }
            Packet::ExceptionReturn => out.mark(at, Mark::ExceptionReturn),
            Packet::ASync | Packet::Ignore | Packet::Incomplete => {}
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
            Packet::Atoms(atoms) => {
                if self.state == State::Decoding {
                    out.element(at, Element::WaypointAtoms(atoms));
                } else {
                    self.wait(at, &Packet::Atoms(atoms), out);
                }
            }
            // The most frequent packet after atoms, without a call.
            Packet::Branch(Branch {
                address,
                information: None,
                cycles: None,
            }) if self.state == State::Decoding => {
                self.isa = Some(address.isa);
                out.element(at, Element::WaypointAtoms(Atoms { bits: 1, count: 1 }));
                out.element(
                    at,
                    Element::Address {
                        address: Address(address.value.into()),
                        isa: address.isa,
                    },
                );
            }
            _ if self.state != State::Decoding => self.wait(at, packet, out),
            _ => self.decode(at, packet, out),
        }
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        if self.state.lose() {
            out.mark(at, Mark::NoSync(NoSyncReason::Discard));
            self.desynchronise();
        }
    }

    fn is_settled(&self) -> bool {
        self.state == State::Decoding
    }

    #[inline(always)]
    fn passes_atoms(&self) -> bool {
        self.state == State::Decoding
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
        out.mark(at, Mark::End);
    }
}
