//! What is printed about values that are not known, or that nobody asked for, is short.

use crate::support::gdb::session;
use crate::support::record::{build, record};

/// A tree: the compiler passes values to its functions in registers that callers do not save.
const PROGRAM: &str = r"
struct node { struct node *left, *right; int key; };
static struct node pool[64];
static int used, total;
__attribute__((noinline)) static int find(struct node *at, int key, int depth)
{
    if (!at || at->key == key)
        return depth;
    return find(key < at->key ? at->left : at->right, key, depth + 1) + used * 0;
}
__attribute__((noinline)) static struct node *insert(struct node *at, int key)
{
    if (!at) {
        at = &pool[used++];
        at->key = key;
        return at;
    }
    if (key < at->key)
        at->left = insert(at->left, key);
    else
        at->right = insert(at->right, key);
    return at;
}
__attribute__((noinline)) static int run(int n)
{
    struct node *top = 0;
    int sum = 0;
    for (int i = 0; i < n; i++)
        top = insert(top, i * 7 % 11);
    for (int i = 0; i < n; i++)
        sum += find(top, i, 0);
    return sum;
}
int main(int argc, char **argv)
{
    total = run(10 + argc);
    return total == 0;
}
";

#[test]
fn values_at_entries_are_printed_where_they_are_known() {
    for (architecture, options) in [
        ("aarch64", &["-O2", "-static"][..]),
        ("arm", &["-O2", "-static", "-marm"]),
    ] {
        let Some(guest) = build(architecture, "program.c", PROGRAM, options) else {
            return;
        };
        let run = record(&guest, "recorded", &[], &[]);
        assert!(run.status.success(), "{run:?}");
        let recorded = guest.directory.path().join("recorded");
        let start = ["break find", "reverse-continue"];
        let shown = ["bt", "up", "down", "finish", "show print entry-values"];
        let text = session(&recorded, &[], &[&start[..], &shown[..]].concat());
        assert!(text.contains("find (at="), "{text}");
        assert!(!text.contains("@entry=<error"), "{text}");
        // What the user chose is not changed.
        let chosen = ["set print entry-values both"];
        let text = session(
            &recorded,
            &[],
            &[&chosen[..], &start[..], &shown[..]].concat(),
        );
        assert!(text.contains("@entry=<optimized out>"), "{text}");
        assert!(text.contains("is \"both\""), "{text}");
        // Values at entry that are known are printed.
        let known = ["break run", "reverse-continue", "bt"];
        let text = session(&recorded, &[], &known);
        assert!(!text.contains("@entry=<error"), "{text}");
    }
}

#[test]
fn ways_of_values_do_not_list_frames() {
    let options = ["-O2", "-static"];
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &options) else {
        return;
    };
    let run = record(&guest, "recorded", &["--data-addresses"], &[]);
    assert!(run.status.success(), "{run:?}");
    let recorded = guest.directory.path().join("recorded");
    let start = ["break find", "reverse-continue"];
    let asked = [
        "echo <sp>\\n",
        "armsnap why $sp",
        "echo <at>\\n",
        "armsnap why $x0",
    ];
    let text = session(&recorded, &[], &[&start[..], &asked[..]].concat());
    let (_, text) = text.split_once("<sp>\n").unwrap();
    let (stack, at) = text.split_once("<at>\n").unwrap();
    let listed = |text: &str| text.lines().filter(|line| line.starts_with("0+")).count();
    // The last instruction that moved SP is listed, and none of the earlier ones in functions.
    let moved = stack.lines().filter(|line| line.contains("], #0x"));
    assert!(moved.count() <= 1 && listed(stack) < 10, "{text}");
    assert!(stack.contains("not listed: "), "{text}");
    // The pointer was passed from call to call, and saved in each.
    assert!(listed(at) > 0, "{text}");
    assert!(at.matches("[sp").count() <= 1, "{text}");
    assert!(at.contains("not listed: "), "{text}");
}
