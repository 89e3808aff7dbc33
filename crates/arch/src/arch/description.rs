//! Target descriptions: the registers of the cores of one architecture, in the form that GDB and
//! LLDB read (GDB manual, appendix G).
//!
//! The registers that a debugger requires come first and have their usual numbers. Two kinds of
//! armsnap's own features follow: known parts of partly known registers, and all other registers,
//! grouped by [`RegisterGroup`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::group::RegisterGroup;
use super::names::Names;
use super::pointer_auth::{self, Masks};
use super::registers::{RegisterFile, RegisterView};
use super::views::{self, View};
use super::{Architecture, aarch32, aarch64};

/// A register of a target description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterDescription {
    /// Its name in the debugger.
    pub name: String,
    /// Its number in the remote protocol.
    pub number: u32,
    /// Its size in bits, a multiple of 8.
    pub bits: u32,
    /// Its type: one of GDB's own, or one that its feature defines.
    pub kind: String,
    /// Its register group, where it has one of its own.
    pub group: Option<&'static str>,
    /// It is in the reply to `g`; others are fetched one by one.
    pub general: bool,
    /// Where its value comes from.
    pub view: RegisterView,
}

impl RegisterDescription {
    /// A register of the core's own set, which `g` includes.
    pub(super) fn core(number: u32, name: &str, bits: u32, kind: &str) -> Self {
        Self {
            name: name.to_owned(),
            number,
            bits,
            kind: kind.to_owned(),
            group: None,
            general: true,
            view: RegisterView::Core(View {
                register: name.to_owned(),
                offset: 0,
                bits,
            }),
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bits as usize / 8
    }
}

/// A feature: registers that belong together, and their types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name; GDB knows those that begin with `org.gnu.gdb`.
    pub name: String,
    /// Definitions of types, as XML.
    pub types: String,
    /// Its registers.
    pub registers: Vec<RegisterDescription>,
}

/// The target description of the cores of one endpoint.
#[derive(Clone, Debug)]
pub struct TargetDescription {
    architecture: Architecture,
    features: Vec<Feature>,
    /// Number → indices of the feature and the register.
    numbers: BTreeMap<u32, (usize, usize)>,
}

/// Number of the first register outside the core's own set.
const FIRST_OWN_NUMBER: u32 = 128;

/// Names of registers that the server adds to descriptions.
const RESERVED: [&str; 2] = ["isa", "position"];

impl TargetDescription {
    /// Creates a description for several cores, with all registers that any of them has. `kinds` are
    /// the types of the cores, such as `Cortex-A15`.
    pub fn new(architecture: Architecture, kinds: &[&str], cores: &[&RegisterFile]) -> Self {
        let mut features = match architecture {
            Architecture::AArch64 => {
                let mut features = aarch64::features();
                features.extend(pointer_masks(cores));
                features
            }
            Architecture::AArch32 => aarch32::a_profile(kinds, cores),
            Architecture::MProfile => aarch32::m_profile(cores),
        };
        let mut next = FIRST_OWN_NUMBER;
        let described: BTreeSet<String> = features
            .iter()
            .flat_map(|feature| &feature.registers)
            .map(|register| register.name.clone())
            .collect();
        features.extend(parts(architecture, cores, &described, &mut next));
        if architecture == Architecture::AArch64 {
            features.extend(thread_pointers(cores, &mut next));
        }
        let registers = features.iter().flat_map(|feature| &feature.registers);
        let in_use = registers.map(|register| &*register.name).chain(RESERVED);
        let mut names = Names::of(in_use);
        let shown =
            |name: &str| masks_of_gdb(&features).any(|mask| mask.eq_ignore_ascii_case(name));
        let further = further(cores, shown, &mut names, &mut next);
        features.extend(further);
        let numbers = features
            .iter()
            .enumerate()
            .flat_map(|(f, feature)| {
                feature
                    .registers
                    .iter()
                    .enumerate()
                    .map(move |(r, register)| (register.number, (f, r)))
            })
            .collect();
        Self {
            architecture,
            features,
            numbers,
        }
    }

    /// The architecture.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// All features, those that GDB requires first.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// All registers by number.
    pub fn registers(&self) -> impl Iterator<Item = &RegisterDescription> {
        self.numbers
            .values()
            .map(|&(feature, register)| &self.features[feature].registers[register])
    }

    /// The register with this number.
    pub fn register(&self, number: u32) -> Option<&RegisterDescription> {
        let &(feature, register) = self.numbers.get(&number)?;
        self.features.get(feature)?.registers.get(register)
    }

    /// The document: `target.xml`, without includes.
    pub fn xml(&self) -> String {
        self.xml_with(|_| true)
    }

    /// The document with the first feature only, which every core of the architecture has.
    pub fn xml_of_first_feature(&self) -> String {
        let first = self.features.first().map(|feature| &feature.name);
        self.xml_with(|feature| Some(&feature.name) == first)
    }

    /// The document for GDB before version 11, if it differs. Those versions abort on a description
    /// that has both masks of pointer authentication and further registers. `needs_others` is
    /// whether the further registers are required.
    pub fn xml_for_old_gdb(&self, needs_others: bool) -> Option<String> {
        masks_of_gdb(&self.features).next()?;
        Some(self.xml_with(|feature| {
            let has_masks = masks_of_gdb(std::slice::from_ref(feature)).next().is_some();
            match needs_others {
                true => !has_masks,
                false => has_masks || aarch64::REQUIRED.contains(&&*feature.name),
            }
        }))
    }

    /// The document with the features that `wanted` selects.
    fn xml_with(&self, wanted: impl Fn(&Feature) -> bool) -> String {
        let mut xml = String::from(
            "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target version=\"1.0\">\n",
        );
        let architecture = match self.architecture {
            Architecture::AArch64 => "aarch64",
            Architecture::AArch32 | Architecture::MProfile => "arm",
        };
        let _ = writeln!(xml, "<architecture>{architecture}</architecture>");
        for feature in self.features.iter().filter(|feature| wanted(feature)) {
            let _ = writeln!(xml, "<feature name=\"{}\">", feature.name);
            xml.push_str(&feature.types);
            for register in &feature.registers {
                let _ = write!(
                    xml,
                    "<reg name=\"{}\" bitsize=\"{}\" regnum=\"{}\" type=\"{}\"",
                    register.name, register.bits, register.number, register.kind
                );
                if let Some(group) = register.group {
                    let _ = write!(xml, " group=\"{group}\"");
                }
                if !register.general {
                    xml.push_str(" save-restore=\"no\"");
                }
                xml.push_str("/>\n");
            }
            xml.push_str("</feature>\n");
        }
        xml.push_str("</target>\n");
        xml
    }
}

/// The masks of pointer authentication, if those of all cores are known. GDB reads them whenever it
/// finds a signed return address.
fn pointer_masks(cores: &[&RegisterFile]) -> Option<Feature> {
    if cores.is_empty() || cores.iter().any(|core| Masks::of(core).is_none()) {
        return None;
    }
    let registers = pointer_auth::MASKS.iter().zip(pointer_auth::FIRST_NUMBER..);
    let registers = registers.map(|(name, number)| RegisterDescription {
        name: (*name).to_owned(),
        number,
        bits: 64,
        kind: "uint64".to_owned(),
        group: Some("system"),
        general: false,
        view: RegisterView::PointerMask(name),
    });
    Some(Feature {
        name: "org.gnu.gdb.aarch64.pauth".to_owned(),
        types: String::new(),
        registers: registers.collect(),
    })
}

/// The thread pointers under the names by which GDB finds thread-local variables, if any core has
/// them.
fn thread_pointers(cores: &[&RegisterFile], next: &mut u32) -> Option<Feature> {
    let mut registers = Vec::new();
    for (name, written) in [("tpidr", "TPIDR_EL0"), ("tpidr2", "TPIDR2_EL0")] {
        let mut others = cores.iter().flat_map(|core| core.others());
        let Some((written, _)) =
            others.find(|(other, bytes)| other.eq_ignore_ascii_case(written) && *bytes == 8)
        else {
            break;
        };
        registers.push(RegisterDescription {
            name: name.to_owned(),
            number: *next,
            bits: 64,
            kind: "data_ptr".to_owned(),
            group: Some("system"),
            general: false,
            view: RegisterView::Other(written.to_owned()),
        });
        *next += 1;
    }
    (!registers.is_empty()).then(|| Feature {
        name: "org.gnu.gdb.aarch64.tls".to_owned(),
        types: String::new(),
        registers,
    })
}

/// Known parts of partly known registers. They are registers of their own, because a debugger shows
/// a register as unavailable if any of its bytes is.
fn parts(
    architecture: Architecture,
    cores: &[&RegisterFile],
    described: &BTreeSet<String>,
    next: &mut u32,
) -> Option<Feature> {
    let views: &[(char, u32)] = match architecture {
        Architecture::AArch64 => &[('w', 31), ('d', 32), ('s', 32), ('h', 32), ('b', 32)],
        Architecture::AArch32 | Architecture::MProfile => &[('s', 32)],
    };
    let mut registers = Vec::new();
    for &(letter, count) in views {
        for n in 0..count {
            let name = format!("{letter}{n}");
            let Some(view) = views::view_of(architecture, &name) else {
                continue;
            };
            let needed = cores.iter().any(|core| {
                let known = |bytes: &[Option<u8>]| bytes.iter().all(Option::is_some);
                core.core(&view.register).is_some_and(|bytes| {
                    let start = view.offset as usize / 8;
                    let part = bytes.get(start..start + view.bits as usize / 8);
                    !known(bytes) && part.is_some_and(known)
                })
            });
            if needed && !described.contains(&name) {
                registers.push(RegisterDescription {
                    kind: part_kind(letter).to_owned(),
                    bits: view.bits,
                    number: *next,
                    group: Some("partial"),
                    general: false,
                    view: RegisterView::Core(view),
                    name,
                });
                *next += 1;
            }
        }
    }
    let types = match architecture {
        Architecture::AArch64 => concat!(
            "<union id=\"part_d\"><field name=\"f\" type=\"ieee_double\"/>",
            "<field name=\"u\" type=\"uint64\"/><field name=\"s\" type=\"int64\"/></union>\n",
            "<union id=\"part_s\"><field name=\"f\" type=\"ieee_single\"/>",
            "<field name=\"u\" type=\"uint32\"/><field name=\"s\" type=\"int32\"/></union>\n",
            "<union id=\"part_h\"><field name=\"u\" type=\"uint16\"/>",
            "<field name=\"s\" type=\"int16\"/></union>\n",
            "<union id=\"part_b\"><field name=\"u\" type=\"uint8\"/>",
            "<field name=\"s\" type=\"int8\"/></union>\n",
        ),
        Architecture::AArch32 | Architecture::MProfile => {
            "<union id=\"part_s\"><field name=\"f\" type=\"ieee_single\"/>\
             <field name=\"u\" type=\"uint32\"/><field name=\"s\" type=\"int32\"/></union>\n"
        }
    };
    (!registers.is_empty()).then(|| Feature {
        name: "org.armsnap.partial".to_owned(),
        types: types.to_owned(),
        registers,
    })
}

fn part_kind(letter: char) -> &'static str {
    match letter {
        'w' => "uint32",
        'd' => "part_d",
        's' => "part_s",
        'h' => "part_h",
        _ => "part_b",
    }
}

/// The masks of pointer authentication in `features`, by the names that GDB knows.
fn masks_of_gdb(features: &[Feature]) -> impl Iterator<Item = &'static str> {
    let registers = features.iter().flat_map(|feature| &feature.registers);
    registers.filter_map(|register| match register.view {
        RegisterView::PointerMask(name) => Some(name),
        _ => None,
    })
}

/// Registers outside the core's own set that are not `shown` yet: one feature for each group.
fn further(
    cores: &[&RegisterFile],
    shown: impl Fn(&str) -> bool,
    names: &mut Names,
    next: &mut u32,
) -> Vec<Feature> {
    // Name in lower case → name as first written and size in bytes; in file order.
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut order: Vec<(String, String)> = Vec::new();
    for core in cores {
        for (name, bytes) in core.others().filter(|(name, _)| !shown(name)) {
            let key = name.to_ascii_lowercase();
            let size = sizes.entry(key.clone()).or_insert_with(|| {
                order.push((key, name.to_owned()));
                bytes
            });
            *size = bytes.max(*size);
        }
    }
    let mut features = Vec::new();
    for group in RegisterGroup::ALL {
        let mut types = BTreeMap::new();
        let mut registers = Vec::new();
        for (key, name) in order
            .iter()
            .filter(|(_, name)| RegisterGroup::of(name) == group)
        {
            let bytes = sizes.get(key).copied().unwrap_or(4);
            registers.push(RegisterDescription {
                name: unique_identifier(name, names),
                number: *next,
                bits: bytes as u32 * 8,
                kind: unsigned(bytes, &mut types),
                group: Some(group.name()),
                general: false,
                view: RegisterView::Other(name.clone()),
            });
            *next += 1;
        }
        if !registers.is_empty() {
            features.push(Feature {
                name: format!("org.armsnap.{}", group.name()),
                types: types.into_values().collect(),
                registers,
            });
        }
    }
    features
}

/// Returns a type for unsigned values of `bytes` bytes, and defines it if GDB has none.
fn unsigned(bytes: usize, types: &mut BTreeMap<usize, String>) -> String {
    match bytes {
        1 | 2 | 4 | 8 | 16 => format!("uint{}", bytes * 8),
        _ => {
            let name = format!("bytes{bytes}");
            types.entry(bytes).or_insert_with(|| {
                format!("<vector id=\"{name}\" type=\"uint8\" count=\"{bytes}\"/>\n")
            });
            name
        }
    }
}

/// Returns a name that debuggers accept after `$` and that no other register has.
fn unique_identifier(name: &str, names: &mut Names) -> String {
    let mut identifier: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if identifier.is_empty() || identifier.starts_with(|c: char| c.is_ascii_digit()) {
        identifier.insert(0, '_');
    }
    names.unique(identifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::saved_device::{Device, Register, RegisterValue};

    fn file(architecture: Architecture, registers: &[(&str, u32, u64)]) -> RegisterFile {
        let device = Device {
            registers: registers
                .iter()
                .map(|&(name, size, value)| Register {
                    name: name.to_owned(),
                    size: Some(size),
                    value: RegisterValue(value.to_le_bytes()[..size as usize / 8].to_vec()),
                })
                .collect(),
            ..Device::default()
        };
        RegisterFile::read(&device, architecture)
    }

    fn find<'a>(description: &'a TargetDescription, name: &str) -> &'a RegisterDescription {
        description
            .registers()
            .find(|register| register.name == name)
            .unwrap_or_else(|| panic!("no register {name}"))
    }

    #[test]
    fn names_of_the_servers_registers_are_free() {
        let core = file(
            Architecture::AArch64,
            &[("POSITION", 32, 1), ("position", 64, 2)],
        );
        let description = TargetDescription::new(Architecture::AArch64, &["Cortex-A57"], &[&core]);
        let mut names = description.registers().map(|register| &*register.name);
        assert!(names.all(|name| !RESERVED.contains(&name)));
        let core = file(Architecture::AArch64, &[("isa", 32, 1)]);
        let description = TargetDescription::new(Architecture::AArch64, &["Cortex-A57"], &[&core]);
        find(&description, "isa_2");
    }

    #[test]
    fn aarch64_keeps_the_numbers_of_gdb() {
        let core = file(
            Architecture::AArch64,
            &[("D0", 64, 7), ("SCTLR_EL1", 32, 1), ("CNTFRQ_EL0", 32, 2)],
        );
        let description = TargetDescription::new(Architecture::AArch64, &[], &[&core]);
        assert_eq!(find(&description, "x0").number, 0);
        assert_eq!(find(&description, "cpsr").number, 33);
        assert_eq!(find(&description, "v0").number, 34);
        assert_eq!(find(&description, "fpcr").number, 67);
        let part = find(&description, "d0");
        assert_eq!(part.group, Some("partial"));
        assert_eq!(core.bytes(&part.view, 8)[0], Some(7));
        assert!(
            description
                .registers()
                .all(|register| register.name != "d1")
        );
        assert_eq!(find(&description, "SCTLR_EL1").group, Some("system"));
        assert_eq!(find(&description, "CNTFRQ_EL0").group, Some("timers"));
        assert!(!find(&description, "SCTLR_EL1").general);
    }

    #[test]
    fn cores_share_one_description() {
        let first = file(Architecture::AArch64, &[("A", 32, 1)]);
        let second = file(Architecture::AArch64, &[("a", 64, 2), ("B-1", 32, 3)]);
        let description = TargetDescription::new(Architecture::AArch64, &[], &[&first, &second]);
        let a = find(&description, "A");
        assert_eq!(a.bits, 64);
        assert_eq!(first.bytes(&a.view, 8)[7], Some(0));
        assert_eq!(second.bytes(&a.view, 8)[0], Some(2));
        let b = find(&description, "B_1");
        assert_eq!(first.bytes(&b.view, 4), [None; 4]);
        assert_eq!(second.bytes(&b.view, 4)[0], Some(3));
    }

    #[test]
    fn aarch32_and_m_profile_have_their_status_register_at_25() {
        let core = file(Architecture::AArch32, &[("S_TTBR0", 32, 1), ("S0", 32, 5)]);
        let description = TargetDescription::new(Architecture::AArch32, &["Cortex-A15"], &[&core]);
        assert_eq!(find(&description, "cpsr").number, 25);
        assert_eq!(find(&description, "s0").group, Some("partial"));
        let core = file(
            Architecture::MProfile,
            &[("SP", 32, 1), ("MSP", 32, 1), ("PSP", 32, 2)],
        );
        let description = TargetDescription::new(Architecture::MProfile, &["Cortex-M3"], &[&core]);
        assert_eq!(find(&description, "xpsr").number, 25);
        assert!(description.xml().contains("org.gnu.gdb.arm.m-system"));
        assert!(!description.xml().contains("org.gnu.gdb.arm.vfp"));
    }

    #[test]
    fn stack_pointers_of_which_gdb_would_miss_some_are_in_an_own_feature() {
        let of = |registers: &[(&str, u32, u64)]| {
            let core = file(Architecture::MProfile, registers);
            let description = TargetDescription::new(Architecture::MProfile, &[], &[&core]);
            let features = description.features().iter();
            let found = features.filter_map(|feature| {
                let names = feature.registers.iter().map(|register| &*register.name);
                let names: Vec<&str> = names.filter(|name| name.contains("sp_")).collect();
                (!names.is_empty()).then(|| (feature.name.clone(), names.join(" ")))
            });
            found.collect::<Vec<_>>()
        };
        let pair = |feature: &str, names: &str| vec![(feature.to_owned(), names.to_owned())];
        let banked = [
            ("MSP_NS", 32, 1),
            ("PSP_NS", 32, 2),
            ("MSP_S", 32, 3),
            ("PSP_S", 32, 4),
        ];
        let all = "msp_ns psp_ns msp_s psp_s";
        let gdb = pair("org.gnu.gdb.arm.secext", all);
        let own = pair("org.armsnap.stacks", all);
        let with = |more: &[(&'static str, u32, u64)]| of(&[&banked, more].concat());
        assert_eq!(with(&[]), own);
        assert_eq!(with(&[("SP", 32, 9)]), own);
        assert_eq!(with(&[("SP", 32, 2)]), gdb);
        assert_eq!(with(&[("SP", 32, 1), ("MSP", 32, 1), ("PSP", 32, 2)]), gdb);
        assert_eq!(with(&[("SP", 32, 1), ("MSP", 32, 1), ("PSP", 32, 7)]), own);
        assert_eq!(of(&[("MSP_S", 32, 1)]), pair("org.armsnap.stacks", "msp_s"));
    }

    #[test]
    fn numbers_are_unique_and_names_are_identifiers() {
        let core = file(
            Architecture::AArch32,
            &[("x<y", 32, 1), ("x_y", 32, 1), ("1", 8, 1), ("D3", 64, 9)],
        );
        let description = TargetDescription::new(Architecture::AArch32, &[], &[&core]);
        let count: usize = description
            .features()
            .iter()
            .map(|f| f.registers.len())
            .sum();
        assert_eq!(count, description.registers().count());
        for register in description.registers() {
            assert!(
                register
                    .name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_')
            );
        }
        assert_eq!(find(&description, "x_y_2").bits, 32);
    }
}
