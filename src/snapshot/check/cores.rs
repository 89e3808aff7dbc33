//! The registers of cores that a debugger needs (4.1), and those that say nothing.

use super::{Checker, Need};
use crate::arch::Architecture;
use crate::snapshot::model::{Device, DeviceClass, Snapshot};

/// PSTATE in parts, which Arm DS writes in place of CPSR.
const CPSR_PARTS: [&str; 4] = ["CurrentEL", "DAIF", "NZCV", "SPSel"];

impl Checker<'_> {
    pub(super) fn cores(&mut self) {
        let snapshot = self.snapshot;
        let cores = snapshot.devices.iter().enumerate();
        for (index, core) in cores.filter(|(_, d)| d.class == DeviceClass::Core) {
            self.core_registers(core);
            if let Some(text) = placeholder(snapshot, index) {
                let pc = core.register("PC").or_else(|| core.register("R15"));
                let place = pc.map_or(&core.place, |register| &register.place);
                self.advice(place, "4.1", format!("{}: {text}", core.name));
            }
        }
    }

    fn core_registers(&mut self, core: &Device) {
        let architecture = Architecture::detect(core).architecture;
        let section = match architecture {
            Architecture::AArch32 => "4.1.1",
            Architecture::AArch64 => "4.1.2.1",
            Architecture::MProfile => "4.1.3",
        };
        let has = |name: &str| core.register(name).is_some();
        let mut missing: Vec<&str> = Vec::new();
        let (state, sp, pc) = match architecture {
            Architecture::AArch64 => (has("CPSR"), has("SP"), has("PC")),
            Architecture::AArch32 => (
                has("CPSR"),
                has("SP") || has("R13"),
                has("PC") || has("R15"),
            ),
            Architecture::MProfile => (
                has("xPSR"),
                has("SP") || has("R13"),
                has("PC") || has("R15"),
            ),
        };
        if !pc {
            missing.push("PC");
        }
        if !sp {
            missing.push("SP");
        }
        if !state {
            if architecture == Architecture::AArch64 {
                let parts = CPSR_PARTS.iter().filter(|part| has(part)).count();
                match parts {
                    0 => missing.push("CPSR"),
                    4 => {}
                    _ => missing.extend(CPSR_PARTS.iter().filter(|part| !has(part))),
                }
            } else if architecture == Architecture::MProfile {
                missing.push("xPSR");
            } else {
                missing.push("CPSR");
            }
        }
        for name in missing {
            let text = format!("{}: no register {name}", core.name);
            self.wrong(Need::RequiredForDebug, &core.place, section, text);
        }
        let (letter, count) = match architecture {
            Architecture::AArch64 => ('X', 31),
            Architecture::AArch32 | Architecture::MProfile => ('R', 15),
        };
        let absent = |number: &u32| {
            let also = match (architecture, number) {
                (Architecture::AArch64, 30) => "LR",
                (Architecture::AArch32 | Architecture::MProfile, 14) => "LR",
                _ => "",
            };
            !has(&format!("{letter}{number}")) && !has(also)
        };
        // A missing R13 is told as SP.
        let absent: Vec<u32> = (0..count)
            .filter(|&number| letter == 'X' || number != 13)
            .filter(absent)
            .collect();
        if !absent.is_empty() {
            let text = format!(
                "{}: {} of the registers {letter}0-{letter}{} are not there",
                core.name,
                absent.len(),
                count - 1
            );
            self.push(
                crate::snapshot::model::Severity::Warning,
                Need::RequiredForDebug,
                &core.place,
                section,
                text,
            );
        }
    }
}

/// Whether the registers of the core `index` are placeholders, as capture libraries write them,
/// and the reason: SP is 0, and PC is where the code image begins, or in no dump, or the same on
/// another core.
pub fn placeholder(snapshot: &Snapshot, index: usize) -> Option<String> {
    let core = snapshot.devices.get(index)?;
    let value = |device: &Device, name: &str| {
        let alias = match name {
            "PC" => "R15",
            "SP" => "R13",
            _ => name,
        };
        let register = device.register(name).or_else(|| device.register(alias));
        register?.value.as_u64()
    };
    let pc = value(core, "PC")?;
    if value(core, "SP")? != 0 {
        return None;
    }
    let state = value(core, "CPSR");
    let twin = |(other, device): (usize, &Device)| {
        other != index
            && device.class == DeviceClass::Core
            && value(device, "PC") == Some(pc)
            && value(device, "SP") == Some(0)
            && value(device, "CPSR") == state
    };
    let why = if snapshot.devices.iter().enumerate().any(twin) {
        "PC, SP and CPSR are those of another core"
    } else if core.dumps.iter().any(|dump| dump.address == pc) {
        "PC is where a dump begins"
    } else {
        let inside = core.dumps.iter().any(|dump| {
            let offset = pc.checked_sub(dump.address);
            offset.is_some_and(|offset| dump.length.is_none_or(|length| offset < length))
        });
        if inside || core.dumps.is_empty() {
            return None;
        }
        "PC is in no dump"
    };
    Some(format!(
        "SP is 0 and {why}: placeholders, not the machine's state"
    ))
}
