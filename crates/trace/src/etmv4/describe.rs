//! The names of ETMv4 and ETE packets and of their fields.

use super::packet::{
    AddressBits, ConditionalInstruction, ConditionalResult, ContextInfo, ExceptionAddress,
    InstructionSet, KeyedResult, Packet,
};
use crate::element::Atoms;
use crate::protocol::{Describe, Field};

impl InstructionSet {
    /// `IS0` or `IS1`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Is0 => "IS0",
            Self::Is1 => "IS1",
        }
    }
}

impl ExceptionAddress {
    /// The name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::ReturnAndTarget => "return_and_target",
            Self::Reserved(_) => "reserved",
        }
    }
}

impl Describe for Packet {
    fn name(&self) -> &'static str {
        match self {
            Self::NotSync => "not_sync",
            Self::Incomplete => "incomplete",
            Self::Reserved { .. } => "reserved",
            Self::Bad { .. } => "bad",
            Self::Async => "async",
            Self::Discard => "discard",
            Self::Overflow => "overflow",
            Self::TraceInfo(_) => "trace_info",
            Self::TraceOn => "trace_on",
            Self::FunctionReturn => "function_return",
            Self::Exception { .. } => "exception",
            Self::ExceptionReturn => "exception_return",
            Self::PeReset => "pe_reset",
            Self::TransactionFailure => "transaction_failure",
            Self::TransactionStart => "transaction_start",
            Self::TransactionCommit => "transaction_commit",
            Self::Instrumentation { .. } => "instrumentation",
            Self::Timestamp { .. } => "timestamp",
            Self::TimestampMarker => "timestamp_marker",
            Self::CycleCount { format: 1, .. } => "cycle_count_f1",
            Self::CycleCount { format: 2, .. } => "cycle_count_f2",
            Self::CycleCount { .. } => "cycle_count_f3",
            Self::NumberedDataSyncMarker(_) => "numbered_data_sync_marker",
            Self::UnnumberedDataSyncMarker(_) => "unnumbered_data_sync_marker",
            Self::Commit(_) => "commit",
            Self::Cancel { format: 1, .. } => "cancel_f1",
            Self::Cancel { format: 2, .. } => "cancel_f2",
            Self::Cancel { .. } => "cancel_f3",
            Self::Mispredict { .. } => "mispredict",
            Self::ConditionalInstruction(c) => match c {
                ConditionalInstruction::F1 { .. } => "conditional_instruction_f1",
                ConditionalInstruction::F2 { .. } => "conditional_instruction_f2",
                ConditionalInstruction::F3 { .. } => "conditional_instruction_f3",
            },
            Self::ConditionalFlush => "conditional_flush",
            Self::ConditionalResult(c) => match c {
                ConditionalResult::F1 { .. } => "conditional_result_f1",
                ConditionalResult::F2 { .. } => "conditional_result_f2",
                ConditionalResult::F3 { .. } => "conditional_result_f3",
                ConditionalResult::F4 { .. } => "conditional_result_f4",
            },
            Self::Ignore => "ignore",
            Self::Event(_) => "event",
            Self::Context(_) => "context",
            Self::Address(AddressBits::Match(_)) => "exact_match_address",
            Self::Address(AddressBits::Low { bits: 64, .. }) => "long_address_64",
            Self::Address(AddressBits::Low { bits: 32, .. }) => "long_address_32",
            Self::Address(_) => "short_address",
            Self::AddressWithContext { bits: 64, .. } => "address_with_context_64",
            Self::AddressWithContext { .. } => "address_with_context_32",
            Self::SourceAddress(AddressBits::Match(_)) => "exact_match_source_address",
            Self::SourceAddress(AddressBits::Low { bits: 64, .. }) => "source_address_64",
            Self::SourceAddress(AddressBits::Low { bits: 32, .. }) => "source_address_32",
            Self::SourceAddress(_) => "short_source_address",
            Self::Q { .. } => "q",
            Self::Atoms { format, .. } => match format {
                1 => "atom_f1",
                2 => "atom_f2",
                3 => "atom_f3",
                4 => "atom_f4",
                5 => "atom_f5",
                _ => "atom_f6",
            },
        }
    }

    fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        match *self {
            Self::NotSync
            | Self::Incomplete
            | Self::Async
            | Self::Discard
            | Self::Overflow
            | Self::TraceOn
            | Self::FunctionReturn
            | Self::ExceptionReturn
            | Self::PeReset
            | Self::TransactionFailure
            | Self::TransactionStart
            | Self::TransactionCommit
            | Self::TimestampMarker
            | Self::ConditionalFlush
            | Self::Ignore => {}
            Self::Reserved { header } | Self::Bad { header } => {
                each("header", Field::Hex(header.into()));
            }
            Self::TraceInfo(info) => {
                let sections = [
                    ("info", Field::Hex(info.info.into())),
                    ("p0_key", Field::Count(info.p0_key.into())),
                    ("speculation", Field::Count(info.speculation.into())),
                    ("cycle_threshold", Field::Count(info.cycle_threshold.into())),
                    ("window", Field::Count(info.window.into())),
                ];
                for (bit, (name, value)) in sections.into_iter().enumerate() {
                    if info.sections & 1 << bit != 0 {
                        each(name, value);
                    }
                }
            }
            Self::Exception {
                number,
                address,
                fault_pending,
            } => {
                each("number", Field::Count(number.into()));
                each("address_follows", Field::Name(address.name()));
                if fault_pending {
                    each("fault_pending", Field::Flag(true));
                }
            }
            Self::Instrumentation { el, value } => {
                each("el", Field::Count(el.0.into()));
                each("value", Field::Hex(value));
            }
            Self::Timestamp {
                value,
                bits,
                cycles,
            } => {
                each("value", Field::Hex(value));
                each("bits", Field::Count(bits.into()));
                count("cycles", cycles, each);
            }
            Self::CycleCount {
                commit, count: n, ..
            } => {
                count("commit", commit, each);
                count("count", n, each);
            }
            Self::NumberedDataSyncMarker(number) | Self::UnnumberedDataSyncMarker(number) => {
                each("number", Field::Count(number.into()));
            }
            Self::Commit(n) => each("count", Field::Count(n.into())),
            Self::Cancel {
                atoms: before,
                count: n,
                mispredict,
                ..
            } => {
                atoms(before, each);
                each("count", Field::Count(n.into()));
                each("mispredict", Field::Flag(mispredict));
            }
            Self::Mispredict { atoms: before } => atoms(before, each),
            Self::ConditionalInstruction(instruction) => match instruction {
                ConditionalInstruction::F1 { key } => each("key", Field::Count(key.into())),
                ConditionalInstruction::F2 { elements, new_key } => {
                    each("elements", Field::Count(elements.into()));
                    each("new_key", Field::Flag(new_key));
                }
                ConditionalInstruction::F3 {
                    elements,
                    final_same_key,
                } => {
                    each("elements", Field::Count(elements.into()));
                    each("final_same_key", Field::Flag(final_same_key));
                }
            },
            Self::ConditionalResult(result) => match result {
                ConditionalResult::F1 { first, second } => {
                    keyed(["key", "result", "cancelled"], first, each);
                    if let Some(second) = second {
                        keyed(["key2", "result2", "cancelled2"], second, each);
                    }
                }
                ConditionalResult::F2 { key_step, token } => {
                    each("key_step", Field::Count(key_step.into()));
                    each("token", Field::Count(token.into()));
                }
                ConditionalResult::F3 { tokens } => each("tokens", Field::Hex(tokens.into())),
                ConditionalResult::F4 { token } => each("token", Field::Count(token.into())),
            },
            Self::Event(events) => each("events", Field::Hex(events.into())),
            Self::Context(None) => each("same", Field::Flag(true)),
            Self::Context(Some(info)) => context(&info, each),
            Self::Address(bits) | Self::SourceAddress(bits) => address(bits, each),
            Self::AddressWithContext {
                value,
                bits,
                is,
                context: info,
            } => {
                address(AddressBits::Low { value, bits, is }, each);
                context(&info, each);
            }
            Self::Q {
                kind,
                count: n,
                address: target,
            } => {
                each("type", Field::Count(kind.into()));
                count("count", n, each);
                if let Some(target) = target {
                    address(target, each);
                }
            }
            Self::Atoms { atoms, .. } => each("atoms", Field::Atoms(atoms)),
        }
    }
}

type Each<'a> = &'a mut dyn FnMut(&'static str, Field);

fn count(name: &'static str, value: Option<u32>, each: Each<'_>) {
    if let Some(value) = value {
        each(name, Field::Count(value.into()));
    }
}

fn atoms(atoms: Option<Atoms>, each: Each<'_>) {
    if let Some(atoms) = atoms {
        each("atoms", Field::Atoms(atoms));
    }
}

fn keyed(names: [&'static str; 3], result: KeyedResult, each: Each<'_>) {
    each(names[0], Field::Count(result.key.into()));
    each(names[1], Field::Hex(result.result.into()));
    each(names[2], Field::Flag(result.cancelled));
}

fn address(address: AddressBits, each: Each<'_>) {
    match address {
        AddressBits::Match(index) => each("match", Field::Count(index.into())),
        AddressBits::Low { value, bits, is } => {
            each("address", Field::Hex(value));
            each("bits", Field::Count(bits.into()));
            each("is", Field::Name(is.name()));
        }
    }
}

fn context(info: &ContextInfo, each: Each<'_>) {
    each("el", Field::Count(info.el().0.into()));
    each("security", Field::Name(info.security().name()));
    each("bits64", Field::Flag(info.is_64bit()));
    if let Some(vmid) = info.vmid() {
        each("vmid", Field::Hex(vmid.into()));
    }
    if let Some(id) = info.context_id() {
        each("context_id", Field::Hex(id.into()));
    }
}
