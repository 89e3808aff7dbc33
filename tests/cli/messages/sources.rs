//! The texts in the sources that may be messages.

use crate::support::skip;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A text of a source file; its values are `…`.
pub struct Text {
    /// The file, below its crate's `src/` for Rust.
    pub place: String,
    pub line: usize,
    pub text: String,
}

/// Macros and functions whose texts only a defect shows, or that name files.
const OTHER_MACROS: [&str; 14] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "unreachable",
    "panic",
    "todo",
    "unimplemented",
    "include_str",
    "include_bytes",
    "env",
    "option_env",
];

/// All texts of prose: in the sources of all crates, outside of tests and documentation, in gdb/, and of the emulator's
/// plugin. `None` if Python is not installed.
pub fn texts(top: &Path) -> Option<Vec<Text>> {
    let mut out = Vec::new();
    rust(&top.join("src"), "", &mut out);
    for entry in fs::read_dir(top.join("crates")).unwrap() {
        rust(&entry.unwrap().path().join("src"), "", &mut out);
    }
    plugin(top, &mut out);
    python(top, &mut out)?;
    let extension = fs::read_to_string(top.join("editors/vscode/src/extension.ts")).unwrap();
    for shows in [
        "showErrorMessage",
        "showWarningMessage",
        "showInformationMessage",
    ] {
        assert!(!extension.contains(shows), "{shows}: read its texts here");
    }
    Some(out)
}

/// Whether a text has two words at least: it is no name, and no markup.
fn is_prose(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    let words = words.filter(|word| word.len() > 1).count();
    words > 1 && text.trim().contains([' ', '\n']) && !text.starts_with('<')
}

/// A text with `…` for each value of a format string, on one line.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    let text = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    for c in text.chars() {
        match c {
            '{' if depth == 0 => {
                out.push('…');
                depth = 1;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth > 0 => {}
            '\u{1}' => out.push('{'),
            '\u{2}' => out.push('}'),
            '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out.trim().to_owned()
}

fn rust(directory: &Path, below: &str, out: &mut Vec<Text>) {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let place = format!("{below}{name}");
        if path.is_dir() && name != "tests" {
            rust(&path, &format!("{place}/"), out);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let tokens: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
            tree(tokens, &place, out);
        }
    }
}

/// The texts among tokens.
fn tree(tokens: TokenStream, place: &str, out: &mut Vec<Text>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let word = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        Some(TokenTree::Punct(sign)) => sign.as_char().to_string(),
        _ => String::new(),
    };
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) if word(at.wrapping_sub(1)) == "#" => {
                at += attribute(group.stream(), &tokens[at + 1..], place, out);
            }
            // #![…]
            TokenTree::Group(_)
                if word(at.wrapping_sub(1)) == "!" && word(at.wrapping_sub(2)) == "#" => {}
            TokenTree::Group(group) => {
                let is_macro = word(at.wrapping_sub(1)) == "!"
                    && OTHER_MACROS.contains(&word(at.wrapping_sub(2)).as_str());
                let is_expect =
                    word(at.wrapping_sub(1)) == "expect" && word(at.wrapping_sub(2)) == ".";
                if !is_macro && !is_expect {
                    tree(group.stream(), place, out);
                }
            }
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    add(place, literal.span().start().line, &text.value(), out);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
        at += 1;
    }
}

/// The texts of an attribute; only those of errors have any. Returns how many of the tokens after
/// it belong to a test.
fn attribute(inner: TokenStream, after: &[TokenTree], place: &str, out: &mut Vec<Text>) -> usize {
    let text = inner.to_string();
    if text.starts_with("error") {
        tree(inner, place, out);
    }
    let is_test = text.starts_with("cfg") && text.contains("test") && !text.contains("not");
    let end = after.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => sign.as_char() == ';',
        _ => false,
    });
    match end {
        Some(end) if is_test => end + 1,
        _ => 0,
    }
}

fn add(place: &str, line: usize, text: &str, out: &mut Vec<Text>) {
    let text = plain(text);
    if is_prose(&text) {
        out.push(Text {
            place: place.to_owned(),
            line,
            text,
        });
    }
}

/// What the emulator's plugin prints, and why it fails.
fn plugin(top: &Path, out: &mut Vec<Text>) {
    let place = "record/plugin.c";
    let text = fs::read_to_string(top.join("src").join(place)).unwrap();
    let before = out.len();
    for (line, text) in text.lines().enumerate() {
        let printed = text.split_once("fprintf(stderr, \"");
        if let Some((_, format)) = printed.or_else(|| text.split_once(" fail(\"")) {
            let format = format.split(['"', '\\']).next().unwrap();
            add(place, line + 1, &format.replace("%s", "…"), out);
        }
    }
    assert!(out.len() > before);
}

/// Prints the texts of Python files: place, line and text, separated by tabs.
const READ_PYTHON: &str = r#"
import ast, glob, os, sys
QUIET = {"execute", "output_of", "succeeds", "ranges_in", "packet", "parameter", "parse_and_eval", "compile", "search", "match", "__init__"}
for name in sorted(glob.glob(os.path.join(sys.argv[1], "gdb", "*.py"))):
    with open(name, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    left = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant):
                left.add(body[0].value)  # documentation
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            if called in QUIET:
                left.update(node.args)
    def texts(node):
        if node in left:
            left.update(ast.walk(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(getattr(v, "value", "") if isinstance(v, ast.Constant) else "…" for v in node.values)
            return
        for inner in ast.iter_child_nodes(node):
            if inner not in left:
                yield from texts(inner)
    for line, text in texts(tree):
        text = text.replace("\n", " ").replace("\t", " ").replace("{", "{{").replace("}", "}}")
        print("gdb/" + os.path.basename(name), line, text, sep="\t")
"#;

fn python(top: &Path, out: &mut Vec<Text>) -> Option<()> {
    let mut python = Command::new("python3");
    python.args(["-X", "utf8", "-c", READ_PYTHON]).arg(top);
    let Ok(output) = python.output() else {
        skip::missing("python3");
        return None;
    };
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{failure}");
    let before = out.len();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut parts = line.splitn(3, '\t');
        let (Some(place), Some(line), Some(text)) = (parts.next(), parts.next(), parts.next())
        else {
            panic!("{line:?}");
        };
        add(place, line.parse().unwrap(), text, out);
    }
    assert!(out.len() > before);
    Some(())
}
