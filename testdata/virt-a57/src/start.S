// Both cores begin here: the first from the loader, the second from PSCI CPU_ON.

    .cfi_sections .debug_frame
    .section .text.start, "ax"
    .global _start
    .type _start, %function
_start:
    ldr     x9, =boot_stack_top
    ldr     x10, =main
    b       1f
    .size _start, . - _start

    .global second_start
    .type second_start, %function
second_start:
    .cfi_startproc
    .cfi_undefined x30              // nobody called: back traces end here
    ldr     x9, =second_stack_top
    ldr     x10, =second_main
1:  mov     sp, x9
    mov     x11, #(3 << 20)         // CPACR_EL1.FPEN: no traps of FP and SIMD
    msr     cpacr_el1, x11
    isb
    .irp n, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28
    mov     x\n, #(\n * 0x101)      // so that no two registers are taken for each other
    .endr
    .irp n, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    mov     w11, #(\n * 0x101)
    dup     v\n\().4s, w11
    mov     v\n\().d[0], x9
    .endr
    mov     x29, xzr
    blr     x10
2:  wfi
    b       2b
    .cfi_endproc
    .size second_start, . - second_start
