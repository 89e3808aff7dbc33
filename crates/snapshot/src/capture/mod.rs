//! The trace of a snapshot: its buffers, and the sources in each with trace ID, protocol,
//! configuration and core.
//!
//! This is the only module that interprets a trace source's `type`, ID registers and `(stream:N)`.
//! Everything that lists, checks, decodes or follows trace starts with [`Capture::open`], so that
//! it sees the same sources. It opens files but decodes nothing.

mod architecture;
mod buffer;
mod clock;
mod config;
mod core;
mod left_out;
mod memory;
mod only;
mod protocol;
pub mod registers;
mod saved;

pub use architecture::TraceArchitecture;
pub use buffer::CaptureBuffer;
pub use clock::PerfClock;
pub use config::{Config, Visitor};
pub use core::traced_core;
pub use left_out::{LeftOut, Reason};
pub use memory::{core_memory, traces_host_ids};
pub use only::{ContextMatch, Only, OnlyContext};
pub use protocol::Protocol;
pub use saved::{OtherDecoder, Saved, SavedState};

use crate::snapshot::OpenSnapshot;
use crate::snapshot::model::{BufferFormat, FileLine, Note, Severity, Snapshot, Trace};
use crate::snapshot::topology;
use armsnap_arch::quantity::TraceId;
use armsnap_trace::flow::FlowConfig;
use armsnap_trace::formatter::FrameKind;
use armsnap_trace::protocol::{Core, ElementDecoder, PacketDecoder};
use std::collections::HashMap;

/// The section of a trace source with the names of the data that its DWT's comparators match, by the
/// numbers of these.
pub const DWT_VARIABLES: &str = "dwt_variables";

/// The names of some buffers and sources of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of the sources; all if empty.
    pub sources: Vec<String>,
    /// Names of the buffers; all if empty.
    pub buffers: Vec<String>,
    /// Whether the files of the buffers are not opened, because their bytes come from elsewhere.
    pub without_files: bool,
}

/// An error of [`Capture::select`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The snapshot has no trace.
    #[error("the snapshot has no trace to decode; armsnap gdb shows its state without")]
    NoTrace,
    /// A name that the snapshot does not have.
    #[error("no trace {what} {name:?}; there are: {}", if known.is_empty() { "none" } else { known })]
    Unknown {
        /// `source` or `buffer`.
        what: &'static str,
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
}

/// One trace source in one buffer, with everything needed to decode it except the bytes.
#[derive(Clone, Debug)]
pub struct CaptureSource {
    /// Index of its device in the snapshot.
    pub device: usize,
    /// The device's name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its configuration.
    pub config: Config,
    /// The trace ID of its bytes: the ID in its registers plus its stream number (section 3.3.4).
    pub trace_id: TraceId,
    /// Index of the core that it traces.
    pub core: Option<usize>,
    /// The context whose trace is wanted; all if `None`.
    pub only: Option<OnlyContext>,
    /// The conversion of its timestamps to perf's clock, if that is known.
    pub clock: Option<PerfClock>,
}

/// Passes `visitor` decoders that emit only the wanted context.
struct InContext<V> {
    visitor: V,
    only: Option<OnlyContext>,
}

impl<V: Visitor> Visitor for InContext<V> {
    type Output = V::Output;

    fn visit<D, E>(self, packets: D, elements: E) -> V::Output
    where
        D: PacketDecoder + Clone + Saved + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Saved + Send + Sync + 'static,
    {
        let elements = Only::new(elements, self.only);
        self.visitor.visit(packets, elements)
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> V::Output
    where
        D: PacketDecoder + Clone + Saved + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Saved + Send + Sync + 'static,
    {
        let elements = Only::new(elements, self.only);
        self.visitor.visit_flow(packets, elements, flow)
    }
}

impl CaptureSource {
    /// Creates the decoders, limited to the wanted context, and passes them to `visitor`.
    pub fn visit<V: Visitor>(&self, visitor: V) -> V::Output {
        self.config.visit(InContext {
            visitor,
            only: self.only.clone(),
        })
    }

    /// Returns whether its trace is the program flow of the core with index `core`.
    pub fn follows(&self, core: usize) -> bool {
        self.core == Some(core) && self.protocol.needs_core()
    }
}

/// A snapshot's trace.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// In the order of their sections in the trace metadata.
    pub buffers: Vec<CaptureBuffer>,
}

impl Capture {
    /// Opens the trace of a snapshot; there are no buffers if the snapshot has no trace. The notes
    /// report assumptions and omissions; a note of [`Severity::Error`] reports a buffer that cannot
    /// be decoded.
    pub fn open(loaded: &OpenSnapshot) -> (Self, Vec<Note>) {
        Self::select(loaded, &Selection::default()).unwrap_or_default()
    }

    /// Same as [`Self::open`], but only for the selected buffers and sources.
    ///
    /// # Errors
    ///
    /// Returns an error if the snapshot has no trace, or no buffer or source of a selected name.
    pub fn select(
        loaded: &OpenSnapshot,
        selection: &Selection,
    ) -> Result<(Self, Vec<Note>), SelectionError> {
        let snapshot = &loaded.snapshot;
        let Some(trace) = &snapshot.trace else {
            return Err(SelectionError::NoTrace);
        };
        let placed = topology::sources(snapshot);
        let name = |device: usize| &*snapshot.devices[device].name;
        let buffers: Vec<&str> = trace.buffers.iter().map(|b| &*b.name).collect();
        let mut sources: Vec<&str> = placed.iter().map(|s| name(s.device)).collect();
        sources.dedup();
        known("buffer", &selection.buffers, &buffers)?;
        known("source", &selection.sources, &sources)?;
        let mut opening = Opening {
            loaded,
            trace,
            without_files: selection.without_files,
            configs: HashMap::new(),
            notes: Vec::new(),
        };
        let mut by_buffer = vec![Vec::new(); trace.buffers.len()];
        for source in placed {
            if selects(&selection.sources, name(source.device)) {
                by_buffer[source.buffer].push(source);
            }
        }
        // In the order of their sections rather than of `buffers=`, as in the reference decoder.
        let mut order: Vec<_> = by_buffer.into_iter().enumerate().collect();
        order.sort_by_key(|(index, _)| trace.buffers[*index].place.line);
        let chosen = order
            .into_iter()
            .filter(|(index, _)| selects(&selection.buffers, &trace.buffers[*index].name));
        let buffers = chosen
            .filter_map(|(index, placed)| opening.buffer(index, &placed))
            .collect();
        Ok((Self { buffers }, opening.notes))
    }

    /// Returns the sources that follow a core, at most one of each buffer, in order; and notes on
    /// those left out.
    pub fn following(
        &self,
        snapshot: &Snapshot,
        core: usize,
    ) -> (Vec<(&CaptureBuffer, &CaptureSource)>, Vec<Note>) {
        let (mut found, mut notes) = (Vec::new(), Vec::new());
        for buffer in &self.buffers {
            let mut sources = buffer.sources.iter().filter(|s| s.follows(core));
            let Some(first) = sources.next() else {
                continue;
            };
            notes.extend(sources.map(|other| Note {
                place: snapshot.devices[other.device].place.clone(),
                severity: Severity::Warning,
                section: "",
                text: format!(
                    "{}: two trace sources follow it in one buffer: the history is that of {}, {} \
                     is left out",
                    snapshot.devices[core].name, first.name, other.name
                ),
            }));
            found.push((buffer, first));
        }
        (found, notes)
    }
}

fn selects(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|n| n == name)
}

fn known(what: &'static str, wanted: &[String], names: &[&str]) -> Result<(), SelectionError> {
    match wanted.iter().find(|name| !names.contains(&&***name)) {
        None => Ok(()),
        Some(name) => Err(SelectionError::Unknown {
            what,
            name: name.clone(),
            known: names.join(", "),
        }),
    }
}

/// The protocol, the core and the configuration of a source.
type Configured = (Protocol, Option<usize>, Config);

/// A capture that is being opened.
struct Opening<'a> {
    loaded: &'a OpenSnapshot,
    trace: &'a Trace,
    without_files: bool,
    /// By device, because a source may be in many buffers.
    configs: HashMap<usize, Result<Configured, Reason>>,
    notes: Vec<Note>,
}

impl Opening<'_> {
    fn note(&mut self, place: &FileLine, severity: Severity, section: &'static str, text: String) {
        self.notes.push(Note {
            place: place.clone(),
            severity,
            section,
            text,
        });
    }

    /// Opens a buffer; `None` if its format is unknown or its files cannot be read.
    fn buffer(&mut self, index: usize, placed: &[topology::PlacedSource]) -> Option<CaptureBuffer> {
        let buffer = &self.trace.buffers[index];
        let frames = match &buffer.format {
            BufferFormat::Coresight => Some(FrameKind::Memory),
            BufferFormat::DstreamCoresight => Some(FrameKind::Dstream),
            BufferFormat::SourceData => None,
            BufferFormat::Other(_) | BufferFormat::Missing => {
                let text = format!(
                    "buffer {}: its format is not known, it is left out",
                    buffer.name
                );
                self.note(&buffer.place, Severity::Error, "3.3.2", text);
                return None;
            }
        };
        let parts = match self.without_files {
            true => Ok(Vec::new()),
            false => self.loaded.buffer_parts(index),
        };
        let parts = match parts {
            Ok(parts) => parts,
            Err(error) => {
                self.note(&error.place, Severity::Error, "3.3.2", error.text);
                return None;
            }
        };
        let mut out = CaptureBuffer {
            index,
            name: buffer.name.clone(),
            parts,
            frames,
            sources: Vec::new(),
            left_out: Vec::new(),
        };
        let devices = &self.loaded.snapshot.devices;
        // An unformatted buffer has one source: the one that has the buffer's name, or the first
        // that can be decoded.
        let mut lone = placed
            .iter()
            .position(|source| frames.is_none() && devices[source.device].name == buffer.name);
        let mut ids: HashMap<TraceId, String> = HashMap::new();
        for (at, source) in placed.iter().enumerate() {
            let reason = match lone.filter(|&lone| lone != at) {
                Some(lone) => Err(Reason::Unformatted {
                    decoded: devices[placed[lone].device].name.clone(),
                }),
                None => self.source(source),
            };
            if frames.is_none() && reason.is_ok() {
                lone = Some(at);
            }
            let source = reason.and_then(|found| match ids.get(&found.trace_id) {
                Some(first) => Err(Reason::DuplicateId {
                    id: found.trace_id,
                    first: first.clone(),
                }),
                None => Ok(found),
            });
            match source {
                Ok(source) => {
                    ids.insert(source.trace_id, source.name.clone());
                    out.sources.push(source);
                }
                Err(reason) => out.left_out.push(LeftOut {
                    device: placed[at].device,
                    reason,
                }),
            }
        }
        let left_out = out.left_out.iter();
        self.notes
            .extend(left_out.map(|left| left.note(&self.loaded.snapshot)));
        Some(out)
    }

    fn source(&mut self, placed: &topology::PlacedSource) -> Result<CaptureSource, Reason> {
        let device = &self.loaded.snapshot.devices[placed.device];
        let known = match self.configs.get(&placed.device) {
            Some(known) => known.clone(),
            None => {
                let known = self.configure(placed);
                self.configs.insert(placed.device, known.clone());
                known
            }
        };
        let (protocol, core, config) = known?;
        let stream = placed.stream.unwrap_or(0);
        // Stream 1 of an ETMv4 is its data trace (Debug and Trace Snapshot File Format 0.2, 3.3.4).
        if stream > 0 && matches!(protocol, Protocol::Etmv4 | Protocol::Ete) {
            return Err(Reason::DataTrace);
        }
        Ok(CaptureSource {
            device: placed.device,
            name: device.name.clone(),
            protocol,
            trace_id: TraceId(config.trace_id().0.wrapping_add(stream as u8) & 0x7F),
            config,
            core,
            only: OnlyContext::of(device),
            clock: PerfClock::of(device),
        })
    }

    /// Reads protocol, core and configuration of a source; fails if its protocol cannot be decoded.
    fn configure(&mut self, placed: &topology::PlacedSource) -> Result<Configured, Reason> {
        let snapshot = &self.loaded.snapshot;
        let device = &snapshot.devices[placed.device];
        let architecture = TraceArchitecture::of(device);
        let Some(protocol) = architecture.protocol() else {
            let kind = match architecture {
                TraceArchitecture::Unknown => device.kind.clone(),
                known => known.to_string(),
            };
            return Err(Reason::UnknownProtocol { kind });
        };
        let by_type = TraceArchitecture::from_type(&device.kind).protocol();
        if let Some(by_type) = by_type.filter(|by_type| *by_type != protocol) {
            let text = format!(
                "{}: its type is {}, but its ID registers are of {}, which is used",
                device.name,
                by_type.name(),
                protocol.name()
            );
            self.note(&device.place, Severity::Warning, "3.2.1", text);
        }
        let mut core = placed.core;
        if let Some(only) = topology::only_core(snapshot)
            && placed.core.is_none()
            && !placed.core_written
            && protocol.needs_core()
        {
            let text = format!(
                "{}: no core is given: {}, the only one, is assumed",
                device.name, snapshot.devices[only].name
            );
            self.note(&self.trace.place.clone(), Severity::Warning, "3.3.3", text);
            core = Some(only);
        }
        let traced = core.map_or_else(Core::default, |core| traced_core(&snapshot.devices[core]));
        let config = Config::read(device, protocol, traced, &mut self.notes);
        Ok((protocol, core, config))
    }
}
