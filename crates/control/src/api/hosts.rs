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
use config::action::Action;
use config::schema::{Configuration, NQN_EXPECTED};

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

config::decoded! {
    /// `{ "host": "nqn…" }`
    struct Host {
        host: String = required(NQN_EXPECTED),
    }

    /// `{ "allow_any_host": true }`
    struct AnyHost {
        allow_any_host: bool = required("write true or false"),
    }
}

async fn allow(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    body: Body,
) -> Result<(StatusCode, Json<Hosts>), ApiError> {
    let Host { host } = body.read()?;
    let name = nqn.clone();
    state.apply(Action::AllowHost { nqn, host }).await?;
    Ok((StatusCode::CREATED, hosts(&state.configuration(), &name)?))
}

async fn set_any(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    body: Body,
) -> Result<Json<Hosts>, ApiError> {
    let AnyHost {
        allow_any_host: allow,
    } = body.read()?;
    let name = nqn.clone();
    state.apply(Action::SetAllowAnyHost { nqn, allow }).await?;
    hosts(&state.configuration(), &name)
}

async fn deny(
    State(state): State<ApiState>,
    PathParts((nqn, host)): PathParts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    state.apply(Action::DenyHost { nqn, host }).await?;
    Ok(StatusCode::NO_CONTENT)
}
