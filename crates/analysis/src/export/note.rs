//! Notes on an export.

use std::fmt;

/// What the reader of a file cannot see in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The one program that a profile for compilers describes.
    Describes {
        /// Its path.
        program: String,
        /// The number of instructions executed in it.
        executed: u64,
        /// Other programs and libraries and the number of instructions executed in them, most
        /// first.
        others: Vec<(String, u64)>,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The maximum number of other programs listed.
        const LISTED: usize = 3;
        match self {
            Self::Describes {
                program,
                executed,
                others,
            } => {
                write!(
                    f,
                    "the profile describes {program}, with {executed} executed instructions"
                )?;
                let listed = others.iter().take(LISTED);
                let mut listed: Vec<String> = listed
                    .map(|(path, executed)| format!("{path} ({executed})"))
                    .collect();
                if listed.is_empty() {
                    return Ok(());
                }
                listed.extend((others.len() > LISTED).then(|| "…".to_owned()));
                write!(f, "; --program describes another: {}", listed.join(", "))
            }
        }
    }
}
