//! `/v1/subsystems/{nqn}/namespaces`: namespaces by identifier.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use super::subsystems::find;
use config::ApplyError;
use config::action::Action;
use config::schema::{Namespace, Size};
use config::{FoundNode, FromNode, Table};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/subsystems/{nqn}/namespaces", get(list).post(add))
        .route(
            "/v1/subsystems/{nqn}/namespaces/{nsid}",
            get(show).patch(resize).delete(remove),
        )
}

async fn list(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<Json<Value>, ApiError> {
    let configuration = state.configuration();
    let subsystem = find(&configuration, &nqn)?;
    Ok(Json(json!({ "namespaces": subsystem.namespaces })))
}

async fn show(
    State(state): State<ApiState>,
    PathParts((nqn, nsid)): PathParts<(String, u32)>,
) -> Result<Json<Namespace>, ApiError> {
    let configuration = state.configuration();
    let found = find(&configuration, &nqn)?.namespace(nsid).cloned();
    let found = found.ok_or_else(|| ApplyError::no_namespace(&nqn, nsid));
    Ok(Json(found?))
}

async fn add(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
    body: Body,
) -> Result<(StatusCode, Json<Namespace>), ApiError> {
    let namespace: Namespace = body.read()?;
    let answer = namespace.clone();
    state.apply(Action::AddNamespace { nqn, namespace }).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}

/// `{ "size": … }`; null means all of the device.
struct Resize {
    size: Option<Size>,
}

impl FromNode for Resize {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        if !table.mentions("size") {
            let what_to_do = "write the new size, like \"2G\", or null for all of the device";
            table.place("size").report("is missing", what_to_do);
        }
        let size = table.or("size", None);
        table.finish();
        Some(Self { size: size? })
    }
}

async fn resize(
    State(state): State<ApiState>,
    PathParts((nqn, nsid)): PathParts<(String, u32)>,
    body: Body,
) -> Result<Json<Namespace>, ApiError> {
    let Resize { size } = body.read()?;
    let name = nqn.clone();
    state
        .change(move |model| Ok(vec![Action::resize_namespace(model, &nqn, nsid, size)]))
        .await?;
    show(State(state), PathParts((name, nsid))).await
}

async fn remove(
    State(state): State<ApiState>,
    PathParts((nqn, nsid)): PathParts<(String, u32)>,
) -> Result<StatusCode, ApiError> {
    state.apply(Action::RemoveNamespace { nqn, nsid }).await?;
    Ok(StatusCode::NO_CONTENT)
}
