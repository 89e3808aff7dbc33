//! Trace units: their registers, from the user or from a copy of Linux's sysfs.

use crate::import::{ImportError, Options};
use armsnap_snapshot::capture::{Protocol, registers};
use armsnap_snapshot::snapshot::model::{Device, DeviceClass, Register, RegisterValue};
use armsnap_snapshot::snapshot::registers::parse_u64;
use armsnap_trace::formatter::ID_NULL;
use std::path::{Path, PathBuf};

/// The maximum number of devices of a tree that are read.
const MAX_DEVICES: usize = 1024;
/// The maximum size of the file of a register, which contains a number.
const LONGEST: u64 = 64;

/// A trace unit.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Its device.
    pub device: Device,
    /// The CPU that it traces.
    pub cpu: Option<u32>,
    /// Whether its trace shows that the core is an M-profile core.
    pub is_micro: bool,
}

impl Unit {
    /// A unit without registers.
    pub fn new(name: &str, kind: &str) -> Self {
        Self {
            device: Device {
                name: name.to_owned(),
                class: DeviceClass::TraceSource,
                kind: kind.to_owned(),
                ..Device::default()
            },
            cpu: None,
            is_micro: false,
        }
    }

    /// Adds a register.
    pub fn set(&mut self, name: &str, value: u32) {
        let registers = &mut self.device.registers;
        registers.retain(|register| !register.name.eq_ignore_ascii_case(name));
        registers.push(Register {
            name: name.to_ascii_uppercase(),
            size: Some(32),
            // Registers of trace components have 32 bits.
            value: RegisterValue(value.to_le_bytes().to_vec()),
            ..Register::default()
        });
    }

    /// Sets the trace ID in the register that contains it: ETMTRACEIDR or TRCTRACEIDR,
    /// STMTCSR.TRACEID (ARM IHI 0054, STMTCSR) or ITM_TCR.TraceBusID (ARM DDI 0403, ITM_TCR).
    pub fn set_trace_id(&mut self, protocol: Protocol, id: u32) {
        let (register, shift) = match protocol {
            Protocol::Etmv3 | Protocol::Ptm => ("ETMTRACEIDR", 0),
            Protocol::Etmv4 | Protocol::Ete => ("TRCTRACEIDR", 0),
            Protocol::Stm => ("STMTCSR", 16),
            Protocol::Itm => ("ITMTCR", 16),
        };
        let known = self.device.register(register);
        let known = known.and_then(|known| known.value.as_u64()).unwrap_or(0) as u32;
        self.set(register, known & !(0x7F << shift) | id << shift);
    }

    /// Its trace ID, if its registers contain it; the register is 0 while the unit is off.
    pub fn trace_id(&self) -> Option<u8> {
        let id = registers::trace_id(&self.device).map(|id| id.0);
        id.filter(|&id| id != ID_NULL)
    }

    /// Its protocol, if it follows from its registers or its type.
    pub fn protocol(&self) -> Option<Protocol> {
        Protocol::of(&self.device)
    }
}

/// The units that the options describe.
///
/// # Errors
///
/// If a file cannot be read, or the options contradict each other.
pub fn units(options: &Options) -> Result<Vec<Unit>, ImportError> {
    let mut out = match &options.sysfs {
        Some(tree) => sysfs(tree)?,
        None => Vec::new(),
    };
    if options.registers.is_empty() {
        return Ok(out);
    }
    if out.len() > 1 {
        return Err(ImportError::Usage(
            "--register is for one trace unit: --sysfs gives several".to_owned(),
        ));
    }
    let mut unit = out.pop().unwrap_or_else(|| Unit::new("source", ""));
    for (name, value) in &options.registers {
        if registers::id_of(name).is_none() {
            return Err(ImportError::Usage(format!(
                "--register {name}: is no register of a trace unit that matters for decoding (such as \
                 TRCCONFIGR, TRCTRACEIDR, TRCIDR0, ETMCR, ETMIDR, ETMTRACEIDR)"
            )));
        }
        let Ok(value) = u32::try_from(*value) else {
            let text = format!("--register {name}={value:#x}: expected 32 bits");
            return Err(ImportError::Usage(text));
        };
        unit.set(name, value);
        // Other protocols are identified by their ID registers.
        let kinds = ["ITM", "STM"].into_iter();
        let mut kinds = kinds.filter(|kind| name.to_ascii_uppercase().starts_with(kind));
        if let (None, Some(kind)) = (unit.protocol(), kinds.next()) {
            kind.clone_into(&mut unit.device.kind);
        }
    }
    Ok(vec![unit])
}

/// The files of a device that contain registers, and the names of the registers. `traceid` contains
/// only the trace ID.
const FILES: [(&str, &str); 23] = [
    ("cyc_threshold", "TRCCCCTLR"),
    ("mgmt/trcconfig", "TRCCONFIGR"),
    ("mgmt/trctraceid", "TRCTRACEIDR"),
    ("mgmt/trcauthstatus", "TRCAUTHSTATUS"),
    ("mgmt/trcdevarch", "TRCDEVARCH"),
    ("trcidr/trcidr0", "TRCIDR0"),
    ("trcidr/trcidr1", "TRCIDR1"),
    ("trcidr/trcidr2", "TRCIDR2"),
    ("trcidr/trcidr3", "TRCIDR3"),
    ("trcidr/trcidr4", "TRCIDR4"),
    ("trcidr/trcidr5", "TRCIDR5"),
    ("trcidr/trcidr8", "TRCIDR8"),
    ("trcidr/trcidr9", "TRCIDR9"),
    ("trcidr/trcidr10", "TRCIDR10"),
    ("trcidr/trcidr11", "TRCIDR11"),
    ("trcidr/trcidr12", "TRCIDR12"),
    ("trcidr/trcidr13", "TRCIDR13"),
    ("mgmt/etmcr", "ETMCR"),
    ("mgmt/etmccer", "ETMCCER"),
    ("mgmt/etmidr", "ETMIDR"),
    ("mgmt/etmtraceidr", "ETMTRACEIDR"),
    ("mgmt/tcsr", "STMTCSR"),
    ("traceid", ""),
];

/// The trace units in a tree: directories of devices with `mgmt` or `trcidr`, or one such
/// directory.
fn sysfs(tree: &Path) -> Result<Vec<Unit>, ImportError> {
    let fault = |error| ImportError::input(tree, error);
    let mut devices: Vec<PathBuf> = vec![tree.to_owned()];
    for entry in tree.read_dir().map_err(fault)?.take(MAX_DEVICES) {
        let path = entry.map_err(fault)?.path();
        devices.extend(path.is_dir().then_some(path));
    }
    devices.sort();
    let mut out = Vec::new();
    for device in devices {
        out.extend(device_unit(&device)?);
    }
    if out.is_empty() {
        return Err(ImportError::input(
            tree,
            "holds no trace unit: expected directories such as etm0 with mgmt/trcconfig and \
             trcidr/trcidr0, as in /sys/bus/coresight/devices",
        ));
    }
    Ok(out)
}

fn device_unit(directory: &Path) -> Result<Option<Unit>, ImportError> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let kind = match &*name {
        name if name.starts_with("ete") => "ETE",
        name if name.starts_with("stm") => "STM",
        _ => "",
    };
    let mut unit = Unit::new(&name, kind);
    let mut own_id = None;
    for (file, register) in FILES {
        let Some(value) = number(&directory.join(file))? else {
            continue;
        };
        match register {
            "" => own_id = Some(value),
            register => unit.set(register, value),
        }
    }
    // A TMC has `mgmt` too, but is not a trace source.
    let Some(protocol) = unit
        .protocol()
        .filter(|_| !unit.device.registers.is_empty())
    else {
        return Ok(None);
    };
    unit.device.kind = match protocol {
        Protocol::Etmv3 => "ETM3",
        Protocol::Ptm => "PTM",
        Protocol::Etmv4 => "ETM4",
        Protocol::Ete => "ETE",
        Protocol::Itm => "ITM",
        Protocol::Stm => "STM",
    }
    .to_owned();
    if let (None, Some(id)) = (unit.trace_id(), own_id) {
        unit.set_trace_id(protocol, id);
    }
    unit.cpu = number(&directory.join("cpu"))?;
    Ok(Some(unit))
}

/// The number in a file; `None` if there is no such file.
fn number(path: &Path) -> Result<Option<u32>, ImportError> {
    if !path.metadata().is_ok_and(|data| data.is_file()) {
        return Ok(None);
    }
    let bytes = super::imported::map(path)?;
    let text = bytes
        .get(..bytes.len().min(LONGEST as usize))
        .unwrap_or(&[]);
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    // The kernel prints some registers in hexadecimal without 0x.
    let value = parse_u64(text).or_else(|| u64::from_str_radix(text, 16).ok());
    match value.and_then(|value| u32::try_from(value).ok()) {
        Some(value) => Ok(Some(value)),
        None => Err(ImportError::input(
            path,
            format!("expected a number of 32 bits, found {text:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_id_is_set_in_the_register_of_each_protocol() {
        for (protocol, kind) in crate::import::raw::form::PROTOCOLS {
            let mut unit = Unit::new("source", kind);
            assert_eq!(unit.trace_id(), None);
            unit.set_trace_id(protocol, 0x23);
            assert_eq!(unit.trace_id(), Some(0x23), "{kind}");
            unit.set_trace_id(protocol, 0);
            assert_eq!(unit.trace_id(), None, "{kind}");
        }
        let mut unit = Unit::new("source", "STM");
        unit.set("STMTCSR", 0x20);
        unit.set_trace_id(Protocol::Stm, 0x23);
        let register = unit.device.register("STMTCSR").unwrap();
        assert_eq!(register.value.as_u64(), Some(0x23_0020));
    }

    #[test]
    fn values_of_registers_have_32_bits() {
        let options = |value| Options {
            registers: vec![("TRCCONFIGR".to_owned(), value)],
            ..Options::default()
        };
        assert!(units(&options(0xFFFF_FFFF)).is_ok());
        let error = units(&options(0x1_0000_0041)).unwrap_err().to_string();
        let wanted = "--register TRCCONFIGR=0x100000041: expected 32 bits";
        assert!(error.contains(wanted), "{error}");
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join("mgmt/trcconfig");
        std::fs::create_dir(tree.path().join("mgmt")).unwrap();
        std::fs::write(&file, "0x100000041\n").unwrap();
        let error = sysfs(tree.path()).unwrap_err().to_string();
        let wanted = "expected a number of 32 bits, found \"0x100000041\"";
        assert!(error.contains(wanted), "{error}");
    }
}
