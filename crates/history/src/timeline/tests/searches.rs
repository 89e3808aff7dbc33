//! Searches find the same on any number of threads.

use super::*;

#[test]
fn a_search_finds_the_same_on_any_number_of_threads() {
    let program = Program::random(3, Mix::all(Sets::Both), 8_000);
    let unit = TraceUnitOptions {
        return_stack: true,
        ..TraceUnitOptions::default()
    };
    // With one synchronisation point, and with many.
    for sync_bytes in [0, 300] {
        let source = etmv4(&program, unit, sync_bytes);
        let loaded = snapshot(&program, &source, Layout::Alone, 1);
        let places = places(open(&loaded, &WHOLE).history(0).unwrap());
        let addresses: Vec<u64> = places.iter().filter_map(|place| Some(place.1?.0)).collect();
        let count = |wanted: &u64| addresses.iter().filter(|at| *at == wanted).count();
        let rarest = addresses
            .iter()
            .min_by_key(|at| count(at))
            .copied()
            .unwrap();
        let (first, last) = (addresses[0], addresses[addresses.len() - 1]);
        for jobs in [1, 2, 3, 8] {
            let options = Options {
                jobs,
                ..options(300, 1000)
            };
            let mut timeline = open(&loaded, &options);
            let history = timeline.history(0).unwrap();
            let here = super::places(history);
            assert_eq!(here.len(), places.len());
            let middle = here.len() / 2;
            for wanted in [vec![first], vec![last], vec![rarest, last], vec![4], vec![]] {
                let set: AddressSet = wanted.iter().map(|&at| Address(at)).collect();
                let hits = |place: &&(Position, Option<Address>)| {
                    place.1.is_some_and(|at| wanted.contains(&at.0))
                };
                for from in [0, middle, here.len() - 1] {
                    let position = here[from].0;
                    let forward = history.search(position, Direction::Forward, &set, Gaps::Pass);
                    let found = here[from + 1..].iter().find(hits);
                    let end = here[here.len() - 1].0;
                    let expected = found.map_or(Found::End(end), |place| Found::At(place.0));
                    assert_eq!(
                        forward, expected,
                        "{jobs} threads, {wanted:x?} from {position}"
                    );
                    let backward = history.search(position, Direction::Backward, &set, Gaps::Pass);
                    let found = here[..from].iter().rfind(hits);
                    let expected = found.map_or(Found::End(here[0].0), |place| Found::At(place.0));
                    assert_eq!(
                        backward, expected,
                        "{jobs} threads, {wanted:x?} from {position}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_search_on_several_threads_can_be_cancelled_at_any_time() {
    let program = Program::random(4, Mix::all(Sets::AArch64), 8_000);
    let source = etmv4(&program, TraceUnitOptions::default(), 100);
    let loaded = snapshot(&program, &source, Layout::Raw, 1);
    let options = Options {
        jobs: 3,
        ..options(300, 1000)
    };
    let never: AddressSet = [Address(4)].into_iter().collect();
    let mut cancelled = 0;
    for checks in 0..10_000 {
        let mut timeline = open(&loaded, &options);
        let history = timeline.history(0).unwrap();
        let (begin, end) = (history.begin(), history.end());
        let limited = Cancel::default().limited_to(checks);
        let backward = Direction::Backward;
        match history.search_unless(end, backward, &never, Gaps::Pass, &limited) {
            None => cancelled += 1,
            Some(found) => {
                assert_eq!(found, Found::End(begin));
                assert!(cancelled > 2, "{cancelled}");
                return;
            }
        }
        // The search can be repeated.
        let found = history.search(end, backward, &never, Gaps::Pass);
        assert_eq!(found, Found::End(begin));
    }
    panic!("it never ends");
}
