//! Modules of a kernel.

use crate::support::record::installed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the module is, and a function of the kernel.
pub const BASE: u64 = 0xffff_8000_0100_0000;
pub const PRINTK: u64 = 0xffff_8000_0200_0010;

/// A module with everything that the kernel replaces.
pub const MODULE: &str = r#"
    .text
    .globl entry
entry:
    bti c
traced:
    nop
    nop
    .pushsection __patchable_function_entries, "awo", @progbits, .text
    .quad traced
    .popsection
    mov x0, #3
loop:
    adrp x1, data
    add x1, x1, :lo12:data
    ldr x2, [x1, #:lo12:data]
    bl helper
    subs x0, x0, #1
    b.ne loop
alternative:
    nop
    .pushsection .altinstructions, "a"
    .word alternative - ., replaced - .
    .hword 1
    .byte 4, 4
    .popsection
call:
    bl printk
back:
    mov x3, #5
label:
    nop
    .pushsection __jump_table, "aw"
    .word label - ., taken - .
    .quad key - .
    .popsection
    mov x4, #6
taken:
    bl entry2
    cbz x0, end
end:
    ret
    .globl entry2
entry2:
    tbz x0, #3, end
    ret
    .section .init.text, "ax"
    .globl init_module
init_module:
    bl entry
    ret
    .section .text.unlikely, "ax"
    .p2align 4
replaced:
    mov x2, #1
helper:
    movz x5, #:abs_g3:data
    ret
    .data
key: .quad entry, 0
data: .quad printk
    .word entry - .
"#;

pub fn tool(program: &str, words: &[&str], directory: &Path) {
    let mut command = Command::new(program);
    let output = command.current_dir(directory).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Assembles a module below a directory.
pub fn module(directory: &Path, prefix: &str, source: &str) -> Option<PathBuf> {
    let (assembler, linker) = (format!("{prefix}as"), format!("{prefix}ld"));
    if !installed(&[&assembler, &linker]) {
        return None;
    }
    let path = directory.join("lib/modules/6.1/test-module.ko");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(directory.join("module.s"), source).unwrap();
    tool(&assembler, &["-g", "module.s", "-o", "module.o"], directory);
    // As the kernel's module.lds.
    let script = "SECTIONS { .plt 0 : { BYTE(0) } .init.plt 0 : { BYTE(0) } \
                  .text.ftrace_trampoline 0 : { BYTE(0) } }";
    fs::write(directory.join("module.lds"), script).unwrap();
    let output = path.to_str().unwrap();
    let relocatable = [
        "-r",
        "-T",
        "module.lds",
        "--build-id",
        "module.o",
        "-o",
        output,
    ];
    tool(&linker, &relocatable, directory);
    Some(path)
}

/// The bytes of a module, if there is a compiler.
pub fn built() -> Option<Vec<u8>> {
    let scratch = tempfile::tempdir().unwrap();
    let path = module(scratch.path(), "aarch64-linux-gnu-", MODULE)?;
    Some(fs::read(path).unwrap())
}
