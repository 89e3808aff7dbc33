//! Snapshot → trace file.
//!
//! Trace frame 0 is the halted state of a core; the others are its decoded trace in chronological
//! order. The snapshot's files follow them (see `carrier`).

use super::carrier::{CarriedFiles, FIELD};
use super::note::{CoreNote, Note};
pub use super::trace_run::Options;
use super::trace_run::{NOWHERE, TraceRun, status};
use super::{Error, Progress};
use crate::tfile::{ByteOrder, Description, Status, Writer};
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::model::DeviceClass;
use std::io::{self, Write};

/// A trace file to write: of one core, or of a snapshot without cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreRun {
    /// The core's index in the device list.
    pub core: Option<usize>,
    /// Whether the user selected this core by name.
    alone: bool,
}

/// The trace files for a snapshot: one for each core, or only the core named in `options`. A
/// snapshot without cores becomes a file that only carries it.
///
/// # Errors
///
/// If the named core does not exist.
pub fn core_runs(loaded: &OpenSnapshot, options: &Options) -> Result<Vec<CoreRun>, Error> {
    let devices = loaded.snapshot.devices.iter().enumerate();
    let cores: Vec<usize> = devices
        .filter(|(_, device)| device.class == DeviceClass::Core)
        .map(|(index, _)| index)
        .collect();
    let name = |core: usize| loaded.snapshot.devices[core].name.trim();
    let Some(wanted) = &options.core else {
        let mut runs: Vec<CoreRun> = cores
            .iter()
            .map(|&core| CoreRun {
                core: Some(core),
                alone: false,
            })
            .collect();
        if runs.is_empty() {
            runs.push(CoreRun {
                core: None,
                alone: true,
            });
        }
        return Ok(runs);
    };
    let same = |core: &&usize| name(**core).eq_ignore_ascii_case(wanted.trim());
    match cores.iter().find(same) {
        Some(&core) => Ok(vec![CoreRun {
            core: Some(core),
            alone: true,
        }]),
        None => {
            let names: Vec<&str> = cores.iter().map(|&core| name(core)).collect();
            Err(Error::Usage(format!(
                "expected the name of a core, found {wanted:?}: {}",
                names.join(", ")
            )))
        }
    }
}

/// Writes the trace file of `core_run` to `out`. Notes are added to `notes`;
/// `progress` receives the progress of decoding and then of writing.
///
/// # Errors
///
/// If the options do not fit the snapshot, or writing fails.
pub fn write<W: Write>(
    loaded: &OpenSnapshot,
    core_run: CoreRun,
    options: &Options,
    out: W,
    notes: &mut Vec<Note>,
    progress: Progress<'_>,
) -> Result<W, Error> {
    let carried_files = if options.state_only {
        CarriedFiles::without_trace(loaded, notes)?
    } else {
        CarriedFiles::whole(loaded, notes)
    };
    match core_run.core {
        Some(core) => {
            let run = TraceRun::of(loaded, core, core_run.alone, options, notes, progress)?;
            write_run(&run, &carried_files, out, notes, progress)
        }
        None => {
            notes.push(Note::NoCore);
            carry_only(&carried_files, out)
        }
    }
}

/// Writes a file with one empty trace frame: GDB warns about a file without frames.
fn carry_only<W: Write>(carried_files: &CarriedFiles, out: W) -> Result<W, Error> {
    let loading = carried_files.load(&[]);
    let description = Description {
        // GDB does not read a file without a register block size.
        register_bytes: 4,
        status: Some(carried(
            status(1, 1, "a snapshot without cores".to_owned()),
            loading.length(),
        )),
        target: Some("<?xml version=\"1.0\"?>\n<target version=\"1.0\"></target>\n".to_owned()),
        ..Description::default()
    };
    let mut writer = Writer::new(out, &description, ByteOrder::Little)?;
    writer.end_frame(NOWHERE)?;
    let mut out = writer.finish()?;
    loading.write(&mut out)?;
    Ok(out)
}

/// Adds the carrier's length to the status.
fn carried(mut status: Status, carrier: usize) -> Status {
    status
        .other
        .push((FIELD.to_owned(), format!("{carrier:x}")));
    status
}

fn write_run<W: Write>(
    run: &TraceRun,
    carried_files: &CarriedFiles,
    out: W,
    notes: &mut Vec<Note>,
    progress: Progress<'_>,
) -> Result<W, Error> {
    let memory = run.memory();
    let length = |memory: &[(u64, &[u8])]| -> usize { memory.iter().map(|(_, b)| b.len()).sum() };
    let left_out = length(&run.state().memory()) - length(&memory);
    if left_out > 0 {
        let note = CoreNote::DumpsLeftOut { bytes: left_out };
        notes.push(Note::of_core(run.name(), note));
    }
    let loading = carried_files.load(&memory);
    let mut description = run.description();
    description.status = description
        .status
        .map(|status| carried(status, loading.length()));
    let out = Counted {
        out,
        done: 0,
        total: (length(&memory) + loading.length() + run.frames() * FRAME) as u64,
        progress,
    };
    let mut writer = Writer::new(out, &description, ByteOrder::Little)?;
    for frame in 0..run.frames() {
        run.write(frame, run.block(), &memory, &mut writer)?;
    }
    let mut out = writer.finish()?;
    loading.write(&mut out)?;
    Ok(out.out)
}

/// The approximate size of a trace frame in bytes.
const FRAME: usize = 64;

/// A writer that reports progress.
struct Counted<'a, W> {
    out: W,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const STEP: u64 = 1 << 20;
        let written = self.out.write(bytes)?;
        let before = self.done;
        self.done += written as u64;
        if before / STEP != self.done / STEP {
            (self.progress)(self.done.min(self.total), self.total);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
