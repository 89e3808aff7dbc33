//! Data on pages with code: code that a program makes, GCC's trampolines on the stack, and bare-metal images
//! with text and data on one page.

use crate::past_values::{SETS, in_order, past};
use crate::support::gdb::session;
use crate::support::record::{Guest, build, installed, record};
use std::process::Command;

/// A page with code, which is changed before each round, and data.
const PAGE: &str = r#"
#include <string.h>
#include <sys/mman.h>
struct page { unsigned char code[64]; volatile int count, log[8]; };
static struct page *page;
static volatile int sum;
__attribute__((noinline)) static void mark(struct page *page, int round) { __asm__ volatile ("" :: "r"(page), "r"(round) : "memory"); }
__attribute__((noinline)) static void emit(struct page *page, int add)
{
#if defined(__aarch64__)
    unsigned code[] = {0x11000000 | add << 10, 0xd65f03c0};
#elif defined(__thumb__)
    unsigned short code[] = {0x3000 | add, 0x4770};
#else
    unsigned code[] = {0xe2800000 | add, 0xe12fff1e};
#endif
    memcpy(page->code, code, sizeof code);
    __builtin___clear_cache((char *)page->code, (char *)page->code + 8);
}
int main(void)
{
    page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 1; round < 6; round++) {
        if (CHANGES || round == 1)
            emit(page, CHANGES ? round : 7);
        page->count += round;
        page->log[round & 7] = page->count;
#ifdef __thumb__
        int (*add)(int) = (int (*)(int))((char *)page->code + 1);
#else
        int (*add)(int) = (int (*)(int))page->code;
#endif
        sum += add(round);
        mark(page, round);
    }
    return 0;
}
"#;

/// Builds and records a program with a library; `None` if the tools are not there.
fn recorded(
    (architecture, set): (&'static str, &str),
    source: &str,
    options: &[&str],
    recording: &[&str],
) -> Option<Guest> {
    let options = [&[set, "-static", "-fno-stack-protector"], options].concat();
    let guest = build(architecture, "program.c", source, &options)?;
    let run = record(&guest, "recorded", recording, &[]);
    assert!(run.status.success(), "{run:?}");
    Some(guest)
}

#[test]
fn data_beside_code_that_ran_is_that_of_its_time() {
    for set in SETS {
        for changes in ["-DCHANGES=0", "-DCHANGES=1"] {
            let options = ["-O1", changes];
            let Some(guest) = recorded(set, PAGE, &options, &["--data-addresses"]) else {
                return;
            };
            let text = past(
                &guest,
                &[
                    "monitor recover proved",
                    "break mark if round == 3",
                    "reverse-continue",
                    "print page->count",
                    "print page->log[1]@3",
                    "delete",
                    "watch -l page->count",
                    "reverse-continue",
                    "reverse-continue",
                    "reverse-continue",
                ],
            );
            let wanted = [
                "mark (page=",
                "$1 = 6\n",
                "$2 = {1, 3, 6}\n",
                "Old value = 6\nNew value = 3\n",
                "Old value = 3\nNew value = 1\n",
                "Old value = 1\nNew value = 0\n",
            ];
            in_order(&text, &wanted);
        }
    }
}

/// The code of a round as GDB prints its halfwords.
fn code((_, set): (&str, &str), add: u32) -> String {
    let halves = match set {
        "-marm" => vec![add, 0xe280, 0xff1e, 0xe12f],
        "-mthumb" => vec![0x3000 | add, 0x4770],
        _ => vec![add << 10, 0x1100, 0x3c0, 0xd65f],
    };
    let halves: Vec<String> = halves.iter().map(|half| format!("{half:#x}")).collect();
    format!("{{{}}}", halves.join(", "))
}

#[test]
fn code_is_shown_as_it_was_at_its_time() {
    for set in SETS {
        let count = if set.1 == "-mthumb" { 2 } else { 4 };
        let print = format!("print/x *(unsigned short (*)[{count}])$code");
        for changes in [false, true] {
            for recording in [&["--data-addresses"][..], &[]] {
                let option = format!("-DCHANGES={}", u8::from(changes));
                let Some(guest) = recorded(set, PAGE, &["-O1", &option], recording) else {
                    return;
                };
                let mut commands = vec!["set $code = page->code", "break emit"];
                let rounds = if changes { 5 } else { 1 };
                for _ in 0..rounds {
                    commands.extend(["reverse-continue", &print]);
                }
                let text = past(&guest, &commands);
                // Before the code of a round is written, there is that of the round before, or zeros.
                let mut before: Vec<String> = (1..rounds).rev().map(|add| code(set, add)).collect();
                before.push(format!("{{0x0 <repeats {count} times>}}"));
                let stops = text.split("Breakpoint 1, ").skip(1);
                assert_eq!(stops.clone().count(), rounds as usize, "{text}");
                let mut known = 0;
                for (stop, before) in stops.zip(&before) {
                    let line = stop.lines().find(|line| line.starts_with('$'));
                    let Some((_, value)) = line.and_then(|line| line.split_once(" = ")) else {
                        assert!(stop.contains("Cannot access memory"), "{set:?}: {text}");
                        continue;
                    };
                    let zeros = before.contains("repeats") && value.replace("0x0", "").len() < 24;
                    assert!(value == before || zeros, "{set:?}, {before}: {text}");
                    known += 1;
                }
                // The page itself is new before the first round.
                assert!(
                    recording.is_empty() || known + 1 >= rounds,
                    "{set:?}: {text}"
                );
            }
        }
    }
}

/// What is shown at a position does not depend on where one was before.
#[test]
fn pages_with_code_are_the_same_whichever_way_one_comes() {
    let Some(guest) = recorded(SETS[0], PAGE, &["-O1", "-DCHANGES=0"], &[]) else {
        return;
    };
    let show = ["x/40xb $page", "print *$page", "x/2i $page"];
    let start = ["set $page = page", "break mark if round == 2", "break emit"];
    let there = ["monitor goto begin", "continue", "continue"];
    let around = [
        "delete 2",
        "stepi 30",
        "reverse-stepi 9",
        "monitor goto end",
    ];
    let at_once = past(&guest, &[&start[..], &there, &show].concat());
    let later = past(
        &guest,
        &[&start[..], &there, &around, &["break emit"], &there, &show].concat(),
    );
    let shown = |text: &str| -> Vec<String> {
        let (_, shown) = text.rsplit_once("mark (").unwrap();
        let lines = shown.lines().filter(|line| line.contains("0x55"));
        lines.map(str::to_owned).collect()
    };
    assert!(shown(&at_once).len() > 6, "{at_once}");
    assert_eq!(shown(&at_once), shown(&later));
}

/// Nested functions, whose trampolines are where other functions have their variables.
const NESTED: &str = r#"
typedef struct { long a[5]; double d; } big_t;
__attribute__((noinline)) static big_t bigf(big_t b, int k)
{
    for (int i = 0; i < 5; i++)
        b.a[i] *= k;
    b.d *= k;
    return b;
}
__attribute__((noinline)) static int nested(int n)
{
    int sum = 0;
    __attribute__((noinline)) void add(int k) { sum += n ? k * n : *(volatile int *)0; }
    void (*volatile pointer)(int) = add;
    for (int i = 0; i < n + 1; i++)
        pointer(i);
    return sum;
}
__attribute__((noinline)) static void done(big_t *b) { __asm__ volatile ("" :: "r"(b) : "memory"); }
int main(void)
{
    big_t b = {{1, 2, 3, 4, 5}, 10.5};
    b = bigf(b, 3);
    done(&b);
    int sum = nested(9);
    b = bigf(b, 2);
    done(&b);
    // It ends in a fault, while its trampoline is there.
    return sum + nested(0);
}
"#;

#[test]
fn the_stack_is_not_shown_as_the_trampolines_that_were_there() {
    for set in SETS {
        for level in ["-O0", "-O1", "-O2"] {
            let Some(guest) = recorded(set, NESTED, &[level], &["--data-addresses"]) else {
                return;
            };
            let text = past(
                &guest,
                &[
                    "break done",
                    "break bigf",
                    "reverse-continue",
                    "print *b",
                    "reverse-continue",
                    "print b.a",
                    "print b.d",
                    "finish",
                    "reverse-continue",
                    "reverse-continue",
                    "print *b",
                    "reverse-continue",
                    "print b.a",
                    "print b.d",
                ],
            );
            // GDB calls the parameter optimized out where its debug information does not say where it is.
            let text = text
                .replace("$2 = <optimized out>", "$2 = {3, 6, 9, 12, 15}")
                .replace("$3 = <optimized out>", "$3 = 31.5")
                .replace("$6 = <optimized out>", "$6 = {1, 2, 3, 4, 5}")
                .replace("$7 = <optimized out>", "$7 = 10.5");
            let wanted = [
                "$1 = {a = {6, 12, 18, 24, 30}, d = 63}",
                "$2 = {3, 6, 9, 12, 15}",
                "$3 = 31.5",
                "Value returned is $4 = {a = {6, 12, 18, 24, 30}, d = 63}",
                "$5 = {a = {3, 6, 9, 12, 15}, d = 31.5}",
                "$6 = {1, 2, 3, 4, 5}",
                "$7 = 10.5",
            ];
            in_order(&text, &wanted);
        }
    }
}

/// Text and data on one page.
const IMAGE: &str = r#"
volatile int counter = 100;
volatile int history[4];
__attribute__((noinline)) void step(int i) { counter += i; history[i & 3] = counter; }
__attribute__((noinline)) void end(void) { for (;;) counter = -1; }
void run(void) { for (int i = 0; i < 10; i++) step(i); end(); }
#ifdef __aarch64__
__asm__ (".globl _start\n_start: ldr x0, =0x40100000\n mov sp, x0\n b run\n");
#else
extern int stack_top;
__attribute__((section(".vectors"), used)) const void *vectors[16] = {&stack_top, run};
#endif
"#;

#[test]
fn text_and_data_of_images_on_one_page_are_told_apart() {
    const MACHINES: [(&str, &str, &str, &str); 2] = [
        (
            "aarch64-linux-gnu-gcc",
            "-march=armv8-a",
            "virt",
            "0x40000000",
        ),
        ("arm-none-eabi-gcc", "-mcpu=cortex-m3", "mps2-an385", "0"),
    ];
    for (compiler, core, machine, start) in MACHINES {
        if !installed(&[compiler, "qemu-system-arm", "qemu-system-aarch64"]) {
            return;
        }
        // One section and several, whose segment is writable in either case.
        for sections in [
            ".text : { *(.vectors*) *(.text*) *(.rodata*) *(.data*) *(.bss*) }",
            ".vectors : { *(.vectors*) } .text : { *(.text*) *(.rodata*) } .data : { *(.data*) *(.bss*) }",
        ] {
            let directory = tempfile::tempdir().unwrap();
            let file = |name: &str| directory.path().join(name);
            std::fs::write(file("image.c"), IMAGE).unwrap();
            let script =
                format!("SECTIONS {{ . = {start}; {sections} stack_top = {start} + 0x8000; }}");
            std::fs::write(file("script.ld"), script).unwrap();
            let built = Command::new(compiler)
                .args(["-g", "-O1", "-ffreestanding", "-nostdlib", "-static", core])
                .args(["-Wl,--build-id=none", "-Wl,--omagic", "-T"])
                .args([
                    file("script.ld"),
                    "-o".into(),
                    file("image.elf"),
                    file("image.c"),
                ])
                .output()
                .unwrap();
            assert!(built.status.success(), "{built:?}");
            let run = Command::new(crate::support::armsnap())
                .args([
                    "record",
                    "--exit-zero",
                    "--system",
                    machine,
                    "--until",
                    "end",
                    "-o",
                ])
                .args([file("recorded"), "--".into(), file("image.elf")])
                .output()
                .unwrap();
            assert!(run.status.success(), "{run:?}");
            let text = session(
                &file("recorded"),
                &[],
                &[
                    "break step",
                    "reverse-continue",
                    "reverse-continue",
                    "print counter",
                    "print history[0]",
                    "x/i $pc",
                    "disassemble step",
                    "monitor recover proved",
                    "print counter",
                    "x/2i $pc",
                ],
            );
            in_order(
                &text,
                &[
                    "=> ",
                    "step",
                    "Dump of assembler code for function step",
                    "End of assembler dump",
                    "=> ",
                    "step",
                ],
            );
            match machine {
                "virt" => in_order(&text, &["$1 = 128\n", "$2 = 110\n", "$3 = 128\n"]),
                // No values of these cores are known.
                _ => assert_eq!(text.matches("Cannot access memory").count(), 3, "{text}"),
            }
        }
    }
}
