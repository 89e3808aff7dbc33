//! A summary as text.

use super::super::Time;
use super::summary::Summary;
use armsnap_snapshot::text;
use std::fmt::{self, Write as _};

/// The most lines of a list of functions.
const MOST_FUNCTIONS: usize = 30;

/// Ticks, or seconds if the frequency of the clock is given.
struct Shown(Option<f64>);

impl Shown {
    fn ticks(&self, ticks: Option<u64>) -> String {
        let time = ticks.map(|ticks| Time { ticks, losses: 0 });
        time.map_or_else(|| "-".to_owned(), |time| time.text(self.0))
    }
}

impl Summary {
    /// Returns the summary as text, with times in seconds if the frequency of the clock is given.
    pub fn text(&self, hertz: Option<f64>) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out, hertz);
        out
    }

    fn write(&self, out: &mut String, hertz: Option<f64>) -> fmt::Result {
        let unit = if hertz.is_some() { "s" } else { "cycles" };
        writeln!(out, "{}", self.source)?;
        if let (Some(first), Some(last)) = (self.first, self.last) {
            let (first, last) = (first.text(hertz), last.text(hertz));
            writeln!(out, "  events from {first} to {last} {unit}")?;
        }
        if self.overflows + self.lost > 0 {
            writeln!(
                out,
                "  {} and {}: later times are lower bounds",
                text::count(self.overflows, "overflow"),
                text::count(self.lost, "other loss")
            )?;
        }
        self.exceptions(out, &Shown(hertz), unit)?;
        self.samples(out)?;
        self.data(out)?;
        if self.counter_packets > 0 {
            writeln!(out, "\n  {} event counter packets", self.counter_packets)?;
            for counter in &self.counters {
                writeln!(
                    out,
                    "    {:<6} {:>10} wraps",
                    counter.counter, counter.wraps
                )?;
            }
        }
        if self.others > 0 {
            writeln!(
                out,
                "\n  {} of other kinds",
                text::count(self.others, "packet")
            )?;
        }
        Ok(())
    }

    fn exceptions(&self, out: &mut String, shown: &Shown, unit: &str) -> fmt::Result {
        if self.exception_packets == 0 {
            return Ok(());
        }
        writeln!(
            out,
            "\n  {} exception packets (times in {unit}, from entry to end; own: without those that interrupted it)",
            self.exception_packets
        )?;
        writeln!(
            out,
            "    {:<16} {:>8} {:>8} {:>11} {:>12} {:>12} {:>10} {:>10} {:>10}",
            "exception", "entered", "nested", "interrupted", "total", "own", "min", "mean", "max"
        )?;
        for exception in self
            .exceptions
            .iter()
            .filter(|exception| exception.number != 0)
        {
            let (all, own) = (&exception.ticks, &exception.own_ticks);
            let total = |count: u64, total: u64| shown.ticks((count > 0).then_some(total));
            let name = format!("{} {}", exception.number, exception.name);
            writeln!(
                out,
                "    {name:<16} {:>8} {:>8} {:>11} {:>12} {:>12} {:>10} {:>10} {:>10}",
                exception.entered,
                exception.nested,
                exception.interrupted,
                total(all.count, all.total),
                total(own.count, own.total),
                shown.ticks(all.min),
                shown.ticks(all.mean()),
                shown.ticks(all.max),
            )?;
        }
        Ok(())
    }

    fn samples(&self, out: &mut String) -> fmt::Result {
        let samples = &self.samples;
        if samples.count == 0 {
            return Ok(());
        }
        writeln!(
            out,
            "\n  {} PC samples: a statistical profile",
            samples.count
        )?;
        let mut line = |name: &str, count: u64| {
            let share = 100.0 * count as f64 / samples.count as f64;
            writeln!(out, "    {count:>8}  {share:>5.1} %  {name}")
        };
        for (what, count) in [
            ("asleep", samples.asleep),
            ("prohibited", samples.prohibited),
        ] {
            if count > 0 {
                line(&format!("[{what}]"), count)?;
            }
        }
        for (name, count) in samples.functions.iter().take(MOST_FUNCTIONS) {
            line(name, *count)?;
        }
        let rest = samples.functions.iter().skip(MOST_FUNCTIONS);
        match rest.map(|(_, count)| count).sum() {
            0 => Ok(()),
            rest => line("[others]", rest),
        }
    }

    fn data(&self, out: &mut String) -> fmt::Result {
        for data in &self.data {
            let name = match &data.variable {
                Some(variable) => format!("comparator {} ({variable})", data.comparator),
                None => format!("comparator {}", data.comparator),
            };
            write!(out, "\n  {name}: {}", text::count(data.accesses, "access"))?;
            if data.reads + data.writes > 0 {
                let (reads, writes) = (data.reads, data.writes);
                let (reads, writes) = (text::count(reads, "read"), text::count(writes, "write"));
                write!(out, ", {reads}, {writes}")?;
            }
            writeln!(out)?;
            if let (Some(first), Some(last), Some(min), Some(max)) =
                (data.first, data.last, data.min, data.max)
            {
                writeln!(
                    out,
                    "    values       first {first:#x}, last {last:#x}, least {min:#x}, greatest {max:#x}"
                )?;
            }
            for (name, count) in data.functions.iter().take(MOST_FUNCTIONS) {
                writeln!(out, "    {count:>8} by {name}")?;
            }
        }
        Ok(())
    }
}
