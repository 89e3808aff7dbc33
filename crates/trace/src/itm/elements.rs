//! Packets → elements of ITM and DWT.

use super::config::Config;
use super::packet::Packet;
use crate::element::{ElementSink, Itm, Mark, NoSyncReason, TimestampRelation};
use crate::protocol::ElementDecoder;
use armsnap_arch::quantity::BufferOffset;

/// The number of low bits of the system time that a format 1 packet can carry.
const LOW_TIME_BITS: u32 = 26;

/// Turns the packets of one ITM into elements. It keeps what packets omit: the page of stimulus
/// ports and the running times.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Elements {
    prescaler: u32,
    started: bool,
    state: State,
}

/// The state that a loss of packets resets.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct State {
    synced: bool,
    page: u8,
    /// Sum of local timestamps.
    local: u64,
    /// The system time, from global timestamps.
    global: u64,
    /// Whether the upper and the lower bits of `global` belong to the same time.
    global_known: bool,
}

impl Elements {
    /// Creates a decoder for the start of a trace.
    pub fn new(config: &Config) -> Self {
        Self {
            prescaler: config.prescaler,
            ..Self::default()
        }
    }

    fn lose(&mut self, at: BufferOffset, reason: NoSyncReason, out: &mut dyn ElementSink) {
        self.started = true;
        self.state = State::default();
        out.mark(at, Mark::NoSync(reason));
    }

    fn local(&mut self, delta: u32, relation: TimestampRelation) -> Itm {
        let ticks = u64::from(delta) * u64::from(self.prescaler);
        self.state.local = self.state.local.wrapping_add(ticks);
        Itm::LocalTimestamp {
            delta,
            relation,
            total: self.state.local,
        }
    }

    /// Processes a packet.
    fn decode(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        if !self.started {
            self.lose(at, NoSyncReason::Start, out);
        }
        let itm = match *packet {
            Packet::Instrumentation { port, bytes, value } => Itm::Stimulus {
                port: self.state.page << 5 | port,
                bytes,
                value,
            },
            Packet::Hardware {
                discriminator,
                bytes,
                value,
            } => Itm::Hardware {
                port: discriminator,
                bytes,
                value,
            },
            Packet::LocalTimestamp1 { relation, delta } => self.local(delta, relation),
            Packet::LocalTimestamp2 { delta } => {
                self.local(u32::from(delta), TimestampRelation::Sync)
            }
            Packet::GlobalTimestamp1 {
                bits,
                value,
                wrapped,
                clock_changed: _,
            } => {
                let mask = (1 << bits) - 1;
                self.state.global = self.state.global & !mask | u64::from(value);
                self.state.global_known &= !wrapped;
                if !self.state.global_known {
                    return;
                }
                Itm::GlobalTimestamp(self.state.global)
            }
            Packet::GlobalTimestamp2 { value } => {
                let low = self.state.global & ((1 << LOW_TIME_BITS) - 1);
                self.state.global = value << LOW_TIME_BITS | low;
                self.state.global_known = true;
                Itm::GlobalTimestamp(self.state.global)
            }
            Packet::Overflow => {
                self.state.local = 0;
                Itm::Overflow
            }
            Packet::StimulusPage(page) => {
                self.state.page = page;
                return;
            }
            Packet::Sync => {
                self.state.synced = true;
                return;
            }
            Packet::NotSync => {
                if self.state.synced {
                    self.lose(at, NoSyncReason::Discard, out);
                }
                return;
            }
            Packet::Reserved | Packet::BadSequence => {
                self.lose(at, NoSyncReason::BadPacket, out);
                return;
            }
            Packet::Extension { .. } | Packet::Incomplete => return,
        };
        out.mark(at, Mark::Itm(itm));
    }
}

impl ElementDecoder for Elements {
    type Packet = Packet;

    fn packet(&mut self, at: BufferOffset, packet: &Packet, out: &mut impl ElementSink) {
        self.decode(at, packet, out);
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        if self.started {
            self.lose(at, NoSyncReason::Discard, out);
        }
    }

    fn passes_atoms(&self) -> bool {
        false
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
