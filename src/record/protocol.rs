//! The trace units of the recorded cores: protocol, options, and registers.
//!
//! Configures trace units and describes them in the snapshot; writes no packets.

use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::snapshot::model::{Device, DeviceClass, Register, RegisterValue};
use armsnap_trace::etm::Registers;
use armsnap_trace::etmv3;
use armsnap_trace::etmv4;
use armsnap_trace::protocol::Core;
use armsnap_trace::ptm;

/// Instruction trace protocols that can be recorded.
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
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etmv4 => "etmv4",
            Self::Ptm => "ptm",
            Self::Etmv3 => "etmv3",
        }
    }
}

/// When timestamps are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// Never.
    Never,
    /// From the second thread of a Linux program on, to order the threads' histories.
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
    /// Trace the target of every taken branch (branch broadcasting).
    pub branch_broadcast: bool,
    /// Omit the targets of returns whose call was traced (return stack); not in ETMv3.
    pub return_stack: bool,
    /// Trace cycle counts: one cycle per instruction.
    pub cycles: bool,
    /// When to trace timestamps: the number of instructions executed by all cores.
    pub timestamps: Timestamps,
    /// Bytes of trace between synchronisation points; 0: none after the first.
    pub sync: usize,
    /// Keep only this many bytes at the end of each core's trace.
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

/// The trace ID of the first core; the other cores follow in order.
const FIRST_ID: u8 = 0x10;

/// The number of cores with a trace ID (0x70 and above are reserved).
pub const MAX_CORES: u32 = 0x70 - FIRST_ID as u32;

/// Returns the trace ID of a core, or `None` if all IDs are used.
pub fn trace_id(core: u32) -> Option<TraceId> {
    let id = u8::try_from(core.checked_add(FIRST_ID.into())?).ok()?;
    (id < 0x70).then_some(TraceId(id))
}

impl TraceOptions {
    /// Returns whether the trace may contain timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.timestamps != Timestamps::Never
    }

    /// Returns the options of a core's ETMv4.
    pub fn etmv4(&self, id: TraceId, core: Core) -> etmv4::TraceUnitOptions {
        etmv4::TraceUnitOptions {
            trace_id: id.0,
            core,
            cycles: self.cycles.then_some(4),
            timestamps: self.has_timestamps(),
            return_stack: self.return_stack,
            branch_broadcast: self.branch_broadcast,
            // They are traced only if there are any, or once code has changed.
            context_ids: true,
            vmids: true,
        }
    }

    /// Returns ETMCR: branch output, cycle-accurate tracing, timestamps (ARM IHI 0014Q
    /// 3.5.1, ARM IHI 0035B 3.16).
    fn control(&self) -> u32 {
        u32::from(self.branch_broadcast) << 8
            | u32::from(self.cycles) << 12
            | u32::from(self.has_timestamps()) << 28
    }

    /// Returns the registers of a core's PTM (PFTv1.1) with return stack and 64-bit timestamps.
    pub fn ptm(&self, id: TraceId) -> Registers {
        Registers {
            etmcr: self.control() | u32::from(self.return_stack) << 29,
            etmccer: 0x34c0_1ac2,
            etmidr: 0x411c_f312,
            etmtraceidr: id.0.into(),
        }
    }

    /// Returns the registers of a core's ETMv3.5 with 64-bit timestamps in natural binary.
    pub fn etmv3(&self, id: TraceId) -> Registers {
        Registers {
            etmcr: self.control(),
            etmccer: 0x3440_08f2,
            etmidr: 0x411c_f250,
            etmtraceidr: id.0.into(),
        }
    }

    /// Returns the device of a core's trace source, without key and file. `context_ids` and `vmids`
    /// say whether the trace contains them.
    pub fn device(
        &self,
        id: TraceId,
        core: Core,
        name: String,
        [context_ids, vmids]: [bool; 2],
    ) -> Device {
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
                    context_ids,
                    vmids,
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

    /// Returns the PTM of a core.
    pub fn ptm_unit(&self, id: TraceId) -> ptm::TraceUnit {
        ptm::TraceUnit::new(ptm::Config::read(&self.ptm(id), Core::default()))
    }

    /// Returns the ETMv3 of a core.
    pub fn etmv3_unit(&self, id: TraceId, core: Core) -> etmv3::TraceUnit {
        etmv3::TraceUnit::new(etmv3::Config::read(&self.etmv3(id), core))
    }

    /// Returns the ETMv4 of a core.
    pub fn etmv4_unit(&self, id: TraceId, core: Core) -> etmv4::TraceUnit {
        etmv4::TraceUnit::new(self.etmv4(id, core))
    }
}
