//! Exceptions of M-profile cores with floating point: when the registers are stored is not known.

use super::facts;
use crate::recover::execution::steps::{Step, Taken};
use crate::recover::execution::template::Floats;
use crate::recover::facts::final_state::FinalState;
use crate::recover::facts::microcontroller::Microcontroller;
use crate::recover::window::Window;
use armsnap_arch::arch::{Architecture, Extensions};
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::t32::ItState;
use armsnap_arch::semantics::{Location, m_profile};
use armsnap_snapshot::stop::Cancel;

const NOP: u16 = 0xbf00;
/// `vadd.f32 s0, s0, s0`.
const VADD: u16 = 0xee30;
const VADD_S0_S0_S0: u16 = 0x0a00;
const INTERRUPT: u16 = 14;
/// Where the memory of `facts` is.
const MEMORY: u64 = 0x1000;

/// The frame, with room for floating-point registers, and SP before the exception.
const FRAME: u64 = 0x1040;
const BEFORE: u64 = FRAME + 0x68;

/// Interrupted code, then a handler in which the core is halted, each with a floating-point instruction
/// or without.
fn solved(facts: &FinalState, [interrupted, handles]: [bool; 2]) -> Window {
    let mut window = Window::at_end(0x507);
    let templates = &mut window.templates;
    templates.architecture = Architecture::MProfile;
    templates.model(facts.microcontroller);
    let mut add = |pc, (first, second)| {
        let semantics = m_profile::decode(first, second, pc, ItState::OUTSIDE);
        templates.add(pc, Isa::T32, &semantics)
    };
    let (nop, float) = ((NOP, 0), (VADD, VADD_S0_S0_S0));
    let before = [add(0x400, float), add(0x404, nop)];
    let handler = [add(0x500, nop), add(0x502, float)];
    for number in [before[0], handler[1]] {
        templates.all[number as usize].floats = Floats::Uses;
    }
    let [first, last] = [before[0], handler[1]].map(|number| templates.first_float(number));
    let first = if interrupted { first } else { before[1] };
    let last = if handles { last } else { handler[0] };
    window.steps.push(Step::Halted);
    for number in [last, handler[0], before[1], first] {
        window.steps.push(Step::Instruction(number));
    }
    window.steps.taken = vec![Taken {
        step: 2,
        number: INTERRUPT,
        interrupted: Some(before[1]),
        ..Taken::default()
    }];
    window.work(facts, &Cancel::default()).unwrap();
    window
}

fn facts_of(link: u64) -> FinalState {
    let mut memory: Vec<u64> = (1..65).collect();
    // The return address and xPSR.
    memory[(FRAME + 24 - MEMORY) as usize / 8] = 0x0100_0000_0000_0406;
    let mut facts = facts(&memory, &[(13, FRAME), (14, link)]);
    facts.architecture = Architecture::MProfile;
    facts.without_kernel = false;
    facts.microcontroller = Some(Microcontroller {
        aligns_frames: true,
        notes_floats: true,
        extensions: Extensions {
            floating_point: true,
            security: false,
        },
        ..Microcontroller::default()
    });
    facts
}

#[test]
fn registers_may_be_stored_at_the_first_float_of_the_handler() {
    let facts = facts_of(0xffff_ffe9);
    let mut window = solved(&facts, [true; 2]);
    let mut byte = |step, address| {
        let mut bytes = [None];
        let mut solved = window.solved(&facts).unwrap();
        solved.memory(step, address, &mut bytes);
        bytes[0].is_some()
    };
    // After the instruction, before it, before the exception.
    for (step, floats) in [(0, true), (1, false), (2, false), (3, false)] {
        for address in [FRAME + 0x20, FRAME + 0x5f, FRAME + 0x60] {
            assert_eq!(byte(step, address), floats, "{step} {address:#x}");
        }
        assert_eq!(byte(step, FRAME), step < 3, "{step}");
        assert!(byte(step, BEFORE), "{step}");
    }
}

#[test]
fn frames_are_larger_if_floating_point_was_used() {
    let stack_pointer = |link, floats| {
        let facts = facts_of(link);
        let mut window = solved(&facts, floats);
        let found = window.solved(&facts).unwrap().registers(3);
        found.get(Location::general(13)).map(|known| known.value)
    };
    assert_eq!(stack_pointer(0xffff_ffe9, [true; 2]), Some(BEFORE));
    assert_eq!(stack_pointer(0xffff_ffe9, [false, true]), Some(BEFORE));
    assert_eq!(stack_pointer(0xffff_fff9, [false; 2]), Some(FRAME + 0x20));
}
