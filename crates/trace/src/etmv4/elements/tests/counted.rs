//! Cycle counts and branch targets that are emitted at once, without speculation.

use super::*;
use crate::etmv4::packet::Packet;

/// Packets of a unit without speculation that counts cycles, and some that such a unit does not
/// write.
fn counted() -> impl Strategy<Value = Vec<u8>> {
    let start = [&ASYNC[..], &INFO, &BEGIN].concat();
    let rare = [
        &start[..],
        &[0x04],
        &[0x00, 0x03],
        &[0x00, 0x05],
        &[0x02, 0x05],
        &[0x03, 0x05, 0x06],
        &[0x06, 0x03, 0x90],
        &[0x06, 0x05, 0x95, 0x05],
        &[0x06, 0x05],
        &[0x09, 0x00, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x0a],
        &[0x0b],
        &[0x2d, 0x01],
        &[0x2e, 0x01],
        &[0x30],
        &[0x35],
        &[0x71],
        &[0x80],
        &[0x81, 0x31],
        &[0x82, 0x00, 0x08, 0x00, 0x00, 0x31],
        &[0x88],
        &[0xa0, 0x02],
        &[0xb0],
        &[0xff, 0x8f],
    ];
    let rare: Vec<Vec<u8>> = rare.iter().map(|packet| packet.to_vec()).collect();
    let packet = prop_oneof![
        8 => (0xc0u8..).prop_map(|header| vec![header]),
        3 => (0x90u8..=0x92).prop_map(|header| vec![header]),
        3 => (0x95u8..=0x96, 0u8..0x80).prop_map(|(header, low)| vec![header, low]),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(low, high)| vec![0x95, low | 0x80, high]),
        2 => (0x9au8..=0x9b, any::<u32>())
            .prop_map(|(header, low)| [&[header], &low.to_le_bytes()[..]].concat()),
        1 => (0x9du8..=0x9e, any::<u64>())
            .prop_map(|(header, all)| [&[header], &all.to_le_bytes()[..]].concat()),
        5 => (0x10u8..=0x1f).prop_map(|header| vec![header]),
        2 => (0x0cu8..=0x0d, any::<u8>()).prop_map(|(header, counts)| vec![header, counts]),
        2 => (0u8..0x80).prop_map(|count| vec![0x0e, count]),
        1 => (0x80u8.., 0u8..0x80).prop_map(|(low, high)| vec![0x0e, low, high]),
        1 => Just(vec![0x0f]),
        2 => prop::sample::select(rare),
    ];
    prop::collection::vec(packet, 0..120).prop_map(move |packets| {
        let packets = packets.concat();
        [&start[..], &packets].concat()
    })
}

/// Configurations without speculation: cycle counts that commit nothing, and that commit.
const COUNTED: [&str; 2] = [
    "ete A9 TRCCONFIGR=0x811 TRCIDR0=0x2881cea1 TRCIDR1=0x4100fff0 TRCIDR2=0xd0001088 TRCIDR8=0 \
     TRCDEVARCH=0x47715a13",
    "etmv4 A8 TRCCONFIGR=0x11 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f440 TRCIDR2=0x00001088 TRCIDR8=0",
];

/// Decodes with every cycle count held until the next P0 element.
fn decode_holding_counts(config: &Config, bytes: &[u8]) -> Vec<(BufferOffset, Element)> {
    let (mut decoder, mut elements, mut out) =
        (Decoder::new(config), Elements::new(config), vec![]);
    let packets = crate::protocol::tests::packets_in_pieces(&mut decoder, bytes, bytes.len());
    for (at, packet, _) in packets {
        let at = BufferOffset(at as u64);
        match packet {
            Packet::CycleCount { .. } => elements.other(at, &packet, &mut out),
            _ => elements.packet(at, &packet, &mut out),
        }
    }
    elements.end(BufferOffset(bytes.len() as u64), &mut out);
    out
}

/// Decodes for a sink that ignores atoms; also returns the number of packets.
fn decode_targets(config: &Config, bytes: &[u8]) -> (Vec<(BufferOffset, Element)>, usize) {
    let (mut decoder, mut elements, mut out) =
        (Decoder::new(config), Elements::new(config), vec![]);
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        if decoder.permits_targets() {
            let place = |index| BufferOffset((at + index) as u64);
            let (length, packets) = elements.targets(&bytes[at..], place, &mut out);
            at += length;
            count += packets;
        }
        let rest = &bytes[at..];
        if rest.is_empty() {
            break;
        }
        let next = decoder.next_at_end(rest);
        let (packet, length) = next.unwrap_or_else(|| (decoder.finish(rest), rest.len()));
        elements.packet(BufferOffset(at as u64), &packet, &mut out);
        at += length;
        count += 1;
    }
    elements.end(BufferOffset(bytes.len() as u64), &mut out);
    (without_atoms(&out), count)
}

fn without_atoms(elements: &[(BufferOffset, Element)]) -> Vec<(BufferOffset, Element)> {
    let mut elements = elements.to_vec();
    elements.retain(|(_, element)| !matches!(element, Element::WaypointAtoms(_)));
    elements
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn targets_are_those_among_all_elements(bytes in counted(), which in 0usize..5) {
        let config = config([PLAIN, DEEP, ETE, COUNTED[0], COUNTED[1]][which]);
        let packets = crate::protocol::tests::packets_in_pieces(
            &mut Decoder::new(&config), &bytes, bytes.len(),
        );
        let wanted = (without_atoms(&decode(&config, &bytes)), packets.len());
        prop_assert_eq!(decode_targets(&config, &bytes), wanted);
    }

    #[test]
    fn counts_emitted_at_once_give_the_same_elements(bytes in counted(), which in 0usize..2) {
        let config = config(COUNTED[which]);
        prop_assert_eq!(decode(&config, &bytes), decode_holding_counts(&config, &bytes));
    }
}
