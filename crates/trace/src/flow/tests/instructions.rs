//! Packets of instruction atoms followed at once give the same output as their elements one by one.

use super::*;
use crate::element::{AtomPacket, AtomSink, ElementSink};
use proptest::prelude::*;

/// A loop with a conditional branch, then code that is missing.
fn looping() -> Pieces {
    let cbz_on = 0xb400_0060;
    let b_back = 0x1400_0000 | 0x3ff_fffd;
    a64(&[
        (0x1000, &[NOP, cbz_on, NOP, b_back]),
        (0x1010, &[NOP, 0x1400_0000 | 0x3ff_fffb]),
        (0x2000, &[NOP, NOP, RET]),
        (0x3000, &[NOP]),
    ])
}

/// Up to 15 atoms, with cycles or without.
fn packet(byte: u8, is_timed: bool) -> Option<AtomPacket> {
    let count = byte >> 4;
    let bits = (u32::from(byte & 0xf) * 0x1111) & ((1 << count) - 1);
    let cycles = is_timed.then_some([byte & 7, byte & 1]);
    (is_timed || count > 0).then_some(AtomPacket::Instructions(Atoms { bits, count }, cycles))
}

/// An element between packets of atoms.
fn other(byte: u8) -> Element {
    match byte % 7 {
        0 => Element::CancelInstruction,
        1 => Element::Mark(Mark::ExceptionReturn),
        2 => Element::Mark(Mark::TraceOn(crate::element::TraceOnReason::BeginOrFilter)),
        3 => address(0x2000),
        4 => address(0x3000),
        5 => exception(0x1004),
        _ => address(0x1000),
    }
}

/// The output of runs of packets, each after one other element, and the state before the end.
fn output<S: FlowSink + Default>(
    runs: &[(u8, Vec<u8>)],
    is_timed: bool,
    at_once: bool,
) -> (S, FlowState) {
    let mut driver = FlowDriver {
        flow: Flow::new(FlowConfig::default(), looping()),
        sink: S::default(),
    };
    driver.element(BufferOffset(0), address(0x1000));
    let mut offset = 1;
    for (before, packets) in runs {
        driver.element(BufferOffset(offset), other(*before));
        let at = |index: usize| BufferOffset(offset + 1 + index as u64);
        let mut index = 0;
        while index < packets.len() {
            if at_once {
                let rest = &packets[index..];
                let decoded = |byte| packet(byte, is_timed);
                index += driver.atoms(rest, decoded, |more| at(index + more));
            }
            if let Some(&byte) = packets.get(index) {
                if let Some(packet) = packet(byte, is_timed) {
                    driver.element(at(index), packet.element());
                }
                index += 1;
            }
        }
        offset += 1 + packets.len() as u64;
    }
    let state = driver.flow.state();
    driver.element(BufferOffset(offset), Element::Mark(Mark::End));
    (driver.sink, state)
}

/// Compares the output of packets followed at once, one by one and counted with that of single
/// elements.
fn compare(runs: &[(u8, Vec<u8>)], is_timed: bool) -> Result<(), TestCaseError> {
    let (single, state) = output::<Log>(runs, is_timed, false);
    let (at_once, after) = output::<Log>(runs, is_timed, true);
    prop_assert_eq!((&single.0, &state), (&at_once.0, &after));

    let (counted, after) = output::<Counting>(runs, is_timed, true);
    prop_assert_eq!((Counting::of(single), state), (counted, after));
    Ok(())
}

proptest! {
    #[test]
    fn packets_at_once_give_what_single_elements_give(
        runs in proptest::collection::vec(
            (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)),
            1..12,
        ),
        is_timed: bool,
    ) {
        compare(&runs, is_timed)?;
    }

    #[test]
    fn more_packets_than_are_collected_at_once_lose_nothing(
        packets in proptest::collection::vec(0x00..=0x2fu8, 600..900),
        is_timed: bool,
    ) {
        compare(&[(6, packets)], is_timed)?;
    }
}

#[test]
fn a_loop_is_followed_at_once() {
    let mut driver = FlowDriver {
        flow: Flow::new(FlowConfig::default(), looping()),
        sink: Log::default(),
    };
    driver.element(BufferOffset(0), address(0x1000));
    let decoded = |byte| packet(byte, true);
    driver.element(BufferOffset(0), decoded(0x11).unwrap().element());
    let packets = [0x11, 0x05, 0x11, 0x22].repeat(300);
    let at = |index| BufferOffset(index as u64);
    assert_eq!(driver.atoms(&packets, decoded, at), packets.len());
}
