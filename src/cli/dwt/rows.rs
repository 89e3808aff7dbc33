//! The events of a DWT as rows of a table.

use armsnap::export::rows::{Form, Value, line};
use armsnap::report::software::Time;
use armsnap::report::software::dwt::{
    Activation, COUNTERS, Event, Happening, Names, Nesting, Sample, exception_name,
};
use clap::ValueEnum;
use std::io::{self, Write};

/// A kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Executions of exception handlers, in the order of their ends
    Exceptions,
    /// Data accesses
    Values,
    /// Samples of the program counter
    Samples,
    /// Event counters that wrapped
    Counters,
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Exceptions => "exceptions",
            Self::Values => "values",
            Self::Samples => "samples",
            Self::Counters => "counters",
        }
    }

    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Exceptions => &[
                "source",
                "entered",
                "exited",
                "after_losses",
                "seconds",
                "number",
                "name",
                "depth",
                "interrupted",
                "ticks",
                "own_ticks",
            ],
            Self::Values => &[
                "source",
                "time",
                "after_losses",
                "seconds",
                "comparator",
                "variable",
                "access",
                "value",
                "size",
                "pc",
                "function",
                "address",
            ],
            Self::Samples => &[
                "source",
                "time",
                "after_losses",
                "seconds",
                "state",
                "pc",
                "function",
            ],
            Self::Counters => &["source", "time", "after_losses", "seconds", "counters"],
        }
    }
}

/// Writes the names of the columns, where the form has them.
pub fn header(out: &mut impl Write, table: Table, form: Form) -> io::Result<()> {
    match form {
        Form::Csv => writeln!(out, "{}", table.columns().join(",")),
        Form::Jsonl => Ok(()),
    }
}

/// Makes rows of the events of a source.
pub struct Rows {
    source: String,
    table: Table,
    form: Form,
    hertz: Option<f64>,
    nesting: Nesting,
    text: String,
}

impl Rows {
    /// Starts the rows of a source.
    pub fn new(source: &str, table: Table, form: Form, hertz: Option<f64>) -> Self {
        Self {
            source: source.to_owned(),
            table,
            form,
            hertz,
            nesting: Nesting::default(),
            text: String::new(),
        }
    }

    /// Takes the rows since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event, names: &Names) {
        match (self.table, event.what) {
            (Table::Exceptions, Happening::Exception { number, action }) => {
                let mut ended = Vec::new();
                let end = |activation| ended.push(activation);
                self.nesting.exception(number, action, event.time, end);
                self.activations(&ended);
            }
            (Table::Values, Happening::Access(access)) => {
                let variable = names.variables.get(usize::from(access.comparator));
                let variable = variable.and_then(Option::as_deref);
                let function = access.pc.map(|pc| names.function(pc));
                let (time, losses, seconds) = self.time(event.time);
                let kind = access
                    .write
                    .map(|write| if write { "write" } else { "read" });
                let value = access.value.map(|(value, _)| u64::from(value));
                let address = access.address.map(|(address, _)| u64::from(address));
                self.row(&[
                    time,
                    losses,
                    seconds.as_deref().map_or(Value::None, Value::Decimal),
                    Value::Number(access.comparator.into()),
                    variable.into(),
                    kind.into(),
                    value.map_or(Value::None, Value::Address),
                    access.value.map(|(_, size)| u64::from(size)).into(),
                    access
                        .pc
                        .map_or(Value::None, |pc| Value::Address(pc.into())),
                    function.as_deref().into(),
                    address.map_or(Value::None, Value::Address),
                ]);
            }
            (Table::Samples, Happening::Sample(sample)) => {
                let (state, pc) = match sample {
                    Sample::Pc(pc) => ("awake", Some(pc)),
                    Sample::Asleep => ("asleep", None),
                    Sample::Prohibited => ("prohibited", None),
                };
                let function = pc.map(|pc| names.function(pc));
                let (time, losses, seconds) = self.time(event.time);
                self.row(&[
                    time,
                    losses,
                    seconds.as_deref().map_or(Value::None, Value::Decimal),
                    Value::Text(state),
                    pc.map_or(Value::None, |pc| Value::Address(pc.into())),
                    function.as_deref().into(),
                ]);
            }
            (Table::Counters, Happening::Counters(bits)) => {
                let wrapped = COUNTERS.iter().enumerate();
                let wrapped = wrapped.filter(|(bit, _)| bits >> bit & 1 != 0);
                let wrapped: Vec<&str> = wrapped.map(|(_, name)| *name).collect();
                let wrapped = wrapped.join(" ");
                let (time, losses, seconds) = self.time(event.time);
                self.row(&[
                    time,
                    losses,
                    seconds.as_deref().map_or(Value::None, Value::Decimal),
                    Value::Text(&wrapped),
                ]);
            }
            _ => {}
        }
    }

    /// Ends the trace.
    pub fn finish(&mut self) {
        let mut ended = Vec::new();
        self.nesting.finish(|activation| ended.push(activation));
        self.activations(&ended);
    }

    fn activations(&mut self, ended: &[Activation]) {
        for activation in ended {
            let (entered, exited) = (activation.entered.flatten(), activation.exited.flatten());
            let (_, losses, seconds) = self.time(entered.or(exited));
            let name = exception_name(activation.number);
            let ticks = |time: Option<Time>| time.map(|time| time.ticks).into();
            self.row(&[
                ticks(entered),
                ticks(exited),
                losses,
                seconds.as_deref().map_or(Value::None, Value::Decimal),
                Value::Number(activation.number.into()),
                Value::Text(&name),
                Value::Number(activation.depth.into()),
                Value::Number(activation.interrupted.into()),
                activation.ticks.into(),
                activation.own.into(),
            ]);
        }
    }

    /// A time in ticks, the losses before it, and the time in seconds.
    fn time(&self, time: Option<Time>) -> (Value<'static>, Value<'static>, Option<String>) {
        let seconds = time.zip(self.hertz);
        (
            time.map(|time| time.ticks).into(),
            time.map(|time| u64::from(time.losses)).into(),
            seconds.map(|(time, hertz)| format!("{:.9}", time.ticks as f64 / hertz)),
        )
    }

    fn row(&mut self, values: &[Value<'_>]) {
        let values: Vec<Value<'_>> = [&[Value::Text(&self.source)], values].concat();
        let columns = self.table.columns().iter().copied();
        line(
            &mut self.text,
            self.form,
            self.table.name(),
            columns,
            &values,
        );
    }
}
