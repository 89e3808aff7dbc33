//! The bytes of one ETMv4 or ETE source → packets.
//!
//! The only state is whether the decoder is synchronised; `elements` interprets the packets.

use super::config::{Config, Version};
use super::packet::{
    AddressBits, ConditionalInstruction, ConditionalResult, ExceptionAddress, InstructionSet,
    Packet, TraceInfo,
};
use super::payload::{self, Payload, Stop};
use crate::element::{AtomPacket, Atoms};
use crate::protocol::{PacketDecoder, RangeSink};
use armsnap_arch::quantity::ExceptionLevel;

/// An alignment synchronisation is 11 zero bytes followed by this one (IHI 0064, A-Sync packet).
const ASYNC_END: u8 = 0x80;
const ASYNC_ZEROS: usize = 11;
const ASYNC_LENGTH: usize = ASYNC_ZEROS + 1;

/// The packets of headers 0xC0 to 0xFF (IHI 0064, Atom packets).
static ATOMS: [(Atoms, u8); 64] = {
    let mut table = [(Atoms { bits: 0, count: 0 }, 0); 64];
    let mut index = 0;
    while index < 64 {
        table[index] = atoms(0xc0 | index as u8);
        index += 1;
    }
    table
};

/// Atoms and format of a header.
const fn atoms(header: u8) -> (Atoms, u8) {
    let low = header as u32;
    let (format, bits, count) = match header {
        0xf6..=0xf7 => (1, low & 1, 1),
        0xd8..=0xdb => (2, low & 3, 2),
        0xf8..=0xff => (3, low & 7, 3),
        0xdc => (4, 0b1110, 4),
        0xdd => (4, 0b0000, 4),
        0xde => (4, 0b1010, 4),
        0xdf => (4, 0b0101, 4),
        0xf5 => (5, 0b11110, 5),
        0xd5 => (5, 0b00000, 5),
        0xd6 => (5, 0b01010, 5),
        0xd7 => (5, 0b10101, 5),
        _ => {
            let taken = (low & 0x1f) + 3;
            let last = if low & 0x20 == 0 { 1 << taken } else { 0 };
            (6, ((1 << taken) - 1) | last, taken as u8 + 1)
        }
    };
    (Atoms { bits, count }, format)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Sync {
    /// Looking for an alignment synchronisation.
    No,
    /// Synchronised.
    Yes,
    /// A packet since the last alignment synchronisation was malformed. The boundaries of packets
    /// are uncertain, so the next alignment synchronisation may start inside a packet.
    Doubtful,
}

/// Splits the bytes of an ETMv4 or ETE source into packets.
///
/// The bytes after a packet that no trace unit writes are still split, because they are most likely
/// packets. Their meaning is unknown until the next alignment synchronisation.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decoder {
    config: Config,
    sync: Sync,
}

#[inline(always)]
fn atom_packet(header: u8) -> Packet {
    let (atoms, format) = ATOMS[usize::from(header & 0x3f)];
    Packet::Atoms { format, atoms }
}

/// The length of the longest packet that holds an address alone.
pub(super) const LONGEST_ADDRESS: usize = 9;

/// Decodes a short or long address packet from a window that holds the longest one; also returns
/// its length.
#[inline(always)]
pub(super) fn address(header: u8, window: &[u8; LONGEST_ADDRESS]) -> Option<(AddressBits, usize)> {
    let (value, bits, is, length) = match header {
        0x95 | 0x96 => {
            let shift = 0x97 - header;
            let long = window[1] >> 7;
            let high = u64::from(window[2]) << 7 & u64::from(long).wrapping_neg();
            let value = (u64::from(window[1] & 0x7f) | high) << shift;
            let is = payload::select(header == 0x96);
            (value, 7 + 8 * long + shift, is, 2 + usize::from(long))
        }
        0x9a | 0x9b => {
            let is = payload::select(header == 0x9b);
            let low = [window[1], window[2], window[3], window[4]];
            let value = payload::address(u64::from(u32::from_le_bytes(low)), is);
            (value, 32, is, 5)
        }
        0x9d | 0x9e => {
            let is = payload::select(header == 0x9e);
            let [_, all @ ..] = *window;
            let value = payload::address(u64::from_le_bytes(all), is);
            (value, 64, is, 9)
        }
        _ => return None,
    };
    Some((AddressBits::Low { value, bits, is }, length))
}

impl Decoder {
    /// Creates a decoder for the start of a trace.
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            sync: Sync::No,
        }
    }

    /// Decodes a packet other than atoms.
    fn packet(&self, payload: &mut Payload<'_>, header: u8) -> Result<Packet, Stop> {
        let config = &self.config;
        let packet = match header {
            0x00 => extension(payload)?,
            0x01 => Packet::TraceInfo(trace_info(payload)?),
            0x02 | 0x03 => {
                let (value, bits) = payload.timestamp()?;
                let cycles = if header & 1 == 1 {
                    Some(payload.count()? & ((1 << config.cycle_bits.min(31)) - 1))
                } else {
                    None
                };
                Packet::Timestamp {
                    value,
                    bits,
                    cycles,
                }
            }
            0x04 => Packet::TraceOn,
            0x05 if config.function_returns() => Packet::FunctionReturn,
            0x06 => self.exception(payload)?,
            0x07 if !config.is_ete() => Packet::ExceptionReturn,
            0x09 if config.version >= Version::new(5, 3) => Packet::Instrumentation {
                el: ExceptionLevel(payload.byte()? & 3),
                value: payload.little_endian(8)?,
            },
            0x0a if config.is_ete() => Packet::TransactionStart,
            0x0b if config.is_ete() => Packet::TransactionCommit,
            0x0c..=0x1f => self.cycle_count(payload, header)?,
            0x20..=0x27 if config.data_trace => Packet::NumberedDataSyncMarker(header & 7),
            0x28..=0x2c if config.data_trace => Packet::UnnumberedDataSyncMarker(header & 7),
            0x2d => Packet::Commit(payload.field()?),
            0x2e | 0x2f => Packet::Cancel {
                format: 1,
                atoms: None,
                count: payload.field()?,
                mispredict: header & 1 == 1,
            },
            0x30..=0x33 => Packet::Mispredict {
                atoms: speculative_atoms(header),
            },
            0x34..=0x37 => Packet::Cancel {
                format: 2,
                atoms: speculative_atoms(header),
                count: 1,
                mispredict: true,
            },
            0x38..=0x3f => Packet::Cancel {
                format: 3,
                atoms: (header & 1 == 1).then_some(Atoms { bits: 1, count: 1 }),
                count: u32::from(header >> 1 & 3) + 2,
                mispredict: true,
            },
            0x40..=0x6f if config.conditional.is_some() => conditional(payload, header)?,
            0x70 if config.version >= Version::new(4, 3) => Packet::Ignore,
            0x71..=0x7f => Packet::Event(header & 0xf),
            0x80 => Packet::Context(None),
            0x81 => Packet::Context(Some(payload.context(config)?)),
            0x82 | 0x83 | 0x85 | 0x86 => {
                let long = header >= 0x85;
                let is = payload::select(header == 0x83 || header == 0x86);
                Packet::AddressWithContext {
                    value: payload.long_address(long, is)?,
                    bits: if long { 64 } else { 32 },
                    is,
                    context: payload.context(config)?,
                }
            }
            0x88 if config.version >= Version::new(4, 6) => Packet::TimestampMarker,
            0x90..=0x92 => Packet::Address(AddressBits::Match(header & 3)),
            0x95 => Packet::Address(payload.short(InstructionSet::Is0)?),
            0x96 => Packet::Address(payload.short(InstructionSet::Is1)?),
            0x9a | 0x9b => Packet::Address(payload.long(false, payload::select(header == 0x9b))?),
            0x9d | 0x9e => Packet::Address(payload.long(true, payload::select(header == 0x9e))?),
            0xa0..=0xaf if config.q_elements => q(payload, header & 0xf)?,
            0xb0..=0xb2 if config.is_ete() => Packet::SourceAddress(AddressBits::Match(header & 3)),
            0xb4 | 0xb5 if config.is_ete() => {
                Packet::SourceAddress(payload.short(payload::select(header == 0xb5))?)
            }
            0xb6..=0xb9 if config.is_ete() => Packet::SourceAddress(
                payload.long(header >= 0xb8, payload::select(header & 1 == 1))?,
            ),
            _ => Packet::Reserved { header },
        };
        Ok(packet)
    }

    /// IHI 0064, Exception packet. A number of 10 bits takes a third byte, as do a reset and a
    /// failed transaction in ETE.
    fn exception(&self, payload: &mut Payload<'_>) -> Result<Packet, Stop> {
        const RESET: u16 = 0;
        const TRANSACTION_FAILURE: u16 = 0x18;
        let first = payload.byte()?;
        let mut number = u16::from(first >> 1 & 0x1f);
        let ete_special =
            self.config.is_ete() && (number == RESET || number == TRANSACTION_FAILURE);
        let mut fault_pending = false;
        if first & 0x80 != 0 || ete_special {
            let second = payload.byte()?;
            if first & 0x80 != 0 {
                number |= u16::from(second & 0x1f) << 5;
                fault_pending = second & 0x20 != 0;
            }
        }
        if self.config.is_ete() {
            match number {
                RESET => return Ok(Packet::PeReset),
                TRANSACTION_FAILURE => return Ok(Packet::TransactionFailure),
                _ => {}
            }
        }
        let address = match first >> 5 & 2 | first & 1 {
            1 => ExceptionAddress::Return,
            2 => ExceptionAddress::ReturnAndTarget,
            other => ExceptionAddress::Reserved(other),
        };
        Ok(Packet::Exception {
            number,
            address,
            fault_pending,
        })
    }

    /// IHI 0064, Cycle Count packets. If TRCIDR0.COMMOPT is set, they commit nothing.
    fn cycle_count(&self, payload: &mut Payload<'_>, header: u8) -> Result<Packet, Stop> {
        let commits = !self.config.separate_commits;
        let (format, commit, count) = match header {
            0x0c | 0x0d => {
                let byte = payload.byte()?;
                // F: the commits count down from the deepest speculation.
                let base = if header & 1 == 1 {
                    self.config.max_speculation.wrapping_sub(15)
                } else {
                    1
                };
                let commit = u32::from(byte >> 4).wrapping_add(base);
                (2, commit, Some(u32::from(byte & 0xf)))
            }
            0x0e | 0x0f => {
                let commit = if commits { payload.field()? } else { 0 };
                let count = if header & 1 == 0 {
                    Some(payload.count()?)
                } else {
                    None
                };
                (1, commit, count)
            }
            _ => (
                3,
                u32::from(header >> 2 & 3) + 1,
                Some(u32::from(header & 3)),
            ),
        };
        Ok(Packet::CycleCount {
            format,
            commit: commits.then_some(commit),
            count,
        })
    }

    /// Returns the packet of a cycle count in format 3.
    #[inline(always)]
    fn short_cycle_count(&self, header: u8) -> Packet {
        let commit = u32::from(header >> 2 & 3) + 1;
        Packet::CycleCount {
            format: 3,
            commit: (!self.config.separate_commits).then_some(commit),
            count: Some(u32::from(header & 3)),
        }
    }

    /// Decodes the most frequent packets besides atoms, from a window that holds the longest of
    /// them. [`packet`](Self::packet) decodes them too, but more slowly.
    #[inline]
    fn frequent(&self, header: u8, window: &[u8; LONGEST_ADDRESS]) -> Option<(Packet, usize)> {
        if let Some((bits, length)) = address(header, window) {
            return Some((Packet::Address(bits), length));
        }
        match header {
            0x90..=0x92 => Some((Packet::Address(AddressBits::Match(header & 3)), 1)),
            0x10..=0x1f => Some((self.short_cycle_count(header), 1)),
            _ => None,
        }
    }

    /// Skips to the next alignment synchronisation.
    #[cold]
    fn hunt(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let mut zeros = 0;
        for (index, &byte) in bytes.iter().enumerate() {
            if byte == 0 {
                zeros += 1;
            } else if byte == ASYNC_END && zeros >= ASYNC_ZEROS {
                let begin = index - ASYNC_ZEROS;
                if begin > 0 {
                    return Some((Packet::NotSync, begin));
                }
                self.sync = Sync::Yes;
                return Some((Packet::Async, ASYNC_LENGTH));
            } else {
                zeros = 0;
            }
        }
        let skipped = bytes.len() - zeros.min(ASYNC_ZEROS);
        (skipped > 0).then_some((Packet::NotSync, skipped))
    }

    /// Decodes any packet in any state.
    #[inline(never)]
    fn other(&mut self, header: u8, bytes: &[u8]) -> Option<(Packet, usize)> {
        if self.sync == Sync::No {
            return self.hunt(bytes);
        }
        if header >= 0xc0 {
            return Some((atom_packet(header), 1));
        }
        let mut payload = Payload::new(&bytes[1..]);
        let (packet, length) = match self.packet(&mut payload, header) {
            Ok(packet) => (packet, 1 + payload.used()),
            Err(Stop::Bad) => (Packet::Bad { header }, 1 + payload.used()),
            Err(Stop::More) => return self.cut(bytes, header),
        };
        match packet {
            Packet::Async => self.sync = Sync::Yes,
            Packet::Reserved { .. } | Packet::Bad { .. } => self.sync = Sync::Doubtful,
            _ => {}
        }
        if self.sync == Sync::Doubtful {
            match hidden_async(bytes, length) {
                Hidden::At(place) => return Some((Packet::Bad { header }, place)),
                Hidden::Perhaps => return None,
                Hidden::None => {}
            }
        }
        Some((packet, length))
    }

    /// Decodes any packet outside the fast path.
    #[inline(never)]
    fn longer(&mut self, header: u8, bytes: &[u8]) -> Option<(Packet, usize)> {
        if self.sync == Sync::Yes
            && let Some(window) = bytes.first_chunk()
            && let Some(found) = self.frequent(header, window)
        {
            return Some(found);
        }
        self.other(header, bytes)
    }

    /// Handles a packet that continues beyond `bytes`, unless it hides an alignment synchronisation.
    fn cut(&self, bytes: &[u8], header: u8) -> Option<(Packet, usize)> {
        if self.sync == Sync::Doubtful
            && let Hidden::At(place) = hidden_async(bytes, bytes.len())
        {
            return Some((Packet::Bad { header }, place));
        }
        None
    }
}

impl PacketDecoder for Decoder {
    type Packet = Packet;

    #[inline(always)]
    fn single(&self, byte: u8) -> Option<Packet> {
        if self.sync != Sync::Yes {
            return None;
        }
        match byte {
            0xc0.. => Some(atom_packet(byte)),
            0x90..=0x92 => Some(Packet::Address(AddressBits::Match(byte & 3))),
            _ => None,
        }
    }

    #[inline(always)]
    fn atoms(&self) -> impl Fn(u8) -> Option<AtomPacket> + use<> {
        let least = if self.sync == Sync::Yes { 0xc0 } else { 0x100 };
        move |byte| {
            (u16::from(byte) >= least)
                .then(|| AtomPacket::Waypoints(ATOMS[usize::from(byte & 0x3f)].0))
        }
    }

    /// Decodes one address, or one cycle count in a form that trace units write most, without a
    /// copy of its packet.
    #[inline(always)]
    fn several(&mut self, bytes: &[u8], at: usize, sink: &mut impl RangeSink<Packet>) -> usize {
        if let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk())
            && self.sync == Sync::Yes
        {
            if let Some((bits, length)) = address(window[0], window) {
                sink.packet(&Packet::Address(bits), at..at + length);
                return at + length;
            }
            if matches!(window[0], 0x10..=0x1f) {
                sink.packet(&self.short_cycle_count(window[0]), at..at + 1);
                return at + 1;
            }
            if window[0] == 0x0e && window[1] < 0x80 && self.config.separate_commits {
                let packet = Packet::CycleCount {
                    format: 1,
                    commit: None,
                    count: Some(u32::from(window[1])),
                };
                sink.packet(&packet, at..at + 2);
                return at + 2;
            }
        }
        at
    }

    #[inline(always)]
    fn next(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let header = *bytes.first()?;
        if header >= 0xc0 && self.sync == Sync::Yes {
            return Some((atom_packet(header), 1));
        }
        self.longer(header, bytes)
    }

    fn finish(&mut self, _: &[u8]) -> Packet {
        match self.sync {
            Sync::No => Packet::NotSync,
            Sync::Yes | Sync::Doubtful => Packet::Incomplete,
        }
    }

    fn lost(&mut self) {
        self.sync = Sync::No;
    }

    fn is_synchronised(&self) -> bool {
        self.sync != Sync::No
    }

    #[inline(always)]
    fn permits_targets(&self) -> bool {
        self.sync == Sync::Yes
    }
}

/// Whether an alignment synchronisation starts inside a packet.
enum Hidden {
    None,
    /// The bytes end inside a possible one.
    Perhaps,
    At(usize),
}

/// Searches the packet of `length` bytes, after its header, for an alignment synchronisation.
fn hidden_async(bytes: &[u8], length: usize) -> Hidden {
    let mut begin = 1;
    while begin < length {
        // With more zeros than this it starts after the packet.
        let most = length - begin + ASYNC_ZEROS;
        let run = bytes[begin..].iter().take(most);
        let zeros = run.take_while(|&&byte| byte == 0).count();
        if zeros == most {
            break;
        }
        match bytes.get(begin + zeros) {
            Some(&ASYNC_END) if zeros >= ASYNC_ZEROS => {
                return Hidden::At(begin + zeros - ASYNC_ZEROS);
            }
            None if zeros > 0 => return Hidden::Perhaps,
            _ => begin += zeros + 1,
        }
    }
    Hidden::None
}

/// IHI 0064, Extension packets: A-Sync, Discard, Overflow.
fn extension(payload: &mut Payload<'_>) -> Result<Packet, Stop> {
    match payload.byte()? {
        0x00 => {
            for _ in 0..ASYNC_ZEROS - 2 {
                if payload.byte()? != 0 {
                    return Err(Stop::Bad);
                }
            }
            match payload.byte()? {
                ASYNC_END => Ok(Packet::Async),
                _ => Err(Stop::Bad),
            }
        }
        0x03 => Ok(Packet::Discard),
        0x05 => Ok(Packet::Overflow),
        _ => Err(Stop::Bad),
    }
}

/// IHI 0064, Trace Info packet. PLCTL lists the sections that follow; bit 7 of a byte continues
/// each field.
fn trace_info(payload: &mut Payload<'_>) -> Result<TraceInfo, Stop> {
    let sections = payload.field()? as u8 & 0x1f;
    let mut section = |bit: u8| {
        if sections & 1 << bit != 0 {
            payload.field()
        } else {
            Ok(0)
        }
    };
    Ok(TraceInfo {
        sections,
        info: section(0)?,
        p0_key: section(1)?,
        speculation: section(2)?,
        cycle_threshold: section(3)?,
        window: section(4)?,
    })
}

/// IHI 0064: the atoms of Mispredict packets and of Cancel packets, format 2.
fn speculative_atoms(header: u8) -> Option<Atoms> {
    match header & 3 {
        1 => Some(Atoms { bits: 1, count: 1 }),
        2 => Some(Atoms { bits: 3, count: 2 }),
        3 => Some(Atoms { bits: 0, count: 1 }),
        _ => None,
    }
}

/// IHI 0064, Conditional Instruction, Conditional Flush and Conditional Result packets.
fn conditional(payload: &mut Payload<'_>, header: u8) -> Result<Packet, Stop> {
    use ConditionalInstruction as Instruction;
    use ConditionalResult as Outcome;
    let packet = match header {
        0x40..=0x42 => Packet::ConditionalInstruction(Instruction::F2 {
            elements: if header & 3 == 2 { 2 } else { 1 },
            new_key: header & 3 != 1,
        }),
        0x43 => Packet::ConditionalFlush,
        0x44..=0x46 => Packet::ConditionalResult(Outcome::F4 { token: header & 3 }),
        0x48..=0x4a | 0x4c..=0x4e => Packet::ConditionalResult(Outcome::F2 {
            key_step: if header & 4 == 0 { 1 } else { 2 },
            token: header & 3,
        }),
        0x50..=0x5f => Packet::ConditionalResult(Outcome::F3 {
            tokens: u16::from(payload.byte()?) | u16::from(header & 0xf) << 8,
        }),
        0x68..=0x6b => Packet::ConditionalResult(Outcome::F1 {
            first: payload.keyed_result(header & 1 != 0)?,
            second: Some(payload.keyed_result(header & 2 != 0)?),
        }),
        0x6c => Packet::ConditionalInstruction(Instruction::F1 {
            key: payload.field()?,
        }),
        0x6d => {
            let byte = payload.byte()?;
            Packet::ConditionalInstruction(Instruction::F3 {
                elements: (byte >> 1 & 0x3f) + (byte & 1),
                final_same_key: byte & 1 == 1,
            })
        }
        0x6e | 0x6f => Packet::ConditionalResult(Outcome::F1 {
            first: payload.keyed_result(header & 1 != 0)?,
            second: None,
        }),
        _ => Packet::Reserved { header },
    };
    Ok(packet)
}

/// IHI 0064, Q packet.
fn q(payload: &mut Payload<'_>, kind: u8) -> Result<Packet, Stop> {
    let address = match kind {
        0x0..=0x2 => Some(AddressBits::Match(kind)),
        0x5 => Some(payload.short(InstructionSet::Is0)?),
        0x6 => Some(payload.short(InstructionSet::Is1)?),
        0xa => Some(payload.long(false, InstructionSet::Is0)?),
        0xb => Some(payload.long(false, InstructionSet::Is1)?),
        0xc | 0xf => None,
        _ => {
            return Ok(Packet::Reserved {
                header: 0xa0 | kind,
            });
        }
    };
    let count = if kind == 0xf {
        None
    } else {
        Some(payload.field()?)
    };
    Ok(Packet::Q {
        kind,
        count,
        address,
    })
}

#[cfg(test)]
pub(super) mod tests;
