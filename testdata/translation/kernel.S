// A kernel in small: maps itself at high addresses, 0x1200000 above those it is linked for, as Linux
// does at random, and goes on there in `start_kernel`.
    .file "kernel.S"
    .section .text.start, "ax"
    .global _start
_start:
    // Tables: levels 0 to 2 of high addresses, then levels 0 and 1 of the identity.
    adrp    x0, tables
    add     x1, x0, #0x1000
    orr     x2, x1, #3
    str     x2, [x0, #0x800]
    add     x3, x0, #0x2000
    orr     x2, x3, #3
    str     x2, [x1]
    mov     x2, #0x40000000
    add     x2, x2, #0x701
    str     x2, [x3, #(0x9200000 >> 21 << 3)]
    add     x4, x0, #0x3000
    add     x5, x0, #0x4000
    orr     x6, x5, #3
    str     x6, [x4]
    str     x2, [x5, #8]
    msr     ttbr1_el1, x0
    msr     ttbr0_el1, x4
    ldr     x6, =0x5b5103510
    msr     tcr_el1, x6
    mov     x6, #0xff
    msr     mair_el1, x6
    isb
    tlbi    vmalle1
    dsb     sy
    isb
    mrs     x6, sctlr_el1
    orr     x6, x6, #1
    msr     sctlr_el1, x6
    isb
    ldr     x7, =0xffff7fffc9200000
    adr     x8, high
    add     x8, x8, x7
    br      x8
high:
    adrp    x9, stack_end
    mov     sp, x9
    mov     x29, xzr
    mov     x30, xzr
    bl      start_kernel
    b       .

    .section .tables, "aw", %nobits
    .balign 4096
tables:
    .space  5 * 4096
    .space  4096
stack_end:
