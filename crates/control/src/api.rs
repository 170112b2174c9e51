//! The HTTP/JSON interface: one file for each resource.
//!
//! Routes over [`Control`], for people and programs on this machine. A client that may open the
//! Unix socket is trusted; over a loopback port, one that presents the `token`. A web page is not,
//! though it can make a browser on this machine send requests; `guard` refuses those. Every error
//! is a JSON object that names the fault and the remedy.
//!
//! | path | methods |
//! |---|---|
//! | `/v1/config` | GET, POST (`?dry_run=true`) |
//! | `/v1/config/changes` | GET |
//! | `/v1/config/file` | POST |
//! | `/v1/devices`, `/v1/devices/{name}` | GET, POST; GET, DELETE |
//! | `/v1/devices/{name}/calibration` | GET, POST, DELETE |
//! | `/v1/subsystems`, `/v1/subsystems/{nqn}` | GET, POST; GET, DELETE |
//! | `/v1/subsystems/{nqn}/namespaces`, `…/{nsid}` | GET, POST; GET, PATCH, DELETE |
//! | `/v1/subsystems/{nqn}/hosts`, `…/{host}` | GET, POST, PATCH; DELETE |
//! | `/v1/referrals` | GET, POST, DELETE |
//! | `/v1/switch` | GET, PATCH |
//! | `/v1/tenants`, `/v1/tenants/{name}` | GET, POST, PATCH; GET, PUT, DELETE |
//! | `/v1/events` (`?after=`, `?wait_ms=`) | GET |
//! | `/v1/controllers`, `/v1/stats`, `/metrics`, `/healthz` | GET |
//!
//! A process of front ends has `/v1/attachments` (GET), `/v1/attachments/{name}` (GET, DELETE with
//! `?force=true`), and `/v1/stats`, `/metrics` and `/healthz` as well.

mod attachments;
mod body;
mod calibration;
mod clients;
mod configuration;
mod devices;
mod error;
mod events;
mod guard;
mod hosts;
mod namespaces;
mod referrals;
mod state;
mod stats;
mod subsystems;
mod switch;
mod tenants;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::Uri;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};

use crate::attachments::SharedAttachments;
use crate::control::Control;
use crate::limits::CONFIGURATION_BYTES_MAX;
pub(crate) use clients::{ClientLimit, Clients};
use error::ApiError;
pub use error::ErrorBody;
use state::ApiState;
pub use token::{Token, TokenError};

/// The routes of the whole interface. SIGHUP reads `file`.
///
/// `loopback` is the address it is served at, which requests must name as their host; `None` for
/// a Unix socket, which no browser opens. With a `token`, they must show it.
pub fn router(
    control: Arc<Control>,
    file: Option<PathBuf>,
    loopback: Option<SocketAddr>,
    token: Option<Token>,
) -> Router {
    let routes = Router::new()
        .merge(calibration::routes())
        .merge(configuration::routes())
        .merge(devices::routes())
        .merge(events::routes())
        .merge(hosts::routes())
        .merge(namespaces::routes())
        .merge(referrals::routes())
        .merge(stats::routes())
        .merge(subsystems::routes())
        .merge(switch::routes())
        .merge(tenants::routes())
        .with_state(ApiState { control, file });
    let begin_at = "begin at /v1/config, /v1/devices, /v1/subsystems, /v1/referrals, /v1/switch, \
                    /v1/tenants, /v1/events, /v1/controllers, /v1/stats, /metrics or /healthz";
    guarded(routes, "a target", begin_at, loopback, token)
}

/// The routes of a process of front ends, for the same clients.
pub(crate) fn attachments_router(
    attachments: SharedAttachments,
    loopback: Option<SocketAddr>,
    token: Option<Token>,
) -> Router {
    let routes = attachments::routes().with_state(attachments);
    let begin_at = "begin at /v1/attachments, /v1/stats, /metrics or /healthz";
    guarded(routes, "a process of front ends", begin_at, loopback, token)
}

/// Adds the checks of every request, and for unknown paths errors that say what `process` this is,
/// and where to `begin_at`.
fn guarded(
    routes: Router,
    process: &'static str,
    begin_at: &'static str,
    loopback: Option<SocketAddr>,
    token: Option<Token>,
) -> Router {
    let unknown_path = move |uri: Uri| async move {
        let path = uri.path();
        let error = format!("there is nothing at {path}: this is {process}");
        ApiError::not_found(error, begin_at)
    };
    routes
        .route_layer(middleware::from_fn(refuse_query))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(CONFIGURATION_BYTES_MAX))
        .layer(middleware::from_fn_with_state(token, token::check))
        .layer(middleware::from_fn_with_state(loopback, guard::guard))
}

/// Refuses the query of a change that reads none: a client that writes `?dry_run=true` expects that
/// nothing is changed.
async fn refuse_query(request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let reads_it = method.is_safe() || path == "/v1/config" || path.starts_with("/v1/attachments/");
    match request.uri().query() {
        Some(query) if !query.is_empty() && !reads_it => ApiError::bad_request(
            format!("{method} {path} does not take the query {query:?}"),
            "send it without a query, or the whole configuration to /v1/config?dry_run=true",
        )
        .into_response(),
        _ => next.run(request).await,
    }
}

async fn unknown_method(uri: Uri) -> ApiError {
    ApiError::method_not_allowed(
        format!("{} does not take this method", uri.path()),
        "use one that the Allow header names",
    )
}
