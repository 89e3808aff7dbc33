//! `armsnap report`: coverage, profile and timeline as one HTML page, and a summary.

use super::analysis::AnalysisArguments;
use super::output::{Output, not_named};
use super::{Failure, say};
use armsnap::page::{self, PageInput, TrackListener};
use armsnap::text::{Form, PlainStream, one_line};
use clap::Args;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Report on the trace of a snapshot
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    analysis: AnalysisArguments,

    /// The page to write. Default: the snapshot's name with .html, in the current directory
    #[arg(short = 'o', long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print the summary only
    #[arg(long, conflicts_with = "html")]
    summary: bool,

    /// A directory with source files (repeatable). Those in the snapshot's directory are found
    /// anyway
    #[arg(long, value_name = "DIR")]
    sources: Vec<PathBuf>,

    /// Overwrite the file
    #[arg(long)]
    force: bool,
}

/// Writes the page, and prints the summary.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    for directory in &arguments.sources {
        if !directory.is_dir() {
            let shown = directory.display();
            return Err(Failure::Usage(format!(
                "--sources {shown}: not a directory"
            )));
        }
    }
    let analysis = arguments.analysis.open()?;
    let title = title(&arguments.analysis.snapshot.snapshot);
    let path = match &arguments.html {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{title}.html")),
    };
    let mut output = None;
    if !arguments.summary {
        not_named(&path, &analysis.loaded)?;
        output = Some(Output::new(Some(&path), arguments.force)?);
    }
    let tracks = armsnap::profile::tracks(&analysis.loaded, &analysis.capture).len();
    let decoded = analysis.run(|track| TrackListener::new(tracks, track.follows))?;
    let mut directories = arguments.sources.clone();
    directories.push(analysis.loaded.root.clone());
    let sources: Vec<usize> = decoded.iter().map(|(track, ..)| track.source).collect();
    let buffers = analysis.capture.buffers.iter();
    let decoded_buffers = buffers.filter(|buffer| {
        let mut in_buffer = buffer.sources.iter();
        in_buffer.any(|source| sources.contains(&source.device))
    });
    let page = page::build(PageInput {
        title: &title,
        loaded: &analysis.loaded,
        programs: &analysis.programs,
        bytes: decoded_buffers.map(|buffer| buffer.bytes()).sum(),
        tracks: &decoded,
        directories: &directories,
        notes: analysis.notes(),
    });
    let page = page.map_err(|error| Failure::Input(error.to_string()))?;
    if let Some(output) = output {
        let mut output = BufWriter::new(output);
        page::write_page(&page, &mut output)?;
        let output = output
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        output.finish()?;
        if path == Path::new("-") {
            // The summary would be printed into the page.
            return Ok(analysis.exit_code());
        }
        say(format!(
            "{}: the report",
            one_line(&path.display().to_string())
        ));
    }
    let mut out = BufWriter::new(PlainStream::new(io::stdout().lock(), Form::Text));
    page::write_summary(&page, &mut out)?;
    out.flush()?;
    Ok(analysis.exit_code())
}

/// Returns the name of the input; for a snapshot, that of its directory.
fn title(snapshot: &Path) -> String {
    let whole = snapshot
        .canonicalize()
        .unwrap_or_else(|_| snapshot.to_owned());
    let named = match whole.file_name() {
        Some(name) if name == "snapshot.ini" => whole.parent().unwrap_or(&whole),
        _ => &whole,
    };
    let name = named.file_name().unwrap_or_default();
    match name.to_string_lossy() {
        name if name.is_empty() => "report".to_owned(),
        name => name.into_owned(),
    }
}
