//! Checks the core registers that a debugger needs (4.1), and recognises placeholder values.

use super::{Checker, Need};
use crate::snapshot::OpenSnapshot;
use crate::snapshot::memory::CoreMemory;
use crate::snapshot::model::{Device, DeviceClass, Dump, FileLine};
use crate::snapshot::program::{Program, Seen};
use armsnap_arch::arch::{Architecture, CoreType, RegisterFile, Space, state, views};
use armsnap_arch::quantity::Address;
use std::cell::OnceCell;
use std::collections::HashMap;

/// The parts of PSTATE, which Arm DS writes instead of CPSR.
const CPSR_PARTS: [&str; 4] = ["CurrentEL", "DAIF", "NZCV", "SPSel"];
/// The parts of xPSR (ARM DDI 0403, B1.4.2).
const XPSR_PARTS: [&str; 3] = ["APSR", "IPSR", "EPSR"];

/// A core whose PC is not in any dump.
struct Stray {
    index: usize,
    pc: u64,
    architecture: Architecture,
}

fn pc_place(core: &Device) -> FileLine {
    let pc = core.register("PC").or_else(|| core.register("R15"));
    pc.map_or(&core.place, |register| &register.place).clone()
}

/// The section with the requirements for cores.
pub(super) fn section(core: &Device, architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::AArch32 if CoreType::of(core).both_states => "4.1.2.2",
        Architecture::AArch32 => "4.1.1",
        Architecture::AArch64 => "4.1.2.1",
        Architecture::MProfile => "4.1.3",
    }
}

impl Checker<'_> {
    pub(super) fn cores(&mut self) {
        let snapshot = self.snapshot;
        let placeholders = Placeholders::new(self.loaded);
        let mut strays = Vec::new();
        let cores = snapshot.devices.iter().enumerate();
        for (index, core) in cores.filter(|(_, d)| d.class == DeviceClass::Core) {
            self.core_registers(core);
            let Some(why) = placeholders.why(index) else {
                strays.extend(self.code_at_pc(index));
                continue;
            };
            let text = format!(
                "{}: the registers are placeholders, not machine state: {why}",
                core.name
            );
            self.advice(&pc_place(core), "4.1", text);
        }
        self.without_code(&strays);
    }

    /// Returns the core at `index` if no dump, in any space, has memory at its PC. A dump whose
    /// file is missing counts with its declared range, because that is a separate finding.
    fn code_at_pc(&self, index: usize) -> Option<Stray> {
        let core = &self.snapshot.devices[index];
        let file = read(core);
        let pc = file.pc()?;
        let mut memory = CoreMemory::new(self.loaded, core);
        memory.translate(self.loaded, index);
        memory.share(self.loaded, index);
        let held = !memory.slice(Address(pc), Space::Any).is_empty();
        let raw = |dump: &&Dump| self.loaded.elf_dump(dump).is_none();
        let declared = core
            .dumps
            .iter()
            .filter(raw)
            .any(|dump| covers(self.loaded, dump, pc));
        (!held && !declared).then_some(Stray {
            index,
            pc,
            architecture: file.architecture(),
        })
    }

    /// Warns about cores whose PC is not in a program file either.
    fn without_code(&mut self, strays: &[Stray]) {
        for architecture in Architecture::ALL {
            let strays = strays
                .iter()
                .filter(|stray| stray.architecture == architecture);
            let strays: Vec<&Stray> = strays.collect();
            if strays.is_empty() {
                continue;
            }
            let program = self.program(architecture);
            for stray in strays {
                let program = program.as_ref();
                if program.is_some_and(|program| program.elf.slice(stray.pc).is_some()) {
                    continue;
                }
                let core = &self.snapshot.devices[stray.index];
                let text = format!(
                    "{}: PC {:#x} is in no dump and in no program of the snapshot",
                    core.name, stray.pc
                );
                self.advice(&pc_place(core), "4.1", text);
            }
        }
    }

    /// Returns the program of all cores of an architecture.
    fn program(&self, architecture: Architecture) -> Option<Program> {
        let cores = self.snapshot.devices.iter().enumerate();
        let cores = cores.filter(|(_, device)| device.class == DeviceClass::Core);
        let memories: Vec<(CoreMemory, Space)> = cores
            .map(|(index, core)| (index, core, read(core)))
            .filter(|(_, _, file)| file.architecture() == architecture)
            .map(|(index, core, file)| {
                let space = state::current_space(&file).space;
                let mut memory = CoreMemory::new(self.loaded, core);
                memory.translate(self.loaded, index);
                (memory, space)
            })
            .collect();
        let seen: Vec<Seen> = memories
            .iter()
            .map(|(memory, space)| (memory, *space))
            .collect();
        Program::of_snapshot(self.loaded, architecture, &seen)
    }

    fn core_registers(&mut self, core: &Device) {
        let architecture = Architecture::detect(core).architecture;
        let section = section(core, architecture);
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
            let (name, parts): (_, &[&str]) = match architecture {
                Architecture::AArch64 => ("CPSR", &CPSR_PARTS),
                Architecture::AArch32 => ("CPSR", &[]),
                Architecture::MProfile => ("xPSR", &XPSR_PARTS),
            };
            let absent = parts.iter().filter(|part| !has(part));
            if parts.iter().any(|part| has(part)) {
                missing.extend(absent);
            } else {
                missing.push(name);
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
        // A missing R13 is reported separately, as SP.
        let absent: Vec<u32> = (0..count)
            .filter(|&number| letter == 'X' || number != 13)
            .filter(absent)
            .collect();
        if !absent.is_empty() {
            let text = format!(
                "{}: {} of the registers {letter}0-{letter}{} are missing",
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

/// Finds cores whose registers are placeholders instead of machine state.
///
/// Observed behaviour: capture libraries without access to registers write a `PC` that is 0 or the
/// start of the code image, `SP=0` and a constant `CPSR`, the same for every core, and no
/// general-purpose register.
pub struct Placeholders<'a> {
    loaded: &'a OpenSnapshot,
    /// The number of cores with SP = 0 for each PC; counted when first needed.
    stackless: OnceCell<HashMap<u64, usize>>,
}

impl<'a> Placeholders<'a> {
    /// Prepares the search in a snapshot.
    pub fn new(loaded: &'a OpenSnapshot) -> Self {
        let stackless = OnceCell::new();
        Self { loaded, stackless }
    }

    /// Returns why the registers of the core `index` are placeholders; `None` if they are not.
    pub fn why(&self, index: usize) -> Option<String> {
        let core = self.loaded.snapshot.devices.get(index)?;
        let file = read(core);
        let general = core.registers.iter().any(|register| {
            let view = views::view_of(file.architecture(), &register.name);
            view.is_some_and(|view| is_general(&view.register))
        });
        let pc = file.pc()?;
        if general || file.value("sp") != Some(0) {
            return None;
        }
        let covers = |dump: &Dump| covers(self.loaded, dump, pc);
        let begins = core.dumps.iter().find(|dump| dump.address == pc);
        let why = if let Some(dump) = begins {
            format!("PC is the start of {}", dump.file)
        } else if pc == 0 {
            "PC is 0".to_owned()
        } else if self.stackless().get(&pc).is_some_and(|&cores| cores > 1) {
            "PC equals that of another core".to_owned()
        } else if !core.dumps.is_empty() && !core.dumps.iter().any(covers) {
            "PC is in no dump".to_owned()
        } else if core.registers.len() <= 4 {
            "no register but PC is given".to_owned()
        } else {
            return None;
        };
        Some(format!("{why}, SP is 0, there are no general registers"))
    }

    fn stackless(&self) -> &HashMap<u64, usize> {
        self.stackless.get_or_init(|| {
            let mut counts = HashMap::new();
            let devices = self.loaded.snapshot.devices.iter();
            let cores = devices.filter(|device| device.class == DeviceClass::Core);
            for file in cores.map(read) {
                if let (Some(pc), Some(0)) = (file.pc(), file.value("sp")) {
                    *counts.entry(pc).or_default() += 1;
                }
            }
            counts
        })
    }
}

/// Same as [`Placeholders::why`], for one core.
pub fn placeholder(loaded: &OpenSnapshot, index: usize) -> Option<String> {
    Placeholders::new(loaded).why(index)
}

/// Whether a dump contains an address, or would if its file were complete. A dump without a length
/// ends with its file.
fn covers(loaded: &OpenSnapshot, dump: &Dump, address: u64) -> bool {
    let in_file = || {
        let length = loaded.length(&dump.place.file, &dump.file).ok()?;
        let raw = loaded.elf_dump(dump).is_none();
        length.checked_sub(dump.offset.unwrap_or(0)).filter(|_| raw)
    };
    let length = dump.length.or_else(in_file);
    let offset = address.checked_sub(dump.address);
    offset.is_some_and(|offset| length.is_none_or(|length| offset < length))
}

fn read(core: &Device) -> RegisterFile {
    RegisterFile::read(core, Architecture::detect(core).architecture)
}

/// Whether a register of the core's own set is `x0`…`x30` or `r0`…`r12`.
fn is_general(register: &str) -> bool {
    let digits = register.strip_prefix(['x', 'r']);
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::model::{Register, RegisterValue};
    use std::sync::Arc;

    fn core(kind: &str, registers: &[(&str, u64)], dump: Option<u64>) -> Device {
        let registers = registers.iter().map(|&(name, value)| Register {
            name: name.into(),
            value: RegisterValue(value.to_le_bytes().into()),
            ..Register::default()
        });
        let dump = dump.map(|address| Dump {
            file: "kernel.bin".into(),
            address,
            length: Some(0x100),
            ..Dump::default()
        });
        Device {
            class: DeviceClass::Core,
            kind: kind.into(),
            registers: registers.collect(),
            dumps: dump.into_iter().collect(),
            ..Device::default()
        }
    }

    fn why(devices: &[Device]) -> Option<String> {
        let mut files = InMemory::default();
        let list = b"[snapshot]\nversion=1.0\n[device_list]\n".to_vec();
        files.0.insert("snapshot.ini".into(), list.into());
        let mut loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
        loaded.snapshot.devices = devices.to_vec();
        placeholder(&loaded, 0)
    }

    #[test]
    fn placeholders_are_distinguished_from_machine_state() {
        let a32 = [("R15", 0xC000_8000), ("R13", 0), ("CPSR", 0x1D3)];
        let found = why(&[core("Cortex-A9", &a32, Some(0xC000_8000))]).unwrap();
        assert!(found.starts_with("PC is the start of kernel.bin"));
        let found = why(&[core("Cortex-A9", &a32, Some(0x1000))]).unwrap();
        assert!(found.starts_with("PC is in no dump"));

        let a64 = [("PC", 0), ("SP", 0), ("SCTLR_EL1", 0), ("CPSR", 0)];
        assert!(why(&[core("Cortex-A53", &a64, Some(0x1000))]).is_some());

        let general = [("PC", 0x1000), ("SP", 0), ("X0", 0), ("CPSR", 0)];
        assert_eq!(why(&[core("Cortex-A53", &general, Some(0x1000))]), None);
        let stack = [("PC", 0x1000), ("SP", 0x8000), ("CPSR", 0)];
        assert_eq!(why(&[core("Cortex-A53", &stack, Some(0x1000))]), None);
        assert_eq!(why(&[core("Cortex-A53", &[], None)]), None);
    }

    #[test]
    fn cores_at_the_same_pc_without_a_stack_are_placeholders() {
        let system = [
            ("PC", 0x1010),
            ("SP", 0),
            ("TTBR0_EL1", 1),
            ("TTBR1_EL1", 2),
            ("SCTLR_EL1", 3),
        ];
        let one = core("Cortex-A53", &system, Some(0x1000));
        assert_eq!(why(std::slice::from_ref(&one)), None);
        let found = why(&[one.clone(), one]).unwrap();
        assert!(found.starts_with("PC equals that of another core"));
    }
}
