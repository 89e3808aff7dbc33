//! A trace file's target description: architecture, and registers of a register block.
//!
//! The document is GDB's (GDB manual, "Target Description Format"); the block has the registers
//! in the order of their numbers, as a reply to `g`.

use super::safe_description::register_names;
use crate::arch::Architecture;
use roxmltree::{Document, Node, ParsingOptions};

/// What a description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The architecture of the core.
    pub architecture: Architecture,
    /// Registers by number: name, made [`safe`](crate::arch::names::safe), and size in bytes.
    pub registers: Vec<(String, usize)>,
    /// Their numbers, in the same order.
    pub numbers: Vec<u32>,
}

/// More elements than any description has.
pub(super) const NODES: u32 = 1 << 20;

/// The largest register: one of SVE with 2048 bits, and the ZA array of SME with 256 × 256 bytes.
const LARGEST: usize = 1 << 16;

impl Target {
    /// Reads a description. Fails with the reason where it is none of an Arm core.
    pub fn read(text: &str) -> Result<Self, String> {
        let options = ParsingOptions {
            allow_dtd: true,
            nodes_limit: NODES,
        };
        let document = Document::parse_with_options(text.trim_start(), options)
            .map_err(|error| format!("tdesc: {error}"))?;
        let root = document.root_element();
        if let Some(include) = root
            .descendants()
            .find(|n| n.tag_name().name() == "include")
        {
            let href = include.attribute("href").unwrap_or_default();
            return Err(format!(
                "tdesc: includes {href:?}: expected one document without includes"
            ));
        }
        let architecture = architecture(root)?;
        let mut registers = Vec::new();
        let mut next = 0;
        let mut names = register_names(root);
        for node in root.descendants().filter(|n| n.has_tag_name("reg")) {
            let (number, name, bytes) = register(node, next)?;
            let name = names.safe(&name);
            next = number.wrapping_add(1);
            registers.push((number, name, bytes));
        }
        registers.sort_by_key(|(number, _, _)| *number);
        if let Some(pair) = registers.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!(
                "tdesc: {} and {} have the same number {}",
                pair[0].1, pair[1].1, pair[0].0
            ));
        }
        Ok(Self {
            architecture,
            numbers: registers.iter().map(|(number, _, _)| *number).collect(),
            registers: registers
                .into_iter()
                .map(|(_, name, bytes)| (name, bytes))
                .collect(),
        })
    }
}

fn architecture(root: Node<'_, '_>) -> Result<Architecture, String> {
    let has = |name: &str| {
        let mut features = root.descendants().filter(|n| n.has_tag_name("feature"));
        features.any(|n| n.attribute("name").is_some_and(|n| n.starts_with(name)))
    };
    let written = root.children().find(|n| n.has_tag_name("architecture"));
    let written = written.and_then(|n| n.text()).map(str::trim);
    let arm = || {
        if has("org.gnu.gdb.arm.m-profile") {
            Architecture::MProfile
        } else {
            Architecture::AArch32
        }
    };
    match written {
        Some(name) if name == "aarch64" || name.starts_with("aarch64:") => {
            Ok(Architecture::AArch64)
        }
        Some(name) if name.starts_with("arm") => Ok(arm()),
        Some(name) => Err(format!(
            "tdesc: expected the architecture of an Arm core, found {name}"
        )),
        None if has("org.gnu.gdb.aarch64.") => Ok(Architecture::AArch64),
        None if has("org.gnu.gdb.arm.") => Ok(arm()),
        None => Err("tdesc: it names no architecture".to_owned()),
    }
}

fn register(node: Node<'_, '_>, next: u32) -> Result<(u32, String, usize), String> {
    let name = node.attribute("name").unwrap_or_default();
    let number = match node.attribute("regnum") {
        None => next,
        Some(text) => text
            .parse()
            .map_err(|_| format!("tdesc: {name}: regnum: expected a number, found {text:?}"))?,
    };
    let size = node.attribute("bitsize").unwrap_or_default();
    let bits: Option<usize> = size.parse().ok();
    match bits.filter(|bits| bits.is_multiple_of(8) && bits / 8 <= LARGEST) {
        Some(bits) => Ok((number, name.to_owned(), bits / 8)),
        None => Err(format!(
            "tdesc: {name}: bitsize: expected a number of bits in whole bytes, found {size:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(inside: &str) -> Result<Target, String> {
        Target::read(&format!(
            "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n\
             <target version=\"1.0\">{inside}</target>"
        ))
    }

    #[test]
    fn registers_lie_in_the_order_of_their_numbers() {
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
            ("<architecture>armv7e-m</architecture>", AArch32),
            (&format!("<architecture>arm</architecture>{m}"), MProfile),
            (m, MProfile),
            ("<feature name=\"org.gnu.gdb.arm.core\"/>", AArch32),
            ("<feature name=\"org.gnu.gdb.aarch64.core\"/>", AArch64),
        ] {
            assert_eq!(target(inside).unwrap().architecture, wanted, "{inside}");
        }
    }

    #[test]
    fn what_is_no_description_of_an_arm_core() {
        for (inside, wanted) in [
            (
                "<architecture>i386:x86-64</architecture>",
                "found i386:x86-64",
            ),
            ("", "names no architecture"),
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
            let error = target(inside).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
