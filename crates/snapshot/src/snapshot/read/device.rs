//! Reads device files: `[device]`, `[regs]`, `[dump…]` (3.2), and the older `[global]` and
//! `[extendregs]`.

use super::{Ini, Reader, other_sections};
use crate::snapshot::files::beside;
use crate::snapshot::ini::{KeyValue, Section, quote};
use crate::snapshot::model::{Device, DeviceClass, Dump, Register, RegisterValue};
use crate::snapshot::registers::{parse_key, parse_u64};
use armsnap_arch::arch::Space;
use std::collections::HashSet;

impl Reader<'_> {
    pub(super) fn device(&mut self, ini: &Ini) -> Device {
        let is_dump = |name: &str| {
            name.get(..4)
                .is_some_and(|head| head.eq_ignore_ascii_case("dump"))
        };
        let mut out = Device {
            place: ini.at(1),
            other_sections: other_sections(ini, |name| {
                let known = ["device", "global", "regs", "extendregs"];
                known.iter().any(|k| name.eq_ignore_ascii_case(k)) || is_dump(name)
            }),
            ..Device::default()
        };
        let sections = &ini.document.sections;
        let head = ["device", "global"].map(|name| ini.line_of(name));
        out.place = ini.at(head[0].max(head[1]));
        self.head(ini, &mut out);
        for entry in self.section(ini, "regs", true).unwrap_or_default() {
            out.registers.extend(self.register(ini, entry));
        }
        for entry in self.section(ini, "extendregs", true).unwrap_or_default() {
            let mut register = self.register(ini, entry);
            if let Some(register) = &mut register {
                register.id = register.id.or_else(|| parse_u64(&register.name));
            }
            out.registers.extend(register);
        }
        let mut numbers = Decimals::default();
        for section in sections.iter().filter(|s| is_dump(&s.name)) {
            out.dumps.extend(self.dump(ini, section, &mut numbers));
        }
        if let Some((line, text)) = numbers.odd() {
            self.odd(ini.at(line), "3.2.3", text);
        }
        out
    }

    /// Reads `[device]` and the older `[global]`, whose `core` is the type of a core.
    fn head(&mut self, ini: &Ini, out: &mut Device) {
        let mut entries = self.section(ini, "device", true).unwrap_or_default();
        let older = self.section(ini, "global", true).unwrap_or_default();
        let older_lines: HashSet<u32> = older.iter().map(|entry| entry.line).collect();
        entries.extend(older);
        self.drop_repeated(ini, &mut entries);
        for entry in entries {
            let value = entry.value.clone();
            match entry.key.to_ascii_lowercase().as_str() {
                "name" => out.name = value,
                "class" => out.class = class(value),
                "type" => out.kind = value,
                "location" => out.location = Some(value),
                "core" if older_lines.contains(&entry.line) => {
                    if out.kind.is_empty() {
                        out.kind = value;
                    } else if out.kind != value {
                        let text = format!("core {value}: ignored, the type is {}", out.kind);
                        self.odd(ini.at(entry.line), "", text);
                    }
                    if out.class == DeviceClass::Missing {
                        out.class = DeviceClass::Core;
                    }
                }
                _ => out.other.push((entry.key.clone(), value)),
            }
        }
    }

    fn register(&mut self, ini: &Ini, entry: &KeyValue) -> Option<Register> {
        const SECTION: &str = "3.2.2";
        let place = ini.at(entry.line);
        let key = parse_key(&entry.key);
        for odd in key.odd {
            self.odd(place.clone(), SECTION, format!("{}: {odd}", entry.key));
        }
        if key.name.is_empty() {
            let text = format!("expected a register's name, found {}", quote(&entry.key));
            self.error(place, SECTION, text);
            return None;
        }
        let Some(value) = RegisterValue::parse(&entry.value, key.size) else {
            let text = format!(
                "{}: expected a number, found {}",
                key.name,
                quote(&entry.value)
            );
            self.error(place, SECTION, text);
            return None;
        };
        let (bits, wanted) = (value.significant_bits(), key.size.unwrap_or(32));
        if bits > u64::from(wanted) {
            let text = match key.size {
                Some(_) => format!("{}: {bits} bits do not fit its {wanted}", key.name),
                None => format!(
                    "{}: {bits} bits do not fit the 32 of a register without size; kept whole",
                    key.name
                ),
            };
            self.odd(place.clone(), SECTION, text);
        }
        Some(Register {
            name: key.name,
            id: key.id,
            size: key.size,
            value,
            place,
        })
    }

    fn dump(&mut self, ini: &Ini, section: &Section, numbers: &mut Decimals) -> Option<Dump> {
        const SECTION: &str = "3.2.3";
        let mut entries: Vec<&KeyValue> = section.entries.iter().collect();
        self.drop_repeated(ini, &mut entries);
        let mut out = Dump {
            section: section.name.clone(),
            place: ini.at(section.line),
            ..Dump::default()
        };
        let (mut address, mut bad, mut file_line) = (None, false, section.line);
        let mut decimals: Vec<(&str, &KeyValue)> = Vec::new();
        for entry in entries {
            let key = entry.key.to_ascii_lowercase();
            let number = match key.as_str() {
                "address" | "length" | "offset" => {
                    let number = parse_u64(&entry.value).filter(|_| !entry.value.is_empty());
                    if number.is_none() {
                        let found = quote(&entry.value);
                        let hint = match hex_digits(&entry.value) {
                            true => "; hexadecimal numbers begin with 0x",
                            false => "",
                        };
                        let text = format!("{key}: expected a number, found {found}{hint}");
                        self.error(ini.at(entry.line), SECTION, text);
                        bad |= key != "length";
                    }
                    number
                }
                _ => None,
            };
            match key.as_str() {
                "file" => {
                    out.file = entry.value.clone();
                    file_line = entry.line;
                }
                "space" => {
                    if Space::parse(&entry.value).is_none() {
                        let text = format!(
                            "[{}] unknown space {}: its memory is not read",
                            section.name,
                            quote(&entry.value)
                        );
                        self.error(ini.at(entry.line), SECTION, text);
                    }
                    out.space = Some(entry.value.clone());
                }
                "address" => {
                    address = number;
                    decimals.push(("address", entry));
                }
                "length" => {
                    out.length = number;
                    decimals.push(("length", entry));
                }
                "offset" => {
                    out.offset = number;
                    decimals.push(("offset", entry));
                }
                _ => out.other.push((entry.key.clone(), entry.value.clone())),
            }
        }
        if bad {
            return None;
        }
        let Some(address) = address else {
            let text = format!("[{}] has no address: ignored", section.name);
            self.error(out.place, SECTION, text);
            return None;
        };
        out.address = address;
        let length = beside(&ini.file, &out.file, |path| self.files.length(path));
        for (key, entry) in decimals {
            let there = match (key, &length) {
                ("length", Ok(length)) => length.checked_sub(out.offset.unwrap_or(0)),
                _ => None,
            };
            numbers.add(key, entry, there);
        }
        if let Err(problem) = length {
            let text = format!("[{}] file {}: {problem}", section.name, quote(&out.file));
            self.error(ini.at(file_line), SECTION, text);
        }
        Some(out)
    }
}

/// Numbers of a device's dumps that are written without 0x.
#[derive(Default)]
struct Decimals {
    all: usize,
    /// The numbers that look like hexadecimal.
    odd: usize,
    first: Option<(u32, String)>,
}

impl Decimals {
    fn add(&mut self, key: &str, entry: &KeyValue, there: Option<u64>) {
        let text = &entry.value;
        if text.len() < 4 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        self.all += 1;
        if let Some(hex) = meant_as_hex(text, there) {
            self.odd += 1;
            self.first.get_or_insert_with(|| {
                let text = format!(
                    "{key}: {text} is decimal and looks like hexadecimal, which is written {hex:#x}"
                );
                (entry.line, text)
            });
        }
    }

    /// Returns a message on these numbers, with the line of the first one; `None` if the file
    /// normally uses decimal numbers.
    fn odd(self) -> Option<(u32, String)> {
        let (line, text) = self.first.filter(|_| 2 * self.odd >= self.all)?;
        Some(match self.odd - 1 {
            0 => (line, text),
            more => (line, format!("{text} (and {more} more in this file)")),
        })
    }
}

/// Whether a text is a hexadecimal number without 0x.
fn hex_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the number probably intended by a decimal one: if read as hexadecimal it is rounder,
/// like addresses and sizes, or it equals the size `there` and the decimal reading does not.
fn meant_as_hex(text: &str, there: Option<u64>) -> Option<u64> {
    let (decimal, hex) = (parse_u64(text)?, u64::from_str_radix(text, 16).ok()?);
    if there == Some(decimal) {
        return None;
    }
    let (round, as_hex) = (decimal.trailing_zeros(), hex.trailing_zeros());
    // Addresses of 32 and 64 bits are written with eight and sixteen digits.
    let address = matches!(text.len(), 8 | 16) && as_hex >= 2;
    let rounder = as_hex > round && (as_hex >= 8 || address);
    (rounder || there == Some(hex)).then_some(hex)
}

fn class(written: String) -> DeviceClass {
    match written.to_ascii_lowercase().as_str() {
        "core" => DeviceClass::Core,
        "trace_source" => DeviceClass::TraceSource,
        "memory_space" | "memory" => DeviceClass::MemorySpace,
        _ => DeviceClass::Other(written),
    }
}
