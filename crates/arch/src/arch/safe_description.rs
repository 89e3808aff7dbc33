//! Makes a target description from an untrusted file safe for a debugger: only elements of the
//! format remain (GDB manual, G.2 "Target Description Format"), and all names are harmless.

use super::names::{self, Names};
use crate::xml::{self, XmlError};
use roxmltree::Node;

/// The allowed child elements of each element, with their allowed attributes.
const CHILDREN: [(&str, &[&str]); 7] = [
    (
        "target",
        &["architecture", "osabi", "compatible", "feature"],
    ),
    (
        "feature",
        &["vector", "struct", "union", "flags", "enum", "reg"],
    ),
    ("struct", &["field"]),
    ("union", &["field"]),
    ("flags", &["field"]),
    ("enum", &["evalue"]),
    ("", &[]),
];
const ATTRIBUTES: [&str; 13] = [
    "version",
    "name",
    "id",
    "type",
    "count",
    "size",
    "start",
    "end",
    "value",
    "bitsize",
    "regnum",
    "group",
    "save-restore",
];

/// Returns the names of the registers of a description that are already safe.
pub(super) fn register_names(root: Node<'_, '_>) -> Names {
    let registers = root.descendants().filter(|node| node.has_tag_name("reg"));
    Names::of(registers.filter_map(|node| node.attribute("name")))
}

/// Rewrites a description.
///
/// # Errors
///
/// Returns an error if it is not XML.
pub fn rewritten(text: &str) -> Result<String, XmlError> {
    let document = xml::read(text.trim_start())?;
    let root = document.root_element();
    let mut out =
        String::from("<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n");
    element(root, &mut register_names(root), &mut out);
    Ok(out)
}

/// Writes an element. [`CHILDREN`] limits the depth of the recursion.
fn element(node: Node<'_, '_>, registers: &mut Names, out: &mut String) {
    let tag = node.tag_name().name();
    out.push('<');
    out.push_str(tag);
    for attribute in node.attributes() {
        let name = attribute.name();
        if attribute.namespace().is_none() && ATTRIBUTES.contains(&name) {
            let value = match (tag, name) {
                ("reg", "name") => registers.safe(attribute.value()),
                _ => names::safe(attribute.value()),
            };
            out.push_str(&format!(" {name}=\"{value}\""));
        }
    }
    out.push('>');
    if matches!(tag, "architecture" | "osabi" | "compatible") {
        // As in `aarch64:ilp32` and `GNU/Linux`.
        let text = node.text().unwrap_or_default().trim().chars();
        out.extend(text.map(|c| match c {
            ':' | '/' | '+' | '_' | '.' | '-' => c,
            c if c.is_ascii_alphanumeric() => c,
            _ => '_',
        }));
    }
    let known = CHILDREN.iter().find(|(name, _)| *name == tag);
    let known = known.map_or(&[][..], |(_, children)| children);
    let children = node.children().filter(Node::is_element);
    for child in children.filter(|child| known.contains(&child.tag_name().name())) {
        element(child, registers, out);
    }
    out.push_str(&format!("</{tag}>"));
    if matches!(tag, "architecture" | "reg" | "feature" | "target") {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_descriptions_are_unchanged_and_others_become_plain() {
        let text = "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"x\">\
            <target version=\"1.0\"><!-- \u{202e} --><architecture>aarch64:ilp32</architecture>\
            <osabi>GNU/Linux</osabi><feature name=\"org.gnu.gdb.aarch64.core\">\
            <flags id=\"f\" size=\"4\"><field name=\"a&#10;b\" start=\"0\" end=\"1\"/></flags>\
            <reg name=\"x_(0)\" bitsize=\"64\"/><reg name=\"x&#10;(0)\" bitsize=\"64\"/>\
            <reg name=\"_shell(&quot;ls&quot;)\" bitsize=\"64\" group=\"a;b\" type=\"f\"/>\
            <reg name=\"x0\" bitsize=\"64\" onload=\"1\"><reg name=\"inside\"/></reg>\
            <script/></feature></target>";
        let head = "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n";
        let wanted = format!(
            "{head}<target version=\"1.0\"><architecture>aarch64:ilp32</architecture>\n\
             <osabi>GNU/Linux</osabi><feature name=\"org.gnu.gdb.aarch64.core\">\
             <flags id=\"f\" size=\"4\"><field name=\"a_b\" start=\"0\" end=\"1\"></field></flags>\
             <reg name=\"x__0_\" bitsize=\"64\"></reg>\n\
             <reg name=\"x__0__2\" bitsize=\"64\"></reg>\n\
             <reg name=\"_shell__ls__\" bitsize=\"64\" group=\"a_b\" type=\"f\"></reg>\n\
             <reg name=\"x0\" bitsize=\"64\"></reg>\n</feature>\n</target>\n"
        );
        assert_eq!(rewritten(text).unwrap(), wanted);
        assert_eq!(rewritten(&wanted).unwrap(), wanted);
        assert!(rewritten("<target").is_err());
    }
}
