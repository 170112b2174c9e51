//! `/v1/attachments`: attachments of a process of front ends, and its measurements.

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::Value;

use super::body::PathParts;
use super::clients::OfClients;
use super::error::ApiError;
use super::stats::{health, scraped};
use crate::attachments::{AttachmentSnapshot, AttachmentsAnswer, SharedAttachments};
use crate::snapshot::Snapshot;

pub(super) fn routes() -> Router<SharedAttachments> {
    Router::new()
        .route("/v1/attachments", get(list))
        .route("/v1/attachments/{name}", get(show).delete(detach))
        .route("/v1/stats", get(list))
        .route("/metrics", get(scrape))
        .route("/healthz", get(is_healthy))
}

async fn snapshot(attachments: &SharedAttachments) -> Result<AttachmentsAnswer, ApiError> {
    let answer = attachments.snapshot().await;
    answer.map_err(|error| ApiError::internal(&error))
}

async fn list(
    State(attachments): State<SharedAttachments>,
) -> Result<Json<AttachmentsAnswer>, ApiError> {
    Ok(Json(snapshot(&attachments).await?))
}

async fn show(
    State(attachments): State<SharedAttachments>,
    PathParts(name): PathParts<String>,
) -> Result<Json<AttachmentSnapshot>, ApiError> {
    let all = snapshot(&attachments).await?.attachments;
    let found = all.into_iter().find(|attachment| attachment.name == name);
    found.map(Json).ok_or_else(|| {
        ApiError::not_found(
            format!("there is no attachment {name:?}"),
            "list the attachments with GET /v1/attachments",
        )
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HowToDetach {
    #[serde(default)]
    force: bool,
}

async fn detach(
    State(attachments): State<SharedAttachments>,
    PathParts(name): PathParts<String>,
    how: Result<Query<HowToDetach>, axum::extract::rejection::QueryRejection>,
) -> Result<StatusCode, ApiError> {
    let Query(how) = how.map_err(|rejection| {
        ApiError::bad_request(rejection.body_text(), "write ?force=true or nothing")
    })?;
    let detach = attachments.change(move |it| it.detach(&name, how.force));
    detach.await.map_err(|error| ApiError::internal(&error))??;
    Ok(StatusCode::NO_CONTENT)
}

async fn scrape(
    State(attachments): State<SharedAttachments>,
    OfClients(clients): OfClients,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let AttachmentsAnswer {
        uptime_ms,
        attachments,
    } = snapshot(&attachments).await?;
    let mut snapshot = Snapshot {
        uptime_ms,
        attachments: Some(attachments),
        ..Snapshot::default()
    };
    clients.tell(&mut snapshot);
    Ok(scraped(snapshot, &headers))
}

async fn is_healthy(State(attachments): State<SharedAttachments>) -> (StatusCode, Json<Value>) {
    health(attachments.is_draining())
}
