//! Checkpoints of a running program: its registers, and the memory that has changed since the one before.

use super::traps::Trap;
use super::{Error, Session, memory};
use crate::record::device_state;
use crate::record::process::{self, PAGE, PageMap};
use crate::record::replay_file::{SharedCalls, Start, locked};
use crate::record::snapshot_files::fit;
use armsnap_snapshot::mapped;
use armsnap_snapshot::snapshot::replay::{Checkpoint, Contents, Piece};
use armsnap_trace::encode::CodeAddress;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The number of events between two checkpoints, if they take little time: about four million instructions.
pub(super) const EVENTS: u64 = 800_000;

/// The number of instructions of an event, on average.
const INSTRUCTIONS: f64 = 5.0;

/// The program runs at least this many times as long as a checkpoint takes,
const RUN_TIMES: u32 = 9;

/// once all of them have taken this long.
const FREE: Duration = Duration::from_secs(1);

/// Changes are found in units of this many bytes. A piece takes 20 more.
const UNIT: usize = 32;

/// The most bytes that are read, or compared, at once.
const READ: usize = 1 << 20;

/// The most bytes that may change from one checkpoint to the next.
const MOST: usize = 1 << 30;

static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Where the contents of a mapping come from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Not known.
    Unknown,
    /// Zeros at first.
    Anonymous,
    /// A file at first, and the difference of offset and address.
    File(PathBuf, u64),
    /// A file or other processes at any time.
    Shared,
}

/// A part of the program's memory.
#[derive(Clone, Debug)]
struct Part {
    range: Range<u64>,
    source: Source,
}

/// How the contents of a page are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// They are as before.
    Same,
    Zeros,
    Read,
}

/// Takes checkpoints of a program.
#[derive(Debug)]
pub(super) struct Checkpoints {
    calls: SharedCalls,
    /// The most bytes of memory of the program.
    most: u64,
    pages: Option<PageMap>,
    /// Which parts of the emulator's mappings belong to the program.
    own: HashMap<(u64, u64), Vec<Range<u64>>>,
    /// The memory of the last checkpoint, by address: of pages that are as at the start, zeros otherwise, or
    /// as in `changed`.
    parts: Vec<Part>,
    /// The pages of the start that are not zeros; `None` before the first checkpoint.
    start: Option<HashSet<u64>>,
    changed: BTreeMap<u64, Box<[u8]>>,
    /// When the last checkpoint was taken, how many instructions had been executed, and how long it took.
    last: (Instant, u64, Duration),
    /// How long all of them took.
    spent: Duration,
    /// The instructions executed per second before it.
    speed: f64,
}

/// What has changed: addresses, lengths, and for bytes their place in `bytes`.
#[derive(Debug, Default)]
struct Changes {
    pieces: Vec<(u64, u64, Option<usize>, bool)>,
    bytes: Vec<u8>,
}

impl Changes {
    fn same(&mut self, address: u64, length: u64, gone: bool) {
        match self.pieces.last_mut() {
            Some((start, before, None, last)) if *last == gone && *start + *before == address => {
                *before += length;
            }
            _ => self.pieces.push((address, length, None, gone)),
        }
    }

    fn bytes(&mut self, address: u64, bytes: &[u8]) {
        let (place, length) = (self.bytes.len(), bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some((start, before, Some(_), _)) if *start + *before == address => *before += length,
            _ => self.pieces.push((address, length, Some(place), false)),
        }
    }

    /// Adds the parts of a page that are different.
    fn differences(&mut self, address: u64, before: &[u8], now: &[u8]) {
        let units = before.chunks(UNIT).zip(now.chunks(UNIT)).enumerate();
        for (index, (_, now)) in units.filter(|(_, (before, now))| before != now) {
            self.bytes(address + (index * UNIT) as u64, now);
        }
    }

    fn pieces(&self) -> Vec<Piece<'_>> {
        let piece = |&(address, length, place, gone): &(u64, u64, Option<usize>, bool)| Piece {
            address,
            length,
            contents: match (place, gone) {
                (Some(place), _) => Contents::Bytes(&self.bytes[place..][..length as usize]),
                (None, true) => Contents::Gone,
                (None, false) => Contents::Zeros,
            },
        };
        self.pieces.iter().map(piece).collect()
    }
}

impl Checkpoints {
    /// Prepares checkpoints of a program of whose memory at most `most` bytes are saved. `None` if it cannot be
    /// replayed.
    pub fn new(session: &Session, most: u64) -> Option<Self> {
        let calls = session.calls.clone()?;
        session.memory.as_ref()?;
        let known = !session.start.registers.is_empty();
        let start = session.start.memory.iter().map(|region| Part {
            range: region.address..region.range().end / PAGE * PAGE,
            source: Source::Unknown,
        });
        known.then(|| Self {
            calls,
            most,
            pages: PageMap::open(session.emulator.pid()).ok(),
            own: HashMap::new(),
            parts: start.collect(),
            start: None,
            changed: BTreeMap::new(),
            last: (Instant::now(), 0, Duration::ZERO),
            spent: Duration::ZERO,
            speed: 0.0,
        })
    }

    /// Notes where the program is stopped, before the tracing thread handles what was executed.
    pub fn stops_at(&self, place: CodeAddress) {
        locked(&self.calls).want(place);
    }

    /// Takes a checkpoint of the stopped program, if the trace has a synchronisation point there. Returns the
    /// number of events after which to ask for the next one; `None` if there will be no more.
    ///
    /// # Errors
    ///
    /// If the emulator does not report its registers.
    pub fn take(
        &mut self,
        session: &mut Session,
        traps: &BTreeMap<u64, Trap>,
        here: CodeAddress,
        (stopped, instructions): (Instant, u64),
    ) -> Result<Option<u64>, Error> {
        let (usable, more) = {
            let mut calls = locked(&self.calls);
            (calls.is_accepted(), calls.takes_checkpoints())
        };
        if !usable {
            // After the events that the plugin holds back.
            return Ok(more.then_some(1));
        }
        let mut registers = device_state::changing(&mut session.emulator.remote)?;
        for constant in &session.start.registers {
            if !registers.iter().any(|there| there.name == constant.name) {
                registers.push(constant.clone());
            }
        }
        let changes = self.changes(session, traps)?;
        if changes.bytes.len() > MOST {
            return Ok(None);
        }
        locked(&self.calls).checkpoint(&Checkpoint {
            offset: 0,
            pc: here.address.0,
            registers,
            memory: changes.pieces(),
        });
        let ran = stopped.saturating_duration_since(self.last.0);
        let executed = instructions.saturating_sub(self.last.1);
        self.speed = executed as f64 / ran.as_secs_f64().max(1e-6);
        self.last = (Instant::now(), instructions, stopped.elapsed());
        self.spent += self.last.2;
        Ok(Some(self.due().max(EVENTS)))
    }

    /// Returns the number of events after which another checkpoint takes a small part of the time.
    pub fn due(&self) -> u64 {
        let (at, _, took) = self.last;
        if self.spent < FREE {
            return 0;
        }
        let rest = (took * RUN_TIMES).saturating_sub(at.elapsed());
        (rest.as_secs_f64() * self.speed / INSTRUCTIONS) as u64
    }

    /// Returns what has changed in the program's memory since the last checkpoint.
    fn changes(
        &mut self,
        session: &mut Session,
        traps: &BTreeMap<u64, Trap>,
    ) -> Result<Changes, Error> {
        let parts = self.parts(session)?;
        let start = self.start.get_or_insert_with(|| not_zero(&session.start));
        let start = std::mem::take(start);
        let mut changes = Changes::default();
        for before in &self.parts {
            let mut from = before.range.start;
            for part in &parts {
                if part.range.end > from && part.range.start < before.range.end {
                    if part.range.start > from {
                        changes.same(from, part.range.start - from, true);
                    }
                    from = part.range.end;
                }
            }
            if from < before.range.end {
                changes.same(from, before.range.end - from, true);
            }
        }
        for &(address, length, _, _) in &changes.pieces {
            let pages = self.changed.range(address..address + length);
            for page in Vec::from_iter(pages.map(|page| *page.0)) {
                self.changed.remove(&page);
            }
        }
        for part in &parts {
            self.compare(session, &start, traps, part, &mut changes);
        }
        (self.parts, self.start) = (parts, Some(start));
        Ok(changes)
    }

    /// Returns the program's memory, by address.
    fn parts(&mut self, session: &mut Session) -> Result<Vec<Part>, Error> {
        let notes = session.emulator.notes.len();
        let mut parts: Vec<Part> = Vec::new();
        let mut own = HashMap::new();
        for mapping in process::mappings(session.emulator.pid())? {
            let Some(range) = memory::range(session, &mapping) else {
                continue;
            };
            let key = (mapping.start, mapping.end);
            let ranges = match self.own.remove(&key) {
                Some(ranges) => ranges,
                None => memory::guest_ranges(session, range.clone())?,
            };
            let source = match mapping.file {
                _ if mapping.shared => Source::Shared,
                Some(file) => Source::File(file, mapping.offset.wrapping_sub(range.start)),
                None => Source::Anonymous,
            };
            parts.extend(ranges.iter().map(|range| Part {
                range: range.clone(),
                source: source.clone(),
            }));
            own.insert(key, ranges);
        }
        self.own = own;
        let mut ranges = parts.iter().map(|part| part.range.clone()).collect();
        let _ = fit(&mut ranges, self.most);
        parts.retain(|part| {
            ranges
                .binary_search_by_key(&part.range.start, |r| r.start)
                .is_ok()
        });
        session.emulator.notes.truncate(notes);
        Ok(parts)
    }

    /// Adds what has changed in a part of the memory.
    fn compare(
        &mut self,
        session: &Session,
        start: &HashSet<u64>,
        traps: &BTreeMap<u64, Trap>,
        part: &Part,
        changes: &mut Changes,
    ) {
        let Some(memory) = &session.memory else {
            return;
        };
        let mut buffer = vec![0; READ];
        let mut from = part.range.start;
        while from < part.range.end {
            let length = (part.range.end - from).min(READ as u64);
            let host = from.wrapping_add(session.base);
            let entries = self.pages.as_ref();
            let entries = entries.and_then(|pages| pages.entries(host, length).ok());
            let look = |at: u64| {
                let entry = entries
                    .as_ref()
                    .map(|entries| entries[((at - from) / PAGE) as usize]);
                self.look(part, start, at, entry)
            };
            let looks: Vec<Look> = (from..from + length)
                .step_by(PAGE as usize)
                .map(look)
                .collect();
            let mut at = from;
            for group in looks.chunk_by(|a, b| a == b) {
                let size = group.len() * PAGE as usize;
                let bytes = &mut buffer[..size];
                let read = match group[0] {
                    Look::Same => 0,
                    Look::Zeros => {
                        bytes.fill(0);
                        size
                    }
                    Look::Read => memory.read(at.wrapping_add(session.base), bytes),
                };
                if group[0] == Look::Read {
                    without_traps(at, bytes, traps);
                }
                for page in bytes[..read].chunks_exact(PAGE as usize) {
                    self.update(&session.start, start, at, page, changes);
                    at += PAGE;
                }
                // Pages that cannot be read are as before.
                at += (size - read / PAGE as usize * PAGE as usize) as u64;
            }
            from += length;
        }
    }

    /// The part of the last checkpoint that has an address.
    fn before(&self, at: u64) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.range.start <= at);
        let part = &self.parts[after.checked_sub(1)?];
        part.range.contains(&at).then_some(part)
    }

    /// Determines how the contents of a page are found, given its entry in the page map.
    fn look(&self, part: &Part, start: &HashSet<u64>, at: u64, entry: Option<u64>) -> Look {
        let Some(entry) = entry else {
            return Look::Read;
        };
        let resident = entry >> 62 != 0;
        let as_mapped = self
            .before(at)
            .is_some_and(|before| before.source == part.source)
            && !self.changed.contains_key(&at);
        match &part.source {
            Source::Anonymous if resident => Look::Read,
            Source::Anonymous if as_mapped && !start.contains(&at) => Look::Same,
            Source::Anonymous => Look::Zeros,
            Source::File(..) if as_mapped && !resident => Look::Same,
            _ => Look::Read,
        }
    }

    /// Adds what has changed in a page.
    fn update(
        &mut self,
        saved: &Start,
        start: &HashSet<u64>,
        at: u64,
        page: &[u8],
        changes: &mut Changes,
    ) {
        let first = if start.contains(&at) {
            of(saved, at)
        } else {
            &ZEROS
        };
        if self.before(at).is_none() {
            match mapped::is_zero(page) {
                true => changes.same(at, PAGE, false),
                false => changes.bytes(at, page),
            }
        } else {
            let before = self.changed.get(&at).map_or(first, |page| page);
            if before == page {
                return;
            }
            changes.differences(at, before, page);
        }
        match self.changed.get_mut(&at) {
            _ if first == page => drop(self.changed.remove(&at)),
            Some(before) => before.copy_from_slice(page),
            None => drop(self.changed.insert(at, page.into())),
        }
    }
}

/// The addresses of the pages at the start that are not zeros.
fn not_zero(start: &Start) -> HashSet<u64> {
    let mut pages = HashSet::new();
    for region in &start.memory {
        for (index, page) in region.bytes.chunks_exact(PAGE as usize).enumerate() {
            if !mapped::is_zero(page) {
                pages.insert(region.address + index as u64 * PAGE);
            }
        }
    }
    pages
}

/// The page at an address at the start.
fn of(start: &Start, at: u64) -> &[u8] {
    let after = start.memory.partition_point(|region| region.address <= at);
    let region = after.checked_sub(1).map(|index| &start.memory[index]);
    let page = region.and_then(|region| {
        let offset = usize::try_from(at - region.address).ok()?;
        region.bytes.get(offset..)?.get(..PAGE as usize)
    });
    page.unwrap_or(&ZEROS)
}

/// Puts the code that traps replace back into memory at an address.
fn without_traps(address: u64, bytes: &mut [u8], traps: &BTreeMap<u64, Trap>) {
    let first = address.saturating_sub(4);
    for (at, trap) in traps.range(first..address + bytes.len() as u64) {
        for (code, at) in trap.original.iter().flatten().zip(*at..) {
            let place = at
                .checked_sub(address)
                .and_then(|at| usize::try_from(at).ok());
            if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
                *byte = *code;
            }
        }
    }
}
