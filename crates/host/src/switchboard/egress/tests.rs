//! Sleep of a dataplane core, and tags.

use super::egresses::{pack, unpack};
use super::*;
use crate::switchboard::request_steering::LoadTable;
use base::units::CoreId;
use reactor::Wake;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A core that only checks whether it may sleep, while it polls, is not woken for each run of
/// requests from another core.
#[test]
fn a_core_that_polls_is_not_woken() {
    let ingresses = Arc::new(vec![Ingress::new(4)]);
    let ingress = &ingresses[0];
    let wakes = Arc::new(Wakes::default());
    ingress.sleeper.serve(Arc::clone(&wakes) as Arc<dyn Wake>);
    let mut service = EgressService::new(DataplaneConfig {
        id: CoreId(0),
        core: 0,
        ingresses: Arc::clone(&ingresses),
        loads: Arc::new(LoadTable::new(1)),
        published: Arc::default(),
        knobs: Knobs::switchyard(),
    });
    assert_eq!(service.deadline(), Time::NEVER);
    ingress.sleeper.ring();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    assert!(service.may_sleep());
    ingress.sleeper.ring();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "it sleeps");
}

#[test]
fn a_tag_holds_submitter_slot_and_class() {
    for class in Class::ALL {
        let tag = pack(0xffff_fffe, 0x00ab_cdef, class);
        assert_eq!(unpack(tag), (0xffff_fffe, 0x00ab_cdef, class));
    }
}
