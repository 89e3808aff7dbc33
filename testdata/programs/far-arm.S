// A32 and T32 call each other over 64 KiB and 16 MiB: addresses without a short form.
// build arm -Wl,--section-start=.near=0x30000 -Wl,--section-start=.middle=0x2000000
// exit 32
    .syntax unified
    .global _start
    .type _start, %function
    .arm
_start:
    mov     r0, #0
    mov     r4, #4
1:  ldr     r1, =near
    blx     r1
    ldr     r1, =middle
    blx     r1
    subs    r4, r4, #1
    bne     1b
    mov     r7, #248
    svc     #0
    b       .
    .ltorg

    .section .near, "ax"
    .thumb
    .type near, %function
near:
    adds    r0, #1
    push    {lr}
    ldr     r1, =middle_t32
    blx     r1
    pop     {pc}
    .type near_t32, %function
near_t32:
    adds    r0, #2
    bx      lr
    .ltorg

    .section .middle, "ax"
    .arm
    .type middle, %function
middle:
    add     r0, r0, #2
    push    {lr}
    ldr     r1, =near_t32
    blx     r1
    pop     {pc}
    .ltorg
    .thumb
    .type middle_t32, %function
middle_t32:
    adds    r0, #3
    bx      lr
