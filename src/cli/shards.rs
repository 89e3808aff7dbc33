//! `armsnap shards`, and the handling of shards in `armsnap export`.

use super::Failure;
use super::SnapshotArguments;
use super::analysis::{Analysis, AnalysisArguments};
use super::progress::Progress;
#[cfg(feature = "parquet")]
use armsnap::export::columns::Table;
#[cfg(feature = "parquet")]
use armsnap::export::images::Images;
#[cfg(feature = "parquet")]
use armsnap::export::parquet::{self, Sheets, TableSchemas};
#[cfg(feature = "parquet")]
use armsnap::export::tables::ShardRows;
use armsnap::mapped;
use armsnap::profile::shards::{FileError, Planned, Reader};
#[cfg(feature = "parquet")]
use armsnap::profile::shards::{Record, Writer, decode_shard};
use clap::Args;
#[cfg(feature = "parquet")]
use flate2::Compression;
use flate2::bufread::GzDecoder;
#[cfg(feature = "parquet")]
use flate2::write::GzEncoder;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// The file of a shard that is used for joining.
const COURSE: &str = "course.shard";
/// Maximum number of shards.
const MOST: u32 = 1_000_000;
/// Default number of bytes of trace in a shard.
const SIZE: u64 = 64 << 20;

/// Print as JSON how the trace of a snapshot is divided into shards
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    snapshot: SnapshotArguments,

    /// The number of shards
    #[arg(long, value_name = "N", visible_alias = "parts", conflicts_with = "size",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    shards: Option<u32>,

    /// Bytes of trace per shard (default: 64 MiB)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    size: Option<u64>,
}

/// The identity of a shard: I/N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number; the first is 0.
    pub index: u32,
    /// The number of shards.
    pub of: u32,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            let (number, of): (u32, u32) = (number.parse().ok()?, of.parse().ok()?);
            let index = number.checked_sub(1)?;
            (index < of && of <= MOST).then_some(Self { index, of })
        });
        parsed.ok_or_else(|| format!("expected I/N: shard I, from 1 to N, of N (at most {MOST})"))
    }
}

/// Why a shard cannot be written.
#[derive(Debug, thiserror::Error)]
enum ShardError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<ShardError> for Failure {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Io(error) | ShardError::File(FileError::Io(error)) => Self::Io(error),
            error => Self::Input(error.to_string()),
        }
    }
}

/// Prints the plan.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let open = AnalysisArguments::of(arguments.snapshot);
    let analysis = open.open()?;
    let total: u64 = analysis.capture.buffers.iter().map(|one| one.bytes()).sum();
    let by_size = total.div_ceil(arguments.size.unwrap_or(SIZE)).max(1);
    let number = arguments.shards.map_or(by_size, u64::from);
    if number > u64::from(MOST) {
        return Err(Failure::Usage(format!(
            "--size: {number} shards; there can be {MOST}"
        )));
    }
    let plan = analysis.plan(number as u32);
    let tracks = plan.tracks();
    let part = |planned: &Planned| {
        let buffer = &analysis.capture.buffers[planned.buffer];
        let tracks: Vec<&str> = plan
            .tracks_in(planned.buffer)
            .into_iter()
            .map(|track| &*tracks[track].name)
            .collect();
        json!({
            "buffer": planned.buffer,
            "name": buffer.name,
            "tracks": tracks,
            "lead_in": planned.part.lead_in,
            "start": planned.part.start,
            "end": planned.part.end,
        })
    };
    let shards = (0..plan.shards()).map(|index| {
        let parts = plan.parts(index);
        let bytes = parts.iter().map(|one| one.part.end - one.part.start);
        json!({
            "shard": format!("{}/{}", index + 1, plan.shards()),
            "bytes": bytes.sum::<u64>(),
            "parts": parts.iter().map(part).collect::<Vec<_>>(),
        })
    });
    let shards: Vec<_> = shards.collect();
    let value = json!({
        "bytes": total,
        "page": plan.page(),
        "shards": shards,
    });
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(match analysis.faulty {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Decodes a shard into a directory.
#[cfg(feature = "parquet")]
pub fn write(shard: Shard, exec: bool, analysis: &Analysis, to: &Path) -> Result<(), Failure> {
    let plan = analysis.plan(shard.of);
    let images = Images::of(&analysis.programs);
    let tables: &[Table] = match exec {
        true => &[Table::ShardExec],
        false => &[],
    };
    let failure = |error: armsnap::export::ExportError| Failure::Input(error.to_string());
    let schemas = TableSchemas::of(tables).map_err(failure)?;
    let tracks = plan.tracks().iter();
    let mut rows: Vec<_> = tracks
        .map(|track| ShardRows::new(Sheets::new(&schemas), &images, track))
        .collect();
    let file = io::BufWriter::new(File::create_new(to.join(COURSE))?);
    let file = GzEncoder::new(file, Compression::fast());
    let header = plan.header(shard.index);
    let mut course = Writer::new(file, &header).map_err(ShardError::from)?;
    // The tracks of the current buffer, each with the number of its earlier buffers.
    let mut here: Vec<(usize, usize)> = Vec::new();
    let mut before = vec![0; rows.len()];
    let mut counted = 0;
    let parts = plan.parts(shard.index);
    let bytes = parts.iter().map(|one| one.part.end - one.part.start).sum();
    let mut bar = Progress::new(bytes);
    let each = |record: Record| {
        match &record {
            Record::Begin(planned) => {
                for track in (counted..planned.buffer).flat_map(|buffer| plan.tracks_in(buffer)) {
                    before[track] += 1;
                }
                counted = planned.buffer;
                let tracks = plan.tracks_in(planned.buffer).into_iter();
                here = tracks.map(|track| (track, before[track])).collect();
            }
            Record::Page(page) => {
                for (&(track, buffer), piece) in here.iter().zip(&page.outputs) {
                    rows[track].piece(buffer, piece);
                }
            }
            Record::End(_) => {}
        }
        course.record(&record)?;
        Ok::<_, ShardError>(())
    };
    decode_shard(&plan, shard.index, exec, each, |done| bar.at(done))?;
    drop(bar);
    let packed = course.finish().map_err(ShardError::from)?;
    packed
        .finish()?
        .into_inner()
        .map_err(|error| error.into_error())?;
    let sheets = rows.into_iter().map(|rows| rows.sink).collect();
    parquet::write(to, &schemas, sheets).map_err(failure)
}

/// The file of a shard, decompressed: it is packed with gzip.
pub type Unpacked = BufReader<GzDecoder<BufReader<File>>>;

/// Opens the files of shards; returns their paths and readers, in order.
pub fn open(directories: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<Reader<Unpacked>>), Failure> {
    let open = |directory: &PathBuf| {
        let path = directory.join(COURSE);
        let named =
            |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", path.display()));
        let file = mapped::open(&path).map_err(|error| named(&error))?;
        let file = BufReader::with_capacity(1 << 16, file);
        let reader = Reader::new(BufReader::new(GzDecoder::new(file)));
        let reader = reader.map_err(|error| named(&error))?;
        Ok((path, reader))
    };
    let files: Result<Vec<_>, Failure> = directories.iter().map(open).collect();
    let mut files = files?;
    files.sort_by_key(|(_, file)| file.header().shard);
    let (paths, files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
    let shards = files.first().map_or(0, |file| file.header().shards);
    let present = |shard| {
        files
            .iter()
            .filter(|file| file.header().shard == shard)
            .count()
    };
    let same = files.iter().all(|file| file.header().shards == shards);
    let places = (0..shards).take(files.len() + 1);
    for (shard, count) in places.map(|shard| (shard, present(shard))).filter(|_| same) {
        let problem = match count {
            0 => "is missing",
            1 => continue,
            _ => "is there more than once",
        };
        return Err(Failure::Usage(format!(
            "--join: shard {}/{shards} {problem}",
            shard + 1
        )));
    }
    Ok((paths, files))
}
