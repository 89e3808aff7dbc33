//! The configuration of a trace source's decoders, read from its registers.

use super::{Protocol, Saved, TraceArchitecture, registers};
use crate::snapshot::model::{Device, Note, Severity};
use armsnap_arch::quantity::TraceId;
use armsnap_trace::etm;
use armsnap_trace::etmv3;
use armsnap_trace::etmv4;
use armsnap_trace::flow::{FlowConfig, Waypoints};
use armsnap_trace::itm;
use armsnap_trace::protocol::{Core, ElementDecoder, PacketDecoder};
use armsnap_trace::ptm;
use armsnap_trace::stm;

/// The configuration of a trace source.
#[derive(Clone, Debug)]
pub enum Config {
    /// ETMv3.
    Etmv3(etmv3::Config),
    /// PTM.
    Ptm(ptm::Config),
    /// ETMv4 and ETE.
    Etmv4(Box<etmv4::Config>),
    /// ITM.
    Itm(itm::Config),
    /// STM.
    Stm(stm::Config),
}

/// A function that is generic over the decoders of a source.
pub trait Visitor {
    /// Its result.
    type Output;

    /// Receives the decoders of a source whose elements no flow follows.
    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + Clone + Saved + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Saved + Send + Sync + 'static;

    /// Receives the decoders of a source that follows a core, and the settings of the flow. By
    /// default the same as [`visit`](Self::visit), for functions that need no flow.
    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        Self: Sized,
        D: PacketDecoder + Clone + Saved + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Saved + Send + Sync + 'static,
    {
        let _ = flow;
        self.visit(packets, elements)
    }
}

fn missing(device: &Device, name: &str, assumed: impl std::fmt::LowerHex) -> Note {
    Note {
        place: device.place.clone(),
        severity: Severity::Warning,
        section: "4.2",
        text: format!(
            "{}: register {name} is missing: {assumed:#x} is assumed",
            device.name
        ),
    }
}

/// Returns a note that loads or stores have atoms. The flow expects only atoms of branches, so it
/// would be wrong.
fn accesses_are_p0(device: &Device) -> Note {
    Note {
        place: device.place.clone(),
        severity: Severity::Warning,
        section: "4.2",
        text: format!(
            "{}: loads or stores have atoms (TRCCONFIGR.INSTP0): its program flow is not followed",
            device.name
        ),
    }
}

struct Needed<'a> {
    /// Looks up registers by name or ID, and adds a note for each missing one.
    device: &'a Device,
    notes: &'a mut Vec<Note>,
}

impl Needed<'_> {
    fn get(&mut self, names: &[&str], id: u64, assumed: u32) -> u32 {
        match self.device.component_register(names, id) {
            // Registers of CoreSight components have 32 bits.
            Some(register) => register.value.as_u64().unwrap_or(0) as u32,
            None => {
                self.notes.push(missing(self.device, names[0], assumed));
                assumed
            }
        }
    }

    /// If ETMIDR is missing, `etmidr` is assumed, with the minor version in the device's type.
    fn macrocell(&mut self, etmidr: u32) -> etm::Registers {
        let minor = u32::from(TraceArchitecture::of(self.device).version() & 0xF);
        let etmidr = if self.device.kind.contains('.') {
            etmidr & !0xF0 | minor << 4
        } else {
            etmidr
        };
        etm::Registers {
            etmcr: self.get(&["ETMCR"], 0x000, 0),
            etmccer: self.get(&["ETMCCER"], 0x07a, 0),
            etmidr: self.get(&["ETMIDR"], 0x079, etmidr),
            etmtraceidr: self.get(&["ETMTRACEIDR"], 0x080, 0),
        }
    }
}

impl Config {
    /// Reads the registers of a source that traces `core`. Adds a note for each assumed value.
    pub fn read(device: &Device, protocol: Protocol, core: Core, notes: &mut Vec<Note>) -> Self {
        let mut needed = Needed { device, notes };
        match protocol {
            Protocol::Etmv3 => {
                let registers = needed.macrocell(etmv3::Config::default_etmidr(core));
                Self::Etmv3(etmv3::Config::read(&registers, core))
            }
            Protocol::Ptm => {
                let registers = needed.macrocell(ptm::Config::DEFAULT_ETMIDR);
                Self::Ptm(ptm::Config::read(&registers, core))
            }
            Protocol::Etmv4 | Protocol::Ete => {
                let protocol = if protocol == Protocol::Ete {
                    etmv4::Protocol::Ete
                } else {
                    etmv4::Protocol::Etmv4
                };
                let values = etmv4::Registers::read(protocol, |name| {
                    let register = match registers::id_of(name) {
                        Some(id) => device.component_register(&[name], id),
                        None => device.register(name),
                    };
                    register?.value.as_u64()
                });
                let version = TraceArchitecture::of(device).version();
                let values = values.or_version(etmv4::Version::new(version >> 4, version & 0xF));
                let assumed = values.assumed();
                notes.extend(assumed.map(|(name, assumed)| missing(device, name, assumed)));
                let config = etmv4::Config::read(&values, core);
                if config.accesses_are_p0 {
                    notes.push(accesses_are_p0(device));
                }
                Self::Etmv4(Box::new(config))
            }
            Protocol::Itm => {
                let names = ["ITMTCR", "CONTROL_REGISTER", "ITM_CTRL", "ITM_TCR"];
                let tcr = needed.get(&names, 0x3a0, 0);
                Self::Itm(itm::Config::read(&itm::Registers { tcr }, core))
            }
            Protocol::Stm => {
                let tcsr = needed.get(&["STMTCSR"], 0x3a0, 0);
                Self::Stm(stm::Config::read(&stm::Registers { tcsr }, core))
            }
        }
    }

    /// Returns the trace ID in the registers.
    pub fn trace_id(&self) -> TraceId {
        match self {
            Self::Etmv3(config) => config.trace_id(),
            Self::Ptm(config) => config.trace_id(),
            Self::Etmv4(config) => config.trace_id(),
            Self::Itm(config) => config.trace_id(),
            Self::Stm(config) => config.trace_id(),
        }
    }

    /// Returns the bytes of an alignment synchronisation, at which a decoder can start; they occur
    /// nowhere else in the trace (ARM IHI 0035B 4.5.1, ARM IHI 0014Q 7.10.4, ARM IHI 0064H, A-Sync
    /// packet). `None` for sources that follow no core.
    pub fn synchronisation(&self) -> Option<&'static [u8]> {
        match self {
            Self::Etmv3(_) | Self::Ptm(_) => Some(&[0, 0, 0, 0, 0, 0x80]),
            Self::Etmv4(_) => Some(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]),
            Self::Itm(_) | Self::Stm(_) => None,
        }
    }

    /// Returns whether the trace unit omitted return addresses that its return stack predicts;
    /// `None` if its protocol does not have this setting.
    pub fn return_stack(&self) -> Option<bool> {
        match self {
            Self::Ptm(config) => Some(config.return_stack),
            Self::Etmv4(config) => Some(config.return_stack),
            Self::Etmv3(_) | Self::Itm(_) | Self::Stm(_) => None,
        }
    }

    /// Returns the name of the bit that [`return_stack`](Self::return_stack) reads, for messages (ARM
    /// IHI 0035B, ETMCR; ARM IHI 0064H, TRCCONFIGR.RS).
    pub fn return_stack_bit(&self) -> Option<&'static str> {
        match self {
            Self::Ptm(_) => Some("bit 29 of ETMCR"),
            Self::Etmv4(_) => Some("bit 12 of TRCCONFIGR"),
            Self::Etmv3(_) | Self::Itm(_) | Self::Stm(_) => None,
        }
    }

    /// Returns whether the trace unit counted cycles.
    pub fn counts_cycles(&self) -> bool {
        match self {
            Self::Etmv3(config) => config.cycle_accurate,
            Self::Ptm(config) => config.cycle_accurate,
            Self::Etmv4(config) => config.cycle_counting,
            Self::Itm(_) | Self::Stm(_) => false,
        }
    }

    /// Creates the decoders and passes them to `visitor`.
    pub fn visit<V: Visitor>(&self, visitor: V) -> V::Output {
        match self {
            Self::Etmv3(config) => visitor.visit_flow(
                etmv3::Decoder::new(config),
                etmv3::Elements::new(config),
                FlowConfig::default(),
            ),
            Self::Ptm(config) => visitor.visit_flow(
                ptm::Decoder::new(config),
                ptm::Elements::new(config),
                FlowConfig {
                    waypoints: Waypoints {
                        barriers: config.barriers_are_waypoints,
                        ..Waypoints::default()
                    },
                    return_stack: config.return_stack,
                    ..FlowConfig::default()
                },
            ),
            Self::Etmv4(config) => {
                let packets = etmv4::Decoder::new(config);
                let elements = etmv4::Elements::new(config);
                if config.accesses_are_p0 {
                    return visitor.visit(packets, elements);
                }
                let flow = FlowConfig {
                    waypoints: Waypoints {
                        waits: config.wfx_waypoints,
                        ..Waypoints::default()
                    },
                    return_stack: config.return_stack,
                    exception_returns: config.is_ete(),
                    ..FlowConfig::default()
                };
                visitor.visit_flow(packets, elements, flow)
            }
            Self::Itm(config) => {
                visitor.visit(itm::Decoder::new(config), itm::Elements::new(config))
            }
            Self::Stm(config) => {
                visitor.visit(stm::Decoder::new(config), stm::Elements::new(config))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::model::{Register, RegisterValue};

    fn read(kind: &str, registers: &[(&str, u64)]) -> (Config, Vec<String>) {
        let registers = registers.iter().map(|&(name, value)| Register {
            name: name.to_owned(),
            value: RegisterValue(value.to_le_bytes().to_vec()),
            ..Register::default()
        });
        let device = Device {
            name: "unit".to_owned(),
            kind: kind.to_owned(),
            registers: registers.collect(),
            ..Device::default()
        };
        let mut notes = Vec::new();
        let protocol = Protocol::of(&device).unwrap();
        let config = Config::read(&device, protocol, Core::default(), &mut notes);
        (config, notes.into_iter().map(|note| note.text).collect())
    }

    #[test]
    fn a_missing_id_register_has_the_version_of_the_device() {
        let version = |kind, registers| {
            let (config, notes) = read(kind, registers);
            let Config::Etmv4(config) = config else {
                panic!("{config:?}");
            };
            let text = notes.join("\n");
            assert!(text.contains("is assumed"), "{text}");
            ((config.version.major, config.version.minor), text)
        };
        let (found, notes) = version("ETM4.1", &[("TRCIDR0", 0)]);
        assert!(notes.contains("TRCTRACEIDR is missing: 0x0"), "{notes}");
        assert_eq!(found, (4, 1));
        assert!(notes.contains("TRCIDR1 is missing: 0x4100f413"), "{notes}");
        let (found, _) = version("ETM4", &[("TRCDEVARCH", 0x4772_4A13)]);
        assert_eq!(found, (4, 2));
        let (found, _) = version("ETM4.2", &[("TRCIDR1", 0x4100_F443)]);
        assert_eq!(found, (4, 4));
        let (found, notes) = version("ETE1.1", &[]);
        assert_eq!(found, (5, 1));
        assert!(
            notes.contains("TRCDEVARCH is missing: 0x47715a13"),
            "{notes}"
        );

        // Bit 29 of ETMCCER: 64-bit timestamps, since ETMv3.5 and PFTv1.1.
        for (kind, wide) in [("ETM3.5", true), ("ETM3.4", false), ("ETM3", false)] {
            let (config, notes) = read(kind, &[("ETMCCER", 1 << 29)]);
            let Config::Etmv3(config) = config else {
                panic!("{config:?}");
            };
            assert_eq!(config.timestamp.wide, wide, "{kind}: {notes:?}");
        }
        for (kind, wide) in [("PTM", true), ("PFT1.1", true), ("PTM1.0", false)] {
            let (config, notes) = read(kind, &[("ETMCCER", 1 << 29)]);
            let Config::Ptm(config) = config else {
                panic!("{config:?}");
            };
            assert_eq!(config.timestamp.wide, wide, "{kind}: {notes:?}");
        }
    }
}
