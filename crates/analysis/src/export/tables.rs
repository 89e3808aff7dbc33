//! The contents of the tables: rows of a track, written while it is decoded, and tables of counts,
//! written afterwards.

use super::columns::Table;
use super::happenings::{Happenings, Joined, Taken, event_parts};
use super::images::{Image, Images};
use super::rows::{Sink, Value};
use super::{Analysed, lcov};
use crate::profile::shards::{Line, Piece, Straight};
use crate::profile::{
    Call, EdgeKind, Ended, FunctionKind, Functions, GapSeen, Moment, Profile, Track, gap_name,
};
use armsnap_arch::quantity::Address;
use armsnap_history::decode::Programs;
use armsnap_trace::element::{Context, Mark};
use armsnap_trace::flow::{InstructionKind, Range};
use std::collections::{BTreeMap, HashMap};

/// Writes rows of one track while it is decoded. `EXEC` says whether each executed block is wanted.
#[derive(Debug)]
pub struct Rows<'a, S, const EXEC: bool> {
    sink: S,
    track: String,
    images: &'a Images<'a>,
    numbers: Numbers<'a>,
}

impl<'a, S: Sink, const EXEC: bool> Rows<'a, S, EXEC> {
    /// Starts the rows of a track.
    pub fn new(sink: S, images: &'a Images<'a>, track: &Track) -> Joined<Self> {
        Joined::new(Self {
            sink,
            track: track.name.clone(),
            images,
            numbers: Numbers::new(images, track.core),
        })
    }

    /// Writes a row; the values follow the track's name.
    fn row(&mut self, table: Table, values: &[Value<'_>]) {
        if self.sink.wants(table) {
            let mut all = vec![Value::Text(&self.track)];
            all.extend(values);
            self.sink.put(table, &all);
        }
    }

    fn exec(&mut self, moment: &Moment, straight: &Straight, context: Option<&Context>) {
        let values = exec(&self.track, moment, self.numbers.of(straight), context);
        self.sink.put(Table::Exec, &values);
    }
}

/// The values of a row of `exec`.
fn exec<'v>(
    track: &'v str,
    moment: &Moment,
    what: [Value<'v>; 3],
    context: Option<&Context>,
) -> [Value<'v>; 12] {
    let [buffer, offset] = place(moment);
    let [block, taken, instructions] = what;
    let part = |part: fn(&Context) -> Option<u64>| Value::from(context.and_then(part));
    [
        Value::Text(track),
        Value::Number(moment.instructions),
        buffer,
        offset,
        block,
        taken,
        instructions,
        moment.time.into(),
        moment.cycles.into(),
        part(|context| context.el.map(|el| el.0.into())),
        part(|context| context.context_id.map(u64::from)),
        part(|context| context.vmid.map(u64::from)),
    ]
}

/// Writes the `exec` rows of a shard for one track.
#[derive(Debug)]
pub struct ShardRows<'a, S> {
    /// Receives them.
    pub sink: S,
    track: String,
    numbers: Numbers<'a>,
}

impl<'a, S: Sink> ShardRows<'a, S> {
    /// Starts the rows of a track.
    pub fn new(sink: S, images: &'a Images<'a>, track: &Track) -> Self {
        Self {
            sink,
            track: track.name.clone(),
            numbers: Numbers::new(images, track.core),
        }
    }

    /// Writes the rows of a piece in the buffer with this index among the track's buffers.
    pub fn piece(&mut self, buffer: usize, piece: &Piece) {
        let Some((shard, page)) = piece.from else {
            return;
        };
        for Line {
            moment,
            straight,
            context,
        } in &piece.straight
        {
            let moment = Moment { buffer, ..*moment };
            let what = self.numbers.of(straight);
            let values = exec(&self.track, &moment, what, context.as_ref());
            let mut all = [Value::None; 14];
            all[..12].copy_from_slice(&values);
            all[12] = Value::Number(u64::from(shard) + 1);
            all[13] = Value::Number(page);
            self.sink.put(Table::ShardExec, &all);
        }
    }
}

/// The numbers of executed blocks.
#[derive(Debug)]
struct Numbers<'a> {
    images: &'a Images<'a>,
    core: Option<usize>,
    known: HashMap<BlockKey, u64>,
}

impl<'a> Numbers<'a> {
    fn new(images: &'a Images<'a>, core: Option<usize>) -> Self {
        Self {
            images,
            core,
            known: HashMap::new(),
        }
    }

    /// The values for an executed line: the block and whether its last instruction was taken; on an
    /// unknown path, only the number of instructions.
    fn of<'v>(&mut self, straight: &Straight) -> [Value<'v>; 3] {
        let line = match straight {
            Straight::Line(line) => line,
            Straight::Unknown(instructions) => {
                let instructions = Value::Number((*instructions).into());
                return [Value::None, Value::None, instructions];
            }
        };
        let key = block_key(line);
        let (images, core) = (self.images, self.core);
        let number = self.known.entry(key);
        let number = *number.or_insert_with(|| block_number(images.at(core, line.start.0), key));
        let taken = match line.last.kind {
            InstructionKind::Other => Value::None,
            _ => Value::Flag(line.last.taken),
        };
        [Value::Number(number), taken, Value::None]
    }
}

/// Adds the tables of counts: those of each track to its sink, and those of all tracks to `shared`.
/// Returns the sinks of the tracks, and `shared`.
pub fn complete<S: Sink, const EXEC: bool>(
    analysed: &Analysed<'_>,
    images: &Images<'_>,
    rows: Vec<Joined<Rows<'_, S, EXEC>>>,
    mut shared: S,
) -> Vec<S> {
    let mut sinks = Vec::new();
    for (joined, (track, profile)) in rows.into_iter().zip(analysed.tracks) {
        let mut rows = joined.finish();
        if track.follows {
            functions(&mut rows, profile);
            edges(&mut rows, analysed.programs, track, profile);
        }
        sinks.push(rows.sink);
    }
    if shared.wants(Table::Lines) {
        lines(&mut shared, analysed);
    }
    if shared.wants(Table::Blocks) {
        blocks(&mut shared, analysed, images);
    }
    sinks.push(shared);
    sinks
}

fn functions<S: Sink, const EXEC: bool>(rows: &mut Rows<'_, S, EXEC>, profile: &Profile) {
    let totals = profile.tree.totals(profile.functions.iter().len());
    let own = profile.own();
    let counted = profile.totals.cycles.is_some();
    let cycles = |cycles: u64| Value::from(counted.then_some(cycles));
    for (id, function) in profile.functions.iter() {
        let (own, total) = (own[id.index()], totals[id.index()]);
        if function.calls == 0 && own == (0, 0) && total == (0, 0) {
            continue;
        }
        let kind = match function.kind {
            FunctionKind::Unknown => "unknown",
            FunctionKind::Symbol => "symbol",
            FunctionKind::Target => "target",
            FunctionKind::Exception(_) => "exception",
        };
        rows.row(
            Table::Functions,
            &[
                Value::Text(&function.name),
                function.start.into(),
                function.end.into(),
                Value::Text(kind),
                function.el.map(|el| u64::from(el.0)).into(),
                Value::Number(function.calls),
                Value::Number(own.0),
                Value::Number(total.0),
                cycles(own.1),
                cycles(total.1),
            ],
        );
    }
}

fn edges<S: Sink, const EXEC: bool>(
    rows: &mut Rows<'_, S, EXEC>,
    programs: &Programs,
    track: &Track,
    profile: &Profile,
) {
    let symbols = track.core.and_then(|core| programs.symbols(core));
    let name = |address: Address| {
        let found = symbols.and_then(|symbols| symbols.function(address.0));
        Value::from(found.map(|(name, _)| name))
    };
    let images = rows.images;
    for edge in profile.code.edges() {
        let [from_id, from_in_file] = in_file(images.at(track.core, edge.from.0), edge.from);
        let [to_id, to_in_file] = in_file(images.at(track.core, edge.to.0), edge.to);
        rows.row(
            Table::Edges,
            &[
                Value::Address(edge.from.0),
                Value::Address(edge.to.0),
                Value::Text(edge.kind.name()),
                Value::Number(edge.count),
                name(edge.from),
                name(edge.to),
                from_id,
                from_in_file,
                to_id,
                to_in_file,
            ],
        );
    }
}

/// The build-id, and the address in the file.
fn in_file<'v>(image: Option<&'v Image<'_>>, address: Address) -> [Value<'v>; 2] {
    let build_id = image.and_then(|image| image.build_id.as_deref());
    let here = image.map(|image| Address(image.in_file(address.0)));
    [build_id.into(), here.into()]
}

fn lines(sink: &mut impl Sink, analysed: &Analysed<'_>) {
    let mut sums: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    let programs = lcov::programs(analysed);
    for (file, found) in programs.iter().flat_map(|coverage| &coverage.files) {
        for (&line, count) in &found.lines {
            let sum = sums.entry((file, line)).or_insert(0);
            *sum = sum.saturating_add(*count);
        }
    }
    for ((file, line), count) in sums {
        let values = [
            Value::Text(file),
            Value::Number(line.into()),
            Value::Number(count),
        ];
        sink.put(Table::Lines, &values);
    }
}

/// The properties that distinguish blocks.
type BlockKey = (u64, u64, u32, u32);

fn block_key(line: &Range) -> BlockKey {
    let last = &line.last;
    let flags = [last.link, last.returns, last.conditional];
    let bits = [line.isa as u8, last.kind as u8].into_iter();
    let bits = bits.chain(flags.map(u8::from));
    let bits = bits.fold(0, |all, part| all << 4 | u32::from(part));
    (line.start.0, line.end.0, line.instructions, bits)
}

/// The number of a block: a hash (FNV-1a) of its distinguishing properties and of its program,
/// shortened to 63 bits, so that the same code has the same number on all machines.
fn block_number(image: Option<&Image<'_>>, key: BlockKey) -> u64 {
    let (start, end, instructions, bits) = key;
    let name = image.map_or("", Image::identity).bytes();
    let numbers = [start, end, instructions.into(), bits.into()];
    let bytes = name.chain(numbers.into_iter().flat_map(u64::to_le_bytes));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash >> 1
}

fn blocks(sink: &mut impl Sink, analysed: &Analysed<'_>, images: &Images<'_>) {
    let mut all = BTreeMap::new();
    for (track, profile) in analysed.tracks {
        let symbols = track.core.and_then(|core| analysed.programs.symbols(core));
        let blocks = profile.code.blocks().into_iter();
        let blocks = blocks.map(|block| (block.range(), block.last_at));
        let parts = profile.code.parts().into_iter();
        let parts = parts.map(|part| (part.range, part.last_at));
        for (line, last) in blocks.chain(parts) {
            let key = block_key(&line);
            let image = images.at(track.core, line.start.0);
            let found = all.entry((key, block_number(image, key)));
            found.or_insert((line, last, symbols, image));
        }
    }
    for ((_, number), (line, last, symbols, image)) in all {
        let function = symbols.and_then(|symbols| symbols.function(line.start.0));
        let kind = EdgeKind::of(&line.last).map_or(line.last.kind.name(), EdgeKind::name);
        let [build_id, start_in_file] = in_file(image, line.start);
        let values = [
            Value::Number(number),
            image.map(|image| &*image.path).into(),
            build_id,
            Value::Address(line.start.0),
            Value::Address(line.end.0),
            start_in_file,
            Value::Text(line.isa.name()),
            Value::Number(line.instructions.into()),
            function.map(|(name, _)| name).into(),
            Value::Address(last.0),
            Value::Text(kind),
            Value::Flag(line.last.conditional),
        ];
        sink.put(Table::Blocks, &values);
    }
}

/// The six values of two moments: instructions, cycles, times.
fn span<'v>(begin: &Moment, end: Option<&Moment>) -> [Value<'v>; 6] {
    [
        Value::Number(begin.instructions),
        end.map(|end| end.instructions).into(),
        begin.cycles.into(),
        end.and_then(|end| end.cycles).into(),
        begin.time.into(),
        end.and_then(|end| end.time).into(),
    ]
}

fn place<'v>(moment: &Moment) -> [Value<'v>; 2] {
    [
        Value::Number(moment.buffer as u64),
        Value::Number(moment.at.0),
    ]
}

impl<S: Sink, const EXEC: bool> Happenings for Rows<'_, S, EXEC> {
    const STRAIGHT: bool = EXEC;

    fn straight(&mut self, moment: &Moment, line: &Range, context: Option<&Context>) {
        self.exec(moment, &Straight::Line(*line), context);
    }

    fn unknown_path(&mut self, moment: &Moment, instructions: u32, context: Option<&Context>) {
        self.exec(moment, &Straight::Unknown(instructions), context);
    }

    fn piece(&mut self, begin: &Moment, piece: &Piece) {
        if self.sink.wants(Table::Exec) {
            for line in &piece.straight {
                self.exec(&line.after(begin), &line.straight, line.context.as_ref());
            }
        }
        if let Some((shard, page)) = piece.from.filter(|_| piece.lines() > 0) {
            let values = [
                Value::Number(begin.buffer as u64),
                Value::Number(page),
                Value::Number(u64::from(shard) + 1),
                Value::Number(piece.lines()),
                Value::Number(begin.instructions),
                begin.cycles.into(),
                begin.time.into(),
            ];
            self.row(Table::Pages, &values);
        }
    }

    fn call(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions) {
        let function = functions.get(call.function);
        let mut values = vec![
            Value::Text(&function.name),
            function.start.into(),
            Value::Text(call.kind.name()),
            Value::Signed(call.depth),
            Value::Text(how.name()),
        ];
        values.extend(span(&call.begin, Some(end)));
        values.extend(place(&call.begin));
        values.push(call.returns_to.into());
        self.row(Table::Calls, &values);
    }

    fn exception(&mut self, taken: &Taken) {
        let exception = &taken.exception;
        let mut values = vec![
            Value::Text(exception.name),
            Value::Number(exception.number.into()),
            exception.return_address.into(),
            Value::Flag(taken.returned),
        ];
        values.extend(span(&taken.begin, taken.end.as_ref()));
        values.extend(place(&taken.begin));
        self.row(Table::Exceptions, &values);
    }

    fn gap(&mut self, gap: &GapSeen) {
        let [from, _, first_cycle, last_cycle, first_time, last_time] =
            span(&gap.from, gap.to.as_ref());
        let [buffer, offset] = place(&gap.from);
        let values = [
            Value::Text(gap_name(&gap.gap)),
            from,
            first_cycle,
            last_cycle,
            first_time,
            last_time,
            buffer,
            offset,
            gap.resumes_at.into(),
        ];
        self.row(Table::Gaps, &values);
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        let parts = event_parts(mark);
        let [buffer, offset] = place(moment);
        let values = [
            Value::Text(parts.kind),
            parts.master.into(),
            parts.channel.into(),
            parts.bits.into(),
            parts.value.into(),
            Value::Number(moment.instructions),
            moment.cycles.into(),
            moment.time.into(),
            buffer,
            offset,
        ];
        self.row(Table::Events, &values);
    }
}
