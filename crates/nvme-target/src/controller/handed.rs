//! A controller on its way to the process that takes the target over.
//!
//! It is packed when its admin queue is its only connection and has no command outstanding except
//! Asynchronous Event Requests. The error log stays behind; only its count goes along.

use crate::authentication::Authentication;
use crate::authentication::standing::Standing;
use crate::controller::async_events::AsyncEvents;
use crate::controller::keep_alive::KeepAlive;
use crate::controller::registers::Registers;
use crate::controller::registry::{ConnectionPlace, ControllerKind, QueueTerms, SharedController};
use crate::controller::state::{Controller, Features};
use crate::qos::access::AccessRules;
use crate::subsystem::Subsystem;
use base::Time;
use base::mutation::{self, Mutation};
use secure::chap::Secret;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use wire::nvme::feature::HostBehavior;
use zeroize::Zeroizing;

/// Host Behavior Support, in the same form.
#[derive(Serialize, Deserialize)]
#[serde(remote = "HostBehavior")]
struct Behavior {
    acre: u8,
    etdas: u8,
    lbafee: u8,
}

/// A secret of DH-HMAC-CHAP, as text.
#[derive(Debug)]
struct SecretText(Secret);

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_text())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        Secret::parse(&text).map(Self).map_err(D::Error::custom)
    }
}

/// The state of a controller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedController {
    pub(crate) kind: ControllerKind,
    /// NQN of the subsystem; `None` for a discovery controller.
    pub(crate) subsystem: Option<String>,
    host_nqn: String,
    host_id: [u8; 16],
    reached: Option<IpAddr>,
    registers: Registers,
    /// KATO; the timer starts again.
    keep_alive_ms: u32,
    features: Features,
    timestamp_ms: Option<u64>,
    error_recovery: BTreeMap<u32, u32>,
    events: AsyncEvents,
    uncached: bool,
    granted: u16,
    created: bool,
    classes: bool,
    ready: bool,
    #[serde(with = "Behavior")]
    behavior: HostBehavior,
    terms: BTreeMap<u16, QueueTerms>,
    proven: Authentication,
    queues_authenticate: bool,
    secret: Option<SecretText>,
    errors: u64,
}

impl HandedController {
    /// Packs a controller.
    pub(crate) fn pack(controller: &Controller, now: Time) -> Self {
        let shared = &controller.shared;
        let (queues, standing) = (shared.queues(), shared.standing());
        let features = controller.features;
        let subsystem = shared.subsystem.as_ref();
        Self {
            kind: shared.kind,
            subsystem: subsystem.map(|subsystem| subsystem.nqn.clone()),
            host_nqn: shared.host_nqn.clone(),
            host_id: shared.host_id,
            reached: controller.reached,
            registers: controller.registers,
            keep_alive_ms: match mutation::active(Mutation::TakeOverForgetsKeepAlive) {
                true => 0,
                false => controller.keep_alive.timeout_ms,
            },
            timestamp_ms: features.timestamp_at(now),
            features,
            error_recovery: controller.error_recovery.clone(),
            events: controller.events.handed(),
            uncached: controller.uncached.get(),
            granted: queues.granted,
            created: queues.created,
            classes: queues.classes,
            ready: queues.ready && !mutation::active(Mutation::TakeOverForgetsReady),
            behavior: queues.behavior,
            terms: queues.terms.clone(),
            proven: standing.proven,
            queues_authenticate: standing.queues_authenticate
                && !mutation::active(Mutation::TakeOverForgetsProof),
            secret: standing.secret().cloned().map(SecretText),
            errors: shared.error_count(),
        }
    }

    /// Unpacks the controller with this identifier for its admin queue at `admin`.
    pub(crate) fn unpack(
        self,
        id: u16,
        subsystem: Option<Arc<Subsystem>>,
        (peer, admin): (SocketAddr, ConnectionPlace),
        patience: base::Nanos,
        (rules, now): (&Arc<AccessRules>, Time),
    ) -> Controller {
        let host = (self.host_nqn, self.host_id);
        let secret = self.secret.map(|text| text.0);
        let mut standing = Standing::taken_over(self.proven, self.queues_authenticate, secret);
        if let Some(subsystem) = &subsystem {
            let tenants = rules.host_tenants(&host.0, &subsystem.nqn);
            standing.tenant = tenants.held_to_account().cloned();
        }
        let shared =
            SharedController::new(id, self.kind, subsystem, host, peer, admin, self.granted);
        let shared = Arc::new(shared.with(standing));
        shared.set_error_count(self.errors);
        let mut queues = shared.queues();
        queues.created = self.created;
        queues.classes = self.classes;
        queues.ready = self.ready;
        queues.behavior = self.behavior;
        queues.terms = self.terms;
        queues.left = now;
        drop(queues);
        let mut features = self.features;
        features.timestamp = self.timestamp_ms.map(|millis| (millis, now));
        Controller {
            rights: shared.decide(rules).rights(),
            shared,
            reached: self.reached,
            registers: self.registers,
            keep_alive: KeepAlive::new(self.keep_alive_ms, now).with_patience(patience),
            features,
            error_recovery: self.error_recovery,
            events: self.events,
            aborts: 0,
            uncached: Cell::new(self.uncached),
        }
    }
}
