//! Repeated sequences of atoms: recalling them gives the same output as following them.

use super::*;
use crate::element::{AtomPacket, AtomSink, ElementSink};
use proptest::prelude::*;

/// A loop with a call, whose callee has two ways to its return, and a call within it.
fn looping() -> Pieces {
    let b_back = 0x1400_0000 | 0x3ff_fffe;
    let cbz_to_ret = 0xb400_0060;
    a64(&[
        (0x1000, &[NOP, bl(0x1004, 0x2000), b_back]),
        (0x2000, &[cbz_to_ret, NOP, bl(0x2008, 0x3000), RET]),
        (0x3000, &[RET]),
    ])
}

fn config() -> FlowConfig {
    FlowConfig {
        return_stack: true,
        ..FlowConfig::default()
    }
}

/// All sequences of up to four atoms, one byte each.
fn decoded(byte: u8) -> Option<Atoms> {
    let count = byte >> 4;
    let bits = u32::from(byte & 0xf);
    (1..=4).contains(&count).then_some(Atoms {
        bits: bits & ((1 << count) - 1),
        count,
    })
}

fn packet(byte: u8) -> Option<AtomPacket> {
    decoded(byte).map(AtomPacket::Waypoints)
}

/// The output for packets of one byte each, as many as possible at once or atom by atom, and the state
/// after them.
fn output<S: FlowSink + Default>(packets: &[u8], at_once: bool) -> (S, FlowState) {
    let mut driver = FlowDriver {
        flow: Flow::new(config(), looping()),
        sink: S::default(),
    };
    driver.element(BufferOffset(0), address(0x1000));
    let mut index = 0;
    while index < packets.len() {
        let at = |index: usize| BufferOffset(index as u64);
        if at_once {
            let rest = &packets[index..];
            index += driver.atoms(rest, packet, |more| at(index + more));
            if index == packets.len() {
                break;
            }
        }
        let atoms = decoded(packets[index]).unwrap();
        if at_once {
            driver.element(at(index), Element::WaypointAtoms(atoms));
        } else {
            for atom in 0..atoms.count {
                let atom = Atoms {
                    bits: u32::from(atoms.is_e(atom)),
                    count: 1,
                };
                driver.element(at(index), Element::WaypointAtoms(atom));
            }
        }
        index += 1;
    }
    (driver.sink, driver.flow.state())
}

proptest! {
    #[test]
    fn packets_at_once_lead_where_single_atoms_lead(
        period in proptest::collection::vec(0x10..=0x4fu8, 1..12),
        times in 1..20usize,
    ) {
        let packets = period.repeat(times);
        let (single, state) = output::<Log>(&packets, false);
        let (at_once, after) = output::<Log>(&packets, true);
        prop_assert_eq!((&single.0, &state), (&at_once.0, &after));
        let (counted, after) = output::<Counting>(&packets, true);
        prop_assert_eq!((Counting::of(single), state), (counted, after));
    }
}

#[test]
fn a_loop_without_returns_is_recalled_whole() {
    // cbz x0, 0x1008; nop; b 0x1000
    let code = a64(&[(0x1000, &[0xb400_0040, NOP, 0x1400_0000 | 0x3ff_fffe])]);
    let mut driver = FlowDriver {
        flow: Flow::new(config(), code),
        sink: Log::default(),
    };
    driver.element(BufferOffset(0), address(0x1000));
    // Not taken, back; taken, back.
    let packets = [0x22, 0x23].repeat(50);
    for &packet in &packets[..4] {
        let atoms = decoded(packet).unwrap();
        driver.element(BufferOffset(0), Element::WaypointAtoms(atoms));
    }
    let at = |index| BufferOffset(index as u64);
    assert_eq!(driver.atoms(&packets[4..], packet, at), packets.len() - 4);
}
