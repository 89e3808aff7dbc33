//! The modules of a minidump: programs and libraries, found by their build-ids.

use super::streams::{Minidump, Module, System};
use crate::import::claims::Claims;
use crate::import::fields::Fields;
use crate::import::images::Images;
use crate::import::modules::{self, Place};
use crate::import::note::MinidumpNote;
use crate::import::wanted::Wanted;
use crate::import::{BuildId, Imported, programs};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::model::Dump;
use object::{Object, ObjectSection};

/// Signatures of CodeView records: Breakpad's and Crashpad's for ELF files, followed by the
/// build-id, and that of PDB 7.0, followed by a GUID.
const ELF_RECORD: u32 = 0x4270_454c;
const PDB_RECORD: u32 = 0x5344_5352;
/// The length of a GUID in bytes.
const GUID: usize = 16;
/// The number of bytes of code that Breakpad sums.
const SUMMED: usize = 4096;

/// Adds what the modules' files hold: the parts that the program could not change, where the
/// minidump has no memory. `most` is the maximum number of dumps.
pub fn dumps(
    (bytes, dump): (&[u8], &Minidump),
    images: &mut Images<'_>,
    (claims, most): (&mut Claims, usize),
    dumps: &mut Vec<Dump>,
    out: &mut Imported,
) {
    if matches!(dump.system, System::Windows | System::Apple) && !dump.modules.is_empty() {
        let count = dump.modules.len();
        out.notes.push(MinidumpNote::OtherModules { count }.into());
        return;
    }
    let mut placed = 0;
    for (index, module) in dump.modules.iter().enumerate() {
        let Some(elf) = found(module, bytes, images) else {
            continue;
        };
        let lowest = elf.segments.iter().map(|segment| segment.address).min();
        let Some(lowest) = lowest.filter(|_| dumps.len() < most) else {
            continue;
        };
        let place = Place {
            index: placed,
            is_program: index == 0,
            path: &module.path,
            bias: module.base.wrapping_sub(programs::page(lowest)),
        };
        modules::add(&elf, &place, claims, dumps, out);
        placed += 1;
    }
}

/// The file of a module. One that is not found is reported as missing.
fn found(module: &Module, bytes: &[u8], images: &mut Images<'_>) -> Option<Elf> {
    let record = module.identity.of(bytes).unwrap_or_default();
    let mut fields = Fields::new(record, false);
    let signature = fields.u32();
    let mut wanted = Wanted {
        path: module.path.clone(),
        build_id: None,
    };
    if signature == Some(ELF_RECORD) {
        wanted.build_id = BuildId::new(fields.rest());
    }
    let guid = (signature == Some(PDB_RECORD)).then(|| fields.bytes(GUID).unwrap_or_default());
    let found = images.find(&wanted);
    let found = found.filter(|elf| guid.is_none_or(|guid| is_guid_of(guid, elf)));
    if found.is_none() && !module.path.is_empty() {
        images.missing.insert(wanted);
    }
    found
}

/// Whether a GUID is that of an ELF file: the first bytes of its build-id, or else Breakpad's sum
/// of the first page of its code (file_id.cc).
fn is_guid_of(guid: &[u8], elf: &Elf) -> bool {
    let own = match BuildId::of_elf(elf.bytes()) {
        Some(id) => id.bytes().to_vec(),
        None => {
            let file = object::File::parse(elf.bytes()).ok();
            let code = file.and_then(|file| file.section_by_name(".text")?.data().ok());
            let code = code.unwrap_or_default();
            let mut sum = vec![0; GUID];
            for block in code[..code.len().min(SUMMED)].chunks_exact(GUID) {
                sum.iter_mut()
                    .zip(block)
                    .for_each(|(sum, byte)| *sum ^= byte);
            }
            sum
        }
    };
    let mut own = own
        .into_iter()
        .chain([0; GUID])
        .take(GUID)
        .collect::<Vec<_>>();
    if own == guid {
        return true;
    }
    // As the numbers of a GUID, whose bytes are in the order of the machine.
    own[..4].reverse();
    own[4..6].reverse();
    own[6..8].reverse();
    own == guid
}
