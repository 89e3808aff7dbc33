//! The expressions in mangled names.

use super::{BINARY, End, Fault, Reader, Rule, TERNARY, UNARY};

impl<'a> Reader<'a> {
    pub(super) fn expression(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(at) = s.one_of(&[b"pp_", b"mm_"], at) {
                return s.expression(at);
            }
            if let Some(end) = s.of_code(at)? {
                return Ok(end);
            }
            if let Some(at) = s.has(b"gs", at)
                && let Some(end) = s.attempt(Self::allocation, at)?
            {
                return Ok(end);
            }
            let rules: [Rule<'a>; 6] = [
                Self::allocation,
                Self::template_parameter,
                Self::function_parameter,
                Self::unresolved_name,
                Self::primary,
                Self::operation,
            ];
            s.first(&rules, at)
        })
    }

    /// Reads an expression whose first two letters tell what follows; `None` for others.
    fn of_code(&mut self, at: usize) -> Result<Option<usize>, Fault> {
        let Some(code) = self.name.get(at..at + 2) else {
            return Ok(None);
        };
        let at = at + 2;
        let end = match code {
            b"cl" => {
                let at = self.expression(at)?;
                self.closed(Self::expression, at)?
            }
            b"cv" => {
                let at = self.type_(at)?;
                match self.has(b"_", at) {
                    Some(at) => self.closed(Self::expression, at)?,
                    None => self.expression(at)?,
                }
            }
            b"tl" => {
                let at = self.type_(at)?;
                self.closed(Self::expression, at)?
            }
            b"il" => self.closed(Self::expression, at)?,
            b"dc" | b"sc" | b"cc" | b"rc" => self.all(&[Self::type_, Self::expression], at)?,
            b"ti" | b"st" | b"at" => self.type_(at)?,
            b"te" | b"sz" | b"az" | b"nx" | b"sp" | b"tw" => self.expression(at)?,
            b"so" => self.step(|s| {
                let at = s.all(&[Self::type_, Self::expression], at)?;
                let at = s.optional_number(s.has(b"n", at).unwrap_or(at));
                s.text(b"E", at)
            })?,
            b"dt" | b"pt" => self.all(&[Self::expression, Self::member_name], at)?,
            b"ds" => self.all(&[Self::expression, Self::expression], at)?,
            b"sZ" => self.first(&[Self::template_parameter, Self::function_parameter], at)?,
            b"sP" => self.closed(Self::template_argument, at)?,
            b"fl" | b"fr" => self.fold(at, 1)?,
            b"fR" => self.fold(at, 2)?,
            b"fL" if self.peek(at).is_some_and(|byte| !byte.is_ascii_digit()) => {
                self.fold(at, 2)?
            }
            b"tr" => at,
            _ => return Ok(None),
        };
        Ok(Some(end))
    }

    fn fold(&mut self, at: usize, operands: usize) -> End {
        self.step(|s| {
            let at = s.one_of(BINARY, at).ok_or(Fault::Other)?;
            (0..operands).try_fold(at, |at, _| s.expression(at))
        })
    }

    fn member_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.unqualified_name(at)?;
            s.optional(Self::template_arguments, at)
        })
    }

    /// Reads `new` and `delete`.
    fn allocation(&mut self, at: usize) -> End {
        if let Some(at) = self.one_of(&[b"dl", b"da"], at) {
            return self.expression(at);
        }
        let at = self.one_of(&[b"nw", b"na"], at).ok_or(Fault::Other)?;
        let at = self.any_number(Self::expression, at)?;
        let at = self.text(b"_", at)?;
        let at = self.type_(at)?;
        if let Some(end) = self.has(b"E", at) {
            return Ok(end);
        }
        self.step(|s| {
            let at = s.text(b"pi", at)?;
            s.closed(Self::expression, at)
        })
    }

    fn operation(&mut self, at: usize) -> End {
        let end = self.operator_of(at, false)?;
        let operands = match at {
            at if self.one_of(UNARY, at).is_some() => 1,
            at if self.one_of(BINARY, at).is_some() => 2,
            at if self.one_of(TERNARY, at).is_some() => 3,
            at if self.peek(at) != Some(b'v') => 1,
            at => match self.peek(at + 1) {
                Some(digit @ b'1'..=b'3') => digit - b'0',
                _ => return Err(Fault::Other),
            },
        };
        (0..operands).try_fold(end, |at, _| self.expression(at))
    }

    fn unresolved_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let global = s.has(b"gs", at);
            let at = global.unwrap_or(at);
            if let Some(end) = s.attempt(Self::base_name, at)? {
                return Ok(end);
            }
            let at = s.text(b"sr", at)?;
            if global.is_some() {
                return s.levels(at);
            }
            if let Some(at) = s.has(b"N", at) {
                let at = s.unresolved_type(at)?;
                return s.levels(at);
            }
            match s.attempt(Self::unresolved_type, at)? {
                Some(at) => s.base_name(at),
                None => s.levels(at),
            }
        })
    }

    /// Reads the names of enclosing types and namespaces, and the name in them.
    fn levels(&mut self, at: usize) -> End {
        let level: Rule<'a> = |s, at| s.step(|s| s.simple_name(at));
        let at = level(self, at)?;
        let at = self.closed(level, at)?;
        self.base_name(at)
    }

    fn unresolved_type(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::template_parameter, at)? {
                let end = s.optional(Self::template_arguments, end)?;
                return s.substitutable(end);
            }
            if let Some(end) = s.attempt(Self::decltype, at)? {
                return s.substitutable(end);
            }
            s.substitution(at)
        })
    }

    fn simple_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.source_name(at)?;
            s.optional(Self::template_arguments, at)
        })
    }

    fn base_name(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::simple_name, at)? {
                return Ok(end);
            }
            if let Some(at) = s.has(b"on", at) {
                let at = s.operator(at)?;
                return s.optional(Self::template_arguments, at);
            }
            let at = s.text(b"dn", at)?;
            s.step(|s| s.first(&[Self::unresolved_type, Self::simple_name], at))
        })
    }

    pub(super) fn primary(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"L", at)?;
            if let Some(end) = s.attempt(Self::type_, at)? {
                let rest = s.name.get(end..).unwrap_or(&[]);
                let value = rest.iter().take_while(|byte| **byte != b'E').count();
                // The demangler searches for the end of long literals repeatedly.
                s.spend(value / 16)?;
                return s.text(b"E", end + value);
            }
            let at = s.mangled_name(at)?;
            s.text(b"E", at)
        })
    }
}
