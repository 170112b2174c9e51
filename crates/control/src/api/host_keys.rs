//! `/v1/hosts`: the keys of hosts. They are set and never shown.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use secure::Hash;
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroize as _;

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::control::Control;
use crate::host_keys::{self, KnownKeys};
use config::Format;
use config::schema::HostTls;

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/hosts", get(list))
        .route("/v1/hosts/{nqn}", get(show).put(set).delete(remove))
}

/// A host with keys, as clients see it.
#[derive(Debug, Serialize)]
struct HostView {
    nqn: String,
    tls: HostTls,
    tls_keys: Vec<KeyView>,
    chap_secrets: Vec<KeyView>,
    chap_controller_secret: Option<KeyView>,
}

/// A key, without the key.
#[derive(Debug, Serialize)]
struct KeyView {
    /// "file" or "api".
    origin: &'static str,
    /// The hash function of the key's format, if it names one.
    hash: Option<&'static str>,
    bytes: usize,
    since_unix_ms: u64,
}

fn hosts(control: &Control) -> Vec<HostView> {
    let (of_files, added) = control.host_keys();
    let configuration = control.configuration();
    let mut names: Vec<&String> = of_files.keys().chain(added.0.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let view = |nqn: &String| {
        let said = configuration.hosts.iter().find(|host| host.nqn == *nqn);
        let mut host = HostView {
            nqn: nqn.clone(),
            tls: said.map_or(HostTls::Allowed, |host| host.tls),
            tls_keys: Vec::new(),
            chap_secrets: Vec::new(),
            chap_controller_secret: None,
        };
        for (origin, known) in [("file", of_files.get(nqn)), ("api", added.0.get(nqn))] {
            host.add(origin, known);
        }
        host
    };
    names.into_iter().map(view).collect()
}

impl HostView {
    fn add(&mut self, origin: &'static str, known: Option<&KnownKeys>) {
        let Some(KnownKeys {
            keys,
            since_unix_ms,
        }) = known
        else {
            return;
        };
        let view = |hash: Option<Hash>, bytes| KeyView {
            origin,
            hash: hash.map(Hash::name),
            bytes,
            since_unix_ms: *since_unix_ms,
        };
        let tls = keys.tls.iter().map(|key| view(key.hash(), key.bytes()));
        self.tls_keys.extend(tls);
        let chap = keys.chap.iter().map(|it| view(it.hash(), it.bytes()));
        self.chap_secrets.extend(chap);
        if let Some(secret) = &keys.controller {
            self.chap_controller_secret = Some(view(secret.hash(), secret.bytes()));
        }
    }
}

async fn list(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    let hosts = state.ask(hosts).await?;
    Ok(Json(serde_json::json!({ "hosts": hosts })))
}

async fn show(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<Json<HostView>, ApiError> {
    let hosts = state.ask(hosts).await?;
    let found = hosts.into_iter().find(|host| host.nqn == nqn);
    found.map(Json).ok_or_else(|| {
        ApiError::not_found(
            format!("there are no keys of host {nqn:?}"),
            "list the hosts with keys by GET /v1/hosts, or add keys by PUT",
        )
    })
}

/// Replaces the keys that the interface added to a host; those of files stay. They are valid for new
/// connections when it answers.
async fn set(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    mut body: Body,
) -> Result<Json<HostView>, ApiError> {
    let value = match body.format {
        Format::Json => serde_json::from_str::<Value>(&body.text).ok(),
        Format::Toml => None,
    };
    body.text.zeroize();
    let mut value = value.ok_or_else(|| {
        ApiError::bad_request("the body is no JSON", "send the keys as an object of JSON")
    })?;
    let keys = host_keys::parse(&value);
    host_keys::wipe(&mut value);
    let (name, keys) = (nqn.clone(), keys?);
    let set = state.in_turn(move |control| control.set_host_keys(&name, Some(keys)));
    set.await??;
    show(State(state), PathParts(nqn)).await
}

async fn remove(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<StatusCode, ApiError> {
    let remove = state.in_turn(move |control| control.set_host_keys(&nqn, None));
    remove.await??;
    Ok(StatusCode::NO_CONTENT)
}
