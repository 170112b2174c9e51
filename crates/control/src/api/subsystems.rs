//! `/v1/subsystems`: subsystems by name.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::control::actions_between;
use config::ApplyError;
use config::action::Action;
use config::schema::{Authentication, Configuration, Subsystem};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/subsystems", get(list).post(add))
        .route("/v1/subsystems/{nqn}", get(show).patch(set).delete(remove))
}

/// The subsystem that a path names.
pub(super) fn find<'a>(
    configuration: &'a Configuration,
    nqn: &str,
) -> Result<&'a Subsystem, ApiError> {
    let found = configuration.subsystem(nqn);
    found.ok_or_else(|| ApplyError::no_subsystem(nqn).into())
}

async fn list(State(state): State<ApiState>) -> Json<Value> {
    Json(json!({ "subsystems": state.configuration().subsystems }))
}

async fn show(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<Json<Subsystem>, ApiError> {
    let configuration = state.configuration();
    find(&configuration, &nqn).map(|subsystem| Json(subsystem.clone()))
}

async fn add(
    State(state): State<ApiState>,
    body: Body,
) -> Result<(StatusCode, Json<Subsystem>), ApiError> {
    let mut subsystem: Subsystem = body.read()?;
    subsystem.sort();
    let answer = subsystem.clone();
    state.apply(Action::AddSubsystem { subsystem }).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}

config::decoded! {
    /// `{ "allow_any_host": …, "authentication": … }`, of which each may be left out.
    struct Settings {
        allow_any_host: Option<bool> = optional("unchanged"),
        authentication: Option<Authentication> = optional("unchanged"),
    }
}

async fn set(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    body: Body,
) -> Result<Json<Subsystem>, ApiError> {
    let settings: Settings = body.read()?;
    let name = nqn.clone();
    let change = move |model: &Configuration| {
        let mut after = model.clone();
        let found = after.subsystems.iter_mut().find(|it| it.nqn == nqn);
        let subsystem = found.ok_or_else(|| ApplyError::no_subsystem(&nqn))?;
        if let Some(allow) = settings.allow_any_host {
            subsystem.allow_any_host = allow;
        }
        if let Some(authentication) = settings.authentication {
            subsystem.authentication = authentication;
        }
        actions_between(model, &after)
    };
    state.change(change).await?;
    show(State(state), PathParts(name)).await
}

async fn remove(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<StatusCode, ApiError> {
    state.apply(Action::RemoveSubsystem { nqn }).await?;
    Ok(StatusCode::NO_CONTENT)
}
