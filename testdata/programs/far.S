// Calls over 32 KiB, 16 MiB, and beyond 4 GiB: addresses without a short form.
// build a64 -Wl,--section-start=.near=0x410000 -Wl,--section-start=.middle=0x2000000 -Wl,--section-start=.far=0x110000000
// exit 36
    .global _start
_start:
    mov     x0, #0
    mov     x19, #4
1:  ldr     x1, =near
    blr     x1
    ldr     x1, =middle
    blr     x1
    ldr     x1, =far
    blr     x1
    subs    x19, x19, #1
    b.ne    1b
    mov     x8, #94
    svc     #0
    b       .

    .section .near, "ax"
near:
    add     x0, x0, #1
    ret

    .section .middle, "ax"
middle:
    add     x0, x0, #2
    mov     x20, x30
    ldr     x1, =near
    blr     x1
    mov     x30, x20
    ret

    .section .far, "ax"
far:
    add     x0, x0, #3
    mov     x20, x30
    ldr     x1, =middle2
    blr     x1
    ret     x20

    .section .middle, "ax"
middle2:
    add     x0, x0, #2
    ret
