//! Windows: what is counted of an execution, and which calls are open where it starts.

use super::*;

#[test]
fn a_window_keeps_the_callers_of_its_start() {
    let window = Window {
        from: Some(Bound::Code([0x2000].into())),
        to: Some(Bound::Code([0x1008].into())),
    };
    let steps = [
        MAIN_CALLS,
        F_CALLS,
        G_RETURNS,
        F_RETURNS,
        Run(0x1008, 0x100c, CALL),
        Run(0x2000, 0x2004, RETURN),
        Run(0x100c, 0x1010, OTHER),
    ];
    let outcome = follow_in(window, false, &steps);
    let log = "0continued:main 1call:f 2call:g g-returned f-open main-open";
    assert_eq!(outcome.log, log);
    assert_eq!(outcome.counted.instructions, 6);
    let found: Vec<(&str, u64)> = outcome.stacks.iter().map(|(p, n)| (&**p, *n)).collect();
    assert_eq!(found, [("main;f", 5), ("main;f;g", 1)]);
    assert_eq!(outcome.counted.ranges, 3);
}

#[test]
fn a_window_starts_and_ends_in_straight_lines() {
    let window = Window {
        from: Some(Bound::Code([0x2008].into())),
        to: Some(Bound::Code([0x100c].into())),
    };
    let outcome = follow_in(
        window,
        false,
        &[
            MAIN_CALLS,
            // These end before the bounds.
            Run(0x2000, 0x2008, JUMP),
            Run(0x2000, 0x200c, RETURN),
            MAIN_CONTINUES,
            Run(0x1008, 0x1010, OTHER),
        ],
    );
    let log = "0continued:main 1continued:f f-returned main-open";
    assert_eq!(outcome.log, log);
    assert_eq!(outcome.counted.instructions, 4);
}

/// A source without a core executes nothing: its messages have timestamps.
#[test]
fn a_window_of_messages_is_one_of_time() {
    let window = Window {
        from: Some(Bound::Time(20)),
        to: Some(Bound::Time(40)),
    };
    let symbols = symbols();
    let mut course = Course::new(
        Image::default(),
        Some(&symbols),
        window,
        false,
        Log::default(),
    );
    course.start_buffer(0);
    for time in [10, 20, 30, 40, 50] {
        let message = Stm {
            timestamp: Some(time),
            ..Stm::default()
        };
        course.element(BufferOffset(0), Element::Mark(Mark::Stm(message)));
    }
    let (_, counted) = course.finish();
    assert!(!counted.unreached);
    assert_eq!((counted.events, counted.last_time), (2, Some(40)));
}

/// A task that was left in the window continues after it, and calls.
#[test]
fn tasks_left_in_the_window_may_continue_after_it() {
    let window = Window {
        from: None,
        to: Some(Bound::Code([0x9104].into())),
    };
    let steps = [
        MAIN_CALLS,
        F_CALLS,
        Run(0x3000, 0x3004, CALL),
        Run(0x4000, 0x4004, OTHER),
        Irq(0x4004),
        HANDLER,
        // Another task.
        Run(0x9100, 0x9104, OTHER),
        Run(0x9104, 0x9108, OTHER),
        Irq(0x9108),
        HANDLER,
        // The first task.
        Run(0x4004, 0x4008, CALL),
        Run(0x2000, 0x2004, RETURN),
    ];
    let outcome = follow_in(window, false, &steps);
    assert!(outcome.log.ends_with(" task-open"), "{}", outcome.log);
    assert_eq!(outcome.counted.instructions, 10);
    assert!(outcome.stacks.contains(&("task".to_owned(), 1)));
}

/// Neither calls nor instructions outside the window take space in the tree.
#[test]
fn chains_outside_of_the_window_are_not_kept() {
    let lost = Step::Mark(Mark::NoSync(NoSyncReason::Overflow));
    let window = Window {
        from: Some(Bound::Code([0x9000].into())),
        to: None,
    };
    let in_h = Run(0x4010, 0x4014, OTHER);
    let steps = [MAIN_CALLS, IN_F, lost, in_h, Run(0x9000, 0x9004, OTHER)];
    let outcome = follow_in(window, false, &steps);
    assert_eq!(outcome.log, "0continued:h h-jumped 0jump:task task-open");
    // The root, h and the task.
    assert_eq!(outcome.counted.tree.nodes().len(), 3);
}
