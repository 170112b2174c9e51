//! Bodies and path segments of requests, with errors in the form of this interface.

use std::time::Duration;

use axum::RequestExt as _;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use super::clients::{ClientLimit, Clients, OfClients};
use super::error::ApiError;
use config::limits::CONFIGURATION_BYTES_MAX;
use config::{Format, FromNode, parse_part};

/// The body as text, and its language.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) text: String,
    pub(super) format: Format,
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, ApiError> {
        let Ok(OfClients(clients)) = request.extract_parts().await;
        let format = format(request.headers())?;
        if request.body().size_hint().lower() > CONFIGURATION_BYTES_MAX as u64 {
            // Not a byte of it needs to be read.
            return Err(too_large(&clients, "the body is too large".to_owned()));
        }
        let limit = clients.limits.body_timeout();
        let bytes = tokio::time::timeout(limit, Bytes::from_request(request, state))
            .await
            .map_err(|_| too_slow(&clients, limit))?
            .map_err(|rejection| {
                if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                    return too_large(&clients, rejection.body_text());
                }
                let what_to_do = "send the whole body, as long as Content-Length says";
                ApiError::new(rejection.status(), rejection.body_text(), what_to_do)
            })?;
        let text = String::from_utf8(bytes.into())
            .map_err(|_| ApiError::bad_request("the body is not UTF-8 text", "send UTF-8 text"))?;
        Ok(Self { text, format })
    }
}

fn too_slow(clients: &Clients, limit: Duration) -> ApiError {
    clients.count(ClientLimit::BodyTimeout);
    ApiError::new(
        StatusCode::REQUEST_TIMEOUT,
        format!("the body did not arrive within {limit:?}"),
        "send it at once, or raise body_timeout_ms of [api_limits]",
    )
}

fn too_large(clients: &Clients, error: String) -> ApiError {
    clients.count(ClientLimit::BodyBytes);
    let what_to_do = format!("send at most {CONFIGURATION_BYTES_MAX} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error, what_to_do)
}

/// Only types that a web page cannot send without asking first are accepted.
fn format(headers: &HeaderMap) -> Result<Format, ApiError> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let essence = content_type.split(';').next().unwrap_or("").trim();
    match essence.to_ascii_lowercase().as_str() {
        "application/json" => Ok(Format::Json),
        "application/toml" => Ok(Format::Toml),
        _ => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the body's type {content_type:?} is not understood"),
            "send Content-Type: application/json or application/toml",
        )),
    }
}

impl Body {
    /// Reads the body as a value, with every problem in it.
    pub(super) fn read<T: FromNode>(&self) -> Result<T, ApiError> {
        Ok(parse_part(&self.text, self.format, |value, _| Some(value))?)
    }
}

/// Parts of the path, decoded.
#[derive(Debug)]
pub struct PathParts<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParts<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::new(
                rejection.status(),
                rejection.body_text(),
                "write names percent-encoded, and namespaces as numbers",
            )),
        }
    }
}
