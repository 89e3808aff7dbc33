//! Recorded addresses that turn out to be faulty, while work is cancelled at any time.

use super::{ADD_X2_X2_8, LDR_X5_X2, STR_X1_X2, facts};
use crate::recover::execution::steps::Step;
use crate::recover::facts::final_state::{FinalState, RecordedAddresses};
use crate::recover::window::Window;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::{Location, a64};
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::data_addresses::{Access, Accessed, Error};
use std::ops::Range;

const CODE: [u32; 3] = [STR_X1_X2, LDR_X5_X2, ADD_X2_X2_8];
const ROUNDS: usize = 40;

/// All accesses go to one address; the first instructions are at other addresses than in the
/// steps.
struct OfAnother;

impl RecordedAddresses for OfAnother {
    fn instructions(&self) -> u64 {
        (ROUNDS * CODE.len()) as u64
    }

    fn accesses(&self, range: Range<u64>) -> Result<Vec<Accessed>, Error> {
        let accesses = range.filter(|number| number % 3 != 2).map(|number| {
            let pc = 0x400 + 4 * (number % 3);
            Accessed {
                instruction: number,
                pc: if number < 40 { pc + 0x100 } else { pc },
                access: Access {
                    address: 0x1000,
                    bytes: 8,
                    store: number % 3 == 0,
                },
            }
        });
        Ok(accesses.collect())
    }
}

fn window() -> Window {
    let mut window = Window::at_end(0x400);
    let templates = &mut window.templates;
    let numbers: Vec<u32> = (0x400..)
        .step_by(4)
        .zip(CODE)
        .map(|(pc, word)| templates.add(pc, Isa::A64, &a64::decode(word, pc)))
        .collect();
    window.steps.push(Step::Halted);
    for _ in 0..ROUNDS {
        for &number in numbers.iter().rev() {
            window.steps.push(Step::Instruction(number));
        }
    }
    window
}

/// x2 before each instruction.
fn bases(window: &mut Window, facts: &FinalState) -> Vec<Option<u64>> {
    let steps = 0..window.steps.len();
    let mut of = |step| {
        window
            .solved(facts)
            .unwrap()
            .registers(step)
            .get(Location::general(2))
    };
    steps
        .map(|step| of(step).map(|known| known.value))
        .collect()
}

#[test]
fn a_fault_found_before_the_work_was_cancelled_is_not_lost() {
    let mut facts = facts(&[7; 512], &[(2, 0x1800)]);
    let mut without = window();
    without.work(&facts, &Cancel::default()).unwrap();
    facts.addresses = Some(Box::new(OfAnother));
    for checks in 0..40 {
        let mut window = window();
        let _ = window.work(&facts, &Cancel::default().limited_to(checks));
        window.work(&facts, &Cancel::default()).unwrap();
        let fault = window.addresses_fault().unwrap_or_default();
        assert!(fault.contains("another execution"), "{checks}: {fault:?}");
        assert!(!window.sharing().contradicts, "{checks}");
        assert_eq!(
            bases(&mut window, &facts),
            bases(&mut without, &facts),
            "{checks}"
        );
    }
}
