//! The endpoint of a trace file: one core with the state of the trace frames.

use std::path::PathBuf;
use std::sync::Arc;

use super::endpoint::{Endpoint, EndpointError, HistoryMode, Options, endpoints};
use super::note::CoreNote;
use super::trace_file::{FileRun, NoProgramCounter};
use super::trace_runs::Traces;
use crate::convert::chosen::{ChoiceError, ChosenArchitecture};
use crate::tfile::{self, File};
use armsnap_arch::arch::safe_description::rewritten;
pub use armsnap_arch::arch::target::{DescriptionError, Target};
use armsnap_arch::arch::{Architecture, Detected, TargetDescription};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::{Elf, ElfError};
use armsnap_snapshot::snapshot::files::InMemory;
use armsnap_snapshot::snapshot::{self, OpenSnapshot};

/// An error that prevents serving a trace file.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// A program named by the user cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The programs do not fit each other or the chosen architecture.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// It is not a trace file.
    #[error(transparent)]
    File(#[from] tfile::Error),
    /// Its target description cannot be used.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// No frame can be shown before one is selected.
    #[error(transparent)]
    NoProgramCounter(#[from] NoProgramCounter),
    /// Its core cannot be created.
    #[error(transparent)]
    Core(#[from] snapshot::Error),
    /// Its core cannot be served.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Creates the endpoint of a trace file. The bytes, a mapping of the file, live as long as the
/// process. `elfs` are programs for the client; they, or `architecture`, determine the target if
/// the file has no target description.
///
/// # Errors
///
/// Returns an error if the file cannot be served.
pub fn endpoint(
    bytes: &'static Mapped,
    title: &str,
    elfs: &[PathBuf],
    architecture: Option<Architecture>,
) -> Result<Endpoint, TraceFileError> {
    let opened = elfs.iter().map(|path| Elf::open(path));
    let opened: Vec<Elf> = opened.collect::<Result<_, _>>()?;
    let chosen = ChosenArchitecture::of(architecture, &opened)?;
    let order = chosen.and_then(|chosen| chosen.order);
    let file = File::open(bytes, order)?;
    let file = file.releasing(|walked| bytes.release(walked));
    let text = file.description().target.clone();
    let named = chosen.as_ref().map(|chosen| &chosen.named);
    Target::of_file(text.as_deref(), named)?;
    // The description as the client parses it.
    let text = text.map(|text| rewritten(&text)).transpose();
    let text = text.map_err(DescriptionError::from)?;
    let target = Target::of_file(text.as_deref(), named)?;
    let run = FileRun::new(file, &target)?;
    let kind = match target.architecture {
        Architecture::AArch64 => "Cortex-A53",
        Architecture::AArch32 => "Cortex-A15",
        Architecture::MProfile => "Cortex-M4",
    };
    // Sessions require a core: this one has an unknown state.
    let files = [
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\ncore=core.ini\n".to_owned(),
        ),
        (
            "core.ini",
            format!("[device]\nname=trace file\nclass=core\ntype={kind}\n"),
        ),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes().into()));
    let loaded = OpenSnapshot::from_files(Arc::new(InMemory(files.into())), "snapshot.ini");
    let loaded = loaded?;
    let options = Options {
        elfs: elfs.to_vec(),
        ..Options::default()
    };
    let made = endpoints(&loaded, &options)?;
    let mut endpoint = made.into_iter().next().ok_or(EndpointError::NoCore)?;
    for core in &mut endpoint.cores {
        core.kind.clear();
        core.space.name = None;
        let about = run.notes().iter().cloned();
        core.notes = about.map(CoreNote::TraceFile).collect();
        core.notes
            .extend(target.by_default.map(CoreNote::DefaultRegisters));
        core.notes
            .push(CoreNote::RestingFrame { frame: run.rest() });
        core.detected = Detected {
            architecture: target.architecture,
            from: match (&text, named) {
                (None, Some(named)) => named.from.to_owned(),
                _ => "the file's target description".to_owned(),
            },
            assumed: false,
        };
    }
    let registers = endpoint.cores.iter().map(|core| &core.registers);
    let registers: Vec<_> = registers.collect();
    endpoint.description = TargetDescription::new(target.architecture, &[], &registers);
    endpoint.title = title.to_owned();
    endpoint.history = HistoryMode::None;
    endpoint.xml = match text.filter(|_| target.by_default.is_none()) {
        Some(text) => text,
        // The same register numbers, without unnamed registers.
        None => endpoint.description.xml(),
    };
    endpoint.history_registers = None;
    endpoint.traces = Some(Traces::File(Box::new(run)));
    Ok(endpoint)
}
