//! A trace source's configuration registers in words.

use super::{Hex, SourceRegisterInfo};
use crate::report::fields;
use armsnap_snapshot::capture::{TraceArchitecture, registers as component};
use armsnap_snapshot::snapshot::model::{Device, Register};

/// The known configuration registers, control registers first.
pub(super) fn registers(
    device: &Device,
    architecture: TraceArchitecture,
) -> Vec<SourceRegisterInfo> {
    let known = device.registers.iter().filter_map(|register| {
        let value = register.value.as_u64()?;
        let (by_id, fields) = match fields::describe(architecture, &register.name, value) {
            Some(fields) => (None, fields),
            None => {
                let name = name_by_id(device, register)?;
                (Some(name), fields::describe(architecture, name, value)?)
            }
        };
        Some(SourceRegisterInfo {
            name: register.name.clone(),
            by_id,
            value: Hex::register(value, register.bits()),
            fields,
        })
    });
    let mut registers: Vec<_> = known.collect();
    registers.sort_by_key(|register| rank(register.by_id.unwrap_or(&register.name)));
    registers
}

/// The specification's name of a register whose own name is unknown.
fn name_by_id(device: &Device, register: &Register) -> Option<&'static str> {
    let mut known = component::known_registers(device);
    let (name, _) = known.find(|(_, known)| std::ptr::eq(*known, register))?;
    Some(name)
}

/// The sort key of a register in the listing: control registers, the trace ID, then identification
/// registers.
fn rank(name: &str) -> (u8, u32) {
    let name = name.to_ascii_uppercase();
    match name.as_str() {
        "ETMTRACEIDR" | "TRCTRACEIDR" => (1, 0),
        "TRCAUTHSTATUS" => (2, 0),
        "TRCDEVARCH" | "ETMIDR" => (3, 0),
        "ETMCCER" => (4, 0),
        _ => match name.strip_prefix("TRCIDR").map(str::parse) {
            Some(Ok(number)) => (5, number),
            _ => (0, 0),
        },
    }
}

/// Register values that violate the specification, for the notes.
pub(super) fn alarms(device: &Device, registers: &[SourceRegisterInfo]) -> Vec<String> {
    let mut alarms = Vec::new();
    for register in registers {
        for field in register.fields.iter().filter(|field| field.alarm) {
            alarms.push(format!(
                "{}: {} {}: {}",
                device.name, register.name, register.value, field.meaning
            ));
        }
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_snapshot::snapshot::model::RegisterValue;

    fn device(kind: &str, registers: &[(&str, u64)]) -> Device {
        let registers = registers.iter().map(|&(name, value)| Register {
            name: name.into(),
            value: RegisterValue(value.to_le_bytes()[..4].into()),
            ..Register::default()
        });
        Device {
            name: "source".into(),
            kind: kind.into(),
            registers: registers.collect(),
            ..Device::default()
        }
    }

    #[test]
    fn control_comes_first_and_id_registers_in_their_order() {
        let names = [
            "TRCIDR10",
            "TRCIDR2",
            "TRCTRACEIDR",
            "TRCVICTLR",
            "trcconfigr",
        ];
        let device = device("ETM4.2", &names.map(|name| (name, 1)));
        let registers = registers(&device, TraceArchitecture::of(&device));
        let names: Vec<_> = registers.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["trcconfigr", "TRCTRACEIDR", "TRCIDR2", "TRCIDR10"]);
        assert_eq!(registers[0].value.to_string(), "0x00000001");
    }

    #[test]
    fn registers_with_unknown_names_are_identified_by_id() {
        // An ID in words of 4 bytes; another as a byte offset; and one that contradicts the name.
        let mut stm = device("STM", &[("REG_A", 0x0013_0001), ("REG_B", 1)]);
        stm.registers[0].id = Some(0x3A0);
        let described = registers(&stm, TraceArchitecture::of(&stm));
        assert_eq!(described.len(), 1);
        assert_eq!(
            (described[0].name.as_str(), described[0].by_id),
            ("REG_A", Some("STMTCSR"))
        );
        assert_eq!(
            component::trace_id(&stm),
            Some(armsnap_arch::quantity::TraceId(0x13))
        );

        let mut itm = device("ITM", &[("TCR", 0x0001_0001)]);
        itm.registers[0].id = Some(0xE80);
        let described = registers(&itm, TraceArchitecture::of(&itm));
        assert_eq!(described[0].by_id, Some("CONTROL_REGISTER"));

        let mut etm = device("ETM4", &[("TRCIDR1", 0x4100_F423), ("other", 2), ("x", 3)]);
        etm.registers[1].id = Some(0x79);
        etm.registers[2].id = Some(0x78);
        let described = registers(&etm, TraceArchitecture::of(&etm));
        let names: Vec<_> = described.iter().map(|r| (&*r.name, r.by_id)).collect();
        assert_eq!(names, [("x", Some("TRCIDR0")), ("TRCIDR1", None)]);

        let mut ptm = device("PTM", &[("id", 0x411C_F312)]);
        ptm.registers[0].id = Some(0x79);
        assert_eq!(TraceArchitecture::of(&ptm).to_string(), "PFTv1.1");
    }

    #[test]
    fn a_prohibited_value_is_an_alarm() {
        let device = device("ETM3.5", &[("ETMCR", 0x0004_0080)]);
        let registers = registers(&device, TraceArchitecture::of(&device));
        let alarms = alarms(&device, &registers);
        assert_eq!(alarms.len(), 1);
        assert!(alarms[0].starts_with("source: ETMCR 0x00040080: PROHIBITED"));
    }
}
