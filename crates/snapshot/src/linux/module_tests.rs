use super::Memory;
use super::btf::Btf;
use super::modules::{Module, ModuleLayout, references};
use super::tests::{Words, types};
use crate::program::symbol_file::Function;

const HEAD: u64 = 0xffff_8000_0900_0000;
const FIRST: u64 = 0xffff_8000_0100_0000;
const CODE: u64 = 0xffff_8000_0200_0000;
const TABLE: u64 = 0xffff_8000_0300_0000;
/// The distance from one module to the next.
const STEP: u64 = 0x1_0000;

/// Offsets in `struct module`.
const LIST: u64 = 8;
const NAME: u64 = 24;
const OWN: u64 = 88;
const KALLSYMS: u64 = 96;
const MEM: u64 = 104;

/// The layout of modules since Linux 6.4, or before it.
fn layout(newer: bool) -> ModuleLayout {
    let mut module = vec![
        ("list", 1, 64),
        ("name", 1, 192),
        ("mkobj", 2, 640),
        ("kallsyms", 1, 768),
    ];
    let kobject: &[_] = &[("mod", 1, 64)];
    let table: &[_] = &[
        ("symtab", 1, 0),
        ("num_symtab", 1, 64),
        ("strtab", 1, 128),
        ("typetab", 1, 192),
    ];
    let part: &[_] = match newer {
        true => &[("base", 1, 0), ("size", 1, 64)],
        false => &[("base", 1, 0), ("size", 1, 64), ("text_size", 1, 96)],
    };
    module.extend(match newer {
        // An array.
        true => vec![("mem", 6, 832)],
        false => vec![("core_layout", 4, 832), ("init_layout", 4, 832 + 128)],
    });
    let part_name = if newer {
        "module_memory"
    } else {
        "module_layout"
    };
    let bytes = types(&[
        ("module_kobject", kobject),
        ("mod_kallsyms", table),
        (part_name, part),
        ("module", &module),
    ]);
    ModuleLayout::of(&Btf::read(&bytes).unwrap()).unwrap()
}

/// A list of modules with two functions each.
fn memory(newer: bool, count: u64) -> Words {
    let mut memory = Words::default();
    let links: Vec<u64> = (0..count).map(|n| FIRST + STEP * n + LIST).collect();
    let ring: Vec<u64> = std::iter::once(HEAD).chain(links).collect();
    for (index, link) in ring.iter().enumerate() {
        let next = ring[(index + 1) % ring.len()];
        memory.long(*link, next);
        memory.long(next + 8, *link);
    }
    for number in 0..count {
        let (module, code, table) = (
            FIRST + STEP * number,
            CODE + STEP * number,
            TABLE + STEP * number,
        );
        memory.put(module + NAME, &[0; 56]);
        memory.put(module + NAME, format!("module_{number}").as_bytes());
        memory.long(module + OWN, module);
        memory.long(module + KALLSYMS, table);
        // Base and size of the code and of the initialisation code, which was already freed.
        let size = if newer { 8 } else { 12 };
        memory.put(module + MEM, &[0; 80]);
        memory.long(module + MEM, code);
        memory.put(module + MEM + size, &0x100_u32.to_le_bytes());
        let (symbols, strings, kinds) = (table + 0x100, table + 0x300, table + 0x400);
        memory.long(table, symbols);
        memory.long(table + 8, 6);
        memory.long(table + 16, strings);
        memory.long(table + 24, kinds);
        memory.put(strings, b"\0open\0close\0$x\0data\0far\0");
        memory.put(strings + 24, &[0; 600]);
        memory.put(kinds, b"?TttTt");
        let symbol = |memory: &mut Words, index: u64, name: u64, value: u64, size: u64| {
            memory.long(symbols + 24 * index, name);
            memory.long(symbols + 24 * index + 8, value);
            memory.long(symbols + 24 * index + 16, size);
        };
        symbol(&mut memory, 0, 0, 0, 0);
        symbol(&mut memory, 1, 1, code + 0x40, 0x20);
        symbol(&mut memory, 2, 6, code, 0x10);
        // A name that programs do not use, a symbol that is not code, and one outside the module.
        symbol(&mut memory, 3, 12, code, 0);
        symbol(&mut memory, 4, 15, code + 0x100, 0);
        symbol(&mut memory, 5, 20, HEAD, 0);
    }
    memory
}

fn wanted(number: u64) -> Module {
    let code = CODE + STEP * number;
    let function = |name: &str, address, size| Function {
        name: name.to_owned(),
        address,
        size,
    };
    Module {
        name: format!("module_{number}"),
        code: std::iter::once(code..code + 0x100).collect(),
        functions: vec![
            function("close", code, 0x10),
            function("open", code + 0x40, 0x20),
        ],
    }
}

#[test]
fn modules_have_their_functions() {
    for newer in [false, true] {
        let found = layout(newer).all(&memory(newer, 3), HEAD);
        assert_eq!(found, (vec![wanted(0), wanted(1), wanted(2)], None));
        assert_eq!(layout(newer).all(&memory(newer, 0), HEAD), (vec![], None));
    }
}

#[test]
fn damaged_lists_of_modules_end() {
    let whole = memory(false, 3);
    let layout = layout(false);
    let places = whole.0.keys().copied();
    let places = places.filter(|at| at % 8 == 0 && at % STEP < 0x200);
    let places: Vec<u64> = places.collect();
    for &place in &places {
        for value in [
            0,
            HEAD,
            FIRST + LIST,
            FIRST + STEP + LIST,
            u64::MAX,
            1 << 40,
        ] {
            let mut memory = whole.clone();
            memory.long(place, value);
            let (found, broken) = layout.all(&memory, HEAD);
            assert!(found.len() <= 3, "{place:#x} {value:#x}");
            assert!(
                found.len() == 3 || broken.is_some(),
                "{place:#x} {value:#x}"
            );
        }
        let mut memory = whole.clone();
        memory.0.remove(&place);
        let (found, broken) = layout.all(&memory, HEAD);
        assert!(found.len() == 3 || broken.is_some(), "{place:#x}");
    }
    // A list that is circular without its head, and one that ends early.
    let mut round = memory(false, 3);
    round.long(FIRST + 2 * STEP + LIST, FIRST + LIST);
    round.long(FIRST + LIST + 8, FIRST + 2 * STEP + LIST);
    let (_, broken) = layout.all(&round, HEAD);
    assert!(broken.unwrap().contains("damaged"));
    // A module that is being loaded, as the first, in the middle, or the last: the others are
    // known.
    for number in 0..3 {
        let mut loading = memory(false, 3);
        loading.long(FIRST + number * STEP + OWN, 0);
        let (found, broken) = layout.all(&loading, HEAD);
        let others = (0..3).filter(|other| *other != number);
        assert_eq!(found, others.map(wanted).collect::<Vec<_>>());
        assert!(broken.unwrap().contains("being loaded"));
        assert_eq!(layout.first(&loading, HEAD), Some(FIRST + LIST));
    }
    // A link to something that is not a module.
    let mut other = memory(false, 2);
    other.long(FIRST + STEP + OWN, FIRST);
    let (found, broken) = layout.all(&other, HEAD);
    assert_eq!(found, [wanted(0)]);
    assert!(broken.unwrap().contains("no module"));
}

/// A module with a million symbols, all with the same long name.
struct LongNames(Words);

/// The address of its symbols, names and kinds.
const ENDLESS: u64 = 0xffff_9000_0000_0000;

impl Memory for LongNames {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        match address.checked_sub(ENDLESS).map(|at| at >> 32) {
            Some(0) if out.len() == 24 => {
                out.fill(0);
                out[8..16].copy_from_slice(&CODE.to_le_bytes());
            }
            Some(1) => {
                let strings = ENDLESS + (1 << 32);
                let end = (strings + 511 - address) as usize;
                out.fill(b'n');
                if let Some(end) = out.get_mut(end) {
                    *end = 0;
                }
            }
            Some(2) => out.fill(b'T'),
            _ => return self.0.read(address, out),
        }
        out.len()
    }
}

#[test]
fn names_that_symbols_share_do_not_add_up_without_limit() {
    let mut memory = LongNames(memory(false, 1));
    for (field, value) in [
        (0, ENDLESS),
        (8, 1 << 20),
        (16, ENDLESS + (1 << 32)),
        (24, ENDLESS + (2 << 32)),
    ] {
        memory.0.long(TABLE + field, value);
    }
    let (found, broken) = layout(false).all(&memory, HEAD);
    assert_eq!(broken, None);
    let names = found[0]
        .functions
        .iter()
        .map(|function| function.name.len());
    assert_eq!(names.clone().max(), Some(511));
    let all: usize = names.sum();
    assert!(all <= 64 << 20 && all > 63 << 20, "{all}");
}

#[test]
fn places_that_code_refers_to() {
    let code: Vec<u8> = [
        0xb000_0000_u32, // adrp x0, +0x1000
        0xf940_0401,     // ldr x1, [x0, #8]
        0x9104_0002,     // add x2, x0, #0x100
        0xf0ff_ffe3,     // adrp x3, -0x1000
        0x9100_4063,     // add x3, x3, #0x10
        0x9100_4084,     // add x4, x4, #0x10
    ]
    .iter()
    .flat_map(|word| word.to_le_bytes())
    .collect();
    assert_eq!(
        references(&code, 0x10_0ff0),
        [0xf_f010, 0x10_1008, 0x10_1100]
    );
}
