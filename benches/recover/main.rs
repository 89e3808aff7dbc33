//! How much of the past is recovered, and whether it is right: programs are recorded, and past
//! registers and memory compared with the emulator's log of all states.
//!
//! `scripts/bench-recover` builds the programs and runs this.
//!
//! ```text
//! # Programs whose names contain NAME.
//! cargo bench --bench recover -- DIRECTORY [NAME] [--holes] [--whole]
//! ```

mod compare;
mod holes;
mod memory;
mod table;
mod truth;

use std::path::{Path, PathBuf};
use table::Row;

fn main() {
    let has = |option: &str| std::env::args().any(|word| word == option);
    let options = compare::Options {
        shows_holes: has("--holes"),
        solves_whole: has("--whole"),
    };
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"));
    let directory = PathBuf::from(arguments.next().expect("a directory of programs"));
    let wanted = arguments.next().unwrap_or_default();
    let entries = std::fs::read_dir(&directory).expect("the directory is readable");
    let mut programs: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    programs.sort();
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    programs.retain(|path| path.extension().is_none() && name(path).contains(&wanted));
    let mut plain: Vec<(String, Row)> = Vec::new();
    let mut helped: Vec<(String, Row)> = Vec::new();
    for program in &programs {
        match compare::program(program, options) {
            Ok(compared) => {
                plain.push((name(program), compared.plain));
                helped.push((name(program), compared.helped));
                eprintln!("{}: {}", name(program), compared.remarks);
            }
            Err(error) => eprintln!("{}: {error}", name(program)),
        }
    }
    for (title, mut rows) in [("From the trace", plain), ("With data addresses", helped)] {
        for (title, held) in [("all tuned", false), ("all held out", true)] {
            let mut sum = Row::default();
            let own = rows.iter().filter(|row| row.0.starts_with("held_") == held);
            own.for_each(|row| sum += row.1);
            rows.push((format!("**{title}**"), sum));
        }
        table::print(title, &rows);
    }
}
