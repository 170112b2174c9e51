//! `/v1/listeners`: addresses that hosts connect to.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::snapshot::Snapshot;
use config::ApplyError;
use config::action::Action;
use config::schema::{Configuration, Listener, TlsMode};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/listeners", get(list).post(add))
        .route(
            "/v1/listeners/{address}",
            get(show).patch(set).delete(remove),
        )
}

/// Returns the address in use of a listener; the configured one may have port 0.
pub(super) fn bound(snapshot: &Snapshot, address: SocketAddr) -> SocketAddr {
    let mut pairs = snapshot.bound.iter();
    let found = pairs.find(|(requested, _)| *requested == address);
    found.map_or(address, |(_, bound)| *bound)
}

/// Returns a listener as clients see it.
fn view(configuration: &Configuration, snapshot: &Snapshot, listener: &Listener) -> Value {
    json!({
        "address": listener.address,
        "bound": bound(snapshot, listener.address),
        "tls": listener.tls.unwrap_or(configuration.tls),
    })
}

async fn list(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    let (configuration, snapshot) = (state.configuration(), state.snapshot().await?);
    let listeners = configuration.listen.iter();
    let listeners: Vec<_> = listeners
        .map(|it| view(&configuration, &snapshot, it))
        .collect();
    Ok(Json(json!({ "listeners": listeners })))
}

async fn show(
    State(state): State<ApiState>,
    PathParts(address): PathParts<SocketAddr>,
) -> Result<Json<Value>, ApiError> {
    let (configuration, snapshot) = (state.configuration(), state.snapshot().await?);
    let listener = find(&configuration, &snapshot, address)?;
    Ok(Json(view(&configuration, &snapshot, &listener)))
}

config::decoded! {
    /// `{ "address": "ADDRESS:PORT", "tls": … }`
    struct NewListener {
        address: Listener = required("write an address, like \"192.0.2.1:4420\""),
        tls: Option<TlsMode> = optional("that of the configuration"),
    }

    /// `{ "tls": … }`
    struct Tls {
        tls: TlsMode = required("write \"off\", \"allowed\" or \"required\""),
    }
}

async fn add(
    State(state): State<ApiState>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let NewListener { address, tls } = body.read()?;
    let listener = Listener {
        tls: tls.or(address.tls),
        ..address
    };
    state.apply(Action::AddListener { listener }).await?;
    let (configuration, snapshot) = (state.configuration(), state.snapshot().await?);
    let answer = view(&configuration, &snapshot, &listener);
    Ok((StatusCode::CREATED, Json(answer)))
}

/// Returns the listener with this configured address, or with this address in use.
fn find(
    model: &Configuration,
    snapshot: &Snapshot,
    address: SocketAddr,
) -> Result<Listener, ApplyError> {
    let mut listeners = model.listen.iter();
    let found =
        listeners.find(|it| it.address == address || bound(snapshot, it.address) == address);
    found
        .copied()
        .ok_or_else(|| ApplyError::no_listener(address))
}

/// Closes the listener and opens it with another use of TLS. Connections stay as they are.
async fn set(
    State(state): State<ApiState>,
    PathParts(address): PathParts<SocketAddr>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let Tls { tls } = body.read()?;
    let before = find(&state.configuration(), &state.snapshot().await?, address)?;
    let listener = Listener {
        tls: Some(tls),
        ..before
    };
    if listener != before {
        let actions = vec![
            Action::RemoveListener { listener: before },
            Action::AddListener { listener },
        ];
        state.change(move |_| Ok(actions)).await?;
    }
    let (configuration, snapshot) = (state.configuration(), state.snapshot().await?);
    Ok(Json(view(&configuration, &snapshot, &listener)))
}

async fn remove(
    State(state): State<ApiState>,
    PathParts(address): PathParts<SocketAddr>,
) -> Result<StatusCode, ApiError> {
    let snapshot = state.snapshot().await?;
    let change = move |model: &Configuration| {
        let listener = find(model, &snapshot, address)?;
        if model.listen.len() == 1 {
            return Err(ApplyError::conflict(
                format!("{address} is the only listener: no host could connect any more"),
                "add another listener first, or stop the target",
            )
            .into());
        }
        Ok(vec![Action::RemoveListener { listener }])
    };
    state.change(change).await?;
    Ok(StatusCode::NO_CONTENT)
}
