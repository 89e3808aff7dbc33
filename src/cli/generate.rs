//! `armsnap generate`, for packages: man pages and completions, from the same source as the help.

use super::Failure;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A page of section 1 for the program and for each subcommand
    Man,
    /// Files for bash, zsh and fish
    Completions,
}

/// The arguments of `generate`.
#[derive(Args)]
pub struct Arguments {
    /// What to generate
    what: What,
    /// An existing directory for the files
    directory: PathBuf,
}

/// Writes the files. None of them may exist.
pub fn run(arguments: &Arguments, mut command: Command) -> Result<ExitCode, Failure> {
    if !arguments.directory.is_dir() {
        let path = arguments.directory.display();
        return Err(Failure::Usage(format!("{path}: not a directory")));
    }
    match arguments.what {
        What::Man => pages(command, &arguments.directory)?,
        What::Completions => {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "armsnap", &mut text);
                let name = match shell {
                    Shell::Zsh => "_armsnap".to_owned(),
                    shell => format!("armsnap.{shell}"),
                };
                write(&arguments.directory.join(name), &text)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands.
fn pages(command: Command, directory: &Path) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut commands = vec![command.clone()];
    commands.extend(
        command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .cloned(),
    );
    for command in commands {
        let name = command.get_display_name().unwrap_or("armsnap").to_owned();
        let page = page(command, &name)?;
        write(&directory.join(format!("{name}.1")), &page)?;
    }
    Ok(())
}

/// Returns the page of a command. Adds what the generator lacks: examples keep their lines, and
/// aliases are listed.
fn page(command: Command, name: &str) -> std::io::Result<Vec<u8>> {
    let examples = command.get_after_help().map(ToString::to_string);
    let command = command.mut_args(|argument| {
        let aliases = argument.get_visible_aliases().unwrap_or_default();
        let help = argument.get_help().filter(|_| !aliases.is_empty());
        let named = help.map(|help| format!("{help} [alias: --{}]", aliases.join(", --")));
        match named {
            Some(help) => argument.help(help),
            None => argument,
        }
    });
    let (subcommands, version) = (command.has_subcommands(), env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .source(format!("armsnap {version}"))
        .manual("User Commands");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if subcommands {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(examples) = examples {
        let lines = examples.lines().skip_while(|line| *line == "Examples:");
        writeln!(out, ".SH EXAMPLES\n.nf")?;
        for line in lines {
            // `\&`, an empty character, keeps a line that starts with `.` or `'` from being a request.
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            writeln!(out, "\\&{line}")?;
        }
        writeln!(out, ".fi")?;
    }
    Ok(out)
}

fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text));
    written.map_err(|error| {
        // No incomplete file is left behind.
        if error.kind() != std::io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(path);
        }
        Failure::Input(format!("{}: {error}", path.display()))
    })
}
