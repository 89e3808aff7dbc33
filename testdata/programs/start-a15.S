// Bare metal Armv7-A (A32, T32) on QEMU's `virt` with a Cortex-A15: stacks, vectors, semihosting.
// `int run(void)` is core 0's program, `void run_other(int core)` those of the others.
// Exceptions: `void on_svc(int)`, `void on_abort(void)`, `void on_irq(void)`.
    .file "start-a15.S"
    .syntax unified
    .arm
    .section .text.start, "ax"
    .global _start
_start:
    ldr     r0, =vectors
    mcr     p15, 0, r0, c12, c0, 0
    cps     #0x12               // IRQ
    ldr     sp, =stacks_end - 0x1000
    cps     #0x17               // abort
    ldr     sp, =stacks_end - 0x1800
    cps     #0x13               // SVC
    ldr     sp, =stacks_end
    isb
    ldr     r3, =run
    blx     r3
    .global halt_here
halt_here:
    // SYS_EXIT_EXTENDED, ADP_Stopped_ApplicationExit, status
    ldr     r2, =0x20026
    push    {r2}
    str     r0, [sp, #4]
    mov     r1, sp
    mov     r0, #0x20
    svc     #0x123456
    b       .

    .weak   run_other
    .global start_other
start_other:
    ldr     r1, =vectors
    mcr     p15, 0, r1, c12, c0, 0
    ldr     sp, =stacks_end - 0x2000
    isb
    ldr     r3, =run_other
    blx     r3
1:  wfi
    b       1b

    .balign 32
vectors:
    b       .                   // reset
    b       .                   // undefined
    b       svc
    b       .                   // prefetch abort
    b       abort
    b       .                   // hypervisor
    b       irq
    b       .                   // FIQ

svc:
    push    {r0-r3, ip, lr}
    ldr     r3, =on_svc
    blx     r3
    ldm     sp!, {r0-r3, ip, pc}^

abort:
    sub     lr, lr, #4          // behind the load: A32
    push    {r0-r3, ip, lr}
    ldr     r3, =on_abort
    blx     r3
    pop     {r0-r3, ip, lr}
    movs    pc, lr

irq:
    sub     lr, lr, #4
    srsdb   sp!, #0x12
    push    {r0-r3, ip, lr}
    ldr     r3, =on_irq
    blx     r3
    pop     {r0-r3, ip, lr}
    rfeia   sp!

    .bss
    .balign 16
    .space  4 * 4096
stacks_end:
