//! The lines of a console.

use super::{Arguments, Format};
use crate::cli::output::Output;
use crate::cli::{Failure, say};
use armsnap::report::software::{Port, Said, Time, What, label, lost, shown};
use armsnap::text;
use serde::Serialize;
use std::io::{self, BufWriter, Write};

/// Writes lines, or bytes as they are.
pub struct Writer {
    out: BufWriter<Output>,
    raw: bool,
    json: bool,
    times: bool,
    hertz: Option<f64>,
    /// Whether there is only one source, which is not named then.
    single: bool,
    /// Whether there is only one port, whose number is not shown then.
    one_port: bool,
    /// Whether the last line has not ended.
    in_line: bool,
}

/// A line as JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    master: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_losses: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<&'static str>,
}

impl Writer {
    /// A writer for the text of one source, or of several.
    pub fn new(arguments: &Arguments, single: bool, out: Output) -> Self {
        Self {
            out: BufWriter::new(out),
            raw: arguments.raw,
            json: arguments.format == Format::Jsonl,
            times: arguments.times,
            hertz: arguments.clock.clock,
            single,
            one_port: arguments.port.len() == 1,
            in_line: false,
        }
    }

    /// Writes what was said on the console of a source.
    pub fn write(&mut self, source: &str, said: &[Said]) -> io::Result<()> {
        for said in said {
            match &said.what {
                What::Text { bytes, .. } if self.raw => self.out.write_all(bytes)?,
                What::Lost(_) if self.raw => {}
                _ if self.json => self.json(source, said)?,
                What::Text { port, bytes, ends } => {
                    self.begin(source, Some(*port), said.time)?;
                    self.out.write_all(shown(bytes).as_bytes())?;
                    self.in_line = !ends;
                    if *ends {
                        writeln!(self.out)?;
                    }
                }
                What::Lost(overflow) => {
                    self.end_line()?;
                    self.begin(source, None, said.time)?;
                    writeln!(self.out, "{}", lost(*overflow))?;
                    self.in_line = false;
                }
            }
        }
        Ok(())
    }

    /// Begins a line, unless one has not ended.
    fn begin(&mut self, source: &str, port: Option<Port>, time: Option<Time>) -> io::Result<()> {
        if self.in_line {
            return Ok(());
        }
        if self.times {
            let time = time.map_or_else(|| "-".to_owned(), |time| time.text(self.hertz));
            write!(self.out, "{time:>12}  ")?;
        }
        let source = (!self.single).then_some(source);
        let label = label(source, port, !self.one_port);
        self.out.write_all(label.as_bytes())
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.in_line) {
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn json(&mut self, source: &str, said: &Said) -> io::Result<()> {
        let (text, port, lost) = match &said.what {
            What::Text { port, bytes, .. } => {
                (Some(String::from_utf8_lossy(bytes)), Some(*port), None)
            }
            What::Lost(true) => (None, None, Some("overflow")),
            What::Lost(false) => (None, None, Some("trace")),
        };
        let line = JsonLine {
            source,
            master: port.and_then(|port| match port {
                Port::Channel(master, _) => master,
                Port::Stimulus(_) => None,
            }),
            port: port.map(Port::number),
            time: said.time.map(|time| time.ticks),
            seconds: said
                .time
                .zip(self.hertz)
                .map(|(time, hertz)| time.ticks as f64 / hertz),
            after_losses: said.time.map(|time| time.losses).filter(|count| *count > 0),
            text: text.as_deref(),
            lost,
        };
        let mut out = text::PlainStream::new(&mut self.out, text::Form::Json);
        serde_json::to_writer(&mut out, &line)?;
        writeln!(out)
    }

    /// Says how often packets were lost, if the text does not.
    pub fn losses(&mut self, count: u64) -> io::Result<()> {
        if self.raw && count > 0 {
            self.flush()?;
            say(format!(
                "trace was lost {}: text may be missing",
                text::count(count, "time")
            ));
        }
        Ok(())
    }

    /// Passes everything on.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the last line and completes the output.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.end_line()?;
        let out = self.out.into_inner().map_err(io::Error::from)?;
        out.finish()
    }
}
