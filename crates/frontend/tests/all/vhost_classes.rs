//! A load on a vhost-user back end from this project's own front end: the back end receives each
//! application's class.

use crate::back_ends::{options, ram, serve};
use load::vhost::VhostDisk;
use load::{App, KnobTurns, LoadOptions, Storage};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use switch::Class;
use switchyard_frontend::ClassChoice;
use switchyard_frontend::vhost::VhostOptions;

/// Longer than any operation that works.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn each_application_has_the_class_that_it_says() {
    let server = serve(
        &ram(),
        &VhostOptions {
            class: ClassChoice::ByIoPriority,
            queues: Some(2),
            ..options()
        },
    );
    let served = |class: Class| server.counts()[class].requests();
    let disk = VhostDisk::connect(server.socket()).unwrap();
    let storage = Storage::Vhost(disk);
    let load = |apps: &[&str]| {
        let apps: Vec<App> = apps.iter().map(|app| app.parse().unwrap()).collect();
        let options = LoadOptions {
            warmup: Duration::ZERO,
            measured: Duration::from_millis(50),
            seed: 7,
            ..LoadOptions::default()
        };
        let (turns, stop) = (KnobTurns::default(), AtomicBool::new(false));
        let report = load::bench(&apps, &storage, turns, options, None, &stop, &mut |_| {});
        assert_eq!(report.unwrap().errors(), 0);
    };
    // One load may end before a slow machine has served any request.
    let until_served = |class: Class, apps: &[&str]| {
        let began = Instant::now();
        while served(class) == 0 {
            assert!(began.elapsed() < PATIENCE, "no request of {class}");
            load(apps);
        }
    };
    // This thread's I/O priority, which applies to applications without a class, is not real-time.
    until_served(
        Class::Throughput,
        &[
            "a:rw=randread,depth=4,class=T",
            "b:rw=randread,depth=4,class=ioprio",
        ],
    );
    assert_eq!(served(Class::Latency), 0);
    until_served(
        Class::Latency,
        &[
            "a:rw=randread,depth=4,class=T",
            "b:rw=randread,depth=1,class=L",
        ],
    );
}
