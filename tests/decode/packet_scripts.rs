//! Packets made by hand in `testdata/packets`: every kind, byte for byte.
//!
//! A line contains the packet's offset, its bytes in hex, its name and its fields; `config` sets the
//! registers and starts a new trace; `#` starts a comment.

use armsnap::etm::Registers;
use armsnap::protocol::{Core, Describe, Field, PacketDecoder};
use armsnap::{etmv3, ptm};

fn script(name: &str) -> Vec<String> {
    let path = format!("{}/testdata/packets/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

fn described(packet: &impl Describe) -> String {
    let mut text = packet.name().to_owned();
    packet.fields(&mut |name, field| {
        let value = match field {
            Field::Count(value) => value.to_string(),
            Field::Hex(value) => format!("{value:#x}"),
            Field::Flag(value) => value.to_string(),
            Field::Name(value) => value.replace(' ', "_"),
            Field::Atoms(atoms) => (0..atoms.count)
                .map(|i| if atoms.bits >> i & 1 == 1 { 'E' } else { 'N' })
                .collect(),
            other => panic!("a field that scripts cannot hold: {other:?}"),
        };
        text += &format!(" {name}={value}");
    });
    text
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .map(|c| (c as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Decodes the bytes of the lines and compares the packets with the lines.
fn run<D: PacketDecoder>(lines: &[String], mut decoder: D, seen: &mut Vec<String>) {
    let whole: Vec<u8> = lines
        .iter()
        .flat_map(|line| bytes(line.split_whitespace().nth(1).unwrap()))
        .collect();
    let mut at = 0;
    for line in lines {
        let hex = line.split_whitespace().nth(1).unwrap();
        let rest = &whole[at..];
        let (packet, length) = match decoder.next(rest) {
            Some((packet, length)) => (packet, length),
            None => (decoder.finish(rest), rest.len()),
        };
        let have: String = rest[..length]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(format!("{at} {have} {}", described(&packet)), *line);
        assert_eq!(have, hex);
        seen.push(packet.name().to_owned());
        at += length;
    }
    assert_eq!(at, whole.len());
}

/// Runs each part of a script with its registers; returns the names of all packets.
fn sections(
    name: &str,
    part: impl Fn(Registers, bool, &[String], &mut Vec<String>),
) -> Vec<String> {
    let mut seen = Vec::new();
    let lines = script(name);
    let mut starts: Vec<usize> = (0..lines.len())
        .filter(|&i| lines[i].starts_with("config "))
        .collect();
    assert_eq!(starts.first(), Some(&0));
    starts.push(lines.len());
    for bounds in starts.windows(2) {
        let config = &lines[bounds[0]];
        let value = |name: &str| {
            let mut words = config.split_whitespace();
            let hex = words.find_map(|word| word.strip_prefix(name)).unwrap();
            u32::from_str_radix(hex, 16).unwrap()
        };
        let registers = Registers {
            etmcr: value("etmcr=0x"),
            etmccer: value("etmccer=0x"),
            etmidr: value("etmidr=0x"),
            etmtraceidr: 1,
        };
        let microcontroller = config.ends_with(" profile=M");
        part(
            registers,
            microcontroller,
            &lines[bounds[0] + 1..bounds[1]],
            &mut seen,
        );
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
