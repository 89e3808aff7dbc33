//! A console whose trace is decoded while it arrives.

use super::{Arguments, PIECE, Traced, Writer};
use crate::cli::Failure;
use crate::cli::decode::input::{Input, standard_input};
use crate::cli::decode::waiting::Waiting;
use crate::cli::output::{Output, not_open_file};
use armsnap::capture::{Capture, CaptureBuffer, CaptureSource, Config, Protocol};
use armsnap::decode::BufferDecoder;
use armsnap::itm;
use armsnap::protocol::Core;
use std::io::{self, IsTerminal, Read};

/// The trace of one ITM, as a debug probe passes it on from the SWO pin.
pub fn plain_itm() -> Capture {
    let config = itm::Config::read(&itm::Registers::default(), Core::microcontroller(7));
    let source = CaptureSource {
        device: 0,
        name: "ITM".to_owned(),
        protocol: Protocol::Itm,
        trace_id: config.trace_id(),
        config: Config::Itm(config),
        core: None,
        only: None,
        clock: None,
    };
    Capture {
        buffers: vec![CaptureBuffer {
            index: 0,
            name: "SWO".to_owned(),
            parts: Vec::new(),
            frames: None,
            sources: vec![source],
            left_out: Vec::new(),
        }],
    }
}

/// Opens the trace that is decoded while it arrives.
pub fn input(
    arguments: &Arguments,
    traced: Option<&Traced>,
    capture: &Capture,
    output: &Output,
) -> Result<Input, Failure> {
    let [buffer] = &capture.buffers[..] else {
        let names = capture.buffers.iter().map(|buffer| &*buffer.name);
        let names: Vec<&str> = names.collect();
        return Err(Failure::Usage(format!(
            "live decoding reads one buffer: select a source of it with --source; the buffers are: {}",
            names.join(", ")
        )));
    };
    if arguments.is_standard_input() {
        if io::stdin().is_terminal() {
            let text = "standard input is a terminal: expected trace from a pipe or a file";
            return Err(Failure::Usage(text.to_owned()));
        }
        let file = standard_input()?;
        if let Some(path) = &arguments.output {
            not_open_file(path, &file)?;
        }
        return Ok(Input::standard(
            file,
            arguments.follow,
            Waiting::new(output)?,
        )?);
    }
    let path = &arguments.snapshot.snapshot;
    let paths = match traced {
        Some(traced) if !traced.loaded.root.as_os_str().is_empty() => {
            let allow_outside = arguments.snapshot.allow_outside;
            let paths = traced.loaded.buffer_paths(buffer.index, allow_outside);
            paths.map_err(|error| Failure::Input(error.to_string()))?
        }
        _ if arguments.snapshot.is_raw() => vec![path.clone()],
        _ => {
            return Err(Failure::Usage(
                "--follow: the input is not a snapshot, whose trace is in a file of its own"
                    .to_owned(),
            ));
        }
    };
    Ok(Input::growing(paths, Waiting::new(output)?)?)
}

impl Arguments {
    /// Decodes `buffer`, whose bytes are read from `input`, without the first `skipped`.
    pub(super) fn live(
        &self,
        buffer: &CaptureBuffer,
        mut skipped: usize,
        mut input: Input,
        out: &mut Writer,
    ) -> Result<(), Failure> {
        // Only the text of one port can be shown before its line ends.
        let at_once = self.port.len() == 1 && buffer.sources.len() == 1 && !self.times;
        let mut decoders = self.decoders(buffer);
        let mut decoder = BufferDecoder::new(buffer.frames, PIECE, &mut decoders);
        let mut piece = vec![0; PIECE];
        loop {
            let count = input.read(&mut piece)?;
            let left_out = skipped.min(count);
            skipped -= left_out;
            let bytes = &piece[left_out..count];
            let last = count == 0 && input.has_ended();
            // After a whole piece, more is there.
            let caught_up = count < piece.len();
            let write = |index: usize, console: &mut armsnap::report::software::Console| {
                if caught_up {
                    console.write_last();
                }
                if at_once {
                    console.say_open();
                }
                out.write(&buffer.sources[index].name, &console.take())
            };
            match count == 0 && !last {
                true => decoder.end_part(write)?,
                false => decoder.arrived(bytes, last, write)?,
            }
            out.flush()?;
            if last {
                break;
            }
        }
        let losses = decoders.iter_mut().map(|(_, decoder)| decoder.output());
        let losses = losses.map(|console| console.losses()).sum();
        Ok(out.losses(losses)?)
    }
}
