//! `/v1/role`, and who may ask what, over TCP.
//!
//! Every user and every container that shares the network of this machine reaches a loopback port, and
//! a port with TLS is reached from other machines; the file of a Unix socket only its owner opens. So a
//! request over TCP shows a token, whose role says what it may.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::error::ApiError;
use crate::credentials::{Credentials, Role};

pub(super) fn routes() -> Router {
    Router::new().route("/v1/role", get(role))
}

/// Returns the role of the client: "read" or "change".
async fn role(Extension(role): Extension<Role>) -> Json<Value> {
    Json(json!({ "role": role.name() }))
}

pub(super) async fn check(
    State(credentials): State<Option<Arc<Credentials>>>,
    mut request: Request,
    next: Next,
) -> Response {
    let role = match credentials {
        Some(credentials) => credentials.current().tokens.role(request.headers()),
        None => Some(Role::Change),
    };
    match role {
        Some(role) if role == Role::Change || request.method().is_safe() => {
            request.extensions_mut().insert(role);
            next.run(request).await
        }
        Some(_) => ApiError::new(
            StatusCode::FORBIDDEN,
            format!("this token may read, and {} is a change", request.method()),
            "use a token with the role \"change\" of the file api_tokens, or that of \
             SWITCHYARD_API_TOKEN or SWITCHYARD_API_TOKEN_FILE",
        )
        .into_response(),
        None => {
            let error = ApiError::new(
                StatusCode::UNAUTHORIZED,
                "over TCP this interface answers only those who know a token",
                "send Authorization: Bearer TOKEN; commands take it from SWITCHYARD_API_TOKEN or \
                 SWITCHYARD_API_TOKEN_FILE, as the target did",
            );
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (challenge, error).into_response()
        }
    }
}
