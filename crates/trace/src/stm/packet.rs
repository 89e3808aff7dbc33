//! The packets of STPv2.

use crate::protocol::{Describe, Field};

/// A timestamp as traced: the low nibbles of the time, or the time since the last one
/// (MIPI STPv2, "Timestamps").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// The number of nibbles traced, 0 to 16.
    pub nibbles: u8,
    /// Their value, in the encoding of the last VERSION packet.
    pub value: u64,
}

/// How timestamps are encoded (MIPI STPv2, VERSION packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TimestampType {
    /// STPv2NATDELTA: natural binary, the time since the last timestamp.
    Delta,
    /// STPv2NAT: natural binary, the nibbles that changed.
    Natural,
    /// STPv2GRAY: gray code, the nibbles that changed.
    Gray,
}

impl TimestampType {
    /// From the value of the VERSION packet.
    pub const fn new(version: u8) -> Option<Self> {
        match version {
            2 => Some(Self::Delta),
            3 => Some(Self::Natural),
            4 => Some(Self::Gray),
            _ => None,
        }
    }

    /// The specification's name in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delta => "nat_delta",
            Self::Natural => "nat",
            Self::Gray => "gray",
        }
    }

    const fn value(self) -> u8 {
        match self {
            Self::Delta => 2,
            Self::Natural => 3,
            Self::Gray => 4,
        }
    }
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The start of the packet, if it is the second half of the previous byte, in bits 7:4.
    pub shared: Option<u8>,
    /// Its kind and content.
    pub kind: PacketKind,
}

/// The kinds of packets (MIPI STPv2, "Packet encoding"), with their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Bytes before synchronisation.
    NotSync,
    /// ASYNC: 21 nibbles F and one 0. Additional nibbles F are part of it.
    Async,
    /// VERSION: the encoding of timestamps; the current master and channel become 0.
    Version(TimestampType),
    /// NULL, NULL_TS.
    Null(Option<Timestamp>),
    /// M8: the low byte of the current master; the channel becomes 0.
    Master8(u8),
    /// M16: the current master; the channel becomes 0.
    Master16(u16),
    /// C8: the low byte of the current channel.
    Channel8(u8),
    /// C16: the current channel.
    Channel16(u16),
    /// MERR: the current master lost data; the channel becomes 0.
    MasterError(u8),
    /// GERR: data of an unknown master were lost; the current master and channel become unknown.
    GlobalError(u8),
    /// D4 to D64, with or without marker and timestamp.
    Data {
        /// 4, 8, 16, 32, 64.
        bits: u8,
        /// The data.
        value: u64,
        /// DnM, DnMTS.
        marker: bool,
        /// DnTS, DnMTS.
        timestamp: Option<Timestamp>,
    },
    /// FLAG, FLAG_TS.
    Flag(Option<Timestamp>),
    /// USER, USER_TS: data with a vendor-defined meaning.
    User {
        /// Nibbles of data, 1 to 16.
        nibbles: u8,
        /// The data.
        value: u64,
        /// USER_TS.
        timestamp: Option<Timestamp>,
    },
    /// TRIG, TRIG_TS.
    Trigger {
        /// Its number.
        value: u8,
        /// TRIG_TS.
        timestamp: Option<Timestamp>,
    },
    /// FREQ, FREQ_TS: the frequency of timestamps in Hz.
    Frequency {
        /// In Hz.
        hertz: u32,
        /// FREQ_TS.
        timestamp: Option<Timestamp>,
    },
    /// XSYNC, XSYNC_TS: a common point of several trace streams.
    CrossSync {
        /// Its number.
        value: u8,
        /// XSYNC_TS.
        timestamp: Option<Timestamp>,
    },
    /// An opcode that STPv2 reserves, or that no STM writes (TIME).
    Reserved,
    /// A malformed packet: an ASYNC with too few nibbles, a timestamp of length F, an unknown VERSION.
    BadSequence,
    /// The trace ends inside a packet.
    Incomplete,
}

impl PacketKind {
    /// The timestamp that the packet carries.
    pub const fn timestamp(&self) -> Option<Timestamp> {
        match *self {
            Self::Null(timestamp)
            | Self::Flag(timestamp)
            | Self::Data { timestamp, .. }
            | Self::User { timestamp, .. }
            | Self::Trigger { timestamp, .. }
            | Self::Frequency { timestamp, .. }
            | Self::CrossSync { timestamp, .. } => timestamp,
            Self::NotSync
            | Self::Async
            | Self::Version(_)
            | Self::Master8(_)
            | Self::Master16(_)
            | Self::Channel8(_)
            | Self::Channel16(_)
            | Self::MasterError(_)
            | Self::GlobalError(_)
            | Self::Reserved
            | Self::BadSequence
            | Self::Incomplete => None,
        }
    }
}

/// Names of data packets by size, marker and timestamp.
const fn data_name(bits: u8, marker: bool, timestamp: bool) -> &'static str {
    match (bits, marker, timestamp) {
        (4, false, false) => "d4",
        (4, false, true) => "d4ts",
        (4, true, false) => "d4m",
        (4, true, true) => "d4mts",
        (8, false, false) => "d8",
        (8, false, true) => "d8ts",
        (8, true, false) => "d8m",
        (8, true, true) => "d8mts",
        (16, false, false) => "d16",
        (16, false, true) => "d16ts",
        (16, true, false) => "d16m",
        (16, true, true) => "d16mts",
        (32, false, false) => "d32",
        (32, false, true) => "d32ts",
        (32, true, false) => "d32m",
        (32, true, true) => "d32mts",
        (_, false, false) => "d64",
        (_, false, true) => "d64ts",
        (_, true, false) => "d64m",
        (_, true, true) => "d64mts",
    }
}

impl Describe for Packet {
    fn name(&self) -> &'static str {
        match self.kind {
            PacketKind::NotSync => "not_sync",
            PacketKind::Async => "async",
            PacketKind::Version(_) => "version",
            PacketKind::Null(None) => "null",
            PacketKind::Null(Some(_)) => "null_ts",
            PacketKind::Master8(_) => "m8",
            PacketKind::Master16(_) => "m16",
            PacketKind::Channel8(_) => "c8",
            PacketKind::Channel16(_) => "c16",
            PacketKind::MasterError(_) => "merr",
            PacketKind::GlobalError(_) => "gerr",
            PacketKind::Data {
                bits,
                marker,
                timestamp,
                ..
            } => data_name(bits, marker, timestamp.is_some()),
            PacketKind::Flag(None) => "flag",
            PacketKind::Flag(Some(_)) => "flag_ts",
            PacketKind::User {
                timestamp: None, ..
            } => "user",
            PacketKind::User { .. } => "user_ts",
            PacketKind::Trigger {
                timestamp: None, ..
            } => "trig",
            PacketKind::Trigger { .. } => "trig_ts",
            PacketKind::Frequency {
                timestamp: None, ..
            } => "freq",
            PacketKind::Frequency { .. } => "freq_ts",
            PacketKind::CrossSync {
                timestamp: None, ..
            } => "xsync",
            PacketKind::CrossSync { .. } => "xsync_ts",
            PacketKind::Reserved => "reserved",
            PacketKind::BadSequence => "bad_sequence",
            PacketKind::Incomplete => "incomplete",
        }
    }

    fn shared_byte(&self) -> Option<u8> {
        self.shared
    }

    fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        match self.kind {
            PacketKind::Version(timestamps) => {
                each("version", Field::Count(u64::from(timestamps.value())));
                each("timestamps", Field::Name(timestamps.name()));
            }
            PacketKind::Master8(value) => each("master", Field::Hex(u64::from(value))),
            PacketKind::Master16(value) => each("master", Field::Hex(u64::from(value))),
            PacketKind::Channel8(value) => each("channel", Field::Hex(u64::from(value))),
            PacketKind::Channel16(value) => each("channel", Field::Hex(u64::from(value))),
            PacketKind::MasterError(value)
            | PacketKind::GlobalError(value)
            | PacketKind::Trigger { value, .. }
            | PacketKind::CrossSync { value, .. } => each("value", Field::Hex(u64::from(value))),
            PacketKind::Data { value, .. } => each("value", Field::Hex(value)),
            PacketKind::User { nibbles, value, .. } => {
                each("nibbles", Field::Count(u64::from(nibbles)));
                each("value", Field::Hex(value));
            }
            PacketKind::Frequency { hertz, .. } => {
                each("frequency", Field::Count(u64::from(hertz)));
            }
            PacketKind::NotSync
            | PacketKind::Async
            | PacketKind::Null(_)
            | PacketKind::Flag(_)
            | PacketKind::Reserved
            | PacketKind::BadSequence
            | PacketKind::Incomplete => {}
        }
        if let Some(timestamp) = self.kind.timestamp() {
            each(
                "timestamp_nibbles",
                Field::Count(u64::from(timestamp.nibbles)),
            );
            each("timestamp", Field::Hex(timestamp.value));
        }
    }
}
