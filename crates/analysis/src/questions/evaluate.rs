//! What an expression means at a position: where its value is, and the value.

use super::answer::Worth;
use super::core::Core;
use super::epilogue::{LENGTH, is_near_return};
use super::expression::Expression;
use super::fields::{are_known, paths};
use super::note::AskError;
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{Known, RegisterLocations, Registers, Status};
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::symbols::variables::{
    Encoding, Layout, Machine, Placement, TypeId, Variable,
};
use armsnap_snapshot::stop::Cancel;
use std::collections::HashMap;
use std::ops::Range;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// In memory, from this address on.
    Memory(u64),
    /// In a register.
    Register(Location),
    /// Nowhere, but it has this value.
    Value(u64),
}

/// What an expression means at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub cell: Cell,
    pub kind: Option<TypeId>,
    /// For a bit field: its first bit, counted from the start of `cell`, and its size.
    bits: Option<(u64, u64)>,
    /// How well it is known where it is.
    status: Status,
}

/// An expression with the variables that it names, for one scope.
pub(super) struct Evaluator {
    expression: Expression,
    text: String,
    /// What the names mean.
    names: HashMap<String, Meaning>,
}

/// What a name means.
enum Meaning {
    Variable(Variable),
    /// A member of the object to which this variable points.
    OfThis(Variable),
    Register,
}

/// An evaluation at one position.
struct At<'e, 'c, 'a> {
    evaluator: &'e Evaluator,
    core: &'c mut Core<'a>,
    at: Position,
    pc: u64,
    registers: Registers,
    cancel: &'e Cancel,
    /// The least status of what was read since it was reset.
    status: Status,
    /// The memory that says where the object is.
    reads: Vec<Range<u64>>,
    failed: Option<AskError>,
}

/// The result at one position.
pub(super) struct Evaluated {
    /// Where the object is, if that is known.
    pub object: Option<Object>,
    /// The memory that its place and its value depend on.
    pub reads: Vec<Range<u64>>,
    /// Its value.
    pub worth: Worth,
    /// The canonical frame address of the function, if call frame information gives one.
    pub frame: Option<u64>,
}

impl Evaluator {
    /// Finds the variables of an expression in the scope of an instruction.
    ///
    /// # Errors
    ///
    /// If it is not an expression, or names something that does not exist.
    pub fn new(core: &Core<'_>, text: &str, pc: Option<u64>) -> Result<Self, AskError> {
        let expression = Expression::parse(text)?;
        let mut names = HashMap::new();
        let mut open = vec![&expression];
        while let Some(part) = open.pop() {
            match part {
                Expression::Name(name) => {
                    let meaning = meaning(core, name, pc)?;
                    names.insert(name.clone(), meaning);
                }
                Expression::Register(name) => {
                    if RegisterLocations::of(core.architecture, name).is_none() {
                        return Err(AskError::NoVariable(format!("${name}")));
                    }
                }
                Expression::Number(_) => {}
                Expression::Target(inner)
                | Expression::Address(inner)
                | Expression::Field(inner, _) => open.push(inner),
                Expression::Element(one, other) | Expression::Member(one, other) => {
                    open.extend([&**one, &**other]);
                }
            }
        }
        Ok(Self {
            expression,
            text: text.to_owned(),
            names,
        })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it depends on registers, or on variables of a function.
    pub fn is_local(&self) -> bool {
        let mut open = vec![&self.expression];
        while let Some(part) = open.pop() {
            match part {
                Expression::Register(_) => return true,
                Expression::Name(name) => match self.names.get(name) {
                    Some(Meaning::Variable(variable)) if variable.is_global() => {}
                    _ => return true,
                },
                Expression::Number(_) => {}
                Expression::Target(inner)
                | Expression::Address(inner)
                | Expression::Field(inner, _) => open.push(inner),
                Expression::Element(one, other) | Expression::Member(one, other) => {
                    open.extend([&**one, &**other]);
                }
            }
        }
        false
    }

    /// Evaluates it before the instruction at a position.
    ///
    /// # Errors
    ///
    /// If it has no meaning for the types of its variables, or the work was cancelled.
    pub fn at(
        &self,
        core: &mut Core<'_>,
        at: Position,
        cancel: &Cancel,
    ) -> Result<Evaluated, AskError> {
        let registers = core.registers(at, cancel)?;
        // In a gap, no instruction.
        let pc = core.pc(at).unwrap_or(u64::MAX);
        let mut here = At {
            evaluator: self,
            core,
            at,
            pc,
            registers,
            cancel,
            status: Status::Proved,
            reads: Vec::new(),
            failed: None,
        };
        let object = here.object(&self.expression)?;
        let (mut worth, mut whole) = (Worth::UNKNOWN, None);
        if let Some(object) = object {
            whole = match object.bits {
                Some((first, size)) => Some((first + size).div_ceil(8)),
                None => object.kind.and_then(|kind| here.core.symbols.size(kind)),
            };
            let found = here.value(object)?;
            worth = found.map_or(Worth::UNKNOWN, |(value, status)| {
                Worth::known(value, status)
            });
        }
        let frame = here.frame();
        let mut reads = here.reads;
        if let Some(Object {
            cell: Cell::Memory(address),
            ..
        }) = object
        {
            let size = whole.unwrap_or(1);
            reads.push(address..address.saturating_add(size));
        }
        Ok(Evaluated {
            object,
            reads,
            worth,
            frame,
        })
    }
}

impl Evaluated {
    /// Whether it is a structure or an array, which has no value as a whole.
    pub fn is_record(&self, core: &Core<'_>) -> bool {
        let kind = self.object.and_then(|object| object.kind);
        let layout = kind.and_then(|kind| core.symbols.layout(kind));
        matches!(layout, Some(Layout::Record { .. } | Layout::Array { .. }))
    }

    /// The memory in which the object is.
    pub fn range(&self) -> Option<Range<u64>> {
        match self.object?.cell {
            Cell::Memory(_) => self.reads.last().cloned(),
            _ => None,
        }
    }
}

impl At<'_, '_, '_> {
    fn meaningless(&self) -> AskError {
        AskError::Meaningless(self.evaluator.text.clone())
    }

    /// Where an expression is; `None` if that is not known here.
    fn object(&mut self, expression: &Expression) -> Result<Option<Object>, AskError> {
        match expression {
            Expression::Name(name) => match self.evaluator.names.get(name) {
                Some(Meaning::Variable(variable)) => {
                    let object = self.variable(variable)?;
                    self.referred(object)
                }
                Some(Meaning::OfThis(this)) => {
                    let this = self.variable(this)?;
                    self.field(this, name)
                }
                _ => Ok(self.named_register(&name.to_ascii_lowercase())),
            },
            Expression::Register(name) => Ok(self.named_register(name)),
            Expression::Number(number) => Ok(Some(Object {
                cell: Cell::Value(*number),
                kind: None,
                bits: None,
                status: Status::Proved,
            })),
            Expression::Address(inner) => {
                let Some(object) = self.object(inner)? else {
                    return Ok(None);
                };
                match object.cell {
                    Cell::Memory(address) => Ok(Some(Object {
                        cell: Cell::Value(address),
                        kind: None,
                        ..object
                    })),
                    _ => Err(self.meaningless()),
                }
            }
            Expression::Target(inner) => self.element(inner, 0),
            Expression::Element(inner, index) => {
                let Some(index) = self.object(index)? else {
                    return Ok(None);
                };
                let Some((number, status)) = self.index(index)? else {
                    return Ok(None);
                };
                let element = self.element(inner, number)?.map(|element| Object {
                    status: element.status.max(status),
                    ..element
                });
                self.referred(element)
            }
            Expression::Field(inner, name) => {
                let object = self.object(inner)?;
                self.field(object, name)
            }
            Expression::Member(inner, member) => {
                let (object, member) = (self.object(inner)?, self.object(member)?);
                let (Some(object), Some(member)) = (object, member) else {
                    return Ok(None);
                };
                self.pointed_member(object, member)
            }
        }
    }

    fn layout(&self, object: Object) -> Option<Layout> {
        self.core.symbols.layout(object.kind?)
    }

    /// What a reference refers to; other objects themselves.
    fn referred(&mut self, object: Option<Object>) -> Result<Option<Object>, AskError> {
        let Some(found) = object else {
            return Ok(None);
        };
        match self.layout(found) {
            Some(Layout::Pointer {
                to,
                is_reference: true,
                ..
            }) => self.target(found, to),
            _ => Ok(object),
        }
    }

    /// The structure that a pointer points to; other objects themselves.
    fn pointed(&mut self, object: Object) -> Result<Option<Object>, AskError> {
        match self.layout(object) {
            Some(Layout::Pointer { to, .. }) => self.target(object, to),
            _ => Ok(Some(object)),
        }
    }

    /// A field of a structure, or of the structure that a pointer points to.
    fn field(&mut self, object: Option<Object>, name: &str) -> Result<Option<Object>, AskError> {
        let Some(object) = object else {
            return Ok(None);
        };
        let Some(object) = self.pointed(object)? else {
            return Ok(None);
        };
        let kind = object.kind.ok_or_else(|| self.meaningless())?;
        let paths = paths(self.core.symbols, kind, name);
        let mut found: Option<Object> = None;
        for path in &paths {
            let Some(last) = path.last() else { continue };
            let Cell::Memory(mut address) = object.cell else {
                return Ok(None);
            };
            self.status = object.status;
            for field in path {
                let symbols = self.core.symbols;
                let inner = symbols.member(field, address, self);
                if let Some(error) = self.failed.take() {
                    return Err(error);
                }
                match inner {
                    Some(inner) => address = inner,
                    None => return Ok(None),
                }
            }
            let one = Object {
                cell: Cell::Memory(address),
                kind: Some(last.kind),
                bits: last.bits.map(|(first, size)| (first % 8, size)),
                status: self.status,
            };
            // A virtual base class may be reached in several ways.
            if found.is_some_and(|found| found.cell != one.cell) {
                return Err(AskError::SeveralFields(name.to_owned()));
            }
            found = Some(one);
        }
        if found.is_none() {
            return Err(AskError::NoField(name.to_owned()));
        }
        self.referred(found)
    }

    /// The member of an object to which a pointer to a member points.
    fn pointed_member(
        &mut self,
        object: Object,
        member: Object,
    ) -> Result<Option<Object>, AskError> {
        let Some(Layout::MemberPointer { to, .. }) = self.layout(member) else {
            return Err(self.meaningless());
        };
        let Some(object) = self.pointed(object)? else {
            return Ok(None);
        };
        let (Some((offset, status)), Cell::Memory(address)) = (self.index(member)?, object.cell)
        else {
            return Ok(None);
        };
        // No member.
        if offset == u64::MAX {
            return Ok(None);
        }
        Ok(Some(Object {
            cell: Cell::Memory(address.wrapping_add(offset)),
            kind: to,
            bits: None,
            status: object.status.max(status),
        }))
    }

    fn named_register(&self, name: &str) -> Option<Object> {
        let places = RegisterLocations::of(self.core.architecture, name)?;
        Some(Object {
            cell: Cell::Register(places.low()),
            kind: None,
            bits: None,
            status: Status::Proved,
        })
    }

    fn variable(&mut self, variable: &Variable) -> Result<Option<Object>, AskError> {
        self.status = Status::Proved;
        let (symbols, pc) = (self.core.symbols, self.pc);
        let placed = symbols.place(variable, pc, self);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let cell = match placed {
            Some(Placement::Memory(address)) => Some(Cell::Memory(address)),
            Some(Placement::Value(value)) => Some(Cell::Value(value)),
            Some(Placement::Register(number)) => self.core.location(number).map(Cell::Register),
            None => None,
        };
        Ok(cell.map(|cell| Object {
            cell,
            kind: variable.kind,
            bits: None,
            status: self.status,
        }))
    }

    /// The value of an index, extended to 64 bits, and its status.
    fn index(&mut self, index: Object) -> Result<Option<(u64, Status)>, AskError> {
        self.depends_on(index);
        let layout = index.kind.and_then(|kind| self.core.symbols.layout(kind));
        let unused = match layout {
            Some(
                Layout::Number {
                    bytes: bytes @ 1..=8,
                    encoding: Encoding::Signed,
                }
                | Layout::MemberPointer {
                    bytes: bytes @ 1..=8,
                    ..
                },
            ) => 64 - 8 * bytes,
            _ => 0,
        };
        let found = self.value(index)?;
        Ok(found.map(|(value, status)| {
            let value = (value as u64) << unused;
            ((value.cast_signed() >> unused).cast_unsigned(), status)
        }))
    }

    /// Notes the memory that a number is in, on which the place of the object depends.
    fn depends_on(&mut self, number: Object) {
        if let (Cell::Memory(address), Some(kind)) = (number.cell, number.kind)
            && let Some(size) = self.core.symbols.size(kind)
        {
            self.reads.push(address..address.saturating_add(size));
        }
    }

    /// An element of an array, or one after a pointer.
    fn element(&mut self, of: &Expression, index: u64) -> Result<Option<Object>, AskError> {
        let Some(object) = self.object(of)? else {
            return Ok(None);
        };
        let symbols = self.core.symbols;
        let layout = object.kind.and_then(|kind| symbols.layout(kind));
        let first = match layout {
            Some(Layout::Array { element, .. }) => Some(Object {
                kind: Some(element),
                ..object
            }),
            Some(Layout::Pointer { to, .. }) => self.target(object, to)?,
            _ => return Err(self.meaningless()),
        };
        let Some(first) = first else {
            return Ok(None);
        };
        let size = first.kind.and_then(|kind| symbols.size(kind));
        match (first.cell, size) {
            (Cell::Memory(address), Some(size)) => {
                let address = address.wrapping_add(index.wrapping_mul(size));
                Ok(Some(Object {
                    cell: Cell::Memory(address),
                    ..first
                }))
            }
            _ => Err(self.meaningless()),
        }
    }

    /// What a pointer points to.
    fn target(&mut self, pointer: Object, to: Option<TypeId>) -> Result<Option<Object>, AskError> {
        self.depends_on(pointer);
        let found = self.value(pointer)?;
        Ok(found.map(|(address, status)| Object {
            cell: Cell::Memory(address as u64),
            kind: to,
            bits: None,
            status,
        }))
    }

    /// Whether the function returns with one of the next instructions.
    fn is_near_return(&mut self) -> bool {
        let read = self.core.memory(self.at, self.pc, LENGTH, self.cancel);
        let code = read.unwrap_or_default();
        let code: Vec<u8> = code.iter().map_while(|byte| Some((*byte)?.value)).collect();
        code.len() < 4 || is_near_return(self.core.architecture, &code)
    }

    /// The number of bytes of a register, or of a value without a place, that are those of a number.
    fn width(&self, cell: Cell) -> u64 {
        match (cell, self.core.architecture) {
            (Cell::Memory(_), _) => 16,
            (_, Architecture::AArch64) => 8,
            (_, Architecture::AArch32 | Architecture::MProfile) => 4,
        }
    }

    /// The value of a number or a pointer; `None` if it is unknown or something else.
    fn value(&mut self, object: Object) -> Result<Option<(u128, Status)>, AskError> {
        let layout = object.kind.and_then(|kind| self.core.symbols.layout(kind));
        let is_signed = matches!(
            layout,
            Some(Layout::Number {
                encoding: Encoding::Signed,
                ..
            })
        );
        let bytes = match (layout, object.kind) {
            (
                Some(
                    Layout::Number { bytes, .. }
                    | Layout::Pointer { bytes, .. }
                    | Layout::MemberPointer { bytes, .. },
                ),
                _,
            ) if bytes <= self.width(object.cell) => bytes,
            (None, None) => 8,
            _ => return Ok(None),
        };
        let Some(bytes) = u8::try_from(bytes)
            .ok()
            .filter(|bytes| (1..=16).contains(bytes))
        else {
            return Ok(None);
        };
        let read = match object.bits {
            Some((first, size)) => match u8::try_from((first + size).div_ceil(8)) {
                Ok(read @ ..=16) => read,
                _ => return Ok(None),
            },
            None => bytes,
        };
        let (value, status) = match object.cell {
            Cell::Value(value) => (u128::from(value), Status::Proved),
            Cell::Register(location) => match self.registers.get(location) {
                Some(Known { value, status }) => (value.into(), status),
                None => return Ok(None),
            },
            Cell::Memory(address) => {
                let length = usize::from(read.min(16));
                let known = self.core.memory(self.at, address, length, self.cancel)?;
                match self.core.known(&known) {
                    Some(known) => known,
                    None => return Ok(None),
                }
            }
        };
        let whole = u128::MAX >> (128 - 8 * u32::from(bytes));
        let value = match object.bits {
            Some((first, size)) => {
                let unused = match self.core.big_endian {
                    true => (8 * u64::from(read)).checked_sub(first + size),
                    false => Some(first),
                };
                let unused = unused.and_then(|unused| u32::try_from(unused).ok());
                let shifted = unused.and_then(|unused| value.checked_shr(unused));
                let Some(shifted) = shifted else {
                    return Ok(None);
                };
                let value = shifted & !u128::MAX.checked_shl(size as u32).unwrap_or(0);
                match is_signed && value >> (size - 1) & 1 == 1 {
                    // As negative numbers of its type are.
                    true => (value | u128::MAX.checked_shl(size as u32).unwrap_or(0)) & whole,
                    false => value,
                }
            }
            None => value & whole,
        };
        Ok(Some((value, status.max(object.status))))
    }
}

impl Machine for At<'_, '_, '_> {
    fn register(&mut self, number: u16) -> Option<u64> {
        let known = self.registers.get(self.core.location(number)?)?;
        self.status = self.status.max(known.status);
        Some(known.value)
    }

    fn memory(&mut self, address: u64, bytes: u8) -> Option<u64> {
        let read = self
            .core
            .memory(self.at, address, bytes.into(), self.cancel);
        match read {
            Ok(found) => {
                let (value, status) = self.core.known(&found)?;
                self.status = self.status.max(status);
                u64::try_from(value).ok()
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn frame(&mut self) -> Option<u64> {
        let frame = (self.core.frames)().at(self.pc)?;
        let base = Machine::register(self, frame.register)?;
        Some(base.wrapping_add_signed(frame.offset))
    }

    fn keeps_frame(&mut self, since: u64) -> bool {
        let frames = (self.core.frames)();
        let frame = frames.at(self.pc);
        frame.is_some() && frame == frames.at(since) && !self.is_near_return()
    }
}

/// Finds what a name means in the scope of an instruction.
fn meaning(core: &Core<'_>, name: &str, pc: Option<u64>) -> Result<Meaning, AskError> {
    let symbols = core.symbols;
    if let Some(pc) = pc {
        if let Some(local) = symbols.local(name, pc) {
            return Ok(Meaning::Variable(local));
        }
        let this = symbols.local("this", pc);
        if let Some(this) = this {
            let layout = this.kind.and_then(|class| symbols.layout(class));
            let class = match layout {
                Some(Layout::Pointer { to, .. }) => to,
                _ => None,
            };
            let is_member = |class| !paths(symbols, class, name).is_empty();
            if class.is_some_and(is_member) {
                return Ok(Meaning::OfThis(this));
            }
            // It may be a member that is not known.
            if !class.is_some_and(|class| are_known(symbols, class)) {
                return Err(AskError::NoVariable(name.to_owned()));
            }
        }
    }
    if let Some(global) = symbols.global(name, pc)? {
        return Ok(Meaning::Variable(global));
    }
    if let Some(local) = pc.and_then(|pc| symbols.local_elsewhere(name, pc)) {
        return Ok(Meaning::Variable(local));
    }
    match RegisterLocations::of(core.architecture, &name.to_ascii_lowercase()) {
        Some(_) => Ok(Meaning::Register),
        None => Err(AskError::NoVariable(name.to_owned())),
    }
}
