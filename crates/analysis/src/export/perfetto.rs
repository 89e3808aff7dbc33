//! Timelines as a Perfetto trace (`protos/perfetto/trace` in its documentation).

use super::axis::{Axis, Clock};
use super::happenings::{Happenings, Joined, Taken, event_parts};
use super::spool::Spool;
use super::{Analysed, ExportError, hidden};
use crate::profile::{Call, CallKind, Ended, Functions, GapSeen, Moment, Track, gap_name};
use armsnap_trace::element::Mark;
use prost::Message;
use std::collections::HashMap;
use std::io::Write;

/// The messages used, with the field numbers of `perfetto_trace.proto`.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Trace {
        #[prost(message, repeated, tag = "1")]
        pub packet: Vec<TracePacket>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TracePacket {
        #[prost(uint64, optional, tag = "8")]
        pub timestamp: Option<u64>,
        #[prost(uint32, optional, tag = "10")]
        pub trusted_packet_sequence_id: Option<u32>,
        #[prost(message, optional, tag = "11")]
        pub track_event: Option<TrackEvent>,
        #[prost(message, optional, tag = "12")]
        pub interned_data: Option<InternedData>,
        #[prost(uint32, optional, tag = "13")]
        pub sequence_flags: Option<u32>,
        #[prost(message, optional, tag = "60")]
        pub track_descriptor: Option<TrackDescriptor>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackEvent {
        #[prost(message, repeated, tag = "4")]
        pub debug_annotations: Vec<DebugAnnotation>,
        #[prost(enumeration = "EventType", optional, tag = "9")]
        pub kind: Option<i32>,
        #[prost(uint64, optional, tag = "10")]
        pub name_iid: Option<u64>,
        #[prost(uint64, optional, tag = "11")]
        pub track_uuid: Option<u64>,
        #[prost(string, repeated, tag = "22")]
        pub categories: Vec<String>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum EventType {
        Unspecified = 0,
        SliceBegin = 1,
        SliceEnd = 2,
        Instant = 3,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DebugAnnotation {
        #[prost(uint64, optional, tag = "3")]
        pub uint_value: Option<u64>,
        #[prost(string, optional, tag = "6")]
        pub string_value: Option<String>,
        #[prost(string, optional, tag = "10")]
        pub name: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct InternedData {
        #[prost(message, repeated, tag = "2")]
        pub event_names: Vec<EventName>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EventName {
        #[prost(uint64, optional, tag = "1")]
        pub iid: Option<u64>,
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackDescriptor {
        #[prost(uint64, optional, tag = "1")]
        pub uuid: Option<u64>,
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
    }
}

use proto::{DebugAnnotation, EventName, EventType, InternedData, Trace, TracePacket, TrackEvent};

/// `SEQ_INCREMENTAL_STATE_CLEARED` of `TracePacket.sequence_flags`.
const CLEARED: u32 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`.
const NEEDED: u32 = 2;
/// The maximum number of interned names: about 100 MB.
const MAX_NAMES: usize = 1 << 20;

/// Writes the packets of one track while it is decoded.
#[derive(Debug)]
pub struct Packets {
    axis: Axis,
    /// The number of the track, and of its sequence of packets.
    track: u32,
    spool: Spool,
    names: HashMap<String, u64>,
    bytes: Vec<u8>,
}

impl Packets {
    /// Starts the packets of a track.
    pub fn new(clock: Clock, track: u32, about: &Track) -> Joined<Self> {
        let mut packets = Self {
            axis: Axis::new(clock, about),
            track,
            spool: Spool::new(),
            names: HashMap::new(),
            bytes: Vec::new(),
        };
        packets.put(TracePacket {
            sequence_flags: Some(CLEARED),
            track_descriptor: Some(proto::TrackDescriptor {
                uuid: Some(track.into()),
                name: Some(about.name.clone()),
            }),
            ..TracePacket::default()
        });
        Joined::new(packets)
    }

    fn put(&mut self, mut packet: TracePacket) {
        packet.trusted_packet_sequence_id = Some(self.track);
        // The concatenation of traces with one packet each is a trace.
        let trace = Trace {
            packet: vec![packet],
        };
        self.bytes.clear();
        if trace.encode(&mut self.bytes).is_ok() {
            self.spool.put(&self.bytes);
        }
    }

    fn event(
        &mut self,
        at: u64,
        kind: EventType,
        name: Option<&str>,
        category: &str,
        annotations: Vec<DebugAnnotation>,
    ) {
        let mut interned = None;
        let name_iid = name.map(|name| {
            if let Some(&known) = self.names.get(name) {
                return known;
            }
            if self.names.len() >= MAX_NAMES {
                self.names.clear();
            }
            let iid = self.names.len() as u64 + 1;
            self.names.insert(name.to_owned(), iid);
            interned = Some(InternedData {
                event_names: vec![EventName {
                    iid: Some(iid),
                    name: Some(name.to_owned()),
                }],
            });
            iid
        });
        let starts = interned.is_some() && name_iid == Some(1);
        let packet = TracePacket {
            timestamp: Some(at),
            sequence_flags: Some(if starts { CLEARED | NEEDED } else { NEEDED }),
            interned_data: interned,
            track_event: Some(TrackEvent {
                debug_annotations: annotations,
                kind: Some(kind.into()),
                name_iid,
                track_uuid: Some(self.track.into()),
                categories: vec![category.to_owned()],
            }),
            ..TracePacket::default()
        };
        self.put(packet);
    }
}

fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation {
        uint_value: Some(value),
        name: Some(name.to_owned()),
        ..DebugAnnotation::default()
    }
}

fn text(name: &str, value: impl Into<String>) -> DebugAnnotation {
    DebugAnnotation {
        string_value: Some(value.into()),
        name: Some(name.to_owned()),
        ..DebugAnnotation::default()
    }
}

/// Writes all tracks.
///
/// # Errors
///
/// If the trace has no such clock, or the output cannot be written.
pub fn write(
    clock: Clock,
    analysed: &Analysed<'_>,
    packets: Vec<Joined<Packets>>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    if let Some(why) = clock.lacks(analysed.tracks) {
        return Err(ExportError::Unfit(why));
    }
    for (joined, (track, profile)) in packets.into_iter().zip(analysed.tracks) {
        let mut packets = joined.finish();
        let mut about = vec![text("clock", format!("1 ns is 1 of: {}", clock.name()))];
        about.extend(hidden(track, profile).map(|gaps| text("gaps", gaps)));
        packets.event(
            0,
            EventType::Instant,
            Some("about this track"),
            "about",
            about,
        );
        packets.spool.copy_to(out)?;
    }
    Ok(())
}

impl Happenings for Packets {
    fn begin(&mut self, call: &Call, functions: &Functions) {
        // An unseen caller is drawn from the point where it becomes known, since slices must begin
        // in order.
        let at = match call.kind {
            CallKind::Caller => self.axis.last(),
            _ => self.axis.now(&call.begin),
        };
        let function = functions.get(call.function);
        let mut annotations = vec![text("entered", call.kind.name())];
        annotations.extend(
            function
                .start
                .map(|start| text("address", start.to_string())),
        );
        annotations.push(number("instruction", call.begin.instructions));
        self.event(
            at,
            EventType::SliceBegin,
            Some(&function.name),
            "call",
            annotations,
        );
    }

    fn call(&mut self, _: &Call, end: &Moment, how: Ended, _: &Functions) {
        let at = self.axis.now(end);
        let annotations = vec![text("ended", how.name())];
        self.event(at, EventType::SliceEnd, None, "call", annotations);
    }

    fn exception(&mut self, taken: &Taken) {
        // Traced handlers are calls.
        if !taken.traced {
            let at = self.axis.now(&taken.begin);
            let annotations = vec![number("number", taken.exception.number.into())];
            let name = Some(taken.exception.name);
            self.event(at, EventType::Instant, name, "exception", annotations);
        }
    }

    fn gap(&mut self, gap: &GapSeen) {
        let at = self.axis.now(&gap.from);
        let name = format!("gap: {}", gap_name(&gap.gap));
        let resumes = gap.resumes_at.map(|to| text("resumes_at", to.to_string()));
        let annotations = resumes.into_iter().collect();
        self.event(at, EventType::Instant, Some(&name), "gap", annotations);
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        let at = self.axis.now(moment);
        let parts = event_parts(mark);
        let annotations = parts.numbers();
        let annotations = annotations
            .map(|(name, value)| number(name, value))
            .collect();
        Packets::event(
            self,
            at,
            EventType::Instant,
            Some(parts.kind),
            "event",
            annotations,
        );
        self.axis.count();
    }
}
