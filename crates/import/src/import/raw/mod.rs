//! Trace buffers as they were read from the hardware, with information about the trace units.
//!
//! [`units`] collects the trace units: registers given by the user, or files of Linux's sysfs.
//! [`form`] determines how a buffer is formatted and which trace it contains. [`panic`] checks
//! buffers that a kernel kept, [`registers`] reads lists that debuggers print, [`mtb`] finds branches in RAM, which [`branches`] encodes as trace.
//! [`tarmac`] reads what models print, [`ctrace`] the description of a run that CMSIS-Debugger traced. [`snapshot`] joins them with
//! the [`cores`].

mod branches;
mod cores;
pub(super) mod ctrace;
mod form;
mod frames;
mod hints;
mod mtb;
mod panic;
mod registers;
mod snapshot;
pub(super) mod tarmac;
mod units;

use super::note::{MtbNote, Note};
use super::{Foreign, ImportError, Imported, NamedProgram, Options, imported};
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use armsnap_history::decode::Image;
use armsnap_snapshot::capture::traced_core;
use armsnap_snapshot::snapshot::OpenOptions;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::{Device, Snapshot};
use armsnap_trace::etmv4::TraceUnitOptions;
use branches::{Branches, Traced, Vectors};
use snapshot::RawSnapshot;
use std::path::PathBuf;
use units::Unit;

/// Makes a snapshot of raw buffers, or of memory alone; with `state`, a core file or core dump of
/// the same system, its cores have the registers and memory of that state.
///
/// # Errors
///
/// If a file cannot be read, or a buffer contains no trace.
pub fn import(
    state: Option<Imported>,
    buffers: &[PathBuf],
    options: &Options,
) -> Result<Imported, ImportError> {
    if state.as_ref().is_some_and(Imported::is_whole) {
        return Err(ImportError::Usage(
            "--raw, --mtb: expected a core file or a core dump before the options, not a snapshot"
                .to_owned(),
        ));
    }
    if let Some(mtb) = &options.mtb {
        return with_mtb(state, mtb, options);
    }
    if options.crash_metadata.len() > buffers.len() {
        return Err(ImportError::Usage(
            "--crash-metadata: expected as many as --raw, in the same order, or fewer".to_owned(),
        ));
    }
    let units = units::units(options)?;
    let mut out = RawSnapshot::new(state, units, options)?;
    out.registers(&options.register_lists)?;
    let mut metadata = options.crash_metadata.iter();
    for path in buffers {
        let mut bytes = imported::map_unpacked(path)?;
        let foreign = Foreign::of(path);
        if let Some(foreign @ (Foreign::Sigrok | Foreign::ValueChanges | Foreign::Archive)) =
            foreign
        {
            return Err(ImportError::input(path, foreign));
        }
        if let Some(metadata) = metadata.next() {
            bytes = panic::trace(path, bytes, metadata, &mut out.out.notes)?;
        }
        out.buffer(path, bytes)?;
    }
    out.memory(&options.memory)?;
    Ok(out.imported())
}

/// Makes a snapshot of a core, whose history comes from the MTB packets in its RAM.
fn with_mtb(
    state: Option<Imported>,
    mtb: &NamedProgram,
    options: &Options,
) -> Result<Imported, ImportError> {
    let registers = mtb::Registers::of(&options.registers)?;
    let mut out = RawSnapshot::new(state, Vec::new(), options)?;
    out.registers(&options.register_lists)?;
    let files: Vec<NamedProgram> = [mtb].into_iter().chain(&options.memory).cloned().collect();
    out.memory(&files)?;
    let core = out.first_core();
    let device = out.cores.devices[core].clone();
    if !traced_core(&device).is_microcontroller() {
        return Err(ImportError::Usage(format!(
            "--mtb: {} has no MTB: expected a core of the M-profile, such as Cortex-M0+",
            device.kind
        )));
    }
    let (unit, bytes) = {
        // The memory as it will be decoded.
        let held = Imported {
            snapshot: Snapshot {
                version: "1.0".to_owned(),
                devices: vec![Device {
                    key: "device0".to_owned(),
                    file: "core.ini".to_owned(),
                    ..device.clone()
                }],
                ..Snapshot::default()
            },
            files: out.out.files.clone(),
            ..Imported::default()
        };
        let loaded = held.open(&mtb.path, &OpenOptions::default())?;
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        history(
            &device,
            &memory,
            mtb,
            &registers,
            options,
            &mut out.out.notes,
        )?
    };
    out.made(unit, core, bytes);
    Ok(out.imported())
}

/// Encodes the packets of an MTB as trace. Returns the trace unit and its trace.
fn history(
    device: &Device,
    memory: &CoreMemory,
    mtb: &NamedProgram,
    registers: &mtb::Registers,
    options: &Options,
    notes: &mut Vec<Note>,
) -> Result<(Unit, Vec<u8>), ImportError> {
    let word = |address: u64| {
        let mut word = [0; 4];
        let count = memory.read(Address(address), Space::Any, &mut word);
        (count == 4).then(|| u32::from_le_bytes(word))
    };
    let ring = registers.ring(mtb.address, notes)?;
    let packets = ring.packets(&mtb.path, word, notes)?;
    let vectors = match (registers.vtor, start_of_program(options)) {
        (Some(vtor), _) => vtor.into(),
        (None, Some(start)) if word(start).is_some() => {
            notes.push(MtbNote::AssumedVectors { start }.into());
            start
        }
        (None, _) => 0,
    };
    let unit = TraceUnitOptions {
        core: traced_core(device),
        ..TraceUnitOptions::default()
    };
    let code = Image(Some(memory));
    let mut flow = Branches::new(unit, code, Vectors::read(vectors, word));
    for packet in &packets {
        flow.packet(packet);
    }
    let saved = device.register("PC").and_then(|pc| pc.value.as_u64());
    let halted = registers.pc.map(u64::from).or(saved);
    let traced = flow.finish(halted.filter(|_| ring.on).map(|pc| pc & !1));
    let read = MtbNote::Read {
        path: mtb.path.clone(),
        packets: packets.len(),
        bytes: ring.size,
        from: ring.start,
        wrapped: ring.wrapped,
    };
    notes.push(read.into());
    report(&traced, ring.on, notes);
    let mut out = Unit::new("mtb", "ETM4.2");
    for (name, value) in unit.registers() {
        out.set(name, value);
    }
    Ok((out, traced.bytes))
}

/// The lowest address of the first program.
fn start_of_program(options: &Options) -> Option<u64> {
    let named = options.elf.first()?;
    let elf = armsnap_snapshot::program::elf::Elf::open(&named.path).ok()?;
    let lowest = elf.segments.iter().map(|segment| segment.address).min();
    named.address.or(lowest)
}

fn report(traced: &Traced, on: bool, notes: &mut Vec<Note>) {
    let end = match (on, traced.to_end) {
        (false, _) => Some(MtbNote::NotTracing),
        (true, false) => Some(MtbNote::NoEnd),
        (true, true) => None,
    };
    let (gaps, unnumbered) = (traced.gaps, traced.unnumbered);
    let all = [
        (gaps > 0).then_some(MtbNote::Gaps { count: gaps }),
        (unnumbered > 0).then_some(MtbNote::UnnumberedExceptions { count: unnumbered }),
        traced.exhausted.then_some(MtbNote::LongLines),
        end,
    ];
    notes.extend(all.into_iter().flatten().map(Note::from));
}
