//! Steps through whole histories in both directions, compared with the decoder.

use crate::support::gdb::{shared, testdata};
use crate::support::history::{Client, Step, decoded, monitor, same};
use armsnap::server::{Meanwhile, Options};

fn walks(name: &str, core: &str, source: &str, at_least: usize) {
    let Some(snapshot) = shared(name) else { return };
    let wanted = decoded(&snapshot, source);
    assert!(wanted.len() >= at_least, "{} steps", wanted.len());
    let options = Options {
        cores: vec![core.to_owned()],
        ..Options::default()
    };
    let mut client = Client::new(&snapshot, &options);
    assert!(client.go("vCont;s:1").is_end());
    let mut back = client.walk("bs");
    // The last step forward leads to the halted state.
    let mut forward = client.walk("vCont;s:1;c");
    let halted = forward.pop();
    assert_eq!(halted.is_some(), !wanted.is_empty());
    assert_ne!(halted, Some(Step::Gap));
    back.reverse();
    same(&back, &wanted, "backward");
    // From the first place on.
    same(&forward, wanted.get(1..).unwrap_or(&[]), "forward");
}

#[test]
fn tc2() {
    walks("tc2-ptm-rstk-t32", "Cortex-A15_0", "PTM_0_2", 190_000);
}

#[test]
fn juno() {
    for (core, at_least) in [38_000, 200, 0, 300, 0, 1400].into_iter().enumerate() {
        let source = format!("ETM_{core}");
        walks("juno_r1_1", &format!("cpu_{core}"), &source, at_least);
    }
}

#[test]
fn ack_test() {
    walks("001-ack_test", "cpu_0", "ETE_0_s1", 90_000);
}

/// GDB does not report that its user interrupted a command: it sends the next packet, and takes any
/// reply for the reply to that.
#[test]
fn an_interrupted_command_has_no_reply() {
    let snapshot = testdata("recorded/etmv4");
    let mut client = Client::new(&snapshot, &Options::default());
    let find = monitor("find 0x40000000 back");
    assert_eq!(client.ask_and(&find, Meanwhile::SendsPacket), [""; 0]);
    let answer = client.ask_and(&find, Meanwhile::Interrupts);
    assert_eq!(answer.last().unwrap(), "OK");
    let moved = client.ask_and("bs", Meanwhile::SendsPacket);
    // Console output may come before the reply.
    assert!(moved.last().unwrap().starts_with('T'), "{moved:?}");
    assert_eq!(client.ask_and("qRcmd,6", Meanwhile::Waits), ["E01"]);
    assert!(client.monitor("where").contains("  pc  "));
}
