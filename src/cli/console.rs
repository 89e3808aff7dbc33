//! `armsnap console`: text that software wrote to the stimulus ports of an ITM or to an STM.

mod live;
mod writer;

use super::output::{self, Output};
use super::software::{self, ClockArguments, Traced};
use super::{Failure, SnapshotArguments};
use armsnap::capture::{Capture, CaptureBuffer, CaptureSource, Selection};
use armsnap::decode::{Decoding, decode_buffer};
use armsnap::mapped;
use armsnap::quantity::TraceId;
use armsnap::report::software::{Console, decoder};
use clap::{Args, ValueEnum};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use writer::Writer;

/// The number of bytes of trace decoded at once.
const PIECE: usize = 16 << 10;

/// The arguments of `console`.
#[derive(Args)]
pub struct Arguments {
    /// The input: also raw SWO, and - for raw SWO or a trace buffer on standard input.
    #[command(flatten)]
    snapshot: SnapshotArguments,

    /// Only this stimulus port, or this channel of an STM (repeatable)
    #[arg(long, value_name = "N")]
    port: Vec<u16>,

    /// Only this trace source (repeatable)
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,

    /// Show the time of each line
    #[arg(long, conflicts_with = "raw")]
    times: bool,

    #[command(flatten)]
    clock: ClockArguments,

    /// Write the bytes as software wrote them, control characters included, in their order
    #[arg(long)]
    raw: bool,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "raw")]
    format: Format,

    /// Also show what is appended to the trace, as it appears. Ends when the processes that write
    /// the file have closed it, if they can be seen, or on Ctrl-C
    #[arg(short, long)]
    follow: bool,

    /// If the input is -, the trace is read from standard input as it arrives. This snapshot has
    /// its trace sources. Default: one ITM, without formatter frames
    #[arg(long, value_name = "SNAPSHOT")]
    like: Option<PathBuf>,

    /// Write to a file instead of standard output
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines of text
    Text,
    /// JSON Lines
    Jsonl,
}

/// The decoder of a source, and its trace ID.
type SourceDecoder = (TraceId, Box<dyn Decoding<Console>>);

impl Arguments {
    /// Whether trace is decoded while it arrives.
    fn is_live(&self) -> bool {
        self.follow || self.is_standard_input()
    }

    fn is_standard_input(&self) -> bool {
        self.snapshot.snapshot.as_os_str() == "-"
    }

    fn decoders(&self, buffer: &CaptureBuffer) -> Vec<SourceDecoder> {
        let made = |source: &CaptureSource| {
            let console = Console::new(self.port.clone(), self.raw, self.clock.of(source));
            (source.trace_id, decoder(source, console))
        };
        buffer.sources.iter().map(made).collect()
    }

    /// Decodes a buffer that is complete.
    fn decode(&self, buffer: &CaptureBuffer, out: &mut Writer) -> io::Result<()> {
        let mut decoders = self.decoders(buffer);
        decode_buffer(buffer, &mut decoders, PIECE, |index, console| {
            if mapped::is_cut() {
                mapped::whole()?;
            }
            out.write(&buffer.sources[index].name, &console.take())
        })?;
        let losses = decoders.iter_mut().map(|(_, decoder)| decoder.output());
        out.losses(losses.map(|console| console.losses()).sum())
    }
}

/// Prints the text.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = Selection {
        sources: arguments.source.clone(),
        buffers: Vec::new(),
        without_files: arguments.is_standard_input(),
    };
    let mut snapshot = arguments.snapshot.clone();
    let timed = arguments.times && arguments.clock.prescaler.is_none();
    let traced = match (arguments.is_standard_input(), &arguments.like) {
        (true, None) => None,
        (true, Some(like)) => {
            snapshot.snapshot.clone_from(like);
            Some(software::open(&snapshot, &selection, timed)?)
        }
        (false, None) => Some(software::open(&snapshot, &selection, timed)?),
        (false, Some(_)) => {
            let text = "--like: expected - as the input, which is standard input";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    if let (Some(path), Some(traced)) = (&arguments.output, &traced) {
        output::not_named(path, &traced.loaded)?;
    }
    let capture = match &traced {
        Some(traced) => traced.capture.clone(),
        None => live::plain_itm(),
    };
    let out = Output::new(arguments.output.as_deref(), arguments.force)?;
    let input = arguments.is_live();
    let input = input.then(|| live::input(arguments, traced.as_ref(), &capture, &out));
    let input = input.transpose()?;
    let mut out = Writer::new(arguments, is_single(&capture), out);
    match (input, &capture.buffers[..]) {
        (Some(input), [buffer, ..]) => {
            let skipped = traced.as_ref().map_or(0, |traced| traced.skipped);
            arguments.live(buffer, skipped, input, &mut out)?;
        }
        _ => {
            for buffer in &capture.buffers {
                arguments.decode(buffer, &mut out)?;
            }
        }
    }
    out.finish()?;
    Ok(match traced.is_some_and(|traced| traced.faulty) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Returns whether all text is of one source.
fn is_single(capture: &Capture) -> bool {
    let sources = capture.buffers.iter().flat_map(|buffer| &buffer.sources);
    let mut devices: Vec<usize> = sources.map(|source| source.device).collect();
    devices.dedup();
    devices.len() == 1
}
