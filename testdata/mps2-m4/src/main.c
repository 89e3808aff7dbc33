// A heater's controller: filters a sensor's samples, regulates, and asks the supervisor (SVC)
// for power. It is halted in the supervisor's service, below the exception.

#include <stdint.h>

enum state { IDLE, HEATING, COOLING };

struct sample {
    uint32_t time;
    int16_t raw[4];
};

struct heater {
    const char *name;
    enum state state;
    float target, integral;
    struct sample last;
};

struct request {
    uint8_t number;
    uint16_t watts;
    const struct heater *from;
};

static const struct sample samples[] = {
    {100, {2031, 2044, 1998, 2012}},
    {110, {2040, 2052, 2007, 2019}},
    {120, {2051, 2060, 2018, 2031}},
};

static struct heater boiler = {.name = "boiler", .state = IDLE, .target = 62.5f};
static volatile uint32_t granted;

// Power that is left of `limit` after `watts`, halved for each heater that waits.
__attribute__((noinline)) static uint32_t grant(const struct request *request, uint32_t limit,
                                                unsigned waiting)
{
    uint32_t left = limit > request->watts ? limit - request->watts : 0;
    if (waiting > 0)
        left += grant(request, limit / 2, waiting - 1);
    else
        __asm__ volatile("halt_here: nop" : : "r"(left), "r"(request) : "memory");
    granted += left;
    return left;
}

// The exception's frame: R0-R3, R12, LR, PC, xPSR.
__attribute__((used, noinline)) void supervisor(uint32_t *frame)
{
    const struct request *request = (const struct request *)frame[0];
    uint8_t service = ((const uint8_t *)frame[6])[-2];
    frame[0] = service == request->number ? grant(request, 3000, 2) : 0;
}

__attribute__((naked)) void SVC_Handler(void)
{
    __asm__("mov r0, sp\n\tb supervisor");
}

__attribute__((noinline)) static uint32_t ask(const struct request *request)
{
    register uint32_t r0 __asm__("r0") = (uint32_t)request;
    __asm__ volatile("svc #7" : "+r"(r0) : : "memory");
    return r0;
}

__attribute__((noinline)) static float mean(const int16_t *raw, unsigned count)
{
    return count == 0 ? 0.0f : raw[0] + mean(raw + 1, count - 1);
}

__attribute__((noinline)) static int regulate(struct heater *heater, const struct sample *sample)
{
    float celsius = mean(sample->raw, 4) / 4.0f / 40.0f;
    float error = heater->target - celsius;
    heater->integral += error * 0.1f;
    heater->last = *sample;
    heater->state = error > 0.0f ? HEATING : COOLING;
    struct request request = {7, (uint16_t)(error * 80.0f + heater->integral), heater};
    uint32_t watts = ask(&request);
    return (int)watts - (int)request.watts;
}

int main(void)
{
    int spare = 0;
    for (unsigned i = 0; i < sizeof samples / sizeof samples[0]; i++)
        spare += regulate(&boiler, &samples[i]);
    return spare;
}
