//! XML documents from outside, read within bounds.
//!
//! The parser calls itself for every element within another and compares every attribute of an
//! element with those before it. A document is looked through once before it is parsed, so that
//! neither is done out of proportion to its size. Knows nothing of what documents mean.

use roxmltree::{Document, ParsingOptions};

/// Elements within each other. A target description has four levels.
const DEPTH: usize = 64;
/// Attributes of one element. A register has seven at most.
const ATTRIBUTES: usize = 64;
/// More elements than any description has.
const NODES: u32 = 1 << 20;

/// Parses a document; the error is text for the user.
///
/// A document type that defines anything (entities among it) is refused: target descriptions
/// have none, and what an entity holds would escape the bounds.
pub fn read(text: &str) -> Result<Document<'_>, String> {
    bounded(text)?;
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: NODES,
    };
    Document::parse_with_options(text, options).map_err(|error| error.to_string())
}

/// Looks through the markup of a document (XML 1.0, section 2). What is malformed the parser
/// meets before anything that is overlooked here.
fn bounded(text: &str) -> Result<(), String> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(begin) = memchr::memchr(b'<', &text.as_bytes()[at..]) {
        at += begin;
        let rest = &text[at..];
        let behind = |end: &str| rest.find(end).map_or(rest.len(), |found| found + end.len());
        at += if rest.starts_with("<!--") {
            behind("-->")
        } else if rest.starts_with("<![CDATA[") {
            behind("]]>")
        } else if rest.starts_with("<?") {
            behind("?>")
        } else if rest.starts_with("</") {
            depth = depth.saturating_sub(1);
            behind(">")
        } else {
            let tag = Tag::read(rest);
            if tag.defines && rest.starts_with("<!") {
                return Err(wanted(text, at, "a document type without definitions"));
            }
            if tag.attributes > ATTRIBUTES {
                let what = format!("at most {ATTRIBUTES} attributes of an element");
                return Err(wanted(text, at, &what));
            }
            if !tag.closed && !rest.starts_with("<!") {
                depth += 1;
            }
            if depth > DEPTH {
                let what = format!("at most {DEPTH} elements within each other");
                return Err(wanted(text, at, &what));
            }
            tag.length
        };
    }
    Ok(())
}

fn wanted(text: &str, at: usize, what: &str) -> String {
    let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count();
    format!("line {line}: expected {what}, found more")
}

/// The begin of an element, or a document type.
#[derive(Default)]
struct Tag {
    length: usize,
    attributes: usize,
    /// It has no end of its own (`<a/>`).
    closed: bool,
    /// It has a bracket, behind which a document type defines things.
    defines: bool,
}

impl Tag {
    fn read(text: &str) -> Self {
        let mut tag = Self::default();
        let mut quote = None;
        let mut before = 0;
        for &byte in text.as_bytes() {
            tag.length += 1;
            match (quote, byte) {
                (Some(open), _) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    tag.attributes += 1;
                }
                (None, b'[') => {
                    tag.defines = true;
                    break;
                }
                (None, b'>') => {
                    tag.closed = before == b'/';
                    break;
                }
                _ => {}
            }
            before = byte;
        }
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize, begin: &str, end: &str) -> String {
        format!("{}{}", begin.repeat(levels), end.repeat(levels))
    }

    #[test]
    fn depth_is_bounded_whatever_hides_it() {
        for (begin, end) in [
            ("<a>", "</a>"),
            ("<a><!-- </a> -->", "</a>"),
            ("<a><![CDATA[</a>]]>", "</a>"),
            ("<a><?x </a>?>", "</a>"),
            ("<a b='/>'>", "</a>"),
            ("<a b=\"'/>\" >", "</a>"),
        ] {
            assert!(read(&nested(60, begin, end)).is_ok(), "{begin}");
            for levels in [65, 20_000, 200_000] {
                let error = read(&nested(levels, begin, end)).unwrap_err();
                assert!(error.contains("64 elements within each other"), "{error}");
            }
        }
        // The parser refuses what is no element where the bound would overlook it.
        for odd in [
            nested(20_000, "</a><a>", ""),
            nested(20_000, "<a></b>", ""),
            nested(20_000, "<a [>", ""),
            nested(20_000, "<a/", ">"),
            nested(20_000, "<a '", ""),
            nested(20_000, "<!a>", ""),
            nested(20_000, "<", ""),
        ] {
            assert!(read(&odd).is_err(), "{:.20}", odd);
        }
    }

    #[test]
    fn entities_do_not_open_a_way_around() {
        let inside = nested(20_000, "<a>", "</a>");
        let text = format!("<!DOCTYPE a [<!ENTITY e \"{inside}\">]><a>&e;</a>");
        assert!(read(&text).unwrap_err().contains("without definitions"));
        assert!(read("<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target/>").is_ok());
    }

    #[test]
    fn attributes_are_bounded() {
        let element = |count: usize| {
            let attributes = (0..count).map(|n| format!(" a{n}='x'"));
            format!("<a{}/>", attributes.collect::<String>())
        };
        assert!(read(&element(64)).is_ok());
        let error = read(&format!("<r>\n{}</r>", element(65))).unwrap_err();
        assert_eq!(
            error,
            "line 2: expected at most 64 attributes of an element, found more"
        );
    }
}
