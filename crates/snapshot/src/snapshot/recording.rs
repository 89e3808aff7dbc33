//! How a recording was made: the section `[recording]` of snapshot.ini, which armsnap writes and
//! other readers ignore.
//!
//! `of=linux_program` means that the trace covers a Linux program without the kernel: execution
//! after an exception is not traced, and trace resumes where the kernel returns to the program.
//! `ended` lists the cores whose threads had ended before the recording ended; `ended_at` gives for
//! each of them the time, by the clock of the trace's timestamps, or nothing. `stopped` is the core
//! that ended the recording, unless it is the first core.

use super::model::{OtherSection, Snapshot};

/// The section's name.
const SECTION: &str = "recording";
const LINUX_PROGRAM: &str = "linux_program";

/// How the recording was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Whether its subject is a Linux program without the kernel.
    pub linux_program: bool,
    /// The names of the cores whose threads had ended.
    pub ended: Vec<String>,
    /// For each of these cores, the time when its thread ended, by the clock of the trace's
    /// timestamps.
    pub ended_at: Vec<Option<u64>>,
    /// The name of the core that ended the recording, if it is not the first one.
    pub stopped: Option<String>,
}

impl Recording {
    /// Reads the section of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let sections = &snapshot.other_sections;
        let section = sections.iter().find(|section| section.name == SECTION);
        let entries = section.map_or(&[][..], |section| &section.entries);
        let value = |name: &str| {
            let entry = entries.iter().find(|(key, _)| key == name);
            entry.map_or("", |(_, value)| value.trim())
        };
        let stopped = Some(value("stopped")).filter(|name| !name.is_empty());
        let ended = value("ended").split(',').map(str::trim);
        Self {
            linux_program: value("of") == LINUX_PROGRAM,
            ended: ended
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            ended_at: match value("ended_at") {
                "" => Vec::new(),
                times => times.split(',').map(|t| t.trim().parse().ok()).collect(),
            },
            stopped: stopped.map(str::to_owned),
        }
    }

    /// Returns whether a core's thread had ended.
    pub fn has_ended(&self, core: &str) -> bool {
        self.ended.iter().any(|name| name == core)
    }

    /// Returns the time when a core's thread ended, if it had ended and the time is known.
    pub fn end_of(&self, core: &str) -> Option<u64> {
        let number = self.ended.iter().position(|name| name == core)?;
        *self.ended_at.get(number)?
    }

    /// Returns the section as written; `None` if it would be empty.
    pub fn section(&self) -> Option<OtherSection> {
        let mut entries = Vec::new();
        if self.linux_program {
            entries.push(("of".to_owned(), LINUX_PROGRAM.to_owned()));
        }
        if !self.ended.is_empty() {
            entries.push(("ended".to_owned(), self.ended.join(",")));
        }
        if self.ended_at.iter().any(Option::is_some) {
            let times = self.ended_at.iter();
            let times = times.map(|time| time.map_or_else(String::new, |time| time.to_string()));
            let times: Vec<String> = times.collect();
            entries.push(("ended_at".to_owned(), times.join(",")));
        }
        if let Some(stopped) = &self.stopped {
            entries.push(("stopped".to_owned(), stopped.clone()));
        }
        (!entries.is_empty()).then(|| OtherSection {
            name: SECTION.to_owned(),
            entries,
            ..OtherSection::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back() {
        let recording = Recording {
            linux_program: true,
            ended: vec!["cpu_1".to_owned(), "cpu_3".to_owned()],
            ended_at: vec![None, Some(7)],
            stopped: Some("cpu_2".to_owned()),
        };
        let snapshot = Snapshot {
            other_sections: recording.section().into_iter().collect(),
            ..Snapshot::default()
        };
        assert_eq!(Recording::of(&snapshot), recording);
        assert!(recording.has_ended("cpu_3") && !recording.has_ended("cpu_2"));
        assert_eq!(
            (recording.end_of("cpu_1"), recording.end_of("cpu_3")),
            (None, Some(7))
        );
        assert_eq!(Recording::of(&Snapshot::default()), Recording::default());
        assert_eq!(Recording::default().section(), None);
    }
}
