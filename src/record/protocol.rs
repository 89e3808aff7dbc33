//! Which trace units the recorded cores have: their protocol, options, and registers.
//!
//! Knows trace units and what a snapshot says of them; no packets, and no emulators.

use crate::etm::Registers;
use crate::protocol::Core;
use crate::quantity::TraceId;
use crate::snapshot::model::{Device, DeviceClass, Register, RegisterValue};
use crate::{etmv3, etmv4, ptm};

/// Protocols of instruction trace that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// ETMv4.
    #[default]
    Etmv4,
    /// PTM: AArch32 only.
    Ptm,
    /// ETMv3: AArch32 only.
    Etmv3,
}

impl Protocol {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etmv4 => "etmv4",
            Self::Ptm => "ptm",
            Self::Etmv3 => "etmv3",
        }
    }
}

/// When there are timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// Never.
    Never,
    /// From the moment when a Linux program has several threads, so that they move together.
    #[default]
    OfThreads,
    /// Always.
    Always,
}

/// What is traced, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// The protocol.
    pub protocol: Protocol,
    /// The target of every branch that is taken is traced.
    pub branch_broadcast: bool,
    /// Targets of returns are left out where the call was traced; ETMv3 has no such thing.
    pub return_stack: bool,
    /// Cycles are counted: one for each instruction, as the emulator knows no others.
    pub cycles: bool,
    /// Timestamps: the instructions executed by all cores so far.
    pub timestamps: Timestamps,
    /// Bytes of trace after which a decoder can begin anew; 0: never.
    pub sync: usize,
    /// Keep the last bytes of each core's trace only.
    pub last: Option<u64>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            branch_broadcast: false,
            return_stack: false,
            cycles: false,
            timestamps: Timestamps::default(),
            sync: 4096,
            last: None,
        }
    }
}

/// The first trace ID; each core has the next one.
const FIRST_ID: u8 = 0x10;

/// How many cores have a trace ID (0x70 and above are reserved).
pub const MOST_CORES: u32 = 0x70 - FIRST_ID as u32;

/// The trace ID of a core, while there are any.
pub fn trace_id(core: u32) -> Option<TraceId> {
    let id = u8::try_from(core.checked_add(FIRST_ID.into())?).ok()?;
    (id < 0x70).then_some(TraceId(id))
}

impl TraceOptions {
    /// There may be timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps != Timestamps::Never
    }

    /// An ETMv4 of a core.
    pub fn etmv4(&self, id: TraceId, core: Core) -> etmv4::TraceUnitOptions {
        etmv4::TraceUnitOptions {
            trace_id: id.0,
            core,
            cycles: self.cycles.then_some(4),
            timestamps: self.has_timestamps(),
            return_stack: self.return_stack,
            branch_broadcast: self.branch_broadcast,
            // Of code that changed: none before.
            context_ids: true,
            ..etmv4::TraceUnitOptions::default()
        }
    }

    /// ETMCR: branch output, cycle-accurate tracing, timestamps, return stack (ARM IHI 0014Q
    /// 3.5.1, ARM IHI 0035B 3.16).
    fn control(&self) -> u32 {
        u32::from(self.branch_broadcast) << 8
            | u32::from(self.cycles) << 12
            | u32::from(self.has_timestamps()) << 28
    }

    /// A PTM of a core, PFTv1.1: with return stack and 64-bit timestamps in natural binary.
    pub fn ptm(&self, id: TraceId) -> Registers {
        Registers {
            etmcr: self.control() | u32::from(self.return_stack) << 29,
            etmccer: 0x34c0_1ac2,
            etmidr: 0x411c_f312,
            etmtraceidr: id.0.into(),
        }
    }

    /// An ETMv3.5 of a core, with 64-bit timestamps in natural binary.
    pub fn etmv3(&self, id: TraceId) -> Registers {
        Registers {
            etmcr: self.control(),
            etmccer: 0x3440_08f2,
            etmidr: 0x411c_f250,
            etmtraceidr: id.0.into(),
        }
    }

    /// The trace source of a core, as a snapshot has it, without key and file.
    /// `versions`: there are context IDs in the trace.
    pub fn device(&self, id: TraceId, core: Core, name: String, versions: bool) -> Device {
        let legacy = |registers: Registers| {
            vec![
                ("ETMCR", registers.etmcr),
                ("ETMCCER", registers.etmccer),
                ("ETMIDR", registers.etmidr),
                ("ETMTRACEIDR", registers.etmtraceidr),
            ]
        };
        let (kind, values) = match self.protocol {
            Protocol::Etmv4 => {
                let unit = etmv4::TraceUnitOptions {
                    context_ids: versions,
                    ..self.etmv4(id, core)
                };
                let mut registers = unit.registers().to_vec();
                // Non-invasive debug is enabled in both security states.
                registers.push(("TRCAUTHSTATUS", 0xcc));
                ("ETM4.2", registers)
            }
            Protocol::Ptm => ("PTM1.1", legacy(self.ptm(id))),
            Protocol::Etmv3 => ("ETM3.5", legacy(self.etmv3(id))),
        };
        let register = |(name, value): (&str, u32)| Register {
            name: name.to_owned(),
            value: RegisterValue(value.to_le_bytes().to_vec()),
            ..Register::default()
        };
        Device {
            name,
            class: DeviceClass::TraceSource,
            kind: kind.to_owned(),
            registers: values.into_iter().map(register).collect(),
            ..Device::default()
        }
    }

    /// The PTM itself.
    pub fn ptm_unit(&self, id: TraceId) -> ptm::TraceUnit {
        ptm::TraceUnit::new(ptm::Config::read(&self.ptm(id), Core::default()))
    }

    /// The ETMv3 itself.
    pub fn etmv3_unit(&self, id: TraceId, core: Core) -> etmv3::TraceUnit {
        etmv3::TraceUnit::new(etmv3::Config::read(&self.etmv3(id), core))
    }

    /// The ETMv4 itself.
    pub fn etmv4_unit(&self, id: TraceId, core: Core) -> etmv4::TraceUnit {
        etmv4::TraceUnit::new(self.etmv4(id, core))
    }
}
