//! Reads the trace metadata (3.3).

use super::{Ini, Reader, list, other_sections};
use crate::snapshot::files::beside;
use crate::snapshot::ini::{KeyValue, Section, quote};
use crate::snapshot::model::{Buffer, BufferFormat, CoreSource, SourceBuffers, Trace};
use crate::snapshot::registers::parse_u64;
use crate::snapshot::topology::Names;
use std::collections::{HashMap, HashSet};

impl Reader<'_> {
    pub(super) fn trace(&mut self, from: &Ini, entry: &KeyValue) -> Option<Trace> {
        let ini = match self.ini(&entry.value) {
            Ok(ini) => ini,
            Err(problem) => {
                let text = format!("metadata: {}: {problem}", quote(&entry.value));
                self.error(from.at(entry.line), "3.1.4", text);
                return None;
            }
        };
        let mut out = Trace {
            file: entry.value.clone(),
            place: ini.at(ini.line_of("trace_buffers")),
            ..Trace::default()
        };
        for entry in self.section(&ini, "timestamp", false).unwrap_or_default() {
            let place = ini.at(entry.line);
            if !entry.key.eq_ignore_ascii_case("frequency") {
                self.odd(place, "", format!("unknown key {}: ignored", entry.key));
                continue;
            }
            out.timestamp_frequency = parse_u64(&entry.value);
            if out.timestamp_frequency.is_none() {
                let found = quote(&entry.value);
                let text = format!("frequency: expected a number, found {found}");
                self.error(place, "", text);
            }
        }
        let mut ids: Vec<(String, u32)> = Vec::new();
        match self.section(&ini, "trace_buffers", false) {
            None => {
                let text = "expected a section [trace_buffers], found none".into();
                self.error(ini.at(1), "3.3.1", text);
            }
            Some(entries) => {
                for entry in entries {
                    if entry.key.eq_ignore_ascii_case("buffers") {
                        let names = list(&entry.value).into_iter();
                        ids.extend(names.map(|id| (id, entry.line)));
                    } else {
                        let text = format!("unknown key {}: ignored", entry.key);
                        self.odd(ini.at(entry.line), "3.3.1", text);
                    }
                }
            }
        }
        let names = Names::new(ini.document.sections.iter().map(|s| s.name.as_str()));
        let (mut seen, mut used) = (HashSet::new(), HashSet::new());
        let mut first_lines = HashMap::new();
        out.buffers.reserve_exact(ids.len());
        for (id, line) in &ids {
            if seen.insert(id) {
                let found = names.find(id);
                used.extend(found);
                let section = found.map(|at| &ini.document.sections[at]);
                first_lines.extend(section.map(|s| (s.name.to_ascii_lowercase(), s.line)));
                out.buffers.extend(self.buffer(&ini, section, id, *line));
            } else {
                let text = format!("buffer ID {id} again: ignored");
                self.error(ini.at(*line), "3.3.1", text);
            }
        }
        for entry in self
            .section(&ini, "core_trace_sources", true)
            .unwrap_or_default()
        {
            out.core_sources.push(CoreSource {
                core: entry.key.clone(),
                source: entry.value.clone(),
                place: ini.at(entry.line),
            });
        }
        if let Some(entries) = self.section(&ini, "source_buffers", true) {
            let mut lines = Vec::new();
            for entry in entries {
                lines.push(self.source_buffers(&ini, entry));
            }
            out.source_buffers = Some(lines);
        }
        let ids: HashSet<String> = ids.iter().map(|(id, _)| id.to_ascii_lowercase()).collect();
        for (at, section) in ini.document.sections.iter().enumerate() {
            let first = first_lines.get(&section.name.to_ascii_lowercase());
            if let Some(first) = first.filter(|_| !used.contains(&at)) {
                let text = format!("[{}] again, first in line {first}: ignored", section.name);
                self.error(ini.at(section.line), "3.3.2", text);
            }
        }
        out.other_sections = other_sections(&ini, |name| {
            let known = [
                "timestamp",
                "trace_buffers",
                "core_trace_sources",
                "source_buffers",
            ];
            known.iter().any(|k| name.eq_ignore_ascii_case(k))
                || ids.contains(&name.to_ascii_lowercase())
        });
        Some(out)
    }

    fn buffer(
        &mut self,
        ini: &Ini,
        section: Option<&Section>,
        id: &str,
        listed: u32,
    ) -> Option<Buffer> {
        const SECTION: &str = "3.3.2";
        let Some(section) = section else {
            let text = format!("buffer {id} has no section [{id}]");
            self.error(ini.at(listed), "3.3.1", text);
            return None;
        };
        let mut entries: Vec<&KeyValue> = section.entries.iter().collect();
        self.drop_repeated(ini, &mut entries);
        let mut out = Buffer {
            id: id.to_owned(),
            place: ini.at(section.line),
            ..Buffer::default()
        };
        let mut file_line = section.line;
        for entry in entries {
            match entry.key.to_ascii_lowercase().as_str() {
                "name" => out.name = entry.value.clone(),
                "format" => out.format = format(&entry.value),
                "file" => {
                    out.files = list(&entry.value);
                    file_line = entry.line;
                }
                _ => out.other.push((entry.key.clone(), entry.value.clone())),
            }
        }
        for file in &out.files {
            if let Err(problem) = beside(&ini.file, file, |path| self.files.length(path)) {
                let text = format!("[{id}] file {}: {problem}", quote(file));
                self.error(ini.at(file_line), SECTION, text);
            }
        }
        Some(out)
    }

    fn source_buffers(&mut self, ini: &Ini, entry: &KeyValue) -> SourceBuffers {
        let place = ini.at(entry.line);
        let (mut source, mut stream) = (entry.key.as_str(), None);
        if let Some((name, extra)) = entry.key.rsplit_once('(')
            && let Some(number) = extra.strip_suffix(')')
            && let Some((what, number)) = number.split_once(':')
            && what.trim().eq_ignore_ascii_case("stream")
        {
            stream = parse_u64(number).and_then(|n| u32::try_from(n).ok());
            match stream {
                Some(_) => source = name.trim_matches([' ', '\t']),
                None => {
                    let text = format!("expected (stream:N), found {}", quote(&entry.key));
                    self.error(place.clone(), "3.3.4", text);
                }
            }
        }
        SourceBuffers {
            source: source.to_owned(),
            stream,
            buffers: list(&entry.value),
            place,
        }
    }
}

fn format(written: &str) -> BufferFormat {
    match written.to_ascii_lowercase().as_str() {
        "coresight" => BufferFormat::Coresight,
        "source_data" => BufferFormat::SourceData,
        "dstream_coresight" => BufferFormat::DstreamCoresight,
        _ => BufferFormat::Other(written.to_owned()),
    }
}
