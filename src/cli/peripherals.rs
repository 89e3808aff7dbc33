//! `armsnap peripherals`: registers of peripherals by name.

use super::listing::Lines;
use super::serve::Selection;
use super::{Failure, OutputArguments, SnapshotArguments};
use armsnap::svd::{PeripheralValues, Text};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments of `peripherals`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot.
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// The registers of these peripherals, or these registers: UART0, UART0.SR, 'DMA.*' (brackets and
    /// case do not matter). Default: a table of all peripherals
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// The description of the peripherals in CMSIS-SVD
    #[arg(long, value_name = "FILE")]
    svd: PathBuf,
    /// The memory of this core (repeatable). Default: all cores
    #[arg(long, value_name = "CORE")]
    core: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// The peripherals in the memory of a core.
#[derive(Serialize)]
struct CorePeripherals {
    core: String,
    peripherals: Vec<PeripheralValues>,
}

/// Prints the peripherals in the memory of each core.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = Selection {
        svd: Some(arguments.svd.clone()),
        ..Selection::of(&arguments.core, &[])
    };
    let endpoints = selection.endpoints(&arguments.snapshot)?;
    let names = match &*arguments.names {
        [] => &[String::new()],
        names => names,
    };
    let mut all = Vec::new();
    for endpoint in &endpoints {
        for core in &endpoint.cores {
            let mut peripherals = Vec::new();
            for name in names {
                let found = endpoint.peripherals(core, name).unwrap_or_default();
                if found.is_empty() && !name.is_empty() {
                    let shown = arguments.svd.display();
                    return Err(Failure::Input(format!(
                        "{shown}: no peripheral or register matches {name:?}"
                    )));
                }
                peripherals.extend(found);
            }
            all.push(CorePeripherals {
                core: core.name.clone(),
                peripherals,
            });
        }
    }
    let mut text = String::new();
    for of in &all {
        if all.len() > 1 {
            let _ = writeln!(text, "{}:", of.core);
        }
        let _ = write!(text, "{}", Text(&of.peripherals));
    }
    arguments.output.print(&all, text, Lines::Plain)?;
    Ok(ExitCode::SUCCESS)
}
