//! The lines of a console as text for a terminal.

use super::console::{Port, Said, What, lost};
use armsnap_snapshot::text::one_line;

/// Returns what stands before a line: the name of its source if that is given, and the port unless
/// it is stimulus port 0 of the only source. `numbered`: whether other ports are shown at all.
pub fn label(source: Option<&str>, port: Option<Port>, numbered: bool) -> String {
    let number = match port {
        None => None,
        Some(Port::Stimulus(0)) if source.is_none() => None,
        Some(_) if source.is_none() && !numbered => None,
        Some(Port::Stimulus(port)) => Some(format!("{port}")),
        Some(Port::Channel(Some(master), channel)) => Some(format!("{master}/{channel}")),
        Some(Port::Channel(None, channel)) => Some(format!("{channel}")),
    };
    match (source.map(one_line), number) {
        (None, None) => String::new(),
        (None, Some(number)) => format!("[{number}] "),
        (Some(source), None) => format!("[{source}] "),
        (Some(source), Some(number)) => format!("[{source} {number}] "),
    }
}

/// Returns text for a terminal: control characters other than tabs are escaped, and what is no text
/// is replaced.
pub fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let parts: Vec<_> = text.split('\t').map(one_line).collect();
    parts.join("\t")
}

/// Returns a line with its label, without an end.
pub fn text_line(source: Option<&str>, said: &Said) -> String {
    match &said.what {
        What::Text { port, bytes, .. } => label(source, Some(*port), true) + &shown(bytes),
        What::Lost(overflow) => label(source, None, true) + lost(*overflow),
    }
}
