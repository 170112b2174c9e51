//! `/v1/attachments`: attachments of a process of front ends, its measurements, and its page.

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::Value;

use super::metrics::Scrape;
use super::shared::SharedAttachments;
use super::snapshot::{AttachmentSnapshot, AttachmentsAnswer};
use control::Snapshot;
use control::api::{ApiError, OfClients, Page, PathParts, Routes, health, scraped};
use control::server::Managed;
use std::path::PathBuf;
use std::sync::Arc;

const PAGE: Page = Page {
    content: include_str!("page/content.html"),
    script: include_str!("page/main.js"),
};

impl Managed for SharedAttachments {
    fn routes(&self) -> Routes {
        Routes {
            router: routes().with_state(self.clone()),
            public: PAGE.routes(),
            process: "a process of front ends",
            begin_at: "begin at / with a browser, or at /v1/attachments, /v1/stats, /metrics or /healthz",
            takes_query: |path| path.starts_with("/v1/attachments/"),
        }
    }

    fn terminate(&self, name: &str) {
        tracing::info!("{name}: detaching");
        SharedAttachments::terminate(self);
    }

    async fn reload(self: Arc<Self>, path: PathBuf) {
        if let Err(error) = self.change(move |running| running.reload(&path)).await {
            tracing::error!("SIGHUP: the file was not put in force: {error}");
        }
    }
}

fn routes() -> Router<SharedAttachments> {
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
    clients: OfClients,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let AttachmentsAnswer {
        uptime_ms,
        attachments,
    } = snapshot(&attachments).await?;
    let mut process = Snapshot {
        uptime_ms,
        ..Snapshot::default()
    };
    clients.tell(&mut process);
    let metrics = Scrape {
        process,
        attachments,
    };
    Ok(scraped(metrics, &headers))
}

async fn is_healthy(State(attachments): State<SharedAttachments>) -> (StatusCode, Json<Value>) {
    health(attachments.is_draining())
}
