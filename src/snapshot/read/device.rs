//! Device files: `[device]`, `[regs]`, `[dump…]` (3.2), and the older `[global]` and
//! `[extendregs]`.

use super::{Ini, Reader, beside, other_sections};
use crate::snapshot::ini::{Entry, Section, quote};
use crate::snapshot::model::{Device, DeviceClass, Dump, Register, RegisterValue};
use crate::snapshot::registers::{parse_key, parse_u64};

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
        for entry in self.section(ini, "global", false).unwrap_or_default() {
            if entry.key.eq_ignore_ascii_case("core") {
                out.class = DeviceClass::Core;
                out.kind = entry.value.clone();
            } else {
                out.other.push((entry.key.clone(), entry.value.clone()));
            }
        }
        for entry in self.section(ini, "device", false).unwrap_or_default() {
            let value = entry.value.clone();
            match entry.key.to_ascii_lowercase().as_str() {
                "name" => out.name = value,
                "class" => out.class = class(value),
                "type" => out.kind = value,
                "location" => out.location = Some(value),
                _ => out.other.push((entry.key.clone(), value)),
            }
        }
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
        for section in sections.iter().filter(|s| is_dump(&s.name)) {
            out.dumps.extend(self.dump(ini, section));
        }
        out
    }

    fn register(&mut self, ini: &Ini, entry: &Entry) -> Option<Register> {
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

    fn dump(&mut self, ini: &Ini, section: &Section) -> Option<Dump> {
        const SECTION: &str = "3.2.3";
        let mut entries: Vec<&Entry> = section.entries.iter().collect();
        self.drop_repeated(ini, &mut entries);
        let mut out = Dump {
            section: section.name.clone(),
            place: ini.at(section.line),
            ..Dump::default()
        };
        let (mut address, mut bad, mut file_line) = (None, false, section.line);
        for entry in entries {
            let key = entry.key.to_ascii_lowercase();
            let number = match key.as_str() {
                "address" | "length" | "offset" => {
                    let number = parse_u64(&entry.value).filter(|_| !entry.value.is_empty());
                    if number.is_none() {
                        let found = quote(&entry.value);
                        let text = format!("{key}: expected a number, found {found}");
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
                "space" => out.space = Some(entry.value.clone()),
                "address" => address = number,
                "length" => out.length = number,
                "offset" => out.offset = number,
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
        if let Err(problem) = length {
            let text = format!("[{}] file {}: {problem}", section.name, quote(&out.file));
            self.error(ini.at(file_line), SECTION, text);
        }
        Some(out)
    }
}

fn class(written: String) -> DeviceClass {
    match written.to_ascii_lowercase().as_str() {
        "core" => DeviceClass::Core,
        "trace_source" => DeviceClass::TraceSource,
        "memory_space" | "memory" => DeviceClass::MemorySpace,
        _ => DeviceClass::Other(written),
    }
}
