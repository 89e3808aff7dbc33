use super::*;
use crate::etmv4::Decoder;
use crate::etmv4::decode::tests::config;
use crate::protocol::PacketDecoder;
use crate::protocol::tests::elements;
use armsnap_arch::quantity::{ExceptionLevel, Isa, Security};
use proptest::prelude::*;

mod counted;

const ASYNC: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
/// Trace on; 0x1000 at EL1, non-secure, AArch64.
const BEGIN: [u8; 7] = [0x04, 0x82, 0x00, 0x08, 0x00, 0x00, 0x31];

/// ETMv4.4 without speculation.
const PLAIN: &str = "etmv4 A8 TRCCONFIGR=0x1 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f440 \
                     TRCIDR2=0x00001088 TRCIDR8=0";
/// The same with cycle counts, a threshold of 8, and speculation of up to 4 elements.
const DEEP: &str = "etmv4 A8 TRCCONFIGR=0x11 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f440 \
                    TRCIDR2=0x00001088 TRCIDR8=4";
/// ETE 1.1 without speculation, with timestamp markers and Q elements.
const ETE: &str = "ete A9 TRCCONFIGR=0x801 TRCIDR0=0x2881cea1 TRCIDR1=0x4100fff0 \
                   TRCIDR2=0xd0001088 TRCIDR8=0 TRCDEVARCH=0x47715a13";

fn decode(config: &Config, bytes: &[u8]) -> Vec<(BufferOffset, Element)> {
    elements(&mut Decoder::new(config), &mut Elements::new(config), bytes)
}

/// One element in short form.
fn short(element: &Element) -> String {
    match *element {
        Element::WaypointAtoms(atoms) => (0..atoms.count)
            .map(|bit| if atoms.bits >> bit & 1 == 1 { 'E' } else { 'N' })
            .collect(),
        Element::Address { address, isa } => format!("{} {address}", isa.name()),
        Element::SourceAddress { address, .. } => format!("from {address}"),
        Element::Q { instructions } => format!("q {instructions:?}"),
        Element::Exception(e) => match e.return_address {
            Some(address) => format!("{} {address}", e.name),
            None => e.name.to_owned(),
        },
        Element::Mark(mark) => match mark {
            Mark::NoSync(reason) => format!("no_sync {}", reason.name()),
            Mark::TraceOn(reason) => format!("on {}", reason.name()),
            Mark::Context(c) => format!("context EL{}", c.el.unwrap().0),
            Mark::ExceptionReturn => "return".to_owned(),
            Mark::Cycles(n) => format!("cycles {n}"),
            Mark::Timestamp(n) => format!("time {n:#x}"),
            Mark::Event(n) => format!("event {n}"),
            Mark::Marker(_) => "marker".to_owned(),
            Mark::Transaction(t) => t.name().to_owned(),
            Mark::Instrumentation { value, .. } => format!("ite {value:#x}"),
            Mark::End => "end".to_owned(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn shorts(config_words: &str, bytes: &[&[u8]]) -> Vec<String> {
    let elements = decode(&config(config_words), &bytes.concat());
    elements.iter().map(|(_, e)| short(e)).collect()
}

/// The elements after the usual start and before the end.
fn after_start(config_words: &str, info: &[u8], bytes: &[u8]) -> Vec<String> {
    let mut all = shorts(config_words, &[&ASYNC, info, &BEGIN, bytes]);
    assert_eq!(all.pop().as_deref(), Some("end"));
    let start = [
        "no_sync start",
        "on begin_or_filter",
        "context EL1",
        "A64 0x1000",
    ];
    let started = all.iter().skip(1).take(3).eq(&start[1..]);
    assert!(all[0] == start[0] && (started || all.len() < 4), "{all:?}");
    all.split_off(all.len().min(4))
}

const INFO: [u8; 2] = [0x01, 0x00];

#[test]
fn atoms_and_addresses_are_emitted_at_once_without_speculation() {
    let all = shorts(PLAIN, &[&ASYNC, &INFO, &BEGIN, &[0xdb, 0x95, 0x05, 0xf6]]);
    let want = [
        "no_sync start",
        "on begin_or_filter",
        "context EL1",
        "A64 0x1000",
        "EE",
        "A64 0x1014",
        "N",
        "end",
    ];
    assert_eq!(all, want);
}

#[test]
fn elements_have_the_offset_of_their_packet() {
    let bytes = [&ASYNC[..], &INFO, &BEGIN, &[0xdb]].concat();
    let places: Vec<u64> = decode(&config(PLAIN), &bytes)
        .iter()
        .map(|(at, _)| at.0)
        .collect();
    assert_eq!(places, [0, 14, 15, 15, 21, 22]);
}

#[test]
fn the_context_in_full() {
    let words = "etmv4 A8 TRCCONFIGR=0xc1 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f440 \
                 TRCIDR2=0x00001088 TRCIDR8=0";
    let trace = [
        &ASYNC[..],
        &INFO,
        &[0x81, 0xf2, 5, 0, 0, 0, 6, 0, 0, 0, 0x9a, 0, 8, 0, 0, 0xf7],
        // Without identifiers, the last ones remain in effect.
        &[0x81, 0x08, 0x9b, 0, 8, 0, 0, 0xf7],
    ];
    let contexts: Vec<Context> = decode(&config(words), &trace.concat())
        .iter()
        .filter_map(|(_, e)| match e {
            Element::Mark(Mark::Context(context)) => Some(*context),
            _ => None,
        })
        .collect();
    let first = Context {
        isa: Isa::A64,
        el: Some(ExceptionLevel(2)),
        security: Some(Security::NonSecure),
        is_64bit: Some(true),
        vmid: Some(5),
        context_id: Some(6),
    };
    let second = Context {
        isa: Isa::A32,
        el: Some(ExceptionLevel(0)),
        security: Some(Security::Root),
        is_64bit: Some(false),
        ..first
    };
    assert_eq!(contexts, [first, second]);
}

#[test]
fn atoms_before_any_context_are_dropped() {
    let bytes: [&[u8]; 3] = [
        &ASYNC,
        &INFO,
        &[0x04, 0x9a, 0, 8, 0, 0, 0xf7, 0x81, 0x31, 0xf6],
    ];
    let want = [
        "no_sync start",
        "on begin_or_filter",
        "A32 0x1000",
        "context EL1",
        "N",
        "end",
    ];
    assert_eq!(shorts(PLAIN, &bytes), want);
}

#[test]
fn timestamps_are_completed_and_restart_at_trace_info() {
    let bytes = [
        0x02, 0x85, 0x81, 0x01, 0xf7, 0x02, 0x06, 0xf7, 0x01, 0x00, 0x02, 0x07, 0xf7,
    ];
    let want = ["time 0x4085", "E", "time 0x4086", "E", "time 0x7", "E"];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
}

#[test]
fn marks_that_are_not_speculative_are_emitted_at_the_end() {
    // E; event, timestamp, trace on.
    let want = ["E", "event 2", "time 0x5"];
    let bytes = [0xf7, 0x72, 0x02, 0x05, 0x04];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
}

#[test]
fn cycle_counts_have_the_threshold_added() {
    let info = [0x01, 0x09, 0x01, 0x08];
    // E; format 3: commit 1, 2 cycles; E; format 1: commit 1, count 5; E; unknown count.
    let bytes = [
        0xf7, 0x12, 0xf7, 0x0e, 0x01, 0x05, 0xf7, 0x0f, 0x01, 0xf7, 0x2d, 0x01,
    ];
    let want = ["E", "cycles 10", "E", "cycles 13", "E", "cycles 0", "E"];
    assert_eq!(after_start(DEEP, &info, &bytes), want);
}

#[test]
fn a_timestamp_carries_its_cycles() {
    let want = ["time 0x5", "cycles 6", "E"];
    let bytes = [0x03, 0x05, 0x06, 0xf7, 0x2d, 0x01];
    assert_eq!(after_start(DEEP, &INFO, &bytes), want);
}

#[test]
fn a_commit_emits_the_oldest_elements() {
    // ENE, EE: 5 elements, one more than can be speculative; then commit 2.
    assert_eq!(
        after_start(DEEP, &INFO, &[0xfd, 0xdb, 0x2d, 0x02]),
        ["E", "NE"]
    );
}

#[test]
fn exceeding_the_speculation_depth_commits() {
    assert_eq!(after_start(DEEP, &INFO, &[0xff, 0xf7]), [""; 0]);
    assert_eq!(after_start(DEEP, &INFO, &[0xff, 0xf7, 0xd8]), ["EE"]);
}

#[test]
fn a_cancel_removes_the_newest_elements() {
    // EEE, address, N; cancel 2; commit 2.
    let bytes = [0xff, 0x95, 0x05, 0xf6, 0x2e, 0x02, 0x2d, 0x02];
    assert_eq!(after_start(DEEP, &INFO, &bytes), ["EE"]);
}

#[test]
fn a_mispredict_inverts_the_newest_atom() {
    // EE, address; mispredict; N; commit 3.
    let bytes = [0xdb, 0x95, 0x05, 0x30, 0xf6, 0x2d, 0x03];
    assert_eq!(after_start(DEEP, &INFO, &bytes), ["EN", "N"]);
    // EE; mispredict with an E before it: EEE becomes EEN.
    assert_eq!(
        after_start(DEEP, &INFO, &[0xdb, 0x31, 0x2d, 0x03]),
        ["EE", "N"]
    );
    // Cancel, format 2: EE and N, one cancelled, the one before it inverted.
    assert_eq!(after_start(DEEP, &INFO, &[0xdb, 0x37, 0x2d, 0x02]), ["EN"]);
    // Format 3: EE and E, two cancelled, the remaining one inverted.
    assert_eq!(after_start(DEEP, &INFO, &[0xdb, 0x39, 0x2d, 0x01]), ["N"]);
}

#[test]
fn elements_before_the_start_of_trace_are_committed_silently() {
    let info = [0x01, 0x04, 0x03];
    // 3 unseen; trace on, address; EE is one more than the depth; commit 3.
    let all = shorts(DEEP, &[&ASYNC, &info, &BEGIN, &[0xdb, 0x2d, 0x03]]);
    let want = [
        "no_sync start",
        "on begin_or_filter",
        "context EL1",
        "A64 0x1000",
        "E",
        "end",
    ];
    assert_eq!(all, want);
}

#[test]
fn more_commits_than_elements_lose_synchronisation() {
    let bytes = [0xf7, 0x2d, 0x02, 0xf7, 0x2d, 0x01];
    assert_eq!(
        shorts(DEEP, &[&ASYNC, &INFO, &bytes]),
        ["no_sync start", "no_sync bad_packet", "end"]
    );
    for packet in [&[0x2e, 0x02][..], &[0x30], &[0x3f]] {
        let bytes = [packet, &[0xf7]].concat();
        let all = shorts(DEEP, &[&ASYNC, &INFO, &bytes]);
        assert_eq!(all, ["no_sync start", "no_sync bad_packet", "end"]);
    }
}

#[test]
fn an_exception_takes_its_address_and_context() {
    // E; IRQ with address 0x1010; address of the vector.
    let bytes = [0xf7, 0x06, 0x1d, 0x95, 0x04, 0x95, 0x40, 0xf6];
    let want = ["E", "IRQ 0x1010", "A64 0x1100", "N"];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
    // With context, EL0, and as the target of the branch before it.
    let bytes = [0xf7, 0x06, 0x44, 0x82, 0x04, 0x08, 0x00, 0x00, 0x30, 0xf6];
    let want = ["E", "context EL0", "A64 0x1010", "call 0x1010", "N"];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
    // With the same context.
    let bytes = [0xf7, 0x06, 0x1d, 0x80, 0x95, 0x04, 0xf6];
    let want = ["E", "context EL1", "IRQ 0x1010", "N"];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
}

#[test]
fn an_exception_without_address_loses_synchronisation() {
    let bytes = [0xf7, 0x06, 0x1d, 0xf7, 0xf7];
    let want = ["E", "no_sync bad_packet"];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
}

#[test]
fn a_tail_chained_exception_has_no_return_address() {
    let words = "etmv4 M8 TRCCONFIGR=0x1 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f421 \
                 TRCIDR2=0x00000004 TRCIDR8=0";
    let start = [0x04, 0x81, 0x00, 0x9b, 0x00, 0x10, 0x00, 0x00];
    let bytes = [
        0xf7, 0x06, 0x1f, 0x9b, 0x04, 0x10, 0, 0, // SysTick
        0x06, 0x1d, 0x9b, 0x7f, 0xff, 0xff, 0xff, // PendSV
        0x05, 0xf6,
    ];
    let want = [
        "no_sync start",
        "on begin_or_filter",
        "context EL0",
        "T32 0x1000",
        "E",
        "SysTick 0x1008",
        "PendSV",
        "N",
        "end",
    ];
    assert_eq!(shorts(words, &[&ASYNC, &INFO, &start, &bytes]), want);
}

#[test]
fn overflow_and_discard() {
    let bytes = [
        &[0xf7, 0x02, 0x05, 0x00, 0x05][..],
        &ASYNC,
        &INFO,
        &BEGIN,
        &[0xf6, 0x00, 0x03],
        &ASYNC,
    ];
    let want = [
        "E",
        "time 0x5",
        "no_sync overflow",
        "on overflow",
        "context EL1",
        "A64 0x1000",
        "N",
        "no_sync discard",
    ];
    assert_eq!(after_start(PLAIN, &INFO, &bytes.concat()), want);
}

#[test]
fn overflow_and_discard_are_reported_at_once() {
    // At the end of the trace, no packet follows.
    for (packet, want) in [
        ([0x00, 0x05], "no_sync overflow"),
        ([0x00, 0x03], "no_sync discard"),
    ] {
        let bytes = [&ASYNC[..], &INFO, &BEGIN, &[0xf7, 0x71], &packet].concat();
        let all = decode(&config(PLAIN), &bytes);
        let last = &all[all.len() - 3..];
        let texts: Vec<_> = last.iter().map(|(_, e)| short(e)).collect();
        assert_eq!(texts, ["event 1", want, "end"]);
        let places: Vec<_> = last.iter().map(|(at, _)| at.0).collect();
        let end = bytes.len() as u64;
        assert_eq!(places, [end - 3, end - 2, end]);
    }
    // Not twice, and not again at the packets after it.
    let bytes = [&[0xf7, 0x00, 0x05, 0x00, 0x05, 0x71][..], &ASYNC, &[0x04]].concat();
    assert_eq!(after_start(PLAIN, &INFO, &bytes), ["E", "no_sync overflow"]);
}

#[test]
fn a_bad_packet_is_reported_at_the_next_one() {
    assert_eq!(after_start(PLAIN, &INFO, &[0xf7, 0x08]), ["E"]);
    let want = ["E", "no_sync bad_packet"];
    assert_eq!(after_start(PLAIN, &INFO, &[0xf7, 0x08, 0xf7]), want);
}

#[test]
fn a_bad_packet_keeps_marks_that_are_not_speculative() {
    // Event, timestamp, trace on, context with address, event; reserved; atoms count again after
    // trace info.
    let bytes = [
        &[0xf7, 0x71, 0x02, 0x05][..],
        &[0x04, 0x82, 0x00, 0x08, 0x00, 0x00, 0x30, 0x72],
        &[0x08, 0xf7],
        &ASYNC,
        &[0xf7],
        &INFO,
        &BEGIN,
        &[0xf6],
    ];
    let want = [
        "E",
        "event 1",
        "time 0x5",
        "on begin_or_filter",
        "context EL0",
        "A64 0x1000",
        "event 2",
        "no_sync bad_packet",
        "on begin_or_filter",
        "context EL1",
        "A64 0x1000",
        "N",
    ];
    assert_eq!(after_start(PLAIN, &INFO, &bytes.concat()), want);
}

#[test]
fn a_bad_packet_drops_elements_that_may_be_cancelled() {
    // Event, trace on; E; event, context, timestamp; reserved: neither the E nor anything after
    // it is certain to have executed.
    let bytes = [0x71, 0x04, 0xf7, 0x72, 0x81, 0x30, 0x02, 0x05, 0x08, 0x73];
    let want = [
        "event 1",
        "on begin_or_filter",
        "event 2",
        "time 0x5",
        "cycles 0",
        "no_sync bad_packet",
    ];
    assert_eq!(after_start_deep(&bytes), want);
}

/// As [`after_start`], with the usual start committed although elements are speculative.
fn after_start_deep(bytes: &[u8]) -> Vec<String> {
    after_start(DEEP, &INFO, &[&[0xf7, 0x2d, 0x01][..], bytes].concat()).split_off(1)
}

#[test]
fn impossible_commits_and_cancels_keep_marks_that_are_not_speculative() {
    // Commit 2 of 1; a cycle count that commits 2 of 1; cancel 2 of 1: entries after the atom are
    // committed or cancelled.
    for (packet, more) in [
        (&[0x2d, 0x02][..], &["context EL0"][..]),
        (&[0x0e, 0x02, 0x05], &["context EL0", "cycles 5"]),
        (&[0x2e, 0x02], &[]),
    ] {
        let waits = [0x71, 0x04, 0xf7, 0x72, 0x81, 0x30];
        let bytes = [&waits[..], packet, &[0xf7]].concat();
        let mut want = vec!["event 1", "on begin_or_filter", "event 2"];
        want.extend(more);
        want.push("no_sync bad_packet");
        assert_eq!(after_start_deep(&bytes), want, "{packet:x?}");
    }
    // A mispredict without an atom.
    let all = after_start_deep(&[0x71, 0x04, 0x30, 0xf7]);
    assert_eq!(all, ["event 1", "on begin_or_filter", "no_sync bad_packet"]);
}

#[test]
fn a_packet_cut_at_the_end_drops_nothing() {
    // Event, timestamp, the first bytes of an address.
    let bytes = [0xf7, 0x71, 0x02, 0x05, 0x9a, 0x00];
    assert_eq!(
        after_start(PLAIN, &INFO, &bytes),
        ["E", "event 1", "time 0x5"]
    );
}

#[test]
fn an_exception_without_address_keeps_the_marks_after_it() {
    // E; exception, context, event, atom.
    let bytes = [0xf7, 0x06, 0x1d, 0x81, 0x30, 0x71, 0xf7, 0xf7];
    let want = ["E", "context EL0", "event 1", "no_sync bad_packet"];
    assert_eq!(after_start(PLAIN, &INFO, &bytes), want);
}

#[test]
fn lost_bytes_lose_synchronisation_once() {
    let config = config(PLAIN);
    let mut elements = Elements::new(&config);
    let mut out = Vec::new();
    let at = BufferOffset(0);
    for packet in [Packet::Async, Packet::TraceInfo(TraceInfo::default())] {
        elements.packet(at, &packet, &mut out);
    }
    elements.lost(at, &mut out);
    elements.lost(at, &mut out);
    elements.packet(at, &Packet::NotSync, &mut out);
    elements.packet(at, &Packet::Async, &mut out);
    let all: Vec<String> = out.iter().map(|(_, e)| short(e)).collect();
    assert_eq!(all, ["no_sync start", "no_sync bad_packet"]);
}

#[test]
fn exception_returns_are_marks() {
    assert_eq!(
        after_start(PLAIN, &INFO, &[0xf7, 0x07, 0xf7]),
        ["E", "return", "E"]
    );
}

#[test]
fn exception_returns_of_m_profile_are_committed_and_cancelled() {
    for core in ["M6", "M7", "M8", "M9"] {
        let words = format!(
            "etmv4 {core} TRCCONFIGR=0x1 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f421 \
             TRCIDR2=0x00000004 TRCIDR8=4"
        );
        let after_start = |bytes: &[u8]| {
            // Trace on, context, 0x1000.
            let start = [0x04, 0x81, 0x00, 0x9b, 0x00, 0x10, 0x00, 0x00];
            let all = shorts(&words, &[&ASYNC, &INFO, &start, bytes]);
            let found = all.iter().position(|line| line == "T32 0x1000").unwrap();
            all[found + 1..all.len() - 1].to_vec()
        };
        let bytes = [
            0x06, 0x1f, 0x9b, 0x04, 0x10, 0, 0, // SysTick, returns to 0x1008
            0x2d, 0x01, // commit 1
            0x9b, 0x00, 0x20, 0, 0, // 0x2000
            0xf7, 0x07, // E, exception return
            0x2d, 0x02, // commit 2
            0x91, 0xf6, 0x2d, 0x01, // the previous address, N, commit 1
        ];
        let want = [
            "SysTick 0x1008",
            "T32 0x2000",
            "E",
            "return",
            "T32 0x1008",
            "N",
        ];
        assert_eq!(after_start(&bytes), want, "{core}");
        // E, exception return, both cancelled; N, commit 1.
        let bytes = [0xf7, 0x07, 0x2e, 0x02, 0xf6, 0x2d, 0x01];
        assert_eq!(after_start(&bytes), ["N"], "{core}");
        // Only the return cancelled.
        let bytes = [0xf7, 0x07, 0x2e, 0x01, 0xf6, 0x2d, 0x02];
        assert_eq!(after_start(&bytes), ["E", "N"], "{core}");
        // The fifth element commits the first one, and the next the return.
        let bytes = [0xf7, 0x07, 0xff, 0x04];
        assert_eq!(after_start(&bytes), ["E"], "{core}");
        let bytes = [0xf7, 0x07, 0xff, 0xf6, 0x04];
        assert_eq!(after_start(&bytes), ["E", "return"], "{core}");
    }
    // Not in the other profiles.
    assert_eq!(
        after_start(DEEP, &INFO, &[0xf7, 0x07, 0xf6, 0x2d, 0x02]),
        ["E", "return", "N"]
    );
}

#[test]
fn q_elements_take_their_address() {
    // Q with count and short address; Q with count, address and context after it; neither.
    let bytes = [
        0xf7, 0xa5, 0x05, 0x03, 0xac, 0x02, 0x82, 0x06, 0x08, 0, 0, 0x30, 0xaf, 0x95, 0x07, 0xf6,
    ];
    let want = [
        "E",
        "q Some(3)",
        "A64 0x1014",
        "q Some(2)",
        "A64 0x1018",
        "context EL0",
        "q None",
        "A64 0x101c",
        "N",
    ];
    assert_eq!(after_start(ETE, &INFO, &bytes), want);
}

#[test]
fn transactions_and_source_addresses() {
    let info = [0x01, 0x01, 0x40];
    let bytes = [0xb4, 0x05, 0x0a, 0xf7, 0x0b, 0xf7, 0x0a, 0x06, 0x30, 0x70];
    let all = shorts(ETE, &[&ASYNC, &info, &BEGIN, &bytes]);
    let want = [
        "no_sync start",
        "init",
        "on begin_or_filter",
        "context EL1",
        "A64 0x1000",
        "from 0x1014",
        "start",
        "E",
        "commit",
        "E",
        "start",
        "fail",
        "end",
    ];
    assert_eq!(all, want);
}

#[test]
fn a_transaction_start_counts_as_p0_where_commtrans_is_0() {
    // The atom of TSTART, the transaction start, an atom; commit 2 elements.
    let bytes = [0xf7, 0x0a, 0xf6, 0x2d, 0x02];
    for (idr0, want) in [
        ("0x2801cea1", &["E", "start"][..]),
        ("0x6801cea1", &["E", "start", "N"]),
    ] {
        let words = format!(
            "ete A9 TRCCONFIGR=0x1 TRCIDR0={idr0} TRCIDR1=0x4100fff0 TRCIDR2=0xd0001088 \
             TRCIDR8=8 TRCDEVARCH=0x47705a13"
        );
        let start = [0xf7, 0x2d, 0x01];
        let all = after_start(&words, &INFO, &[&start[..], &bytes].concat());
        assert_eq!(all[0], "E");
        assert_eq!(all[1..], *want, "{idr0}");
    }
}

#[test]
fn a_reset_has_no_return_address() {
    let bytes = [0xf7, 0x06, 0x00, 0x70, 0x9a, 0, 0, 0, 0, 0xf6];
    let want = ["E", "PE reset", "A64 0x0", "N"];
    assert_eq!(after_start(ETE, &INFO, &bytes), want);
}

#[test]
fn timestamps_count_after_the_first_marker() {
    let bytes = [0x02, 0x05, 0x88, 0x02, 0x06, 0xf7];
    assert_eq!(after_start(ETE, &INFO, &bytes), ["marker", "time 0x6", "E"]);
}

#[test]
fn events_before_trace_info() {
    let want = ["no_sync start", "event 1", "end"];
    assert_eq!(shorts(ETE, &[&ASYNC, &[0x71]]), want);
    assert_eq!(shorts(PLAIN, &[&ASYNC, &[0x71]]), ["no_sync start", "end"]);
}

#[test]
fn the_queue_is_bounded() {
    const EVENT: u8 = 0x71;
    const ATOMS: u8 = 0xd4;
    let unseen = [0x01, 0x04, 0xff, 0xff, 0xff, 0x7f];
    for (words, deepest) in [(PLAIN, 0), (DEEP, 32), (DEEP, u32::MAX)] {
        for (info, repeated) in [(&INFO[..], EVENT), (&INFO, ATOMS), (&unseen, EVENT)] {
            let mut config = config(words);
            config.max_speculation = deepest;
            let mut elements = Elements::new(&config);
            let mut out = Vec::new();
            let start = [&ASYNC[..], info, &BEGIN, &[0xf7]].concat();
            let mut decoder = Decoder::new(&config);
            let all = [&start[..], &[repeated; 3 * MAX_HELD]].concat();
            let mut at = 0;
            while let Some((packet, length)) = decoder.next(&all[at..]) {
                elements.packet(BufferOffset(at as u64), &packet, &mut out);
                assert!(elements.queue.len() <= MAX_HELD);
                at += length;
            }
            elements.end(BufferOffset(at as u64), &mut out);
            if repeated == EVENT {
                let events = out.iter().filter(|e| short(&e.1).starts_with("event"));
                assert_eq!(events.count(), 3 * MAX_HELD);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_packets_give_bounded_elements(
        bytes in prop::collection::vec(
            prop_oneof![0x00u8..0x20, 0x28u8..0x40, 0x71u8..0xbf, any::<u8>()], 0..400,
        ),
        deep in 0usize..3,
    ) {
        let all = [&ASYNC[..], &INFO, &BEGIN, &bytes].concat();
        let out = decode(&config([PLAIN, DEEP, ETE][deep]), &all);
        prop_assert!(matches!(out.last(), Some((_, Element::Mark(Mark::End)))));
        // Linear: at most one element per atom, at most 24 atoms per byte.
        prop_assert!(out.len() <= 26 * all.len());
    }
}
