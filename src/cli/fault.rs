//! `armsnap fault`: why the cores of a snapshot faulted.

use super::listing::Lines;
use super::serve::{CoresAndPrograms, Selection};
use super::{Failure, OutputArguments, SnapshotArguments};
use armsnap::fault::{Fault, Text};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments of `fault`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot.
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// The cores and their programs.
    #[command(flatten)]
    selection: CoresAndPrograms,
    /// A description of the peripherals in CMSIS-SVD: addresses in them get names
    #[arg(long, value_name = "FILE")]
    svd: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// A core, and its fault if there is one.
#[derive(Serialize)]
struct CoreFault {
    core: String,
    fault: Option<Fault>,
}

/// Prints the fault of each core.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = Selection {
        svd: arguments.svd.clone(),
        ..arguments.selection.selection()
    };
    let endpoints = selection.endpoints(&arguments.snapshot)?;
    let mut all = Vec::new();
    for endpoint in &endpoints {
        let symbols = endpoint.symbols();
        all.extend(endpoint.cores.iter().map(|core| CoreFault {
            core: core.name.clone(),
            fault: endpoint.fault(core, &symbols),
        }));
    }
    let mut text = String::new();
    for CoreFault { core, fault } in &all {
        let _ = match fault {
            Some(fault) => write!(text, "{core}: {}", Text(fault)),
            None => writeln!(
                text,
                "{core}: neither its registers nor its memory tell of a fault"
            ),
        };
    }
    arguments.output.print(&all, text, Lines::Plain)?;
    Ok(ExitCode::SUCCESS)
}
