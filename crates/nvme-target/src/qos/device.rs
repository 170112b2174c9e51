//! A device shared by tokens: its tenants by name. `[ReFlex §3.2, §4.3]`
//!
//! One per device, created by a control plane and shared by all its namespaces
//! ([`NamespaceOptions::qos`](crate::NamespaceOptions::qos)). Its tenants follow from the target's
//! [tenancy](crate::Tenancy): those with hosts in one of its namespaces, and [`DEFAULT_TENANT`] for
//! all other hosts. At Connect, cores look up the account that a host's requests are charged to;
//! their schedulers share the device's pool and need no further look-up per request.
//!
//! Invariants: a tenant's number is never reused; a refused tenant is not registered.

use crate::events::{EventKind, Overrun};
use crate::qos::access::DEFAULT_TENANT;
use crate::qos::record::TenantRecord;
use crate::qos::snapshot::TenantSnapshot;
use qos::account::Contract;
use qos::live::{LiveError, Observation, Refit, refit};
use qos::overrun::Notice;
use qos::{
    Account, CostModel, Curve, Declaration, Plan, Refusal, TenantId, Tenants, TokenPool,
    TokenPoolRules,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device shared by tokens.
#[derive(Debug)]
pub struct DeviceQos {
    name: String,
    pool: Arc<TokenPool>,
    register: Mutex<Register>,
}

/// Tenants by name, with their declarations.
pub(crate) type Declared = BTreeMap<String, Declaration>;

/// The registered tenants.
#[derive(Debug)]
struct Register {
    tenants: Tenants,
    by_name: BTreeMap<String, Named>,
    /// Last number given to a tenant; none is reused.
    given: u32,
}

/// A named tenant.
#[derive(Clone, Debug)]
struct Named {
    id: TenantId,
    record: Arc<TenantRecord>,
}

/// Account that a host's requests are charged to, and the record that counts them.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) account: Arc<Account>,
    pub(crate) record: Arc<TenantRecord>,
}

impl DeviceQos {
    /// Creates a device with the measured prices and latency curve; refusals contain `name`. It has
    /// only the default tenant.
    #[must_use]
    pub fn new(name: &str, rules: TokenPoolRules, model: CostModel, curve: Curve) -> Arc<Self> {
        let tenants = Tenants::new(rules, model, curve);
        let pool = Arc::clone(tenants.pool());
        let this = Self {
            name: name.to_owned(),
            pool,
            register: Mutex::new(Register {
                tenants,
                by_name: BTreeMap::new(),
                given: 0,
            }),
        };
        this.replace(&BTreeMap::new())
            .expect("best effort is never refused");
        Arc::new(this)
    }

    /// Returns the name that refusals contain.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device's token rate, and the reserved part of it.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.register().tenants.admission().plan()
    }

    /// Sets a newly measured model and curve, from the next round on. SLOs stay; the plan shows
    /// whether they can be met.
    pub fn recalibrate(&self, model: CostModel, curve: Curve) -> Plan {
        self.register().tenants.recalibrate(model, curve)
    }

    /// Returns its model: the cost of requests, and the read latency at each load.
    #[must_use]
    pub fn model(&self) -> (CostModel, Curve) {
        let register = self.register();
        let admission = register.tenants.admission();
        (*admission.model(), admission.curve().clone())
    }

    /// Replaces the part of the curve that was [observed](crate::probe) in service, from the next
    /// round on. SLOs stay; [`unkept`](Self::unkept) returns those that no longer fit.
    ///
    /// # Errors
    /// Too few or contradictory observations: the model is unchanged.
    pub fn refit(&self, seen: &[Observation]) -> Result<Refit, LiveError> {
        let mut register = self.register();
        let admission = register.tenants.admission();
        let model = *admission.model();
        let refit = refit(admission.curve(), seen)?;
        register.tenants.recalibrate(model, refit.curve.clone());
        Ok(refit)
    }

    /// Returns the tenants whose SLOs the device cannot meet since it was measured again, by name,
    /// each with an SLO that would be admitted. Of several that exceed the capacity together, the
    /// last registered ones are returned.
    #[must_use]
    pub fn unkept(&self) -> Vec<(String, Refusal)> {
        // Cores may look up accounts in the meantime, so the tenants are judged without the lock.
        let admission = self.register().tenants.admission().clone();
        let unkept: BTreeMap<_, _> = admission.unkept().into_iter().collect();
        let register = self.register();
        let named = register.by_name.iter();
        named
            .filter_map(|(name, named)| Some((name.clone(), *unkept.get(&named.id)?)))
            .collect()
    }

    /// Returns the pool that the cores' schedulers share.
    pub(crate) const fn pool(&self) -> &Arc<TokenPool> {
        &self.pool
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        // A change that panicked leaves each tenant registered or not, as a whole.
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the account of a tenant's requests: its own, or the default tenant's if it has none
    /// here.
    pub(crate) fn registered(&self, tenant: &str) -> Registered {
        let register = self.register();
        let registered = register.registered(tenant);
        let registered = registered.or_else(|| register.registered(DEFAULT_TENANT));
        registered.expect("the default tenant is always registered")
    }

    /// Checks every latency-critical tenant: logs those whose demand exceeds their SLO, and judges
    /// SLOs at the end of a window. Returns the events.
    pub(crate) fn look(&self, window_ends: bool) -> Vec<EventKind> {
        let mut events = Vec::new();
        let promised = |declaration: &Declaration| match declaration {
            Declaration::LatencyCritical(slo) => Some(*slo),
            Declaration::BestEffort(_) => None,
        };
        for (name, slo, Registered { account, record }) in self.all(promised) {
            let device = &self.name;
            let notice = record.look(&account);
            match notice {
                Some((Notice::Began, demand)) => tracing::warn!(
                    tenant = name,
                    device,
                    reserved_tokens = demand.reserved_milli / 1000,
                    asked_tokens = demand.asked_milli / 1000,
                    "a tenant exceeds the rate of its SLO: its requests are delayed and may miss \
                     the latency; raise its iops"
                ),
                Some((Notice::Ended, _)) => {
                    tracing::info!(
                        tenant = name,
                        device,
                        "a tenant is within the rate of its SLO \
                        again"
                    );
                }
                None => {}
            }
            events.extend(notice.map(|(notice, demand)| {
                let overrun = Overrun {
                    tenant: name,
                    device: device.clone(),
                    demand,
                };
                overrun.of(notice)
            }));
            if window_ends {
                record.end_window(&slo);
            }
        }
        events
    }

    /// Returns snapshots of its tenants.
    pub(crate) fn tenants(&self) -> Vec<TenantSnapshot> {
        let all = self.all(|declaration| Some(*declaration)).into_iter();
        all.map(|(name, declaration, Registered { account, record })| {
            let (stats, latency) = record.total();
            let (overruns, windows) = record.judged();
            let reserved = match account.contract() {
                Contract::LatencyCritical(rate) => rate.0,
                Contract::BestEffort(_) | Contract::Closed => 0,
            };
            TenantSnapshot {
                name,
                class: declaration.into(),
                reserved_tokens_per_second: reserved,
                stats,
                latency,
                windows,
                overruns,
            }
        })
        .collect()
    }

    /// Returns the tenants for which `wanted` has a value, by name. Cores may look up accounts in
    /// the meantime, so the lock is held for nothing else.
    fn all<T>(&self, wanted: impl Fn(&Declaration) -> Option<T>) -> Vec<(String, T, Registered)> {
        let register = self.register();
        let declared = register.tenants.admission().tenants();
        let named = register.by_name.iter();
        named
            .filter_map(|(name, named)| {
                let wanted = wanted(declared.get(&named.id)?)?;
                Some((name.clone(), wanted, register.registered(name)?))
            })
            .collect()
    }

    /// Replaces the tenants: all of them, or nothing changes. A tenant with an unchanged
    /// declaration is kept. Returns true if a tenant's account changed.
    pub(crate) fn replace(&self, tenants: &Declared) -> Result<bool, (String, Refusal)> {
        let mut register = self.register();
        let mut given = register.given;
        let mut by_name = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        let default = (&DEFAULT_TENANT.to_owned(), &Declaration::default());
        let unnamed = !tenants.contains_key(DEFAULT_TENANT);
        for (name, &declaration) in tenants.iter().chain(unnamed.then_some(default)) {
            let named = register.by_name.get(name).cloned().unwrap_or_else(|| {
                given += 1;
                Named {
                    id: TenantId(given),
                    record: Arc::default(),
                }
            });
            wanted.insert(named.id, declaration);
            by_name.insert(name.clone(), named);
        }
        if wanted == *register.tenants.admission().tenants() {
            return Ok(false);
        }
        register.tenants.replace(&wanted).map_err(|(id, refusal)| {
            let named = by_name.iter().find(|(_, named)| named.id == id);
            let name = named.map(|(name, _)| name.clone());
            (name.unwrap_or_default(), refusal)
        })?;
        for Named { id, record } in by_name.values() {
            record.declare(&wanted[id]);
        }
        let ids = |names: &BTreeMap<String, Named>| -> Vec<_> {
            names.values().map(|named| named.id).collect()
        };
        let others = ids(&register.by_name) != ids(&by_name);
        register.by_name = by_name;
        register.given = given;
        Ok(others)
    }
}

impl Register {
    fn registered(&self, tenant: &str) -> Option<Registered> {
        let named = self.by_name.get(tenant)?;
        Some(Registered {
            account: Arc::clone(self.tenants.account(named.id)?),
            record: Arc::clone(&named.record),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use qos::cost::Price;
    use qos::curve::Point;
    use qos::{Percentile, Slo, TokenRate, Weight};

    fn device() -> Arc<DeviceQos> {
        let point = |rate, us| Point {
            rate: TokenRate(rate),
            latency: [Nanos::from_micros(us); Percentile::COUNT],
        };
        let curve = Curve::new(vec![point(1_000, 100), point(100_000, 500)]).expect("a curve");
        let write = Price::milli(10_000).expect("a price");
        let model = CostModel::new(write, Price::READ);
        DeviceQos::new("flash", TokenPoolRules::default(), model, curve)
    }

    fn account(device: &DeviceQos, tenant: &str) -> Arc<Account> {
        device.registered(tenant).account
    }

    fn reads(iops: u64) -> Declaration {
        Declaration::LatencyCritical(Slo {
            percentile: Percentile::P95,
            latency: Nanos::from_micros(500),
            iops,
            read_permille: 1000,
            request_bytes: 4096,
        })
    }

    fn named(tenants: &[(&str, Declaration)]) -> BTreeMap<String, Declaration> {
        let named = tenants.iter();
        named.map(|&(name, d)| (name.to_owned(), d)).collect()
    }

    #[test]
    fn who_has_no_account_is_the_default_tenant() {
        let device = device();
        let default = account(&device, "anybody");
        assert_eq!(default.contract(), Contract::BestEffort(Weight::default()));
        device.replace(&named(&[("one", reads(10_000))])).unwrap();
        assert_ne!(account(&device, "one").id(), default.id());
        assert!(Arc::ptr_eq(&account(&device, "two"), &default));
        let weight = Weight::new(3).unwrap();
        let light = named(&[(DEFAULT_TENANT, Declaration::BestEffort(weight))]);
        device.replace(&light).unwrap();
        assert_eq!(default.contract(), Contract::BestEffort(weight));
        assert!(Arc::ptr_eq(&account(&device, "one"), &default));
    }

    #[test]
    fn a_refusal_names_the_tenant_and_changes_nothing() {
        let device = device();
        device.replace(&named(&[("one", reads(60_000))])).unwrap();
        let both = named(&[("another", reads(60_000)), ("one", reads(60_000))]);
        let (tenant, refusal) = device.replace(&both).unwrap_err();
        assert_eq!(tenant, "another");
        assert!(refusal.to_string().contains("27625"), "{refusal}");
        assert_eq!(device.tenants().len(), 2, "one, and the default tenant");
        let id = account(&device, "one").id();
        // A tenant that is added again under the same name is a new tenant.
        device.replace(&BTreeMap::new()).unwrap();
        device.replace(&named(&[("one", reads(1_000))])).unwrap();
        assert_ne!(account(&device, "one").id(), id);
    }
}
