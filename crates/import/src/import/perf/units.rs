//! The trace units of a recording, and the trace IDs of their trace.

use super::aux_traces::AuxTrace;
use super::bytes::Bytes;
use super::etm_info::{EtmInfo, Unit};
use super::recording::HardwareId;
use super::trace_ids::TraceIds;
use crate::import::note::PerfNote;
use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::snapshot::model::{Device, DeviceClass, Register, RegisterValue};
use std::collections::{BTreeMap, BTreeSet};

/// TRFCR_EL1.TS: timestamps are those of the virtual counter, as in perf's clock.
pub const VIRTUAL: u64 = 1;

/// A CPU's trace ID.
type CpuId = (u32, u8);

/// The trace units of a recording.
#[derive(Debug)]
pub struct Units<'a> {
    info: &'a EtmInfo,
    /// By sink: the IDs of the CPUs that use it. The key is `None` for IDs that are unique in the
    /// system.
    by_sink: BTreeMap<Option<u32>, Vec<CpuId>>,
    /// By CPU: its sink.
    sinks: BTreeMap<u32, Option<u32>>,
}

impl<'a> Units<'a> {
    /// Creates the units and their IDs, which come from records, or else from the units' blocks.
    pub fn new(info: &'a EtmInfo, ids: &[HardwareId]) -> (Self, Vec<PerfNote>) {
        let mut out = Self {
            info,
            by_sink: BTreeMap::new(),
            sinks: BTreeMap::new(),
        };
        let mut cpus = BTreeSet::new();
        let (units, repeated): (Vec<&Unit>, Vec<&Unit>) =
            info.units.iter().partition(|unit| cpus.insert(unit.cpu));
        let mut notes = Vec::new();
        if !repeated.is_empty() {
            let cpus = repeated.iter().map(|unit| unit.cpu).collect();
            notes.push(PerfNote::RepeatedUnits { cpus });
        }
        for id in ids {
            let known = out.by_sink.entry(id.sink).or_default();
            if let Some(&(cpu, _)) = known.iter().find(|(_, other)| *other == id.trace_id) {
                notes.push(PerfNote::SharedTraceId {
                    trace_id: TraceId(id.trace_id),
                    cpu,
                    other: id.cpu,
                });
                continue;
            }
            known.push((id.cpu, id.trace_id));
            out.sinks.insert(id.cpu, id.sink);
        }
        if !ids.is_empty() {
            return (out, notes);
        }
        let mut unused = 0;
        for unit in units {
            match unit.trace_id() {
                Some(id) => out.by_sink.entry(None).or_default().push((unit.cpu, id)),
                None => unused += 1,
            }
        }
        if unused > 0 {
            notes.push(PerfNote::CpusWithoutTraceId { cpus: unused });
        }
        (out, notes)
    }

    /// The unit of a CPU: its first block.
    fn of_cpu(&self, cpu: u32) -> Option<&'a Unit> {
        self.info.units.iter().find(|unit| unit.cpu == cpu)
    }

    /// The first unit, if any unit will do.
    fn first(&self) -> Option<&'a Unit> {
        self.info.units.first()
    }

    /// The units whose trace may be in a piece, with their IDs.
    pub fn of_piece(
        &self,
        piece: &AuxTrace,
        file: &Bytes,
        looked: &mut TraceIds,
    ) -> Vec<(&'a Unit, u8)> {
        if piece.raw {
            // A TRBE belongs to its CPU, so the ID is not needed.
            let unit = match piece.cpu {
                Some(cpu) => self.of_cpu(cpu),
                None => self.first(),
            };
            let id = |unit: &Unit| self.id_of(unit.cpu).or(unit.trace_id()).unwrap_or(1);
            return unit.map(|unit| (unit, id(unit))).into_iter().collect();
        }
        let none = Vec::new();
        let sink = piece.cpu.and_then(|cpu| self.sinks.get(&cpu).copied());
        let ids = match sink {
            Some(sink) => self.by_sink.get(&sink),
            None => self.by_sink.get(&None).or(self.by_sink.values().next()),
        };
        let ids = ids.unwrap_or(&none);
        let is_own = |cpu: u32| piece.of_cpu && piece.cpu == Some(cpu);
        let others = ids.iter().filter(|(cpu, _)| !is_own(*cpu));
        let others: BTreeSet<u8> = others.map(|(_, id)| *id).collect();
        let present = match others.is_empty() {
            true => BTreeSet::new(),
            false => looked.present(&others, piece, file),
        };
        let ids = ids.iter();
        let ids = ids.filter(|(cpu, id)| is_own(*cpu) || present.contains(id));
        ids.filter_map(|&(cpu, id)| Some((self.of_cpu(cpu)?, id)))
            .collect()
    }

    /// The reason why no piece contains trace of a unit.
    pub fn why_nothing(&self) -> &'static str {
        match self.by_sink.is_empty() {
            true => {
                "no CPU has a trace ID, as the AUX_OUTPUT_HW_ID records are missing: whose trace it \
                 has is not known; record again, with the newest perf"
            }
            false => {
                "it has no trace with a trace ID of one of its CPUs; perf report -D shows what it has"
            }
        }
    }

    fn id_of(&self, cpu: u32) -> Option<u8> {
        let mut ids = self.by_sink.values().flatten();
        ids.find(|(of, _)| *of == cpu).map(|(_, id)| *id)
    }
}

/// The device of a trace unit in a snapshot.
pub fn source_device(unit: &Unit, id: u8) -> Device {
    let kind = unit.device_type();
    let family = kind.split('.').next().unwrap_or(kind);
    let family = family.trim_end_matches(|c: char| c.is_ascii_digit());
    Device {
        name: format!("{family}_cpu{}", unit.cpu),
        class: DeviceClass::TraceSource,
        kind: kind.to_owned(),
        registers: registers(unit, id),
        ..Device::default()
    }
}

/// The registers of a trace unit's device, with the trace ID that is in use.
fn registers(unit: &Unit, id: u8) -> Vec<Register> {
    let registers = unit.registers.iter().map(|&(name, value)| {
        let value = match name == unit.kind.trace_id_register() {
            true => id.into(),
            // Registers of trace units have 32 bits.
            false => value as u32,
        };
        Register {
            name: name.to_owned(),
            size: Some(32),
            value: RegisterValue(value.to_le_bytes().to_vec()),
            ..Register::default()
        }
    });
    registers.collect()
}
