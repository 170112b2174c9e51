//! Keeps pages of other origins out.
//!
//! A page of any site can make a browser on this machine send requests to a loopback port. Such a
//! request names the page's origin, or says that it crosses sites, or (after the page's own name
//! was made to resolve to 127.0.0.1) names a host that is not this one. None of these is served.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;

/// Refuses requests of pages that this interface did not serve.
pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    if is_foreign(request.headers()) {
        return ApiError::new(
            StatusCode::FORBIDDEN,
            "this interface does not serve pages of other origins",
            "open the page / of this interface, or use a program such as curl, which sends no \
             Origin header",
        )
        .into_response();
    }
    next.run(request).await
}

/// Returns true if a browser sent the request for a page of another origin. `[Fetch §3.2]`
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "none" && site != "same-origin") {
        return true;
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    authority.is_none() || authority != host
}

/// Refuses requests that name another host than the loopback address that is served.
pub(super) async fn names_us(
    State(loopback): State<Option<SocketAddr>>,
    request: Request,
    next: Next,
) -> Response {
    let verdict = loopback.map_or(Ok(()), |address| check_host(&request, address));
    match verdict {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check_host(request: &Request, address: SocketAddr) -> Result<(), ApiError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host
            .to_str()
            .ok()
            .and_then(|host| host.parse::<Authority>().ok()),
        _ => None,
    };
    let good = named.is_some_and(|authority| {
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let good_host = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let good_port = authority.port().is_none() || authority.port_u16() == Some(address.port());
        good_host && good_port
    });
    if good {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "the Host header does not name this interface",
        format!("send Host: {address}, or localhost with the same port"),
    ))
}
