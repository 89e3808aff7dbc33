//! Runs that CMSIS-Debugger traced: a description in YAML, `NAME.ctrace-run.yml`, and beside it the
//! trace that was captured, `NAME.SWO.raw` and `NAME.TB.raw`.

mod description;

use super::units::Unit;
use crate::import::note::RawNote;
use crate::import::{ImportError, Imported, Options};
use armsnap_snapshot::capture::{DWT_VARIABLES, Protocol};
use armsnap_snapshot::snapshot::model::{Device, OtherSection};
use description::Processor;
use std::path::{Path, PathBuf};

/// The end of the name of a description.
const DESCRIPTION: &str = ".ctrace-run.yml";
/// The ends of the names of trace: of the SWO pin, and of a trace buffer.
const TRACE: [&str; 2] = [".SWO.raw", ".TB.raw"];
/// The end of the name of records of the Event Recorder, which are no trace.
const RECORDS: &str = ".ER.raw";

/// Returns whether a file that begins with these bytes is the description of a run.
pub fn is_ctrace_run(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n');
    lines.any(|line| {
        line.strip_suffix(b"\r")
            .unwrap_or(line)
            .starts_with(b"ctrace-run:")
    })
}

/// Reads a run: the description and the trace beside it.
///
/// # Errors
///
/// If the description is faulty, or there is no trace.
pub fn import(path: &Path, options: &Options) -> Result<Imported, ImportError> {
    let processors = description::read(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let base = name
        .strip_suffix(DESCRIPTION)
        .or_else(|| name.strip_suffix(".yml"));
    let base = base.unwrap_or(&name);
    let beside = |end: &str| path.with_file_name(format!("{base}{end}"));
    let is_there = |path: &PathBuf| path.is_file();
    let trace: Vec<PathBuf> = TRACE.map(beside).into_iter().filter(is_there).collect();
    if trace.is_empty() {
        return Err(ImportError::input(
            path,
            format!(
                "describes a run whose trace is not beside it: expected {base}{} or {base}{}",
                TRACE[0], TRACE[1]
            ),
        ));
    }
    let mut out = super::import(None, &trace, options)?;
    out.kind = "run traced by CMSIS-Debugger".to_owned();
    let records = beside(RECORDS);
    if records.is_file() {
        out.notes
            .push(RawNote::EventRecorder { path: records }.into());
    }
    describe(&mut out, &processors);
    Ok(out)
}

/// Gives each ITM the registers of its processor.
fn describe(out: &mut Imported, processors: &[Processor]) {
    let lines = out
        .snapshot
        .trace
        .iter()
        .flat_map(|trace| trace.source_buffers.iter().flatten());
    let lines: Vec<(String, Vec<String>)> = lines
        .map(|line| (line.source.clone(), line.buffers.clone()))
        .collect();
    let is_itm = |device: &Device| Protocol::of(device) == Some(Protocol::Itm);
    let itms = out
        .snapshot
        .devices
        .iter_mut()
        .filter(|device| is_itm(device));
    let mut itms: Vec<&mut Device> = itms.collect();
    let names: Vec<String> = itms.iter().map(|device| device.name.clone()).collect();
    let buffers_of = |name: &String| {
        let line = lines.iter().find(|(source, _)| source == name);
        line.map(|(_, buffers)| buffers)
    };
    for (device, name) in itms.iter_mut().zip(&names) {
        // Those in the same buffer, in the order of their trace IDs.
        let others = names
            .iter()
            .filter(|other| buffers_of(other) == buffers_of(name));
        let others: Vec<&String> = others.collect();
        let at = others.iter().position(|other| *other == name).unwrap_or(0);
        let id = armsnap_snapshot::capture::registers::trace_id(device);
        let by_id = |processor: &&Processor| {
            processor
                .trace_id()
                .is_some_and(|own| Some(own) == id.map(|id| id.0))
        };
        let certain = processors.iter().find(by_id);
        let active = || processors.iter().filter(|processor| !processor.is_disabled);
        let assumed = match others.len() {
            1 => active().next(),
            count if count == active().count() => active().nth(at),
            _ => processors.get(at),
        };
        let Some(processor) = certain.or(assumed) else {
            continue;
        };
        set(device, processor);
        if certain.is_none() && processors.len() > 1 {
            let note = RawNote::AssumedCore {
                unit: name.clone(),
                core: processor.name.clone(),
            };
            out.notes.push(note.into());
        }
    }
}

/// Adds the registers of a processor to its ITM, and the names of the data that it traces.
fn set(device: &mut Device, processor: &Processor) {
    let mut unit = Unit {
        device: std::mem::take(device),
        cpu: None,
        is_micro: true,
    };
    let traced = unit
        .device
        .register("ITMTCR")
        .and_then(|tcr| tcr.value.as_u64());
    // The ID in the formatter frames is certain.
    let id = traced.unwrap_or(0) as u32 & 0x7f << 16;
    let rest = processor.control() & !(0x7f << 16);
    unit.set("ITMTCR", rest | id);
    let mut variables = Vec::new();
    for comparator in &processor.comparators {
        unit.set(
            &format!("DWT_COMP{}", comparator.number),
            comparator.address,
        );
        let symbol = comparator.symbol.clone();
        variables.extend(symbol.map(|symbol| (comparator.number.to_string(), symbol)));
    }
    *device = unit.device;
    if !variables.is_empty() {
        device.other_sections.push(OtherSection {
            name: DWT_VARIABLES.to_owned(),
            entries: variables,
            ..OtherSection::default()
        });
    }
}
