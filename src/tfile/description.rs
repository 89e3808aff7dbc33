//! The description section: lines of text ⇄ data.

use super::note::LineFault;
use super::tracepoint::{self, Tracepoint};
use super::{LINE_LIMIT, TRACEPOINT_LIMIT};
use crate::remote_protocol::hex;
use std::collections::HashMap;

/// The contents of the description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// `R`: the size of a register block in bytes, as this program reads it.
    pub register_bytes: u32,
    /// `status`.
    pub status: Option<Status>,
    /// `tsv`, in file order.
    pub variables: Vec<Variable>,
    /// `tp`, one entry per tracepoint and location, in file order.
    pub tracepoints: Vec<Tracepoint>,
    /// `tdesc`, the lines joined.
    pub target: Option<String>,
    /// Lines of unknown kinds, unchanged.
    pub unknown: Vec<String>,
}

/// `status`: the fields of a reply to `qTStatus`; `None` if not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether the trace experiment was running.
    pub running: bool,
    /// Why it stopped.
    pub stop: Option<StopReason>,
    /// The tracepoint that stopped it; 0 if none did.
    pub stopping_tracepoint: u64,
    /// Frames in the buffer.
    pub frames: Option<u64>,
    /// Frames created during the run.
    pub created: Option<u64>,
    /// Unused bytes of the buffer.
    pub free: Option<u64>,
    /// Bytes of the buffer.
    pub size: Option<u64>,
    /// Whether the buffer was circular.
    pub circular: Option<bool>,
    /// Whether tracing continues when GDB disconnects.
    pub disconnected: Option<bool>,
    /// Start in microseconds since 1970.
    pub start_time: Option<u64>,
    /// Stop in microseconds since 1970.
    pub stop_time: Option<u64>,
    /// Who started it.
    pub user_name: Option<String>,
    /// Notes.
    pub notes: Option<String>,
    /// Other fields, name and value unchanged.
    pub other: Vec<(String, String)>,
}

/// Why a trace experiment stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// `tnotrun`: it never ran.
    NotRun,
    /// `tunknown`.
    Unknown,
    /// `tstop`, with the text given to GDB's command, if there is one (`tstop:0` has none).
    Command(Option<String>),
    /// `tfull`: the buffer was full.
    Full,
    /// `tdisconnected`: GDB disconnected.
    Disconnected,
    /// `tpasscount`.
    PassCount,
    /// `terror`, with its text, if there is one.
    Error(Option<String>),
}

/// `tsv`: a trace state variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// Its number, from 1.
    pub number: u32,
    /// Its value before the run.
    pub initial: i64,
    /// Whether the target defines it.
    pub builtin: bool,
    /// Its name, without `$`.
    pub name: String,
}

impl StopReason {
    const fn name(&self) -> &'static str {
        match self {
            Self::NotRun => "tnotrun",
            Self::Unknown => "tunknown",
            Self::Command(_) => "tstop",
            Self::Full => "tfull",
            Self::Disconnected => "tdisconnected",
            Self::PassCount => "tpasscount",
            Self::Error(_) => "terror",
        }
    }

    fn read(name: &str, text: Option<String>) -> Option<Self> {
        Some(match name {
            "tnotrun" => Self::NotRun,
            "tunknown" => Self::Unknown,
            "tstop" => Self::Command(text),
            "tfull" => Self::Full,
            "tdisconnected" => Self::Disconnected,
            "tpasscount" => Self::PassCount,
            "terror" => Self::Error(text),
            _ => return None,
        })
    }
}

impl Status {
    /// Reads `0;tstop::0;tframes:ad;…`. Errors are passed to `fault`; valid fields are kept.
    pub fn read(text: &str, fault: &mut dyn FnMut(LineFault)) -> Self {
        let mut status = Self::default();
        let mut fields = text.split(';');
        match fields.next() {
            Some("0" | "T0") => {}
            Some("1" | "T1") => status.running = true,
            other => fault(LineFault::Status {
                found: other.unwrap_or_default().to_owned(),
            }),
        }
        for field in fields.filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once(':').unwrap_or((field, ""));
            if !status.field(name, value) {
                fault(LineFault::StatusField {
                    name: name.to_owned(),
                    value: value.to_owned(),
                });
            }
        }
        status
    }

    fn field(&mut self, name: &str, value: &str) -> bool {
        let flag = |value: &str| hex::number(value).map(|value| value != 0);
        match name {
            "tframes" => set(&mut self.frames, hex::number(value)),
            "tcreated" => set(&mut self.created, hex::number(value)),
            "tfree" => set(&mut self.free, hex::number(value)),
            "tsize" => set(&mut self.size, hex::number(value)),
            "circular" => set(&mut self.circular, flag(value)),
            "disconn" => set(&mut self.disconnected, flag(value)),
            "starttime" => set(&mut self.start_time, hex::number(value)),
            "stoptime" => set(&mut self.stop_time, hex::number(value)),
            "username" => set(&mut self.user_name, hex::decode_text(value)),
            "notes" => set(&mut self.notes, hex::decode_text(value)),
            _ => self.stop_field(name, value),
        }
    }

    /// `tstop:<hex text>:<tracepoint>`, `tfull:<tracepoint>`…; otherwise an unknown field.
    fn stop_field(&mut self, name: &str, value: &str) -> bool {
        let (text, number) = match value.rsplit_once(':') {
            Some((text, number)) => (Some(text), number),
            None => (None, value),
        };
        // Text that is not in hex makes the field unknown.
        let text = match text {
            Some(text) => hex::decode_text(text).map(Some),
            None => Some(None),
        };
        let Some(reason) = text.and_then(|text| StopReason::read(name, text)) else {
            self.other.push((name.to_owned(), value.to_owned()));
            return !matches!(name, "tstop" | "terror");
        };
        self.stop = Some(reason);
        match hex::number(number) {
            Some(number) => self.stopping_tracepoint = number,
            None => return false,
        }
        true
    }

    /// The text as GDB's `tsave` writes it.
    pub fn write(&self) -> String {
        let mut out = String::from(if self.running { "1" } else { "0" });
        if let Some(stop) = &self.stop {
            let text = match stop {
                StopReason::Command(Some(text)) | StopReason::Error(Some(text)) => {
                    format!("{}:", hex::encode(text.as_bytes()))
                }
                _ => String::new(),
            };
            out += &format!(";{}:{text}{:x}", stop.name(), self.stopping_tracepoint);
        }
        let numbers = [
            ("tframes", self.frames),
            ("tcreated", self.created),
            ("tfree", self.free),
            ("tsize", self.size),
            ("disconn", self.disconnected.map(u64::from)),
            ("circular", self.circular.map(u64::from)),
            ("starttime", self.start_time),
            ("stoptime", self.stop_time),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                out += &format!(";{name}:{value:x}");
            }
        }
        for (name, value) in [("notes", &self.notes), ("username", &self.user_name)] {
            if let Some(value) = value {
                out += &format!(";{name}:{}", hex::encode(value.as_bytes()));
            }
        }
        for (name, value) in &self.other {
            out += &format!(";{name}:{value}");
        }
        out
    }
}

fn set<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    let known = value.is_some();
    if known {
        *field = value;
    }
    known
}

impl Variable {
    fn read(text: &str) -> Option<Self> {
        let mut fields = text.splitn(4, ':');
        let number = u32::try_from(hex::number(fields.next()?)?).ok()?;
        let initial = hex::number(fields.next()?)?.cast_signed();
        let builtin = hex::number(fields.next()?)? != 0;
        let name = hex::decode_text(fields.next()?)?;
        Some(Self {
            number,
            initial,
            builtin,
            name,
        })
    }

    /// The payload as in a reply to `qTfV`: `1:0:0:6379636c6573`.
    pub fn write(&self) -> String {
        format!(
            "{:x}:{:x}:{:x}:{}",
            self.number,
            self.initial.cast_unsigned(),
            u8::from(self.builtin),
            hex::encode(self.name.as_bytes())
        )
    }
}

/// `R` is hex as GDB writes it, decimal as its manual says.
pub struct RegisterSizes {
    /// As hex.
    pub hex: Option<u32>,
    /// As decimal.
    pub decimal: Option<u32>,
}

/// Why GDB could not read a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Register blocks have no bytes.
    #[error("R: GDB reads no file whose register blocks have no bytes")]
    NoRegisters,
    /// The number of a tracepoint is out of range.
    #[error("tracepoint {0}: expected a number from 1 to {TRACEPOINT_LIMIT}")]
    Tracepoint(u32),
    /// A line is too long.
    #[error("a line of {length} bytes, GDB reads up to {LINE_LIMIT}: {start}…")]
    Line {
        /// Its length in bytes.
        length: usize,
        /// Its first characters.
        start: String,
    },
}

impl Description {
    /// The program counter of frames that do not contain it: the address of their tracepoint, by
    /// its number. As in GDB, a tracepoint with several locations or with steps supplies no
    /// address.
    pub fn addresses(&self) -> HashMap<u32, Option<u64>> {
        let mut addresses = HashMap::new();
        for tracepoint in &self.tracepoints {
            let alone = (tracepoint.steps == 0).then_some(tracepoint.address);
            let known = addresses.entry(tracepoint.number);
            known.and_modify(|known| *known = None).or_insert(alone);
        }
        addresses
    }

    /// Reads a line of the description; `index` locates the tracepoints read so far. A line that
    /// cannot be read is reported to `fault` and kept as unknown. Returns the possible meanings of
    /// an `R` line's size.
    pub fn line(
        &mut self,
        line: &str,
        index: &mut tracepoint::Index,
        fault: &mut dyn FnMut(LineFault),
    ) -> Option<RegisterSizes> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let known = match kind {
            "R" => {
                let sizes = RegisterSizes {
                    hex: u32::from_str_radix(rest, 16).ok(),
                    decimal: rest.parse().ok(),
                };
                if sizes.hex.is_none() {
                    fault(LineFault::RegisterSize {
                        found: rest.to_owned(),
                    });
                }
                return Some(sizes);
            }
            "status" => {
                self.status = Some(Status::read(rest, fault));
                true
            }
            "tsv" => Variable::read(rest)
                .map(|variable| self.variables.push(variable))
                .is_some(),
            "tp" => tracepoint::read_line(rest, &mut self.tracepoints, index),
            "tdesc" => {
                let target = self.target.get_or_insert_default();
                target.push_str(rest);
                target.push('\n');
                true
            }
            _ => {
                self.unknown.push(line.to_owned());
                return None;
            }
        };
        if !known {
            fault(LineFault::Unreadable {
                kind: kind.to_owned(),
                rest: rest.to_owned(),
            });
            self.unknown.push(line.to_owned());
        }
        None
    }

    /// The lines, in the order in which GDB writes them, without the empty one at the end.
    ///
    /// # Errors
    ///
    /// Fails if GDB could not read the result.
    pub fn write(&self) -> Result<String, Unreadable> {
        let mut out = format!("R {:x}\n", self.register_bytes);
        if self.register_bytes == 0 {
            return Err(Unreadable::NoRegisters);
        }
        for line in self.target.iter().flat_map(|target| target.lines()) {
            out += &format!("tdesc {line}\n");
        }
        if let Some(status) = &self.status {
            out += &format!("status {}\n", status.write());
        }
        for variable in &self.variables {
            out += &format!("tsv {}\n", variable.write());
        }
        for tracepoint in &self.tracepoints {
            if !(1..=u32::from(TRACEPOINT_LIMIT)).contains(&tracepoint.number) {
                return Err(Unreadable::Tracepoint(tracepoint.number));
            }
            tracepoint.write(&mut |payload| out += &format!("tp {payload}\n"));
        }
        for line in &self.unknown {
            out += line;
            out.push('\n');
        }
        match out.lines().find(|line| line.len() > LINE_LIMIT) {
            Some(line) => Err(Unreadable::Line {
                length: line.len(),
                start: line.chars().take(40).collect(),
            }),
            None => Ok(out),
        }
    }
}
