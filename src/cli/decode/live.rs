//! Decodes a buffer while its bytes arrive, on one thread and in constant memory.
//!
//! The lines of each source are the same as from a complete buffer. What is known after each read is
//! written at once, so lines of several sources are in another order than from a complete buffer,
//! where each source has pages of its own.

use super::Arguments;
use super::input::{Input, standard_input};
use super::job::{Decoded, Job, Stopped};
use super::waiting::Waiting;
use crate::cli::output::{Output, not_open_file};
use crate::cli::{Failure, print_notes, say};
use armsnap::capture::{Capture, CaptureBuffer};
use armsnap::decode::{BufferDecoder, FIRST_BYTES, silence_at_start};
use armsnap::report::listing::Listed;
use armsnap::snapshot::OpenSnapshot;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

/// Whether trace is decoded while it arrives.
pub fn is_live(arguments: &Arguments) -> bool {
    arguments.follow || is_standard_input(&arguments.snapshot.snapshot)
}

/// Whether an input is standard input.
pub fn is_standard_input(input: &Path) -> bool {
    input == Path::new("-")
}

/// Opens the trace that is decoded while it arrives.
pub fn input(
    arguments: &Arguments,
    loaded: &OpenSnapshot,
    capture: &Capture,
    output: &Output,
) -> Result<Input, Failure> {
    let [buffer] = &capture.buffers[..] else {
        let names = capture.buffers.iter().map(|buffer| &*buffer.name);
        let names: Vec<&str> = names.collect();
        return Err(Failure::Usage(match &names[..] {
            [] => "live decoding: the snapshot has no trace buffer with a source".to_owned(),
            _ => format!(
                "live decoding reads one buffer: select it with --buffer; the buffers are: {}",
                names.join(", ")
            ),
        }));
    };
    if is_standard_input(&arguments.snapshot.snapshot) {
        if io::stdin().is_terminal() {
            let text = "standard input is a terminal: expected trace from a pipe or a file";
            return Err(Failure::Usage(text.to_owned()));
        }
        let file = standard_input()?;
        if let Some(path) = &arguments.output {
            not_open_file(path, &file)?;
        }
        let waiting = Waiting::new(output)?;
        return Ok(Input::standard(file, arguments.follow, waiting)?);
    }
    if loaded.root.as_os_str().is_empty() {
        return Err(Failure::Usage(
            "--follow: the input is not a snapshot, whose trace is in a file of its own".to_owned(),
        ));
    }
    let paths = loaded.buffer_paths(buffer.index, arguments.snapshot.allow_outside);
    let paths = paths.map_err(|error| Failure::Input(error.to_string()))?;
    Ok(Input::growing(paths, Waiting::new(output)?)?)
}

/// Writes what is known of a source so far.
fn write(listed: &mut (dyn Listed + '_), out: &mut impl Write) -> io::Result<()> {
    let text = listed.text();
    out.write_all(text.bytes())?;
    text.clear();
    Ok(())
}

impl Job<'_> {
    /// Decodes `buffer`, whose bytes are read from `input`; `whole` is the buffer with all its
    /// sources. Notes on what the start of the trace is are printed once it is there.
    pub(super) fn live(
        &self,
        buffer: &CaptureBuffer,
        whole: &CaptureBuffer,
        input: &mut Input,
        out: &mut impl Write,
    ) -> Result<Decoded, Stopped> {
        if buffer.sources.is_empty() {
            return Ok(Decoded::default());
        }
        let mut decoders = self.decoders(buffer, &buffer.sources)?;
        let mut decoder = BufferDecoder::new(buffer.frames, self.piece(), &mut decoders);
        let mut start = Some(Vec::new());
        let mut piece = vec![0; self.piece()];
        loop {
            let count = input.read(&mut piece)?;
            let bytes = &piece[..count];
            let last = bytes.is_empty() && input.has_ended();
            match bytes.is_empty() && !last {
                true => decoder.end_part(|_, listed| write(listed, out))?,
                false => decoder.arrived(bytes, last, |_, listed| write(listed, out))?,
            }
            out.flush()?;
            if let Some(first) = &mut start {
                first.extend_from_slice(bytes);
                if last || first.len() as u64 > FIRST_BYTES {
                    self.explain(whole, start.take().unwrap_or_default());
                }
            }
            if last {
                break;
            }
        }
        let totals = decoder.totals();
        self.decoded(&mut decoders, &buffer.sources, totals, |_, _| Ok(()))
    }

    /// Prints what the start of the trace is, if it cannot be decoded.
    fn explain(&self, whole: &CaptureBuffer, start: Vec<u8>) {
        if start.is_empty() {
            return say("no trace arrived");
        }
        let begun = CaptureBuffer {
            parts: vec![start.into()],
            ..whole.clone()
        };
        print_notes(&silence_at_start(self.loaded, &begun));
    }
}
