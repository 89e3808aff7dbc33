//! Tables of calls, exceptions, gaps, events, functions and edges; `docs/reports.md` has the columns.

use super::Analysed;
use super::happenings::{Happenings, Joined, Taken, event_parts};
use super::rows::{Form, Value, row};
use super::spool::Spool;
use crate::decode::Programs;
use crate::element::Mark;
use crate::profile::{
    Call, Ended, FunctionKind, Functions, GapSeen, Moment, Profile, Track, gap_name,
};
use std::io::{self, Write};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Calls, in the order of their ends.
    Calls,
    /// Exceptions, in the order of their ends.
    Exceptions,
    /// Gaps.
    Gaps,
    /// Events, and messages of ITM and STM.
    Events,
    /// Functions.
    Functions,
    /// Branches with their targets.
    Edges,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 6] = [
        Self::Calls,
        Self::Exceptions,
        Self::Gaps,
        Self::Events,
        Self::Functions,
        Self::Edges,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Exceptions => "exceptions",
            Self::Gaps => "gaps",
            Self::Events => "events",
            Self::Functions => "functions",
            Self::Edges => "edges",
        }
    }

    /// The names of its columns.
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Calls => &[
                "track",
                "function",
                "address",
                "kind",
                "depth",
                "ended",
                "begin_instruction",
                "end_instruction",
                "begin_cycle",
                "end_cycle",
                "begin_time",
                "end_time",
                "buffer",
                "offset",
                "returns_to",
            ],
            Self::Exceptions => &[
                "track",
                "name",
                "number",
                "return_address",
                "returned",
                "begin_instruction",
                "end_instruction",
                "begin_cycle",
                "end_cycle",
                "begin_time",
                "end_time",
                "buffer",
                "offset",
            ],
            Self::Gaps => &[
                "track",
                "kind",
                "begin_instruction",
                "begin_cycle",
                "end_cycle",
                "begin_time",
                "end_time",
                "buffer",
                "offset",
                "resumes_at",
            ],
            Self::Events => &[
                "track",
                "kind",
                "master",
                "channel",
                "bits",
                "value",
                "instruction",
                "cycle",
                "time",
                "buffer",
                "offset",
            ],
            Self::Functions => &[
                "track",
                "function",
                "address",
                "end",
                "kind",
                "el",
                "calls",
                "instructions",
                "total_instructions",
                "cycles",
                "total_cycles",
            ],
            Self::Edges => &[
                "track",
                "from",
                "to",
                "kind",
                "count",
                "from_function",
                "to_function",
            ],
        }
    }
}

/// Writes rows of one track while it is decoded.
#[derive(Debug)]
pub struct Rows {
    form: Form,
    tables: Vec<Table>,
    track: String,
    text: String,
    spool: Spool,
}

impl Rows {
    /// Starts the rows of a track.
    pub fn new(form: Form, tables: &[Table], track: &Track) -> Joined<Self> {
        Joined::new(Self {
            form,
            tables: tables.to_vec(),
            track: track.name.clone(),
            text: String::new(),
            spool: Spool::new(),
        })
    }

    /// Writes a row; the values follow the track's name.
    fn row(&mut self, table: Table, values: &[Value<'_>]) {
        if !self.tables.contains(&table) {
            return;
        }
        let mut all = vec![Value::Text(&self.track)];
        all.extend(values);
        debug_assert_eq!(all.len(), table.columns().len());
        let named: Vec<_> = table.columns().iter().copied().zip(all).collect();
        self.text.clear();
        row(&mut self.text, self.form, table.name(), &named);
        self.spool.put(self.text.as_bytes());
    }
}

/// Writes what a listener wrote, and the tables of counts.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(
    form: Form,
    tables: &[Table],
    analysed: &Analysed<'_>,
    rows: Vec<Joined<Rows>>,
    out: &mut impl Write,
) -> io::Result<()> {
    if form == Form::Csv {
        for table in tables {
            writeln!(out, "{}", table.columns().join(","))?;
        }
    }
    for (joined, (track, profile)) in rows.into_iter().zip(analysed.tracks) {
        let mut rows = joined.finish();
        if track.follows {
            functions(&mut rows, profile);
            edges(&mut rows, analysed.programs, track, profile);
        }
        rows.spool.copy_to(out)?;
    }
    Ok(())
}

fn functions(rows: &mut Rows, profile: &Profile) {
    let totals = profile.tree.totals(profile.functions.iter().len());
    // Instructions by code, which is exact; cycles by the calls that were open.
    let mut own = vec![(0_u64, 0_u64); totals.len()];
    for (function, instructions) in profile.code.by_function() {
        own[function.index()].0 = instructions;
    }
    for node in profile.tree.nodes() {
        let sum = &mut own[node.function.index()].1;
        *sum = sum.saturating_add(node.cycles);
    }
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

fn edges(rows: &mut Rows, programs: &Programs, track: &Track, profile: &Profile) {
    let symbols = track.core.and_then(|core| programs.symbols(core));
    for edge in profile.code.edges() {
        let name = |address: u64| {
            let found = symbols.and_then(|symbols| symbols.function(address));
            found.map_or(Value::None, |(name, _)| Value::Text(name))
        };
        let (from, to) = (name(edge.from.0), name(edge.to.0));
        rows.row(
            Table::Edges,
            &[
                Value::Address(edge.from.0),
                Value::Address(edge.to.0),
                Value::Text(edge.kind.name()),
                Value::Number(edge.count),
                from,
                to,
            ],
        );
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

impl Happenings for Rows {
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
            Value::Number(taken.returned.into()),
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
