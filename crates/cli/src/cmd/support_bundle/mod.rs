//! `switchyard support-bundle`: one archive with what support needs, and no secret.
//!
//! All text passes [`Secrets::removed_from`]. Parts that cannot be read are listed in `missing.txt`.

mod bundle;
mod command;
mod profile;
mod secrets;

use super::doctor::{self, Examined};
use crate::args::SupportBundleArgs;
use crate::exit::Outcome;
use crate::output::{Output, human_bytes, new_private_file};
use anyhow::{Context as _, Result};
use bundle::Bundle;
use command::output_of;
use config::limits::REPLACED_BYTES_MAX;
use config::{Configuration, files, with_causes};
use control::client::{Interface, Method, ask, text};
use load::Machine;
use secrets::Secrets;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// Queries of the API, and their files.
const QUERIES: [(&str, &str); 11] = [
    ("/v1/config", "config"),
    ("/v1/config/changes", "config-changes"),
    ("/v1/controllers", "controllers"),
    ("/v1/devices", "devices"),
    ("/v1/events", "events"),
    ("/v1/hosts", "hosts"),
    ("/v1/referrals", "referrals"),
    ("/v1/stats", "stats"),
    ("/v1/subsystems", "subsystems"),
    ("/v1/switch", "switch"),
    ("/v1/tenants", "tenants"),
];

/// Most bytes of the log: its end.
const LOG_BYTES_MAX: usize = 32 << 20;

/// Most lines of the log.
const LOG_LINES_MAX: &str = "100000";

/// Time for the log.
const LOG_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the archive.
///
/// # Errors
/// A file that exists or cannot be written.
pub fn run(args: &SupportBundleArgs, output: Output) -> Result<Outcome> {
    let path = &args.file;
    let file = new_private_file(path)?;
    let written = fill(args, file, output);
    if written.is_err() {
        // Otherwise the next attempt finds a file.
        let _ = fs::remove_file(path);
    }
    let missing = written.with_context(|| format!("cannot write {}", path.display()))?;
    for part in &missing {
        output.note(format_args!("missing: {part}"));
    }
    let bytes = fs::metadata(path).map_or(0, |it| it.len());
    let text = format!("wrote {} ({})", path.display(), human_bytes(bytes));
    output.result(
        &json!({ "file": path, "bytes": bytes, "missing": missing }),
        text,
    )?;
    Ok(Outcome::Done)
}

/// Writes all parts; returns those that are missing, with the reason.
fn fill(args: &SupportBundleArgs, file: File, output: Output) -> Result<Vec<String>> {
    let examined = Examined::find(&args.examined);
    let configurations: Vec<_> = examined.configurations().collect();
    let secrets = Secrets::find(&configurations, examined.file.as_deref())?;
    let mut bundle = Bundle::new(file, secrets);
    bundle.versions()?;
    let findings = doctor::findings(&args.examined, &examined);
    bundle.add("doctor.txt", &findings.to_string())?;
    match examined.of_file() {
        Some(configuration) => bundle.configuration(configuration)?,
        None => bundle.missing("configuration.toml", "no valid configuration file"),
    }
    bundle.state(&args.state)?;
    match &examined.api {
        Some(api) => bundle.answers(api)?,
        None => bundle.missing("api/", "no API; name it with --api"),
    }
    bundle.log()?;
    if !args.profile.is_zero() {
        output.note(format_args!(
            "profiling for {} s",
            args.profile.as_secs_f64()
        ));
        match examined.pid {
            Some(pid) => profile::add(&mut bundle, pid, examined.api.as_ref(), args.profile)?,
            None => bundle.missing("profile/", "no process: the API must have a Unix socket"),
        }
    }
    bundle.finish()
}

impl Bundle {
    fn versions(&mut self) -> Result<()> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let text = format!(
            "switchyard {}\n{}\n{}{}",
            env!("CARGO_PKG_VERSION"),
            Machine::look(),
            read("/proc/version"),
            read("/etc/os-release"),
        );
        self.add("versions.txt", &text)
    }

    /// Adds the configuration of the file, without comments.
    fn configuration(&mut self, configuration: &Configuration) -> Result<()> {
        let mut configuration = configuration.clone();
        for device in configuration.devices.values_mut() {
            if let Some(crypt) = &mut device.crypt {
                // As of JSON: the program without its arguments.
                crypt.key_command.truncate(1);
            }
        }
        self.add("configuration.toml", &configuration.to_toml())
    }

    /// Adds the state without the keys of hosts.
    fn state(&mut self, path: &Path) -> Result<()> {
        const NAME: &str = "state.json";
        let text = files::read_regular(path, REPLACED_BYTES_MAX);
        let text = text.with_context(|| format!("cannot read {}", path.display()));
        let parsed = text.and_then(|text| {
            // An error of the parser may quote the text.
            serde_json::from_str::<Value>(&text)
                .ok()
                .context("it is not JSON")
        });
        match parsed {
            Ok(mut state) => {
                if let Some(keys) = state.get_mut("host_keys").and_then(Value::as_object_mut) {
                    keys.values_mut().for_each(|keys| *keys = "removed".into());
                }
                self.add_json(NAME, state)
            }
            Err(error) => {
                self.missing(NAME, with_causes(&error));
                Ok(())
            }
        }
    }

    fn answers(&mut self, api: &Interface) -> Result<()> {
        for (query, name) in QUERIES {
            match ask(api, Method::GET, query, None) {
                Ok(answer) => self.add_json(&format!("api/{name}.json"), answer)?,
                Err(error) => self.missing(&format!("api/{name}.json"), with_causes(&error)),
            }
        }
        match text(api, "/metrics") {
            Ok(metrics) => self.add("metrics.txt", &metrics),
            Err(error) => {
                self.missing("metrics.txt", with_causes(&error));
                Ok(())
            }
        }
    }

    fn log(&mut self) -> Result<()> {
        let arguments = [
            "--no-pager",
            "-o",
            "short-iso",
            "--since=-24h",
            "-n",
            LOG_LINES_MAX,
        ];
        let units = ["-u", "switchyard.service", "-u", "switchyard-attach*"];
        let arguments = [&arguments[..], &units[..]].concat();
        match output_of("journalctl", &arguments, LOG_BYTES_MAX, LOG_TIMEOUT) {
            Ok(log) => self.add("log.txt", &log),
            Err(error) => {
                self.missing("log.txt", with_causes(&error));
                Ok(())
            }
        }
    }
}
