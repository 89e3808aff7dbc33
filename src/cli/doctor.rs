//! `armsnap doctor`: which debuggers, emulators and compilers are installed, what works with them,
//! and what to install.

use super::gdb::support;
use super::tool::{ask, find};
use super::{Failure, dap};
use armsnap::text;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// A program that armsnap works with.
struct Tool {
    /// Its names, in order of preference.
    names: &'static [&'static str],
    /// What it is for.
    purpose: &'static str,
    /// Its package in Debian.
    package: &'static str,
    /// Checks for further requirements; the text describes what works or what does not.
    examine: fn(&str) -> Result<String, String>,
}

const TOOLS: &[Tool] = &[
    Tool {
        names: &["gdb-multiarch"],
        purpose: "armsnap gdb",
        package: "gdb-multiarch",
        examine: gdb,
    },
    Tool {
        names: &["lldb", "lldb-21", "lldb-19", "lldb-16", "lldb-14"],
        purpose: "armsnap serve, with LLDB",
        package: "lldb",
        examine: anything,
    },
    #[cfg(unix)]
    Tool {
        names: &["qemu-aarch64"],
        purpose: "armsnap record, programs for AArch64",
        package: "qemu-user",
        examine: emulator,
    },
    #[cfg(unix)]
    Tool {
        names: &["qemu-arm"],
        purpose: "armsnap record, programs for Arm",
        package: "qemu-user",
        examine: emulator,
    },
    #[cfg(unix)]
    Tool {
        names: &["qemu-system-aarch64"],
        purpose: "armsnap record --system, AArch64",
        package: "qemu-system-arm",
        examine: emulator,
    },
    #[cfg(unix)]
    Tool {
        names: &["qemu-system-arm"],
        purpose: "armsnap record --system, Arm",
        package: "qemu-system-arm",
        examine: emulator,
    },
    Tool {
        names: &["aarch64-linux-gnu-gcc"],
        purpose: "compiling programs for AArch64",
        package: "gcc-aarch64-linux-gnu",
        examine: anything,
    },
    Tool {
        names: &["arm-linux-gnueabihf-gcc"],
        purpose: "compiling Linux programs for Arm",
        package: "gcc-arm-linux-gnueabihf",
        examine: anything,
    },
    Tool {
        names: &["arm-none-eabi-gcc"],
        purpose: "compiling bare-metal programs for Arm",
        package: "gcc-arm-none-eabi",
        examine: anything,
    },
    Tool {
        names: &["perf"],
        purpose: "recording CoreSight trace on Arm Linux",
        package: "linux-perf",
        examine: anything,
    },
];

fn anything(_: &str) -> Result<String, String> {
    Ok(String::new())
}

/// Checks what a GDB needs for snapshots, and for editors.
fn gdb(name: &str) -> Result<String, String> {
    let gdb = OsStr::new(name);
    for architecture in ["aarch64", "arm"] {
        if support::knows(gdb, architecture) != Some(true) {
            return Err(format!("has no support for {architecture}"));
        }
    }
    if !support::has_python(gdb) {
        return Err("has no Python: past values and the armsnap commands are missing".to_owned());
    }
    Ok(match dap::version(gdb) {
        Some(major) if major >= dap::OLDEST => "Python, editors (armsnap dap)".to_owned(),
        _ => format!("Python; editors (armsnap dap) need GDB {}", dap::OLDEST),
    })
}

/// Checks what an emulator needs to record.
#[cfg(unix)]
fn emulator(name: &str) -> Result<String, String> {
    if !armsnap::record::plugin::is_built() {
        return Err("this armsnap was built without a C compiler, so record is missing".to_owned());
    }
    let help = ask(name, &["-help"]).unwrap_or_default();
    if help.contains("-plugin") {
        return Ok("plugins".to_owned());
    }
    Err("was built without plugins, which record needs".to_owned())
}

/// Prints a line for each tool.
pub fn run() -> Result<ExitCode, Failure> {
    let mut out = format!("armsnap {}\n\n", env!("CARGO_PKG_VERSION"));
    let mut packages: Vec<&str> = Vec::new();
    for tool in TOOLS {
        let found = tool.names.iter().find(|name| find(name).is_some());
        let Some(name) = found else {
            let _ = writeln!(out, "missing  {:<24}{}", tool.names[0], tool.purpose);
            if !packages.contains(&tool.package) {
                packages.push(tool.package);
            }
            continue;
        };
        let version = ask(name, &["--version"]).unwrap_or_default();
        let version = text::one_line(version.lines().next().unwrap_or_default()).into_owned();
        let (state, remark) = match (tool.examine)(name) {
            Ok(works) => ("ok", works),
            Err(lacks) => ("faulty", lacks),
        };
        let _ = writeln!(out, "{state:<9}{name:<24}{}", tool.purpose);
        for detail in [version, remark] {
            if !detail.is_empty() {
                let _ = writeln!(out, "{:33}{detail}", "");
            }
        }
    }
    out.push('\n');
    if packages.is_empty() {
        out.push_str("Nothing is missing.\n");
    } else {
        let _ = writeln!(out, "To install what is missing (Debian, Ubuntu):");
        let _ = writeln!(out, "  apt install {}", packages.join(" "));
    }
    out.push_str("To see armsnap at work: armsnap demo\n");
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
