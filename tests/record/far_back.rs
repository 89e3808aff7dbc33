//! Values where memory does not suffice to solve all that was executed since, and inside functions that may
//! have allocated on the stack before all that is solved.

use crate::past_values::Recorded;
use crate::support::record::{build, record};
use armsnap::recover::{FinalState, Options, Recovery};
use armsnap::semantics::Location;
use armsnap::stop::Cancel;

/// `run` executes many instructions, and releases what it may have allocated.
const PROGRAM: &str = r#"
typedef unsigned long word;
static word table[64];
volatile word total, size = 10;
__attribute__((noinline)) static word leaf(word *p, word n) {
  word local[4];
  for (word i = 0; i < 4; i++) local[i] = p[(n + i) & 63] * 3 + i;
  return local[n & 3];
}
__attribute__((noinline)) static word twice(word n) { return leaf(table, n) + leaf(table, n + 1); }
__attribute__((noinline)) static void fill(volatile char *p, word n) { while (n--) p[n] = (char)n; }
__attribute__((noinline)) static void run(word length, word rounds) {
  volatile char few[16];
  volatile char *buffer = length <= 16 ? few : __builtin_alloca(length);
  fill(buffer, length);
  for (word i = 0; i < rounds; i++) { total += twice(i) + (word)buffer[i & 7]; table[i & 63] = total; }
}
void work(void) { run(size, ROUNDS); run(size, 10); *(volatile word *)8 = total; }
#ifdef __aarch64__
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n b .");
#else
__attribute__((naked)) void _start(void) { __asm__("mov r11, #0\n mov lr, #0\n bl work\n b ."); }
#endif
"#;

/// How many general registers and stack pointers are known with recorded addresses, and how many are known
/// without; these must be the same.
struct Known {
    registers: (usize, usize),
    stack: (usize, usize),
}

fn compare(
    architecture: &'static str,
    rounds: u32,
    optimisation: &str,
    bytes: usize,
) -> Option<Known> {
    let rounds = format!("-DROUNDS={rounds}");
    let flags = [
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-builtin",
        optimisation,
        &rounds,
    ];
    let guest = build(architecture, "program.c", PROGRAM, &flags)?;
    let run = record(&guest, "snapshot", &["--data-addresses"], &[]);
    assert!(run.status.success(), "{run:?}");
    let mut recorded = Recorded::open(guest, None);
    let facts = FinalState {
        addresses: None,
        ..recorded.facts()
    };
    let options = Options {
        most_bytes: bytes,
        ..Options::default()
    };
    let mut recovery = Recovery::new(facts, options);
    let mut truth = recorded.recovery();
    let (general, stack_pointer) = recorded.locations();
    let some = recorded.some();
    let history = recorded.history();
    let mut known = Known {
        registers: (0, 0),
        stack: (0, 0),
    };
    let never = Cancel::default();
    for (back, position) in some {
        recovery.look_around(history, position, &never).unwrap();
        let found = recovery.registers(history, position, &never).unwrap();
        let wanted = truth.registers(history, position, &never).unwrap();
        let general = general.iter().map(|&number| Location::general(number));
        for location in general.chain([stack_pointer]) {
            let Some(wanted) = wanted.get(location) else {
                continue;
            };
            let (asked, right) = match location == stack_pointer {
                true => &mut known.stack,
                false => &mut known.registers,
            };
            *asked += 1;
            if let Some(found) = found.get(location) {
                assert_eq!(found.value, wanted.value, "{location:?}, {back} back");
                *right += 1;
            }
        }
    }
    Some(known)
}

/// The first 65,536 instructions do not include the start of `run`.
#[test]
fn the_stack_pointer_is_known_where_something_may_have_been_allocated_before() {
    for (architecture, optimisation) in [("aarch64", "-O2"), ("arm", "-O2")] {
        let most = Options::default().most_bytes;
        let Some(known) = compare(architecture, 2000, optimisation, most) else {
            return;
        };
        let (asked, right) = known.stack;
        assert!(
            right * 100 >= asked * 99,
            "{architecture} {optimisation}: {right} of {asked}"
        );
    }
}

#[test]
fn what_is_before_all_that_memory_suffices_for_is_solved_around_a_position() {
    let Some(known) = compare("aarch64", 3000, "-O0", 32 << 20) else {
        return;
    };
    let (asked, right) = known.stack;
    assert!(right * 100 >= asked * 99, "{right} of {asked}");
    let (asked, right) = known.registers;
    assert!(right * 10 > asked * 3, "{right} of {asked}");
}
