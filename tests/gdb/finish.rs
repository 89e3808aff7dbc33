//! What `finish` prints as the value that a function returned.

use crate::support::gdb::session;
use crate::support::record::{build, record};

/// `sum` and `pair` return in vector registers, which are written again later; `count` returns in X0,
/// and its caller keeps the value.
const PROGRAM: &str = r#"
#include <stdio.h>
struct pair { double a, b; };
__attribute__((noinline)) double sum(const double *p, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += p[i] * p[i];
    return s;
}
__attribute__((noinline)) struct pair pair(double a)
{
    struct pair p = { a + 1, a * 2 };
    __asm__ volatile("" ::: "memory");
    return p;
}
__attribute__((noinline)) int count(const char *text)
{
    int n = 0;
    while (*text)
        n += *text++ == 'a';
    return n;
}
int main(int argc, char **argv)
{
    double values[4] = { 1.5, argc, 2.5, 3 };
    int found = count("banana");
    printf("%g\n", sum(values, 4));
    printf("%g\n", pair(values[argc]).b);
    return found != 3;
}
"#;

/// Truth: 18.5, {2, 2} and 3.
#[test]
fn finish_prints_a_value_that_is_known_or_none() {
    let options = ["-O2", "-static"];
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &options) else {
        return;
    };
    let run = record(&guest, "recorded", &["--data-addresses"], &[]);
    assert!(run.status.success(), "{run:?}");
    for (function, values) in [
        ("sum", &["18.5", "<not displayed>"][..]),
        ("pair", &["{a = 2, b = 2}", "<not displayed>"]),
        ("count", &["3"]),
    ] {
        let text = session(
            &guest.directory.path().join("recorded"),
            &[],
            &[
                &format!("break {function}"),
                "reverse-continue",
                "delete",
                "finish",
                "show print finish",
            ],
        );
        let line = text.lines().find(|line| line.starts_with("Value returned"));
        let value = line.and_then(|line| line.strip_prefix("Value returned is $1 = "));
        assert!(value.is_some_and(|value| values.contains(&value)), "{text}");
        let hidden = value == Some("<not displayed>");
        assert_eq!(text.contains("is not known here"), hidden, "{text}");
        // The user's setting stays.
        assert!(text.contains("is on."), "{text}");
    }
}
