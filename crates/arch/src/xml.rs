//! Parses untrusted XML documents within limits.
//!
//! The parser recurses into nested elements and compares every attribute of an element with the
//! ones before it. A scan of the document before parsing bounds both. Independent of the meaning
//! of documents.

use roxmltree::{Document, ParsingOptions};

/// Maximum nesting of elements. A target description has four levels.
const DEPTH: usize = 64;
/// Maximum number of attributes of an element. A register has at most seven.
const ATTRIBUTES: usize = 64;
/// Maximum number of nodes; more than any target description has.
const NODES: u32 = 1 << 20;
/// Maximum number of nodes of a large document.
const MANY_NODES: u32 = 1 << 24;

/// An error that prevents parsing a document.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// The document is malformed.
    #[error(transparent)]
    Malformed(#[from] roxmltree::Error),
    /// The document exceeds a limit.
    #[error("line {line}: expected {limit}, found more")]
    Limit {
        /// The line of the markup that exceeds it.
        line: usize,
        /// The limit.
        limit: Limit,
    },
}

/// A limit of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// A document type without definitions: target descriptions have none, and the contents of
    /// entities would bypass the limits.
    #[error("a document type without definitions")]
    Definitions,
    /// Attributes of an element.
    #[error("at most {ATTRIBUTES} attributes of an element")]
    Attributes,
    /// Nested elements.
    #[error("at most {DEPTH} nested elements")]
    Depth,
}

/// Parses a document.
///
/// # Errors
///
/// Returns an error if the document is malformed or exceeds a limit.
pub fn read(text: &str) -> Result<Document<'_>, XmlError> {
    read_nodes(text, NODES)
}

/// Parses a document that may be large, such as the description of a microcontroller.
///
/// # Errors
///
/// Returns an error if the document is malformed or exceeds a limit.
pub fn read_large(text: &str) -> Result<Document<'_>, XmlError> {
    read_nodes(text, MANY_NODES)
}

fn read_nodes(text: &str, nodes_limit: u32) -> Result<Document<'_>, XmlError> {
    bounded(text)?;
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit,
    };
    Ok(Document::parse_with_options(text, options)?)
}

/// Scans the markup of a document (XML 1.0, section 2). Malformed markup may hide elements from
/// this scan, but the parser rejects it before it reaches them.
fn bounded(text: &str) -> Result<(), XmlError> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(start) = memchr::memchr(b'<', &text.as_bytes()[at..]) {
        at += start;
        let rest = &text[at..];
        let after = |end: &str| rest.find(end).map_or(rest.len(), |found| found + end.len());
        at += if rest.starts_with("<!--") {
            after("-->")
        } else if rest.starts_with("<![CDATA[") {
            after("]]>")
        } else if rest.starts_with("<?") {
            after("?>")
        } else if rest.starts_with("</") {
            depth = depth.saturating_sub(1);
            after(">")
        } else {
            let tag = Tag::read(rest);
            if tag.defines && rest.starts_with("<!") {
                return Err(exceeds(text, at, Limit::Definitions));
            }
            if tag.attributes > ATTRIBUTES {
                return Err(exceeds(text, at, Limit::Attributes));
            }
            if !tag.closed && !rest.starts_with("<!") {
                depth += 1;
            }
            if depth > DEPTH {
                return Err(exceeds(text, at, Limit::Depth));
            }
            tag.length
        };
    }
    Ok(())
}

fn exceeds(text: &str, at: usize, limit: Limit) -> XmlError {
    let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count();
    XmlError::Limit { line, limit }
}

/// A start tag, or a document type declaration.
#[derive(Default)]
struct Tag {
    length: usize,
    attributes: usize,
    /// It is an empty element (`<a/>`).
    closed: bool,
    /// It contains a bracket, which starts the definitions of a document type.
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

    fn nested(levels: usize, start: &str, end: &str) -> String {
        format!("{}{}", start.repeat(levels), end.repeat(levels))
    }

    #[test]
    fn hidden_nesting_is_bounded() {
        for (start, end) in [
            ("<a>", "</a>"),
            ("<a><!-- </a> -->", "</a>"),
            ("<a><![CDATA[</a>]]>", "</a>"),
            ("<a><?x </a>?>", "</a>"),
            ("<a b='/>'>", "</a>"),
            ("<a b=\"'/>\" >", "</a>"),
        ] {
            assert!(read(&nested(60, start, end)).is_ok(), "{start}");
            for levels in [65, 20_000, 200_000] {
                let error = read(&nested(levels, start, end)).unwrap_err().to_string();
                assert!(error.contains("64 nested elements"), "{error}");
            }
        }
        // The parser rejects malformed markup that the scan overlooks.
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
    fn entities_do_not_bypass_the_limits() {
        let inside = nested(20_000, "<a>", "</a>");
        let text = format!("<!DOCTYPE a [<!ENTITY e \"{inside}\">]><a>&e;</a>");
        assert!(
            read(&text)
                .unwrap_err()
                .to_string()
                .contains("without definitions")
        );
        assert!(read("<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target/>").is_ok());
    }

    #[test]
    fn attributes_are_bounded() {
        let element = |count: usize| {
            let attributes = (0..count).map(|n| format!(" a{n}='x'"));
            format!("<a{}/>", attributes.collect::<String>())
        };
        assert!(read(&element(64)).is_ok());
        let error = read(&format!("<r>\n{}</r>", element(65)))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "line 2: expected at most 64 attributes of an element, found more"
        );
    }
}
