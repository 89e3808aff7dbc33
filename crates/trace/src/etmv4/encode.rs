//! ETMv4 packets → bytes.
//!
//! Written from the packet diagrams of ARM IHI 0064H, "Instruction trace packets", and not from
//! the decoder, so that the two cannot share a mistake. Packets that only ETE has are not written.

use super::config::Config;
use super::packet::{
    AddressBits, ConditionalInstruction, ConditionalResult, ContextInfo, ExceptionAddress,
    InstructionSet, KeyedResult, Packet, TraceInfo,
};
use crate::element::Atoms;
use crate::protocol::number::leb128;
use crate::protocol::{Unencodable, Written, require};
use armsnap_arch::quantity::Security;

/// Writes the packets of one ETMv4.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: Config,
}

impl Encoder {
    /// Creates an encoder.
    pub fn new(config: &Config) -> Self {
        Self { config: *config }
    }

    /// Appends the bytes of `packet`.
    ///
    /// # Errors
    ///
    /// Returns an error if no trace unit of this configuration writes it; then nothing is appended.
    pub fn packet(&self, packet: &Packet, out: &mut Vec<u8>) -> Written {
        let begin = out.len();
        let written = self.write(packet, out);
        if written.is_err() {
            out.truncate(begin);
        }
        written
    }

    fn write(&self, packet: &Packet, out: &mut Vec<u8>) -> Written {
        let config = &self.config;
        match *packet {
            Packet::NotSync
            | Packet::Incomplete
            | Packet::Reserved { .. }
            | Packet::Bad { .. }
            | Packet::PeReset
            | Packet::TransactionFailure
            | Packet::TransactionStart
            | Packet::TransactionCommit
            | Packet::Instrumentation { .. }
            | Packet::SourceAddress(_) => return Err(Unencodable),
            Packet::Async => {
                out.extend([0; 11]);
                out.push(0b1000_0000);
            }
            Packet::Discard => out.extend([0b0000_0000, 0b0000_0011]),
            Packet::Overflow => out.extend([0b0000_0000, 0b0000_0101]),
            Packet::TraceInfo(ref info) => trace_info(info, out)?,
            Packet::TraceOn => out.push(0b0000_0100),
            Packet::FunctionReturn => {
                require(config.function_returns())?;
                out.push(0b0000_0101);
            }
            Packet::Exception {
                number,
                address,
                fault_pending,
            } => exception(number, address, fault_pending, out)?,
            Packet::ExceptionReturn => out.push(0b0000_0111),
            Packet::Timestamp {
                value,
                bits,
                cycles,
            } => self.timestamp(value, bits, cycles, out)?,
            Packet::TimestampMarker => {
                require(config.version >= super::Version::new(4, 6))?;
                out.push(0b1000_1000);
            }
            Packet::CycleCount {
                format,
                commit,
                count,
            } => self.cycle_count(format, commit, count, out)?,
            Packet::NumberedDataSyncMarker(number) => {
                require(config.data_trace && number < 8)?;
                out.push(0b0010_0000 | number);
            }
            Packet::UnnumberedDataSyncMarker(number) => {
                require(config.data_trace && number < 5)?;
                out.push(0b0010_1000 | number);
            }
            Packet::Commit(count) => {
                out.push(0b0010_1101);
                leb128(count, out);
            }
            Packet::Cancel {
                format,
                atoms,
                count,
                mispredict,
            } => cancel(format, atoms, count, mispredict, out)?,
            Packet::Mispredict { atoms } => out.push(0b0011_0000 | speculative(atoms)?),
            Packet::ConditionalInstruction(instruction) => {
                require(config.conditional.is_some())?;
                conditional_instruction(instruction, out)?;
            }
            Packet::ConditionalFlush => {
                require(config.conditional.is_some())?;
                out.push(0b0100_0011);
            }
            Packet::ConditionalResult(result) => {
                require(config.conditional.is_some())?;
                conditional_result(result, out)?;
            }
            Packet::Ignore => {
                require(config.version >= super::Version::new(4, 3))?;
                out.push(0b0111_0000);
            }
            Packet::Event(events) => {
                require((1..16).contains(&events))?;
                out.push(0b0111_0000 | events);
            }
            Packet::Context(None) => out.push(0b1000_0000),
            Packet::Context(Some(ref context)) => {
                out.push(0b1000_0001);
                self.context(context, out)?;
            }
            Packet::Address(bits) => self.address(bits, out)?,
            Packet::AddressWithContext {
                value,
                bits,
                is,
                ref context,
            } => {
                out.push(match (bits, is) {
                    (32, InstructionSet::Is0) => 0b1000_0010,
                    (32, InstructionSet::Is1) => 0b1000_0011,
                    (64, InstructionSet::Is0) => 0b1000_0101,
                    (64, InstructionSet::Is1) => 0b1000_0110,
                    _ => return Err(Unencodable),
                });
                long(value, bits, is, out)?;
                self.context(context, out)?;
            }
            Packet::Q {
                kind,
                count,
                address,
            } => self.q(kind, count, address, out)?,
            Packet::Atoms { format, atoms } => out.push(atom_header(format, atoms)?),
        }
        Ok(())
    }

    /// A number with 7 bits per byte; the ninth byte has 8.
    fn timestamp(&self, value: u64, bits: u8, cycles: Option<u32>, out: &mut Vec<u8>) -> Written {
        out.push(0b0000_0010 | u8::from(cycles.is_some()));
        if bits == 64 {
            out.extend((0..8).map(|byte| (value >> (7 * byte)) as u8 | 0x80));
            out.push((value >> 56) as u8);
        } else {
            let bytes = bits / 7;
            require(bits.is_multiple_of(7) && (1..=8).contains(&bytes) && value >> bits == 0)?;
            for byte in 0..bytes {
                let more = if byte + 1 < bytes { 0x80 } else { 0 };
                out.push((value >> (7 * byte)) as u8 & 0x7f | more);
            }
        }
        if let Some(cycles) = cycles {
            self.count(cycles, out)?;
        }
        Ok(())
    }

    /// A cycle count that fits the counter.
    fn count(&self, count: u32, out: &mut Vec<u8>) -> Written {
        require(count >> self.config.cycle_bits.min(20) == 0)?;
        leb128(count, out);
        Ok(())
    }

    fn cycle_count(
        &self,
        format: u8,
        commit: Option<u32>,
        count: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Written {
        require(commit.is_none() == self.config.separate_commits)?;
        match format {
            1 => {
                out.push(0b0000_1110 | u8::from(count.is_none()));
                if let Some(commit) = commit {
                    leb128(commit, out);
                }
                if let Some(count) = count {
                    self.count(count, out)?;
                }
            }
            2 => {
                let count = count.filter(|&count| count < 16).ok_or(Unencodable)?;
                let commit = commit.unwrap_or(1);
                let deepest = self.config.max_speculation;
                let (from_deepest, field) = match commit {
                    1..=16 => (0, commit - 1),
                    // F: 15 minus the difference between the maximum and the commits.
                    _ if commit <= deepest && deepest - commit < 16 => (1, 15 + commit - deepest),
                    _ => return Err(Unencodable),
                };
                out.push(0b0000_1100 | from_deepest);
                out.push((field << 4 | count) as u8);
            }
            3 => {
                let count = count.filter(|&count| count < 4).ok_or(Unencodable)?;
                let commit = commit.unwrap_or(1);
                require((1..=4).contains(&commit))?;
                out.push(0b0001_0000 | ((commit - 1) << 2 | count) as u8);
            }
            _ => return Err(Unencodable),
        }
        Ok(())
    }

    fn address(&self, bits: AddressBits, out: &mut Vec<u8>) -> Written {
        match bits {
            AddressBits::Match(entry) => {
                require(entry < 3)?;
                out.push(0b1001_0000 | entry);
            }
            AddressBits::Low { value, bits, is } if bits < 32 => {
                out.push(match is {
                    InstructionSet::Is0 => 0b1001_0101,
                    InstructionSet::Is1 => 0b1001_0110,
                });
                short(value, bits, is, out)?;
            }
            AddressBits::Low { value, bits, is } => {
                out.push(match (bits, is) {
                    (32, InstructionSet::Is0) => 0b1001_1010,
                    (32, InstructionSet::Is1) => 0b1001_1011,
                    (64, InstructionSet::Is0) => 0b1001_1101,
                    (64, InstructionSet::Is1) => 0b1001_1110,
                    _ => return Err(Unencodable),
                });
                long(value, bits, is, out)?;
            }
        }
        Ok(())
    }

    /// The information byte: C, V, NS, SF, NSE, 0, EL[1:0]; then the VMID and the context ID.
    fn context(&self, context: &ContextInfo, out: &mut Vec<u8>) -> Written {
        let (ns, nse) = match context.security() {
            Security::Secure => (0, 0),
            Security::NonSecure => (1, 0),
            Security::Root => (0, 1),
            Security::Realm => (1, 1),
        };
        out.push(
            context.el().0 & 3
                | nse << 3
                | u8::from(context.is_64bit()) << 4
                | ns << 5
                | u8::from(context.vmid().is_some()) << 6
                | u8::from(context.context_id().is_some()) << 7,
        );
        for (id, bytes) in [
            (context.vmid(), self.config.vmid_bytes),
            (context.context_id(), self.config.context_id_bytes),
        ] {
            if let Some(id) = id {
                require(bytes > 0 && (bytes >= 4 || id >> (8 * bytes) == 0))?;
                out.extend(&id.to_le_bytes()[..bytes.into()]);
            }
        }
        Ok(())
    }

    fn q(
        &self,
        kind: u8,
        count: Option<u32>,
        address: Option<AddressBits>,
        out: &mut Vec<u8>,
    ) -> Written {
        require(self.config.q_elements)?;
        out.push(0b1010_0000 | kind & 0xf);
        match (kind, address) {
            (0..=2, Some(AddressBits::Match(entry))) if entry == kind => {}
            (5, Some(AddressBits::Low { value, bits, is })) if is == InstructionSet::Is0 => {
                short(value, bits, is, out)?;
            }
            (6, Some(AddressBits::Low { value, bits, is })) if is == InstructionSet::Is1 => {
                short(value, bits, is, out)?;
            }
            (
                10,
                Some(AddressBits::Low {
                    value,
                    bits: 32,
                    is,
                }),
            ) if is == InstructionSet::Is0 => {
                long(value, 32, is, out)?;
            }
            (
                11,
                Some(AddressBits::Low {
                    value,
                    bits: 32,
                    is,
                }),
            ) if is == InstructionSet::Is1 => {
                long(value, 32, is, out)?;
            }
            (12 | 15, None) => {}
            _ => return Err(Unencodable),
        }
        require(count.is_none() == (kind == 15))?;
        if let Some(count) = count {
            leb128(count, out);
        }
        Ok(())
    }
}

/// Returns the packet that holds as many of the oldest atoms as possible, and their number. `None` if
/// there are no atoms.
pub fn pack_atoms(atoms: Atoms) -> Option<(Packet, u8)> {
    let Packed { format, count, .. } = Packed::of(atoms);
    let bits = atoms.bits & ((1 << count) - 1);
    let packet = Packet::Atoms {
        format,
        atoms: Atoms { bits, count },
    };
    (count > 0).then_some((packet, count))
}

/// The packet that holds as many of the oldest atoms as possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    /// Its only byte.
    pub header: u8,
    format: u8,
    /// The number of atoms; 0 if there are none to hold.
    pub count: u8,
}

impl Packed {
    /// For each pattern of five atoms; those that begin with three E are in format 6.
    const OF_FIVE: [Self; 32] = {
        let mut all = [Self::of_few(0, 0); 32];
        let mut bits = 0;
        while bits < 32 {
            all[bits] = Self::of_few(bits as u32, 5);
            bits += 1;
        }
        all
    };

    #[inline]
    pub(super) fn of(atoms: Atoms) -> Self {
        let most = if atoms.count < 24 { atoms.count } else { 24 };
        if most < 5 {
            return Self::of_few(atoms.bits, most);
        }
        // Format 6 holds the most, then 5, 4 and so on; no two of them fit the same atoms.
        let same = atoms.bits.trailing_ones() as u8;
        if same < 3 {
            return Self::OF_FIVE[(atoms.bits & 31) as usize];
        }
        let count = (same + 1).min(most);
        Self::format_6(count, atoms.bits)
    }

    /// The same for at most five atoms.
    const fn of_few(bits: u32, most: u8) -> Self {
        if most >= 4 && bits & 0b111 == 0b111 {
            let count = if most == 5 && bits & 0b1000 != 0 {
                5
            } else {
                4
            };
            return Self::format_6(count, bits);
        }
        let (format, count) = match most {
            5 if format_5(bits & 0b1_1111).is_some() => (5, 5),
            4.. if format_4(bits & 0b1111).is_some() => (4, 4),
            3.. => (3, 3),
            _ => (most, most),
        };
        let bits = bits & ((1 << count) - 1);
        let header = match format {
            5 => format_5(bits),
            4 => format_4(bits),
            _ => Some(SHORT[format as usize] | bits as u8),
        };
        Self {
            header: match header {
                Some(header) => header,
                None => 0,
            },
            format,
            count,
        }
    }

    /// COUNT + 3 atoms E, then the atom in A: 0 is E.
    const fn format_6(count: u8, bits: u32) -> Self {
        let last = count - 1;
        let a = if bits >> last & 1 == 1 { 0 } else { 0b10_0000 };
        Self {
            header: 0b1100_0000 | a | (last - 3),
            format: 6,
            count,
        }
    }
}

/// The headers of formats 1 to 3, without their atoms.
const SHORT: [u8; 4] = [0, 0b1111_0110, 0b1101_1000, 0b1111_1000];

/// The header of four atoms; the specification writes the oldest, bit 0, on the left.
const fn format_4(bits: u32) -> Option<u8> {
    Some(match bits {
        0b1110 => 0b1101_1100, // NEEE
        0b0000 => 0b1101_1101, // NNNN
        0b1010 => 0b1101_1110, // NENE
        0b0101 => 0b1101_1111, // ENEN
        _ => return None,
    })
}

/// The header of five atoms.
const fn format_5(bits: u32) -> Option<u8> {
    Some(match bits {
        0b1_1110 => 0b1111_0101, // NEEEE
        0b0_0000 => 0b1101_0101, // NNNNN
        0b0_1010 => 0b1101_0110, // NENEN
        0b1_0101 => 0b1101_0111, // ENENE
        _ => return None,
    })
}

/// The header of an atom packet.
fn atom_header(format: u8, atoms: Atoms) -> Result<u8, Unencodable> {
    let Atoms { bits, count } = atoms;
    require((1..=24).contains(&count) && bits >> count == 0)?;
    Ok(match (format, count) {
        (1, 1) | (2, 2) | (3, 3) => SHORT[usize::from(format)] | bits as u8,
        (4, 4) => format_4(bits).ok_or(Unencodable)?,
        (5, 5) => format_5(bits).ok_or(Unencodable)?,
        (6, 4..=24) => {
            require(bits.trailing_ones() >= u32::from(count - 1))?;
            Packed::format_6(count, bits).header
        }
        _ => return Err(Unencodable),
    })
}

fn trace_info(info: &TraceInfo, out: &mut Vec<u8>) -> Written {
    require(info.sections < 32)?;
    out.push(0b0000_0001);
    out.push(info.sections);
    for (section, value) in [
        info.info,
        info.p0_key,
        info.speculation,
        info.cycle_threshold,
        info.window,
    ]
    .into_iter()
    .enumerate()
    {
        if info.sections >> section & 1 == 1 {
            leb128(value, out);
        } else {
            require(value == 0)?;
        }
    }
    Ok(())
}

/// First byte: C, E1, TYPE[4:0], E0; second: 0, 0, P, TYPE[9:5].
fn exception(
    number: u16,
    address: ExceptionAddress,
    fault_pending: bool,
    out: &mut Vec<u8>,
) -> Written {
    let (e1, e0) = match address {
        ExceptionAddress::Return => (0, 1),
        ExceptionAddress::ReturnAndTarget => (1, 0),
        ExceptionAddress::Reserved(_) => return Err(Unencodable),
    };
    require(number < 1 << 10)?;
    let (low, high) = (number as u8 & 0x1f, (number >> 5) as u8);
    let second = high > 0 || fault_pending;
    out.push(0b0000_0110);
    out.push(u8::from(second) << 7 | e1 << 6 | low << 1 | e0);
    if second {
        out.push(u8::from(fault_pending) << 5 | high);
    }
    Ok(())
}

/// The A field of Mispredict packets and of Cancel packets of format 2.
fn speculative(atoms: Option<Atoms>) -> Result<u8, Unencodable> {
    Ok(match atoms.map(|atoms| (atoms.count, atoms.bits)) {
        None => 0,
        Some((1, 0b1)) => 1,
        Some((2, 0b11)) => 2,
        Some((1, 0b0)) => 3,
        _ => return Err(Unencodable),
    })
}

fn cancel(
    format: u8,
    atoms: Option<Atoms>,
    count: u32,
    mispredict: bool,
    out: &mut Vec<u8>,
) -> Written {
    match format {
        1 if atoms.is_none() => {
            out.push(0b0010_1110 | u8::from(mispredict));
            leb128(count, out);
        }
        2 if count == 1 && mispredict => out.push(0b0011_0100 | speculative(atoms)?),
        3 if (2..=5).contains(&count) && mispredict => {
            let atom = speculative(atoms)?;
            require(atom < 2)?;
            out.push(0b0011_1000 | ((count - 2) as u8) << 1 | atom);
        }
        _ => return Err(Unencodable),
    }
    Ok(())
}

/// The number of low address bits that are always zero.
const fn alignment(is: InstructionSet) -> u8 {
    match is {
        InstructionSet::Is0 => 2,
        InstructionSet::Is1 => 1,
    }
}

/// A short address: A[8:2] and A[16:9], in IS1 A[7:1] and A[15:8].
fn short(value: u64, bits: u8, is: InstructionSet, out: &mut Vec<u8>) -> Written {
    let unused = alignment(is);
    require(value & ((1 << unused) - 1) == 0 && bits < 32 && value >> bits == 0)?;
    let field = value >> unused;
    match bits.checked_sub(unused) {
        Some(7) => out.push(field as u8),
        Some(15) => out.extend([field as u8 | 0x80, (field >> 7) as u8]),
        _ => return Err(Unencodable),
    }
    Ok(())
}

/// A long address: A[8:2], A[15:9], then whole bytes; in IS1 A[7:1], then whole bytes.
fn long(value: u64, bits: u8, is: InstructionSet, out: &mut Vec<u8>) -> Written {
    let unused = alignment(is);
    require(value & ((1 << unused) - 1) == 0 && (bits == 64 || value >> bits == 0))?;
    out.push((value >> unused) as u8 & 0x7f);
    match is {
        InstructionSet::Is0 => out.push((value >> 9) as u8 & 0x7f),
        InstructionSet::Is1 => out.push((value >> 8) as u8),
    }
    out.extend((2..bits / 8).map(|byte| (value >> (8 * byte)) as u8));
    Ok(())
}

fn conditional_instruction(instruction: ConditionalInstruction, out: &mut Vec<u8>) -> Written {
    match instruction {
        ConditionalInstruction::F1 { key } => {
            out.push(0b0110_1100);
            leb128(key, out);
        }
        // CI: one with a new key; one with the same key; two, the first with a new key.
        ConditionalInstruction::F2 { elements, new_key } => out.push(match (elements, new_key) {
            (1, true) => 0b0100_0000,
            (1, false) => 0b0100_0001,
            (2, true) => 0b0100_0010,
            _ => return Err(Unencodable),
        }),
        ConditionalInstruction::F3 {
            elements,
            final_same_key,
        } => {
            // NUM elements with new keys, and one more if Z is set.
            let same = u8::from(final_same_key);
            require(elements >= same && elements - same < 64)?;
            out.extend([0b0110_1101, (elements - same) << 1 | same]);
        }
    }
    Ok(())
}

fn conditional_result(result: ConditionalResult, out: &mut Vec<u8>) -> Written {
    match result {
        ConditionalResult::F1 { first, second } => {
            let ci = u8::from(first.cancelled);
            match second {
                None => out.push(0b0110_1110 | ci),
                Some(second) => out.push(0b0110_1000 | u8::from(second.cancelled) << 1 | ci),
            }
            keyed_result(first, out)?;
            if let Some(second) = second {
                keyed_result(second, out)?;
            }
        }
        ConditionalResult::F2 { key_step, token } => {
            require((1..=2).contains(&key_step) && token < 3)?;
            out.push(0b0100_1000 | (key_step - 1) << 2 | token);
        }
        ConditionalResult::F3 { tokens } => {
            require(tokens < 1 << 12)?;
            out.extend([0b0101_0000 | (tokens >> 8) as u8, tokens as u8]);
        }
        ConditionalResult::F4 { token } => {
            require(token < 3)?;
            out.push(0b0100_0100 | token);
        }
    }
    Ok(())
}

/// KEY[2:0] and RESULT[3:0], then 7 bits of the key per byte.
fn keyed_result(result: KeyedResult, out: &mut Vec<u8>) -> Written {
    require(result.result < 16)?;
    let more = if result.key > 7 { 0x80 } else { 0 };
    out.push(more | (result.key as u8 & 7) << 4 | result.result);
    if result.key > 7 {
        leb128(result.key >> 3, out);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
