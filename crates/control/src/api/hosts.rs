//! `/v1/subsystems/{nqn}/hosts`: hosts that may connect.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use serde::Serialize;

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use super::subsystems::find;
use crate::action::Action;
use crate::config::{Decoder, FromNode, Node, Place, Table};
use crate::model::{Configuration, NQN_EXPECTED};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route(
            "/v1/subsystems/{nqn}/hosts",
            get(list).post(allow).patch(set_any),
        )
        .route("/v1/subsystems/{nqn}/hosts/{host}", delete(deny))
}

#[derive(Serialize)]
struct Hosts {
    allow_any_host: bool,
    allowed_hosts: Vec<String>,
}

fn hosts(configuration: &Configuration, nqn: &str) -> Result<Json<Hosts>, ApiError> {
    let subsystem = find(configuration, nqn)?;
    Ok(Json(Hosts {
        allow_any_host: subsystem.allow_any_host,
        allowed_hosts: subsystem.allowed_hosts.iter().cloned().collect(),
    }))
}

async fn list(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<Json<Hosts>, ApiError> {
    hosts(&state.configuration(), &nqn)
}

/// `{ "host": "nqn…" }`
struct Host(String);

impl FromNode for Host {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let table = Table::open(node, place, decoder)?;
        let host = table.required("host", NQN_EXPECTED);
        table.finish();
        Some(Self(host?))
    }
}

async fn allow(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    body: Body,
) -> Result<(StatusCode, Json<Hosts>), ApiError> {
    let Host(host) = body.read()?;
    let name = nqn.clone();
    state
        .change(move |_| Ok(vec![Action::AllowHost { nqn, host }]))
        .await?;
    Ok((StatusCode::CREATED, hosts(&state.configuration(), &name)?))
}

/// `{ "allow_any_host": true }`
struct AnyHost(bool);

impl FromNode for AnyHost {
    fn from_node(node: &Node, place: &Place, decoder: &Decoder) -> Option<Self> {
        let table = Table::open(node, place, decoder)?;
        let allow = table.required("allow_any_host", "write true or false");
        table.finish();
        Some(Self(allow?))
    }
}

async fn set_any(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    body: Body,
) -> Result<Json<Hosts>, ApiError> {
    let AnyHost(allow) = body.read()?;
    let name = nqn.clone();
    state
        .change(move |_| Ok(vec![Action::SetAllowAnyHost { nqn, allow }]))
        .await?;
    hosts(&state.configuration(), &name)
}

async fn deny(
    State(state): State<ApiState>,
    PathParts((nqn, host)): PathParts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    state
        .change(move |_| Ok(vec![Action::DenyHost { nqn, host }]))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
