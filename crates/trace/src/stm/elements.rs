//! Packets → elements of an STM.

use super::config::Config;
use super::packet::{Packet, PacketKind, Timestamp, TimestampType};
use crate::element::{ElementSink, Mark, NoSyncReason, Stm};
use crate::protocol::ElementDecoder;
use crate::protocol::number::{from_gray, to_gray};
use armsnap_arch::quantity::BufferOffset;

/// Turns the packets of one STM into elements. It keeps what packets omit: master, channel, the
/// upper part of timestamps.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Elements {
    started: bool,
    synced: bool,
    /// Unknown until the first M8 or M16.
    master: Option<u16>,
    channel: u16,
    timestamps: Option<TimestampType>,
    timestamp: u64,
}

impl Elements {
    /// Creates a decoder for the start of a trace.
    pub fn new(_config: &Config) -> Self {
        Self::default()
    }

    #[inline(never)]
    fn lose(&mut self, at: BufferOffset, reason: NoSyncReason, out: &mut dyn ElementSink) {
        *self = Self {
            started: true,
            ..Self::default()
        };
        out.mark(at, Mark::NoSync(reason));
    }

    /// Returns the time of a packet; `None` if no VERSION packet has defined the encoding.
    #[inline]
    fn time(&mut self, traced: Timestamp) -> Option<u64> {
        let mask = match traced.nibbles {
            16.. => u64::MAX,
            nibbles => (1 << (4 * nibbles)) - 1,
        };
        self.timestamp = match self.timestamps? {
            TimestampType::Delta => self.timestamp.wrapping_add(traced.value),
            TimestampType::Natural => self.timestamp & !mask | traced.value,
            TimestampType::Gray => from_gray(to_gray(self.timestamp) & !mask | traced.value),
        };
        Some(self.timestamp)
    }

    /// Returns an element of the current master and channel, at the time of a packet.
    #[inline(always)]
    fn element(&mut self, timestamp: Option<Timestamp>) -> Stm {
        let timestamp = match timestamp {
            Some(traced) => self.time(traced),
            None => None,
        };
        Stm {
            master: self.master,
            channel: self.master.map(|_| self.channel),
            timestamp,
            ..Stm::default()
        }
    }

    /// Processes a packet other than data and flags.
    #[inline(never)]
    fn other(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        let element = self.element(packet.kind.timestamp());
        let stm = match packet.kind {
            PacketKind::Null(Some(_)) => element,
            PacketKind::Master8(value) => {
                let upper = self.master.unwrap_or(0) & 0xff00;
                self.master = Some(upper | u16::from(value));
                self.channel = 0;
                return;
            }
            PacketKind::Master16(value) => {
                self.master = Some(value);
                self.channel = 0;
                return;
            }
            PacketKind::Channel8(value) => {
                self.channel = self.channel & 0xff00 | u16::from(value);
                return;
            }
            PacketKind::Channel16(value) => {
                self.channel = value;
                return;
            }
            PacketKind::Version(timestamps) => {
                self.timestamps = Some(timestamps);
                self.master = self.master.map(|_| 0);
                self.channel = 0;
                return;
            }
            PacketKind::Frequency { hertz, .. } => Stm {
                bits: 32,
                value: u64::from(hertz),
                frequency: true,
                ..element
            },
            PacketKind::Trigger { value, .. } => Stm {
                bits: 8,
                value: u64::from(value),
                trigger: true,
                ..element
            },
            PacketKind::MasterError(value) => {
                self.channel = 0;
                Stm {
                    channel: self.master.map(|_| 0),
                    bits: 8,
                    value: u64::from(value),
                    master_error: true,
                    ..element
                }
            }
            PacketKind::GlobalError(value) => {
                self.master = None;
                self.channel = 0;
                Stm {
                    master: None,
                    channel: None,
                    bits: 8,
                    value: u64::from(value),
                    global_error: true,
                    ..element
                }
            }
            PacketKind::Async => {
                self.synced = true;
                return;
            }
            PacketKind::NotSync => {
                if self.synced {
                    self.lose(at, NoSyncReason::Discard, out);
                }
                return;
            }
            PacketKind::Reserved | PacketKind::BadSequence => {
                self.lose(at, NoSyncReason::BadPacket, out);
                return;
            }
            // Data and flags are processed by the caller.
            PacketKind::Data { .. }
            | PacketKind::Flag(_)
            | PacketKind::Null(None)
            | PacketKind::User { .. }
            | PacketKind::CrossSync { .. }
            | PacketKind::Incomplete => return,
        };
        out.mark(at, Mark::Stm(stm));
    }
}

impl ElementDecoder for Elements {
    type Packet = Packet;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &Packet, out: &mut impl ElementSink) {
        if !self.started {
            self.lose(at, NoSyncReason::Start, out);
        }
        let stm = match packet.kind {
            PacketKind::Data {
                bits,
                value,
                marker,
                timestamp,
            } => Stm {
                bits,
                value,
                marker,
                ..self.element(timestamp)
            },
            PacketKind::Flag(timestamp) => Stm {
                marker: true,
                ..self.element(timestamp)
            },
            _ => return self.other(at, packet, out),
        };
        out.mark(at, Mark::Stm(stm));
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
