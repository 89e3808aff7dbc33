// Vectors and reset of a Cortex-M4 with an FPU.

#include <stdint.h>

extern uint32_t stack_top;
extern uint32_t data_load, data_begin, data_end, bss_begin, bss_end;
int main(void);
void SVC_Handler(void);
void SysTick_Handler(void);

#define CPACR (*(volatile uint32_t *)0xe000ed88)

static void Default_Handler(void)
{
    for (;;)
        ;
}

void Reset_Handler(void)
{
    CPACR |= 0xfu << 20; // full access to the FPU
    __asm__ volatile("dsb\n\tisb");
    const uint32_t *from = &data_load;
    for (uint32_t *to = &data_begin; to < &data_end;)
        *to++ = *from++;
    for (uint32_t *to = &bss_begin; to < &bss_end;)
        *to++ = 0;
    main();
    for (;;)
        ;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top,       Reset_Handler,   Default_Handler, Default_Handler,
    Default_Handler,  Default_Handler, Default_Handler, 0,
    0,                0,               0,               SVC_Handler,
    Default_Handler,  0,               Default_Handler, Default_Handler,
};
