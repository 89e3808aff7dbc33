//! Past values after the unwinding of an exception.

use crate::support::gdb::session;
use crate::support::record::{build, record};

/// A cleanup crashes, in which the registers that the unwinder used are lost.
const PROGRAM: &str = r#"
#include <unwind.h>
struct order { int number; struct order *next; };
static struct order orders[3];
static struct _Unwind_Exception exception;
static _Unwind_Reason_Code go_on(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
    struct _Unwind_Exception *of, struct _Unwind_Context *context, void *argument)
{
    return _URC_NO_REASON;
}
__attribute__((noinline)) static void leave(int number)
{
    orders[1].number = number;
    _Unwind_ForcedUnwind(&exception, go_on, 0);
}
static void clean(int *number)
{
    __asm__ volatile("mov x4, xzr\n mov x5, xzr\n mov x6, xzr" : : : "x4", "x5", "x6");
    *(volatile int *)8 = *number;
}
__attribute__((noinline)) static int work(struct order *first, int number)
{
    int left __attribute__((cleanup(clean))) = number + 1;
    first->next->number = 7;
    leave(left * 2);
    return left;
}
int main(void)
{
    orders[0].next = &orders[1];
    return work(orders, 20);
}
/* The unwinder finds tables by binary search, and does not sort all of them first. */
void *__wrap___register_frame_info(const void *tables, void *object) { return object; }
"#;

#[test]
fn the_stack_is_known_before_an_exception() {
    let options = [
        "-O1",
        "-fexceptions",
        "-static",
        "-Wl,--eh-frame-hdr",
        "-Wl,--wrap=__register_frame_info",
    ];
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &options) else {
        return;
    };
    let run = record(&guest, "recorded", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let text = session(
        &guest.directory.path().join("recorded"),
        &[],
        &[
            "p $sp",
            "p $x19",
            "break *leave",
            "reverse-continue",
            "p $sp",
            "up",
            "p left",
        ],
    );
    let value = |number: u8| {
        let name = format!("${number} = ");
        let found = text.lines().find_map(|line| line.strip_prefix(&*name));
        found.unwrap_or_else(|| panic!("no ${number} in {text}"))
    };
    assert!(value(1).contains("0x"), "{text}");
    assert_eq!(value(3), value(1), "{text}");
    assert_eq!(value(4), "21", "{text}");
}

/// Two functions with cleanups, which an exception runs; the outer one exits.
const CLEANUPS: &str = r"
#include <unistd.h>
#include <unwind.h>
static struct _Unwind_Exception exception;
static int cleaned;
static _Unwind_Reason_Code go_on(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
    struct _Unwind_Exception *of, struct _Unwind_Context *context, void *argument)
{
    return _URC_NO_REASON;
}
__attribute__((noinline)) static int leave(int depth)
{
    if (depth == 0)
        return _Unwind_ForcedUnwind(&exception, go_on, 0);
    return leave(depth - 1) + 1;
}
__attribute__((noinline)) static void clean(int *number) { cleaned += *number; }
__attribute__((noinline)) static void finish(int *number) { _exit(cleaned + *number); }
__attribute__((noinline)) static int work(int number)
{
    int left __attribute__((cleanup(clean))) = number + 1;
    return leave(left) + 1;
}
__attribute__((noinline)) static int outer(int number)
{
    int left __attribute__((cleanup(finish))) = number + 1;
    return work(left) + 1;
}
int main(void)
{
    return outer(1) + 1;
}
";

/// An exception ends the calls in the function that it passes through, not those around it.
#[test]
fn the_callers_of_a_cleanup_are_known() {
    for (architecture, options) in [
        ("arm", &["-marm", "-O0"][..]),
        ("arm", &["-mthumb", "-O1"]),
        ("aarch64", &["-O1"]),
    ] {
        let all = [options, &["-fexceptions", "-static"]].concat();
        let Some(guest) = build(architecture, "program.c", CLEANUPS, &all) else {
            return;
        };
        let run = record(&guest, "recorded", &[], &[]);
        assert!(run.status.success(), "{run:?}");
        let text = session(
            &guest.directory.path().join("recorded"),
            &[],
            &["break clean", "reverse-continue", "backtrace"],
        );
        let frames: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| {
                let name = line.split(" (").next().unwrap();
                name.rsplit(' ').next().unwrap()
            })
            .collect();
        assert_eq!(frames, ["clean", "work", "outer", "main"], "{text}");
    }
}
