//! What is at an address: a variable, code, a peripheral, nothing.

use super::Halted;
use crate::program::data_symbols;
use armsnap_arch::arch::Architecture;

/// Addresses this low are most likely reached through a null pointer.
const NULL_PAGE: u64 = 0x1000;

/// The regions of the memory map of Cortex-M (DDI 0403, B3.1; DDI 0553, B8.1): end, name.
const M_REGIONS: [(u64, &str); 8] = [
    (0x2000_0000, "the code region"),
    (0x4000_0000, "the SRAM region"),
    (0x6000_0000, "the peripheral region"),
    (0xA000_0000, "the external RAM region"),
    (0xE000_0000, "the external device region"),
    (0xE010_0000, "the private peripheral bus"),
    (0xF000_0000, "the vendor's system region"),
    (0x1_0000_0000, "the vendor's system region"),
];

/// Says what is at an address.
pub(super) fn what(core: &Halted<'_>, address: u64) -> String {
    let mut parts = Vec::new();
    if let Some(variable) = variable(core, address) {
        parts.push(variable);
    } else if let Some(place) = core.place(address) {
        parts.push(format!("code of {place}"));
    }
    let peripheral = core.svd.and_then(|svd| svd.name_of(address));
    parts.extend(peripheral);
    let is_m_profile = core.registers.architecture() == Architecture::MProfile;
    if is_m_profile {
        let region = M_REGIONS.iter().find(|(end, _)| address < *end);
        parts.extend(region.map(|(_, name)| format!("in {name}")));
    } else if address < NULL_PAGE {
        parts.push(match address {
            0 => "null".to_owned(),
            _ => format!("null plus {address:#x}, such as a field of a structure at null"),
        });
    }
    parts.push(match core.has_memory(address) {
        true => "the snapshot has memory there".to_owned(),
        false => "the snapshot has no memory there".to_owned(),
    });
    parts.join(", ")
}

/// The variable that contains an address, with the offset in it.
fn variable(core: &Halted<'_>, address: u64) -> Option<String> {
    let mut programs = core.programs.iter();
    programs.find_map(|program| data_symbols::at(program, address))
}
