// Bare metal AArch64 on QEMU's `virt`: stacks, vectors, semihosting. `int run(void)` is core 0's
// program, `void run_other(int core)` those of the others. Exceptions go to
// `void exception(int kind, struct saved *)`, kind 4: synchronous, 5: IRQ from EL1; 8 and 9 from EL0.
    .file "start-a64.S"
    .section .text.start, "ax"
    .global _start
_start:
    ldr     x1, =stacks_end
    mov     sp, x1
    ldr     x1, =vectors
    msr     vbar_el1, x1
    mov     x1, #0x300000
    msr     cpacr_el1, x1
    isb
    bl      run
    .global halt_here
halt_here:
    // SYS_EXIT, ADP_Stopped_ApplicationExit, status
    sub     sp, sp, #16
    ldr     x2, =0x20026
    stp     x2, x0, [sp]
    mov     w0, #0x18
    mov     x1, sp
    hlt     #0xf000
    b       .

    // PSCI starts the other cores here; x0 is the core's number.
    .weak   run_other
    .global start_other
start_other:
    ldr     x1, =stacks_end
    sub     x1, x1, x0, lsl #12
    mov     sp, x1
    ldr     x1, =vectors
    msr     vbar_el1, x1
    isb
    bl      run_other
1:  wfi
    b       1b

    .macro  vector kind
    .balign 128
    sub     sp, sp, #272
    stp     x0, x1, [sp]
    mov     x0, #\kind
    b       common
    .endm

    .balign 2048
vectors:
    .irp    kind, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vector  \kind
    .endr

common:
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x30, [sp, #144]
    mrs     x2, elr_el1
    mrs     x3, spsr_el1
    stp     x2, x3, [sp, #160]
    mov     x1, sp
    bl      exception
    ldp     x2, x3, [sp, #160]
    msr     elr_el1, x2
    msr     spsr_el1, x3
    ldp     x18, x30, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp]
    add     sp, sp, #272
    eret

    .bss
    .balign 16
stacks:
    .space  4 * 4096
stacks_end:
