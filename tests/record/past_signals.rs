//! Past values across signals, compared with those in the emulator at the same place.

use crate::past_values::{Recorded, compare};

/// Signals whose handlers return, one that changes the registers that it returns to, and one that does not
/// return.
const SIGNALS: &str = include_str!("../support/record/signals.c");

#[test]
fn what_is_known_across_signals_is_true() {
    let addresses = "--data-addresses";
    for (options, compiler, stack_known) in [
        // What the handler of the fault wrote is not known without addresses.
        (&[][..], &["-O0"][..], 65),
        (&[], &["-O2"], 65),
        (&[addresses], &["-O0"], 100),
        // Frames of handlers that returned are overwritten.
        (&[], &["-O0", "-DINSIDE"], 85),
        (&[], &["-O2", "-DDIES"], 85),
    ] {
        let mut flags = vec!["-nostdlib", "-ffreestanding", "-fno-builtin"];
        flags.extend(compiler);
        let found = Recorded::built("aarch64", SIGNALS, options, &flags);
        let Some(mut recorded) = found else {
            return;
        };
        let mut recovery = recorded.recovery();
        let [registers, stack_pointer, _] = compare(&mut recorded, &mut recovery);
        let what = format!("{options:?} {compiler:?}: {stack_pointer:?} {registers:?}");
        assert!(
            stack_pointer.right * 100 >= stack_pointer.asked * stack_known,
            "{what}"
        );
        assert!(registers.right * 10 > registers.asked * 4, "{what}");
    }
}
