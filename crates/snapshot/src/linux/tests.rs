use super::btf::Btf;
use super::log::{Log, Record};
use super::tasks::{Task, TaskLayout};
use super::vmcoreinfo::Info;
use super::*;
use std::collections::BTreeMap;

/// Memory built from words.
#[derive(Clone, Default)]
pub(super) struct Words(pub BTreeMap<u64, u8>);

impl Words {
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.0.extend((address..).zip(bytes.iter().copied()));
    }
    pub fn long(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }
}

impl Memory for Words {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let places = (0..out.len() as u64).map(|offset| address.checked_add(offset));
        let known = places.map_while(|place| self.0.get(&place?).copied());
        out.iter_mut()
            .zip(known)
            .map(|(out, byte)| *out = byte)
            .count()
    }
}

const PRB: u64 = 0x1000;
const RING: u64 = 0x2000;
const DESCRIPTORS: u64 = 0x3000;
const INFOS: u64 = 0x4000;
const TEXTS: u64 = 0x5000;
/// The lowest ID of a descriptor.
const FIRST: u64 = (1 << 62) - 2;

/// A log with space for 8 records and 256 bytes of text, whose descriptor IDs overflow.
fn log(records: &[(u64, u64, u64, &[u8])]) -> (Info, Words) {
    let info = Info::read(
        b"SYMBOL(prb)=1000\nOFFSET(printk_ringbuffer.desc_ring)=0\n\
        OFFSET(printk_ringbuffer.text_data_ring)=48\nOFFSET(prb_desc_ring.count_bits)=0\n\
        OFFSET(prb_desc_ring.descs)=8\nOFFSET(prb_desc_ring.infos)=16\n\
        OFFSET(prb_desc_ring.head_id)=24\nOFFSET(prb_desc_ring.tail_id)=32\nSIZE(prb_desc)=24\n\
        OFFSET(prb_desc.state_var)=0\nOFFSET(prb_desc.text_blk_lpos)=8\n\
        OFFSET(prb_data_blk_lpos.begin)=0\nOFFSET(prb_data_blk_lpos.next)=8\nSIZE(printk_info)=88\n\
        OFFSET(printk_info.ts_nsec)=8\nOFFSET(printk_info.text_len)=16\n\
        OFFSET(prb_data_ring.size_bits)=0\nOFFSET(prb_data_ring.data)=8\n\
        OFFSET(atomic_long_t.counter)=0\n",
    );
    let mut memory = Words::default();
    memory.long(PRB, RING);
    for (offset, value) in [
        (0, 3),
        (8, DESCRIPTORS),
        (16, INFOS),
        (
            24,
            FIRST.wrapping_add(records.len() as u64 - 1) & ((1 << 62) - 1),
        ),
        (32, FIRST),
        (48, 8),
        (56, TEXTS),
    ] {
        memory.long(RING + offset, value);
    }
    for (number, (state, begin, end, text)) in (0..).zip(records) {
        let id = (FIRST + number) & ((1 << 62) - 1);
        let (descriptor, info) = (DESCRIPTORS + id % 8 * 24, INFOS + id % 8 * 88);
        memory.long(descriptor, state << 62 | id);
        memory.long(descriptor + 8, *begin);
        memory.long(descriptor + 16, *end);
        memory.long(info + 8, 1000 * number);
        memory.put(info + 16, &(text.len() as u16).to_le_bytes());
        let at = if begin % 256 > end % 256 && end % 256 != 0 {
            0
        } else {
            begin % 256
        };
        memory.long(TEXTS + at, id);
        memory.put(TEXTS + at + 8, text);
    }
    (info, memory)
}

#[test]
fn the_log_is_read_from_its_rings() {
    let (info, memory) = log(&[
        (2, 0x1c0, 0x1e0, b"first\x1b[2J"),
        (1, 0x1e0, 0x200, b"to the end"),
        (3, 0x200, 0x210, b"reusable"),
        (2, 3, 3, b""),
        // A text that does not fit before the end of the ring is at the start.
        (2, 0x2f0, 0x320, b"wrapped around"),
    ]);
    let records: Vec<Record> = Log::of(&info, &memory).unwrap().collect();
    let texts = records.iter().map(|record| record.text.as_deref().unwrap());
    let wanted: [&[u8]; 4] = [b"first\x1b[2J", b"to the end", b"", b"wrapped around"];
    assert!(texts.eq(wanted));
    assert_eq!(records[3].time, 4000);
    let mut last = Log::of(&info, &memory).unwrap();
    last.keep(1);
    assert!(last.eq([records[3].clone()]));
    // A kernel without this log.
    let none = Log::of(&Info::read(b"SYMBOL(log_buf)=1\n"), &memory).unwrap_err();
    let text = "VMCOREINFO has no SYMBOL(prb): kernels before Linux 5.10 keep another log";
    assert_eq!(none.to_string(), text);
}

#[test]
fn texts_that_records_share_are_not_read_again_and_again() {
    // All refer to the block of the first, or to overlapping ones.
    let (info, memory) = log(&[(2, 0x100, 0x180, &[b'a'; 100][..]); 8]);
    let texts = Log::of(&info, &memory).unwrap();
    let texts: Vec<_> = texts.filter_map(|record| record.text).collect();
    assert_eq!(texts.len(), 1);
    let begins = (0..8).map(|number| 0x100 + 8 * number);
    let all = [0; 0xa0];
    let records: Vec<_> = begins
        .map(|begin| (2, begin, begin + 0xa8, &all[..]))
        .collect();
    let (info, mut memory) = log(&records);
    for (id, (_, begin, ..)) in (FIRST..).zip(&records) {
        memory.long(TEXTS + begin % 256, id & ((1 << 62) - 1));
    }
    let texts = Log::of(&info, &memory).unwrap();
    let read: usize = texts.filter_map(|record| Some(record.text?.len())).sum();
    assert!(read <= 256, "{read}");
}

#[test]
fn a_damaged_log_ends() {
    let records: &[(u64, u64, u64, &[u8])] =
        &[(2, 0x1c0, 0x1e0, b"first"), (2, 0, 0x20, b"second")];
    let (info, whole) = log(records);
    // One word of the rings after another has an arbitrary value, or is not known.
    let places: Vec<u64> = whole.0.keys().copied().filter(|at| at % 8 == 0).collect();
    for place in places {
        for value in [0, 1, 63, 1 << 31, 1 << 62, u64::MAX] {
            let (_, mut memory) = log(records);
            memory.long(place, value);
            if let Ok(log) = Log::of(&info, &memory) {
                assert!(log.count() <= 8);
            }
        }
        let (_, mut memory) = log(records);
        memory.0.remove(&place);
        if let Ok(log) = Log::of(&info, &memory) {
            assert!(log.count() <= 2);
        }
    }
}

/// A member of a structure: name, type, offset in bits.
type Member<'a> = (&'a str, u32, u32);

/// Returns the types of a kernel with these structures, the first of which is type 2. The type
/// after them is an array of 7 elements.
pub(super) fn types(structures: &[(&str, &[Member<'_>])]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut name = |text: &str| {
        if text.is_empty() {
            return 0;
        }
        let at = strings.len() as u32;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    let mut types = Vec::new();
    // Type 1: an integer.
    types.extend([name("long"), 1 << 24, 8, 64]);
    for (structure, members) in structures {
        let size = members.last().map_or(0, |member| member.2 / 8) + 8;
        types.extend([name(structure), 4 << 24 | members.len() as u32, size]);
        for (member, of, offset) in *members {
            types.extend([name(member), *of, *offset]);
        }
    }
    types.extend([0, 3 << 24, 0, 1, 1, 7]);
    let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
    let lengths = [0, types.len(), types.len(), strings.len()];
    let lengths = lengths
        .iter()
        .flat_map(|length| (*length as u32).to_le_bytes());
    let mut out = btf::START[..8].to_vec();
    out.extend(lengths);
    out.extend(types);
    out.extend(strings);
    out
}

/// `task_struct` is type 5; it contains `thread` (3), which contains `cpu_context` (2), and an
/// anonymous part (4).
fn kernel_types() -> Vec<u8> {
    types(&[
        (
            "cpu_context",
            &[("fp", 1, 0), ("sp", 1, 64), ("pc", 1, 128)],
        ),
        ("thread_struct", &[("cpu_context", 2, 64)]),
        ("", &[("pid", 1, 0), ("tgid", 1, 32)]),
        (
            "task_struct",
            &[
                ("__state", 1, 0),
                ("", 4, 64),
                ("tasks", 1, 128),
                ("comm", 1, 256),
                ("stack", 1, 384),
                ("thread", 3, 448),
                ("signal", 1, 704),
                ("thread_node", 1, 768),
                ("exit_state", 1, 1600),
            ],
        ),
        ("signal_struct", &[("thread_head", 1, 64)]),
    ])
}

#[test]
fn members_of_structures_are_found() {
    let bytes = kernel_types();
    let found = Btf::read(&bytes).unwrap();
    assert_eq!(found.offset("task_struct", "tgid"), Some(12));
    assert_eq!(
        found.offset("task_struct", "thread.cpu_context.pc"),
        Some(56 + 8 + 16)
    );
    assert_eq!(found.offset("task_struct", "missing"), None);
    assert_eq!(found.offset("missing", "pid"), None);
}

#[test]
fn damaged_types_end() {
    let whole = kernel_types();
    for length in 0..whole.len() {
        assert!(Btf::read(&whole[..length]).is_none(), "{length}");
    }
    for at in 0..whole.len() {
        for value in [0, 1, 5, 0x84, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Some(found) = Btf::read(&bytes) {
                let _ = TaskLayout::of(&found);
            }
        }
    }
    // An anonymous structure that contains itself.
    let endless = types(&[("task_struct", &[("", 2, 0), ("", 2, 0), ("", 2, 0)])]);
    let found = Btf::read(&endless).unwrap();
    assert_eq!(found.offset("task_struct", "pid"), None);
}

/// Every name starts in a long text that has no end.
#[test]
fn names_are_compared_without_searching_for_their_end() {
    let (count, length) = (50_000_u32, 4_000_000_u32);
    let mut bytes = btf::START[..8].to_vec();
    let lengths = [0, 12 * count, 12 * count, length];
    bytes.extend(lengths.map(u32::to_le_bytes).concat());
    for _ in 0..count {
        bytes.extend([0, 4 << 24, 0_u32].map(u32::to_le_bytes).concat());
    }
    bytes.resize(bytes.len() + length as usize, b'x');
    let found = Btf::read(&bytes).unwrap();
    assert_eq!(found.offset("task_struct", "pid"), None);
}

const TASK: u64 = 0x10_0000;
const STACK: u64 = 0x20_0000;

/// Three processes, the second of which has another thread.
fn tasks() -> Words {
    let mut memory = Words::default();
    let (tasks, node) = (16, 96);
    for number in 0..4 {
        let (task, signals) = (TASK + 0x1000 * number, TASK + 0x1000 * number + 0x800);
        memory.put(task, &[0; 0x100]);
        memory.long(task, [0, 1, 0x402, 2][number as usize]);
        memory.put(task + 8, &(number as u32).to_le_bytes());
        let process = if number == 3 { 1 } else { number as u32 };
        memory.put(task + 12, &process.to_le_bytes());
        memory.put(task + 32, format!("task{number}").as_bytes());
        memory.long(task + 48, STACK + 0x1_0000 * number);
        memory.long(task + 88, signals);
        memory.long(signals + 8, task + node);
        memory.long(task + node, signals + 8);
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        memory.long(TASK + 0x1000 * from + tasks, TASK + 0x1000 * to + tasks);
        memory.long(TASK + 0x1000 * to + tasks + 8, TASK + 0x1000 * from + tasks);
    }
    memory.long(TASK + 0x1000 + node, TASK + 0x3000 + node);
    memory.long(TASK + 0x3000 + node, TASK + 0x1800 + 8);
    // The second process sleeps: x29, sp, pc; two frame records.
    let stack = STACK + 0x1_0000;
    for (offset, value) in [
        (64, stack + 0x100),
        (72, stack + 0xf0),
        (80, 0xffff_8000_0800_0010),
    ] {
        memory.long(TASK + 0x1000 + offset, value);
    }
    memory.long(stack + 0x100, stack + 0x200);
    // A return address with an authentication code.
    memory.long(stack + 0x108, 0x1dc3_8000_0800_0020);
    memory.long(stack + 0x200, 0);
    memory.long(stack + 0x208, 0);
    memory
}

fn layout() -> TaskLayout {
    let bytes = kernel_types();
    TaskLayout::of(&Btf::read(&bytes).unwrap()).unwrap()
}

#[test]
fn tasks_are_listed_with_their_threads() {
    let (layout, memory) = (layout(), tasks());
    assert!(layout.is_first(&memory, TASK));
    assert!(!layout.is_first(&memory, TASK + 0x1000));
    assert!(!layout.is_first(&memory, TASK + 8));
    let (found, broken) = layout.all(&memory, TASK);
    assert_eq!(broken, None);
    let names: Vec<_> = found
        .iter()
        .map(|task| (&*task.name, task.pid, task.process))
        .collect();
    assert_eq!(
        names,
        [
            ("task0", 0, 0),
            ("task1", 1, 1),
            ("task3", 3, 1),
            ("task2", 2, 2)
        ]
    );
    let letters: String = found.iter().map(|task| task.doing().0).collect();
    assert_eq!(letters, "RSDI");
    // A zombie (TASK_DEAD and EXIT_ZOMBIE) and a task that has just been created (TASK_NEW).
    let mut changed = tasks();
    changed.put(TASK + 0x1000, &0x80_u32.to_le_bytes());
    changed.put(TASK + 0x1000 + 200, &0x20_u32.to_le_bytes());
    changed.put(TASK + 0x2000, &0x800_u32.to_le_bytes());
    let (found, _) = layout.all(&changed, TASK);
    let letters: String = found.iter().map(|task| task.doing().0).collect();
    assert_eq!(letters, "RZDR");
    let found = layout.all(&memory, TASK).0;
    let frames = found[1].frames(&memory);
    assert_eq!(frames, [0xffff_8000_0800_0010, 0xffff_8000_0800_0020]);
    // Its registers are not on its stack.
    assert_eq!(found[0].frames(&memory), [0; 0]);
}

#[test]
fn damaged_lists_end() {
    let layout = layout();
    let links: Vec<u64> = (0..4)
        .flat_map(|n| [16, 88, 96, 0x808].map(|offset| TASK + 0x1000 * n + offset))
        .collect();
    for &link in &links {
        for value in [
            0,
            TASK + 16,
            TASK + 0x1000 + 96,
            TASK + 0x2000 + 16,
            u64::MAX,
        ] {
            let mut memory = tasks();
            memory.long(link, value);
            let (found, _) = layout.all(&memory, TASK);
            assert!(found.len() <= 16, "{link:#x} {value:#x}: {}", found.len());
        }
        let mut memory = tasks();
        memory.0.remove(&link);
        let (found, _) = layout.all(&memory, TASK);
        assert!(!found.is_empty());
    }
    // A frame record that refers to itself.
    let mut memory = tasks();
    let record = STACK + 0x1_0100;
    memory.long(record, record);
    assert_eq!(
        layout
            .task(&memory, TASK + 0x1000)
            .unwrap()
            .frames(&memory)
            .len(),
        2
    );
    // A list that is circular without its start.
    let mut memory = tasks();
    memory.long(TASK + 0x2000 + 16, TASK + 0x1000 + 16);
    let (_, broken) = layout.all(&memory, TASK);
    assert!(broken.unwrap().contains("damaged"));
}

#[test]
fn a_frame_record_may_be_at_the_end_of_the_address_space() {
    let mut memory = Words::default();
    memory
        .0
        .extend((u64::MAX - 7..=u64::MAX).map(|address| (address, 0)));
    memory.long(0, 8);
    let task = Task {
        address: 0,
        pid: 1,
        process: 1,
        name: String::new(),
        state: 1,
        runs: None,
        stack: u64::MAX - 0xff,
        context: Some([u64::MAX - 7, u64::MAX - 0x7f, 4]),
    };
    assert_eq!(task.frames(&memory), [4, 8]);
}
