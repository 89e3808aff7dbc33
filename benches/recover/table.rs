//! What was right and what was wrong, and its table.

use armsnap::recover::{Known, Status};
use std::ops::AddAssign;

/// Answers to questions of one kind.
#[derive(Clone, Copy, Default)]
pub struct Answers {
    pub proved: u64,
    pub proved_wrong: u64,
    pub inferred: u64,
    pub inferred_wrong: u64,
    pub unknown: u64,
}

impl Answers {
    /// Adds an answer.
    pub fn add<T: PartialEq>(&mut self, known: Option<Known<T>>, truth: T) {
        let Some(known) = known else {
            self.unknown += 1;
            return;
        };
        let wrong = u64::from(known.value != truth);
        match known.status {
            Status::Proved => {
                (self.proved, self.proved_wrong) = (self.proved + 1, self.proved_wrong + wrong)
            }
            Status::Inferred => {
                (self.inferred, self.inferred_wrong) =
                    (self.inferred + 1, self.inferred_wrong + wrong);
            }
        }
    }

    fn all(&self) -> u64 {
        self.proved + self.inferred + self.unknown
    }

    fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.all() as f64
    }

    /// "right (proved) wrong": the percentage of all answers that are right, and in brackets that
    /// are right and proved; then the wrong answers among the known ones, by status.
    pub fn text(&self) -> String {
        if self.all() == 0 {
            return "-".to_owned();
        }
        let right = self.proved + self.inferred - self.proved_wrong - self.inferred_wrong;
        let mut text = format!(
            "{:.1} ({:.1})",
            self.percent(right),
            self.percent(self.proved - self.proved_wrong)
        );
        if self.proved_wrong > 0 {
            text += &format!(" PROVED WRONG {}", self.proved_wrong);
        }
        if self.inferred_wrong > 0 {
            let known = (self.proved + self.inferred) as f64;
            text += &format!(" wrong {:.2}%", 100.0 * self.inferred_wrong as f64 / known);
        }
        text
    }
}

impl AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.proved += other.proved;
        self.proved_wrong += other.proved_wrong;
        self.inferred += other.inferred;
        self.inferred_wrong += other.inferred_wrong;
        self.unknown += other.unknown;
    }
}

/// The kinds of questions.
pub const KINDS: [&str; 6] = [
    "registers read",
    "all known registers",
    "SP",
    "stack memory",
    "return addresses",
    "arguments",
];
/// How far back, in instructions.
pub const DISTANCES: [usize; 4] = [100, 1_000, 10_000, 100_000];

/// Answers by kind and distance.
#[derive(Clone, Copy, Default)]
pub struct Row(pub [[Answers; DISTANCES.len()]; KINDS.len()]);

impl AddAssign for Row {
    fn add_assign(&mut self, other: Self) {
        for (kind, others) in self.0.iter_mut().zip(other.0) {
            for (own, other) in kind.iter_mut().zip(others) {
                *own += other;
            }
        }
    }
}

/// Prints rows.
pub fn print(title: &str, rows: &[(String, Row)]) {
    println!("\n## {title}\n");
    println!(
        "Right % (proved %), and what is wrong, at positions up to so many instructions back."
    );
    for (kind, name) in KINDS.iter().enumerate() {
        println!("\n| {name} | 100 | 1k | 10k | 100k |\n| --- | --- | --- | --- | --- |");
        for (program, row) in rows {
            let cells: Vec<String> = row.0[kind].iter().map(Answers::text).collect();
            println!("| {program} | {} |", cells.join(" | "));
        }
    }
}
