//! Clients that send random bytes, and truncated or changed packets with right and wrong checksums.
//! The server must not end, hang, or leak memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use armsnap::remote_protocol::framing::{MAX_PACKET, write_packet};
use armsnap::server::{Endpoint, Options, Session, endpoints};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;

use crate::support::gdb::{Server, attach, peak_memory, testdata};

/// Packets of real sessions, to be truncated and changed.
const SEEDS: &[&[u8]] = &[
    b"qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;fork-events+;vContSupported+",
    b"qSupported:multiprocess",
    b"vMustReplyEmpty",
    b"QStartNoAckMode",
    b"Hg0",
    b"Hg1",
    b"Hgp1.2",
    b"Hc-1",
    b"H",
    b"Hg",
    b"Hgffffffffffffffffff",
    b"!",
    b"?",
    b"g",
    b"G00112233",
    b"p0",
    b"p21",
    b"pffffffff",
    b"p",
    b"P0=0011223344556677",
    b"m40100000,40",
    b"mffffffffffffffff,ffffffffffffffff",
    b"mfffffffffffffff0,20",
    b"m0,ffffffffffffffff",
    b"mzz,4",
    b"m,",
    b"M40100000,4:00000000",
    b"X40100000,4:\x01\x02\x03\x04",
    b"Z0,40100000,4",
    b"z0,40100000,4",
    b"Z2,40101000,8",
    b"Z9,1,1",
    b"Z0,,",
    b"Z0,40100000,4;X3,220300;cmds:0,X1,00",
    b"vCont?",
    b"vCont;c",
    b"vCont;s:1",
    b"vCont;s:1;c",
    b"vCont;t",
    b"vCont;r40100000,40100010:1",
    b"vCont;C05:2",
    b"vCont;C1d:1;c",
    b"Hc0",
    b"Hc2",
    b"Z1,40100000,4",
    b"z1,40100000,4",
    b"vCont",
    b"c",
    b"s",
    b"C05",
    b"S05;40100000",
    b"bs",
    b"bc",
    b"T1",
    b"T9",
    b"T",
    b"qC",
    b"qfThreadInfo",
    b"qsThreadInfo",
    b"qThreadExtraInfo,1",
    b"qThreadExtraInfo,zz",
    b"qThreadStopInfo1",
    b"qXfer:features:read:target.xml:0,ffb",
    b"qXfer:features:read:target.xml:ffffffffffffffff,ffffffffffffffff",
    b"qXfer:features:read:other.xml:0,10",
    b"qXfer:features:read:",
    b"qXfer:threads:read::0,1000",
    b"qXfer:threads:read::ffffffffffffffff,1",
    b"qXfer:threads:read:",
    b"qXfer:exec-file:read:1:0,1000",
    b"qXfer:exec-file:read::0,1000",
    b"vFile:setfs:0",
    b"vFile:open:6a7573742070726f62696e67,0,1c0",
    b"vFile:open:2f,2,0",
    b"vFile:open:,,",
    b"vFile:pread:0,ffffffff,0",
    b"vFile:pread:7fffffff,10,10",
    b"vFile:fstat:0",
    b"vFile:fstat:ffffffff",
    b"vFile:close:0",
    b"vFile:close:ffffffff",
    b"vFile:unlink:2f",
    b"vFile:readlink:2f",
    b"qRcmd,696e666f",
    b"qRcmd,68656c70",
    b"qRcmd,737061636520454c32",
    b"qRcmd,7265676973746572732078",
    b"qRcmd,z",
    b"qRcmd,",
    b"qHostInfo",
    b"qProcessInfo",
    b"qRegisterInfo0",
    b"qMemoryRegionInfo:40100000",
    b"qMemoryRegionInfo:ffffffffffffffff",
    b"qMemoryRegionInfo:",
    b"qAttached:1",
    b"qOffsets",
    b"qSymbol::",
    b"qTStatus",
    b"QTDP:1:2:E:0:0",
    b"qCRC:0,100",
    b"qSearch:memory:0;100;aa",
    b"jThreadsInfo",
    b"QThreadSuffixSupported",
    b"vAttach;1",
    b"vRun;",
    b"R00",
    b"D",
    b"k",
    b"vKill;1",
    b"",
    b"}",
    b"\x03",
];

/// A generator of pseudo-random numbers with a fixed sequence (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// A packet, or something similar.
fn hostile(numbers: &mut Numbers, out: &mut Vec<u8>) {
    let mut payload = SEEDS[numbers.below(SEEDS.len())].to_vec();
    match numbers.below(8) {
        0 | 1 => {}
        2 => payload.truncate(numbers.below(payload.len() + 1)),
        3 => {
            for _ in 0..=numbers.below(4) {
                let at = numbers.below(payload.len());
                if let Some(byte) = payload.get_mut(at) {
                    *byte = numbers.byte();
                }
            }
        }
        4 => {
            let at = numbers.below(payload.len() + 1);
            let insert: Vec<u8> = (0..numbers.below(20)).map(|_| numbers.byte()).collect();
            payload.splice(at..at, insert);
        }
        5 => {
            const LIKELY: &[u8] = b"0123456789abcdefABCDEFpgmGMHzZ,:;.-+=?*#$}vQqx";
            let count = numbers.below(24);
            payload.extend((0..count).map(|_| LIKELY[numbers.below(LIKELY.len())]));
        }
        6 => payload.extend_from_slice(SEEDS[numbers.below(SEEDS.len())]),
        _ => payload = (0..numbers.below(60)).map(|_| numbers.byte()).collect(),
    }
    match numbers.below(10) {
        // A wrong checksum, or not a number.
        0 => {
            out.push(b'$');
            out.extend_from_slice(&payload);
            out.extend_from_slice(&[b'#', numbers.byte(), numbers.byte()]);
        }
        // Truncated.
        1 => {
            let start = out.len();
            write_packet(&payload, out);
            let keep = numbers.below(out.len() - start);
            out.truncate(start + keep);
        }
        // Noise before it.
        2 => {
            let count = numbers.below(5);
            out.extend((0..count).map(|_| b"+-\x03\0z"[numbers.below(5)]));
            write_packet(&payload, out);
        }
        _ => write_packet(&payload, out),
    }
}

fn endpoint(name: &str) -> Arc<Endpoint> {
    let loaded = Snapshot::open(&testdata(name), &OpenOptions::default()).unwrap();
    let mut all = endpoints(&loaded, &Options::default()).unwrap();
    Arc::new(all.remove(0))
}

/// Checks that the session still answers correctly.
fn answers(session: &mut Session) {
    let mut out = Vec::new();
    let mut ask = Vec::new();
    // Ends an incomplete packet, if any.
    ask.extend_from_slice(b"#00");
    write_packet(b"Hg1", &mut ask);
    write_packet(b"m40100000,4", &mut ask);
    write_packet(b"qC", &mut ask);
    assert_eq!(session.feed(&ask, &mut out), None);
    let text = String::from_utf8_lossy(&out);
    assert!(text.contains("$QC1#"), "{text}");
    assert!(text.ends_with("$QC1#c5"), "{text}");
}

/// Feeds 20,000 packets; six of these run side by side.
fn survives(seed: u64) {
    let endpoint = endpoint("virt-a57");
    let mut numbers = Numbers(seed);
    let mut session = Session::new(Arc::clone(&endpoint));
    let (mut bytes, mut out) = (Vec::new(), Vec::new());
    let mut ends = 0;
    for packet in 0..20_000 {
        bytes.clear();
        hostile(&mut numbers, &mut bytes);
        for &byte in &bytes {
            out.clear();
            let end = session.push(byte, &mut out);
            assert!(out.len() <= 8 * MAX_PACKET, "{} bytes of reply", out.len());
            if end.is_some() {
                // Kill and detach end a session.
                ends += 1;
                session = Session::new(Arc::clone(&endpoint));
                break;
            }
        }
        if packet % 1000 == 0 {
            answers(&mut session);
        }
    }
    answers(&mut session);
    assert!((1..5_000).contains(&ends), "{ends} sessions ended");
}

#[test]
fn a_session_survives_hostile_packets_1() {
    survives(0x9e37_79b9_7f4a_7c15);
}

#[test]
fn a_session_survives_hostile_packets_2() {
    survives(0xbf58_476d_1ce4_e5b9);
}

#[test]
fn a_session_survives_hostile_packets_3() {
    survives(0x94d0_49bb_1331_11eb);
}

#[test]
fn a_session_survives_hostile_packets_4() {
    survives(0x2545_f491_4f6c_dd1d);
}

#[test]
fn a_session_survives_hostile_packets_5() {
    survives(0xd6e8_feb8_6659_fd93);
}

#[test]
fn a_session_survives_hostile_packets_6() {
    survives(0x1405_7b7e_f767_814f);
}

#[test]
fn a_session_survives_random_bytes() {
    let mut session = Session::new(endpoint("mps2-m4"));
    let mut numbers = Numbers(42);
    let mut out = Vec::new();
    for _ in 0..2_000_000 {
        out.clear();
        session.push(numbers.byte(), &mut out);
        assert!(out.len() <= 8 * MAX_PACKET);
    }
}

#[test]
fn malformed_packets_are_answered_and_the_session_continues() {
    let mut session = Session::new(endpoint("virt-a57"));
    for (packet, wanted) in [
        (&b"mzz,4"[..], &b"E01"[..]),
        (b"H", b"E01"),
        (b"Hgzz", b"E01"),
        (b"Hg9", b"E01"),
        (b"p999999", b"E01"),
        (b"vCont;t", b"E01"),
        (b"vCont;q", b"E01"),
        (b"Z0,,", b"E01"),
        (b"z0,x,4", b"E01"),
        (b"Z9,1,1", b"E01"),
        (b"qRcmd,6", b"E01"),
        (b"m0,4", b"E0e"),
        (b"vMustReplyEmpty", b""),
        (b"qThreadStopInfo77", b"E01"),
    ] {
        let (mut ask, mut wanted_bytes, mut out) = (Vec::new(), b"+".to_vec(), Vec::new());
        write_packet(packet, &mut ask);
        write_packet(wanted, &mut wanted_bytes);
        assert_eq!(session.feed(&ask, &mut out), None);
        let name = String::from_utf8_lossy(packet);
        assert_eq!(
            out,
            wanted_bytes,
            "{name}: {}",
            String::from_utf8_lossy(&out)
        );
        answers(&mut session);
    }
}

#[test]
fn packets_with_bad_checksums_are_requested_again() {
    let mut session = Session::new(endpoint("virt-a57"));
    let mut out = Vec::new();
    session.feed(b"$qC#00", &mut out);
    assert_eq!(out, b"-");
    out.clear();
    session.feed(b"$qC#b4-", &mut out);
    assert_eq!(out, b"+$QC1#c5$QC1#c5");
}

#[test]
fn a_repeated_first_request_is_answered_once() {
    let mut session = Session::new(endpoint("virt-a57"));
    let mut out = Vec::new();
    let mut ask = Vec::new();
    write_packet(b"qSupported:swbreak+", &mut ask);
    // As GDB does with a slow server that it started.
    session.feed(&[b"+", &ask[..], &ask, &ask].concat(), &mut out);
    let text = String::from_utf8(out.clone()).unwrap();
    assert!(text.starts_with("+$PacketSize"), "{text}");
    assert_eq!(text.matches('#').count(), 1, "{text}");
    for (answer, count) in [(&b"+"[..], 1), (b"", 1), (b"+", 1)] {
        out.clear();
        session.feed(&[answer, &ask].concat(), &mut out);
        let text = String::from_utf8_lossy(&out);
        assert_eq!(text.matches("PacketSize").count(), count, "{text}");
    }
}

#[test]
fn each_thread_moves_by_itself() {
    let mut session = Session::new(endpoint("virt-a57"));
    let mut ask = |packet: &[u8]| {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        write_packet(packet, &mut bytes);
        session.feed(&bytes, &mut out);
        String::from_utf8(out).unwrap()
    };
    let stops = |reply: String, thread: usize, end: &str| {
        let (found, why) = (
            format!("$T05thread:{thread:02};"),
            format!("replaylog:{end};"),
        );
        assert!(reply.contains(&found) && reply.contains(&why), "{reply}");
    };
    // All threads may move: the user moves the selected one.
    ask(b"Hc0");
    ask(b"Hg2");
    stops(ask(b"bc"), 2, "begin");
    stops(ask(b"bs"), 2, "begin");
    ask(b"Hg1");
    stops(ask(b"bc"), 1, "begin");
    // Reading all threads selects none; asking for one does.
    ask(b"qXfer:threads:read::0,1000");
    ask(b"Hg2");
    stops(ask(b"bc"), 1, "begin");
    ask(b"qXfer:threads:read::0,1000");
    ask(b"T2");
    stops(ask(b"bc"), 2, "begin");
    ask(b"Hg1");
    // The others must not move.
    ask(b"Hc2");
    stops(ask(b"bc"), 2, "begin");
    stops(ask(b"vCont;s:2;c"), 2, "end");
    stops(ask(b"vCont;c:1"), 1, "end");
    stops(ask(b"vCont;c"), 1, "end");
}

#[test]
fn a_server_survives_hostile_clients() {
    let mut server = Server::start(&testdata("virt-a57"), &[], 1);
    let address = server.addresses[0].clone();
    let mut numbers = Numbers(7);
    for client in 0..12 {
        let stream = TcpStream::connect(&address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut reader = stream.try_clone().unwrap();
        // Every third client never reads replies.
        let reads = client % 3 != 0;
        let drain = std::thread::spawn(move || {
            let mut sink = vec![0; 0x1_0000];
            while reads && matches!(reader.read(&mut sink), Ok(count) if count > 0) {}
        });
        let mut writer = stream.try_clone().unwrap();
        writer
            .set_write_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let mut bytes = Vec::new();
        for _ in 0..800 {
            bytes.clear();
            hostile(&mut numbers, &mut bytes);
            if writer.write_all(&bytes).is_err() {
                break;
            }
        }
        stream.shutdown(std::net::Shutdown::Both).ok();
        drain.join().unwrap();
    }
    assert!(server.lives());
    let text = attach(&address, &["info threads", "detach"]);
    assert!(text.contains("\"Cortex-A57_1\""), "{text}");
    let peak = peak_memory(server.id());
    assert!(peak < 64 << 10, "{peak} kB");
}

#[test]
fn a_sparse_dump_of_four_gib_takes_no_memory() {
    let device = "class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x80000000\n\
                  SP(size:64)=0x80001000\nCPSR=0x3c5\n[dump]\nfile=ram.bin\naddress=0x80000000\n";
    let snapshot = crate::support::gdb::write_snapshot(&[("cpu_0", device)], &[]);
    let file = std::fs::File::create(snapshot.path().join("ram.bin")).unwrap();
    if file.set_len(4 << 30).is_err() {
        crate::support::skip::unavailable("no sparse files here");
        return;
    }
    let server = Server::start(snapshot.path(), &[], 1);
    let text = attach(
        &server.addresses[0],
        &["x/2xw 0x80000000", "x/2xw 0x17fffff00", "x/1xw 0x180000000"],
    );
    assert!(
        text.contains("0x80000000:\t0x00000000\t0x00000000"),
        "{text}"
    );
    assert!(
        text.contains("0x17fffff00:\t0x00000000\t0x00000000"),
        "{text}"
    );
    assert!(
        text.contains("Cannot access memory at address 0x180000000"),
        "{text}"
    );
    let peak = peak_memory(server.id());
    assert!(peak < 64 << 10, "{peak} kB");
}

/// A web page can make a browser send requests to a port of this system: nothing in them is a packet.
#[test]
fn a_request_of_http_ends_the_connection() {
    let server = Server::start(&testdata("virt-a57"), &[], 1);
    let address = server.addresses[0].trim_start_matches("localhost");
    let address = match address.starts_with(':') {
        true => format!("127.0.0.1{address}"),
        false => address.to_owned(),
    };
    let exchange = |pieces: &[&[u8]]| {
        let mut stream = TcpStream::connect(&*address).unwrap();
        for piece in pieces {
            // The server may have closed the connection already.
            let _ = stream.write_all(piece).and_then(|()| stream.flush());
        }
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut reply = [0; 64];
        match stream.read(&mut reply) {
            Ok(count) => reply[..count].to_vec(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    };
    let mut packet = Vec::new();
    write_packet(b"qSupported", &mut packet);
    for method in ["GET", "POST", "OPTIONS", "HEAD", "PUT"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(exchange(&[head.as_bytes(), &packet]), b"", "{method}");
    }
    assert!(exchange(&[&packet]).starts_with(b"+$"));
    // Noise before a packet is no such request.
    assert!(exchange(&[b"PO", &packet]).starts_with(b"+$"));
}
