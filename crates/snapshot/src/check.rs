//! Checks a snapshot for missing requirements of the specification and for unusual contents (Debug
//! and Trace Snapshot File Format 0.2, sections 3 and 4).
//!
//! The reader's notes become findings too. The checks use the registers of the architectures, and the
//! structures of real-time operating systems; they do not decode trace.

mod cores;
mod devices;
mod kernel;
mod trace;

pub use cores::{Placeholders, placeholder};

use crate::snapshot::OpenSnapshot;
use crate::snapshot::model::{FileLine, Severity, Snapshot};
use crate::snapshot::topology::DeviceNames;
use serde::Serialize;
use serde::ser::SerializeStruct;
use std::collections::HashMap;
use std::fmt;

/// The purpose that requires something (section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Need {
    /// For every snapshot.
    #[serde(rename = "required")]
    Required,
    /// For viewing the machine's state.
    #[serde(rename = "required for debug")]
    RequiredForDebug,
    /// For decoding trace.
    #[serde(rename = "required for trace")]
    RequiredForTrace,
    /// Not required: only unusual or not recommended.
    #[serde(rename = "advice")]
    Advice,
}

impl Need {
    /// Returns the need in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::RequiredForDebug => "required for debug",
            Self::RequiredForTrace => "required for trace",
            Self::Advice => "advice",
        }
    }
}

/// Something wrong, missing or unusual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The position in a file.
    pub place: FileLine,
    /// The severity; an error makes `check` fail.
    pub severity: Severity,
    /// The purpose that requires it.
    pub need: Need,
    /// What was found, and what was expected.
    pub text: String,
    /// Section of the specification; empty if none applies.
    pub section: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let need = self.need.name();
        write!(f, "{}: {severity} ({need}): {}", self.place, self.text)?;
        match self.section {
            "" => Ok(()),
            section => write!(f, " [section {section}]"),
        }
    }
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Finding", 6)?;
        out.serialize_field("file", &self.place.file.to_string_lossy())?;
        out.serialize_field("line", &self.place.line)?;
        out.serialize_field("severity", &self.severity)?;
        out.serialize_field("need", &self.need)?;
        out.serialize_field("text", &self.text)?;
        match self.section {
            "" => out.skip_field("section")?,
            section => out.serialize_field("section", section)?,
        }
        out.end()
    }
}

/// Checks a snapshot. Findings are sorted by file and line.
///
/// A missing requirement for trace is an error if the snapshot has trace metadata, otherwise a
/// warning. A missing requirement for debug is an error if it has none.
pub fn check(loaded: &OpenSnapshot) -> Vec<Finding> {
    let mut checker = Checker {
        loaded,
        snapshot: &loaded.snapshot,
        names: loaded.snapshot.device_names(),
        findings: Vec::new(),
    };
    for note in &loaded.notes {
        checker.findings.push(Finding {
            place: note.place.clone(),
            severity: note.severity,
            need: match note.severity {
                Severity::Error => Need::Required,
                Severity::Warning => Need::Advice,
            },
            text: note.text.clone(),
            section: note.section,
        });
    }
    checker.head();
    checker.devices();
    checker.cores();
    checker.kernel();
    checker.trace();
    let mut findings = checker.findings;
    findings.sort_by(|a, b| a.place.cmp(&b.place));
    findings
}

struct Checker<'a> {
    loaded: &'a OpenSnapshot,
    snapshot: &'a Snapshot,
    names: DeviceNames<'a>,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn push(
        &mut self,
        s: Severity,
        n: Need,
        place: &FileLine,
        section: &'static str,
        text: String,
    ) {
        self.findings.push(Finding {
            place: place.clone(),
            severity: s,
            need: n,
            text,
            section,
        });
    }

    /// Reports that something required for `need` is wrong or missing.
    fn wrong(&mut self, need: Need, place: &FileLine, section: &'static str, text: String) {
        let traced = self.snapshot.trace.is_some();
        let severity = match need {
            Need::Required => Severity::Error,
            Need::RequiredForTrace if traced => Severity::Error,
            Need::RequiredForDebug if !traced => Severity::Error,
            Need::RequiredForTrace | Need::RequiredForDebug | Need::Advice => Severity::Warning,
        };
        self.push(severity, need, place, section, text);
    }

    fn advice(&mut self, place: &FileLine, section: &'static str, text: String) {
        self.push(Severity::Warning, Need::Advice, place, section, text);
    }

    /// Checks the version (3.1.1), the list of devices (3.1.2) and the clusters (3.1.3).
    fn head(&mut self) {
        let snapshot = self.snapshot;
        match snapshot.version.as_str() {
            "1.0" => {}
            "" => self.wrong(
                Need::Required,
                &snapshot.place,
                "3.1.1",
                "no version; the only valid one is 1.0".into(),
            ),
            "1" => self.advice(&snapshot.place, "3.1.1", "version 1: expected 1.0".into()),
            // The reader has already reported it.
            _ => {}
        }
        if snapshot.devices.is_empty() {
            let text = "no device can be read".into();
            self.wrong(Need::Required, &snapshot.place, "3.1.2", text);
        }
        let mut in_cluster: HashMap<usize, &str> = HashMap::new();
        for cluster in &snapshot.clusters {
            for name in &cluster.devices {
                let Some(index) = self.named(name, &cluster.place, "3.1.3", "device") else {
                    let text = format!("{}: there is no device {name}", cluster.name);
                    self.wrong(Need::Required, &cluster.place, "3.1.3", text);
                    continue;
                };
                if let Some(first) = in_cluster.insert(index, &cluster.name) {
                    let text = format!("{name} is in {first} and in {}", cluster.name);
                    self.advice(&cluster.place, "3.1.3", text);
                }
            }
        }
    }

    /// Finds the device with this name; a difference in case is a finding.
    fn named(
        &mut self,
        name: &str,
        place: &FileLine,
        section: &'static str,
        what: &str,
    ) -> Option<usize> {
        let index = self.names.find(name)?;
        let found = &self.snapshot.devices[index].name;
        if found != name {
            let text = format!("{what} {name} is {found} where it is defined");
            self.advice(place, section, text);
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests;
