//! Detects the M-profile from the build attributes of an ELF file for Arm (ABI for the Arm
//! Architecture, Addenda: "Build attributes").

use object::elf::{SHT_ARM_ATTRIBUTES, Tag_File};
use object::read::elf::{ElfFile, FileHeader, SectionHeader};

/// Tag_CPU_raw_name and Tag_CPU_name, which are text.
const CPU_NAMES: [u64; 2] = [4, 5];
const CPU_ARCH: u64 = 6;
const CPU_ARCH_PROFILE: u64 = 7;
/// A tag with a number followed by text.
const COMPATIBILITY: u64 = 32;
/// Values of Tag_CPU_arch used only by the M-profile: v6-M, v6S-M, v7E-M, v8-M baseline and
/// mainline, v8.1-M mainline.
const M_PROFILE: [u64; 6] = [11, 12, 13, 16, 17, 21];

/// Returns whether the attributes name an M-profile architecture; `None` if they name no profile.
pub(super) fn is_m_profile(file: &object::File<'_>) -> Option<bool> {
    match file {
        object::File::Elf32(file) => of_file(file).unwrap_or_default(),
        _ => None,
    }
}

fn of_file<E: FileHeader>(file: &ElfFile<'_, E>) -> object::Result<Option<bool>> {
    let (endian, data) = (file.endian(), file.data());
    let mut sections = file.elf_section_table().iter();
    if let Some(section) = sections.find(|s| s.sh_type(endian) == SHT_ARM_ATTRIBUTES) {
        let mut subsections = section.attributes(endian, data)?.subsections()?;
        while let Some(subsection) = subsections.next()? {
            if subsection.vendor() != b"aeabi" {
                continue;
            }
            let mut parts = subsection.subsubsections();
            while let Some(part) = parts.next()? {
                if part.tag() != Tag_File {
                    continue;
                }
                let mut attributes = part.attributes();
                while let Some(tag) = attributes.read_tag()? {
                    match tag {
                        CPU_ARCH if M_PROFILE.contains(&attributes.read_integer()?) => {
                            return Ok(Some(true));
                        }
                        CPU_ARCH => {}
                        CPU_ARCH_PROFILE => {
                            let profile = attributes.read_integer()?;
                            return Ok((profile != 0).then_some(profile == u64::from(b'M')));
                        }
                        COMPATIBILITY => {
                            attributes.read_integer()?;
                            attributes.read_string()?;
                        }
                        // Odd tags above 32 have text.
                        tag if CPU_NAMES.contains(&tag) || tag > COMPATIBILITY && tag % 2 == 1 => {
                            attributes.read_string()?;
                        }
                        _ => {
                            attributes.read_integer()?;
                        }
                    }
                }
            }
        }
    }
    Ok(None)
}
