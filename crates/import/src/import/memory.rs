//! Dumps of memory: raw bytes, Intel HEX, Motorola S-records, LiME, ELF.

use super::note::{MemoryForm, Note};
use super::options::NamedProgram;
use super::records::{self, Format, Records};
use super::{ImportError, Imported, imported, lime};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::{Elf, is_elf};
use armsnap_snapshot::snapshot::model::Dump;
use armsnap_snapshot::text;

/// The maximum number of separate runs in a small file of records, each of which becomes a file;
/// each [`BYTES_EACH`] bytes allow one more.
const LEAST_RUNS: usize = 1 << 12;
const BYTES_EACH: usize = 128;

/// Dumps from the files that the user names.
///
/// # Errors
///
/// If a file cannot be read, or raw bytes have no address.
pub fn dumps(files: &[NamedProgram], out: &mut Imported) -> Result<Vec<Dump>, ImportError> {
    let mut dumps: Vec<Dump> = Vec::new();
    for named in files {
        let bytes = imported::map_unpacked(&named.path)?;
        let fault = |text: String| ImportError::input(&named.path, text);
        let (form, runs) = match (records::format(&bytes), named.address) {
            (None, Some(_)) if lime::is_lime(&bytes) => {
                return Err(ImportError::Usage(format!(
                    "--memory {}: LiME's headers have the addresses: leave out what follows @",
                    named.path.display()
                )));
            }
            (None, None) if lime::is_lime(&bytes) => {
                let ranges = lime::ranges(&bytes).map_err(fault)?.into_iter();
                let ranges = ranges.filter(|(_, place)| !place.is_empty());
                let runs = ranges.map(|(address, place)| (address, bytes.part(place)));
                (MemoryForm::Lime, runs.collect())
            }
            (None, None) if is_elf(&bytes) => {
                let elf = Elf::read(named.path.clone(), bytes.clone())?;
                let runs = elf.segments.iter();
                let runs = runs.map(|run| (run.address, bytes.part(run.file.clone())));
                (
                    MemoryForm::Elf,
                    runs.filter(|(_, bytes)| !bytes.is_empty()).collect(),
                )
            }
            (Some(format), moved) => {
                let read = Records::read(&bytes, format).map_err(fault)?;
                let most = LEAST_RUNS + bytes.len() / BYTES_EACH;
                if read.runs.len() > most {
                    return Err(fault(format!(
                        "has {} separate parts of memory: expected at most {most} in a file of this size",
                        read.runs.len()
                    )));
                }
                let form = match format {
                    Format::IntelHex => MemoryForm::IntelHex,
                    Format::SRecords => MemoryForm::SRecords,
                };
                let path = || named.path.clone();
                match read.end {
                    None => out.notes.push(Note::NoEndRecord { path: path(), form }),
                    Some(line) if read.more => {
                        out.notes.push(Note::AfterEndRecord { path: path(), line });
                    }
                    Some(_) => {}
                }
                let runs = read.runs.into_iter().map(|(address, bytes)| {
                    // Moves the run up or, modulo 64 bits, down.
                    let start = address.wrapping_add(moved.unwrap_or(0));
                    match start.checked_add(bytes.len() as u64 - 1) {
                        Some(_) => Ok((start, bytes.into())),
                        None => Err(ImportError::Usage(format!(
                            "--memory {}: the address after @ moves {address:#x} beyond 64 bits",
                            named.path.display()
                        ))),
                    }
                });
                (form, runs.collect::<Result<_, _>>()?)
            }
            (None, Some(address)) => {
                let last = (bytes.len() as u64).saturating_sub(1);
                if address.checked_add(last).is_none() {
                    return Err(ImportError::Usage(format!(
                        "--memory {}: {} from {address:#x} on reach beyond 64 bits",
                        named.path.display(),
                        text::count(bytes.len() as u64, "byte")
                    )));
                }
                (MemoryForm::Raw, vec![(address, bytes)])
            }
            (None, None) => {
                return Err(ImportError::Usage(format!(
                    "--memory {}: holds raw bytes: expected their address after @",
                    named.path.display()
                )));
            }
        };
        let runs: Vec<(u64, Mapped)> = runs;
        let count: usize = runs.iter().map(|(_, bytes)| bytes.len()).sum();
        out.notes.push(Note::Memory {
            path: named.path.clone(),
            form,
            bytes: count,
            runs: runs.len(),
        });
        for (address, bytes) in runs {
            let file = format!("memory/given{}_{address:x}.bin", dumps.len());
            dumps.push(Dump {
                file: file.clone(),
                address,
                length: Some(bytes.len() as u64),
                ..Dump::default()
            });
            out.files.insert(file, bytes);
        }
    }
    Ok(dumps)
}
