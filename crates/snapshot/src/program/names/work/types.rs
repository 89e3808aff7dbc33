//! The types in mangled names.

use super::{End, Fault, Reader};

impl Reader<'_> {
    pub(super) fn type_(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::builtin, at)? {
                return Ok(end);
            }
            let end = match s.has(b"U", at) {
                Some(at) => {
                    let at = s.source_name(at)?;
                    let at = s.optional(Self::template_arguments, at)?;
                    s.type_(at)?
                }
                None => match s.unqualified_type(at)? {
                    (end, true) => end,
                    (end, false) => return Ok(end),
                },
            };
            s.substitutable(end)
        })
    }

    /// Reads a type. Also returns whether later parts of the name can refer to it.
    fn unqualified_type(&mut self, at: usize) -> Result<(usize, bool), Fault> {
        let qualified = self.qualifiers(at)?;
        if qualified > at && !self.begins_function(qualified) {
            return Ok((self.type_(qualified)?, true));
        }
        if let Some(end) = self.attempt(Self::class, at)? {
            return Ok((end, true));
        }
        if let Some(end) = self.attempt(Self::substitution, at)?
            && self.peek(end) != Some(b'I')
        {
            return Ok((end, false));
        }
        for rule in [
            Self::function,
            Self::array,
            Self::vector,
            Self::member_pointer,
        ] {
            if let Some(end) = self.attempt(rule, at)? {
                return Ok((end, true));
            }
        }
        if let Some(end) = self.attempt(Self::template_parameter, at)? {
            if self.peek(end) != Some(b'I') {
                return Ok((end, true));
            }
            if self.in_conversion {
                // This only looks ahead at the arguments, with a copy of the parts that can be
                // referred to.
                let before = self.substitutions;
                self.spend(before)?;
                let arguments = self.attempt(Self::template_arguments, end)?;
                self.substitutions = before;
                if arguments.and_then(|end| self.peek(end)) != Some(b'I') {
                    return Ok((end, true));
                }
            }
        }
        if let Some(end) = self.attempt(Self::template_template, at)? {
            return Ok((self.template_arguments(end)?, true));
        }
        if let Some(end) = self.attempt(Self::decltype, at)? {
            return Ok((end, true));
        }
        let to = self.one_of(&[b"P", b"R", b"O", b"C", b"G", b"Dp"], at);
        Ok((self.type_(to.ok_or(Fault::Other)?)?, true))
    }

    fn builtin(&mut self, at: usize) -> End {
        self.step(|s| {
            match s.peek(at) {
                Some(byte) if b"vwbcahstijlmxynofdegz".contains(&byte) => return Ok(at + 1),
                Some(b'u') => return s.source_name(at + 1),
                _ => {}
            }
            let two: &[&[u8]] = &[
                b"Dd", b"De", b"Df", b"Dh", b"DF16b", b"Di", b"Ds", b"Du", b"Da", b"Dc", b"Dn",
            ];
            if let Some(end) = s.one_of(two, at) {
                return Ok(end);
            }
            let fixed = s.has(b"DS", at).unwrap_or(at);
            if let Some(at) = s.one_of(&[b"DA", b"DR"], fixed) {
                return match s.peek(at) {
                    Some(byte) if b"stijlm".contains(&byte) => Ok(at + 1),
                    _ => Err(Fault::Other),
                };
            }
            s.sized(at)
        })
    }

    /// Reads a number with a given number of bits.
    fn sized(&mut self, at: usize) -> End {
        self.step(|s| {
            let end = s.one_of(&[b"DF", b"DB", b"DU"], at);
            let end = end.ok_or(Fault::Other)?;
            match s.number(end) {
                Ok((_, end)) => s.one_of(&[b"x", b"_"], end).ok_or(Fault::Other),
                Err(_) if s.has(b"DF", at).is_some() => Err(Fault::Other),
                Err(_) => s.expression(end),
            }
        })
    }

    fn begins_function(&self, at: usize) -> bool {
        let begins: &[&[u8]] = &[b"F", b"Do", b"DO", b"Dx", b"Dw"];
        self.one_of(begins, at).is_some()
    }

    fn class(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::name, at)? {
                return Ok(end);
            }
            let at = s.one_of(&[b"Ts", b"Tu", b"Te"], at);
            s.name(at.ok_or(Fault::Other)?)
        })
    }

    fn function(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.qualifiers(at)?;
            let at = s.optional(Self::exceptions, at)?;
            let at = s.has(b"Dx", at).unwrap_or(at);
            let at = s.text(b"F", at)?;
            let at = s.types(s.has(b"Y", at).unwrap_or(at))?;
            let at = s.one_of(&[b"R", b"O"], at).unwrap_or(at);
            s.text(b"E", at)
        })
    }

    fn exceptions(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.has(b"Do", at) {
                return Ok(end);
            }
            let at = s.text(b"DO", at)?;
            let at = s.expression(at)?;
            s.text(b"E", at)
        })
    }

    fn array(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"A", at)?;
            let at = match s.number(at) {
                Ok((_, end)) => end,
                Err(_) => s.optional(Self::expression, at)?,
            };
            let at = s.text(b"_", at)?;
            s.type_(at)
        })
    }

    fn vector(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"Dv", at)?;
            let at = match s.number(at) {
                Ok((_, end)) => end,
                Err(_) => s.expression(at)?,
            };
            let at = s.text(b"_", at)?;
            s.type_(at)
        })
    }

    fn member_pointer(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"M", at)?;
            s.all(&[Self::type_, Self::type_], at)
        })
    }

    pub(super) fn decltype(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.one_of(&[b"Dt", b"DT"], at);
            let at = s.expression(at.ok_or(Fault::Other)?)?;
            s.text(b"E", at)
        })
    }
}
