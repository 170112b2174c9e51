//! The cost of a request's way through the switchboard, without the lanes: for benchmarks.

use super::egress::EgressService;
use super::ingress::{Ingress, IngressRequest, Submitter};
use super::limits::INGRESS_ENTRIES;
use super::message::{DataplaneConfig, DataplaneMessage, Update};
use super::request_steering::LoadTable;
use crate::error::HostError;
use base::units::{KIB, Lba};
use base::{Nanos, Time};
use block::Operation;
use reactor::clock::thread_cpu;
use reactor::uring::UringDriver;
use reactor::{Context, Driver as _, Region, Service as _};
use std::sync::Arc;
use switch::{Class, Knobs};

/// Processor time of one `Latency` request through ingress, steering, accounting and egress and
/// back to its submitter, with `depth` requests (1 to 128) between two turns of the dataplane
/// thread, measured over `requests` requests on the calling thread. No controller is connected, so
/// the egress answers at once; the cost of a lane is not included.
///
/// # Errors
/// No io_uring or memory available.
pub fn cost_of_passing(requests: u64, depth: u32) -> Result<Nanos, HostError> {
    let mut driver = UringDriver::new(&super::driver_options())?;
    let ingresses = Arc::new(vec![Ingress::new(INGRESS_ENTRIES)]);
    let ingress = &ingresses[0];
    let region = Region::new(4 * KIB).map_err(|error| HostError::Option(error.to_string()))?;
    let depth = depth.clamp(1, 128);
    let submitter = Arc::new(Submitter::new(depth as usize, region, driver.waker()));
    let mut service = EgressService::new(DataplaneConfig {
        id: driver.core(),
        core: 0,
        ingresses: Arc::clone(&ingresses),
        loads: Arc::new(LoadTable::new(1)),
        published: Arc::default(),
        knobs: Knobs::switchyard(),
    });
    let mut cx = Context::begin(&mut driver);
    let join = Update::Join(0, Arc::clone(&submitter));
    service.message(DataplaneMessage(join), &mut cx);
    let entry = |slot| IngressRequest {
        limit: Time::NEVER,
        submitter: 0,
        slot,
        target: 0,
        namespace: 0,
        class: Class::Latency,
        steered: false,
        operation: Operation::Read,
        lba: Lba(u64::from(slot)),
        blocks: 8,
        data: Some((0, 4096)),
    };
    let began = thread_cpu();
    let mut answered = 0;
    while answered < requests {
        for slot in 0..depth {
            let put = ingress.put(entry(slot));
            submitter.asked();
            debug_assert!(put.is_ok(), "the queue is longer than that");
        }
        ingress.sleeper.ring();
        service.maintain(&mut cx);
        while submitter.take().is_some() {
            answered += 1;
        }
    }
    let took = thread_cpu().saturating_sub(began);
    Ok(Nanos(Nanos::from(took).0 / answered.max(1)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_request_comes_back() {
        // It would never end if a request were lost.
        super::cost_of_passing(10_000, 7).unwrap();
    }
}
