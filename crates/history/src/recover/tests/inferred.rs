//! Where stores with unknown addresses did not go.

use super::*;

const MOV_X2_1020: u32 = 0xd282_0402;
const MOV_X1_9: u32 = 0xd280_0121;

/// Two words of static data, then others.
struct Statics(Words);

impl FinalMemory for Statics {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        self.0.read(address, out)
    }

    fn is_constant(&self, _: u64) -> bool {
        false
    }

    fn statics(&self) -> [&[std::ops::Range<u64>]; 2] {
        const RANGE: std::ops::Range<u64> = 0x1000..0x1010;
        [std::slice::from_ref(&RANGE), &[]]
    }
}

/// Solves an execution of instructions at these addresses, which ends at a pc.
fn executed(code: &[(u64, u32)], end: u64, facts: &FinalState) -> Window {
    let mut window = Window::at_end(end);
    window.templates.go = facts.go.clone();
    let mut numbers = HashMap::new();
    let steps: Vec<u32> = code
        .iter()
        .map(|&(pc, word)| {
            let templates = &mut window.templates;
            *numbers
                .entry(pc)
                .or_insert_with(|| templates.add(pc, Isa::A64, &a64::decode(word, pc)))
        })
        .collect();
    window.templates.find_unwinder(&steps, None);
    window.steps.push(Step::Halted);
    for number in steps.into_iter().rev() {
        window.steps.push(Step::Instruction(number));
    }
    window.work(facts, &Cancel::default()).unwrap();
    window
}

/// The first byte at an address, before everything.
fn first(window: &mut Window, facts: &FinalState, address: u64) -> Option<Known<u8>> {
    let mut out = [None];
    let step = window.steps.len() - 1;
    window
        .solved(facts)
        .unwrap()
        .memory(step, address, &mut out);
    out[0]
}

#[test]
fn a_store_goes_where_the_instruction_was_seen_to_store() {
    let mut all = facts(&[], &[(6, 9)]);
    all.memory = std::sync::Arc::new(Statics(Words(vec![7, 0, 0, 0, 9])));
    let store = (0x400, STR_X1_X2);
    let known = [(0x404, MOV_X2_1020), (0x408, MOV_X1_9)];
    let last = (0x40c, MOV_X6_9);
    // Seen to store to allocated memory.
    let seen = [store, known[0], known[1], store, last];
    let mut window = executed(&seen, 0x410, &all);
    let found = first(&mut window, &all, 0x1000).unwrap();
    assert_eq!((found.value, found.status), (7, Status::Inferred));
    assert!(first(&mut window, &all, 0x1020).is_none());
    // Another instruction was seen to.
    let other = [store, known[0], known[1], (0x410, STR_X1_X2), last];
    let mut window = executed(&other, 0x410, &all);
    assert!(first(&mut window, &all, 0x1000).is_none());
    // Seen to store to static data, too.
    let both = [
        store,
        (0x414, 0xd282_0102), // mov x2, #0x1008
        (0x418, 0xd280_0001), // mov x1, #0
        store,
        known[0],
        known[1],
        store,
        last,
    ];
    let mut window = executed(&both, 0x410, &all);
    assert!(first(&mut window, &all, 0x1000).is_none());
}

#[test]
fn a_buffer_whose_address_is_inferred_proves_nothing() {
    let code = [
        (0x400, 0xaa13_03e1), // mov x1, x19
        (0x404, SVC_0),       // read(2) of eight bytes
        (0x408, 0x9400_003e), // bl 0x500, which preserves x19 by the convention
        (0x500, 0xaa09_03f3), // mov x19, x9
        (0x504, 0xd65f_03c0), // ret
        (0x40c, MOV_X6_9),
    ];
    let all = facts(&[1, 2, 3, 4], &[(19, 0x1008), (2, 8), (8, 63), (6, 9)]);
    let mut window = executed(&code, 0x410, &all);
    let found = first(&mut window, &all, 0x1018).unwrap();
    assert_eq!((found.value, found.status), (4, Status::Inferred));
    assert!(first(&mut window, &all, 0x1008).is_none());
}

#[test]
fn functions_of_go_preserve_nothing() {
    let code = [
        (0x400, 0x9400_0040), // bl 0x500
        (0x500, 0xf940_0033), // ldr x19, [x1]
        (0x504, 0xd65f_03c0), // ret
        (0x404, MOV_X6_9),
    ];
    let mut all = facts(&[], &[(19, 7), (6, 9)]);
    let x19 = |all: &FinalState| {
        let mut window = executed(&code, 0x408, all);
        let registers = window.solved(all).unwrap().registers(code.len() as u32);
        registers
            .get(Location::general(19))
            .map(|known| known.value)
    };
    assert_eq!(x19(&all), Some(7));
    all.go = GoCode::at(0x500..0x508);
    assert_eq!(x19(&all), None);
}

/// Another thread may have run a goroutine while its stack was not used here.
#[test]
fn code_of_go_that_switches_stacks_loses_them() {
    let code = [
        (0x400, 0xf900_03e1), // str x1, [sp]
        (0x404, 0x9100_03e2), // mov x2, sp
        (0x408, 0x9100_005f), // mov sp, x2
        (0x40c, 0xf940_03e5), // ldr x5, [sp]
    ];
    let mut all = facts(&[7], &[(5, 7)]);
    all.registers[Location::SP.index()] = Some(0x1000);
    all.others = Others::Always;
    let x1 = |all: &FinalState| {
        let mut window = executed(&code, 0x410, all);
        let registers = window.solved(all).unwrap().registers(code.len() as u32);
        registers.get(Location::general(1)).map(|known| known.value)
    };
    assert_eq!(x1(&all), Some(7));
    all.go = GoCode::at(0x400..0x410);
    assert_eq!(x1(&all), None);
}

#[test]
fn a_store_below_what_a_function_allocated_misses_its_frame() {
    let code = [
        (0x400, 0x9100_03fd), // mov x29, sp
        (0x404, 0xcb20_63ff), // sub sp, sp, x0
        (0x408, 0xf900_03e3), // str x3, [sp]
        (0x40c, 0xf900_07e3), // str x3, [sp, #8]
        (0x410, 0x9100_03bf), // mov sp, x29
        (0x414, 0xf940_03e4), // ldr x4, [sp]
    ];
    let mut all = facts(&[1, 2, 3, 4, 5], &[(29, 0x1010)]);
    all.registers[Location::SP.index()] = Some(0x1010);
    let mut window = executed(&code, 0x418, &all);
    let found = first(&mut window, &all, 0x1020).unwrap();
    assert_eq!((found.value, found.status), (5, Status::Inferred));
    // Up to 16 bytes above the stack pointer may be written.
    assert!(first(&mut window, &all, 0x1018).is_none());
    assert!(first(&mut window, &all, 0x1010).is_none());
}

/// The unwinder overwrites the registers that it saved in its own frame with those of another
/// frame.
#[test]
fn the_unwinder_loads_other_registers_than_it_saved() {
    let mut code = [
        (0x400, 0xd100_43ff), // sub sp, sp, #16
        (0x404, 0xf900_03f3), // str x19, [sp]
        (0x408, STR_X1_X2),
        (0x40c, 0xf940_03f3), // ldr x19, [sp]
        (0x410, 0x9100_43ff), // add sp, sp, #16
        (0x414, 0x8b24_63ff), // add sp, sp, x4
    ];
    let mut all = facts(&[1, 2, 3, 4, 5], &[(19, 7), (4, 8)]);
    all.registers[Location::SP.index()] = Some(0x1028);
    let x19 = |code: &[(u64, u32)], all: &FinalState| {
        let mut window = executed(code, 0x418, all);
        let registers = window.solved(all).unwrap().registers(code.len() as u32);
        registers.get(Location::general(19))
    };
    assert_eq!(x19(&code, &all), None);
    code[5].1 = MOV_X6_9;
    all.registers[Location::SP.index()] = Some(0x1020);
    all.registers[6] = Some(9);
    assert_eq!(x19(&code, &all).map(|known| known.value), Some(7));
}

#[test]
fn setjmp_returns_once_more_where_longjmp_goes_to() {
    let code = [
        (0x400, 0x9400_0040), // bl 0x500
        (0x500, 0xd65f_03c0), // ret
        (0x404, 0x9400_007f), // bl 0x600
        (0x600, 0xd100_43ff), // sub sp, sp, #16
        (0x604, 0x9400_007f), // bl 0x800
        (0x800, 0x9100_00bf), // mov sp, x5
        (0x804, 0xd61f_0060), // br x3
    ];
    let mut all = facts(&[1], &[(5, 0x2000), (3, 0x404)]);
    all.registers[Location::SP.index()] = Some(0x2000);
    let mut window = executed(&code, 0x404, &all);
    for (index, stack) in [0x2000, 0x2000, 0x2000, 0x2000, 0x1ff0, 0x1ff0, 0x2000]
        .into_iter()
        .enumerate()
    {
        let step = (code.len() - index) as u32;
        let found = window
            .solved(&all)
            .unwrap()
            .registers(step)
            .get(Location::SP)
            .unwrap();
        assert_eq!(found.value, stack, "{index}");
    }
}
