//! What `console` and `dwt` share: the clock of timestamps, and inputs whose ITM and STM are decoded.

use super::{Failure, SnapshotArguments, print_notes};
use armsnap::capture::{Capture, CaptureSource, Selection, SelectionError};
use armsnap::report::software::{Clock, is_software, prescaler};
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::model::{Note, Severity};
use clap::Args;
use std::path::Path;

/// How timestamps become times.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ClockArguments {
    /// The frequency of the clock that timestamps count, such as 72M: times are shown in seconds
    #[arg(long, value_name = "HZ", value_parser = hertz)]
    pub clock: Option<f64>,
    /// The clock cycles in a tick of local timestamps (1, 4, 16 or 64). Default: as ITM_TCR says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub prescaler: Option<u32>,
}

impl ClockArguments {
    /// Returns the clock of a source.
    pub fn of(&self, source: &CaptureSource) -> Clock {
        Clock::new(self.prescaler.unwrap_or_else(|| prescaler(source)))
    }
}

/// Parses a frequency: a number of hertz, which may end with k, M or G.
fn hertz(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches("Hz");
    let (number, factor) = match number.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'M')) => (&number[..at], 1e6),
        Some((at, 'G')) => (&number[..at], 1e9),
        _ => (number, 1.0),
    };
    let value = number.parse::<f64>().ok().map(|value| value * factor);
    let value = value.filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a frequency in hertz, such as 72000000 or 72M".to_owned())
}

/// An input with the trace of an ITM or STM.
pub struct Traced {
    /// The input as a snapshot.
    pub loaded: OpenSnapshot,
    /// Its buffers with an ITM or STM, and only these sources.
    pub capture: Capture,
    /// The number of bytes before the first frame of a raw file, which are left out.
    pub skipped: usize,
    /// Whether a part of the trace cannot be decoded.
    pub faulty: bool,
}

/// Opens an input: a snapshot, or what `armsnap import` reads, or a file that holds nothing but
/// trace. Prints notes, except those on other sources, and, unless times are `timed`, those on
/// registers that a file of trace cannot have.
pub fn open(
    arguments: &SnapshotArguments,
    selection: &Selection,
    timed: bool,
) -> Result<Traced, Failure> {
    let (loaded, skipped) = arguments.load_or_raw()?;
    print_notes(&loaded.notes);
    let selected = Capture::select(&loaded, selection);
    let (mut capture, notes) = selected.map_err(|error| match error {
        SelectionError::Unknown { .. } => Failure::Usage(error.to_string()),
        SelectionError::NoTrace => Failure::Input(error.to_string()),
    })?;
    let faulty = notes.iter().any(|note| note.severity == Severity::Error);
    let sources = capture.buffers.iter().flat_map(|buffer| &buffer.sources);
    let others = sources.filter(|source| !is_software(source));
    let others: Vec<_> = others
        .map(|source| &loaded.snapshot.devices[source.device].place)
        .collect();
    let matters = |note: &&Note| {
        !others.contains(&&note.place)
            && (timed || note.severity == Severity::Error || !arguments.is_raw())
    };
    let notes: Vec<_> = notes.iter().filter(matters).collect();
    print_notes(&notes);
    for buffer in &mut capture.buffers {
        buffer.sources.retain(is_software);
    }
    capture.buffers.retain(|buffer| !buffer.sources.is_empty());
    if capture.buffers.is_empty() {
        return Err(without(&arguments.snapshot));
    }
    Ok(Traced {
        loaded,
        capture,
        skipped,
        faulty,
    })
}

fn without(path: &Path) -> Failure {
    Failure::Input(format!(
        "{}: its trace has no ITM and no STM: armsnap info lists its sources",
        path.display()
    ))
}
