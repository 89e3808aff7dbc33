//! Processes over time: their threads, names and mappings.
//!
//! A process has one image from its start, or from when it executes a program, until it executes
//! another program. A child starts with the mappings that its parent has at that time; for a
//! process that was already running, perf lists the mappings itself.

use crate::import::build_id::BuildId;
use std::collections::HashMap;
use std::sync::Arc;

/// The process number of the kernel's own mappings.
pub const KERNEL: u32 = u32::MAX;

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub address: u64,
    /// Its number of bytes.
    pub length: u64,
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// The file's path, or a name such as `[vdso]`.
    pub path: String,
    /// The file's build-id, if the record has it.
    pub build_id: Option<BuildId>,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether it may be written.
    pub writable: bool,
}

/// What happened to a process.
#[derive(Debug)]
pub enum Event {
    /// A file was mapped.
    Map {
        /// The process.
        pid: u32,
        /// The mapping.
        mapping: Mapping,
    },
    /// A thread is given this name.
    Comm {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The name.
        name: Arc<str>,
        /// Whether this happened because the process executed a program.
        exec: bool,
    },
    /// A process or thread was started.
    Fork {
        /// The process to which it belongs.
        pid: u32,
        /// The process that started it.
        parent: u32,
        /// The thread.
        tid: u32,
        /// Whether a new process has the mappings of its parent.
        inherits: bool,
    },
}

/// A process from its start, or from an exec, until the next exec.
#[derive(Debug, Default)]
pub struct Image {
    /// The process.
    pub pid: u32,
    /// Whether the process executed another program later.
    pub replaced: bool,
    /// The image of which it is a copy, and the number of mappings that the other image had at that
    /// time.
    parent: Option<(usize, usize)>,
    mappings: Vec<Mapping>,
    names: HashMap<u32, Arc<str>>,
}

/// All processes of a recording.
#[derive(Debug, Default)]
pub struct Processes {
    /// In order of appearance.
    pub images: Vec<Image>,
    /// By process: its images, each with the time at which it starts.
    by_process: HashMap<u32, Vec<(u64, usize)>>,
    /// By thread: its process.
    threads: HashMap<u32, u32>,
}

impl Processes {
    /// The current image of a process.
    pub fn current(&self, pid: u32) -> Option<usize> {
        let images = self.by_process.get(&pid)?;
        images.last().map(|(_, image)| *image)
    }

    /// The image of a thread at a time.
    pub fn of_thread(&self, tid: u32, time: Option<u64>) -> Option<usize> {
        // The first thread of a process has the process's number, and need not have a record of its
        // own.
        let pid = self.threads.get(&tid).unwrap_or(&tid);
        let images = self.by_process.get(pid)?;
        let until = images.partition_point(|(since, _)| time.is_none_or(|time| *since <= time));
        let (_, image) = images.get(until.saturating_sub(1))?;
        Some(*image)
    }

    fn start(&mut self, pid: u32, parent: Option<(usize, usize)>, time: u64) -> usize {
        self.images.push(Image {
            pid,
            parent,
            ..Image::default()
        });
        let index = self.images.len() - 1;
        self.by_process.entry(pid).or_default().push((time, index));
        index
    }

    fn image(&mut self, pid: u32, time: u64) -> usize {
        match self.current(pid) {
            Some(index) => index,
            None => self.start(pid, None, time),
        }
    }

    /// Processes the next event, in order of time.
    pub fn take(&mut self, event: Event, time: u64) {
        match event {
            Event::Map { pid, mapping } => {
                let index = self.image(pid, time);
                self.images[index].mappings.push(mapping);
            }
            Event::Comm {
                pid,
                tid,
                name,
                exec,
            } => {
                let before = self.current(pid);
                let index = match before.filter(|_| exec) {
                    Some(before) => {
                        self.images[before].replaced = true;
                        self.start(pid, None, time)
                    }
                    None => self.image(pid, time),
                };
                self.threads.insert(tid, pid);
                self.images[index].names.insert(tid, name);
            }
            Event::Fork {
                pid,
                parent,
                tid,
                inherits,
            } => {
                self.threads.insert(tid, pid);
                let from = self.image(parent, time);
                let name = self.images[from].shared_name(parent).cloned();
                let index = match pid == parent {
                    true => from,
                    false => {
                        let mappings = self.images[from].mappings.len();
                        self.start(pid, inherits.then_some((from, mappings)), time)
                    }
                };
                if let Some(name) = name {
                    self.images[index].names.entry(tid).or_insert(name);
                }
            }
        }
    }

    /// The mappings of an image, the oldest first, with those of its parents before its own: the
    /// newest `most`, and whether there are more.
    pub fn mappings(&self, image: usize, most: usize) -> (Vec<&Mapping>, bool) {
        let mut pieces = Vec::new();
        let (mut next, mut left) = (Some((image, usize::MAX)), most);
        // Images are counted too, so that a long chain of parents without mappings also ends.
        let mut images = most;
        let mut is_cut = false;
        while let Some((index, until)) = next {
            let image = &self.images[index];
            let own = &image.mappings[..until.min(image.mappings.len())];
            let newest = &own[own.len().saturating_sub(left)..];
            left -= newest.len();
            pieces.push(newest);
            next = image.parent;
            is_cut = newest.len() < own.len() || images == 0 && next.is_some();
            if is_cut {
                break;
            }
            images = images.saturating_sub(1);
        }
        let mappings = pieces.into_iter().rev().flatten();
        (mappings.collect(), is_cut)
    }
}

impl Image {
    /// The name of a thread, or else that of the process.
    pub fn name(&self, tid: u32) -> Option<&str> {
        self.shared_name(tid).map(|name| &**name)
    }

    fn shared_name(&self, tid: u32) -> Option<&Arc<str>> {
        self.names.get(&tid).or_else(|| self.names.get(&self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: u32, path: &str) -> Event {
        let mapping = Mapping {
            address: 0x1000,
            length: 0x1000,
            offset: 0,
            path: path.to_owned(),
            build_id: None,
            executable: true,
            writable: false,
        };
        Event::Map { pid, mapping }
    }

    fn paths(processes: &Processes, pid: u32) -> Vec<&str> {
        let image = processes.current(pid).unwrap();
        let (mappings, _) = processes.mappings(image, 100);
        mappings.iter().map(|mapping| &*mapping.path).collect()
    }

    #[test]
    fn the_newest_mappings_are_used() {
        let mut processes = Processes::default();
        for event in [
            map(1, "a"),
            map(1, "b"),
            Event::Fork {
                pid: 2,
                parent: 1,
                tid: 2,
                inherits: true,
            },
            map(2, "c"),
            map(2, "d"),
        ] {
            processes.take(event, 0);
        }
        let image = processes.current(2).unwrap();
        for (most, wanted, is_cut) in [
            (0, "", true),
            (1, "d", true),
            (2, "cd", true),
            (3, "bcd", true),
            (4, "abcd", false),
            (5, "abcd", false),
        ] {
            let (found, cut) = processes.mappings(image, most);
            let found: String = found.iter().map(|mapping| &*mapping.path).collect();
            assert_eq!((&*found, cut), (wanted, is_cut), "{most}");
        }
    }

    #[test]
    fn children_inherit_and_programs_replace() {
        let mut processes = Processes::default();
        let comm = |pid, tid, name: &str, exec| Event::Comm {
            pid,
            tid,
            name: name.into(),
            exec,
        };
        let mut time = 0;
        let mut take = |processes: &mut Processes, event| {
            time += 10;
            processes.take(event, time);
        };
        take(&mut processes, comm(1, 1, "shell", false));
        take(&mut processes, map(1, "sh"));
        let fork = Event::Fork {
            pid: 2,
            parent: 1,
            tid: 2,
            inherits: true,
        };
        take(&mut processes, fork);
        take(&mut processes, map(1, "later"));
        assert_eq!(paths(&processes, 2), ["sh"]);
        let before = processes.current(2).unwrap();
        take(&mut processes, comm(2, 2, "prog", true));
        take(&mut processes, map(2, "prog"));
        let fork = Event::Fork {
            pid: 2,
            parent: 2,
            tid: 3,
            inherits: true,
        };
        take(&mut processes, fork);
        take(&mut processes, comm(2, 3, "worker", false));
        assert_eq!(paths(&processes, 2), ["prog"]);
        assert_eq!(paths(&processes, 1), ["sh", "later"]);
        assert!(processes.images[before].replaced);
        let now = &processes.images[processes.current(2).unwrap()];
        assert_eq!((now.name(2), now.name(3)), (Some("prog"), Some("worker")));
        assert_eq!(processes.images[before].name(2), Some("shell"));
        let after = processes.current(2);
        assert_eq!(processes.of_thread(2, Some(49)), Some(before));
        assert_eq!(processes.of_thread(2, Some(50)), after);
        assert_eq!(processes.of_thread(3, None), after);
        assert_eq!(processes.of_thread(9, None), None);
    }
}
