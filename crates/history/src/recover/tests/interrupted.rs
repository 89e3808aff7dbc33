//! Exceptions of M-profile cores that interrupt a load or store of several words in the middle.

use super::facts;
use crate::recover::execution::steps::{Step, Taken};
use crate::recover::facts::final_state::FinalState;
use crate::recover::facts::microcontroller::Microcontroller;
use crate::recover::window::Window;
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::t32::ItState;
use armsnap_arch::semantics::{Location, m_profile};
use armsnap_snapshot::stop::Cancel;

const MOVS_R4_9: u16 = 0x2409;
const MOVS_R7_5: u16 = 0x2705;
const LDM_R3_R4_R5: u16 = 0xcb30;
const POP_R4_R5: u16 = 0xbc30;
const NOP: u16 = 0xbf00;
const BX_LR: u16 = 0x4770;
/// Two instructions of a handler.
const HANDLER: [u16; 2] = [NOP, BX_LR];
const HANDLER_AT: u64 = 0x500;
const INTERRUPT: u16 = 14;

/// The steps: at the interrupted instruction after the return, in the handler, and the last
/// before it.
const RESUMED: u32 = 1;
const IN_HANDLER: u32 = 3;
const BEFORE: u32 = 4;

/// Solves instructions; a handler runs before the last one, which is known to be interrupted unless
/// its address is not.
fn solved(code: &[u16], facts: &FinalState, is_known: bool) -> Window {
    let mut window = Window::at_end(0x401 + 2 * code.len() as u64);
    let templates = &mut window.templates;
    templates.architecture = Architecture::MProfile;
    templates.model(Some(Microcontroller {
        aligns_frames: true,
        ..Microcontroller::default()
    }));
    let mut add = |pc, word| {
        let semantics = m_profile::decode(word, 0, pc, ItState::OUTSIDE);
        templates.add(pc, Isa::T32, &semantics)
    };
    let addresses = (0x400..).step_by(2);
    let numbers: Vec<u32> = addresses
        .zip(code)
        .map(|(pc, &word)| add(pc, word))
        .collect();
    let handler = [0, 1].map(|index| add(HANDLER_AT + 2 * index, HANDLER[index as usize]));
    let (&last, before) = numbers.split_last().unwrap();
    let resumed = templates.resumed(last);
    window.steps.push(Step::Halted);
    for number in [resumed, handler[1], handler[0]]
        .into_iter()
        .chain(before.iter().rev().copied())
    {
        window.steps.push(Step::Instruction(number));
    }
    let taken = |step, returns| Taken {
        step,
        returns,
        number: INTERRUPT,
        interrupted: (is_known && !returns).then_some(last),
        ..Taken::default()
    };
    window.steps.taken = vec![taken(RESUMED, true), taken(IN_HANDLER, false)];
    window.work(facts, &Cancel::default()).unwrap();
    window
}

fn facts_of(registers: &[(u8, u64)]) -> FinalState {
    let mut memory = [0; 64];
    // The return address and xPSR in the frame below 0x1108.
    memory[32] = 0x0100_0000_0000_0404;
    let mut facts = facts(&memory, registers);
    facts.architecture = Architecture::MProfile;
    facts.without_kernel = false;
    facts
}

fn register(window: &mut Window, facts: &FinalState, step: u32, number: u8) -> Option<u64> {
    let found = window.solved(facts).unwrap().registers(step);
    found
        .get(Location::general(number))
        .map(|known| known.value)
}

#[test]
fn registers_may_be_loaded_before_the_handler() {
    for (load, base) in [(LDM_R3_R4_R5, 3), (POP_R4_R5, 13)] {
        let code = [MOVS_R4_9, MOVS_R7_5, NOP, load];
        let facts = facts_of(&[(13, 0x1108), (3, 0x1108)]);
        let mut window = solved(&code, &facts, true);
        for step in [RESUMED, 2, IN_HANDLER] {
            for number in [4, base] {
                let found = register(&mut window, &facts, step, number);
                assert_eq!(found, None, "r{number} at {step} of {load:#x}");
            }
            assert_eq!(register(&mut window, &facts, step, 7), Some(5));
        }
        assert_eq!(register(&mut window, &facts, BEFORE, 4), Some(9));
        // The instruction moved SP once.
        let moved = if base == 13 { 8 } else { 0 };
        let stack_pointer = register(&mut window, &facts, BEFORE, 13);
        assert_eq!(stack_pointer, Some(0x1108 - moved));
    }
}

#[test]
fn any_instruction_may_be_interrupted_in_part_if_it_is_unknown() {
    let facts = facts_of(&[(13, 0x1100)]);
    for is_known in [true, false] {
        let mut window = solved(&[MOVS_R7_5, NOP, NOP], &facts, is_known);
        let found = register(&mut window, &facts, IN_HANDLER, 7);
        assert_eq!(found, is_known.then_some(5));
    }
}
