//! Programs traced without their kernel: exceptions and signal handlers.

use super::*;

/// Linux with only the program traced: system calls do not affect the calls.
#[test]
fn open_calls_survive_untraced_kernel_execution() {
    let context = |el| {
        Step::Mark(Mark::Context(Context {
            isa: Isa::A64,
            el,
            ..Context::default()
        }))
    };
    let off = || Step::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
    let mut steps = [
        context(Some(ExceptionLevel(0))),
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        off(),
        Run(0x2004, 0x2008, OTHER),
        Irq(0x2008),
        off(),
        // A signal handler.
        Run(0x4000, 0x4004, RETURN),
        // The code that asks the kernel to resume.
        Run(0x9000, 0x9004, OTHER),
        Irq(0x9004),
        off(),
        Run(0x2008, 0x200c, RETURN),
        MAIN_CONTINUES,
    ];
    let outcome = follow_in(Window::default(), true, &steps);
    assert!(
        outcome.counted.gaps.is_empty(),
        "{:?}",
        outcome.counted.gaps
    );
    let log = "0unseen:main 1call:f 2signal:h h-returned f-returned main-open";
    assert_eq!(outcome.log, log);
    // PTM and ETMv3 do not trace exception levels.
    steps[0] = context(None);
    assert_eq!(follow_in(Window::default(), true, &steps).log, log);
    // If the kernel may be traced too, each is a gap where tracing was off.
    assert_eq!(follow(&steps).counted.gaps["trace_off"], 3);
}

/// The code that asks the kernel to resume is a function of its own, traced instruction by
/// instruction.
fn signal(handler: &[Step], taken: fn(u64) -> Step) -> Outcome {
    let off = || Step::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
    let mut steps = vec![MAIN_CALLS, IN_F, taken(0x2004), off()];
    let copied = handler.iter().map(|step| match *step {
        Run(start, end, last) => Run(start, end, last),
        _ => unreachable!(),
    });
    steps.extend(copied);
    steps.extend([
        Run(0x9100, 0x9104, OTHER),
        Run(0x9104, 0x9108, OTHER),
        taken(0x9108),
        off(),
        Run(0x2004, 0x2014, RETURN),
        MAIN_CONTINUES,
    ]);
    follow_in(Window::default(), true, &steps)
}

#[test]
fn a_signal_handler_ends_with_the_code_that_it_returns_to() {
    for taken in [Irq, |_| Step::Swi] {
        let outcome = signal(&[Run(0x4000, 0x4004, RETURN)], taken);
        let log = "0unseen:main 1call:f 2signal:h h-returned f-returned main-open";
        assert_eq!(outcome.log, log);
        let h = ("main;f;h".to_owned(), 3);
        assert!(outcome.stacks.contains(&h), "{:?}", outcome.stacks);
    }
}

#[test]
fn a_signal_handler_may_end_with_a_tail_call() {
    let handler = [Run(0x4000, 0x4004, JUMP), Run(0x3000, 0x3004, RETURN)];
    for taken in [Irq, |_| Step::Swi] {
        let log = "0unseen:main 1call:f 2signal:h h-jumped 2jump:g g-returned f-returned main-open";
        assert_eq!(signal(&handler, taken).log, log);
    }
}

/// The kernel delivers a pending signal where a handler asks to resume the program.
#[test]
fn a_pending_signal_is_not_within_the_handler_before() {
    let off = || Step::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
    let steps = [
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        off(),
        Run(0x4000, 0x4004, RETURN),
        Run(0x9100, 0x9104, OTHER),
        Irq(0x9104),
        off(),
        Run(0x3000, 0x3004, RETURN),
        Run(0x9100, 0x9104, OTHER),
        Irq(0x9104),
        off(),
        Run(0x2004, 0x2014, RETURN),
        MAIN_CONTINUES,
    ];
    let log = "0unseen:main 1call:f 2signal:h h-returned 2signal:g g-returned f-returned main-open";
    assert_eq!(follow_in(Window::default(), true, &steps).log, log);
}

/// The kernel was not traced; it called nothing.
#[test]
fn an_exception_without_return_address_that_returns_is_no_signal() {
    let steps = [
        MAIN_CALLS,
        IN_F,
        Step::Swi,
        Step::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter)),
        Run(0x2004, 0x2014, RETURN),
        MAIN_CONTINUES,
    ];
    let log = "0unseen:main 1call:f f-returned main-open";
    assert_eq!(follow_in(Window::default(), true, &steps).log, log);
}

/// A function that calls itself is interrupted where such a call returns to.
#[test]
fn an_untraced_exception_at_a_return_address_ends_no_call() {
    let user = Step::Mark(Mark::Context(Context {
        isa: Isa::A64,
        el: Some(ExceptionLevel(0)),
        ..Context::default()
    }));
    let steps = [
        user,
        Run(0x2000, 0x2010, CALL),
        Run(0x2000, 0x2010, JUMP),
        Irq(0x2010),
        Step::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter)),
        Run(0x2010, 0x2014, RETURN),
        F_RETURNS,
    ];
    let outcome = follow_in(Window::default(), true, &steps);
    assert_eq!(outcome.log, "0unseen:f 1call:f f-returned f-open");
}

/// The program continues in a function that is not open, but not at its start.
#[test]
fn a_handler_that_continues_elsewhere_loses_the_callers() {
    let off = || Step::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
    let steps = [
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        off(),
        Run(0x4000, 0x4004, RETURN),
        Run(0x9100, 0x9104, OTHER),
        Irq(0x9104),
        off(),
        Run(0x3010, 0x3014, OTHER),
    ];
    let log = "0unseen:main 1call:f 2signal:h h-unseen f-unseen main-unseen 0unseen:g g-open";
    assert_eq!(follow_in(Window::default(), true, &steps).log, log);
}
