//! Estimates how much work it is to read a mangled C++ name.
//!
//! The demangler tries the alternatives of the grammar one after the other and forgets what it has
//! read of those that failed: a name of 116 characters can take years. It has no limit of its own
//! except on depth. [`is_affordable`] walks through the same alternatives in the same order, builds
//! nothing, and stops when it has taken too many steps. Names that compilers write need fewer than
//! 20 steps for each character.

mod expressions;
mod types;

/// The number of steps that every name may take, and the number of further steps for each of its
/// bytes.
const STEPS: u32 = 1024;
const STEPS_PER_BYTE: u32 = 32;

/// The depth at which the demangler stops.
const DEPTH: u32 = 96;

/// Names of operators with one, two and three operands.
const UNARY: &[&[u8]] = &[
    b"dl", b"da", b"ps", b"ng", b"ad", b"de", b"co", b"nt", b"pp", b"mm",
];
const BINARY: &[&[u8]] = &[
    b"pl", b"mi", b"ml", b"dv", b"rm", b"an", b"or", b"eo", b"aS", b"pL", b"mI", b"mL", b"dV",
    b"rM", b"aN", b"oR", b"eO", b"ls", b"rs", b"lS", b"rS", b"eq", b"ne", b"lt", b"gt", b"le",
    b"ge", b"aa", b"oo", b"cm", b"pm", b"pt", b"cl", b"ix", b"ss",
];
const TERNARY: &[&[u8]] = &[b"nw", b"na", b"qu"];

/// Returns whether the demangler reads a name within the budget of steps, successfully or not.
pub(super) fn is_affordable(name: &str) -> bool {
    !matches!(Reader::new(name).mangled_name(0), Err(Fault::Work))
}

/// Returns whether a whole name was read.
#[cfg(test)]
pub(super) fn reads(name: &str) -> bool {
    matches!(Reader::new(name).mangled_name(0), Ok(end) if end == name.len())
}

/// Why a part of a name was not read.
enum Fault {
    /// Something else was found.
    Other,
    /// The name is nested too deeply: the demangler gives up.
    Depth,
    /// The steps are used up.
    Work,
}

/// The position after the part that was read.
type End = Result<usize, Fault>;

type Rule<'a> = fn(&mut Reader<'a>, usize) -> End;

struct Reader<'a> {
    name: &'a [u8],
    left: u32,
    depth: u32,
    /// The number of parts so far that later parts can refer to. Parts of failed alternatives
    /// remain.
    substitutions: usize,
    in_conversion: bool,
}

impl<'a> Reader<'a> {
    fn new(name: &'a str) -> Self {
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        Self {
            name: name.as_bytes(),
            left: STEPS_PER_BYTE.saturating_mul(length).saturating_add(STEPS),
            depth: 0,
            substitutions: 0,
            in_conversion: false,
        }
    }

    fn step(&mut self, rule: impl FnOnce(&mut Self) -> End) -> End {
        self.spend(1)?;
        if self.depth + 1 >= DEPTH {
            return Err(Fault::Depth);
        }
        self.depth += 1;
        let end = rule(self);
        self.depth -= 1;
        end
    }

    fn spend(&mut self, steps: usize) -> Result<(), Fault> {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.left = self.left.checked_sub(steps).ok_or(Fault::Work)?;
        Ok(())
    }

    /// Tries an alternative; `None` if something else was found.
    fn attempt(&mut self, rule: Rule<'a>, at: usize) -> Result<Option<usize>, Fault> {
        match rule(self, at) {
            Ok(end) => Ok(Some(end)),
            Err(Fault::Other) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Reads the first alternative that fits.
    fn first(&mut self, rules: &[Rule<'a>], at: usize) -> End {
        for &rule in rules {
            if let Some(end) = self.attempt(rule, at)? {
                return Ok(end);
            }
        }
        Err(Fault::Other)
    }

    fn all(&mut self, rules: &[Rule<'a>], at: usize) -> End {
        rules.iter().try_fold(at, |at, rule| rule(self, at))
    }

    fn optional(&mut self, rule: Rule<'a>, at: usize) -> End {
        Ok(self.attempt(rule, at)?.unwrap_or(at))
    }

    fn any_number(&mut self, rule: Rule<'a>, mut at: usize) -> End {
        while let Some(end) = self.attempt(rule, at)? {
            // Nothing was read, so no further one will be.
            if end == at {
                break;
            }
            at = end;
        }
        Ok(at)
    }

    /// Reads a list that ends with an `E`.
    fn closed(&mut self, rule: Rule<'a>, at: usize) -> End {
        let at = self.any_number(rule, at)?;
        self.text(b"E", at)
    }

    fn peek(&self, at: usize) -> Option<u8> {
        self.name.get(at).copied()
    }

    fn has(&self, text: &[u8], at: usize) -> Option<usize> {
        let rest = self.name.get(at..)?;
        rest.starts_with(text).then_some(at + text.len())
    }

    fn text(&self, text: &[u8], at: usize) -> End {
        self.has(text, at).ok_or(Fault::Other)
    }

    fn one_of(&self, texts: &[&[u8]], at: usize) -> Option<usize> {
        texts.iter().find_map(|text| self.has(text, at))
    }

    /// Reads a number, whose value is limited to the length of a name.
    fn number(&self, at: usize) -> Result<(usize, usize), Fault> {
        let rest = self.name.get(at..).unwrap_or(&[]);
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(Fault::Other);
        }
        let value = rest[..digits].iter().fold(0_usize, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add(usize::from(digit - b'0'))
        });
        Ok((value, at + digits))
    }

    fn optional_number(&self, at: usize) -> usize {
        self.number(at).map_or(at, |(_, end)| end)
    }

    fn substitutable(&mut self, end: usize) -> End {
        self.substitutions += 1;
        Ok(end)
    }

    fn mangled_name(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(at) = s.one_of(&[b"_Z", b"__Z"], at) {
                let at = s.encoding(at)?;
                return s.any_number(Self::clone_suffix, at);
            }
            if let Some(at) = s.one_of(&[b"___Z", b"____Z"], at) {
                let at = s.encoding(at)?;
                return s.text(b"_block_invoke", at);
            }
            s.type_(at)
        })
    }

    fn clone_suffix(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b".", at)?;
            let rest = s.name.get(at..).unwrap_or(&[]);
            let word = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'$' | b'_');
            Ok(at + rest.iter().take_while(word).count())
        })
    }

    fn encoding(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::name, at)? {
                return s.optional(Self::types, end);
            }
            s.special_name(at)
        })
    }

    fn types(&mut self, at: usize) -> End {
        self.step(|s| s.some_types(at))
    }

    fn some_types(&mut self, at: usize) -> End {
        let at = self.type_(at)?;
        self.any_number(Self::type_, at)
    }

    fn name(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::nested_name, at)? {
                return Ok(end);
            }
            if let Some(end) = s.attempt(Self::unscoped_name, at)? {
                if s.peek(end) != Some(b'I') {
                    return Ok(end);
                }
                s.substitutions += 1;
                return s.template_arguments(end);
            }
            if let Some(end) = s.attempt(Self::unscoped_template, at)? {
                return s.template_arguments(end);
            }
            s.local_name(at)
        })
    }

    fn unscoped_name(&mut self, at: usize) -> End {
        self.step(|s| s.unqualified_name(s.has(b"St", at).unwrap_or(at)))
    }

    fn unscoped_template(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::unscoped_name, at)? {
                return s.substitutable(end);
            }
            s.substitution(at)
        })
    }

    fn nested_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"N", at)?;
            let at = match s.has(b"H", at) {
                Some(at) => at,
                None => {
                    let at = s.qualifiers(at)?;
                    s.one_of(&[b"R", b"O"], at).unwrap_or(at)
                }
            };
            let at = s.prefix(at)?;
            s.text(b"E", at)
        })
    }

    fn qualifiers(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.has(b"r", at).unwrap_or(at);
            let at = s.has(b"V", at).unwrap_or(at);
            Ok(s.has(b"K", at).unwrap_or(at))
        })
    }

    fn prefix(&mut self, at: usize) -> End {
        self.step(|s| {
            let mut end = at;
            loop {
                // Each part is read one level deeper than the list of parts.
                let next = s.step(|s| s.prefix_part(end, end > at))?;
                if next == end {
                    return if end > at { Ok(end) } else { Err(Fault::Other) };
                }
                end = next;
            }
        })
    }

    /// Reads one part of a prefix; nothing where the prefix ends.
    fn prefix_part(&mut self, at: usize, further: bool) -> End {
        let end = match self.peek(at) {
            Some(b'E') | None => return Ok(at),
            Some(b'S') => return self.substitution(at),
            Some(b'T') => self.template_parameter(at)?,
            Some(b'D') => match self.attempt(Self::decltype, at)? {
                Some(end) => end,
                None => self.unqualified_name(at)?,
            },
            Some(b'I') if further => self.template_arguments(at)?,
            Some(byte) if byte.is_ascii_digit() || b"LndpacmroelgiqsvCU".contains(&byte) => {
                let end = self.unqualified_name(at)?;
                self.has(b"M", end).unwrap_or(end)
            }
            Some(_) => return Ok(at),
        };
        if self.peek(end) != Some(b'E') {
            self.substitutions += 1;
        }
        Ok(end)
    }

    fn unqualified_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let operator = s.has(b"on", at).unwrap_or(at);
            let end = match s.attempt(Self::operator, operator)? {
                Some(end) => end,
                None => match s.attempt(Self::constructor, at)? {
                    Some(end) => end,
                    None => match s.has(b"L", at) {
                        Some(at) => {
                            let at = s.source_name(at)?;
                            s.optional(Self::discriminator, at)?
                        }
                        None => s.first(&[Self::source_name, Self::closure, Self::unnamed], at)?,
                    },
                },
            };
            s.step(|s| s.any_number(Self::abi_tag, end))
        })
    }

    fn abi_tag(&mut self, at: usize) -> End {
        self.step(|s| s.source_name(s.text(b"B", at)?))
    }

    fn source_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let (length, at) = s.number(at)?;
            let end = at.saturating_add(length);
            let word = s.name.get(at..end).ok_or(Fault::Other)?;
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"$_.".contains(byte);
            match length > 0 && word.iter().all(is_word) {
                true => s.step(|_| Ok(end)),
                false => Err(Fault::Other),
            }
        })
    }

    fn discriminator(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"_", at)?;
            if let Some(at) = s.has(b"_", at) {
                let (_, at) = s.number(at)?;
                return s.text(b"_", at);
            }
            match s.peek(at) {
                Some(digit) if digit.is_ascii_digit() => Ok(at + 1),
                _ => Err(Fault::Other),
            }
        })
    }

    fn unnamed(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"Ut", at)?;
            s.text(b"_", s.optional_number(at))
        })
    }

    fn closure(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"Ul", at)?;
            let at = s.step(|s| match s.has(b"v", at) {
                Some(at) => Ok(at),
                None => s.some_types(at),
            })?;
            let at = s.text(b"E", at)?;
            s.text(b"_", s.optional_number(at))
        })
    }

    fn operator(&mut self, at: usize) -> End {
        self.operator_of(at, true)
    }

    fn operator_of(&mut self, at: usize, conversion: bool) -> End {
        self.step(|s| {
            if let Some(at) = s.simple_operator(at) {
                return Ok(at);
            }
            if let Some(at) = s.has(b"cv", at) {
                let before = std::mem::replace(&mut s.in_conversion, conversion);
                let end = s.type_(at);
                s.in_conversion = before;
                return end;
            }
            if let Some(at) = s.has(b"li", at) {
                return s.source_name(at);
            }
            let at = s.text(b"v", at)?;
            match s.peek(at) {
                Some(digit) if digit.is_ascii_digit() => s.source_name(at + 1),
                _ => Err(Fault::Other),
            }
        })
    }

    fn simple_operator(&self, at: usize) -> Option<usize> {
        let mut kinds = [UNARY, BINARY, TERNARY].into_iter();
        kinds.find_map(|kind| self.one_of(kind, at))
    }

    fn constructor(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.one_of(&[b"D0", b"D1", b"D2", b"D4"], at) {
                return Ok(end);
            }
            let at = s.text(b"C", at)?;
            let inherited = s.has(b"I", at);
            let at = inherited.unwrap_or(at);
            let at = s.one_of(&[b"1", b"2", b"3", b"4"], at);
            let at = at.ok_or(Fault::Other)?;
            match inherited {
                Some(_) => s.type_(at),
                None => Ok(at),
            }
        })
    }

    fn local_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"Z", at)?;
            let at = s.encoding(at)?;
            let at = s.text(b"E", at)?;
            if let Some(at) = s.has(b"s", at) {
                return s.optional(Self::discriminator, at);
            }
            if let Some(at) = s.has(b"d", at) {
                let at = s.text(b"_", s.optional_number(s.has(b"n", at).unwrap_or(at)))?;
                return s.name(at);
            }
            let at = s.name(at)?;
            s.optional(Self::discriminator, at)
        })
    }

    fn special_name(&mut self, at: usize) -> End {
        self.step(|s| {
            let two = s.name.get(at..at + 2).ok_or(Fault::Other)?;
            let end = at + 2;
            match two {
                b"TV" | b"TT" | b"TI" | b"TS" | b"TF" => s.type_(end),
                b"Tc" => {
                    let at = s.call_offset(end)?;
                    let at = s.call_offset(at)?;
                    s.encoding(at)
                }
                b"Th" | b"Tv" => {
                    let at = s.call_offset(at + 1)?;
                    s.encoding(at)
                }
                b"TC" => {
                    let at = s.type_(end)?;
                    let (_, at) = s.number(at)?;
                    let at = s.text(b"_", at)?;
                    s.type_(at)
                }
                b"TH" | b"TW" | b"GV" => s.name(end),
                b"GR" => {
                    let at = s.name(end)?;
                    s.text(b"_", s.sequence(at))
                }
                b"GT" => s.encoding(end + 1),
                // Java resources: a list without nested parts.
                b"Gr" => s.spend(s.name.len()).and(Err(Fault::Other)),
                _ => Err(Fault::Other),
            }
        })
    }

    fn call_offset(&mut self, at: usize) -> End {
        self.step(|s| {
            let (at, numbers) = match s.has(b"h", at) {
                Some(at) => (at, 1),
                None => (s.text(b"v", at)?, 2),
            };
            (0..numbers).try_fold(at, |at, _| {
                let (_, at) = s.number(s.has(b"n", at).unwrap_or(at))?;
                s.text(b"_", at)
            })
        })
    }

    /// Reads the digits of a reference to an earlier part.
    fn sequence(&self, at: usize) -> usize {
        let rest = self.name.get(at..).unwrap_or(&[]);
        let digit = |byte: &&u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        at + rest.iter().take_while(digit).count()
    }

    fn substitution(&mut self, at: usize) -> End {
        self.step(|s| {
            let known: &[&[u8]] = &[b"St", b"Sa", b"Sb", b"Ss", b"Si", b"So", b"Sd"];
            if let Some(end) = s.one_of(known, at) {
                return Ok(end);
            }
            let at = s.text(b"S", at)?;
            let end = s.sequence(at);
            let digits = std::str::from_utf8(&s.name[at..end]).unwrap_or_default();
            let index = match digits {
                "" => 0,
                digits => usize::from_str_radix(digits, 36).map_or(usize::MAX, |n| n + 1),
            };
            match index < s.substitutions {
                true => s.text(b"_", end),
                false => Err(Fault::Other),
            }
        })
    }

    fn template_parameter(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"T", at)?;
            s.text(b"_", s.optional_number(at))
        })
    }

    fn template_template(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(end) = s.attempt(Self::substitution, at)? {
                return Ok(end);
            }
            let end = s.template_parameter(at)?;
            s.substitutable(end)
        })
    }

    fn function_parameter(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"f", at)?;
            let at = match s.has(b"L", at) {
                Some(at) => s.number(at)?.1,
                None => at,
            };
            let at = s.text(b"p", at)?;
            let at = s.qualifiers(at)?;
            match s.has(b"T", at) {
                Some(at) => Ok(at),
                None => s.text(b"_", s.optional_number(at)),
            }
        })
    }

    fn template_arguments(&mut self, at: usize) -> End {
        self.step(|s| {
            let at = s.text(b"I", at)?;
            let at = s.template_argument(at)?;
            s.closed(Self::template_argument, at)
        })
    }

    fn template_argument(&mut self, at: usize) -> End {
        self.step(|s| {
            if let Some(at) = s.has(b"X", at) {
                let at = s.expression(at)?;
                return s.text(b"E", at);
            }
            if let Some(end) = s.attempt(Self::primary, at)? {
                return Ok(end);
            }
            if let Some(end) = s.attempt(Self::type_, at)? {
                return Ok(end);
            }
            let at = s.one_of(&[b"J", b"I"], at).ok_or(Fault::Other)?;
            s.closed(Self::template_argument, at)
        })
    }
}
