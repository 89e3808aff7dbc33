//! Text that software writes to the stimulus ports of an ITM, or to the channels of an STM.

use super::clock::{Clock, Tick, Time};
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::SourceSinks;
use armsnap_trace::element::{AtomSink, Element, ElementSink, Itm, Mark, NoSyncReason, Stm};
use std::collections::{BTreeMap, VecDeque};

/// The longest line; a longer one is broken.
const LONGEST: usize = 4096;
/// The most lines that are open at a time.
const MOST_OPEN: usize = 1024;
/// The most lines that wait for their time.
const MOST_WAITING: usize = 1024;

/// Where text was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// A stimulus port of an ITM, with its page.
    Stimulus(u8),
    /// A channel of an STM, and its master if that is known.
    Channel(Option<u16>, u16),
}

impl Port {
    /// The number by which a user selects it: that of the stimulus port, or of the channel.
    pub const fn number(self) -> u16 {
        match self {
            Self::Stimulus(port) => port as u16,
            Self::Channel(_, channel) => channel,
        }
    }
}

/// What was said on the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Text as it was written, without the end of the line. Words that are no text are in it as
    /// numbers, and losses as `[overflow]` or `[trace lost]`.
    Text {
        /// The port.
        port: Port,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether the line ends here.
        ends: bool,
    },
    /// Packets were lost, and no line was open then. The ITM says so (`true`), or the trace is
    /// damaged.
    Lost(bool),
}

/// A line of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The time of its first byte, if known.
    pub time: Option<Time>,
    /// What was said.
    pub what: What,
}

/// A line that has not ended.
#[derive(Clone, Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    time: Option<Time>,
    /// Whether a part of it was said already.
    continues: bool,
}

/// Collects the text of a source as lines.
#[derive(Debug)]
pub struct Console {
    /// The ports whose text is wanted; all if empty.
    ports: Vec<u16>,
    /// Whether the bytes are wanted as they were written, at once.
    raw: bool,
    clock: Clock,
    /// The last write to a stimulus port: if damaged trace follows, it may consist of parts of two.
    last: Option<(u8, u8, u32)>,
    open: BTreeMap<Port, Line>,
    /// Lines that wait for the next timestamp, or for a line before them.
    waiting: VecDeque<Said>,
    said: Vec<Said>,
    losses: u64,
    /// Whether nothing was written since the last loss.
    is_lost: bool,
}

impl Console {
    /// Collects the text of these ports, or of all if there are none. With `raw`, bytes are passed
    /// on as they were written.
    pub const fn new(ports: Vec<u16>, raw: bool, clock: Clock) -> Self {
        Self {
            ports,
            raw,
            clock,
            last: None,
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            said: Vec::new(),
            losses: 0,
            is_lost: false,
        }
    }

    /// Takes what was said since the last call.
    pub fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// Takes the last write, although it is not known yet whether damaged trace follows: nothing may
    /// follow for a long time.
    pub fn write_last(&mut self) {
        if let Some((port, bytes, value)) = self.last.take() {
            self.write(Port::Stimulus(port), value.into(), bytes.into(), None);
        }
    }

    /// Says what there is of the lines that have not ended, except incomplete characters.
    pub fn say_open(&mut self) {
        for (port, line) in &mut self.open {
            let whole = whole_characters(&line.bytes);
            if whole == 0 {
                continue;
            }
            line.continues = true;
            let rest = line.bytes.split_off(whole);
            self.said.push(Said {
                time: line.time,
                what: What::Text {
                    port: *port,
                    bytes: std::mem::replace(&mut line.bytes, rest),
                    ends: false,
                },
            });
        }
    }

    /// Returns how often packets were lost.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    fn write(&mut self, port: Port, value: u64, bytes: usize, time: Option<Time>) {
        if !self.ports.is_empty() && !self.ports.contains(&port.number()) {
            return;
        }
        self.is_lost = false;
        let written = &value.to_le_bytes()[..bytes];
        if self.raw {
            return self.said.push(Said {
                time: None,
                what: What::Text {
                    port,
                    bytes: written.to_vec(),
                    ends: false,
                },
            });
        }
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&port) {
            self.end_all();
        }
        let number = format!("<{value:#x}>");
        for &byte in text_of(written).unwrap_or(number.as_bytes()) {
            let line = self.open.entry(port).or_insert_with(|| Line {
                time,
                ..Line::default()
            });
            match byte {
                b'\n' => self.end_line(port),
                _ => line.bytes.push(byte),
            }
            if self
                .open
                .get(&port)
                .is_some_and(|line| line.bytes.len() >= LONGEST)
            {
                self.end_line(port);
            }
        }
    }

    fn end_line(&mut self, port: Port) {
        let Some(mut line) = self.open.remove(&port) else {
            return;
        };
        if line.bytes.last() == Some(&b'\r') {
            line.bytes.pop();
        }
        // An STM also carries data of other kinds: only what is text belongs here.
        let chosen = !self.ports.is_empty() || matches!(port, Port::Stimulus(_));
        if !chosen && !is_text(&line.bytes) {
            return;
        }
        let said = Said {
            time: line.time,
            what: What::Text {
                port,
                bytes: line.bytes,
                ends: true,
            },
        };
        self.queue(said);
    }

    fn end_all(&mut self) {
        while let Some((&port, _)) = self.open.first_key_value() {
            self.end_line(port);
        }
    }

    /// Says a line once its time is known, if the source sends timestamps at all.
    fn queue(&mut self, said: Said) {
        let waits = said.time.is_none() && self.clock.is_behind();
        if !waits && self.waiting.is_empty() {
            return self.said.push(said);
        }
        self.waiting.push_back(said);
        if self.waiting.len() >= MOST_WAITING {
            self.said.extend(self.waiting.drain(..));
        }
    }

    fn tick(&mut self, time: Time) {
        for line in self.open.values_mut() {
            line.time.get_or_insert(time);
        }
        for mut said in self.waiting.drain(..) {
            said.time.get_or_insert(time);
            self.said.push(said);
        }
    }

    fn lost(&mut self, overflow: bool) {
        self.losses += 1;
        if self.raw {
            return;
        }
        // The timestamp of these lines is lost.
        self.said.extend(self.waiting.drain(..));
        // Losses in a row are one, so that they do not fill the memory.
        let is_marked = |line: &Line| {
            [true, false]
                .map(lost)
                .iter()
                .any(|mark| line.bytes.ends_with(mark.as_bytes()))
        };
        for line in self.open.values_mut() {
            if !is_marked(line) {
                line.bytes.extend_from_slice(lost(overflow).as_bytes());
            }
        }
        let is_first = !std::mem::replace(&mut self.is_lost, true);
        if self.open.is_empty() && is_first {
            self.queue(Said {
                time: None,
                what: What::Lost(overflow),
            });
        }
    }

    fn channel(&mut self, stm: &Stm) {
        let Some(channel) = stm.channel else {
            return;
        };
        let port = Port::Channel(stm.master, channel);
        let time = stm
            .timestamp
            .and_then(|_| match self.clock.mark(&Mark::Stm(*stm)) {
                Tick::Now(time) => Some(time),
                _ => None,
            });
        match stm.bits {
            8.. if !stm.frequency => self.write(port, stm.value, usize::from(stm.bits / 8), time),
            // A flag ends a message.
            0 if !stm.trigger && !stm.master_error && !stm.global_error => self.end_line(port),
            _ => {}
        }
    }

    fn mark(&mut self, mark: &Mark) {
        if matches!(mark, Mark::NoSync(NoSyncReason::BadPacket)) {
            self.last = None;
        }
        self.write_last();
        match mark {
            Mark::Itm(Itm::Stimulus { port, bytes, value }) => {
                self.last = Some((*port, *bytes, *value));
            }
            Mark::Stm(stm) => self.channel(stm),
            _ => match self.clock.mark(mark) {
                Tick::Now(time) => self.tick(time),
                Tick::Lost => self.lost(matches!(mark, Mark::Itm(Itm::Overflow))),
                Tick::None => {}
            },
        }
    }
}

/// Returns the mark of a loss: one that the ITM reported, or damaged trace.
pub const fn lost(overflow: bool) -> &'static str {
    if overflow {
        "[overflow]"
    } else {
        "[trace lost]"
    }
}

/// Returns the text in a write: its bytes, without the zeros at the end of a word. `None` if it is a
/// word that is no text.
fn text_of(written: &[u8]) -> Option<&[u8]> {
    if written.len() == 1 {
        return Some(written);
    }
    let zeros = written.iter().rev().take_while(|byte| **byte == 0).count();
    let text = &written[..written.len() - zeros];
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b | 0x20..=0x7e | 0x80..);
    let is_whole = zeros == 0 || std::str::from_utf8(text).is_ok();
    (!text.is_empty() && is_whole && text.iter().all(is_text)).then_some(text)
}

/// Returns whether bytes are text of which nothing is missing.
fn is_text(bytes: &[u8]) -> bool {
    let plain = |c: char| !c.is_control() || matches!(c, '\t' | '\r' | '\x1b');
    std::str::from_utf8(bytes).is_ok_and(|text| !text.is_empty() && text.chars().all(plain))
}

/// Returns the number of bytes before a character that is not complete.
fn whole_characters(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let starts = |at: &usize| bytes[*at] >= 0xc0;
    let Some(start) = (from..bytes.len()).rev().find(starts) else {
        return bytes.len();
    };
    match std::str::from_utf8(&bytes[start..]) {
        Err(error) if error.error_len().is_none() => start,
        _ => bytes.len(),
    }
}

impl ElementSink for Console {
    fn element(&mut self, _: BufferOffset, element: Element) {
        if let Element::Mark(mark) = element {
            self.mark(&mark);
        }
    }
}

impl AtomSink for Console {
    const LOCATES: bool = false;
}

impl SourceSinks<Self> for Console {
    fn end(&mut self, _: BufferOffset) {
        self.write_last();
        self.end_all();
        let waiting = std::mem::take(&mut self.waiting);
        self.said.extend(waiting);
    }

    fn output(&mut self) -> &mut Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_right_before_damage_is_left_out() {
        for (reason, wanted) in [
            (NoSyncReason::BadPacket, &b"a[trace lost]b"[..]),
            // Only whole packets are before a gap.
            (NoSyncReason::Discard, b"a?[trace lost]b"),
        ] {
            assert_eq!(around(reason), wanted, "{reason:?}");
        }
    }

    /// What two writes, a loss, and another write are.
    fn around(reason: NoSyncReason) -> Vec<u8> {
        let mut console = Console::new(Vec::new(), false, Clock::new(1));
        let mut write = |value| {
            console.mark(&Mark::Itm(Itm::Stimulus {
                port: 0,
                bytes: 1,
                value,
            }));
        };
        write(u32::from(b'a'));
        write(u32::from(b'?'));
        console.mark(&Mark::NoSync(reason));
        console.mark(&Mark::Itm(Itm::Stimulus {
            port: 0,
            bytes: 1,
            value: u32::from(b'b'),
        }));
        console.end(BufferOffset(0));
        let [said] = &console.take()[..] else {
            panic!("not one line");
        };
        let What::Text { bytes, .. } = &said.what else {
            panic!("{said:?}");
        };
        bytes.clone()
    }

    #[test]
    fn losses_of_both_kinds_in_a_row_are_one() {
        let mut console = Console::new(Vec::new(), false, Clock::new(1));
        let mut write = |value| {
            console.mark(&Mark::Itm(Itm::Stimulus {
                port: 0,
                bytes: 1,
                value,
            }));
            for _ in 0..1000 {
                console.mark(&Mark::Itm(Itm::Overflow));
                console.mark(&Mark::NoSync(NoSyncReason::BadPacket));
            }
        };
        write(u32::from(b'a'));
        write(u32::from(b'b'));
        console.end(BufferOffset(0));
        let [said] = &console.take()[..] else {
            panic!("not one line");
        };
        let What::Text { bytes, .. } = &said.what else {
            panic!("{said:?}");
        };
        assert_eq!(bytes, b"a[overflow]b[overflow]");
    }
}
