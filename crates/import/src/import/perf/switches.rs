//! Which threads ran on a CPU, according to the kernel's records of switches.

use std::collections::BTreeMap;

/// The maximum number of switches that are kept.
const MOST: usize = 1 << 22;

/// A switch; a thread is `None` if the record does not name it.
#[derive(Clone, Copy, Debug)]
struct Switch {
    time: u64,
    before: Option<u32>,
    after: Option<u32>,
}

impl Switch {
    /// Whether a thread that ran before the switch also runs after it.
    fn keeps(&self, thread: u32) -> bool {
        self.before.is_none_or(|before| before == thread) && self.after == Some(thread)
    }
}

/// The switches of each CPU.
#[derive(Debug, Default)]
pub struct Switches {
    by_cpu: BTreeMap<u32, Vec<Switch>>,
    /// For each switch, the index of the next one that does not keep the thread that runs after the
    /// former.
    kept_to: BTreeMap<u32, Vec<usize>>,
    count: usize,
}

impl Switches {
    /// Adds a switch from one thread to another.
    pub fn take(&mut self, cpu: u32, time: u64, before: Option<u32>, after: Option<u32>) {
        self.count += 1;
        if self.count <= MOST {
            let switches = self.by_cpu.entry(cpu).or_default();
            switches.push(Switch {
                time,
                before,
                after,
            });
        }
    }

    /// Sorts the switches. Must be called after all switches have been added and before the
    /// queries.
    pub fn sort(&mut self) {
        for (cpu, switches) in &mut self.by_cpu {
            switches.sort_by_key(|switch| switch.time);
            let mut kept_to = vec![switches.len(); switches.len()];
            for (index, pair) in switches.windows(2).enumerate().rev() {
                let is_kept = pair[0].after.is_some_and(|thread| pair[1].keeps(thread));
                kept_to[index] = if is_kept {
                    kept_to[index + 1]
                } else {
                    index + 1
                };
            }
            self.kept_to.insert(*cpu, kept_to);
        }
    }

    /// Whether all switches of a CPU are known.
    pub fn are_known(&self, cpu: u32) -> bool {
        self.count <= MOST && self.by_cpu.contains_key(&cpu)
    }

    /// The only thread that ran on a CPU between two times; `from` is `None` for the start of the
    /// recording.
    pub fn only_thread(&self, cpu: u32, from: Option<u64>, to: u64) -> Option<u32> {
        if self.count > MOST {
            return None;
        }
        let switches = self.by_cpu.get(&cpu)?;
        let first = switches.partition_point(|switch| from.is_some_and(|from| switch.time <= from));
        let end = switches.partition_point(|switch| switch.time < to);
        let before = first.checked_sub(1).and_then(|last| switches[last].after);
        let next = switches.get(first).and_then(|next| next.before);
        let thread = before.or(next)?;
        let kept_to = *self.kept_to.get(&cpu)?.get(first).unwrap_or(&first);
        let alone = first >= end || switches[first].keeps(thread) && kept_to >= end;
        alone.then_some(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ran_alone_is_known() {
        let mut switches = Switches::default();
        switches.take(0, 200, Some(7), Some(8));
        switches.take(0, 100, Some(5), Some(7));
        switches.take(0, 300, None, Some(8));
        switches.take(0, 400, Some(8), None);
        switches.take(0, 500, None, Some(8));
        switches.sort();
        assert_eq!(switches.only_thread(0, None, 100), Some(5));
        assert_eq!(switches.only_thread(0, None, 101), None);
        assert_eq!(switches.only_thread(0, Some(100), 200), Some(7));
        assert_eq!(switches.only_thread(0, Some(200), 400), Some(8));
        assert_eq!(switches.only_thread(0, Some(200), 401), None);
        assert_eq!(switches.only_thread(0, Some(250), 600), None);
        assert_eq!(switches.only_thread(0, Some(500), 600), Some(8));
        assert_eq!(switches.only_thread(0, Some(600), 500), Some(8));
        assert_eq!(switches.only_thread(0, Some(150), 250), None);
        assert_eq!(switches.only_thread(1, None, 100), None);
    }
}
