//! Random programs: what is proved is true, and a window that grew in pieces gives the same results
//! as one that was built at once.

use super::facts;
use crate::recover::execution::steps::{Step, Taken};
use crate::recover::facts::final_state::FinalState;
use crate::recover::queries::values::Nearby;
use crate::recover::status::{Known, Status};
use crate::recover::window::Window;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::{Control, Location, Machine, Semantics, Values, a64, execute};
use armsnap_snapshot::stop::Cancel;
use proptest::prelude::*;

const CODE: u64 = 0x400;
const MEMORY: u64 = 0x1000;
const STACK: u64 = 0x1800;
const WORDS: usize = 0x200;
/// The most instructions executed.
const LONGEST: usize = 120;

/// One of these, with registers x0 to x7, x9 and x10 (which are pointers initially) and SP.
fn instruction() -> impl Strategy<Value = u32> {
    let register = || prop_oneof![0..8_u32, Just(9), Just(10), Just(29)];
    let base = || prop_oneof![Just(9_u32), Just(10), Just(31), Just(31), 0..8_u32];
    let three = (register(), register(), register());
    let computed = (
        prop::sample::select(vec![
            0x8b00_0000_u32,
            0xcb00_0000,
            0x0b00_0000,
            0xca00_0000,
            0x8a00_0000,
            0xaa00_0000,
            0x9b00_7c00,
            // csel, with the conditions eq and hi
            0x9a80_0000,
            0x9a80_8000,
            // cmp
            0xeb00_001f,
        ]),
        three,
    );
    let computed = computed.prop_map(|(op, (d, n, m))| op | m << 16 | n << 5 | d);
    let moved = (register(), prop_oneof![Just(31_u32), register()]);
    let moved = moved.prop_map(|(d, m)| 0xaa00_03e0 | m << 16 | d);
    let constant = (register(), prop_oneof![0..64_u32, 0x1000..0x1040_u32]);
    let constant = constant.prop_map(|(d, value)| 0xd280_0000 | value << 5 | d);
    let added = (
        prop::sample::select(vec![0x9100_0000_u32, 0xd100_0000]),
        (prop_oneof![register(), Just(31)], 0..3_u32),
    );
    let added = added.prop_map(|(op, (d, count))| op | count << 13 | d << 5 | d);
    let accessed = (
        prop::sample::select(vec![
            0xf940_0000_u32,
            0xf900_0000,
            0xb940_0000,
            0xb900_0000,
            0x3900_0000,
            0x7940_0000,
        ]),
        (base(), register(), 0..6_u32),
    );
    let accessed = accessed.prop_map(|(op, (n, t, at))| op | at << 10 | n << 5 | t);
    // stp [sp, #-16]!, ldp [sp], #16
    let pair = (
        prop::sample::select(vec![0xa9bf_03e0_u32, 0xa8c1_03e0]),
        (0..4_u32, 4..8_u32),
    );
    let pair = pair.prop_map(|(op, (one, other))| op | other << 10 | one);
    let branch = (
        prop::sample::select(vec![0xb400_0000_u32, 0xb500_0000]),
        (register(), -6..6_i32),
    );
    let branch = branch.prop_map(|(op, (t, by))| op | (by.cast_unsigned() & 0x7_ffff) << 5 | t);
    let call = (-6..6_i32).prop_map(|by| 0x9400_0000 | by.cast_unsigned() & 0x3ff_ffff);
    prop_oneof![
        6 => computed,
        3 => moved,
        3 => constant,
        4 => added,
        10 => accessed,
        3 => pair,
        3 => branch,
        1 => call,
        // ret, svc, mov x8 with the number of write(2), and an encoding without a model.
        1 => prop::sample::select(vec![0xd65f_03c0_u32, 0xd400_0001, 0xd280_0808, 0]),
    ]
}

/// Memory while a program runs.
struct Running(Vec<u8>);

impl Running {
    fn place(address: u64) -> Option<usize> {
        // Addresses may have a tag in their top byte.
        let at = ((address << 8) as i64 >> 8) as u64;
        usize::try_from(at.wrapping_sub(MEMORY)).ok()
    }
}

impl Machine for Running {
    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        let bytes = (0..u64::from(size)).rev().map(|index| {
            let address = address.wrapping_add(index);
            let byte = Self::place(address).and_then(|at| self.0.get(at).copied());
            // Everything else is a device, which returns anything.
            byte.unwrap_or_else(|| address.wrapping_mul(0x9d) as u8)
        });
        Some(bytes.fold(0, |value, byte| value << 8 | u64::from(byte)))
    }

    fn store(&mut self, address: Option<u64>, size: u8, value: Option<u64>) {
        let (Some(address), Some(value)) = (address, value) else {
            panic!("everything is known while a program runs");
        };
        for index in 0..size {
            let at = Self::place(address.wrapping_add(index.into()));
            if let Some(byte) = at.and_then(|at| self.0.get_mut(at)) {
                *byte = (value >> (8 * index)) as u8;
            }
        }
    }

    fn may_store_anywhere(&mut self) {}
}

/// An execution.
struct Run {
    /// By step; the instruction's index in the code.
    steps: Vec<Step>,
    /// Steps before which an exception was taken.
    taken: Vec<u32>,
    /// By step: registers and memory before it.
    states: Vec<(Values, Vec<u8>)>,
    end: u64,
}

fn run(code: &[Semantics], words: &[u64], exceptions: &[usize]) -> Run {
    let mut values: Values = [Some(0); Location::KEPT];
    for (number, value) in values.iter_mut().take(8).enumerate() {
        *value = Some((number as u64).wrapping_mul(0x1234_5678_9abc_def1) >> (5 * number));
    }
    values[8] = Some(29);
    values[9] = Some(MEMORY + 64);
    values[10] = Some(MEMORY + 128);
    values[29] = Some(STACK);
    values[Location::SP.index()] = Some(STACK);
    for flag in [Location::N, Location::Z, Location::C, Location::V] {
        values[flag.index()] = Some(0);
    }
    let mut memory = Running(words.iter().flat_map(|word| word.to_le_bytes()).collect());
    let (mut steps, mut states, mut pc) = (Vec::new(), Vec::new(), CODE);
    let mut taken = Vec::new();
    while steps.len() < LONGEST {
        let index = (pc.wrapping_sub(CODE) / 4) as usize;
        let Some(semantics) = code.get(index).filter(|_| pc >= CODE && pc % 4 == 0) else {
            break;
        };
        if exceptions.contains(&steps.len()) {
            // A signal: its frame is somewhere, and registers are set up.
            taken.push(steps.len() as u32);
            values[3] = Some(0x77);
            memory.store(Some(STACK - 256), 8, Some(0x77));
        }
        steps.push(Step::Instruction(index as u32));
        states.push((values, memory.0.clone()));
        if semantics.may_store_anywhere {
            values[4] = Some(0x88);
            memory.store(Some(MEMORY + 64), 8, Some(0x88));
            pc += 4;
            continue;
        }
        pc = execute(semantics, pc, &mut values, &mut memory).unwrap();
        if semantics.control == Control::SystemCall {
            values[0] = Some(0x99);
            if values[8] != Some(64) {
                memory.store(Some(MEMORY + 128), 8, Some(0x99));
            }
        }
    }
    states.push((values, memory.0));
    steps.push(Step::Halted);
    steps.reverse();
    states.reverse();
    let last = steps.len() as u32 - 1;
    Run {
        taken: taken.into_iter().rev().map(|from| last - from).collect(),
        steps,
        states,
        end: pc,
    }
}

/// A window over the run, solved whenever its length is one of `cuts`.
fn window(code: &[Semantics], run: &Run, facts: &FinalState, cuts: &[usize]) -> Window {
    let mut window = Window::at_end(run.end);
    for (pc, semantics) in (CODE..).step_by(4).zip(code) {
        window.templates.add(pc, Isa::A64, semantics);
    }
    let mut taken = run.taken.iter().peekable();
    for (index, &step) in run.steps.iter().enumerate() {
        if cuts.contains(&index) {
            window.work(facts, &Cancel::default()).unwrap();
            // Queries in between change nothing.
            window.solved(facts).unwrap().registers(index as u32 / 2);
            window
                .solved(facts)
                .unwrap()
                .memory(index as u32 / 3, MEMORY + 64, &mut [None; 8]);
        }
        while let Some(&step) = taken.next_if(|&&step| (step as usize) < index) {
            window.steps.taken.push(Taken {
                step,
                number: 10,
                ..Taken::default()
            });
        }
        window.steps.push(step);
    }
    window.work(facts, &Cancel::default()).unwrap();
    window
}

fn bytes(window: &mut Window, facts: &FinalState, step: u32) -> Vec<Option<Known<u8>>> {
    let mut out = vec![None; 0x100];
    let (low, high) = out.split_at_mut(0x80);
    window
        .solved(facts)
        .unwrap()
        .memory(step, MEMORY + 0x40, low);
    window
        .solved(facts)
        .unwrap()
        .memory(step, STACK - 0x40, high);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn pieces_say_the_same_and_the_truth(
        words in prop::collection::vec(instruction(), 4..60),
        values in prop::collection::vec(prop_oneof![Just(0_u64), 0x1000..0x1400_u64, any::<u64>()], WORDS),
        cuts in prop::collection::vec(1..LONGEST, 1..5),
        exceptions in prop::option::weighted(0.3, 0..LONGEST),
        unknown in prop::collection::vec(0..32_usize, 0..12),
        every in 1..6_usize,
    ) {
        let code: Vec<Semantics> = (CODE..).step_by(4).zip(&words)
            .map(|(pc, &word)| a64::decode(word, pc))
            .collect();
        let exceptions: Vec<usize> = exceptions.into_iter().collect();
        let run = run(&code, &values, &exceptions);
        let (last, memory) = &run.states[0];
        let memory: Vec<u64> = memory.chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
            .collect();
        let mut facts = facts(&memory, &[]);
        facts.registers = *last;
        for &register in &unknown {
            facts.registers[register] = None;
        }
        let mut one = window(&code, &run, &facts, &[]);
        let mut many = window(&code, &run, &facts, &cuts);
        prop_assert!(!one.sharing().contradicts && one.ends);
        let cut = [&mut one, &mut many].map(|window| window.solved(&facts).unwrap().solver.has_cut());
        let settled = cut == [false; 2];
        for (step, (values, memory)) in (0..).zip(&run.states).step_by(every) {
            // Only one of them keeps what earlier queries found.
            *many.solved(&facts).unwrap().nearby = Nearby::default();
            let [found, other] = [&mut one, &mut many].map(|window| window.solved(&facts).unwrap().registers(step));
            prop_assert!(!settled || found == other, "{step}: {found:?}, {other:?}");
            for (location, known) in found.0.into_iter().chain(other.0).enumerate() {
                let location = location % Location::KEPT;
                if let Some(Known { value, status: Status::Proved }) = known {
                    prop_assert_eq!(Some(value), values[location], "{} before step {}", location, step);
                }
            }
            if step % 4 != 0 {
                continue;
            }
            let [found, other] = [&mut one, &mut many].map(|window| bytes(window, &facts, step));
            prop_assert!(!settled || found == other, "memory at {step}: {found:?}, {other:?}");
            let here = (MEMORY + 0x40..MEMORY + 0xc0).chain(STACK - 0x40..STACK + 0x40);
            for ((found, other), address) in found.into_iter().zip(other).zip(here) {
                for known in [found, other] {
                    if let Some(Known { value, status: Status::Proved }) = known {
                        prop_assert_eq!(value, memory[(address - MEMORY) as usize], "{:#x} before step {}", address, step);
                    }
                }
            }
        }
    }
}
