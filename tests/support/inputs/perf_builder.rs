//! Writes `perf.data` files, as perf and the kernel do, with what a test wants in them.

/// Types of records.
pub const LOST: u32 = 2;
pub const COMM: u32 = 3;
pub const FORK: u32 = 7;
pub const MMAP2: u32 = 10;
pub const AUX: u32 = 11;
pub const SWITCH_CPU_WIDE: u32 = 15;
pub const HW_ID: u32 = 21;
const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
/// `PERF_RECORD_MISC_COMM_EXEC`, `PERF_RECORD_MISC_MMAP_BUILD_ID`.
pub const EXEC: u16 = 1 << 13;
pub const WITH_BUILD_ID: u16 = 1 << 14;
/// `sample_type`: TID, TIME, CPU, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16;

/// Who, when, where.
#[derive(Clone, Copy)]
pub struct At {
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub cpu: u32,
}

/// A file that is being written, little-endian.
#[derive(Clone, Default)]
pub struct PerfData {
    pub records: Vec<u8>,
    /// Records say neither who caused them nor when and where (`sample_id_all` is off).
    pub anonymous: bool,
}

/// A record with its header.
pub fn framed(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(kind.to_le_bytes());
    out.extend(misc.to_le_bytes());
    out.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
    out.extend(body);
    out
}

pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Text followed by zeros, up to a multiple of 8.
fn padded(text: &str) -> Vec<u8> {
    let mut out = text.as_bytes().to_vec();
    out.resize((text.len() + 1).next_multiple_of(8), 0);
    out
}

impl PerfData {
    /// A record of the kernel, with its sample ID.
    pub fn event(&mut self, kind: u32, misc: u16, body: &[u8], at: At) {
        let mut body = body.to_vec();
        if !self.anonymous {
            body.extend(at.pid.to_le_bytes());
            body.extend(at.tid.to_le_bytes());
            body.extend(at.time.to_le_bytes());
            body.extend(u64::from(at.cpu).to_le_bytes());
            body.extend(1_u64.to_le_bytes());
        }
        self.records.extend(framed(kind, misc, &body));
    }

    pub fn comm(&mut self, name: &str, exec: bool, at: At) {
        let mut body = at.pid.to_le_bytes().to_vec();
        body.extend(at.tid.to_le_bytes());
        body.extend(padded(name));
        self.event(COMM, if exec { EXEC } else { 0 }, &body, at);
    }

    pub fn fork(&mut self, pid: u32, parent: u32, tid: u32, at: At) {
        let mut body: Vec<u8> = [pid, parent, tid, parent]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        body.extend(at.time.to_le_bytes());
        self.event(FORK, 0, &body, at);
    }

    pub fn map(&mut self, path: &str, address: u64, length: u64, offset: u64, id: &[u8], at: At) {
        let mut body = at.pid.to_le_bytes().to_vec();
        body.extend(at.tid.to_le_bytes());
        body.extend(words(&[address, length, offset]));
        let mut file = [0; 24];
        file[0] = id.len() as u8;
        file[4..4 + id.len()].copy_from_slice(id);
        body.extend(file);
        // PROT_READ | PROT_EXEC, MAP_PRIVATE.
        body.extend([5, 0, 0, 0, 2, 0, 0, 0]);
        body.extend(padded(path));
        let misc = if id.is_empty() { 0 } else { WITH_BUILD_ID };
        self.event(MMAP2, misc, &body, at);
    }

    pub fn aux(&mut self, offset: u64, size: u64, flags: u64, at: At) {
        self.event(AUX, 0, &words(&[offset, size, flags]), at);
    }

    pub fn hardware_id(&mut self, value: u64, at: At) {
        self.event(HW_ID, 0, &words(&[value]), at);
    }

    /// The trace units: each with its magic, CPU and parameters.
    pub fn info(&mut self, version: u64, units: &[(u64, u64, Vec<u64>)]) {
        let mut body = words(&[3, version, 8 << 32 | units.len() as u64, 0]);
        for (magic, cpu, parameters) in units {
            body.extend(words(&[*magic, *cpu]));
            if version > 0 {
                body.extend(words(&[parameters.len() as u64]));
            }
            body.extend(words(parameters));
        }
        self.records.extend(framed(AUXTRACE_INFO, 0, &body));
    }

    /// Trace of a CPU, or of a thread if `cpu` is -1.
    pub fn trace(&mut self, offset: u64, cpu: u32, tid: u32, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let mut body = words(&[bytes.len() as u64, offset, 0]);
        for number in [cpu, tid, cpu, 0] {
            body.extend(number.to_le_bytes());
        }
        self.records.extend(framed(AUXTRACE, 0, &body));
        self.records.extend(bytes);
    }

    fn attribute(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(8_u32.to_le_bytes());
        out.extend(128_u32.to_le_bytes());
        // Config, period, sample type, read format, flags: sample_id_all.
        let flags = u64::from(!self.anonymous) << 18;
        out.extend(words(&[0, 1, SAMPLE_TYPE, 0, flags]));
        out.resize(128, 0);
        out
    }

    /// The whole file.
    pub fn file(&self) -> Vec<u8> {
        let attributes = [self.attribute(), words(&[104, 8])].concat();
        let (ids, begin) = (words(&[1]), 112 + attributes.len() as u64);
        let mut out = b"PERFILE2".to_vec();
        out.extend(words(&[
            104,
            attributes.len() as u64,
            112,
            attributes.len() as u64,
        ]));
        out.extend(words(&[begin, self.records.len() as u64, 0, 0, 0, 0, 0, 0]));
        out.extend(ids);
        out.extend(attributes);
        out.extend(&self.records);
        out
    }

    /// The same as perf writes it to a pipe.
    pub fn piped(&self) -> Vec<u8> {
        let mut out = b"PERFILE2".to_vec();
        out.extend(words(&[16]));
        let attribute = [self.attribute(), words(&[1])].concat();
        out.extend(framed(64, 0, &attribute));
        out.extend(&self.records);
        out
    }
}

/// Reverses the bytes of fields of these sizes at the start of `bytes`; the rest stays.
fn reverse(bytes: &mut [u8], sizes: &[usize]) {
    let mut rest = bytes;
    for &size in sizes {
        let (field, after) = rest.split_at_mut(size);
        field.reverse();
        rest = after;
    }
}

/// A file as a big-endian system writes it.
pub fn big_endian(little: &[u8]) -> Vec<u8> {
    let mut out = little.to_vec();
    let number = |at: usize| u64::from_le_bytes(little[at..at + 8].try_into().unwrap());
    let (attributes, data) = (number(24) as usize, number(40) as usize);
    let end = data + number(48) as usize;
    // The magic is a number too, and so is the list of IDs.
    reverse(&mut out, &[8; 14]);
    // Type, size; then words. Bit fields are counted from the top.
    let flags = number(attributes + 40).reverse_bits().to_le_bytes();
    out[attributes + 40..attributes + 48].copy_from_slice(&flags);
    reverse(&mut out[attributes..], &[&[4, 4][..], &[8; 17]].concat());
    let mut at = data;
    while at < end {
        let header = |at: usize, size: usize| {
            let mut bytes = [0; 4];
            bytes[..size].copy_from_slice(&little[at..at + size]);
            u32::from_le_bytes(bytes)
        };
        let (kind, misc, size) = (
            header(at, 4),
            header(at + 4, 2) as u16,
            header(at + 6, 2) as usize,
        );
        reverse(&mut out[at..], &[4, 2, 2]);
        let body = &mut out[at + 8..at + size];
        let words = vec![8; body.len() / 8];
        let fields: Vec<usize> = match kind {
            COMM => vec![4, 4],
            FORK => vec![4, 4, 4, 4, 8],
            // A build-id is bytes.
            MMAP2 if misc & WITH_BUILD_ID != 0 => vec![4, 4, 8, 8, 8],
            MMAP2 => vec![4, 4, 8, 8, 8, 4, 4, 8, 8, 4, 4],
            SWITCH_CPU_WIDE => vec![4, 4],
            AUXTRACE_INFO => [&[4, 4][..], &words[1..]].concat(),
            AUXTRACE => vec![8, 8, 8, 4, 4, 4, 4],
            _ => vec![8; words.len() - if kind < 64 { 4 } else { 0 }],
        };
        reverse(body, &fields);
        if kind == MMAP2 && misc & WITH_BUILD_ID != 0 {
            reverse(&mut body[56..], &[4, 4]);
        }
        if kind < 64 {
            let sample = body.len() - 32;
            reverse(&mut body[sample..], &[4, 4, 8, 4, 4, 8]);
        }
        at += size;
        if kind == AUXTRACE {
            at += number(at - size + 8) as usize;
        }
    }
    out
}
