//! Measurements: `/v1/stats`, `/v1/controllers`, `/metrics` and `/healthz`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::collector::Collector;
use serde_json::{Value, json};

use super::clients::OfClients;
use super::error::ApiError;
use super::state::ApiState;
use crate::metrics::{self, Exposition, Scrape};
use crate::snapshot::Snapshot;

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/stats", get(stats))
        .route("/v1/controllers", get(controllers))
        .route("/metrics", get(scrape))
        .route("/healthz", get(is_healthy))
}

async fn snapshot(state: &ApiState, clients: OfClients) -> Result<Snapshot, ApiError> {
    let mut snapshot = state.snapshot().await?;
    clients.tell(&mut snapshot);
    Ok(snapshot)
}

async fn stats(
    State(state): State<ApiState>,
    clients: OfClients,
) -> Result<Json<Snapshot>, ApiError> {
    Ok(Json(snapshot(&state, clients).await?))
}

async fn controllers(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    let controllers = state.snapshot().await?.controllers;
    Ok(Json(json!({ "controllers": controllers })))
}

async fn scrape(
    State(state): State<ApiState>,
    clients: OfClients,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let snapshot = snapshot(&state, clients).await?;
    Ok(scraped(Scrape { snapshot }, &headers))
}

/// Returns metrics in the format that the client accepts.
pub fn scraped(metrics: impl Collector, headers: &HeaderMap) -> Response {
    let format = Exposition::negotiated(headers);
    let text = metrics::render(metrics, format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

async fn is_healthy(State(state): State<ApiState>) -> (StatusCode, Json<Value>) {
    health(state.control.is_draining())
}

/// Returns 200 while clients may connect, and 503 once the process drains: a balancer sends no more
/// of them to it.
pub fn health(is_draining: bool) -> (StatusCode, Json<Value>) {
    let (code, status) = if is_draining {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ok")
    };
    (code, Json(json!({ "status": status })))
}
