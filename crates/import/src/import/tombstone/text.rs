//! Tombstones as text, in a file or in the log (Android, system/core, debuggerd/libdebuggerd,
//! tombstone_proto_to_text.cpp, and tombstone.cpp of older versions).

use super::report::{Frame, Mapping, Report, Thread, untagged};
use crate::import::note::TombstoneNote;
use armsnap_snapshot::snapshot::signals::Signal;

/// The number of bytes of a log that are read.
const SEARCHED: usize = 64 << 20;
/// The longest line that is looked at.
const LONGEST_LINE: usize = 2048;
/// The maximum length of what the program says, in characters.
const LONGEST_MESSAGE: usize = 400;
/// The maximum number of registers of a thread, and of frames that are used.
const MAX_REGISTERS: usize = 128;
const MAX_FRAMES: usize = 256;

/// Why a tombstone of a program for another architecture is refused.
pub fn other(architecture: &str) -> String {
    format!("tombstone of a program for {architecture}: expected arm64 or arm")
}

/// What the lines after a title are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Registers,
    Backtrace,
    Stack,
    Memory,
    Maps,
    Other,
}

/// Whether a log has a tombstone: the line that names process and thread.
pub fn has_tombstone(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(SEARCHED)];
    let mark = memchr::memmem::Finder::new(">>> ");
    bytes.split(|byte| *byte == b'\n').any(|line| {
        let line = &line[..line.len().min(LONGEST_LINE)];
        mark.find(line).is_some() && header(message(&String::from_utf8_lossy(line))).is_some()
    })
}

/// Reads the first tombstone in a log.
///
/// # Errors
///
/// If it is of another architecture.
pub fn read(bytes: &[u8]) -> Result<Report, String> {
    let bytes = &bytes[..bytes.len().min(SEARCHED)];
    let mut out = Report::default();
    // By the line with the architecture, or else by the width of the first register.
    let mut wide = None;
    let mut section = Section::Other;
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
        let line = message(&line);
        if line.starts_with("*** *** ***") && !out.threads.is_empty() {
            out.notes.push(TombstoneNote::More);
            break;
        }
        if let Some(name) = line.strip_prefix("ABI: '") {
            let name = name.trim_end_matches('\'');
            wide = Some(match name {
                "arm" => false,
                "arm64" => true,
                _ => return Err(other(name)),
            });
            continue;
        }
        if let Some((tid, name, command)) = header(line) {
            if out.threads.is_empty() {
                out.failed = tid;
            }
            if out.command.is_empty() {
                out.command = command.to_owned();
            }
            let (name, registers, frames) = (name.to_owned(), Vec::new(), Vec::new());
            out.threads.push(Thread {
                tid,
                name,
                registers,
                frames,
            });
            section = Section::Registers;
            continue;
        }
        if out.threads.is_empty() {
            if let Some(line) = line.strip_prefix("Cmdline: ") {
                out.command = line.split(' ').next().unwrap_or_default().to_owned();
            }
            continue;
        }
        let is_title = line.starts_with(|first: char| first != ' ' && first != '\t');
        // Where the fault address falls in the map; old versions do not indent all maps.
        let is_title = is_title && !line.starts_with("--->");
        if is_title {
            section = out.title(line, section, wide);
            continue;
        }
        match section {
            Section::Registers => out.register_line(line, &mut wide),
            Section::Backtrace => out.frame_line(line),
            Section::Stack => out.stack_line(line, wide == Some(true)),
            Section::Memory => out.memory_line(line, wide == Some(true)),
            Section::Maps => out.mappings.extend(mapping(line)),
            Section::Other => {}
        }
    }
    out.wide = wide == Some(true);
    Ok(out)
}

impl Report {
    /// Reads a line that is not indented: most are titles of sections.
    fn title(&mut self, line: &str, section: Section, wide: Option<bool>) -> Section {
        if line.starts_with("backtrace:") {
            return Section::Backtrace;
        }
        if line.starts_with("stack:") {
            return Section::Stack;
        }
        if line.starts_with("memory near ") || line.starts_with("code around ") {
            return Section::Memory;
        }
        if line.starts_with("memory map") {
            return Section::Maps;
        }
        if section != Section::Registers {
            return Section::Other;
        }
        let is_first = self.threads.len() == 1;
        if let Some(rest) = line.strip_prefix("signal ").filter(|_| is_first) {
            // The width is known by the line with the architecture; old versions print addresses
            // of the width of the program.
            let wide = wide.unwrap_or_else(|| rest.len() > 16 && digits_of_address(rest) > 8);
            self.signal = self.signal.take().or_else(|| signal(rest, wide));
        } else if let Some(rest) = line.strip_prefix("Abort message: ") {
            self.notes.push(TombstoneNote::Abort(quoted(rest)));
        } else if let Some(rest) = line.strip_prefix("Cause: ") {
            self.notes.push(TombstoneNote::Cause(quoted(rest)));
        }
        Section::Registers
    }

    /// Reads `x0  0000000000000000  x1  …`; a line with anything else does not list registers.
    fn register_line(&mut self, line: &str, wide: &mut Option<bool>) {
        let mut words = line.split_whitespace();
        let mut found = Vec::new();
        while let Some(name) = words.next() {
            let Some(digits) = words.next().filter(|digits| is_hex(digits)) else {
                return;
            };
            let Ok(value) = u128::from_str_radix(digits, 16) else {
                return;
            };
            let first = *wide.get_or_insert(digits.len() == 16 && name.starts_with('x'));
            if super::named(name, first).is_none() {
                return;
            }
            found.push((name.to_owned(), value));
        }
        if let Some(thread) = self.threads.last_mut()
            && thread.registers.len() < MAX_REGISTERS
        {
            thread.registers.extend(found);
        }
    }

    /// Reads `#00 pc 00d932b4  /system/lib/libc.so (function+4) (BuildId: …)`. The address in memory
    /// of the first frame is the PC.
    fn frame_line(&mut self, line: &str) {
        let Some(thread) = self.threads.last_mut() else {
            return;
        };
        let words = line.trim_start().strip_prefix('#');
        let Some((_, rest)) = words.and_then(|words| words.split_once("pc ")) else {
            return;
        };
        let Some((linked, rest)) = rest.split_once(' ') else {
            return;
        };
        let Ok(linked) = u64::from_str_radix(linked.trim_start_matches("0x"), 16) else {
            return;
        };
        if thread.frames.len() >= MAX_FRAMES {
            return;
        }
        let (rest, build_id) = build_id(rest.trim());
        let path = rest.split(" (").next().unwrap_or_default();
        let pc = thread.value("pc").filter(|_| thread.frames.is_empty());
        thread.frames.push(Frame {
            pc,
            linked,
            path: path.trim().to_owned(),
            build_id: build_id.to_owned(),
        });
    }

    /// Reads `#00  488769b8  49ff19b0  [anon:libc_malloc]`, with a number or without.
    fn stack_line(&mut self, line: &str, wide: bool) {
        let mut words = line.split_whitespace().peekable();
        words.next_if(|word| word.starts_with('#'));
        let mut word = || words.next().and_then(|digits| word(digits, wide));
        let (Some(address), Some(value)) = (word(), word()) else {
            return;
        };
        self.add_memory(untagged(address, wide), &value.to_le_bytes()[..size(wide)]);
    }

    /// Reads `48876a04 48221e68 3f800000 -------- 3f800000  characters`.
    fn memory_line(&mut self, line: &str, wide: bool) {
        let words = line.trim();
        let words = words.split_once("  ").map_or(words, |(words, _)| words);
        let mut words = words.split(' ');
        let Some(address) = words.next().and_then(|digits| word(digits, wide)) else {
            return;
        };
        let address = untagged(address, wide);
        // Lines have 16 bytes.
        for (index, digits) in words.take(16 / size(wide)).enumerate() {
            let at = address.checked_add((index * size(wide)) as u64);
            let Some((at, value)) = at.zip(word(digits, wide)) else {
                continue;
            };
            self.add_memory(at, &value.to_le_bytes()[..size(wide)]);
        }
    }
}

const fn size(wide: bool) -> usize {
    if wide { 8 } else { 4 }
}

fn is_hex(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A word, with all its digits.
fn word(digits: &str, wide: bool) -> Option<u64> {
    let is_word = digits.len() == 2 * size(wide) && is_hex(digits);
    is_word
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The text of a line of the log, without what the logger puts before it:
/// `06-20 15:54:35.521 23889 23889 I DEBUG   : `, `I/DEBUG   (  171): `.
fn message(line: &str) -> &str {
    let line = line.trim_end();
    let Some((before, rest)) = line.split_once("DEBUG") else {
        return line;
    };
    let is_tag = before.len() < 64 && before.ends_with([' ', '/']);
    let Some((pid, text)) = rest.split_once(':').filter(|_| is_tag) else {
        return line;
    };
    let is_pid = |c: char| c.is_ascii_digit() || matches!(c, ' ' | '(' | ')');
    match pid.chars().all(is_pid) {
        true => text.strip_prefix(' ').unwrap_or(text),
        false => line,
    }
}

/// Reads `pid: 15094, tid: 15120, name: SDLThread  >>> com.github.urho3d <<<`: the number and the
/// name of the thread, and that of the process.
fn header(line: &str) -> Option<(u32, &str, &str)> {
    let (_, rest) = line.strip_prefix("pid: ")?.split_once(", tid: ")?;
    let (rest, command) = rest.rsplit_once(">>> ")?;
    let (tid, name) = rest.split_once([',', ' ']).unwrap_or((rest, ""));
    let name = name.trim();
    let name = name.strip_prefix("name: ").unwrap_or(name).trim();
    let command = command.trim_end().trim_end_matches("<<<").trim();
    let name = if name.is_empty() { "thread" } else { name };
    Some((tid.parse().ok()?, name, command))
}

/// Reads `11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x168 (read)`.
fn signal(rest: &str, wide: bool) -> Option<Signal> {
    let number = rest.split([' ', ',']).next()?.parse().ok()?;
    let code = rest.split_once("code ").map(|(_, rest)| rest);
    let code = code.and_then(|rest| rest.split([' ', ',']).next()?.parse().ok());
    let address = rest.split_once("fault addr ").and_then(|(_, rest)| {
        let digits = rest.split([' ', ',']).next()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    });
    Signal::raised(number, code?, address, wide)
}

/// The number of digits of the fault address, which old versions print with all of them.
fn digits_of_address(rest: &str) -> usize {
    let address = rest.split_once("fault addr ").map_or("", |(_, rest)| rest);
    let digits = address.trim_start_matches("0x").bytes();
    digits.take_while(u8::is_ascii_hexdigit).count()
}

/// What the program says, without the quotes.
fn quoted(text: &str) -> String {
    let text = text.strip_prefix('\'').unwrap_or(text);
    let text = text.strip_suffix('\'').unwrap_or(text);
    text.chars().take(LONGEST_MESSAGE).collect()
}

/// Splits `… (BuildId: 53b1…)…` into what is before it, and the digits.
fn build_id(text: &str) -> (&str, &str) {
    let Some((before, after)) = text.split_once(" (BuildId: ") else {
        return (text, "");
    };
    (before, after.split(')').next().unwrap_or_default())
}

/// Reads `0d5e4000-0d5e5fff r-x  1000  2000  /system/bin/app (BuildId: …) (load bias 0x1000)`;
/// nothing if no file is mapped.
fn mapping(line: &str) -> Option<Mapping> {
    let line = line.trim_start_matches("--->").trim_start();
    let (place, rest) = line.split_once(' ')?;
    let (first, last) = place.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(&digits.replace('\'', ""), 16).ok();
    let (first, last) = (number(first)?, number(last)?);
    let mut words = rest.trim_start().splitn(2, ' ');
    let access = words.next()?;
    let rest = words.next()?.trim_start();
    let (offset, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.trim_start().split_once(' ')?;
    let (path, build_id) = build_id(rest.trim());
    let path = path.split(" (load bias ").next().unwrap_or_default();
    let is_file = path.starts_with('/') && access.len() == 3;
    is_file.then(|| Mapping {
        first,
        length: last.saturating_sub(first).saturating_add(1),
        offset: number(offset).unwrap_or(0),
        code: access.ends_with('x'),
        path: path.to_owned(),
        build_id: build_id.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_marks_are_looked_at_once() {
        // With each mark looked at alone, it takes hours.
        let mut log = b">>> ".repeat(4 << 20);
        assert!(!has_tombstone(&log));
        log.extend(b"\npid: 1, tid: 2, name: main  >>> app <<<\n");
        assert!(has_tombstone(&log));
    }
}
