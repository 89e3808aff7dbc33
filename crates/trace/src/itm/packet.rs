//! The packets of ITM and DWT (ARM DDI 0403E, appendix D4).

use crate::element::TimestampRelation;
use crate::protocol::{Describe, Field};

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Bytes before synchronisation.
    NotSync,
    /// Synchronization (D4.2.1): at least 47 bits of zero and a one; or the first part of a very long run of
    /// zeros.
    Sync,
    /// Overflow (D4.2.3): packets were lost.
    Overflow,
    /// Local timestamp (D4.2.4), format 1: ticks since the last one.
    LocalTimestamp1 {
        /// TC.
        relation: TimestampRelation,
        /// 28 bits.
        delta: u32,
    },
    /// Local timestamp (D4.2.4), format 2: 1 to 6 ticks, on time.
    LocalTimestamp2 {
        /// 1 to 6.
        delta: u8,
    },
    /// Global timestamp (D4.2.5), format 1: the low bits of the system time.
    GlobalTimestamp1 {
        /// The number of low bits traced: 7, 14, 21 or 26.
        bits: u8,
        /// The bits.
        value: u32,
        /// Wrap: bits above 25 changed, a format 2 packet follows.
        wrapped: bool,
        /// ClkCh: the clock frequency of the system time changed.
        clock_changed: bool,
    },
    /// Global timestamp (D4.2.5), format 2: bits 26 and up of the system time, which has 48 or 64 bits.
    GlobalTimestamp2 {
        /// The bits, bit 26 lowest.
        value: u64,
    },
    /// Extension (D4.2.6): the page of the stimulus ports that follow.
    StimulusPage(u8),
    /// Any other extension (D4.2.6).
    Extension {
        /// SH: from the hardware source.
        hardware: bool,
        /// The number of bits: 3, 10, 17, 24 or 32.
        bits: u8,
        /// EX.
        value: u32,
    },
    /// Instrumentation (D4.2.8): software wrote to a stimulus port.
    Instrumentation {
        /// 0 to 31, within its page.
        port: u8,
        /// 1, 2 or 4.
        bytes: u8,
        /// The value written.
        value: u32,
    },
    /// Hardware source (D4.2.9): the DWT.
    Hardware {
        /// Discriminator ID.
        discriminator: u8,
        /// 1, 2 or 4.
        bytes: u8,
        /// Payload.
        value: u32,
    },
    /// A header that is reserved.
    Reserved,
    /// A malformed packet: zeros that are not a synchronization packet, a number that does not end.
    BadSequence,
    /// The trace ends inside a packet.
    Incomplete,
}

/// The counters of the event counter packet, by bit.
const COUNTERS: [&str; 6] = ["cpi", "exc", "sleep", "lsu", "fold", "cyc"];

impl Describe for Packet {
    fn name(&self) -> &'static str {
        match *self {
            Self::NotSync => "not_sync",
            Self::Sync => "sync",
            Self::Overflow => "overflow",
            Self::LocalTimestamp1 { .. } => "lts1",
            Self::LocalTimestamp2 { .. } => "lts2",
            Self::GlobalTimestamp1 { .. } => "gts1",
            Self::GlobalTimestamp2 { .. } => "gts2",
            Self::StimulusPage(_) => "stimulus_port_page",
            Self::Extension { .. } => "extension",
            Self::Instrumentation { .. } => "instrumentation",
            Self::Hardware {
                discriminator,
                bytes,
                ..
            } => match (discriminator, bytes) {
                (0, 1) => "event_counter",
                (1, 2) => "exception_trace",
                (2, 1 | 4) => "pc_sample",
                (8..=15, 4) if discriminator & 1 == 0 => "data_trace_pc_value",
                (8..=15, 2) if discriminator & 1 == 1 => "data_trace_address",
                (16..=23, _) => "data_trace_data_value",
                _ => "hardware_source",
            },
            Self::Reserved => "reserved",
            Self::BadSequence => "bad_sequence",
            Self::Incomplete => "incomplete",
        }
    }

    fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        match *self {
            Self::LocalTimestamp1 { relation, delta } => {
                each("relation", Field::Name(relation.name()));
                each("delta", Field::Count(delta.into()));
            }
            Self::LocalTimestamp2 { delta } => each("delta", Field::Count(delta.into())),
            Self::GlobalTimestamp1 {
                bits,
                value,
                wrapped,
                clock_changed,
            } => {
                each("bits", Field::Count(bits.into()));
                each("value", Field::Hex(value.into()));
                each("wrapped", Field::Flag(wrapped));
                each("clock_changed", Field::Flag(clock_changed));
            }
            Self::GlobalTimestamp2 { value } => each("value", Field::Hex(value)),
            Self::StimulusPage(page) => each("page", Field::Count(page.into())),
            Self::Extension {
                hardware,
                bits,
                value,
            } => {
                each("hardware", Field::Flag(hardware));
                each("bits", Field::Count(bits.into()));
                each("value", Field::Hex(value.into()));
            }
            Self::Instrumentation { port, bytes, value } => {
                each("port", Field::Count(port.into()));
                each("size", Field::Count(bytes.into()));
                each("value", Field::Hex(value.into()));
            }
            Self::Hardware {
                discriminator,
                bytes,
                value,
            } => {
                each("discriminator", Field::Count(discriminator.into()));
                each("size", Field::Count(bytes.into()));
                each("value", Field::Hex(value.into()));
                hardware_fields(discriminator, bytes, value, each);
            }
            Self::NotSync
            | Self::Sync
            | Self::Overflow
            | Self::Reserved
            | Self::BadSequence
            | Self::Incomplete => {}
        }
    }
}

/// The fields in the payload of a DWT packet.
fn hardware_fields(
    discriminator: u8,
    bytes: u8,
    value: u32,
    each: &mut dyn FnMut(&'static str, Field),
) {
    match (discriminator, bytes) {
        (0, 1) => {
            for (bit, name) in COUNTERS.into_iter().enumerate() {
                if value >> bit & 1 != 0 {
                    each(name, Field::Flag(true));
                }
            }
        }
        (1, 2) => {
            each("exception", Field::Count((value & 0x1ff).into()));
            let action = match value >> 12 & 3 {
                1 => "entered",
                2 => "exited",
                3 => "returned_to",
                _ => "reserved",
            };
            each("action", Field::Name(action));
        }
        (2, 1) => each("sleeping", Field::Flag(true)),
        (8..=23, _) => {
            each("comparator", Field::Count((discriminator >> 1 & 3).into()));
            if discriminator >= 16 {
                each("write", Field::Flag(discriminator & 1 != 0));
            }
        }
        _ => {}
    }
}
