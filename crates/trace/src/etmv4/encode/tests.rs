use super::*;
use crate::etmv4::Decoder;
use crate::etmv4::decode::tests::config;
use crate::protocol::tests::whole_packets;
use proptest::prelude::*;

/// ETMv4.6 with everything that has packets: conditional instructions, data trace, Q elements,
/// commits in cycle counts, speculation of 24 elements.
const ALL: &str = "etmv4 A8 TRCCONFIGR=0x30717 TRCIDR0=0x0800feff TRCIDR1=0x4100f460 \
                   TRCIDR2=0x10001088 TRCIDR8=24";
/// Cycle count packets that do not commit; no identifiers.
const SEPARATE: &str = "etmv4 M8 TRCCONFIGR=0x11 TRCIDR0=0x28000ea1 TRCIDR1=0x4100f420 \
                        TRCIDR2=0x00000001 TRCIDR8=0";

fn bytes(config: &Config, packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(config).packet(packet, &mut out).unwrap();
    out
}

fn sets() -> impl Strategy<Value = InstructionSet> {
    prop_oneof![Just(InstructionSet::Is0), Just(InstructionSet::Is1)]
}

fn low(value: u64, bits: u8, is: InstructionSet) -> u64 {
    let value = if bits == 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    };
    value & !((1 << alignment(is)) - 1)
}

fn addresses() -> impl Strategy<Value = AddressBits> {
    prop_oneof![
        (0u8..3).prop_map(AddressBits::Match),
        (any::<u64>(), 0usize..4, sets()).prop_map(|(value, form, is)| {
            let bits = [7 + alignment(is), 15 + alignment(is), 32, 64][form];
            let value = low(value, bits, is);
            AddressBits::Low { value, bits, is }
        }),
    ]
}

fn contexts() -> impl Strategy<Value = ContextInfo> {
    (any::<u8>(), any::<Option<u32>>(), any::<Option<u32>>())
        .prop_map(|(info, vmid, context_id)| ContextInfo::new(info & !4, vmid, context_id))
}

/// Values of any length.
fn counts() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0u32..32).prop_map(|(value, shift)| value >> shift)
}

fn atoms(count: u8, bits: u32) -> Atoms {
    Atoms { bits, count }
}

fn speculative_atoms() -> impl Strategy<Value = Option<Atoms>> {
    prop::sample::select(vec![
        None,
        Some(atoms(1, 1)),
        Some(atoms(2, 3)),
        Some(atoms(1, 0)),
    ])
}

fn keyed_results() -> impl Strategy<Value = KeyedResult> {
    (counts(), 0u8..16, any::<bool>()).prop_map(|(key, result, cancelled)| KeyedResult {
        key,
        result,
        cancelled,
    })
}

fn atom_packets() -> impl Strategy<Value = Packet> {
    (any::<u32>(), 1u8..25, any::<bool>()).prop_map(|(bits, count, ones)| {
        let bits = if ones {
            bits | bits >> 1 | u32::MAX >> 9
        } else {
            bits
        };
        let bits = bits & ((1 << count) - 1);
        pack_atoms(Atoms { bits, count }).unwrap().0
    })
}

/// Packets of the configuration [`ALL`].
fn packets() -> impl Strategy<Value = Packet> {
    let simple = prop::sample::select(vec![
        Packet::Async,
        Packet::Discard,
        Packet::Overflow,
        Packet::TraceOn,
        Packet::ExceptionReturn,
        Packet::TimestampMarker,
        Packet::ConditionalFlush,
        Packet::Ignore,
        Packet::Context(None),
    ]);
    let exceptions =
        (0u16..1024, any::<bool>(), any::<bool>()).prop_map(|(number, both, fault)| {
            Packet::Exception {
                number,
                address: if both {
                    ExceptionAddress::ReturnAndTarget
                } else {
                    ExceptionAddress::Return
                },
                fault_pending: fault,
            }
        });
    let infos = (0u8..32, prop::array::uniform5(counts())).prop_map(|(sections, values)| {
        let value = |section: usize| {
            if sections >> section & 1 == 1 {
                values[section]
            } else {
                0
            }
        };
        Packet::TraceInfo(TraceInfo {
            sections,
            info: value(0),
            p0_key: value(1),
            speculation: value(2),
            cycle_threshold: value(3),
            window: value(4),
        })
    });
    let cycles = prop_oneof![
        (counts(), prop::option::of(0u32..1 << 20)).prop_map(|(commit, count)| (1, commit, count)),
        (1u32..25, 0u32..16).prop_map(|(commit, count)| (2, commit, Some(count))),
        (1u32..5, 0u32..4).prop_map(|(commit, count)| (3, commit, Some(count))),
    ]
    .prop_map(|(format, commit, count)| Packet::CycleCount {
        format,
        commit: Some(commit),
        count,
    });
    let timestamps = (any::<u64>(), 1u8..10, prop::option::of(0u32..1 << 20)).prop_map(
        |(value, bytes, cycles)| {
            let bits = if bytes == 9 { 64 } else { 7 * bytes };
            Packet::Timestamp {
                value: value >> (64 - bits),
                bits,
                cycles,
            }
        },
    );
    let cancels = prop_oneof![
        (counts(), any::<bool>()).prop_map(|(count, mispredict)| (1, None, count, mispredict)),
        speculative_atoms().prop_map(|atoms| (2, atoms, 1, true)),
        (any::<bool>(), 2u32..6).prop_map(|(e, n)| (3, e.then_some(atoms(1, 1)), n, true)),
    ]
    .prop_map(|(format, atoms, count, mispredict)| Packet::Cancel {
        format,
        atoms,
        count,
        mispredict,
    });
    let conditional = prop_oneof![
        counts().prop_map(|key| ConditionalInstruction::F1 { key }),
        prop::sample::select(vec![(1, true), (1, false), (2, true)])
            .prop_map(|(elements, new_key)| ConditionalInstruction::F2 { elements, new_key }),
        (0u8..64, any::<bool>()).prop_map(|(keys, same)| ConditionalInstruction::F3 {
            elements: keys + u8::from(same),
            final_same_key: same,
        }),
    ]
    .prop_map(Packet::ConditionalInstruction);
    let results = prop_oneof![
        (keyed_results(), prop::option::of(keyed_results()))
            .prop_map(|(first, second)| ConditionalResult::F1 { first, second }),
        (1u8..3, 0u8..3).prop_map(|(key_step, token)| ConditionalResult::F2 { key_step, token }),
        (0u16..1 << 12).prop_map(|tokens| ConditionalResult::F3 { tokens }),
        (0u8..3).prop_map(|token| ConditionalResult::F4 { token }),
    ]
    .prop_map(Packet::ConditionalResult);
    let with_context =
        (any::<u64>(), any::<bool>(), sets(), contexts()).prop_map(|(value, wide, is, context)| {
            let bits = if wide { 64 } else { 32 };
            Packet::AddressWithContext {
                value: low(value, bits, is),
                bits,
                is,
                context,
            }
        });
    let q = (counts(), addresses(), any::<bool>(), any::<bool>()).prop_map(
        |(count, address, traced, counted)| {
            let kind = match address {
                _ if !traced => {
                    if counted {
                        12
                    } else {
                        15
                    }
                }
                AddressBits::Match(entry) => entry,
                AddressBits::Low { bits: 64, .. } => 12,
                AddressBits::Low { bits, is, .. } => {
                    let base = if bits == 32 { 10 } else { 5 };
                    base + u8::from(is == InstructionSet::Is1)
                }
            };
            Packet::Q {
                kind,
                count: (kind != 15).then_some(count),
                address: (kind < 12).then_some(address),
            }
        },
    );
    prop_oneof![
        1 => simple,
        1 => exceptions,
        1 => infos,
        1 => cycles,
        1 => timestamps,
        1 => cancels,
        1 => conditional,
        1 => results,
        1 => with_context,
        1 => q,
        4 => atom_packets(),
        4 => addresses().prop_map(Packet::Address),
        1 => contexts().prop_map(|context| Packet::Context(Some(context))),
        1 => counts().prop_map(Packet::Commit),
        1 => speculative_atoms().prop_map(|atoms| Packet::Mispredict { atoms }),
        1 => (1u8..16).prop_map(Packet::Event),
        1 => (0u8..8).prop_map(Packet::NumberedDataSyncMarker),
        1 => (0u8..5).prop_map(Packet::UnnumberedDataSyncMarker),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(packets in prop::collection::vec(packets(), 1..40)) {
        let config = config(ALL);
        let encoder = Encoder::new(&config);
        let mut bytes = Vec::new();
        encoder.packet(&Packet::Async, &mut bytes).unwrap();
        for packet in &packets {
            let before = bytes.len();
            let written = encoder.packet(packet, &mut bytes);
            prop_assert!(written.is_ok() && bytes.len() > before, "{packet:?}");
        }
        let read = whole_packets(&mut Decoder::new(&config), &bytes);
        prop_assert_eq!(&read[1..], &packets[..]);
    }

    #[test]
    fn atoms_are_packed_without_loss(bits in any::<u64>(), count in 1u8..33) {
        let mut left = Atoms { bits: (bits & ((1 << count) - 1)) as u32, count };
        let whole = left;
        let (mut again, mut taken) = (0u32, 0);
        while let Some((packet, count)) = pack_atoms(left) {
            let Packet::Atoms { atoms, .. } = packet else { panic!("{packet:?}") };
            prop_assert_eq!(atoms.count, count);
            again |= atoms.bits << taken;
            taken += count;
            left = Atoms {
                bits: left.bits.checked_shr(count.into()).unwrap_or(0),
                count: left.count - count,
            };
        }
        prop_assert_eq!((again, taken), (whole.bits, whole.count));
    }
}

/// The longest prefix of the atoms that any format holds.
#[test]
fn atoms_are_packed_into_the_longest_packet() {
    let config = config(ALL);
    let fits = |format, bits, count| {
        let atoms = Atoms { bits, count };
        let mut out = Vec::new();
        let packet = Packet::Atoms { format, atoms };
        Encoder::new(&config).packet(&packet, &mut out).is_ok()
    };
    let longest = |bits: u32, count: u8| {
        let counts = (1..=count.min(24)).rev();
        let mut formats = counts.flat_map(|count| (1..=6).map(move |format| (format, count)));
        formats.find(|&(format, count)| fits(format, bits & ((1 << count) - 1), count))
    };
    let short = (0..=11_u8).flat_map(|count| (0..1_u32 << count).map(move |bits| (bits, count)));
    let long = (12..=32_u8).flat_map(|count| {
        let ones = u32::MAX >> (32 - count);
        (0..u32::from(count)).map(move |n| (ones & !(1 << n), count))
    });
    for (bits, count) in short.chain(long).chain([(0x00ff_ffff, 24), (u32::MAX, 32)]) {
        let packed = pack_atoms(Atoms { bits, count });
        let packed = packed.map(|(packet, count)| match packet {
            Packet::Atoms { format, atoms } => {
                assert_eq!(atoms.bits, bits & ((1 << count) - 1));
                assert_eq!(atoms.count, count);
                (format, count)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(packed, longest(bits, count), "{bits:b} {count}");
    }
}

/// By hand from the diagrams of IHI 0064H, "Instruction trace packets".
#[test]
fn bytes_by_hand() {
    let all = config(ALL);
    let check = |packet: Packet, want: &[u8]| assert_eq!(bytes(&all, &packet), want, "{packet:?}");
    let is = InstructionSet::Is0;
    let low = |value, bits, is| Packet::Address(AddressBits::Low { value, bits, is });
    check(low(0x1fc, 9, is), &[0x95, 0x7f]);
    check(low(0x1_0204, 17, is), &[0x95, 0x81, 0x81]);
    check(low(0xff06, 16, InstructionSet::Is1), &[0x96, 0x83, 0xff]);
    check(
        low(0xffff_ff80_0008_1234, 64, is),
        &[0x9d, 0x0d, 0x09, 0x08, 0x00, 0x80, 0xff, 0xff, 0xff],
    );
    check(
        low(0x8000_ff02, 32, InstructionSet::Is1),
        &[0x9b, 0x01, 0xff, 0x00, 0x80],
    );
    let exception = |number, address| Packet::Exception {
        number,
        address,
        fault_pending: false,
    };
    check(exception(14, ExceptionAddress::Return), &[0x06, 0x1d]);
    check(
        exception(0x20f, ExceptionAddress::ReturnAndTarget),
        &[0x06, 0xde, 0x10],
    );
    let count = |format, commit, count| Packet::CycleCount {
        format,
        commit: Some(commit),
        count,
    };
    check(count(3, 2, Some(3)), &[0x17]);
    check(count(2, 16, Some(15)), &[0x0c, 0xff]);
    check(count(2, 24, Some(1)), &[0x0d, 0xf1]);
    check(count(1, 0, Some(0x100)), &[0x0e, 0x00, 0x80, 0x02]);
    check(count(1, 3, None), &[0x0f, 0x03]);
    let separate = Packet::CycleCount {
        format: 1,
        commit: None,
        count: Some(5),
    };
    assert_eq!(bytes(&config(SEPARATE), &separate), [0x0e, 0x05]);
}

#[test]
fn the_longest_format_is_used() {
    let pack = |text: &str| {
        let bits = text
            .bytes()
            .rev()
            .fold(0, |b, c| b << 1 | u32::from(c == b'E'));
        let count = text.len() as u8;
        match pack_atoms(Atoms { bits, count }).unwrap() {
            (Packet::Atoms { format, .. }, count) => (format, count),
            other => panic!("{other:?}"),
        }
    };
    for (text, want) in [
        ("E", (1, 1)),
        ("NN", (2, 2)),
        ("NNE", (3, 3)),
        ("EEEE", (6, 4)),
        ("EEEN", (6, 4)),
        ("NNNN", (4, 4)),
        ("NENEE", (4, 4)),
        ("NENEN", (5, 5)),
        ("NEEEEN", (5, 5)),
        ("NNEEEEE", (3, 3)),
        ("EEEEEEEEEEEEEEEEEEEEEEEEE", (6, 24)),
        ("EEEEEEENE", (6, 8)),
    ] {
        assert_eq!(pack(text), want, "{text}");
    }
    assert_eq!(pack_atoms(Atoms { bits: 0, count: 0 }), None);
}

#[test]
fn packets_that_no_trace_unit_writes_are_refused() {
    let separate = config(SEPARATE);
    let mut out = vec![1];
    let context = ContextInfo::new(0, Some(1), None);
    for packet in [
        Packet::NotSync,
        Packet::Event(0),
        Packet::Context(Some(context)),
        Packet::ConditionalFlush,
        Packet::Atoms {
            format: 4,
            atoms: atoms(4, 0b1111),
        },
        Packet::Address(AddressBits::Match(3)),
        Packet::Address(AddressBits::Low {
            value: 2,
            bits: 9,
            is: InstructionSet::Is0,
        }),
        Packet::Address(AddressBits::Low {
            value: 0,
            bits: 1,
            is: InstructionSet::Is0,
        }),
        Packet::CycleCount {
            format: 3,
            commit: Some(1),
            count: Some(0),
        },
    ] {
        let written = Encoder::new(&separate).packet(&packet, &mut out);
        assert_eq!(written, Err(Unencodable), "{packet:?}");
        assert_eq!(out, [1]);
    }
}
