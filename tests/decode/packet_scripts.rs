//! Packets made by hand in `testdata/packets`: every kind, byte for byte.

use crate::support::packet_script::{Script, described, scripts};
use armsnap::etm::Registers;
use armsnap::protocol::{Core, Describe, PacketDecoder};
use armsnap::{etmv3, ptm};

/// Decodes the bytes of the lines and compares the packets with the lines.
fn run<D: PacketDecoder>(script: &Script<'_>, mut decoder: D, seen: &mut Vec<String>) {
    let whole = script.bytes();
    let mut at = 0;
    for line in &script.packets {
        let rest = &whole[at..];
        let (packet, length) = match decoder.next(rest) {
            Some((packet, length)) => (packet, length),
            None => (decoder.finish(rest), rest.len()),
        };
        let have = (at, &rest[..length], described(&packet));
        let want = (line.offset, &line.bytes[..], line.text.to_owned());
        assert_eq!(have, want, "line {}", line.number);
        seen.push(packet.name().to_owned());
        at += length;
    }
    assert_eq!(at, whole.len());
}

/// Runs each source of a script with its registers; returns the names of all packets.
fn sections(
    name: &str,
    part: impl Fn(Registers, bool, &Script<'_>, &mut Vec<String>),
) -> Vec<String> {
    let mut seen = Vec::new();
    let path = format!("{}/testdata/packets/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    for script in scripts(&text) {
        let value = |name: &str| {
            let mut words = script.config.split_whitespace();
            let hex = words.find_map(|word| word.strip_prefix(name)).unwrap();
            u32::from_str_radix(hex, 16).unwrap()
        };
        let registers = Registers {
            etmcr: value("etmcr=0x"),
            etmccer: value("etmccer=0x"),
            etmidr: value("etmidr=0x"),
            etmtraceidr: 1,
        };
        let microcontroller = script.config.ends_with(" profile=M");
        part(registers, microcontroller, &script, &mut seen);
    }
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn ptm_packets() {
    let seen = sections("ptm.txt", |registers, _, lines, seen| {
        run(
            lines,
            ptm::Decoder::new(&ptm::Config::read(&registers, Core::default())),
            seen,
        );
    });
    let all = [
        "async",
        "atom",
        "bad_sequence",
        "branch_address",
        "context_id",
        "exception_return",
        "i_sync",
        "ignore",
        "incomplete",
        "not_sync",
        "reserved",
        "timestamp",
        "trigger",
        "vmid",
        "waypoint_update",
    ];
    assert_eq!(seen, all);
}

#[test]
fn etmv3_packets() {
    let seen = sections("etmv3.txt", |registers, microcontroller, lines, seen| {
        let core = if microcontroller {
            Core::microcontroller(7)
        } else {
            Core::default()
        };
        run(
            lines,
            etmv3::Decoder::new(&etmv3::Config::read(&registers, core)),
            seen,
        );
    });
    let all = [
        "async",
        "bad_sequence",
        "branch_address",
        "context_id",
        "cycle_count",
        "data_suppressed",
        "exception_entry",
        "exception_exit",
        "i_sync",
        "i_sync_with_cycle_count",
        "ignore",
        "incomplete",
        "normal_data",
        "not_sync",
        "out_of_order_data",
        "out_of_order_placeholder",
        "p_header",
        "reserved",
        "store_failed",
        "timestamp",
        "trigger",
        "value_not_traced",
        "vmid",
    ];
    assert_eq!(seen, all);
}
