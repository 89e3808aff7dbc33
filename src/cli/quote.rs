//! Shell quoting, for commands that users copy and that GDB passes to `/bin/sh`.

use std::ffi::{OsStr, OsString};

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

/// Returns the word of these bytes: those of a name, with ASCII between them.
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
