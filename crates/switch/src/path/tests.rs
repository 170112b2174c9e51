//! Queues under random arrivals, with an oracle that records each request's arrival.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const WRITE: Properties = Properties {
    reads: false,
    awaited: false,
};
const AWAITED: Properties = Properties {
    reads: false,
    awaited: true,
};
const READ: Properties = Properties {
    reads: true,
    awaited: true,
};

fn at(micros: u64) -> Time {
    Time::ZERO + Nanos::from_micros(micros)
}

#[test]
fn names_come_back_and_others_are_refused() {
    for path in Path::ALL {
        assert_eq!(path.to_string().parse(), Ok(path));
    }
    let error = "SYNC".parse::<Path>().unwrap_err();
    assert!(error.to_string().contains("use interrupt, poll"), "{error}");
}

#[test]
fn rules_have_ranges() {
    assert_eq!(PathRules::default().validate(), Ok(()));
    assert_eq!(PathRules::default().of_disks().validate(), Ok(()));
    let wrong = PathRules {
        unplug_threshold: 0,
        ..PathRules::default()
    };
    let error = wrong.validate().unwrap_err();
    assert_eq!(error.to_string(), "unplug_threshold must be from 1 to 1024");
}

#[test]
fn a_path_with_parameters_comes_back_as_text() {
    let parsed = |text: &str| text.parse::<PathSpec>();
    for text in [
        "sync",
        "stm:handover_us=500",
        "2q:unplug_threshold=8,table_entries=64",
        "poll:table_entries=8,handover_us=200",
        "atm:unplug_threshold=8,unplug_delay_us=0,table_entries=64,handover_us=1000000",
    ] {
        assert_eq!(parsed(text).map(|spec| spec.to_string()), Ok(text.into()));
    }
    let spec = parsed("htm:unplug_delay_us=250").expect("a path");
    assert_eq!(spec.rules.unplug_delay, Nanos::from_micros(250));
    assert_eq!(spec.for_awaited(), Err(PathError::NoPlug));
    let stm = PathSpec::from(Path::Stm);
    assert_eq!(stm.for_awaited(), Ok(stm));
}

/// Parameters that the path overrides or ignores must be rejected.
#[test]
fn parameters_without_effect_or_sense_are_refused() {
    for (text, expected) in [
        ("interrupt:unplug_threshold=8", "no effect on interrupt"),
        ("poll:unplug_delay_us=8", "no effect on poll"),
        ("stm:unplug_threshold=8", "no effect on stm"),
        ("sync:table_entries=8", "no effect on sync"),
        ("sync:handover_us=500", "no effect on sync"),
        ("fast:handover_us=500", "no I/O path"),
        ("stm:", "no parameter"),
        ("stm:handover_us", "no parameter"),
        ("stm:handover_us=-1", "no parameter"),
        ("stm:handover=1", "no parameter"),
        (
            "stm:handover_us=1",
            "handover_us must be from 100 to 1000000",
        ),
        (
            "atm:unplug_delay_us=10001",
            "unplug_delay_us must be from 0 to 10000",
        ),
        (
            "atm:table_entries=0",
            "table_entries must be from 1 to 1024",
        ),
    ] {
        let error = text.parse::<PathSpec>().expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_hybrid_path_sends_only_unawaited_writes_to_the_plug() {
    for path in [Path::Htm, Path::VfsHtm] {
        let kind = |request| match path.route(request) {
            Route::Queue(index) => path.queues()[index],
            Route::Own => panic!("a hybrid path has queues"),
        };
        assert_eq!(kind(READ), QueueKind::Temporal);
        assert_eq!(kind(AWAITED), QueueKind::Temporal);
        assert_eq!(kind(WRITE), QueueKind::Plugged);
    }
    assert_eq!(Path::Sync.route(WRITE), Route::Own);
}

#[test]
fn a_plug_leaves_at_its_threshold_or_its_time() {
    let rules = PathRules {
        unplug_threshold: 3,
        ..PathRules::default()
    };
    let mut gate = Gate::new(QueueKind::Plugged, rules);
    assert_eq!(gate.arrive(at(0), WRITE), QueueStep::At(at(1_000)));
    assert_eq!(gate.arrive(at(10), WRITE), QueueStep::Nothing);
    assert_eq!(gate.next(at(999)), QueueStep::At(at(1_000)));
    assert_eq!(gate.next(at(1_000)), QueueStep::Run(Runner::Dispatcher));
    assert_eq!(
        gate.arrive(at(20), WRITE),
        QueueStep::Run(Runner::Submitter)
    );
}

#[test]
fn a_plug_leaves_when_a_thread_waits_for_it() {
    let mut gate = Gate::new(QueueKind::Plugged, PathRules::default());
    assert_eq!(gate.unplug(at(0)), QueueStep::Nothing);
    gate.arrive(at(0), WRITE);
    assert_eq!(gate.unplug(at(1)), QueueStep::Run(Runner::Submitter));
    gate.begin();
    gate.take(WRITE);
    // A request that arrives while a batch is in flight goes with the next one.
    gate.arrive(at(2), WRITE);
    assert_eq!(gate.unplug(at(3)), QueueStep::Nothing);
    assert!(gate.goes_on(at(4), Runner::Submitter));
    gate.take(WRITE);
    assert!(!gate.goes_on(at(5), Runner::Submitter));
    gate.arrive(at(6), WRITE);
    assert_eq!(gate.next(at(7)), QueueStep::At(at(1_006)));
    // A dispatched queue is run by its dispatcher.
    let mut gate = Gate::new(QueueKind::Dispatched, PathRules::default());
    gate.arrive(at(0), WRITE);
    assert_eq!(gate.unplug(at(1)), QueueStep::Run(Runner::Dispatcher));
}

#[test]
fn a_read_unplugs_and_no_second_one_joins_it() {
    let mut gate = Gate::new(QueueKind::Plugged, PathRules::default());
    gate.arrive(at(0), WRITE);
    assert_eq!(gate.arrive(at(1), READ), QueueStep::Run(Runner::Submitter));
    let mut taking = gate.taking();
    let taken = [WRITE, READ, READ, WRITE].map(|request| taking.takes(request));
    assert_eq!(taken, [true, true, false, true]);
}

#[test]
fn double_buffering_hands_over_to_the_dispatcher() {
    let mut gate = Gate::new(QueueKind::Shadow, PathRules::default());
    assert_eq!(
        gate.arrive(at(0), AWAITED),
        QueueStep::Run(Runner::Submitter)
    );
    gate.begin();
    gate.take(AWAITED);
    assert_eq!(gate.arrive(at(1), READ), QueueStep::Nothing);
    assert!(!gate.goes_on(at(2), Runner::Submitter));
    assert_eq!(gate.after(at(2)), QueueStep::Run(Runner::Dispatcher));
    gate.begin();
    gate.take(READ);
    gate.arrive(at(3), READ);
    assert!(gate.goes_on(at(4), Runner::Dispatcher));
    gate.take(READ);
    assert!(!gate.goes_on(at(5), Runner::Dispatcher));
    assert_eq!(gate.after(at(5)), QueueStep::Nothing);
}

/// 2Q is ATM with another critical section, so write-back accumulates in its plug. `[Yu §5.1]`
#[test]
fn double_buffering_plugs_write_back_as_atm_does() {
    for kind in [QueueKind::Plugged, QueueKind::Shadow] {
        let mut gate = Gate::new(kind, PathRules::default());
        assert_eq!(gate.arrive(at(0), WRITE), QueueStep::At(at(1_000)));
        for _ in 1..31 {
            assert_eq!(gate.arrive(at(1), WRITE), QueueStep::Nothing);
        }
        assert_eq!(gate.arrive(at(2), WRITE), QueueStep::Run(Runner::Submitter));
        // Below the threshold, the dispatcher sends when they are due, and a waiting thread sends
        // at once.
        let mut gate = Gate::new(kind, PathRules::default());
        gate.arrive(at(0), WRITE);
        assert_eq!(gate.next(at(1_000)), QueueStep::Run(Runner::Dispatcher));
        assert_eq!(gate.unplug(at(5)), QueueStep::Run(Runner::Submitter));
    }
    // A read takes the accumulated writes along.
    let mut gate = Gate::new(QueueKind::Shadow, PathRules::default());
    gate.arrive(at(0), WRITE);
    gate.arrive(at(1), WRITE);
    assert_eq!(gate.arrive(at(2), READ), QueueStep::Run(Runner::Submitter));
    let mut taking = gate.taking();
    assert_eq!([WRITE, WRITE, READ].map(|one| taking.takes(one)), [true; 3]);
}

/// A journal write must not leave with everything that the caches write back meanwhile.
#[test]
fn commits_leave_before_what_nobody_waits_for_and_every_other_time() {
    let mut gate = Gate::new(QueueKind::Shadow, PathRules::default());
    let batch = |gate: &mut Gate, requests: &[Properties]| {
        let mut taking = gate.taking();
        let takes = |request: &Properties| taking.takes(*request);
        let taken: Vec<_> = requests.iter().copied().filter(takes).collect();
        taken.iter().for_each(|request| gate.take(*request));
        taken
    };
    let put = |gate: &mut Gate, requests: &[Properties]| {
        for request in requests {
            gate.arrive(at(0), *request);
        }
    };
    put(&mut gate, &[WRITE, READ, AWAITED, WRITE, AWAITED]);
    let first = batch(&mut gate, &[WRITE, READ, AWAITED, WRITE, AWAITED]);
    assert_eq!(first, [AWAITED, AWAITED]);
    put(&mut gate, &[AWAITED]);
    let second = [WRITE, READ, WRITE, AWAITED];
    assert_eq!(batch(&mut gate, &second), second);
    // Threads that all wait for their requests merge them.
    let all = [READ, AWAITED, READ];
    put(&mut gate, &all);
    assert_eq!(batch(&mut gate, &all), all);
}

#[test]
fn neighbours_join_where_one_ends() {
    assert!(Merge::Neighbours.joins(8, 8));
    assert!(!Merge::Neighbours.joins(8, 9));
    assert!(Merge::Any.joins(8, 9) && Merge::Any.joins(8, 8));
    assert!(!Merge::Any.joins(8, 7));
    assert!(!Merge::One.joins(8, 8));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Properties),
    /// Time passes, in microseconds.
    Pass(u64),
    /// The batch in flight completes.
    Done,
    /// A thread waits for a plugged request.
    Unplug,
}

fn event() -> impl Strategy<Value = Event> {
    let request = prop_oneof![Just(READ), Just(AWAITED), Just(WRITE), Just(WRITE)];
    prop_oneof![
        4 => request.prop_map(Event::Arrive),
        2 => (0_u64..1_500).prop_map(Event::Pass),
        3 => Just(Event::Done),
        1 => Just(Event::Unplug),
    ]
}

/// A queue, its requests with their arrival times, and its runner.
struct Oracle {
    kind: QueueKind,
    rules: PathRules,
    gate: Gate,
    now: Time,
    queue: VecDeque<(Time, Properties)>,
    runner: Option<Runner>,
    alarm: Option<Time>,
    /// The last batch contained only commits.
    commits_went: bool,
}

impl Oracle {
    fn follow(&mut self, next: QueueStep) {
        match next {
            QueueStep::Nothing => {}
            QueueStep::At(time) => self.alarm = Some(time),
            QueueStep::Run(runner) => {
                self.gate.begin();
                self.runner = Some(runner);
                self.batch();
            }
        }
    }

    /// The runner takes a batch.
    fn batch(&mut self) {
        let mut taking = self.gate.taking();
        let waits = |properties| self.queue.iter().any(|(_, request)| *request == properties);
        let contend = self.kind == QueueKind::Shadow && waits(AWAITED) && waits(WRITE);
        let commits = self.queue.iter().filter(|(_, request)| *request == AWAITED);
        let commits = commits.count().min(self.rules.table_entries as usize);
        let before = self.queue.len();
        let front = self.queue[0].1;
        let mut taken = Vec::new();
        self.queue.retain(|&(_, request)| {
            let takes = taking.takes(request);
            if takes {
                taken.push(request);
            }
            !takes
        });
        for &request in &taken {
            self.gate.take(request);
        }
        assert!(!taken.is_empty(), "{before} waited, and none was taken");
        assert!(taken.len() <= self.rules.table_entries as usize);
        if contend && !self.commits_went {
            assert!(taken.iter().all(|request| *request == AWAITED));
            assert_eq!(taken.len(), commits, "commits go alone, all of them");
            self.commits_went = true;
        } else {
            let oldest = self.kind == QueueKind::Plugged || taken[0] == front;
            assert!(oldest, "the next batch is of all");
            self.commits_went = false;
        }
        let reads = taken.iter().filter(|request| request.reads).count();
        assert!(self.kind != QueueKind::Plugged || reads <= 1);
    }

    fn done(&mut self) {
        let Some(runner) = self.runner else { return };
        if self.gate.goes_on(self.now, runner) {
            return self.batch();
        }
        self.runner = None;
        self.follow(self.gate.after(self.now));
    }

    /// Lets time pass, with the dispatcher's timer set.
    fn pass(&mut self, micros: u64) {
        let end = self.now + Nanos::from_micros(micros);
        while let Some(alarm) = self.alarm.filter(|&alarm| alarm <= end) {
            self.now = self.now.max(alarm);
            self.alarm = None;
            self.follow(self.gate.next(self.now));
        }
        self.now = end;
    }

    fn check(&self) {
        assert_eq!(self.gate.waiting() as usize, self.queue.len());
        assert_eq!(self.gate.is_running(), self.runner.is_some());
        if self.runner.is_some() || self.queue.is_empty() {
            return;
        }
        // A request that waits without a runner is plugged, and a timer will release it in time.
        assert!(matches!(
            self.kind,
            QueueKind::Plugged | QueueKind::Dispatched | QueueKind::Shadow
        ));
        let oldest = self.queue.iter().map(|(came, _)| *came).min();
        let oldest = oldest.expect("it is not empty");
        let alarm = self.alarm.expect("an alarm for what waits");
        assert!(alarm <= oldest + self.rules.unplug_delay);
        assert!(self.queue.len() < self.rules.unplug_threshold as usize);
        assert!(self.queue.iter().all(|(_, request)| *request == WRITE));
    }
}

proptest! {
    #[test]
    fn no_request_waits_without_a_runner_beyond_its_time(
        kind in prop_oneof![
            Just(QueueKind::Dispatched),
            Just(QueueKind::Temporal),
            Just(QueueKind::Plugged),
            Just(QueueKind::Shadow),
        ],
        unplug_threshold in 1_u32..6,
        table_entries in 1_u32..6,
        events in prop::collection::vec(event(), 0..200),
    ) {
        let rules = PathRules { unplug_threshold, table_entries, ..PathRules::default() };
        let mut oracle = Oracle {
            kind,
            rules,
            gate: Gate::new(kind, rules),
            now: at(1),
            queue: VecDeque::new(),
            runner: None,
            alarm: None,
            commits_went: false,
        };
        for event in events {
            match event {
                Event::Arrive(request) => {
                    oracle.queue.push_back((oracle.now, request));
                    let next = oracle.gate.arrive(oracle.now, request);
                    oracle.follow(next);
                }
                Event::Pass(micros) => oracle.pass(micros),
                Event::Done => oracle.done(),
                Event::Unplug => {
                    let next = oracle.gate.unplug(oracle.now);
                    oracle.follow(next);
                    prop_assert!(oracle.queue.is_empty() || oracle.runner.is_some());
                }
            }
            oracle.check();
        }
        // At the end no request remains.
        for _ in 0..400 {
            oracle.done();
            oracle.pass(100);
        }
        prop_assert!(oracle.queue.is_empty() && oracle.runner.is_none());
    }
}
