//! Packets and their replies, as they were recorded: what the server says does not change unnoticed.
//!
//! `UPDATE_GOLDEN=1` rewrites the transcripts in testdata/golden.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use armsnap::remote_protocol::framing::write_packet;
use armsnap::remote_protocol::hex;
use armsnap::server::{HistoryMode, Options, Session, endpoints};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;

use crate::support::gdb::testdata;

const GDB: &str = "qSupported:multiprocess+;swbreak+;hwbreak+;QThreadEvents+;memory-tagging+";
const LLDB: &str = "qSupported:xmlRegisters=i386,arm,mips";

/// What a client asks when it connects, what only some ask, and malformed packets.
const QUESTIONS: &str = "vMustReplyEmpty ! qTStatus qTfV qTsV qTfP qTsP qTsP ? Hg0 \
    qXfer:features:read:target.xml:0,ffb qXfer:features:read:target.xml:fffff,ffb \
    qXfer:features:read:other.xml:0,10 qXfer:threads:read::0,1000 qXfer:threads:read::10,20 \
    qXfer:threads:read: qAttached:1 qOffsets Hc-1 qC Hg1 Hg9 Hgzz H Hx1 g p0 p1 p1f p20 p21 pffff p pzz \
    P0=00 G00 M0,4:00 X0,4:1234 qfThreadInfo qsThreadInfo T1 T2 T9 T qThreadExtraInfo,1 \
    qXfer:exec-file:read:1:0,0 qXfer:libraries-svr4:read::0,ffb qXfer:libraries-svr4:read::ffff,ffb \
    qXfer:siginfo:read::0,100 qXfer:memory-map:read::0,100 qHostInfo qProcessInfo qRegisterInfo0 \
    qThreadStopInfo1 qThreadStopInfo9 qMemoryRegionInfo:40100000 qMemoryRegionInfo:zz qSymbol:: \
    qArmsnap.is-input:z qArmsnap.position:1 qArmsnap.callers:1,0 qArmsnap.callers:z \
    Qbtrace:bts Qbtrace:off qXfer:btrace:read:all:0,100 qXfer:btrace:read:new:0,100 \
    qXfer:btrace-conf:read::0,100 vCont? vFile:setfs:0 vFile:open:2f,0,0 vFile:close:0 \
    Z0,1000,4 z0,1000,4 Z1,1000,4;X1,0 z1,1000,4 Z2,1000,4 z2,1000,4 Z3,1000,0 Z4,ffffffffffffffff,2 Z0 Z0,10 \
    m0,4 m40100000,0 m40100000,40 m40100000,ffffffffffffffff mzz,4 m, mfffffffffffffff0,20";

/// Moves of one and of several threads, and trace frames.
const MOVES: &str = "bs bs bc c s bc Hg2 Hc2 bs bc c Hc0 Hg1 bs vCont;s:1 vCont;c:1 bc vCont;s:1;c \
    vCont;s:2;c vCont;c vCont;s vCont;r0,1000:1 vCont;s:9 vCont;t vCont;q vCont; C05 S05 c1000 bs g p21 \
    qThreadStopInfo1 qArmsnap.callers:1,0 qArmsnap.callers:1,1 qArmsnap.position:1 bc m400000,40 \
    QTFrame:0 g p21 p20 pf qXfer:traceframe-info:read::0,1000 QTFrame:3 g p0 p21 p20 m0,4 \
    qXfer:traceframe-info:read::0,1000 qTV:1 qTP:1:0 QTFrame:tdp:1 QTFrame:pc:0 QTFrame:range:0:ffffffff QTFrame:zz \
    qTBuffer:0,40 qTBuffer:40,40 bs QTFrame:2 QTFrame:ffffffff qTStatus";

const COMMANDS: [&str; 7] = [
    "nonsense",
    "where",
    "history 2",
    "calls 3",
    "goto begin",
    "registers pc",
    "trace",
];

/// A session, and what was asked and answered so far.
struct Transcript {
    session: Session,
    text: String,
}

impl Transcript {
    fn ask(&mut self, packet: &str) -> String {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        write_packet(packet.as_bytes(), &mut bytes);
        let mut end = self.session.feed(&bytes, &mut out);
        // On a busy machine, a reply may not be finished in time.
        while out == b"$~#7e" {
            out.clear();
            end = self.session.feed(&bytes, &mut out);
        }
        let reply: String = out.escape_ascii().to_string();
        // Long replies are represented by their size and a checksum.
        let shown = match reply.len() {
            0..=400 => reply.clone(),
            length => {
                let sum = out.iter().fold(0_u64, |sum, byte| {
                    (sum.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x517c_c1b7_2722_0a95)
                });
                format!("{}... {length}, {sum:x}", &reply[..80])
            }
        };
        writeln!(self.text, "{packet}\n  {shown}").unwrap();
        if let Some(end) = end {
            writeln!(self.text, "  {end:?}").unwrap();
        }
        reply
    }

    /// Stops at the places of some steps, and at accesses to the stack.
    fn stop_at_places(&mut self) {
        let steps: Vec<String> = (0..6).map(|_| self.ask("bs")).collect();
        let fields = steps.iter().flat_map(|reply| reply.split(';'));
        let values = fields
            .filter_map(|field| field.split_once(':'))
            .map(|(_, value)| value);
        let bytes = values
            .filter(|value| matches!(value.len(), 8 | 16))
            .filter_map(hex::decode);
        let places: Vec<String> = bytes
            .map(|bytes| {
                bytes
                    .iter()
                    .rev()
                    .map(|byte| format!("{byte:02x}"))
                    .collect()
            })
            .collect();
        for place in &places {
            self.ask(&format!("m{place},20"));
            self.ask(&format!("Z0,{place},4"));
        }
        for packet in "bc bc c c bc vCont;c:1 vCont;c".split(' ') {
            self.ask(packet);
        }
        for place in &places {
            self.ask(&format!("z0,{place},4"));
            self.ask(&format!("Z1,{place},4"));
        }
        for packet in "bc c".split(' ') {
            self.ask(packet);
        }
    }
}

fn connected(name: &str, history: HistoryMode) -> Transcript {
    let loaded = Snapshot::open(&testdata(name), &OpenOptions::default()).unwrap();
    let options = Options {
        history,
        ..Options::default()
    };
    let endpoint = endpoints(&loaded, &options).unwrap().remove(0);
    Transcript {
        session: Session::new(Arc::new(endpoint)),
        text: String::new(),
    }
}

fn transcript(name: &str, greeting: &str, history: HistoryMode) -> String {
    let mut transcript = connected(name, history);
    transcript.ask(greeting);
    transcript.ask("QStartNoAckMode");
    if greeting == LLDB {
        transcript.ask("QThreadSuffixSupported");
    }
    for packet in QUESTIONS.split_whitespace().chain(MOVES.split_whitespace()) {
        transcript.ask(packet);
    }
    for command in COMMANDS {
        transcript.ask(&format!("qRcmd,{}", hex::encode(command)));
    }
    transcript.ask("qRcmd,z");
    transcript.stop_at_places();
    transcript.ask(if greeting == LLDB { "D" } else { "vKill;1" });
    // The path of the checkout.
    transcript.text.replace(env!("CARGO_MANIFEST_DIR"), "")
}

fn is_as_recorded(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("testdata/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    let mut lines = recorded.lines().zip(found.lines()).enumerate();
    let differs = lines.find(|(_, (recorded, found))| recorded != found);
    assert_eq!(differs, None, "{file}");
    assert_eq!(recorded.len(), found.len(), "{file}");
}

#[test]
fn packets_of_gdb_are_answered_as_recorded() {
    let found = transcript("recorded/etmv4", GDB, HistoryMode::Replay);
    is_as_recorded("packets-gdb.txt", &found);
}

#[test]
fn packets_of_lldb_are_answered_as_recorded() {
    let found = transcript("recorded/ptm", LLDB, HistoryMode::Replay);
    is_as_recorded("packets-lldb.txt", &found);
}

#[test]
fn packets_to_several_cores_are_answered_as_recorded() {
    let found = transcript("virt-a57", GDB, HistoryMode::Replay);
    is_as_recorded("packets-cores.txt", &found);
}

#[test]
fn packets_without_reverse_execution_are_answered_as_recorded() {
    let found = transcript("recorded/etmv3", GDB, HistoryMode::Btrace);
    is_as_recorded("packets-btrace.txt", &found);
}

/// LLDB shows bytes of 0xcc in place of `xx`, and reads no register with `p` if the first request fails.
#[test]
fn lldb_receives_no_unknown_registers() {
    for is_lldb in [false, true] {
        let mut client = connected("demo", HistoryMode::Replay);
        client.ask(if is_lldb { LLDB } else { GDB });
        client.ask("QStartNoAckMode");
        if is_lldb {
            client.ask("QThreadSuffixSupported");
        }
        for command in ["recover off", "goto begin"] {
            client.ask(&format!("qRcmd,{}", hex::encode(command)));
        }
        let replies = ["p0", "p0", "p1", "g"].map(|packet| client.ask(packet).contains('x'));
        assert_eq!(
            replies,
            [true, !is_lldb, !is_lldb, !is_lldb],
            "{}",
            client.text
        );
        // The pc is known.
        assert!(!client.ask("p20").contains('E'), "{}", client.text);
    }
}
