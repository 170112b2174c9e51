//! The HTTP/JSON interface: one file for each resource.
//!
//! Routes over [`Control`], for people and programs on this machine. A client that may open the
//! Unix socket is trusted; over TCP, one that shows a token may do what its role says. A web page of
//! another origin is not, though it can make a browser on this machine send requests; `guard` refuses
//! those. Every error is a JSON object that names the fault and the remedy.
//!
//! | path | methods |
//! |---|---|
//! | `/v1/config` | GET, POST (`?dry_run=true`) |
//! | `/v1/config/changes` | GET |
//! | `/v1/config/file` | POST |
//! | `/v1/devices`, `/v1/devices/{name}` | GET, POST; GET, DELETE |
//! | `/v1/devices/{name}/calibration` | GET, POST, DELETE |
//! | `/v1/listeners`, `/v1/listeners/{address}` | GET, POST; GET, PATCH, DELETE |
//! | `/v1/shares`, `/v1/shares/{name}` | POST; DELETE |
//! | `/v1/subsystems`, `/v1/subsystems/{nqn}` | GET, POST; GET, PATCH, DELETE |
//! | `/v1/subsystems/{nqn}/namespaces`, `…/{nsid}` | GET, POST; GET, PATCH, DELETE |
//! | `/v1/subsystems/{nqn}/hosts`, `…/{host}` | GET, POST, PATCH; DELETE |
//! | `/v1/hosts`, `/v1/hosts/{nqn}` | GET; GET, PUT, DELETE |
//! | `/v1/referrals` | GET, POST, DELETE |
//! | `/v1/switch`, `/v1/switch/knobs` | GET, PATCH; GET |
//! | `/v1/tenants`, `/v1/tenants/{name}` | GET, POST, PATCH; GET, PUT, DELETE |
//! | `/v1/events` (`?after=`, `?wait_ms=`) | GET |
//! | `/v1/trace` (`?tenant=`, `?host=`, `?nqn=`, `?nsid=`, `?opcode=`, `?slower_than_ns=`, `?sample=`) | GET |
//! | `/v1/controllers`, `/v1/role`, `/v1/stats`, `/metrics`, `/healthz` | GET |
//! | `/`: the page for browsers, without a token | GET |
//!
//! Other processes have the same server with [`Routes`] of their own.

mod access;
mod ana;
mod body;
mod calibration;
mod clients;
mod configuration;
mod devices;
mod error;
mod events;
mod guard;
mod host_keys;
mod hosts;
mod listeners;
mod namespaces;
mod page;
mod referrals;
mod shares;
mod state;
mod stats;
mod subsystems;
mod switch;
mod tenants;
mod trace;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::Uri;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};

use crate::control::Control;
use crate::credentials::Credentials;
pub use body::PathParts;
pub use clients::OfClients;
pub(crate) use clients::{ClientLimit, Clients};
use config::limits::CONFIGURATION_BYTES_MAX;
pub use error::{ApiError, ErrorBody};
pub use events::Events;
pub use page::Page;
pub use shares::{Shared, SharedAddress};
use state::ApiState;
pub use stats::{health, scraped};
pub use switch::KnobList;
pub use tenants::{ServedTenant, SharedDevice, TenantAnswer, TenantList};
pub use trace::TraceLine;

/// The routes of a process, and how it explains itself to a client.
#[derive(Debug)]
pub struct Routes {
    /// The routes.
    pub router: Router,
    /// Files that need no token, and that pages of other origins may link to.
    pub public: Router,
    /// The kind of process, for errors: "a target".
    pub process: &'static str,
    /// The remedy for a request with an unknown path.
    pub begin_at: &'static str,
    /// Returns true if changes at this path take a query.
    pub takes_query: fn(&str) -> bool,
}

/// The routes of a target. SIGHUP reads `file`.
pub(crate) fn routes(control: Arc<Control>, file: Option<PathBuf>) -> Routes {
    let router = Router::new()
        .merge(ana::routes())
        .merge(calibration::routes())
        .merge(configuration::routes())
        .merge(devices::routes())
        .merge(events::routes())
        .merge(host_keys::routes())
        .merge(hosts::routes())
        .merge(listeners::routes())
        .merge(namespaces::routes())
        .merge(referrals::routes())
        .merge(shares::routes())
        .merge(stats::routes())
        .merge(subsystems::routes())
        .merge(switch::routes())
        .merge(tenants::routes())
        .merge(trace::routes())
        .with_state(ApiState { control, file });
    Routes {
        router,
        public: page::TARGET.routes(),
        process: "a target",
        begin_at: "begin at / with a browser, or at /v1/config, /v1/devices, /v1/subsystems, /v1/hosts, \
                   /v1/listeners, /v1/shares, /v1/referrals, /v1/switch, /v1/tenants, /v1/events, \
                   /v1/trace, /v1/controllers, /v1/stats, /metrics or /healthz",
        takes_query: |path| path == "/v1/config",
    }
}

/// The routes of a target with the checks of every request, as a Unix socket has them.
pub fn router(control: Arc<Control>, file: Option<PathBuf>) -> Router {
    guarded(routes(control, file), None, None)
}

/// Adds the checks of every request, and errors for unknown paths.
///
/// `loopback` is the address without TLS it is served at, which requests must name as their host; no
/// browser opens a Unix socket, or shares a certificate with a page of another name. With
/// `credentials`, they must show a token.
pub(crate) fn guarded(
    routes: Routes,
    loopback: Option<SocketAddr>,
    credentials: Option<Arc<Credentials>>,
) -> Router {
    let Routes {
        router,
        public,
        process,
        begin_at,
        takes_query,
    } = routes;
    let unknown_path = move |uri: Uri| async move {
        let path = uri.path();
        let error = format!("there is nothing at {path}: this is {process}");
        ApiError::not_found(error, begin_at)
    };
    router
        .merge(access::routes())
        .route_layer(middleware::from_fn_with_state(takes_query, refuse_query))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(CONFIGURATION_BYTES_MAX))
        .layer(middleware::from_fn_with_state(credentials, access::check))
        .layer(middleware::from_fn(guard::same_origin))
        .merge(public)
        .layer(middleware::from_fn_with_state(loopback, guard::names_us))
}

/// Refuses the query of a change that reads none: a client that writes `?dry_run=true` expects that
/// nothing is changed.
async fn refuse_query(
    State(takes_query): State<fn(&str) -> bool>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let reads_it = method.is_safe() || takes_query(path);
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
