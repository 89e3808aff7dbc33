//! Core dumps of Zephyr (`CONFIG_DEBUG_COREDUMP`), as its scripts write them from a log.
//!
//! The layout is that of `include/zephyr/debug/coredump.h`: a header, a block with the registers of
//! the thread that failed, blocks of memory.

use super::fields::Fields;
use super::note::Note;
use super::{ImportError, Imported, Options, imported, programs};
use crate::mapped::Mapped;
use crate::snapshot::model::{Device, DeviceClass, Dump, Register, RegisterValue, Snapshot};
use std::path::Path;

/// Target codes.
const CORTEX_M: u16 = 3;
const ARM64: u16 = 6;
/// The registers of the block of a Cortex-M; the last eight since version 2.
const CORTEX_M_REGISTERS: [&str; 17] = [
    "R0", "R1", "R2", "R3", "R12", "LR", "PC", "xPSR", "SP", "R4", "R5", "R6", "R7", "R8", "R9",
    "R10", "R11",
];
/// The index of the first register that the kernel may not have saved.
const CALLEE_SAVED: usize = 9;

/// Whether bytes are the start of such a dump: `ZE`, version, target, size of pointers.
pub fn is_zephyr_dump(bytes: &[u8]) -> bool {
    let mut fields = Fields::new(bytes, false);
    let identity = fields.bytes(2) == Some(b"ZE");
    let version = fields
        .u16()
        .is_some_and(|version| (1..=8).contains(&version));
    let target = fields.u16().is_some_and(|target| target < 64);
    let pointers = fields.bytes(1).is_some_and(|bits| matches!(bits[0], 5 | 6));
    identity && version && target && pointers
}

/// Reads a dump.
///
/// # Errors
///
/// If it is damaged, or of another architecture.
pub fn import(path: &Path, options: &Options) -> Result<Imported, ImportError> {
    import_bytes(path, imported::map(path)?, options)
}

/// Reads the bytes of a dump named `path`.
///
/// # Errors
///
/// If it is damaged, or of another architecture.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let fault = |text: String| ImportError::input(path, text);
    let mut fields = Fields::new(&bytes, false);
    let head = fields
        .bytes(4)
        .and_then(|_| fields.u16())
        .zip(fields.bytes(2))
        .zip(fields.u32());
    let Some(((target, form), reason)) = head else {
        return Err(fault("core dump of Zephyr cut in its header".to_owned()));
    };
    let is_64bit = form[0] == 6;
    if !matches!((target, is_64bit), (CORTEX_M, false) | (ARM64, true)) {
        return Err(fault(format!(
            "core dump of Zephyr for target {target}: expected Cortex-M (3) or ARM64 (6)"
        )));
    }
    let mut out = Imported {
        kind: "core dump of Zephyr".to_owned(),
        ..Imported::default()
    };
    let (mut registers, mut dumps) = (Vec::new(), Vec::<Dump>::new());
    while !fields.rest().is_empty() {
        let at = bytes.len() - fields.rest().len();
        let block = (|| match fields.bytes(1)?[0] {
            b'A' => {
                let (version, length) = (fields.u16()?, fields.u16()?);
                let block = Fields::new(fields.bytes(length.into())?, false);
                registers = if is_64bit {
                    arm64(block)
                } else {
                    cortex_m(version, block)
                };
                Some(())
            }
            b'M' => {
                fields.u16()?;
                let mut word = || match is_64bit {
                    true => fields.u64(),
                    false => fields.u32().map(u64::from),
                };
                let (start, end) = (word()?, word()?);
                let length = usize::try_from(end.checked_sub(start)?).ok()?;
                let begin = bytes.len() - fields.rest().len();
                fields.bytes(length)?;
                let file = format!("memory/{}_{start:x}.bin", dumps.len());
                out.files
                    .insert(file.clone(), bytes.part(begin..begin + length));
                dumps.push(Dump {
                    file,
                    address: start,
                    length: Some(length as u64),
                    ..Dump::default()
                });
                Some(())
            }
            b'T' => {
                let (_version, length) = (fields.u16()?, fields.u16()?);
                fields.bytes(length.into())?;
                Some(())
            }
            _ => None,
        })();
        if block.is_none() {
            let kind = bytes[at];
            out.notes.push(Note::ZephyrBlock { at, kind });
            break;
        }
    }
    if registers.is_empty() {
        return Err(fault(
            "core dump of Zephyr without the block of registers".to_owned(),
        ));
    }
    dumps.extend(programs::dumps(&options.elf, &mut out)?);
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
    let device = Device {
        key: "device0".to_owned(),
        file: "cpu_0.ini".to_owned(),
        name: "thread".to_owned(),
        class: DeviceClass::Core,
        kind: if is_64bit { "ARMv8-A" } else { "ARMv7-M" }.to_owned(),
        other: vec![("reason".to_owned(), reason.to_string())],
        registers,
        dumps,
        ..Device::default()
    };
    out.snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices: vec![device],
        other_sections: std::mem::take(&mut out.snapshot.other_sections),
        ..Snapshot::default()
    };
    out.record_origin();
    Ok(out)
}

fn register(name: &str, bytes: &[u8]) -> Register {
    Register {
        name: name.to_owned(),
        size: Some(8 * bytes.len() as u32),
        value: RegisterValue(bytes.to_vec()),
        ..Register::default()
    }
}

fn cortex_m(version: u16, mut block: Fields<'_>) -> Vec<Register> {
    let known = if version >= 2 {
        CORTEX_M_REGISTERS.len()
    } else {
        CALLEE_SAVED
    };
    let names = CORTEX_M_REGISTERS[..known].iter();
    let mut out: Vec<Register> = names
        .map_while(|name| Some(register(name, block.bytes(4)?)))
        .collect();
    // The kernel leaves zeros where it did not save them.
    let zero = |register: &Register| register.value.0.iter().all(|&byte| byte == 0);
    if out
        .get(CALLEE_SAVED..)
        .is_some_and(|saved| saved.iter().all(zero))
    {
        out.truncate(CALLEE_SAVED);
    }
    out
}

/// X0 to X18, X30, SPSR and ELR: what an exception saves.
fn arm64(mut block: Fields<'_>) -> Vec<Register> {
    let names = (0..19).map(|number| format!("X{number}"));
    let names = names.chain(["X30", "CPSR", "PC"].map(str::to_owned));
    let registers = names.map_while(|name| {
        let bytes = block.bytes(8)?;
        let bytes = if name == "CPSR" { &bytes[..4] } else { bytes };
        Some(register(&name, bytes))
    });
    registers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenOptions;

    fn dump(target: u16, version: u16, registers: &[u32], memory: &[u8]) -> Vec<u8> {
        let mut out = b"ZE\x02\x00".to_vec();
        out.extend(target.to_le_bytes());
        out.extend([5, 0, 25, 0, 0, 0]);
        out.push(b'A');
        out.extend(version.to_le_bytes());
        out.extend((4 * registers.len() as u16).to_le_bytes());
        out.extend(registers.iter().flat_map(|value| value.to_le_bytes()));
        out.extend(b"T\x01\x00\x02\x00\xAA\xBB");
        out.extend(b"M\x01\x00");
        out.extend(0x2000_0000_u32.to_le_bytes());
        out.extend((0x2000_0000 + memory.len() as u32).to_le_bytes());
        out.extend(memory);
        out
    }

    fn read(bytes: Vec<u8>) -> Result<Imported, ImportError> {
        assert!(is_zephyr_dump(&bytes));
        import_bytes(Path::new("dump"), bytes.into(), &Options::default())
    }

    #[test]
    fn registers_and_memory_of_a_cortex_m() {
        let values: Vec<u32> = (100..117).collect();
        let imported = read(dump(CORTEX_M, 2, &values, b"stack")).unwrap();
        let loaded = imported
            .open(Path::new("dump"), &OpenOptions::default())
            .unwrap();
        let core = &loaded.snapshot.devices[0];
        let value = |name: &str| core.register(name).unwrap().value.as_u64();
        assert_eq!(
            (value("PC"), value("SP"), value("R11")),
            (Some(106), Some(108), Some(116))
        );
        assert_eq!(core.dumps[0].address, 0x2000_0000);
        assert_eq!(
            &*loaded.file(Path::new(""), &core.dumps[0].file).unwrap(),
            b"stack"
        );
    }

    #[test]
    fn registers_that_were_not_saved_are_not_known() {
        let mut values: Vec<u32> = (100..109).collect();
        assert_eq!(
            read(dump(CORTEX_M, 1, &values, b""))
                .unwrap()
                .snapshot
                .devices[0]
                .registers
                .len(),
            9
        );
        values.resize(17, 0);
        assert_eq!(
            read(dump(CORTEX_M, 2, &values, b""))
                .unwrap()
                .snapshot
                .devices[0]
                .registers
                .len(),
            9
        );
    }

    #[test]
    fn faults_are_named() {
        let other = read(dump(1, 1, &[1; 9], b"")).unwrap_err().to_string();
        assert!(other.contains("for target 1: expected Cortex-M"), "{other}");
        let whole = dump(CORTEX_M, 1, &[1; 9], b"memory");
        for length in 12..whole.len() {
            let cut = whole[..length].to_vec();
            match import_bytes(Path::new("dump"), cut.into(), &Options::default()) {
                Ok(imported) => assert!(imported.notes.len() <= 1),
                Err(error) => assert!(error.to_string().contains("without the block of registers")),
            }
        }
        for (more, wanted) in [
            (
                &b"M\x01"[..],
                "block M is damaged or cut short: the rest is left out",
            ),
            (
                b"x\x01",
                "block of kind 0x78: expected 0x41 (A), 0x4d (M) or 0x54 (T): the rest is left out",
            ),
        ] {
            let imported = read([&whole[..], more].concat()).unwrap();
            let note = imported.notes[0].to_string();
            assert_eq!(note, format!("at byte {:#x}: {wanted}", whole.len()));
        }
    }
}
