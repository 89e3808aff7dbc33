//! `monitor svd`: registers of peripherals by name.

use crate::support::gdb::{session, testdata};

#[test]
fn registers_are_shown_by_name() {
    let svd = testdata("svd/mps2.svd");
    let options = ["--svd", svd.to_str().unwrap()];
    let commands = ["monitor svd uart1.data", "monitor svd", "monitor svd gone"];
    let text = session(&testdata("mps2-m4"), &options, &commands);
    for wanted in [
        "UART1 at 0x40005000: Serial port\n  0x40005000  unknown     DATA\n",
        "0xe000e100          5      5  NVIC\n",
        "no peripheral or register matches \"gone\"\n",
    ] {
        assert!(text.contains(wanted), "{wanted}{text}");
    }
    let text = session(&testdata("mps2-m4"), &[], &["monitor svd"]);
    let wanted = "no peripherals are described: start armsnap with --svd FILE\n";
    assert!(text.contains(wanted), "{text}");
}
