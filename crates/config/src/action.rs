//! Actions: the only way in which a running target changes.
//!
//! A file, an HTTP request and a command each become a list of [`Action`]s. `Control` in the crate
//! `control` applies them to the model and the dataplane. This module applies and undoes an action in
//! the model, without I/O.

use serde::{Deserialize, Serialize};

use crate::error::ApplyError;
use crate::schema::{
    Authentication, Configuration, Device, Host, Listener, Namespace, Referral, Size, Subsystem,
    Switch, Tenant,
};

/// One change of a running target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Opens a device that no namespace uses yet.
    AddDevice {
        /// Its name, which is free.
        name: String,
        /// Its kind and its parameters.
        device: Device,
    },
    /// Closes a device that no namespace uses any more.
    RemoveDevice {
        /// Its name.
        name: String,
    },
    /// Adds a subsystem with its namespaces and hosts.
    AddSubsystem {
        /// The subsystem, under a free name.
        subsystem: Subsystem,
    },
    /// Removes a subsystem with its namespaces; its controllers are shut down.
    RemoveSubsystem {
        /// Its name.
        nqn: String,
    },
    /// Adds a namespace; its subsystem's hosts are told.
    AddNamespace {
        /// The subsystem's name.
        nqn: String,
        /// The namespace, with a free identifier.
        namespace: Namespace,
    },
    /// Changes how much of its device a namespace shows; its subsystem's hosts are told.
    ResizeNamespace {
        /// The subsystem's name.
        nqn: String,
        /// The namespace's identifier.
        nsid: u32,
        /// The new size; `None` means all of the device.
        size: Option<Size>,
        /// The size that the configuration states for the namespace's device from then on: a
        /// device that is its namespace's own grows with it. `None` where it states none.
        device_size: Option<Size>,
    },
    /// Removes a namespace; its subsystem's hosts are told.
    RemoveNamespace {
        /// The subsystem's name.
        nqn: String,
        /// The namespace's identifier.
        nsid: u32,
    },
    /// Lets a host connect.
    AllowHost {
        /// The subsystem's name.
        nqn: String,
        /// The host's name.
        host: String,
    },
    /// Lets a host connect no longer; unless any host may, its controllers are shut down.
    DenyHost {
        /// The subsystem's name.
        nqn: String,
        /// The host's name.
        host: String,
    },
    /// Lets every host connect, or only those that are allowed by name; controllers of hosts
    /// that may not are shut down.
    SetAllowAnyHost {
        /// The subsystem's name.
        nqn: String,
        /// Every host may connect.
        allow: bool,
    },
    /// Sets the proof of their names that hosts of a subsystem have to give; controllers of hosts
    /// that have not given it are shut down.
    SetAuthentication {
        /// The subsystem's name.
        nqn: String,
        /// The proof.
        authentication: Authentication,
    },
    /// Declares the hosts that have keys, in files. The keys are valid for new connections.
    SetHosts {
        /// The hosts.
        hosts: Vec<Host>,
    },
    /// Listens on a further address.
    AddListener {
        /// The listener.
        listener: Listener,
    },
    /// Closes a listener. Its connections stay.
    RemoveListener {
        /// The listener.
        listener: Listener,
    },
    /// Names another discovery controller in the discovery log page.
    AddReferral {
        /// The discovery controller.
        referral: Referral,
    },
    /// Names it no longer.
    RemoveReferral {
        /// The discovery controller.
        referral: Referral,
    },
    /// Declares the tenants: their hosts, promises and permissions. The next command of every queue
    /// is checked by them, and controllers of hosts that no tenant covers any more are shut down.
    /// All tenants change at once: no host loses its tenant in between.
    SetTenants {
        /// The tenants.
        tenants: Vec<Tenant>,
        /// Hosts that are no tenant are served.
        default_tenant: bool,
    },
    /// Turns the knobs of the switch while I/O runs.
    TurnKnobs {
        /// All of them.
        switch: Switch,
    },
}

impl Action {
    /// Changes how much of its device a namespace shows, and lets a device that is the namespace's
    /// own grow where it is smaller than `size`.
    #[must_use]
    pub fn resize_namespace(
        model: &Configuration,
        nqn: &str,
        nsid: u32,
        size: Option<Size>,
    ) -> Self {
        let device = model.device_of(nqn, nsid);
        let stated = device.and_then(|device| device.kind.size());
        let grown = size.filter(|_| device.is_some_and(|device| !device.shared));
        Self::ResizeNamespace {
            nqn: nqn.to_owned(),
            nsid,
            size,
            device_size: stated.map(|stated| grown.map_or(stated, |grown| grown.max(stated))),
        }
    }

    /// Does to `model` what the action does to the dataplane. The model as a whole is not
    /// checked: see [`crate::validate`].
    ///
    /// # Errors
    /// [`ApplyErrorKind::NotFound`](crate::ApplyErrorKind::NotFound) or
    /// [`ApplyErrorKind::Conflict`](crate::ApplyErrorKind::Conflict); `model` is unchanged then.
    pub fn apply_to_model(&self, model: &mut Configuration) -> Result<(), ApplyError> {
        match self {
            Self::AddDevice { name, device } => add_device(model, name, device),
            Self::RemoveDevice { name } => remove_device(model, name),
            Self::AddSubsystem { subsystem } => add_subsystem(model, subsystem),
            Self::RemoveSubsystem { nqn } => {
                let index = subsystem_index(model, nqn)?;
                model.subsystems.remove(index);
                Ok(())
            }
            Self::AddNamespace { nqn, namespace } => add_namespace(model, nqn, namespace),
            Self::ResizeNamespace {
                nqn,
                nsid,
                size,
                device_size,
            } => resize(model, nqn, *nsid, *size, *device_size),
            Self::RemoveNamespace { nqn, nsid } => {
                let (subsystem, index) = find_namespace(model, nqn, *nsid)?;
                subsystem.namespaces.remove(index);
                Ok(())
            }
            Self::AllowHost { nqn, host } => allow_host(model, nqn, host),
            Self::DenyHost { nqn, host } => deny_host(model, nqn, host),
            Self::SetAllowAnyHost { nqn, allow } => {
                find_subsystem(model, nqn)?.allow_any_host = *allow;
                Ok(())
            }
            Self::SetTenants {
                tenants,
                default_tenant,
            } => {
                model.tenants.clone_from(tenants);
                model.default_tenant = *default_tenant;
                Ok(())
            }
            Self::SetAuthentication {
                nqn,
                authentication,
            } => {
                find_subsystem(model, nqn)?.authentication = *authentication;
                Ok(())
            }
            Self::SetHosts { hosts } => {
                model.hosts.clone_from(hosts);
                Ok(())
            }
            Self::TurnKnobs { switch } => {
                model.switch = *switch;
                Ok(())
            }
            Self::AddListener { listener } => add_listener(model, listener),
            Self::RemoveListener { listener } => remove_listener(model, listener),
            Self::AddReferral { referral } => add_referral(model, referral),
            Self::RemoveReferral { referral } => remove_referral(model, referral),
        }
    }

    /// The action that brings `before` back, after this one was applied to it; `None` where
    /// something is lost that no action brings back.
    #[must_use]
    pub fn inverse(&self, before: &Configuration) -> Option<Self> {
        match self.clone() {
            Self::AddDevice { name, .. } => Some(Self::RemoveDevice { name }),
            Self::RemoveDevice { name } => {
                let device = before.devices.get(&name)?.clone();
                (!device.kind.is_volatile()).then_some(Self::AddDevice { name, device })
            }
            Self::AddSubsystem { subsystem } => {
                let nqn = subsystem.nqn;
                Some(Self::RemoveSubsystem { nqn })
            }
            Self::RemoveSubsystem { nqn } => {
                let subsystem = before.subsystem(&nqn)?.clone();
                Some(Self::AddSubsystem { subsystem })
            }
            Self::AddNamespace { nqn, namespace } => {
                let nsid = namespace.nsid;
                Some(Self::RemoveNamespace { nqn, nsid })
            }
            Self::ResizeNamespace { nqn, nsid, .. } => {
                let namespace = before.subsystem(&nqn)?.namespace(nsid)?;
                let device = before.devices.get(&namespace.device)?;
                Some(Self::ResizeNamespace {
                    nqn,
                    nsid,
                    size: namespace.size,
                    device_size: device.kind.size(),
                })
            }
            Self::RemoveNamespace { nqn, nsid } => {
                let namespace = before.subsystem(&nqn)?.namespace(nsid)?.clone();
                Some(Self::AddNamespace { nqn, namespace })
            }
            Self::AllowHost { nqn, host } => Some(Self::DenyHost { nqn, host }),
            Self::DenyHost { nqn, host } => Some(Self::AllowHost { nqn, host }),
            Self::SetAllowAnyHost { nqn, .. } => {
                let allow = before.subsystem(&nqn)?.allow_any_host;
                Some(Self::SetAllowAnyHost { nqn, allow })
            }
            Self::SetAuthentication { nqn, .. } => {
                let authentication = before.subsystem(&nqn)?.authentication;
                Some(Self::SetAuthentication {
                    nqn,
                    authentication,
                })
            }
            Self::SetHosts { .. } => Some(Self::SetHosts {
                hosts: before.hosts.clone(),
            }),
            Self::AddListener { listener } => Some(Self::RemoveListener { listener }),
            Self::RemoveListener { listener } => Some(Self::AddListener { listener }),
            Self::AddReferral { referral } => Some(Self::RemoveReferral { referral }),
            Self::RemoveReferral { referral } => Some(Self::AddReferral { referral }),
            Self::SetTenants { .. } => Some(Self::SetTenants {
                tenants: before.tenants.clone(),
                default_tenant: before.default_tenant,
            }),
            Self::TurnKnobs { .. } => {
                let switch = before.switch;
                Some(Self::TurnKnobs { switch })
            }
        }
    }
}

fn resize(
    model: &mut Configuration,
    nqn: &str,
    nsid: u32,
    size: Option<Size>,
    device_size: Option<Size>,
) -> Result<(), ApplyError> {
    let (subsystem, index) = find_namespace(model, nqn, nsid)?;
    let namespace = &mut subsystem.namespaces[index];
    namespace.size = size;
    let name = namespace.device.clone();
    if let (Some(size), Some(device)) = (device_size, model.devices.get_mut(&name)) {
        device.kind.set_size(size);
    }
    Ok(())
}

fn subsystem_index(model: &Configuration, nqn: &str) -> Result<usize, ApplyError> {
    let found = model.subsystems.iter().position(|s| s.nqn == nqn);
    found.ok_or_else(|| ApplyError::no_subsystem(nqn))
}

fn find_subsystem<'a>(
    model: &'a mut Configuration,
    nqn: &str,
) -> Result<&'a mut Subsystem, ApplyError> {
    let index = subsystem_index(model, nqn)?;
    Ok(&mut model.subsystems[index])
}

fn find_namespace<'a>(
    model: &'a mut Configuration,
    nqn: &str,
    nsid: u32,
) -> Result<(&'a mut Subsystem, usize), ApplyError> {
    let subsystem = find_subsystem(model, nqn)?;
    let index = subsystem.namespaces.iter().position(|n| n.nsid == nsid);
    let index = index.ok_or_else(|| ApplyError::no_namespace(nqn, nsid))?;
    Ok((subsystem, index))
}

fn add_device(model: &mut Configuration, name: &str, device: &Device) -> Result<(), ApplyError> {
    if model.devices.contains_key(name) {
        return Err(ApplyError::conflict(
            format!("there is a device {name:?} already"),
            "choose another name, or remove that device first",
        ));
    }
    model.devices.insert(name.to_owned(), device.clone());
    Ok(())
}

fn remove_device(model: &mut Configuration, name: &str) -> Result<(), ApplyError> {
    if let Some((nqn, namespace)) = model.users_of(name).next() {
        return Err(ApplyError::conflict(
            format!(
                "device {name:?} is used by namespace {} of {nqn:?}",
                namespace.nsid
            ),
            "remove the namespace first",
        ));
    }
    let removed = model.devices.remove(name);
    removed.map(drop).ok_or_else(|| ApplyError::no_device(name))
}

fn add_subsystem(model: &mut Configuration, subsystem: &Subsystem) -> Result<(), ApplyError> {
    let nqn = &subsystem.nqn;
    let place = model.subsystems.binary_search_by(|s| s.nqn.cmp(nqn));
    let Err(index) = place else {
        return Err(ApplyError::conflict(
            format!("there is a subsystem {nqn:?} already"),
            "choose another name, or remove that subsystem first",
        ));
    };
    let mut subsystem = subsystem.clone();
    subsystem.sort();
    model.subsystems.insert(index, subsystem);
    Ok(())
}

fn add_namespace(
    model: &mut Configuration,
    nqn: &str,
    namespace: &Namespace,
) -> Result<(), ApplyError> {
    let nsid = namespace.nsid;
    let namespaces = &mut find_subsystem(model, nqn)?.namespaces;
    let Err(index) = namespaces.binary_search_by_key(&nsid, |n| n.nsid) else {
        return Err(ApplyError::conflict(
            format!("subsystem {nqn:?} has a namespace {nsid} already"),
            format!(
                "choose another nsid: those in use are listed by GET /v1/subsystems/{nqn}/namespaces"
            ),
        ));
    };
    namespaces.insert(index, namespace.clone());
    Ok(())
}

fn allow_host(model: &mut Configuration, nqn: &str, host: &str) -> Result<(), ApplyError> {
    let subsystem = find_subsystem(model, nqn)?;
    if !subsystem.allowed_hosts.insert(host.to_owned()) {
        return Err(ApplyError::conflict(
            format!("host {host:?} is allowed already"),
            "nothing needs to be done",
        ));
    }
    Ok(())
}

fn deny_host(model: &mut Configuration, nqn: &str, host: &str) -> Result<(), ApplyError> {
    let subsystem = find_subsystem(model, nqn)?;
    if !subsystem.allowed_hosts.remove(host) {
        return Err(ApplyError::not_found(
            format!("host {host:?} is not among the allowed hosts of {nqn:?}"),
            format!("list them with GET /v1/subsystems/{nqn}/hosts"),
        ));
    }
    Ok(())
}

fn add_listener(model: &mut Configuration, listener: &Listener) -> Result<(), ApplyError> {
    let address = listener.address;
    let place = model.listen.binary_search_by_key(&address, |it| it.address);
    let Err(index) = place else {
        return Err(ApplyError::conflict(
            format!("there is a listener on {address} already"),
            "nothing needs to be done; to change its TLS, remove it first",
        ));
    };
    model.listen.insert(index, *listener);
    Ok(())
}

fn remove_listener(model: &mut Configuration, listener: &Listener) -> Result<(), ApplyError> {
    let index = model.listen.iter().position(|it| it == listener);
    let index = index.ok_or_else(|| ApplyError::no_listener(listener.address))?;
    model.listen.remove(index);
    Ok(())
}

fn remove_referral(model: &mut Configuration, referral: &Referral) -> Result<(), ApplyError> {
    let referrals = &mut model.discovery.referrals;
    let Some(index) = referrals.iter().position(|r| r == referral) else {
        return Err(ApplyError::not_found(
            format!("there is no referral to {}", referral.address),
            "list the referrals with GET /v1/referrals",
        ));
    };
    referrals.remove(index);
    Ok(())
}

fn add_referral(model: &mut Configuration, referral: &Referral) -> Result<(), ApplyError> {
    let referrals = &mut model.discovery.referrals;
    let Err(index) = referrals.binary_search(referral) else {
        return Err(ApplyError::conflict(
            format!("there is a referral to {} already", referral.address),
            "nothing needs to be done",
        ));
    };
    referrals.insert(index, referral.clone());
    Ok(())
}
