//! Demangling and matching of function names.
//!
//! No other module demangles C++ and Rust symbols. Names come from untrusted files: a short name
//! can expand to gigabytes, or take years to read.

mod work;

use std::fmt::{self, Write};

/// The longest demangled name; longer names are shown as in the file.
const LONGEST: usize = 4096;

/// Text up to [`LONGEST`] bytes.
#[derive(Default)]
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The form of a demangled name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameForm {
    Whole,
    WithoutParameters,
}

/// Returns a symbol's name without the version suffix (`memcpy@@GLIBC_2.17`).
pub(super) fn unversioned(name: &str) -> &str {
    match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// Demangles a name; `None` if it is not mangled.
pub(super) fn demangled(name: &str) -> Option<String> {
    demangle(name, NameForm::Whole)
}

fn demangle(name: &str, form: NameForm) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("_R") || name.len() > LONGEST {
        return None;
    }
    let mut out = Limited::default();
    // Legacy Rust names are C++ names too, with a hash suffix.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(out, "{rust:#}").ok()?;
    } else {
        if !work::is_affordable(name) {
            return None;
        }
        let mut options = cpp_demangle::DemangleOptions::new().no_return_type();
        if form == NameForm::WithoutParameters {
            options = options.no_params();
        }
        let symbol = cpp_demangle::Symbol::new(name).ok()?;
        symbol.structured_demangle(&mut out, &options).ok()?;
    }
    Some(out.0)
}

/// The ways in which the user's text can match the name of a function, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    /// It is the name in the file.
    Symbol,
    /// It is the name in the source, with parameters if any.
    Whole,
    /// It is the name in the source without parameters.
    Function,
    /// It is the name in the source without parameters and without enclosing namespaces or types.
    Last,
}

/// Returns how `wanted` matches the function with the symbol `name`, ignoring white space.
pub(super) fn matches(wanted: &str, name: &str) -> Option<Match> {
    if wanted == name {
        return Some(Match::Symbol);
    }
    let same = |found: &str| letters(found).eq(letters(wanted));
    if same(&demangled(name)?) {
        return Some(Match::Whole);
    }
    let function = demangle(name, NameForm::WithoutParameters)?;
    if same(&function) {
        return Some(Match::Function);
    }
    let mut scopes = function.match_indices("::");
    let inner = scopes.any(|(at, scope)| same(&function[at + scope.len()..]));
    inner.then_some(Match::Last)
}

fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpp_and_rust() {
        for (name, wanted) in [
            (
                "_ZN4shop5priceEPKNS_4ItemEi",
                "shop::price(shop::Item const*, int)",
            ),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC3foo3bar", "foo::bar"),
            // The symbol of a template includes its return type, which GDB does not show.
            ("_Z3maxIiET_S0_S0_", "max<int>(int, int)"),
        ] {
            assert_eq!(demangled(name).as_deref(), Some(wanted), "{name}");
        }
        for name in ["main", "_Z", "_ZN4shop", "_R", "_start", "_ZZZZ", ""] {
            assert_eq!(demangled(name), None, "{name}");
        }
    }

    #[test]
    fn names_match_in_every_usual_form() {
        let name = "_ZN4shop5priceEPKNS_4ItemEi";
        for (wanted, found) in [
            (name, Some(Match::Symbol)),
            ("shop::price(shop::Item const*,int)", Some(Match::Whole)),
            ("shop::price", Some(Match::Function)),
            ("price", Some(Match::Last)),
            ("rice", None),
            ("shop", None),
            ("", None),
        ] {
            assert_eq!(matches(wanted, name), found, "{wanted}");
        }
        assert_eq!(matches("main", "main"), Some(Match::Symbol));
        assert_eq!(unversioned("memcpy@@GLIBC_2.17"), "memcpy");
        assert_eq!(unversioned("@plt"), "@plt");
    }

    /// Each parameter pairs the previous one with itself: 2 to the power of 200 names.
    #[test]
    fn a_name_that_expands_exponentially_is_not_demangled() {
        let mut name = "_Z1f1aI1bS_E".to_owned();
        for index in 0..200 {
            let before = format!("S{}_", base36(index));
            name += &format!("1pI{before}{before}E");
        }
        assert!(cpp_demangle::Symbol::new(&name).is_ok());
        let start = std::time::Instant::now();
        assert_eq!(demangled(&name), None);
        assert!(start.elapsed().as_secs() < 5);
    }

    /// Reading each of these takes longer than anybody waits: nested alternatives that fail at
    /// their end.
    #[test]
    fn a_name_that_takes_years_to_read_is_not_demangled() {
        let start = std::time::Instant::now();
        for part in [
            "cvDv",
            "nw",
            "na",
            "dl",
            "gsnw",
            "UlUl",
            "cv",
            "CI1",
            "srNDT",
            "srDT",
            "LDT",
            "LZ",
            "DU",
            "DvDB",
            "XL",
            "DOnw",
            "on",
            "1acv",
            "N1aIX",
            "fLpl",
            "soDv",
            "dtnw",
            "TdlgsdaDv",
        ] {
            for begin in ["_Z", "_Z1fI", "_ZcvDv", "_Z1fDt", "_Z1fIX"] {
                for end in ["E", "_", "1a", "i", "_E"] {
                    let name = format!("{begin}{}{}", part.repeat(40), end.repeat(40));
                    let _ = demangled(&name);
                    let _ = matches("a", &name);
                }
            }
        }
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    /// The walk through a name follows the same alternatives as the demangler, so it can judge the
    /// names that compilers write.
    #[test]
    fn names_that_compilers_write_are_affordable() {
        for name in [
            "_ZNKSt8functionIFvRKN5boost3log16v2_mt_posix6recordEEEclES6_",
            "_ZSt16__do_uninit_copyIPKSt4pairINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES6_EPS7_ET0_T_SC_SB_",
            "_ZZN3foo3barEvENKUlT_E_clIiEEDaS1_",
            "_ZN5clang13ASTNodeImporter9importSeqIJN4llvm9ArrayRefIPNS_4DeclEEEPS4_EEENS2_8ExpectedISt5tupleIJDpT_EEEEDpRKSB_",
            "_ZN1AcvT_IiEEv",
            "_Z1fIiEDTcl1gfp_EET_",
            "_Z3fooILb1EEvNSt9enable_ifIXsr3stdE7is_sameIiiEE5valueEE4typeE",
        ] {
            assert!(work::is_affordable(name), "{name}");
            assert_eq!(
                work::reads(name),
                cpp_demangle::Symbol::new(name).is_ok(),
                "{name}"
            );
        }
    }

    fn base36(mut number: u32) -> String {
        let mut out = Vec::new();
        loop {
            out.push(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number as usize % 36]);
            number /= 36;
            if number == 0 {
                break;
            }
        }
        out.reverse();
        String::from_utf8(out).unwrap()
    }
}
