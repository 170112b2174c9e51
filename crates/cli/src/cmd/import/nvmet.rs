//! The kernel's target, as `nvmetcli save` writes it.

use super::draft::{Exported, Import, file_name, namespace};
use super::json::Json;

use anyhow::{Context as _, Result, ensure};
use config::limits::NQN_BYTES_MAX;
use config::schema::{DISCOVERY_NQN, DISCOVERY_PORT, Referral, Subsystem, TlsMode};
use std::collections::BTreeSet;
use target::limits::NAMESPACES_MAX;

/// Converts it.
///
/// # Errors
/// A value of another form than `nvmetcli` writes.
pub fn convert(root: Json<'_>) -> Result<Import> {
    ensure!(
        root.0.get("subsystems").is_some() || root.0.get("ports").is_some(),
        "there is no \"subsystems\" and no \"ports\"; name a file that `nvmetcli save FILE` wrote"
    );
    let mut import = Import::default();
    for host in root.list("hosts")? {
        keys(host, &mut import)?;
    }
    for subsystem in root.list("subsystems")? {
        let nqn = subsystem.required("nqn").context("a subsystem")?;
        let read = read_subsystem(&nqn, subsystem, &mut import);
        read.with_context(|| format!("subsystem {nqn:?}"))?;
    }
    for port in root.list("ports")? {
        let id = port.text("portid").unwrap_or_default();
        read_port(&id, port, &mut import).with_context(|| format!("port {id:?}"))?;
    }
    Ok(import)
}

/// Notes the keys of a host. The source has the key of DH-HMAC-CHAP itself, which a configuration
/// never contains.
fn keys(host: Json<'_>, import: &mut Import) -> Result<()> {
    let nqn = host.required("nqn").context("a host")?;
    let has = |key: &str| host.at("dhchap").text(key).is_some_and(|it| it != "false");
    if !has("key") {
        return Ok(());
    }
    let mut files = vec![(
        "dhchap_key",
        format!("{}.chap", file_name(&nqn, NQN_BYTES_MAX)),
    )];
    if has("ctrl_key") {
        files.push((
            "dhchap_ctrl_key",
            format!("{}.ctrl", file_name(&nqn, NQN_BYTES_MAX)),
        ));
    }
    for (attribute, file) in &files {
        import.note(format!(
            "host {nqn}: write its key to {file} beside the configuration file: (umask 077; cat \
             /sys/kernel/config/nvmet/hosts/{nqn}/{attribute} > {file})"
        ));
    }
    let mut files = files.into_iter().map(|(_, file)| file);
    let host = import.host(&nqn);
    host.chap_secrets.extend(files.next());
    host.chap_controller_secret = files.next();
    Ok(())
}

fn read_subsystem(nqn: &str, from: Json<'_>, import: &mut Import) -> Result<()> {
    let attributes = from.at("attr");
    let mut subsystem = Subsystem::new(nqn);
    subsystem.allow_any_host = attributes.flag("allow_any_host");
    match attributes.text("serial") {
        Some(serial) => subsystem.serial = serial,
        None => import.note(format!(
            "subsystem {nqn} gets another serial number: none was saved"
        )),
    }
    subsystem.model = attributes.text("model").unwrap_or(subsystem.model);
    let hosts = from.list("allowed_hosts")?;
    let hosts = hosts.filter_map(|host| host.0.as_str());
    subsystem.allowed_hosts = hosts.map(str::to_owned).collect();
    if attributes.flag("pi_enable") {
        import.note(format!(
            "subsystem {nqn} has protection information; Switchyard has none: format the devices \
             without metadata"
        ));
    }
    for passthru in from.list("passthru")? {
        if passthru.flag("enable") {
            let path = passthru.at("device").text("path").unwrap_or_default();
            import.note(format!(
                "subsystem {nqn} passes commands to the controller {path}; left out: add its \
                 namespaces as devices of type \"file\""
            ));
        }
    }
    for entry in from.list("namespaces")? {
        read_namespace(&mut subsystem, entry, import)?;
    }
    import.subsystems.push(Exported {
        subsystem,
        addresses: BTreeSet::new(),
    });
    Ok(())
}

fn read_namespace(subsystem: &mut Subsystem, from: Json<'_>, import: &mut Import) -> Result<()> {
    let nsid = from.required("nsid").context("a namespace")?;
    let what = format!("namespace {nsid} of {}", subsystem.nqn);
    let Some(nsid) = nsid
        .parse()
        .ok()
        .filter(|nsid| (1..=NAMESPACES_MAX).contains(nsid))
    else {
        import.note(format!(
            "{what}: left out: give it a number up to {NAMESPACES_MAX}"
        ));
        return Ok(());
    };
    let Some(path) = from.at("device").text("path") else {
        import.note(format!("{what} has no device; left out"));
        return Ok(());
    };
    if !from.flag("enable") {
        import.note(format!("{what} ({path}) was disabled; left out"));
        return Ok(());
    }
    if from.at("resv").flag("enable") {
        import.note(format!(
            "{what} has reservations; Switchyard has none: keep hosts apart by tenants"
        ));
    }
    let kind = import.file(&path, None);
    let name = path.rsplit('/').next().unwrap_or_default();
    let device = import.device(name, kind);
    subsystem
        .namespaces
        .push(namespace(nsid, &device, from.at("device")));
    Ok(())
}

fn read_port(id: &str, from: Json<'_>, import: &mut Import) -> Result<()> {
    let address = from.at("addr");
    let required = address.text("treq").is_some_and(|it| it == "required");
    let tls = match address.text("tsas").as_deref() {
        Some("tls1.3") if required => TlsMode::Required,
        Some("tls1.3") => TlsMode::Allowed,
        _ => TlsMode::Off,
    };
    if tls != TlsMode::Off {
        import.note(format!(
            "port {id}: the TLS keys are in the kernel's keyring: write each host's key to a file, \
             and name it in [[hosts]] tls_keys"
        ));
    }
    for group in from.list("ana_groups")? {
        let state = group.at("ana").text("state").unwrap_or_default();
        if !["", "optimized"].contains(&&*state) {
            let group = group.text("grpid").unwrap_or_default();
            import.note(format!(
                "port {id}: ANA group {group} is {state}; Switchyard has no ANA: all addresses are \
                 equal"
            ));
        }
    }
    let added = import.listener(address, tls, &format!("port {id}"));
    for nqn in from.list("subsystems")? {
        let nqn = nqn.0.as_str().context("a name of a subsystem is no text")?;
        match import.subsystem(nqn) {
            Some(exported) => exported.addresses.extend(added),
            None => import.note(format!("port {id}: there is no subsystem {nqn}; ignored")),
        }
    }
    for referral in from.list("referrals")? {
        if referral.flag("enable") {
            self::referral(referral.at("addr"), DISCOVERY_NQN, import);
        }
    }
    Ok(())
}

/// Adds another discovery controller.
pub fn referral(address: Json<'_>, nqn: &str, import: &mut Import) {
    let text = address.text("traddr").unwrap_or_default();
    let is_tcp = address
        .text("trtype")
        .is_some_and(|it| it.eq_ignore_ascii_case("tcp"));
    let Some(ip) = text.parse().ok().filter(|_| is_tcp) else {
        import.note(format!(
            "referral to {text:?}: left out: it is no IP address with TCP"
        ));
        return;
    };
    let port = address
        .number("trsvcid")
        .and_then(|port| u16::try_from(port).ok());
    let referral = Referral {
        address: ip,
        port: port.unwrap_or(DISCOVERY_PORT),
        nqn: nqn.to_owned(),
    };
    let referrals = &mut import.configuration.discovery.referrals;
    if !referrals.contains(&referral) {
        referrals.push(referral);
    }
}
