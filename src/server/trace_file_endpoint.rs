//! The endpoint of a trace file: one core whose state is that of the trace frames.

use std::path::PathBuf;
use std::sync::Arc;

use super::endpoint::{Endpoint, HistoryMode, Options, endpoints, threads_xml};
use super::trace_file::FileRun;
use super::trace_runs::Traces;
use crate::arch::{Architecture, Detected, TargetDescription};
use crate::convert::safe_description::rewritten;
use crate::convert::target::{ChosenArchitecture, Target};
use crate::mapped::Mapped;
use crate::program::elf::Elf;
use crate::snapshot::OpenSnapshot;
use crate::snapshot::files::InMemory;
use crate::tfile::File;

/// Creates the endpoint of a trace file. The bytes, a mapping of the file, live as long as the
/// process. `elfs` are programs for the client; they, or `architecture`, determine the target of a
/// file without a target description.
///
/// # Errors
///
/// Returns a message if the file cannot be served.
pub fn endpoint(
    bytes: &'static Mapped,
    title: &str,
    elfs: &[PathBuf],
    architecture: Option<Architecture>,
) -> Result<Endpoint, String> {
    let opened = elfs.iter().map(|path| Elf::open(path));
    let opened: Vec<Elf> = opened
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let chosen = ChosenArchitecture::of(architecture, &opened)?;
    let order = chosen.and_then(|chosen| chosen.order);
    let file = File::open(bytes, order).map_err(|error| error.to_string())?;
    let file = file.releasing(|walked| bytes.release(walked));
    let text = file.description().target.clone();
    Target::of_file(text.as_deref(), chosen.as_ref(), &mut Vec::new())?;
    // As the client parses it.
    let text = text.map(|text| rewritten(&text)).transpose()?;
    let mut notes = Vec::new();
    let target = Target::of_file(text.as_deref(), chosen.as_ref(), &mut notes)?;
    let run = FileRun::new(file, &target)?;
    let kind = match target.architecture {
        Architecture::AArch64 => "Cortex-A53",
        Architecture::AArch32 => "Cortex-A15",
        Architecture::MProfile => "Cortex-M4",
    };
    // Sessions require a core: one with unknown state.
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
    let loaded = loaded.map_err(|error| error.to_string())?;
    let options = Options {
        elfs: elfs.to_vec(),
        ..Options::default()
    };
    let made = endpoints(&loaded, &options).map_err(|error| error.to_string())?;
    let mut endpoint = made.into_iter().next().ok_or("it has no core")?;
    for core in &mut endpoint.cores {
        core.kind.clear();
        core.space.name = None;
        core.notes = run.notes().to_vec();
        core.notes.extend_from_slice(&notes);
        core.notes.push(format!(
            "where no trace frame is selected, registers and memory are those of trace frame {}",
            run.rest()
        ));
        core.detected = Detected {
            architecture: target.architecture,
            from: match (&text, chosen) {
                (None, Some(chosen)) => chosen.from.to_owned(),
                _ => "the file's target description".to_owned(),
            },
            assumed: false,
        };
    }
    let registers = endpoint.cores.iter().map(|core| &core.registers);
    let registers: Vec<_> = registers.collect();
    endpoint.description = TargetDescription::new(target.architecture, &[], &registers);
    endpoint.threads_xml = threads_xml(&endpoint.cores);
    endpoint.title = title.to_owned();
    endpoint.history = HistoryMode::None;
    endpoint.xml = match text.filter(|_| !target.by_default) {
        Some(text) => text,
        // The same register numbers, without unnamed registers.
        None => endpoint.description.xml(),
    };
    endpoint.isa_register = None;
    endpoint.traces = Some(Traces::File(Box::new(run)));
    Ok(endpoint)
}
