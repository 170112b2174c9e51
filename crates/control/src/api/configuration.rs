//! `/v1/config`: the whole configuration.

use std::path::PathBuf;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;

use super::body::Body;
use super::error::ApiError;
use super::state::ApiState;
use crate::control::Control;
use config::action::Action;
use config::merge::{Difference, actions};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/config", get(show).post(replace))
        .route("/v1/config/changes", get(changes))
        .route("/v1/config/file", post(note_file))
}

/// The configuration in force: as JSON, or as TOML for a client that accepts `application/toml`.
async fn show(State(state): State<ApiState>, headers: HeaderMap) -> Response {
    let configuration = state.configuration();
    let toml_wanted = headers.get_all(header::ACCEPT).iter().any(|accept| {
        accept
            .to_str()
            .is_ok_and(|a| a.contains("application/toml"))
    });
    if toml_wanted {
        let content_type = [(header::CONTENT_TYPE, "application/toml")];
        return (content_type, configuration.to_toml()).into_response();
    }
    Json(&*configuration).into_response()
}

#[derive(Serialize)]
struct Changes {
    /// The state file; `None` where changes are forgotten at the end of the process.
    state: Option<PathBuf>,
    /// Changes by the interface, relative to the configuration file (or the flags).
    changes: Vec<Difference>,
}

async fn changes(State(state): State<ApiState>) -> Result<Json<Changes>, ApiError> {
    let (changes, state) = state.in_turn(Control::changes).await?;
    Ok(Json(Changes { state, changes }))
}

#[derive(Serialize)]
struct Noted {
    /// The target's own file says the same; changes are told relative to that from now on.
    noted: bool,
}

/// Takes note that the body is what the target's file says, for a client that wrote it there or
/// made it the configuration in force. Where the file says something else, nothing happens.
async fn note_file(State(state): State<ApiState>, body: Body) -> Result<Json<Noted>, ApiError> {
    let said = config::parse(&body.text, body.format)?;
    let Some(file) = state.file.clone() else {
        return Ok(Json(Noted { noted: false }));
    };
    let note = state.in_turn(move |control| control.note_file(&file, &said));
    let noted = note.await??;
    Ok(Json(Noted { noted }))
}

#[derive(Serialize)]
struct Replaced {
    /// Nothing was done.
    dry_run: bool,
    /// Actions that were (or would be) carried out, in this order.
    actions: Vec<Action>,
}

/// Makes the body the configuration in force; with `?dry_run=true`, tells what that would do.
async fn replace(
    State(state): State<ApiState>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<Replaced>, ApiError> {
    let dry_run = match query.as_deref() {
        None | Some("" | "dry_run=false") => false,
        Some("dry_run=true" | "dry_run") => true,
        Some(other) => {
            return Err(ApiError::bad_request(
                format!("the query {other:?} is not understood"),
                "write ?dry_run=true, or nothing",
            ));
        }
    };
    let new = config::parse(&body.text, body.format)?;
    let actions = if dry_run {
        state.in_turn(move |control| control.plan(&new)).await??
    } else {
        state
            .change(move |before| Ok(actions(before, &new)?))
            .await?
    };
    Ok(Json(Replaced { dry_run, actions }))
}
