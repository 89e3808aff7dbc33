//! Shell quoting, for commands that users copy and that GDB passes to `/bin/sh`.

use armsnap::text;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Quotes a word for the shell.
pub fn shell_quote(word: &str) -> String {
    let quoted = shell_quote_os(OsStr::new(word));
    quoted.into_string().unwrap_or_default()
}

/// Quotes a word of any bytes for the shell.
pub fn shell_quote_os(word: &OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(byte);
    let bytes = word.as_encoded_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.to_owned();
    }
    let mut out = vec![b'\''];
    for &byte in bytes {
        match byte {
            b'\'' => out.extend_from_slice(b"'\\''"),
            byte => out.push(byte),
        }
    }
    out.push(b'\'');
    from_bytes(out)
}

/// Quotes a path, so that it can be copied into a shell and is not mistaken for an option.
/// Characters that a terminal does not show are quoted as `$'\xff'`, which bash, zsh and POSIX.1-2024
/// (2.2.4) accept.
pub fn word(path: &Path, program: bool) -> String {
    let option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
    let mut word = OsString::new();
    if program && !path.as_os_str().as_encoded_bytes().contains(&b'/') || option {
        word.push("./");
    }
    word.push(path);
    if let Some(quoted) = word.to_str().map(shell_quote)
        && text::one_line(&quoted) == quoted
    {
        return quoted;
    }
    let mut out = "$'".to_owned();
    for &byte in word.as_encoded_bytes() {
        match byte {
            b'\'' | b'\\' => out.extend(['\\', byte.into()]),
            b' '..=b'~' => out.push(byte.into()),
            _ => out.extend(format!("\\x{byte:02x}").chars()),
        }
    }
    out.push('\'');
    out
}

/// Returns the word that consists of these bytes: those of names, with ASCII between them.
pub fn from_bytes(bytes: Vec<u8>) -> OsString {
    #[cfg(unix)]
    return std::os::unix::ffi::OsStringExt::from_vec(bytes);
    // A name that is not Unicode is not found.
    #[cfg(not(unix))]
    return String::from_utf8_lossy(&bytes).into_owned().into();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_shell_restores_words_that_no_terminal_shows() {
        let words: [&[u8]; 5] = [
            b"new\nline",
            b"bad\xff\xfe'\\1",
            b"\x1b[31m",
            "ü".as_bytes(),
            b"-o",
        ];
        for bytes in words {
            let name = from_bytes(bytes.to_vec());
            let shown = word(Path::new(&name), false);
            assert_eq!(text::one_line(&shown), shown);
            let script = format!("printf %s {shown}");
            let output = std::process::Command::new("bash")
                .args(["-c", &script])
                .output();
            let wanted = [if bytes == b"-o" { b"./" } else { &b""[..] }, bytes].concat();
            assert_eq!(output.unwrap().stdout, wanted, "{shown}");
        }
        assert_eq!(word(Path::new("a"), true), "./a");
        assert_eq!(word(Path::new("b/a"), true), "b/a");
    }

    #[test]
    fn the_shell_restores_quoted_words() {
        for word in [
            "plain",
            "",
            "a b",
            "it's",
            "$HOME `x` \"y\" \\ *",
            "-n",
            "ü",
        ] {
            let script = format!("printf %s {}", shell_quote(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            assert_eq!(output.unwrap().stdout, word.as_bytes(), "{word}");
        }
    }
}
