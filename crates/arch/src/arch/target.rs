//! A target description from another program: the architecture, and the registers of a register
//! block.
//!
//! The document is GDB's (GDB manual, "Target Description Format"); the block contains the
//! registers in the order of their numbers, as in a reply to `g`.
//!
//! Trace files of GDB before version 8, of its testsuite, and of tracers in kernels have no description,
//! or one that names only the architecture. GDB uses its own default registers for them, and so
//! does this program ([`Target::without_description`]).

use super::Architecture;
use super::safe_description::register_names;
use crate::xml::{self, XmlError};
use roxmltree::Node;
use std::fmt;

/// The contents of a target description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The architecture of the core.
    pub architecture: Architecture,
    /// Set if the registers are GDB's defaults, because no description lists any.
    pub by_default: Option<DefaultRegisters>,
    /// Registers by number: name, made [`safe`](crate::arch::names::safe), and size in bytes. An
    /// unnamed one only takes up space and has no meaning.
    pub registers: Vec<(String, usize)>,
    /// Their numbers, in the same order.
    pub numbers: Vec<u32>,
}

/// The largest register in bytes: the ZA array of SME with 256 × 256 bytes; an SVE register has
/// 2048 bits.
const LARGEST: usize = 1 << 16;

/// An architecture known from elsewhere, for a description that may not name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedArchitecture {
    /// The architecture.
    pub architecture: Architecture,
    /// Where it was named, for messages.
    pub from: &'static str,
}

/// The architecture whose default registers in GDB are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRegisters(pub NamedArchitecture);

impl fmt::Display for DefaultRegisters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no target description lists its registers: GDB's own for {} are assumed, the \
             architecture named by {}",
            self.0.architecture.name(),
            self.0.from
        )
    }
}

/// An error that prevents using a target description.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The description is missing, and nothing else specifies the architecture.
    #[error(
        "it has no target description (tdesc): its architecture is not known; --arch names it, or \
         --elf the program"
    )]
    Missing,
    /// It cannot be parsed.
    #[error("tdesc: {0}")]
    Xml(#[from] XmlError),
    /// It includes another document.
    #[error("tdesc: includes {0:?}: expected one document without includes")]
    Includes(String),
    /// It names an architecture other than Arm.
    #[error("tdesc: expected the architecture of an Arm core, found {0}")]
    NotArm(String),
    /// It names no architecture.
    #[error("tdesc: it does not name an architecture")]
    NoArchitecture,
    /// It contradicts the architecture known from elsewhere.
    #[error("tdesc: it says {}, and {} says {}", .described.name(), .named.from,
        .named.architecture.name())]
    Contradiction {
        /// The architecture in the description.
        described: Architecture,
        /// The other one.
        named: NamedArchitecture,
    },
    /// Two registers have the same number.
    #[error("tdesc: {first} and {second} have the same number {number}")]
    SameNumber {
        /// A register.
        first: String,
        /// Another register.
        second: String,
        /// Their number.
        number: u32,
    },
    /// The number of a register is malformed.
    #[error("tdesc: {register}: regnum: expected a number, found {found:?}")]
    Number {
        /// The register.
        register: String,
        /// The number as written.
        found: String,
    },
    /// The size of a register is malformed.
    #[error(
        "tdesc: {register}: bitsize: expected a number of bits in whole bytes, found {found:?}"
    )]
    Size {
        /// The register.
        register: String,
        /// The size as written.
        found: String,
    },
}

impl Target {
    /// Returns the target of a trace file with this description, if any.
    ///
    /// # Errors
    ///
    /// Returns an error if the architecture is unknown or not Arm, or the description is malformed.
    pub fn of_file(
        description: Option<&str>,
        named: Option<&NamedArchitecture>,
    ) -> Result<Self, DescriptionError> {
        match (description, named) {
            (Some(text), _) => Self::read_for(text, named),
            (None, Some(named)) => Ok(Self::without_description(*named)),
            (None, None) => Err(DescriptionError::Missing),
        }
    }

    /// The registers that GDB uses without a description, in the order and the sizes of
    /// `maintenance print remote-registers`. The eight registers of the FPA, an obsolete
    /// floating-point unit, and its status register are always present for Arm; they have no
    /// meaning.
    #[must_use]
    pub fn without_description(named: NamedArchitecture) -> Self {
        let architecture = named.architecture;
        let row = |letter: char, count: usize, bytes: usize| {
            (0..count).map(move |number| (format!("{letter}{number}"), bytes))
        };
        let one = |name: &str, bytes: usize| std::iter::once((name.to_owned(), bytes));
        let registers: Vec<(String, usize)> = match architecture {
            Architecture::AArch64 => row('x', 31, 8)
                .chain(one("sp", 8))
                .chain(one("pc", 8))
                .chain(one("cpsr", 4))
                .chain(row('v', 32, 16))
                .chain(one("fpsr", 4))
                .chain(one("fpcr", 4))
                .collect(),
            Architecture::AArch32 | Architecture::MProfile => {
                let status = match architecture {
                    Architecture::MProfile => "xpsr",
                    _ => "cpsr",
                };
                let general = row('r', 13, 4).chain(["sp", "lr", "pc"].map(|n| (n.to_owned(), 4)));
                general
                    .chain(std::iter::repeat_n((String::new(), 12), 8))
                    .chain(one("", 4))
                    .chain(one(status, 4))
                    .collect()
            }
        };
        Self {
            architecture,
            by_default: Some(DefaultRegisters(named)),
            numbers: (0..registers.len() as u32).collect(),
            registers,
        }
    }

    /// Reads a description.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not describe an Arm core.
    pub fn read(text: &str) -> Result<Self, DescriptionError> {
        Self::read_for(text, None)
    }

    fn read_for(text: &str, named: Option<&NamedArchitecture>) -> Result<Self, DescriptionError> {
        let document = xml::read(text.trim_start())?;
        let root = document.root_element();
        if let Some(include) = root
            .descendants()
            .find(|n| n.tag_name().name() == "include")
        {
            let href = include.attribute("href").unwrap_or_default();
            return Err(DescriptionError::Includes(href.to_owned()));
        }
        let architecture = architecture(root, named)?;
        let mut registers = Vec::new();
        let mut next = 0;
        let mut names = register_names(root);
        for node in root.descendants().filter(|n| n.has_tag_name("reg")) {
            let (number, name, bytes) = register(node, next)?;
            let name = names.safe(&name);
            next = number.wrapping_add(1);
            registers.push((number, name, bytes));
        }
        if registers.is_empty() {
            let from = "its target description";
            return Ok(Self::without_description(NamedArchitecture {
                architecture,
                from,
            }));
        }
        registers.sort_by_key(|(number, _, _)| *number);
        if let Some(pair) = registers.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(DescriptionError::SameNumber {
                first: pair[0].1.clone(),
                second: pair[1].1.clone(),
                number: pair[0].0,
            });
        }
        Ok(Self {
            architecture,
            by_default: None,
            numbers: registers.iter().map(|(number, _, _)| *number).collect(),
            registers: registers
                .into_iter()
                .map(|(_, name, bytes)| (name, bytes))
                .collect(),
        })
    }
}

fn architecture(
    root: Node<'_, '_>,
    named: Option<&NamedArchitecture>,
) -> Result<Architecture, DescriptionError> {
    let has = |name: &str| {
        let mut features = root.descendants().filter(|n| n.has_tag_name("feature"));
        features.any(|n| n.attribute("name").is_some_and(|n| n.starts_with(name)))
    };
    let written = root.children().find(|n| n.has_tag_name("architecture"));
    let written = written.and_then(|n| n.text()).map(str::trim);
    // Only the features, or the names of M-profile architectures, identify the profile.
    let arm = |name: &str| {
        let core = has("org.gnu.gdb.arm.core");
        let m_profile = name.strip_prefix("armv").is_some_and(|version| {
            ["6-m", "6s-m", "7e-m", "8-m.", "8.1-m."]
                .iter()
                .any(|m_profile| version.starts_with(m_profile))
        });
        match named.map(|named| named.architecture) {
            _ if has("org.gnu.gdb.arm.m-profile") || m_profile && !core => Architecture::MProfile,
            Some(Architecture::MProfile) if !core => Architecture::MProfile,
            _ => Architecture::AArch32,
        }
    };
    let described = match written {
        Some(name) if name == "aarch64" || name.starts_with("aarch64:") => Architecture::AArch64,
        Some(name) if name.starts_with("arm") => arm(name),
        Some(name) => return Err(DescriptionError::NotArm(name.to_owned())),
        None if has("org.gnu.gdb.aarch64.") => Architecture::AArch64,
        None if has("org.gnu.gdb.arm.") => arm(""),
        None => match named {
            Some(named) => named.architecture,
            None => return Err(DescriptionError::NoArchitecture),
        },
    };
    match named {
        Some(&named) if named.architecture.machine() != described.machine() => {
            Err(DescriptionError::Contradiction { described, named })
        }
        _ => Ok(described),
    }
}

fn register(node: Node<'_, '_>, next: u32) -> Result<(u32, String, usize), DescriptionError> {
    let name = node.attribute("name").unwrap_or_default();
    let number = match node.attribute("regnum") {
        None => next,
        Some(text) => text.parse().map_err(|_| DescriptionError::Number {
            register: name.to_owned(),
            found: text.to_owned(),
        })?,
    };
    let size = node.attribute("bitsize").unwrap_or_default();
    let bits: Option<usize> = size.parse().ok();
    match bits.filter(|bits| bits.is_multiple_of(8) && bits / 8 <= LARGEST) {
        Some(bits) => Ok((number, name.to_owned(), bits / 8)),
        None => Err(DescriptionError::Size {
            register: name.to_owned(),
            found: size.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(inside: &str) -> Result<Target, DescriptionError> {
        Target::read(&format!(
            "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n\
             <target version=\"1.0\">{inside}</target>"
        ))
    }

    #[test]
    fn registers_are_ordered_by_number() {
        let found = target(
            "<architecture>arm</architecture><feature name=\"org.gnu.gdb.arm.core\">\
             <reg name=\"r0\" bitsize=\"32\"/><reg name=\"r1\" bitsize=\"32\"/>\
             <reg name=\"cpsr\" bitsize=\"32\" regnum=\"25\"/></feature>\
             <feature name=\"x\"><reg name=\"d0\" bitsize=\"64\"/>\
             <reg name=\"r2\" bitsize=\"32\" regnum=\"2\"/></feature>",
        )
        .unwrap();
        assert_eq!(found.architecture, Architecture::AArch32);
        let names: Vec<&str> = found.registers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["r0", "r1", "r2", "cpsr", "d0"]);
        assert_eq!(found.registers[4].1, 8);
    }

    #[test]
    fn architectures() {
        use Architecture::{AArch32, AArch64, MProfile};
        let m = "<feature name=\"org.gnu.gdb.arm.m-profile\"/>";
        for (inside, wanted) in [
            ("<architecture>aarch64</architecture>", AArch64),
            ("<architecture>aarch64:ilp32</architecture>", AArch64),
            ("<architecture>armv7e-m</architecture>", MProfile),
            ("<architecture>armv8-m.main</architecture>", MProfile),
            ("<architecture>armv8-r</architecture>", AArch32),
            (&format!("<architecture>arm</architecture>{m}"), MProfile),
            (m, MProfile),
            ("<feature name=\"org.gnu.gdb.arm.core\"/>", AArch32),
            ("<feature name=\"org.gnu.gdb.aarch64.core\"/>", AArch64),
        ] {
            assert_eq!(target(inside).unwrap().architecture, wanted, "{inside}");
        }
    }

    #[test]
    fn descriptions_not_of_an_arm_core_are_rejected() {
        for (inside, wanted) in [
            (
                "<architecture>i386:x86-64</architecture>",
                "found i386:x86-64",
            ),
            ("", "does not name an architecture"),
            ("<oops>", "tdesc:"),
            (
                "<xi:include xmlns:xi=\"http://www.w3.org/2001/XInclude\" href=\"core.xml\"/>",
                "includes \"core.xml\"",
            ),
            (
                "<architecture>arm</architecture><reg name=\"r\" bitsize=\"7\"/>",
                "r: bitsize: expected a number of bits in whole bytes, found \"7\"",
            ),
            (
                "<architecture>arm</architecture><reg name=\"r\" bitsize=\"32\" regnum=\"-1\"/>",
                "regnum: expected a number",
            ),
            (
                "<architecture>arm</architecture><reg name=\"r\" bitsize=\"8\" regnum=\"3\"/>\
                 <reg name=\"s\" bitsize=\"8\" regnum=\"3\"/>",
                "r and s have the same number 3",
            ),
        ] {
            let error = target(inside).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
