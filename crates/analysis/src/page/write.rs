//! Writes the page: the template with style, script and data inserted.
//!
//! Names come from the snapshot and its programs. They appear as JSON in an element that browsers
//! do not run, with every character escaped that could end it; the script inserts them only as
//! text.

use super::data::PageData;
use std::io::{self, Write};

const TEMPLATE: &str = include_str!("parts/page.html");
const STYLE: &str = include_str!("parts/page.css");
const SCRIPT: [&str; 5] = [
    include_str!("parts/unpack.js"),
    include_str!("parts/dom.js"),
    include_str!("parts/timeline.js"),
    include_str!("parts/code.js"),
    include_str!("parts/main.js"),
];

/// Writes a page.
///
/// # Errors
///
/// If `out` cannot be written.
pub fn write_page(data: &PageData, mut out: impl Write) -> io::Result<()> {
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "title" => out.write_all(html(&data.title).as_bytes())?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "data" => serde_json::to_writer(InElement(&mut out), data)?,
            "script" => {
                out.write_all(b"\"use strict\";\n")?;
                for part in SCRIPT {
                    out.write_all(part.as_bytes())?;
                }
            }
            _ => {}
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Text as HTML (HTML standard, section 13.3, "Escaping a string").
fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON for a `script` element: `<` occurs only in strings, where `\u003c` means the same.
struct InElement<W>(W);

impl<W: Write> Write for InElement<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut parts = bytes.split(|byte| *byte == b'<');
        if let Some(first) = parts.next() {
            self.0.write_all(first)?;
        }
        for part in parts {
            self.0.write_all(b"\\u003c")?;
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> String {
        let data = PageData {
            title: name.to_owned(),
            made_by: String::new(),
            totals: Vec::new(),
            instructions: 0,
            functions: Vec::new(),
            files: Vec::new(),
            code: Default::default(),
            blocks: Vec::new(),
            texts: vec![name.to_owned()],
            time_base: "0".to_owned(),
            tracks: Vec::new(),
            exceptions: Vec::new(),
            gaps: Vec::new(),
            notes: Vec::new(),
        };
        let mut out = Vec::new();
        write_page(&data, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hostile_names_neither_end_an_element_nor_fill_another_place() {
        let plain = page("name");
        let count = |page: &str, what: &str| page.matches(what).count();
        let names = [
            "</script><script>alert(1)</script>",
            "<!--<script>",
            "</title><img src=x onerror=alert(1)>",
            "{{script}}{{data}}",
            "\" onload='alert(1)' &lt;",
        ];
        for name in names {
            let hostile = page(name);
            for what in ["<", "</script", "<script", "<!--", "use strict"] {
                assert_eq!(count(&hostile, what), count(&plain, what), "{name}: {what}");
            }
            let start = hostile.find("id=\"data\">").unwrap() + "id=\"data\">".len();
            let json = hostile[start..].split_once("</script>").unwrap().0;
            let data: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(data["texts"][0], name);
        }
    }

    #[test]
    fn the_page_refers_to_nothing_outside_of_it() {
        let page = page("name");
        for what in [
            "http:",
            "https:",
            "src=",
            "url(",
            "@import",
            "import(",
            "fetch(",
            "innerHTML",
        ] {
            assert!(!page.contains(what), "{what}");
        }
    }
}
