//! Well-formed snapshots and trace files with arbitrary contents, made from a fuzzer's bytes.

use crate::TYPES;
use armsnap::formatter::encode::Encoder;
use armsnap::quantity::TraceId;
use armsnap::snapshot::files::InMemory;
use std::fmt::Write as _;

/// Takes choices from the front of bytes; zeros after the end.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    fn number<const N: usize>(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let given = self.take(N);
        bytes[..given.len()].copy_from_slice(given);
        u64::from_le_bytes(bytes)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.number::<1>() as usize % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Up to a number of bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number in a form that an .ini file may contain.
    fn written(&mut self) -> String {
        match self.below(9) {
            0 => format!("{:#x}", self.number::<1>()),
            1 | 2 => format!("{:#x}", self.number::<4>()),
            3 => format!("{:#X}", self.number::<8>()),
            4 => self.number::<2>().to_string(),
            5 => "0x1000".to_owned(),
            6 => "0xfffffffffffffffc".to_owned(),
            7 => "18446744073709551616".to_owned(),
            _ => String::from_utf8_lossy(self.take(6)).into_owned(),
        }
    }
}

const CORE_REGISTERS: [&str; 12] = [
    "PC", "SP", "X0", "X30", "R0", "R13", "R15", "CPSR", "xPSR", "SCR_EL3", "Q0", "D1",
];
const TRACE_REGISTERS: [&str; 16] = [
    "TRCCONFIGR",
    "TRCTRACEIDR",
    "TRCIDR0",
    "TRCIDR1",
    "TRCIDR2",
    "TRCIDR8",
    "TRCDEVARCH",
    "TRCAUTHSTATUS",
    "ETMCR",
    "ETMCCER",
    "ETMIDR",
    "ETMTRACEIDR",
    "STMTCSR",
    "CTRL",
    "TCR",
    "X",
];
const OTHER_SOURCES: [&str; 3] = ["STM", "ITM", "unknown"];
const SPACES: [&str; 8] = ["", "N", "S", "H", "EL1N", "EL3", "P", "nowhere"];
const FORMATS: [&str; 4] = ["coresight", "source_data", "dstream_coresight", "other"];
const FILES: [&str; 5] = ["code.bin", "trace.bin", "none.bin", "../x", "snapshot.ini"];

/// A snapshot with devices, dumps, trace and armsnap's own sections.
pub fn snapshot(choices: &mut Choices<'_>) -> InMemory {
    let (cores, sources) = (1 + choices.below(3), choices.below(4));
    let mut files = InMemory::default();
    let mut put = |name: &str, bytes: Vec<u8>| {
        files.0.insert(name.to_owned(), bytes.into());
    };
    let mut top = "[snapshot]\nversion=1.0\n[device_list]\n".to_owned();
    let kind = choices.pick(&TYPES);
    for core in 0..cores {
        let kind = if choices.below(8) == 0 {
            choices.pick(&TYPES)
        } else {
            kind
        };
        let _ = writeln!(top, "c{core}=cpu_{core}.ini");
        let mut text = format!(
            "[device]\nname=cpu_{core}\nclass=core\ntype={}\n[regs]\n",
            kind.1
        );
        for _ in 0..choices.below(8) {
            let (name, value) = (choices.pick(&CORE_REGISTERS), choices.written());
            let size = choices.pick(&["", "(size:64)", "(size:32)", "(id:1,size:128)"]);
            let _ = writeln!(text, "{name}{size}={value}");
        }
        for dump in 0..choices.below(4) {
            let address = choices.pick(&["0x1000", "0x1000", "0x1010", ""]);
            let address = match address {
                "" => choices.written(),
                address => address.to_owned(),
            };
            let file = if choices.below(6) == 0 {
                choices.pick(&FILES)
            } else {
                "code.bin"
            };
            let _ = writeln!(text, "[dump{dump}]\nfile={file}\naddress={address}");
            if choices.below(3) == 0 {
                let _ = writeln!(text, "length={}", choices.written());
            }
            if choices.below(4) == 0 {
                let _ = writeln!(text, "offset={}", choices.written());
            }
            if choices.below(4) == 0 {
                let _ = writeln!(text, "space={}", choices.pick(&SPACES));
            }
        }
        put(&format!("cpu_{core}.ini"), text.into_bytes());
    }
    let mut placed = "[core_trace_sources]\n".to_owned();
    let mut in_buffers = "[source_buffers]\n".to_owned();
    for source in 0..sources {
        let kind = match choices.below(6) {
            0 => choices.pick(&OTHER_SOURCES),
            1 => choices.pick(&TYPES).0,
            _ => kind.0,
        };
        let _ = writeln!(top, "s{source}=etm_{source}.ini");
        let mut text =
            format!("[device]\nname=etm_{source}\nclass=trace_source\ntype={kind}\n[regs]\n");
        for _ in 0..choices.below(14) {
            let (name, value) = (choices.pick(&TRACE_REGISTERS), choices.written());
            let _ = writeln!(text, "{name}={value}");
        }
        let _ = writeln!(
            text,
            "TRCTRACEIDR={:#x}\nETMTRACEIDR={:#x}",
            16 + source,
            16 + source
        );
        put(&format!("etm_{source}.ini"), text.into_bytes());
        let _ = writeln!(placed, "cpu_{}=etm_{source}", choices.below(cores));
        let _ = writeln!(
            in_buffers,
            "etm_{source}={}",
            choices.pick(&["b0", "b1", "b0,b1", "b9"])
        );
    }
    let _ = writeln!(
        top,
        "[clusters]\nc=cpu_0,cpu_1\n[trace]\nmetadata=trace.ini"
    );
    if choices.below(3) == 0 {
        let _ = writeln!(top, "[recording]\nof=linux_program\nended=cpu_1");
    }
    if choices.below(3) == 0 {
        let _ = writeln!(top, "[changed_code]\nfile=changed.txt");
        put("changed.txt", changed(choices).into_bytes());
    }
    if choices.below(4) == 0 {
        let offset = choices.written();
        let _ = writeln!(
            top,
            "[program]\nfile={}\noffset={offset}",
            choices.pick(&FILES)
        );
    }
    let format = [choices.pick(&FORMATS), choices.pick(&FORMATS)];
    let metadata = format!(
        "[trace_buffers]\nbuffers=b0,b1\n[b0]\nname=b0\nfile=trace.bin\nformat={}\n\
         [b1]\nname=b1\nfile=trace.bin,code.bin\nformat={}\n{placed}{in_buffers}",
        format[0], format[1]
    );
    put("trace.ini", metadata.into_bytes());
    // Sometimes one of the texts is damaged.
    let mut top = top.into_bytes();
    if choices.below(8) == 0 {
        let at = choices.number::<2>() as usize % top.len();
        top.splice(at..at, choices.take(4).iter().copied());
    }
    put("snapshot.ini", top);
    let length = choices.below(256);
    put("code.bin", choices.take(length).to_vec());
    put("trace.bin", trace(choices, format[0] == "coresight"));
    files
}

/// Versions of code.
fn changed(choices: &mut Choices<'_>) -> String {
    let mut text = String::new();
    for _ in 0..choices.below(6) {
        let address = 0x1000 + choices.number::<1>();
        let _ = match choices.below(4) {
            0 => writeln!(text, "changed {address:#x} {:#x}", 2 * choices.below(20)),
            1 => writeln!(text, "changed {} {}", choices.written(), choices.written()),
            _ => {
                let (first, last) = (choices.below(4), choices.below(6));
                let length = 2 * choices.below(8);
                let bytes = choices.take(length);
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "code {first} {last} {address:#x} {digits}")
            }
        };
    }
    text
}

/// The remaining bytes as trace: unchanged, or in frames of several sources after synchronisation.
fn trace(choices: &mut Choices<'_>, frames: bool) -> Vec<u8> {
    if !frames || choices.below(4) == 0 {
        return choices.take(usize::MAX).to_vec();
    }
    let (mut encoder, mut out, mut piece) = (Encoder::new(), Vec::new(), Vec::new());
    while !choices.0.is_empty() {
        let id = TraceId(16 + choices.below(4) as u8);
        let bytes: Vec<u8> = match choices.below(8) {
            // Synchronisation of ETMv4 and of the older protocols.
            0 => [vec![0; 11], vec![0x80, 0x01, 0x01, 0x00]].concat(),
            1 => [vec![0; 5], vec![0x80]].concat(),
            count => choices.take(count * 4).to_vec(),
        };
        encoder.write(id, &bytes, &mut piece);
        out.append(&mut piece);
    }
    encoder.finish(&mut out);
    out
}

const HEADERS: [&str; 8] = [
    "status 0;tstop:0;tframes:2;tcreated:2;tfree:500000;tsize:500000;circular:0;disconn:0\n",
    "tp T1:1000:E:0:0\n",
    "tp A1:1000:Rffffffff\n",
    "tp Z1:1000:main.c:3\n",
    "tsv 1:0:1:74726163655f74696d657374616d70\n",
    "tsv 7:0:0:61726d736e61705f6379636c6573\n",
    "status x-armsnap:5\n",
    "uploaded\n",
];
const TARGETS: [&str; 4] = [
    "<target><architecture>aarch64</architecture></target>",
    "<target><architecture>arm</architecture></target>",
    "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target>\
     <architecture>aarch64</architecture><feature name=\"org.gnu.gdb.aarch64.core\">\
     <reg name=\"x0\" bitsize=\"64\"/><reg name=\"sp\" bitsize=\"64\"/><reg name=\"pc\" \
     bitsize=\"64\"/><reg name=\"cpsr\" bitsize=\"32\"/></feature></target>",
    "<target><architecture>arm</architecture><feature name=\"org.gnu.gdb.arm.m-profile\">\
     <reg name=\"r0\" bitsize=\"32\"/><reg name=\"pc\" bitsize=\"32\"/><reg name=\"xpsr\" \
     bitsize=\"32\"/></feature></target>",
];

/// A trace file: header, description, frames of register, memory and variable blocks.
pub fn trace_file(choices: &mut Choices<'_>) -> Vec<u8> {
    let registers = choices.pick(&[16_usize, 28, 12, 788, 0]);
    let mut out = b"\x7fTRACE0\n".to_vec();
    out.extend(format!("R {registers:x}\n").bytes());
    for _ in 0..choices.below(6) {
        out.extend(choices.pick(&HEADERS).bytes());
    }
    if choices.below(8) != 0 {
        let target = choices.pick(&TARGETS);
        target
            .lines()
            .for_each(|line| out.extend(format!("tdesc {line}\n").bytes()));
    }
    if choices.below(8) == 0 {
        let at = 8 + choices.number::<2>() as usize % (out.len() - 7);
        out.splice(at..at, choices.take(4).iter().copied());
    }
    out.push(b'\n');
    while !choices.0.is_empty() {
        let mut frame = Vec::new();
        for _ in 0..choices.below(5) {
            match choices.below(4) {
                0 => {
                    frame.push(b'R');
                    let given = choices.take(registers.min(64));
                    frame.extend(given);
                    frame.extend(vec![0; registers.saturating_sub(given.len())]);
                }
                1 | 2 => {
                    let address = match choices.below(4) {
                        0 => choices.number::<8>(),
                        _ => 0x1000 + choices.number::<1>(),
                    };
                    let length = choices.below(40);
                    let bytes = choices.take(length);
                    frame.push(b'M');
                    frame.extend(address.to_le_bytes());
                    frame.extend((bytes.len() as u16).to_le_bytes());
                    frame.extend(bytes);
                }
                _ => {
                    frame.push(b'V');
                    frame.extend((choices.below(9) as u32).to_le_bytes());
                    frame.extend(choices.number::<8>().to_le_bytes());
                }
            }
        }
        // Sometimes with wrong lengths.
        let length = match choices.below(16) {
            0 => choices.number::<4>() as u32,
            _ => frame.len() as u32,
        };
        out.extend((1 + choices.below(3) as u16).to_le_bytes());
        out.extend(length.to_le_bytes());
        out.append(&mut frame);
    }
    if choices.below(8) != 0 {
        out.extend([0, 0]);
    }
    out
}
